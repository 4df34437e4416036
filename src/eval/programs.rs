//! Programs that checks run, and the port through which they are run.

use std::collections::BTreeMap;

use ktsu_ledger::Hash;
use serde_json::Value;

/// The required exit of a command in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandCheck {
    /// The command that `sh -c` runs.
    pub command: String,
    /// The exit code that passes.
    pub exit_code: i32,
    /// Its limits.
    pub limits: ProgramLimits,
}

/// A check that a script makes of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomCheck {
    /// The file, from the folder of the spec, and never outside of it.
    pub script: String,
    /// True if it can only read the workspace: it runs beside it (`host`), not within it
    /// (`sandbox`).
    pub reads_only: bool,
    /// Its limits.
    pub limits: ProgramLimits,
}

/// The required result of a query of a database: the first column of the first row.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlCheck {
    /// The name of the database.
    pub service: String,
    /// A single query that reads.
    pub query: String,
    /// The value that it has to give.
    pub equals: Value,
    /// Its limits.
    pub limits: ProgramLimits,
}

/// The limits of a program, where a file has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgramLimits {
    /// From its start to its end.
    pub time_ms: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes at a time.
    pub processes: Option<u64>,
    /// Bytes by which the workspace may grow.
    pub disk: Option<u64>,
}

/// Runs programs beside the files of a workspace. An implementation bounds what they take and what
/// they print.
pub trait Programs {
    /// The places where a program finds what it is given.
    fn places(&self) -> ProgramPlaces;

    /// Runs a program to its end.
    ///
    /// # Errors
    /// Why it was not run, in words for people.
    fn run(&self, program: &CheckProgram<'_>) -> Result<ProgramRun, String>;

    /// Returns `true` if the person wants to stop: programs were ended for that, and what was found
    /// says nothing.
    fn is_interrupted(&self) -> bool;
}

/// Paths, as a program sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramPlaces {
    /// The folder of the workspace.
    pub workspace: String,
    /// The file with the record of calls.
    pub audit_log: String,
    /// The file with the trace.
    pub trace: String,
    /// The addresses of databases, by name.
    pub databases: BTreeMap<String, DatabasePlace>,
}

/// The address of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabasePlace {
    /// The folder with its socket, as PostgreSQL has it, or the name of the host.
    pub host: String,
    /// The port; with PostgreSQL, it is a part of the name of the socket.
    pub port: u16,
    /// The socket, where clients take its path.
    pub socket: Option<String>,
}

/// A program to be run.
#[derive(Debug, Clone, Copy)]
pub enum CheckProgram<'p> {
    /// A command, its standard error with its output.
    Command(&'p CommandCheck),
    /// A query, whose output is the value as JSON, or nothing if there is no row.
    Query(&'p SqlCheck),
    /// A script.
    Script {
        /// The check that has the script.
        check: &'p CustomCheck,
        /// Its standard input.
        input: &'p str,
        /// The text of the file at [`ProgramPlaces::audit_log`].
        audit_log: &'p str,
        /// The text of the file at [`ProgramPlaces::trace`].
        trace: &'p str,
    },
}

/// The end of a program, and its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRun {
    /// Its exit code, or the limit that it met, in words.
    pub end: Result<i32, String>,
    /// The end of its output.
    pub output: Vec<u8>,
    /// The number of bytes of output.
    pub output_bytes: u64,
    /// The end of its standard error, where that is apart.
    pub errors: Vec<u8>,
    /// BLAKE3 of the script.
    pub script: Option<Hash>,
}

//! The interface that kinds of databases have in common: the programs of each are run in the same
//! way.

use std::fmt::Debug;
use std::time::Duration;

use ktsu_eval::DatabasePlace;

/// The place of a server, as programs see it.
#[derive(Debug, Clone)]
pub(super) struct ServerPlace {
    /// The folder of its data.
    pub(super) data: String,
    /// The folder of its socket.
    pub(super) socket: String,
}

/// A program with its arguments, and its standard input.
#[derive(Debug, Default)]
pub(super) struct EngineProgram {
    pub(super) arguments: Vec<String>,
    pub(super) input: Vec<u8>,
}

/// A kind of database that is installed here. It only says what is run.
pub(super) trait DatabaseEngine: Debug + Send + Sync {
    /// Makes data. The files that are run follow its arguments. The last line that it prints is a digest of
    /// what the server held before them that a dump leaves out.
    fn prepare(&self, place: &ServerPlace) -> Vec<String>;

    /// The server.
    fn serve(&self, place: &ServerPlace) -> Vec<String>;

    /// Ends with 0 once the server is ready.
    fn ready(&self, socket: &str) -> EngineProgram;

    /// Its URL, as its clients read it.
    fn url(&self, socket: &str) -> String;

    /// The place of its server, as scripts read it.
    fn place(&self, socket: &str) -> DatabasePlace;

    /// Prints the first column of the first row of a query as JSON, or nothing if there is no row.
    fn query(&self, socket: &str, query: &str, most: Duration) -> EngineProgram;

    /// Returns `true` if a query that ends with this code, and prints these errors, may have lost
    /// its server.
    fn has_lost_server(&self, exit_code: i32, errors: &str) -> bool;

    /// Prints all that the database holds as SQL; fails if it holds something that SQL does not make again:
    /// `beside` is the digest of what a new server holds that a dump leaves out.
    fn dump(&self, socket: &str, beside: &str) -> EngineProgram;

    /// A dump without what differs between equal data.
    fn stable(&self, dump: &str) -> String;

    /// Makes again what a dump has, in a database without data.
    fn restore(&self, socket: &str, dump: &str) -> EngineProgram;
}

impl EngineProgram {
    /// One without an input.
    pub(super) fn new(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
        Self {
            arguments,
            ..Self::default()
        }
    }

    /// The same, with an input.
    pub(super) fn with_input(mut self, input: &str) -> Self {
        self.input = input.as_bytes().to_vec();
        self
    }
}

/// A path as a part of a URL.
pub(super) fn encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

//! The command line: the only part that prints.
//!
//! Commands that write go to the owner of the ledger, or become its owner for a while; commands
//! that read never lock (decision C2). Whatever comes from data passes [`text`] or [`json`] before
//! it is printed.

mod against;
mod agents;
mod approvals;
mod asking;
mod backup;
mod capture;
mod compared;
mod completions;
mod content;
mod diff;
mod embedded;
mod engine;
mod envelope;
mod evidence;
mod explain;
mod files;
mod folder;
mod follow;
mod frames;
mod init;
mod input;
mod invoke;
mod json;
mod layout;
mod live;
mod lock;
mod logging;
mod origin;
mod output;
mod owner;
mod people;
mod reading;
mod recompute;
mod replay;
mod run;
mod runs;
mod schema;
mod signals;
mod start;
mod steer;
mod steps;
mod symbols;
mod table;
mod test;
pub mod text;
mod trace;
mod transfer;
mod tree;
mod validate;
mod verify;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ktsu_ledger::store::FORMAT;

pub use output::Failure;
use output::line;

use crate::workflow::admit::steer::Steer;

/// Runs AI-agent workflows, and keeps a record of them that an auditor can trust.
///
/// `ktsu run kits/intake` runs a workflow; `ktsu trace RUN` shows what followed from what.
#[derive(Debug, Parser)]
#[command(
    name = "ktsu",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 fine; 1 a verdict against (a run failed, a kit is not valid, a \
                  ledger is damaged); 2 could not run.\nAny unambiguous beginning or end of a run's \
                  id serves. `ktsu COMMAND --help` says more."
)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    /// The ledger [default: what the environment file says, else .ktsu/ledger.db]
    #[arg(
        long,
        global = true,
        env = "KTSU_LEDGER",
        value_name = "FILE",
        alias = "db-path",
        hide_env_values = true,
        help_heading = "Global options"
    )]
    ledger: Option<PathBuf>,
    /// Prints JSON on standard output; standard error is for errors alone
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// Colours: where somebody sees them, always, or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value_t = ColorChoice::Auto,
        help_heading = "Global options"
    )]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a workflow of a kit and shows it live
    Run(run::Arguments),
    /// Starts an engine that stays: invoke workflows over HTTP
    Start(start::Arguments),
    /// Starts a run on the engine that owns the ledger
    Invoke(invoke::Arguments),
    /// Judges a kit: everything that is wrong with it, at its place
    Validate(validate::Arguments),
    /// The JSON Schema of a kind of file, for editors
    Schema(schema::Arguments),
    /// Makes a new kit that validates, runs and tests itself without a key
    Init(init::Arguments),
    /// Freezes a kit: every workflow, agent and server with its digest, in ktsu.lock.yaml
    Lock(lock::Arguments),
    /// What a workflow is made of
    #[command(subcommand)]
    Workflow(tree::Arguments),
    /// Lists runs, or shows one
    Runs(runs::Arguments),
    /// What followed from what in a run, or where a frame comes from
    Trace(trace::Arguments),
    /// A branch of a run: shares its frames up to a point, and goes on otherwise
    Fork(people::Fork),
    /// Replaces a field of a step's output, in a person's name
    Overlay(people::Overlay),
    /// Lets a paused run, a branch or an unfinished run go on, or begins steps of one that ended again
    #[command(visible_alias = "retry")]
    Resume(people::Resume),
    /// Holds a run: nothing new starts, deadlines stand still; `resume` lets it go on
    Pause(steer::Arguments),
    /// Ends a run: nothing new starts, and what is under way is told to stop
    Cancel(steer::Arguments),
    /// Ends a run as `cancel` does, without telling those who work for it
    Terminate(steer::Arguments),
    /// Calls of tools that wait for people
    Approvals(approvals::Arguments),
    /// Lets a call of a tool be made
    Approve(approvals::Approve),
    /// Keeps a call of a tool from being made
    Reject(approvals::Reject),
    /// The recorded facts of a run
    Frames(frames::Arguments),
    /// What differs between two runs: exit code 1 if anything does
    Diff(diff::Arguments),
    /// Folds recorded runs, or decides them again: nothing outside the ledger is asked
    Replay(replay::Arguments),
    /// Asks a run's models once more, on the inputs it recorded, and says what came out differently
    Recompute(recompute::Arguments),
    /// Makes baseline files of a run: what its agents were given, and what came of it
    Capture(capture::Arguments),
    /// Holds baseline files against a kit, with fresh model calls
    Test(test::Arguments),
    /// Whether the record is what was recorded: every byte, every hash, every run
    Verify(verify::Arguments),
    /// Archives for auditors, their verification, and the key they rest on
    #[command(subcommand)]
    Evidence(evidence::Arguments),
    /// Writes runs as JSON lines, for another ledger or for whoever collects events
    Export(transfer::Export),
    /// Takes in what `export` wrote; what does not verify is refused whole
    Import(transfer::Import),
    /// Copies a ledger into one file, in use or not, and verifies the copy
    Backup(backup::Backup),
    /// Makes a ledger out of a copy, which is verified first
    Restore(backup::Restore),
    /// What an error code means, how to check, and the way out
    Explain(explain::Arguments),
    /// Prints what a shell needs to complete commands and flags
    Completions(completions::Arguments),
    /// The version of ktsu and of what it writes
    Version,
}

/// Threads for blocking work at the most. Beyond that it waits its turn.
const BLOCKING: usize = 16;

/// Runs the command line, and tells how it went (decision C1: 0 fine, 1 a verdict against, 2 could
/// not run).
pub fn main() -> ExitCode {
    let arguments = parsed();
    if arguments.common.json || arguments.command.is_quiet() {
        output::be_quiet();
    }
    // Looking back needs nothing of the world, so nothing that leads to it is set up.
    let looked = match &arguments.command {
        Command::Diff(of) => Some(diff::run(&arguments.common, of)),
        Command::Replay(of) => Some(replay::run(&arguments.common, of)),
        _ => None,
    };
    if let Some(done) = looked {
        return done.unwrap_or_else(|failure| output::fail(&failure));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // The ledger is read on threads of its own (`crate::readers`).
        .max_blocking_threads(BLOCKING)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return output::fail(&Failure::could_not_run(format!("cannot start: {error}")));
        }
    };
    let done = runtime.block_on(dispatch(arguments));
    match done {
        Ok(code) => code,
        Err(failure) => output::fail(&failure),
    }
}

fn parsed() -> Arguments {
    let command = without_empty(Arguments::command());
    // Looked for before anything is read: what is wrong with the arguments has colours, too.
    let color = asked_color(std::env::args_os().skip(1)).unwrap_or(ColorChoice::Auto);
    output::choose_color(color);
    let matches = command.get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// What arguments say about colours, whatever else is wrong with them.
fn asked_color(arguments: impl Iterator<Item = OsString>) -> Option<ColorChoice> {
    let mut arguments = arguments
        .take_while(|argument| argument != "--")
        .map(|argument| argument.to_string_lossy().into_owned());
    let mut asked = None;
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--color") {
            Some("") => arguments.next(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => continue,
        };
        asked = value.and_then(|value| value.parse().ok()).or(asked);
    }
    asked
}

impl Command {
    /// Whether it was asked for its answer and errors alone.
    fn is_quiet(&self) -> bool {
        match self {
            Self::Run(arguments) => arguments.quiet,
            Self::Start(arguments) => arguments.quiet,
            Self::Invoke(arguments) => arguments.quiet,
            _ => false,
        }
    }
}

/// A variable that is set to nothing counts as one that is not set, whichever flag it stands for.
fn without_empty(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|arg| match arg.get_env().is_some_and(is_empty) {
        true => arg.env(None::<&'static str>),
        false => arg,
    });
    command.mut_subcommands(without_empty)
}

async fn dispatch(arguments: Arguments) -> Result<ExitCode, Failure> {
    let common = arguments.common;
    match arguments.command {
        Command::Run(arguments) => run::run(&common, arguments).await,
        Command::Start(arguments) => start::run(&common, arguments).await,
        Command::Invoke(arguments) => invoke::run(&common, arguments).await,
        Command::Validate(arguments) => validate::run(&common, &arguments),
        Command::Schema(arguments) => schema::run(&common, &arguments),
        Command::Init(arguments) => init::run(&common, &arguments),
        Command::Lock(arguments) => lock::run(&common, &arguments).await,
        Command::Workflow(arguments) => tree::run(&common, &arguments),
        Command::Runs(arguments) => runs::run(&common, arguments),
        Command::Trace(arguments) => trace::run(&common, &arguments),
        Command::Fork(arguments) => people::fork(&common, arguments).await,
        Command::Overlay(arguments) => people::overlay(&common, arguments).await,
        Command::Resume(arguments) => people::resume(&common, arguments).await,
        Command::Pause(arguments) => steer::run(&common, Steer::Pause, arguments).await,
        Command::Cancel(arguments) => steer::run(&common, Steer::Cancel, arguments).await,
        Command::Terminate(arguments) => steer::run(&common, Steer::Terminate, arguments).await,
        Command::Approvals(arguments) => approvals::list(&common, &arguments),
        Command::Approve(arguments) => approvals::approve(&common, arguments).await,
        Command::Reject(arguments) => approvals::reject(&common, arguments).await,
        Command::Frames(arguments) => frames::run(&common, arguments).await,
        Command::Diff(arguments) => diff::run(&common, &arguments),
        Command::Replay(arguments) => replay::run(&common, &arguments),
        Command::Recompute(arguments) => recompute::run(&common, arguments).await,
        Command::Capture(arguments) => capture::run(&common, arguments),
        Command::Test(arguments) => test::run(&common, arguments).await,
        Command::Verify(arguments) => verify::run(&common, &arguments),
        Command::Evidence(arguments) => evidence::run(&common, arguments).await,
        Command::Export(arguments) => transfer::export(&common, &arguments),
        Command::Import(arguments) => transfer::import(&common, arguments).await,
        Command::Backup(arguments) => backup::backup(&common, &arguments),
        Command::Restore(arguments) => backup::restore(&common, &arguments),
        Command::Explain(arguments) => explain::run(&common, &arguments),
        Command::Completions(arguments) => Ok(completions::run(&common, &arguments)),
        Command::Version => Ok(version(&common)),
    }
}

fn version(common: &Common) -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    line(&match common.json {
        true => serde_json::json!({"ktsu": version, "ledger_format": FORMAT}).to_string(),
        false => format!("ktsu {version}\nledger format {FORMAT}"),
    });
    ExitCode::SUCCESS
}

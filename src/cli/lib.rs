//! The command line: the only part that prints.
//!
//! Commands that write talk to the owner of the ledger, or become its owner for a while; commands
//! that only read take no lock (decision C2). All text from data passes [`text`] or `json` before
//! it is printed.

mod against;
mod agents;
mod answering;
mod approval_prompt;
mod approvals;
mod backup;
mod baseline_run;
mod capture;
mod check;
mod check_bench;
mod comparison;
mod completions;
mod content;
mod databases;
mod dev;
mod diff;
mod embedded;
mod envelope;
mod eval;
mod evals;
mod evidence;
mod explain;
mod folder;
mod folder_contents;
mod follow;
mod fork_prompts;
mod frames;
mod hold;
mod init;
mod input;
mod inspect;
mod interventions;
mod invoke;
mod layout;
mod ledger;
mod live;
mod location;
mod lock;
mod logging;
mod mcp;
mod origin;
mod output;
mod owner;
mod pages;
mod port_forward;
mod posts;
mod program_limits;
mod reading;
mod recompute;
mod replay;
mod request_text;
mod resume_step;
mod run;
mod runs;
mod schema;
mod signals;
mod spec_files;
mod start;
mod steer;
mod step_row;
mod steps;
mod successor;
mod symbols;
mod table;
mod terminal;
mod test;
#[cfg(test)]
mod test_frames;
mod test_twice;
pub mod text;
mod trace;
mod transfer;
mod tree;
mod validate;
mod verify;
mod workspace;
mod workspace_text;
mod world;
mod world_tree;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ktsu_history::json_text as json;
use ktsu_ledger::store::FORMAT;
use tokio::runtime::Runtime;

pub use ktsu_opening::Failure;
use output::line;

use ktsu_workflow::admit::steer::RunControl;

/// Runs AI-agent workflows and keeps a record of them that an auditor can check.
///
/// `ktsu run kits/intake` runs a workflow; `ktsu trace RUN` shows what followed from what.
#[derive(Debug, Parser)]
#[command(
    name = "ktsu",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success; 1 a negative result (a run failed, a kit is not valid, a \
                  ledger is damaged); 2 the command could not run.\nA run may be given by any unique \
                  prefix or suffix of its id. For details: `ktsu COMMAND --help`."
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
    /// The ledger: a file, or postgres://ROLE@HOST/DATABASE [default: that of the environment file,
    /// otherwise .ktsu/ledger.db]
    #[arg(
        long,
        global = true,
        env = "KTSU_LEDGER",
        value_name = "FILE",
        alias = "db-path",
        help_heading = "Global options"
    )]
    ledger: Option<PathBuf>,
    /// Prints JSON on standard output, and only errors on standard error
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// Colours the output: on terminals only (auto), always, or never
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
    /// Runs a workflow of a kit and shows its progress
    Run(run::Arguments),
    /// Starts a long-running engine that serves the HTTP API
    Start(start::Arguments),
    /// Works on a kit: checks it at every save, runs it again, and serves the pages of its runs
    Dev(dev::Arguments),
    /// Starts a run on the engine that owns the ledger
    Invoke(invoke::Arguments),
    /// Checks a kit and reports every problem with its location
    Validate(validate::Arguments),
    /// Prints the JSON Schema of a kind of file, for editors
    Schema(schema::Arguments),
    /// Creates a new kit that validates, runs and tests itself without a key
    Init(init::Arguments),
    /// Locks a kit: writes the digest of every workflow, agent and server to ktsu.lock.yaml
    Lock(lock::Arguments),
    /// Shows what a workflow uses
    #[command(subcommand)]
    Workflow(tree::Arguments),
    /// Lists runs, or shows one
    Runs(runs::Arguments),
    /// Shows what followed from what in a run, or where a frame or a value comes from
    Trace(trace::Arguments),
    /// Opens the pages of a ledger in a browser, without an engine: runs, time lines, frames, what waits
    Inspect(inspect::Arguments),
    /// Makes a branch of a run: shares its frames up to a point, then continues differently
    Fork(interventions::ForkArguments),
    /// Posts events to the world of a run; a complete run continues with them
    Post(posts::Arguments),
    /// Overrides a field of a step's output; the record names the person
    Overlay(interventions::OverlayArguments),
    /// Continues a paused run, a branch, an unfinished run or one whose budget is raised, restarts
    /// steps of an ended run, or gives a step the data that it waits for
    #[command(visible_alias = "retry")]
    Resume(interventions::ResumeArguments),
    /// Holds a run: nothing new starts and deadlines are suspended until `resume`
    Pause(steer::Arguments),
    /// Ends a run: nothing new starts, and its workers are cancelled
    Cancel(steer::Arguments),
    /// Ends a run as `cancel` does, without notifying its workers
    Terminate(steer::Arguments),
    /// Keeps a run whatever the environment's retention says, until the hold is released
    Hold(hold::Arguments),
    /// Lists what waits for people: tool calls to approve, outputs to review, steps that wait for data
    Approvals(approvals::Arguments),
    /// Approves a tool call or a reviewed output
    Approve(approvals::Approve),
    /// Rejects a tool call or a reviewed output
    Reject(approvals::Reject),
    /// Lists the recorded frames of a run
    Frames(frames::Arguments),
    /// Shows the objects and relations that a run's responders made
    World(world::Arguments),
    /// Compares two runs; exits with 1 if they differ
    Diff(diff::Arguments),
    /// Folds recorded runs, or decides them again, without calling anything outside the ledger
    Replay(replay::Arguments),
    /// Calls a run's models again with the recorded inputs, and shows how the outputs differ
    Recompute(recompute::Arguments),
    /// Writes baseline files from a run: the inputs and outputs of its agents
    Capture(capture::Arguments),
    /// Tests a kit against baseline files, with new model calls
    Test(test::Arguments),
    /// Judges a finished run by the invariants of a file, and records the verdict
    Check(check::Arguments),
    /// Runs what a spec names, and judges every run
    #[command(subcommand)]
    Eval(eval::EvalCommand),
    /// Lists recorded verdicts, or shows one
    Evals(evals::Arguments),
    /// Verifies the ledger: every byte, every hash, every run
    Verify(verify::Arguments),
    /// Exports and verifies archives for auditors, and manages the signing key
    #[command(subcommand)]
    Evidence(evidence::EvidenceCommand),
    /// Writes runs as JSON lines, for another ledger or for an event collector
    Export(transfer::ExportRunArguments),
    /// Reads the output of `export` into a ledger; refuses it as a whole if it does not verify
    Import(transfer::ImportArguments),
    /// Makes the ledger, or shows its state
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Copies a ledger into one file, in use or not, and verifies the copy
    Backup(backup::BackupArguments),
    /// Restores a ledger from a copy, which is verified first
    Restore(backup::RestoreArguments),
    /// Serves ktsu's tools to other agents: starts, inspects, forks and compares runs (MCP)
    Mcp(mcp::Arguments),
    /// Explains an error code: its cause, how to check it, and how to fix it
    Explain(explain::Arguments),
    /// Prints a completion script for a shell
    Completions(completions::Arguments),
    /// Prints the version of ktsu and of the ledger format
    Version,
}

/// Threads for blocking work at the most. Beyond that it waits its turn.
const MAX_BLOCKING_THREADS: usize = 16;

/// Runs the command line and returns its exit code (decision C1: 0 success, 1 a negative result, 2
/// could not run).
pub fn main() -> ExitCode {
    if let Some(code) = port_forward::main() {
        return code;
    }
    let arguments = parsed();
    if arguments.common.json || arguments.command.is_quiet() {
        output::be_quiet();
    }
    dispatch(arguments).unwrap_or_else(|failure| output::fail(&failure))
}

/// Runs an asynchronous command. The others have no runtime: a replay, for instance, opens no
/// socket, not even one of a runtime's own.
fn in_runtime(
    command: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    runtime()?.block_on(command)
}

/// As [`in_runtime`], for a command that reads standard input: a read that still waits does not
/// delay the end.
fn in_runtime_with_input(
    command: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    let done = runtime.block_on(command);
    runtime.shutdown_background();
    done
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(worker_threads())
        // The ledger is read on threads of its own (`ktsu_readers`).
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .build();
    runtime.map_err(|error| Failure::could_not_run(format!("cannot start: {error}")))
}

/// One fewer than there are processors: the appender is a thread of its own, and as busy. On two
/// processors a second worker costs more in threads that wake each other than it does.
fn worker_threads() -> usize {
    let processors = std::thread::available_parallelism();
    processors.map_or(1, |processors| processors.get().saturating_sub(1).max(1))
}

fn parsed() -> Arguments {
    let command = with_usage(with_variables(Arguments::command()));
    // Parsed first, so that errors in the arguments are coloured as requested, too.
    let color = requested_color(std::env::args_os().skip(1)).unwrap_or(ColorChoice::Auto);
    output::choose_color(color);
    let matches = command.get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The value of `--color`, even if other arguments are invalid.
fn requested_color(arguments: impl Iterator<Item = OsString>) -> Option<ColorChoice> {
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
    /// Returns `true` if only the result and errors are wanted.
    fn is_quiet(&self) -> bool {
        match self {
            Self::Run(arguments) => arguments.quiet,
            Self::Start(arguments) => arguments.quiet,
            Self::Invoke(arguments) => arguments.quiet,
            _ => false,
        }
    }
}

/// Treats environment variables with an empty value as unset, and shows no values in help texts.
fn with_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|arg| match arg.get_env().is_some_and(is_empty) {
        true => arg.env(None::<&'static str>),
        false => arg.hide_env_values(true),
    });
    command.mut_subcommands(with_variables)
}

/// Shows the same usage in every error. What clap would make of the arguments at hand names options as
/// required that have their values from variables.
fn with_usage(mut command: clap::Command) -> clap::Command {
    command.build();
    fixed_usage(command)
}

fn fixed_usage(mut command: clap::Command) -> clap::Command {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    command.override_usage(usage).mut_subcommands(fixed_usage)
}

/// The usage of a command, in a line.
fn usage_of(name: &str) -> String {
    let command = with_usage(with_variables(Arguments::command()));
    let found = command.find_subcommand(name).cloned();
    found.map_or_else(String::new, |mut found| found.render_usage().to_string())
}

fn dispatch(arguments: Arguments) -> Result<ExitCode, Failure> {
    let common = arguments.common;
    match arguments.command {
        Command::Run(arguments) => in_runtime(run::run(&common, arguments)),
        Command::Start(arguments) => in_runtime(start::run(&common, arguments)),
        Command::Dev(arguments) => in_runtime(dev::run(&common, arguments)),
        Command::Invoke(arguments) => in_runtime(invoke::run(&common, arguments)),
        Command::Validate(arguments) => in_runtime(validate::run(&common, &arguments)),
        Command::Schema(arguments) => schema::run(&common, &arguments),
        Command::Init(arguments) => init::run(&common, &arguments),
        Command::Lock(arguments) => in_runtime(lock::run(&common, &arguments)),
        Command::Workflow(arguments) => tree::run(&common, &arguments),
        Command::Runs(arguments) => runs::run(&common, arguments),
        Command::Trace(arguments) => trace::run(&common, &arguments),
        Command::Inspect(arguments) => in_runtime(inspect::run(&common, arguments)),
        Command::Fork(arguments) => in_runtime(interventions::fork(&common, arguments)),
        Command::Post(arguments) => in_runtime(posts::run(&common, arguments)),
        Command::Overlay(arguments) => in_runtime(interventions::overlay(&common, arguments)),
        Command::Resume(arguments) => in_runtime(resume_step::resume(&common, arguments)),
        Command::Pause(arguments) => in_runtime(steer::run(&common, RunControl::Pause, arguments)),
        Command::Cancel(arguments) => {
            in_runtime(steer::run(&common, RunControl::Cancel, arguments))
        }
        Command::Terminate(arguments) => {
            in_runtime(steer::run(&common, RunControl::Terminate, arguments))
        }
        Command::Hold(arguments) => in_runtime(hold::run(&common, arguments)),
        Command::Approvals(arguments) => approvals::list(&common, &arguments),
        Command::Approve(arguments) => in_runtime(approvals::approve(&common, arguments)),
        Command::Reject(arguments) => in_runtime(approvals::reject(&common, arguments)),
        Command::Frames(arguments) => in_runtime(frames::run(&common, arguments)),
        Command::World(arguments) => world::run(&common, &arguments),
        Command::Diff(arguments) => diff::run(&common, &arguments),
        Command::Replay(arguments) => replay::run(&common, &arguments),
        Command::Recompute(arguments) => in_runtime(recompute::run(&common, arguments)),
        Command::Capture(arguments) => capture::run(&common, arguments),
        Command::Check(arguments) => in_runtime(check::run(&common, arguments)),
        Command::Eval(command) => in_runtime(eval::run(&common, command)),
        Command::Evals(arguments) => evals::run(&common, &arguments),
        Command::Test(arguments) => in_runtime(test::run(&common, arguments)),
        Command::Verify(arguments) => verify::run(&common, &arguments),
        Command::Evidence(arguments) => in_runtime(evidence::run(&common, arguments)),
        Command::Export(arguments) => transfer::export(&common, &arguments),
        Command::Import(arguments) => in_runtime(transfer::import(&common, arguments)),
        Command::Ledger(command) => ledger::run(&common, &command),
        Command::Backup(arguments) => backup::backup(&common, &arguments),
        Command::Restore(arguments) => backup::restore(&common, &arguments),
        Command::Mcp(arguments) => in_runtime_with_input(mcp::run(&common, arguments)),
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

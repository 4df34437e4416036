//! The command line: the only part that prints.

mod engine;
mod follow;
mod output;
mod run;
pub mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use output::Failure;

/// Runs AI-agent workflows, and keeps a record of them that an auditor can trust.
#[derive(Debug, Parser)]
#[command(name = "ktsu", version, propagate_version = true)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    /// The ledger [default: .ktsu/ledger.db]
    #[arg(long, global = true, env = "KTSU_LEDGER", value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Prints JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a workflow of a kit on the embedded ledger, and shows it live
    Run(run::Arguments),
}

/// Runs the command line, and tells how it went (decision C1: 0 fine, 1 a verdict against, 2 could
/// not run).
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
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

async fn dispatch(arguments: Arguments) -> Result<ExitCode, Failure> {
    let common = arguments.common;
    match arguments.command {
        Command::Run(arguments) => run::run(&common, arguments).await,
    }
}

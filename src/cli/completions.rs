//! `ktsu completions`: what a shell needs to complete commands and flags.

use std::io::Write as _;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::output::line;
use super::{Common, json};

/// What `completions` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the script for a shell.
pub(super) fn run(common: &Common, arguments: &Arguments) -> ExitCode {
    let mut script = Vec::new();
    let mut command = super::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "ktsu", &mut script);
    if common.json {
        let script = String::from_utf8_lossy(&script);
        let body = serde_json::json!({"shell": arguments.shell.to_string(), "script": script});
        line(&json::pretty(&body.to_string()));
        return ExitCode::SUCCESS;
    }
    // A reader that went away is no error.
    let _ = std::io::stdout().lock().write_all(&script);
    ExitCode::SUCCESS
}

//! `ktsu hold`: legal holds. A run that is held is kept, whatever the retention of the environment
//! says.

use std::process::ExitCode;

use serde_json::json;

use super::output::{line, note_dim};
use super::owner::{EngineArguments, EngineHandle};
use super::reading::open_at;
use super::{Common, Failure};
use ktsu_opening::find::find_run;

/// What `hold` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run, branch or recompute: its id, or a unique prefix or suffix of it
    run: String,
    /// Ends the hold: retention applies to the run again
    #[arg(long)]
    release: bool,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Places a run under legal hold, or lifts the hold.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let place = EngineHandle::ledger_location(common, &arguments.engine)?;
    let reader = open_at(&place.ledger)?;
    let (stream, scope) = find_run(&reader, &arguments.run)?;
    drop(reader);
    let run = stream.name();
    if !scope.is_empty() {
        let words = format!("hold works on whole runs only, here {run}");
        return Err(Failure::could_not_run(words).hint(format!("ktsu hold {run} --reason TEXT")));
    }
    let body = json!({"reason": arguments.reason, "release": arguments.release});
    let owner = EngineHandle::open(place, &arguments.engine.without_kit(), false).await?;
    let outcome = owner.post(&format!("/runs/{run}/hold"), &body, None).await;
    let flag = owner.place.flag.clone();
    owner.close().await?;
    let outcome = outcome?;
    let words = match arguments.release {
        true => format!("{run} released"),
        false => format!("{run} held"),
    };
    line(&match common.json {
        true => outcome.to_string(),
        false => words,
    });
    if !arguments.release && !common.json {
        note_dim(&format!("  ktsu hold {run} --release --reason TEXT{flag}"));
    }
    Ok(ExitCode::SUCCESS)
}

//! `ktsu post`: events for the world of a run.

use std::process::ExitCode;

use serde_json::Value;

use super::follow::{SILENCE_TIMEOUT, Viewer, follow};
use super::input::given_json;
use super::output::{exit_code, line, note_dim, print_failure};
use super::owner::{EngineArguments, EngineHandle};
use super::reading::open_at;
use super::signals::Signals;
use super::{Common, Failure, json, text};
use ktsu_opening::find::find_run;

/// What it takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run or branch: its id, or a unique prefix or suffix of it
    run: String,
    /// One event or a list of them, as JSON: {"type": "note", "data": {…}}; or @FILE, or - for
    /// standard input
    events: String,
    /// Records the events once, however often the command is given with this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The last frame you know of about the object or relation: refuses if it has changed since
    #[arg(long, value_name = "FRAME")]
    expect: Option<u64>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Posts events; where no engine continues the run, waits here for what follows from them.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let events = events(&arguments.events)?;
    let place = EngineHandle::ledger_location(common, &arguments.engine)?;
    let (stream, scope) = find_run(&open_at(&place.ledger)?, &arguments.run)?;
    if !scope.is_empty() {
        let words = "an inline child has no world of its own";
        let hint = format!("post to its run: ktsu post {}", stream.name());
        return Err(Failure::could_not_run(words).hint(hint));
    }
    let owner = EngineHandle::open(place, &arguments.engine, false).await?;
    let mut headers: Vec<(&str, String)> = Vec::new();
    headers.extend(arguments.key.map(|key| ("idempotency-key", key)));
    headers.extend(arguments.expect.map(|seq| ("if-match", seq.to_string())));
    let path = format!("/runs/{}/events", stream.name());
    let receipt = match owner.post_with(&path, &events, &headers).await {
        Ok(receipt) => receipt,
        Err(failure) => {
            owner.close().await?;
            return Err(failure);
        }
    };
    print(common, &receipt);
    let is_ours = owner.is_ours();
    let ended = match is_ours {
        true => settled(&owner, stream.name()).await,
        false => Ok(None),
    };
    let flag = owner.place.flag.clone();
    owner.close().await?;
    let failed = match ended? {
        None if is_ours => {
            let run = stream.name();
            let words = format!("interrupted; to continue: ktsu resume {run} --kit DIR{flag}");
            print_failure(&words);
            return Ok(ExitCode::from(ktsu_codes::EXIT_COULD_NOT_RUN));
        }
        None => None,
        Some(envelope) => failure_of(&envelope),
    };
    if let Some(words) = &failed {
        print_failure(words);
    } else if !common.json {
        note_dim(&format!("  ktsu world {}{flag}", stream.name()));
    }
    Ok(exit_code(failed.is_none()))
}

/// A line for each event: its frame, its type, and what it is about.
fn print(common: &Common, receipt: &Value) {
    if common.json {
        line(&json::compact(&receipt.to_string()));
        return;
    }
    let run = text::line(receipt["run_id"].as_str().unwrap_or_default()).into_owned();
    let events = receipt["events"].as_array().into_iter().flatten();
    for event in events {
        let kind = event["type"].as_str().unwrap_or_default();
        let id = event["id"].as_str().unwrap_or_default();
        let words = format!("{run}#{} {kind} {id}", event["seq"]);
        line(&text::line(words.trim_end()));
    }
}

/// Waits until the run has ended, or only people elsewhere can move it; gives its envelope, or nothing
/// if a signal came first.
pub(super) async fn settled(owner: &EngineHandle, run: &str) -> Result<Option<String>, Failure> {
    let mut signals = Signals::new()?;
    let viewer = Viewer {
        leaves_waiting: true,
        silence: Some(SILENCE_TIMEOUT),
        ..Viewer::default()
    };
    tokio::select! {
        envelope = follow(&owner.peer, run, viewer) => envelope.map(Some),
        () = signals.next() => Ok(None),
    }
}

/// The error of a run, if it failed with what was posted.
fn failure_of(envelope: &str) -> Option<String> {
    let envelope: Value = serde_json::from_str(envelope).unwrap_or_default();
    let error = &envelope["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (envelope["status"] == "failed").then(|| format!("{}: {}", text("code"), text("message")))
}

/// The events that are meant.
fn events(given: &str) -> Result<Value, Failure> {
    let form = r#"ktsu post RUN '{"type": "note", "data": {}}', or @FILE, or -"#;
    given_json(given, "the events are", ("ktsu post RUN", form))
}

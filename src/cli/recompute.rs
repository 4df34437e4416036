//! `ktsu recompute`: calls a run's models again with the recorded inputs.

use std::process::ExitCode;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::comparison::{self, OutputFormat};
use super::follow::{Viewer, follow};
use super::interventions::is_whole_step;
use super::output::{line, note_dim, print_failure};
use super::owner::{EngineArguments, EngineHandle};
use super::reading::open_at;
use super::signals::Signals;
use super::{Common, Failure};
use ktsu_codes::EXIT_COULD_NOT_RUN;
use ktsu_history::recompute::RecomputeReport;
use ktsu_opening::find::find_run;
use ktsu_opening::peer::problem;
use ktsu_opening::peer::remote;
use ktsu_peer::Peer;

/// What `recompute` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run: its id, or a unique prefix or suffix of it
    run: String,
    /// Only this step, by its path from the run: triage, call/inner; or one question: @NAME.KEY
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// Waits for the verdict, and shows it; always on if no process owns the ledger
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    engine: EngineArguments,
    /// The engine to send the request to [default: the owner of the ledger]
    #[arg(long, value_name = "URL", env = "KTSU_ORCHESTRATOR_URL")]
    orchestrator: Option<String>,
    /// Prints Markdown, for a pull request
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Exits with 0 if there is nothing to compare with
    #[arg(long)]
    allow_not_comparable: bool,
}

/// Starts a recompute on the engine that owns the ledger.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    if let Some(url) = &arguments.orchestrator {
        let peer = remote(url)?;
        return at_engine(common, &arguments, &arguments.run, &peer).await;
    }
    let place = EngineHandle::ledger_location(common, &arguments.engine)?;
    // Looked for first: an engine is not started for a run that does not exist.
    let (stream, scope) = find_run(&open_at(&place.ledger)?, &arguments.run)?;
    if !scope.is_empty() {
        let words = "a child cannot be recomputed on its own";
        let hint = format!("ktsu recompute {} --step {scope}/STEP", stream.name());
        return Err(Failure::could_not_run(words).hint(hint));
    }
    let owner = EngineHandle::open(place, &arguments.engine, true).await?;
    if !owner.is_ours() {
        return at_engine(common, &arguments, stream.name(), &owner.peer).await;
    }
    let mut signals = Signals::new()?;
    let verdict = tokio::select! {
        verdict = recompute_and_wait(&owner.peer, stream.name(), &arguments) => Some(verdict),
        () = signals.next() => None,
    };
    let flag = owner.place.flag.clone();
    let closed = signals.unless_again(owner.close()).await;
    let Some(verdict) = verdict else {
        print_failure("interrupted: the recompute is recorded and continues at the next start");
        return Ok(ExitCode::from(EXIT_COULD_NOT_RUN));
    };
    let verdict = verdict?;
    closed?;
    show(common, &arguments, &verdict, &flag)
}

/// Recomputes on an engine of another process.
async fn at_engine(
    common: &Common,
    arguments: &Arguments,
    run: &str,
    peer: &Peer,
) -> Result<ExitCode, Failure> {
    if arguments.wait {
        let mut signals = Signals::new()?;
        let verdict = tokio::select! {
            verdict = recompute_and_wait(peer, run, arguments) => verdict?,
            () = signals.next() => {
                print_failure("stopped waiting: the recompute continues");
                return Ok(ExitCode::from(EXIT_COULD_NOT_RUN));
            }
        };
        return show(common, arguments, &verdict, "");
    }
    let id = begin(peer, run, arguments).await?;
    line(&match common.json {
        true => json!({"recompute_id": id, "status": "accepted"}).to_string(),
        false => format!("recompute_id: {id}"),
    });
    Ok(ExitCode::SUCCESS)
}

/// Starts it, waits for it, and reads its verdict.
async fn recompute_and_wait(
    peer: &Peer,
    run: &str,
    arguments: &Arguments,
) -> Result<RecomputeReport, Failure> {
    let id = begin(peer, run, arguments).await?;
    note_dim(&format!("recomputing {run} as {id}"));
    follow(peer, &id, Viewer::default()).await?;
    let request = Request::get(format!("/runs/{id}/recompute"))
        .body(Body::empty())
        .map_err(Failure::of)?;
    let (status, body) = peer.call_and_read(request).await?;
    if status != 200 {
        let body = serde_json::from_slice(&body).unwrap_or_default();
        return Err(problem(status, &body));
    }
    let read = serde_json::from_slice(&body);
    read.map_err(|error| Failure::could_not_run(format!("cannot read the response: {error}")))
}

/// Starts it, and gives its id.
async fn begin(peer: &Peer, run: &str, arguments: &Arguments) -> Result<String, Failure> {
    let step = arguments.step.as_deref();
    let step = step.map(|step| is_whole_step(step, "ktsu recompute RUN --step"));
    let body = match step.transpose()? {
        Some(step) => json!({ "step": step }),
        None => json!({}),
    };
    let request = Request::post(format!("/runs/{run}/recompute"));
    let request = request
        .body(Body::from(body.to_string()))
        .map_err(Failure::of)?;
    let (status, body) = peer.call_and_read(request).await?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match body["recompute_id"].as_str() {
        Some(id) => Ok(id.to_owned()),
        None => Err(problem(status, &body)),
    }
}

fn show(
    common: &Common,
    arguments: &Arguments,
    verdict: &RecomputeReport,
    flag: &str,
) -> Result<ExitCode, Failure> {
    let shape = match (common.json, arguments.markdown) {
        (true, _) => OutputFormat::Json,
        (false, true) => OutputFormat::Markdown,
        (false, false) => OutputFormat::Text,
    };
    comparison::print(verdict, shape)?;
    if shape == OutputFormat::Text {
        let command = format!("ktsu trace {}{flag}", verdict.recompute_id);
        note_dim(&format!("\nthe new calls: {command}"));
    }
    Ok(comparison::exit_code(
        &verdict.status,
        arguments.allow_not_comparable,
    ))
}

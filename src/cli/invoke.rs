//! `ktsu invoke`: starts a run on the engine that owns the ledger.
//!
//! If no process owns it, the run is executed in this process, which waits for its end: a run
//! without an engine would only wait for the next start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ktsu_ledger::event::Effects;
use ktsu_ledger::store::{Filter, Reader as _};
use serde_json::json;
use uuid::Uuid;

use super::embedded::{self, EmbeddedRun};
use super::follow::{SILENCE_TIMEOUT, StartRequest, Watch, invoke};
use super::input::effects_words;
use super::location::{LedgerLocation, ledger_location, nearby_ledger};
use super::output::{line, note, print_failure};
use super::reading::open_at;
use super::signals::Signals;
use super::successor::SuccessorSearch;
use super::{Common, Failure};
use ktsu_codes::EXIT_COULD_NOT_RUN;
use ktsu_codes::nearest;
use ktsu_opening::environment::load_environment;
use ktsu_opening::input::{given_input, workflow_of};
use ktsu_opening::kit::load_kit;
use ktsu_opening::ledger::owner_url;
use ktsu_opening::peer;

/// The time an engine has to answer that a run is accepted. It answers once the run is durable, which
/// takes milliseconds.
const ANSWER_TIMEOUT_SECONDS: u64 = 30;

/// The longest wait for a standby that is about to take over.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// What `invoke` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The workflow
    workflow: String,
    /// The params, as JSON or from a file [default: {}]
    #[arg(long, value_name = "JSON|@FILE")]
    input: Option<String>,
    /// Waits for the end of the run, and shows it; always on if no process owns the ledger
    #[arg(long)]
    wait: bool,
    /// The kit to run if no process owns the ledger
    #[arg(
        long,
        value_name = "DIR",
        alias = "project-dir",
        env = "KTSU_PROJECT_DIR"
    )]
    kit: Option<PathBuf>,
    /// The environment file, with --kit
    #[arg(long, env = "KTSU_ENV", value_name = "FILE")]
    env: Option<PathBuf>,
    /// The engine to send the request to [default: the owner of the ledger]
    #[arg(long, value_name = "URL", env = "KTSU_ORCHESTRATOR_URL")]
    orchestrator: Option<String>,
    /// Requests with the same key and input start one run
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Whether webhooks and messages of the run are sent
    #[arg(long, value_name = "WHAT", default_value = "execute", value_parser = effects_words())]
    effects: Effects,
    /// Makes every model call, although an earlier reply of the run may answer it
    #[arg(long)]
    no_cache: bool,
    /// Seconds to wait for the answer of the engine
    #[arg(long, value_name = "SECONDS", default_value_t = ANSWER_TIMEOUT_SECONDS, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// An additional header, such as the secret that a workflow requires from its callers
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Prints only the answer and errors
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// Starts a run.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let input = given_input(arguments.input.as_deref())?;
    if let Some(url) = &arguments.orchestrator {
        return remote(common, &arguments, input, url, None).await;
    }
    let place = match &arguments.kit {
        Some(kit) => {
            let environment = load_environment(arguments.env.as_deref(), kit)?;
            ledger_location(common, environment.as_ref())?
        }
        None => nearby_ledger(common)?,
    };
    if let Some(url) = owner_of(&place, arguments.kit.is_some()).await? {
        return remote(common, &arguments, input, &url, Some(&place)).await;
    }
    let Some(kit) = &arguments.kit else {
        return Err(without_owner(&place));
    };
    let kit = load_kit(kit)?;
    let workflow = workflow_of(&kit, Some(&arguments.workflow))?;
    let environment = load_environment(arguments.env.as_deref(), &kit.root)?;
    if !arguments.wait {
        note("no engine owns the ledger: running the workflow here until it ends");
    }
    embedded::run(
        common,
        EmbeddedRun {
            kit,
            workflow,
            input,
            key: arguments.idempotency_key,
            effects: arguments.effects,
            no_cache: arguments.no_cache,
            environment,
            answers: None,
            ledger: Some(place),
            open: false,
        },
    )
    .await
}

/// The URL of the engine that owns a ledger; nothing if there is none, and the run may be executed here.
async fn owner_of(place: &LedgerLocation, may_be_here: bool) -> Result<Option<String>, Failure> {
    match owner_url(&place.ledger) {
        Ok(Some(url)) => Ok(Some(url)),
        found if place.ledger.is_shared() && !may_be_here => {
            let failure = found.err().unwrap_or_else(|| without_owner(place));
            let mut successors = SuccessorSearch::new(Some(place), TAKEOVER_TIMEOUT);
            successors.after(failure).await.map(Some)
        }
        found => found,
    }
}

fn without_owner(place: &LedgerLocation) -> Failure {
    let words = format!("no engine owns {}", place.ledger);
    Failure::lost(words).hint(
        "start an engine: ktsu start --kit DIR; or run it here: ktsu invoke WORKFLOW --kit DIR",
    )
}

async fn remote(
    common: &Common,
    arguments: &Arguments,
    input: String,
    url: &str,
    place: Option<&LedgerLocation>,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let mut peer = peer::remote(url)?;
    // A request that another owner has to answer is repeated, which must not start a second run.
    let is_shared = place.is_some_and(|place| place.ledger.is_shared());
    let own_key = is_shared.then(|| Uuid::now_v7().to_string());
    let key = arguments.idempotency_key.as_ref().or(own_key.as_ref());
    let asked = StartRequest {
        workflow: &arguments.workflow,
        input,
        key: key.map(String::as_str),
        groups: BTreeMap::new(),
        references: None,
        effects: arguments.effects,
        no_cache: arguments.no_cache,
        headers: headers(&arguments.headers)?,
    };
    let time = Duration::from_secs(arguments.timeout);
    let mut successors = SuccessorSearch::new(place, time);
    let run_id = loop {
        let failure = match tokio::time::timeout(time, invoke(&peer, asked.clone())).await {
            Ok(Ok(run_id)) => break run_id,
            Ok(Err(failure)) => failure.or_hint(|| with_suggestion(&arguments.workflow, place)),
            Err(_) => no_answer(url, arguments),
        };
        peer = peer::remote(&successors.after(failure).await?)?;
    };
    if !arguments.wait {
        line(&match common.json {
            true => json!({"run_id": run_id, "status": "accepted"}).to_string(),
            false => format!("run_id: {run_id}"),
        });
        return Ok(ExitCode::SUCCESS);
    }
    let flag = place.map_or("", |place| place.flag.as_str());
    let watch = Watch {
        flag,
        silence: Some(time.max(SILENCE_TIMEOUT)),
        ..Watch::default()
    };
    let envelope = loop {
        let failure = match watch.follow(&peer, &run_id, &mut signals).await {
            Some(Ok(envelope)) => break envelope,
            Some(Err(failure)) => failure,
            None => {
                print_failure(&format!(
                    "stopped waiting: {run_id} continues at {url}; to end it: ktsu cancel {run_id}{flag}"
                ));
                return Ok(ExitCode::from(EXIT_COULD_NOT_RUN));
            }
        };
        peer = peer::remote(&successors.after(failure).await?)?;
    };
    embedded::finish(common, &run_id, &envelope, place)
}

/// The engine did not respond, so the run may or may not have started. With an idempotency key the
/// request can be repeated without starting a second run.
fn no_answer(url: &str, arguments: &Arguments) -> Failure {
    let seconds = arguments.timeout;
    let words = format!("no response from {url} within {seconds} s");
    let hint = match arguments.idempotency_key {
        Some(_) => "invoke it again with the same key, which starts no second run",
        None => "the run may have started: check with ktsu runs",
    };
    Failure::could_not_run(words).hint(hint)
}

/// A workflow with a similar name, among those that ran on the ledger before.
fn with_suggestion(workflow: &str, place: Option<&LedgerLocation>) -> Option<String> {
    let reader = open_at(&place?.ledger).ok()?;
    let page = reader.list(&Filter::default(), None, 1000).ok()?;
    let names = page.rows.iter().map(|row| row.workflow.as_str());
    let near = nearest(workflow, names.filter(|name| *name != workflow))?;
    Some(format!("did you mean {near}?"))
}

fn headers(given: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let split = given.iter().map(|header| {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Failure::could_not_run("a header has the form NAME: VALUE")
                .hint("--header 'Authorization: Bearer …'")
        })?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    split.collect()
}

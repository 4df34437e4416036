//! `ktsu run`: the main job in one command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;

use super::engine::{any_port, ledger_path, load_environment, load_kit, open, process_environment};
use super::follow::follow;
use super::output::{line, note};
use super::{Common, Failure};
use crate::assemble::{Engine, LedgerPlace, Setup};
use crate::kit::Kit;
use crate::peer::Peer;
use crate::receiver::Receiver;

/// How many deliveries the local receiver remembers.
const KEPT: usize = 20;

/// What `run` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The kit's folder
    kit: PathBuf,
    /// The workflow [default: the kit's default, or its only root workflow]
    workflow: Option<String>,
    /// The params: JSON, or @FILE [default: examples/default.json of the kit]
    #[arg(long, value_name = "JSON|@FILE")]
    input: Option<String>,
    /// The environment file [default: the nearest environments/local.env.yaml]
    #[arg(long, env = "KTSU_ENV", value_name = "FILE")]
    env: Option<PathBuf>,
    /// Keeps the ledger in memory: it is gone with the command
    #[arg(long)]
    ephemeral: bool,
}

/// Runs a workflow and shows it.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let kit = load_kit(&arguments.kit)?;
    let workflow = workflow_of(&kit, arguments.workflow.as_deref())?;
    let input = input_of(&kit, arguments.input.as_deref())?;
    let environment = load_environment(arguments.env.as_deref(), &kit.root)?;
    let mut process = process_environment();
    let receiver = match environment.as_ref().and_then(|one| one.receiver.clone()) {
        Some(variable) if !process.contains_key(&variable) => {
            let receiver = Receiver::start(KEPT).await;
            let receiver = receiver.map_err(|error| Failure::could_not_run(error.to_string()))?;
            process.insert(variable, receiver.url());
            Some(receiver)
        }
        Some(_) | None => None,
    };
    let ledger = match arguments.ephemeral {
        true => LedgerPlace::Memory,
        false => LedgerPlace::File(ledger_path(common, environment.as_ref())),
    };
    let engine = open(Setup {
        kit,
        environment,
        process,
        ledger,
        listen: any_port(),
        clock: None,
    })
    .await?;
    let code = invoke_and_follow(&engine, common, &workflow, &input).await;
    if let Some(receiver) = receiver {
        note(&format!(
            "the local receiver got {} webhooks",
            receiver.received()
        ));
    }
    engine.close().await.map_err(Failure::could_not_run)?;
    code
}

async fn invoke_and_follow(
    engine: &Engine,
    common: &Common,
    workflow: &str,
    input: &str,
) -> Result<ExitCode, Failure> {
    let peer = Peer::Local(engine.router.clone());
    let request = Request::post(format!("/invoke/{workflow}")).body(Body::from(input.to_owned()));
    let request = request.map_err(|error| Failure::could_not_run(error.to_string()))?;
    let (status, body) = peer
        .whole(request)
        .await
        .map_err(|error| Failure::could_not_run(error.to_string()))?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let run_id = body["run_id"].as_str().filter(|_| status == 202);
    let Some(run_id) = run_id else {
        let words = body["message"]
            .as_str()
            .unwrap_or("the workflow was not started");
        return Err(Failure::could_not_run(words));
    };
    let envelope = follow(&peer, run_id, common.json).await?;
    line(&format!("{envelope:#}"));
    let complete = envelope["status"] == "complete";
    Ok(if complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn workflow_of(kit: &Kit, named: Option<&str>) -> Result<String, Failure> {
    let chosen = named.or_else(|| kit.default_root());
    chosen.map(str::to_owned).ok_or_else(|| {
        let names = kit.workflows.keys().cloned().collect::<Vec<_>>().join(", ");
        Failure::could_not_run(format!("kit {} has several workflows: {names}", kit.name))
            .hint("name one: ktsu run KIT WORKFLOW")
    })
}

fn input_of(kit: &Kit, given: Option<&str>) -> Result<String, Failure> {
    match given.map(|given| (given, given.strip_prefix('@'))) {
        Some((_, Some(path))) => read(Path::new(path)),
        Some((text, None)) => Ok(text.to_owned()),
        None => match kit.examples.get("default") {
            Some(path) => read(path),
            None => Ok("{}".to_owned()),
        },
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::could_not_run(format!("cannot read {}: {error}", path.display())))
}

//! `start_run`, `invoke_workflow` and `get_envelope`.

use std::path::Path;
use std::sync::Arc;

use ktsu_ledger::Frame;
use ktsu_projections::world::activity::is_world_frame;
use serde_json::{Value, json};
use uuid::Uuid;

use super::access::CallerAccess;
use super::answer::{AnswerError, ToolAnswer};
use super::ask::{get, get_frames, post, run_path, segment, with_query};
use super::catalog::AgentTool;
use super::context::{KEY_PREFIX, ToolContext};
use super::engines::EnginePurpose;
use super::inputs::ToolInputs;
use super::kits;
use super::worlds::{event_id, objects_of, relations_of};
use ktsu_codes::ErrorCode;
use ktsu_kit::Kit;
use ktsu_opening::Failure;
use ktsu_opening::input::{input_of, with_goal, workflow_of};
use ktsu_opening::kit::load_kit;
use ktsu_opening::quoting::quoted;
use ktsu_peer::Peer;

/// The time that a tool waits for the end of a run if the agent does not say, in seconds.
const DEFAULT_WAIT_SECONDS: u64 = 30;
/// The most event ids in an answer.
const MAX_EVENT_IDS: usize = 500;
/// The most objects and relations in the answer of `start_run`.
const MAX_FIRST_PAGE: usize = 200;
/// The number of frames that are read at a time.
const FRAMES_AT_A_TIME: usize = 1000;

/// The workflow to invoke, read from a kit, with its params.
struct KitRun {
    kit: Arc<Kit>,
    workflow: String,
    params: Value,
}

/// `start_run`.
pub(super) async fn start(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let folder = kits::find(&context.engines.setup.root, inputs.text("kit"))?;
    let route = AgentTool::StartRun.route();
    context.admit_to(&folder, caller, route).await?;
    let goal = inputs.text("goal").to_owned();
    let read = tokio::task::spawn_blocking(move || kit_run(&folder, &goal)).await;
    let run = read.map_err(|_| AnswerError::new("loading the kit failed"))??;
    let purpose = EnginePurpose::Run(Arc::clone(&run.kit));
    let link = context.link(caller, purpose).await?;
    if link.is_elsewhere {
        must_serve(&link.peer, &run).await?;
    }
    let key = format!("{KEY_PREFIX}{}", Uuid::now_v7().simple());
    let envelope = invoke(&link.peer, &run.workflow, &run.params, &key, inputs).await?;
    started(&link.peer, &envelope).await
}

/// The workflow that `ktsu run KIT --goal GOAL` runs, and its params.
fn kit_run(folder: &Path, goal: &str) -> Result<KitRun, Failure> {
    let kit = load_kit(folder)?;
    let workflow = workflow_of(&kit, None)?;
    let input = input_of(&kit, &workflow, None)?;
    let input = with_goal(&kit, &workflow, input, Some(goal))
        .map_err(|failure| failure.hint("run it with params: invoke_workflow"))?;
    let params = serde_json::from_str(&input).map_err(Failure::of)?;
    Ok(KitRun {
        kit,
        workflow,
        params,
    })
}

/// Refuses to start a kit on an engine that serves another one. Callers that may not invoke
/// anything are not shown workflows; the engine refuses them in its own words.
async fn must_serve(peer: &Peer, run: &KitRun) -> Result<(), AnswerError> {
    let home = get(peer, "/").await?;
    let workflows = home["workflows"].as_array().map(Vec::as_slice);
    let workflows = workflows.unwrap_or_default();
    let root = run.kit.workflows.get(&run.workflow);
    let plan = root.and_then(|one| one.definition.root_plan());
    let version = plan.map(|plan| plan.version.as_str());
    let is_served =
        |one: &Value| one["name"] == run.workflow.as_str() && one["version"].as_str() == version;
    if workflows.is_empty() || workflows.iter().any(is_served) {
        return Ok(());
    }
    let folder = quoted(&run.kit.root);
    let words = "the engine that owns the ledger does not serve this kit";
    Err(AnswerError::private(words).hint(format!(
        "start one that does: ktsu start --all --kit {folder}"
    )))
}

/// Starts a run and waits for its end, for a limited time. Gives the envelope as of then.
async fn invoke(
    peer: &Peer,
    workflow: &str,
    params: &Value,
    key: &str,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let wait = inputs
        .number("wait_seconds")
        .unwrap_or(DEFAULT_WAIT_SECONDS);
    let wait = (wait > 0).then(|| wait.to_string());
    let path = format!("/invoke/{}", segment(workflow));
    let path = with_query(&path, &[("wait", wait)]);
    let answer = post(peer, &path, &[("idempotency-key", key)], params).await?;
    match answer["steps"].is_array() {
        true => Ok(answer),
        // It goes on.
        false => {
            let run_id = answer["run_id"].as_str().unwrap_or_default();
            get(peer, &format!("{}/envelope", run_path(run_id))).await
        }
    }
}

/// The answer of `start_run`.
async fn started(peer: &Peer, envelope: &Value) -> ToolAnswer {
    let run_id = envelope["run_id"].as_str().unwrap_or_default();
    let path = with_query(
        &format!("{}/world", run_path(run_id)),
        &[("limit", Some(MAX_FIRST_PAGE.to_string()))],
    );
    let world = match get(peer, &path).await {
        Ok(world) => Some(world),
        Err(error) if error.code() == Some(ErrorCode::NoWorld) => None,
        Err(error) => return Err(error),
    };
    let (event_ids, view) = match &world {
        Some(world) => (world_event_ids(peer, run_id, world).await?, world),
        None => (Vec::new(), &Value::Null),
    };
    let count = view["events"].as_u64().unwrap_or_default();
    let mut answer = json!({
        "run_id": run_id,
        "ledger": format!("run:{run_id}"),
        "backend": "sqlite",
        "status": envelope["status"],
        "event_count": count,
        "event_ids": event_ids,
        "objects": objects_of(view),
        "relations": relations_of(view),
        "note": note(envelope, world.is_some()),
    });
    if (event_ids.len() as u64) < count || view["next"].is_u64() {
        answer["notice"] = json!("this is not all of it: query_world shows the world in pages");
    }
    Ok(answer)
}

/// The note on a run, if it is not simply complete.
fn note(envelope: &Value, has_world: bool) -> Option<String> {
    let error = |name: &str| envelope["error"][name].as_str().unwrap_or_default();
    match envelope["status"].as_str().unwrap_or_default() {
        "complete" if has_world => None,
        "complete" => Some("the kit has no world: get_envelope shows the result".to_owned()),
        "failed" => Some(format!(
            "the run failed: {}: {}",
            error("code"),
            error("message")
        )),
        "cancelled" => Some("the run was cancelled".to_owned()),
        "waiting" => {
            Some("the run waits for a person: list_approvals shows its tool calls".to_owned())
        }
        _ => Some("the run continues: get_envelope and query_world show its progress".to_owned()),
    }
}

/// The ids of the first world events, up to the frame that the world was read at.
async fn world_event_ids(
    peer: &Peer,
    run_id: &str,
    world: &Value,
) -> Result<Vec<String>, AnswerError> {
    let last = world["at"].as_u64().unwrap_or_default();
    let path = format!("{}/frames", run_path(run_id));
    let mut ids = Vec::new();
    let mut from = Some(0);
    while let Some(first) = from.filter(|first| *first <= last) {
        let pairs = [
            ("from", Some(first.to_string())),
            ("limit", Some(FRAMES_AT_A_TIME.to_string())),
        ];
        let page = get_frames(peer, &with_query(&path, &pairs)).await?;
        from = page.next;
        for frame in &page.frames {
            let frame = Frame::from_json(frame.get()).map_err(Failure::of)?;
            if frame.seq <= last && is_world_frame(&frame) {
                ids.push(event_id(run_id, frame.seq));
            }
            if ids.len() == MAX_EVENT_IDS {
                return Ok(ids);
            }
        }
    }
    Ok(ids)
}

/// `invoke_workflow`.
pub(super) async fn invoke_workflow(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let link = context.steering(caller).await?;
    if !link.is_elsewhere && context.engines.kit().is_none() {
        let words = format!("no engine owns {}", context.engines.setup.ledger);
        return Err(AnswerError::private(words).hint(
            "start this server with a kit: ktsu mcp --kit DIR; or an engine: ktsu start --all \
             --kit DIR; or run a kit: start_run",
        ));
    }
    let key = match inputs.optional_text("idempotency_key") {
        Some(given) => format!("{KEY_PREFIX}{given}"),
        None => format!("{KEY_PREFIX}{}", Uuid::now_v7().simple()),
    };
    let none = json!({});
    let params = inputs.value("params").unwrap_or(&none);
    let envelope = invoke(&link.peer, inputs.text("workflow"), params, &key, inputs).await?;
    Ok(json!({
        "run_id": envelope["run_id"],
        "status": envelope["status"],
        "output": envelope["output"],
        "failure": envelope["error"],
        "note": note(&envelope, true),
    }))
}

/// `get_envelope`.
pub(super) async fn envelope(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let link = context.reading(caller).await?;
    let run = run_path(inputs.text("run_id"));
    if let Some(step) = inputs.optional_text("step_id") {
        let step = get(&link.peer, &format!("{run}/steps/{}", segment(step))).await?;
        return Ok(json!({"run_id": inputs.text("run_id"), "step": step}));
    }
    let envelope = get(&link.peer, &format!("{run}/envelope")).await?;
    Ok(json!({"run_id": envelope["run_id"], "envelope": envelope}))
}

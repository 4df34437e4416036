//! `list_approvals`, `decide_approval` and `resume_step`.
//!
//! An agent that starts a run must not approve what the run wants to do. With principals, the run
//! records who started it. Without them everybody is `local`, so what an agent started is known by
//! the idempotency key of the run, or the reason of the branch, which the ledger keeps.

use serde_json::{Map, Value, json};

use super::access::CallerAccess;
use super::answer::{AnswerError, ToolAnswer};
use super::ask::{get, get_page, post, run_path, segment, with_query};
use super::context::{FORK_REASON, KEY_PREFIX, ToolContext};
use super::inputs::ToolInputs;
use ktsu_peer::Peer;
use ktsu_projections::reviews::is_review_id;
use ktsu_projections::suspensions::is_suspend_id;

/// The number of approvals on a page if the agent does not say.
const DEFAULT_PAGE: u64 = 50;

/// `list_approvals`.
pub(super) async fn list(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let link = context.reading(caller).await?;
    let text = |name: &str| inputs.optional_text(name).map(str::to_owned);
    let limit = inputs.number("limit").unwrap_or(DEFAULT_PAGE);
    let pairs = [
        ("workflow", text("workflow")),
        ("status", text("status")),
        ("limit", Some(limit.to_string())),
        ("cursor", text("cursor")),
    ];
    let page = get_page(&link.peer, &with_query("/approvals", &pairs)).await?;
    Ok(json!({"approvals": page.body, "next": page.next}))
}

/// `decide_approval`.
pub(super) async fn decide(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    may_decide(
        context,
        "agents may not decide on approvals here",
        "a person decides: ktsu approve, ktsu reject",
    )?;
    let link = context.steering(caller).await?;
    if let Some(id) = inputs
        .optional_text("approval_id")
        .filter(|id| is_suspend_id(id))
    {
        let words = format!("{id} waits for data, and for no decision");
        return Err(AnswerError::new(words).hint("give them with resume_step"));
    }
    let step = segment(inputs.text("step_id"));
    let run = run_path(inputs.text("run_id"));
    let id = inputs.optional_text("approval_id").map(str::to_owned);
    let (what, name) = match id.as_deref().is_some_and(is_review_id) {
        true => ("review", "review_id"),
        false => ("approval", "approval_id"),
    };
    let approval = format!("{run}/steps/{step}/{what}");
    let record = of_others(&link.peer, &with_query(&approval, &[(name, id)])).await?;
    let mut body = Map::new();
    body.insert(name.to_owned(), record[name].clone());
    for name in ["decision", "digest", "overlay", "reason", "result"] {
        let given = inputs.value(name).cloned();
        body.extend(given.map(|value| (name.to_owned(), value)));
    }
    let path = format!("{approval}/decide");
    let decided = post(&link.peer, &path, &[], &Value::Object(body)).await?;
    Ok(json!({"approval": decided}))
}

/// `resume_step`.
pub(super) async fn resume_step(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    may_decide(
        context,
        "agents may not give steps their data here",
        "a person gives them: ktsu resume RUN --step STEP --data @FILE",
    )?;
    let link = context.steering(caller).await?;
    let step = segment(inputs.text("step_id"));
    let step = format!("{}/steps/{step}", run_path(inputs.text("run_id")));
    let id = inputs.optional_text("suspend_id").map(str::to_owned);
    let path = with_query(&format!("{step}/suspend"), &[("suspend_id", id)]);
    let record = of_others(&link.peer, &path).await?;
    let mut body = Map::new();
    body.insert("suspend_id".to_owned(), record["suspend_id"].clone());
    for name in ["data", "reason"] {
        let given = inputs.value(name).cloned();
        body.extend(given.map(|value| (name.to_owned(), value)));
    }
    let path = format!("{step}/resume");
    let resumed = post(&link.peer, &path, &[], &Value::Object(body)).await?;
    Ok(json!({"suspension": resumed}))
}

/// Refuses what only people do, unless the environment file lets agents do it.
fn may_decide(context: &ToolContext, words: &str, instead: &str) -> Result<(), AnswerError> {
    if !context.may_decide {
        let hint = format!(
            "{instead}; `mcp: {{decide: true}}` in the environment file would let agents decide"
        );
        return Err(AnswerError::new(words).hint(hint));
    }
    Ok(())
}

/// The record of what waits in a run that the caller did not start.
async fn of_others(peer: &Peer, path: &str) -> ToolAnswer {
    let record = get(peer, path).await?;
    must_not_be_own(peer, &record).await?;
    Ok(record)
}

/// Refuses a decision about a run that the caller started.
async fn must_not_be_own(peer: &Peer, record: &Value) -> Result<(), AnswerError> {
    let home = get(peer, "/").await?;
    let authentication = &home["authentication"];
    let is_own = record["proposer"] == authentication["principal"];
    let has_token = authentication["required"] == true;
    let is_own = match is_own && !has_token {
        true => is_by_agent(peer, record["run_id"].as_str().unwrap_or_default()).await?,
        false => is_own,
    };
    if !is_own {
        return Ok(());
    }
    let words = "the principal who started a run cannot decide on its approvals here";
    let hint = "another person can decide: ktsu approve, ktsu reject, ktsu resume --data";
    Err(AnswerError::new(words).hint(hint))
}

/// Returns `true` if a run, or the branch of one, was started through this server or another one
/// like it.
async fn is_by_agent(peer: &Peer, run_id: &str) -> Result<bool, AnswerError> {
    let root = run_id.split('/').next().unwrap_or_default();
    let run = run_path(root);
    let envelope = get(peer, &format!("{run}/envelope")).await?;
    let fork = envelope["branch"]["fork_position"].as_u64();
    let created = frame_at(peer, &run, 0).await?;
    let key = created["data"]["idempotency_key"].as_str();
    let is_started = key.is_some_and(|key| key.starts_with(KEY_PREFIX));
    let is_forked = match fork {
        Some(at) => frame_at(peer, &run, at).await?["data"]["reason"] == FORK_REASON,
        None => false,
    };
    Ok(is_started || is_forked)
}

async fn frame_at(peer: &Peer, run: &str, seq: u64) -> ToolAnswer {
    let pairs = [
        ("from", Some(seq.to_string())),
        ("limit", Some("1".to_owned())),
    ];
    let page = get(peer, &with_query(&format!("{run}/frames"), &pairs)).await?;
    Ok(page["frames"][0].clone())
}

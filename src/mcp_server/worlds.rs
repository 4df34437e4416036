//! `query_world`, `fork_run`, `diff_branches` and `explain_trace`.

use std::collections::BTreeMap;

use ktsu_projections::world::WorldDiff;
use ktsu_projections::world::steps::STEP_ID_PREFIX;
use serde_json::{Value, json};

use super::access::CallerAccess;
use super::answer::{AnswerError, MAX_ANSWER_BYTES, ToolAnswer};
use super::ask::{bare_id, get, post, run_path, segment, with_query};
use super::context::{FORK_REASON, ToolContext};
use super::engines::EnginePurpose;
use super::inputs::{MAX_NUMBER, ToolInputs};
use ktsu_codes::ErrorCode;
use ktsu_peer::Peer;

/// The number of objects and relations on a page if the agent does not say.
const DEFAULT_PAGE: u64 = 200;
/// The most events of a chain, or events that a refusal names.
const MAX_EVENTS_SHOWN: usize = 500;

/// The id of an event, as agents use it.
pub(super) fn event_id(run_id: &str, seq: u64) -> String {
    format!("{run_id}#{seq}")
}

/// The objects of a page, without the frames that made them.
pub(super) fn objects_of(view: &Value) -> Vec<Value> {
    let objects = view["objects"].as_array().into_iter().flatten();
    let object = |one: &Value| json!({"id": one["id"], "type": one["type"], "data": one["data"]});
    objects.map(object).collect()
}

/// The ids of the relations of a page.
pub(super) fn relations_of(view: &Value) -> Vec<Value> {
    let relations = view["relations"].as_array().into_iter().flatten();
    relations.map(|one| one["id"].clone()).collect()
}

/// `query_world`.
pub(super) async fn query(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let link = context.reading(caller).await?;
    let mut limit = inputs.number("limit").unwrap_or(DEFAULT_PAGE);
    loop {
        let view = world_page(&link.peer, inputs, limit).await?;
        let answer = world_answer(&view);
        // A smaller page can be continued, a cut answer cannot.
        if limit == 1 || answer.to_string().len() <= MAX_ANSWER_BYTES {
            return Ok(answer);
        }
        limit /= 2;
    }
}

async fn world_page(peer: &Peer, inputs: &ToolInputs, limit: u64) -> ToolAnswer {
    let number = |name: &str| inputs.number(name).map(|number| number.to_string());
    let path = with_query(
        &format!("{}/world", run_path(inputs.text("run_id"))),
        &[
            ("at", number("at")),
            ("from", number("from")),
            ("limit", Some(limit.to_string())),
        ],
    );
    get(peer, &path).await.map_err(|error| match error.code() {
        Some(ErrorCode::NoWorld) => error.hint("get_envelope shows the result of the run"),
        _ => error,
    })
}

fn world_answer(view: &Value) -> Value {
    let mut answer = json!({
        "run_id": view["run_id"],
        "event_count": view["events"],
        "objects": objects_of(view),
        "relations": relations_of(view),
    });
    if let Some(next) = view["next"].as_u64() {
        answer["at"] = view["at"].clone();
        answer["next"] = json!(next);
        answer["notice"] = json!(format!(
            "there is more: call query_world again with at {} and from {next}",
            view["at"]
        ));
    }
    answer
}

/// `fork_run`.
pub(super) async fn fork(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let link = context.link(caller, EnginePurpose::Append).await?;
    let path = format!("{}/fork", run_path(inputs.text("run_id")));
    let body = json!({"at": inputs.number("fork_at"), "reason": FORK_REASON});
    let branch = post(&link.peer, &path, &[], &body).await?;
    Ok(json!({
        "branch_id": branch["branch_id"],
        "parent_run_id": branch["parent_run_id"],
        "fork_position": branch["fork_position"],
        "shared_prefix_events": branch["shared_prefix_events"],
    }))
}

/// `diff_branches`.
pub(super) async fn diff(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let link = context.reading(caller).await?;
    let side = |name: &str| Some(bare_id(inputs.text(name)).to_owned());
    let path = with_query("/diff", &[("a", side("run_a")), ("b", side("run_b"))]);
    let compared = get(&link.peer, &path).await?;
    let diff = match compared["world"].is_object() {
        true => world_diff(&compared["world"]),
        false => {
            let a = completed_steps(&link.peer, &compared["a"]).await?;
            let b = completed_steps(&link.peer, &compared["b"]).await?;
            step_diff(&a, &b)
        }
    };
    Ok(json!({
        "run_a": compared["a"],
        "run_b": compared["b"],
        "summary": diff.to_string(),
        "added_objects": diff.added_objects,
        "removed_objects": diff.removed_objects,
        "patched_objects": diff.patched_objects,
        "added_relations": diff.added_relations,
        "removed_relations": diff.removed_relations,
        "patched_relations": diff.patched_relations,
        "has_changes": !diff.is_empty(),
    }))
}

/// The lists of a comparison.
fn world_diff(lists: &Value) -> WorldDiff {
    let ids = |name: &str| {
        let ids = lists[name].as_array().into_iter().flatten();
        ids.filter_map(|id| Some(id.as_str()?.to_owned())).collect()
    };
    WorldDiff {
        added_objects: ids("added_objects"),
        removed_objects: ids("removed_objects"),
        patched_objects: ids("patched_objects"),
        added_relations: ids("added_relations"),
        removed_relations: ids("removed_relations"),
        patched_relations: ids("patched_relations"),
    }
}

/// The outputs of a run's completed steps, by the id that they have as objects.
async fn completed_steps(peer: &Peer, run: &Value) -> Result<BTreeMap<String, Value>, AnswerError> {
    let run = segment(run.as_str().unwrap_or_default());
    let envelope = get(peer, &format!("/runs/{run}/envelope")).await?;
    let steps = envelope["steps"].as_array().into_iter().flatten();
    let complete = steps.filter(|step| step["status"] == "complete");
    let object = |step: &Value| {
        let id = step["id"].as_str()?;
        Some((format!("{STEP_ID_PREFIX}{id}"), step["output"].clone()))
    };
    Ok(complete.filter_map(object).collect())
}

fn step_diff(a: &BTreeMap<String, Value>, b: &BTreeMap<String, Value>) -> WorldDiff {
    let only = |one: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>| {
        let ids = one.keys().filter(|id| !other.contains_key(*id));
        ids.cloned().collect::<Vec<String>>()
    };
    let differs = |(id, output): &(&String, &Value)| b.get(*id).is_some_and(|b| b != *output);
    let patched = a.iter().filter(differs);
    WorldDiff {
        added_objects: only(b, a),
        removed_objects: only(a, b),
        patched_objects: patched.map(|(id, _)| id.clone()).collect(),
        ..WorldDiff::default()
    }
}

/// `explain_trace`.
pub(super) async fn explain(
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    let link = context.reading(caller).await?;
    let path = format!("{}/trace", run_path(inputs.text("run_id")));
    let named = inputs.text("event_id");
    let Some((run, seq)) = parse_event_id(named) else {
        return Err(unknown_event(&link.peer, &path).await);
    };
    let traced = match get(&link.peer, &format!("{path}?frame={seq}")).await {
        Err(error) if error.code() == Some(ErrorCode::NotFound) => {
            return Err(unknown_event(&link.peer, &path).await);
        }
        traced => traced?,
    };
    let run_id = traced["run_id"].as_str().unwrap_or_default();
    // A branch has the frames that it shares under the id of its parent, too.
    if run.is_some_and(|run| run != run_id) && !run_id.starts_with("branch_") {
        return Err(unknown_event(&link.peer, &path).await);
    }
    let nodes = traced["chain"].as_array().map(Vec::as_slice);
    let nodes = nodes.unwrap_or_default();
    let chain = nodes.iter().take(MAX_EVENTS_SHOWN);
    let mut answer = json!({
        "event_id": event_id(run_id, seq),
        "run_id": run_id,
        "causal_chain": chain.map(|node| link_of_chain(run_id, node)).collect::<Vec<Value>>(),
    });
    if nodes.len() > MAX_EVENTS_SHOWN {
        answer["notice"] = json!(format!(
            "cut: these are the latest {MAX_EVENTS_SHOWN} of {} events; ask for the earliest of \
             them to go on",
            nodes.len()
        ));
    }
    Ok(answer)
}

fn link_of_chain(run_id: &str, node: &Value) -> Value {
    let seqs = node["cause"].as_array().into_iter().flatten();
    let own = seqs.filter_map(Value::as_u64);
    let own = own.map(|seq| event_id(run_id, seq));
    let foreign = node["foreign"].as_array().into_iter().flatten();
    let foreign = foreign.filter_map(|id| Some(id.as_str()?.to_owned()));
    let cause: Vec<String> = own.chain(foreign).collect();
    json!({
        "id": event_id(run_id, node["seq"].as_u64().unwrap_or_default()),
        "type": node["type"],
        "actor": node["actor"],
        "is_root": cause.is_empty(),
        "cause": cause,
    })
}

/// The run and the number in `run:RUN#12`, `RUN#12` or `12`.
fn parse_event_id(text: &str) -> Option<(Option<&str>, u64)> {
    let (run, seq) = match text.rsplit_once('#') {
        Some((run, seq)) => (Some(run), seq),
        None => (None, text),
    };
    let is_number = !seq.is_empty() && seq.bytes().all(|byte| byte.is_ascii_digit());
    let seq = seq
        .parse()
        .ok()
        .filter(|seq| is_number && *seq <= MAX_NUMBER)?;
    Some((run.map(bare_id), seq))
}

/// There is no such event: names those that there are. If even the run is unknown, that is said.
async fn unknown_event(peer: &Peer, path: &str) -> AnswerError {
    let tree = match get(peer, path).await {
        Ok(tree) => tree,
        Err(error) => return error,
    };
    let run_id = tree["run_id"].as_str().unwrap_or_default();
    let nodes = tree["tree"].as_array().map(Vec::as_slice);
    let nodes = nodes.unwrap_or_default();
    let ids = nodes.iter().filter_map(|node| node["seq"].as_u64());
    let ids = ids.take(MAX_EVENTS_SHOWN).map(|seq| event_id(run_id, seq));
    let ids: Vec<String> = ids.collect();
    let error = AnswerError::new("the run has no such event").with("available_events", json!(ids));
    match nodes.len() > MAX_EVENTS_SHOWN {
        true => error.hint(format!(
            "the run has {} events; the first {MAX_EVENTS_SHOWN} are named",
            nodes.len()
        )),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_named_by_its_number_with_or_without_its_run() {
        assert_eq!(parse_event_id("12"), Some((None, 12)));
        assert_eq!(parse_event_id("run_1#12"), Some((Some("run_1"), 12)));
        assert_eq!(parse_event_id("run:run_1#0"), Some((Some("run_1"), 0)));
        assert_eq!(
            parse_event_id("branch:branch_1#3"),
            Some((Some("branch_1"), 3))
        );
        for text in [
            "",
            "#",
            "run_1#",
            "run_1#-1",
            "x",
            "run_1#+1",
            "99999999999999999999",
        ] {
            assert_eq!(parse_event_id(text), None, "{text}");
        }
    }

    #[test]
    fn steps_of_two_runs_are_compared_by_their_outputs() {
        let steps = |pairs: &[(&str, i32)]| -> BTreeMap<String, Value> {
            let pairs = pairs.iter();
            pairs
                .map(|(id, n)| (format!("step/{id}"), json!(n)))
                .collect()
        };
        let (a, b) = (steps(&[("x", 1), ("y", 1)]), steps(&[("y", 2), ("z", 1)]));
        let diff = step_diff(&a, &b);
        assert_eq!(
            diff.to_string(),
            "+1 objects, -1 objects, ~1 objects patched"
        );
        assert_eq!(diff.patched_objects, ["step/y"]);
        assert!(step_diff(&a, &a).is_empty());
    }
}

//! The estimate of a fork: what a branch asks lies within it.

use std::path::Path;

use serde_json::{Value, json};

use super::describe::Described;
use super::frames_page::words_of;
use super::pages::is_harmless;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab, Sink, campaign};

/// A chain of steps that ask, two of them as a fan-out, and one in a child.
const CHAIN: &str = r#"
params: {schema: {type: object, required: [list], properties: {list: {}}}}
pipeline:
  - {id: first, agent: ./agents/echo.agent.yaml, params: {msg: "first"}}
  - {id: pick, depends_on: [first], transform: {inputs: [{from: params.list}], ops: []}}
  - {id: each, depends_on: [first], agent: ./agents/echo.agent.yaml, for_each: {from: params.list}, params: {msg: "{{ item }}"}}
  - {id: call, depends_on: [each], workflow: ./inner.workflow.yaml}
"#;

const INNER: &str = r#"
visibility: sub-workflow
pipeline:
  - {id: last, agent: ./agents/reflects.agent.yaml, params: {msg: "last"}}
"#;

/// A step that runs if the model says so, and a list from its answer.
const BRANCHING: &str = r#"
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}, list: {type: array, items: {}, default: []}}}}
pipeline:
  - {id: triage, agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
  - {id: urgent, depends_on: [triage], condition: "params.msg == 'urgent'", agent: ./agents/echo.agent.yaml, params: {msg: "more"}}
  - {id: each, depends_on: [triage], agent: ./agents/echo.agent.yaml, for_each: {from: params.list, max_items: 5}, params: {msg: "{{ item }}"}}
"#;

async fn lab() -> (KitDir, Lab, Described) {
    let model = Model::scripted(|call| Said::answer(&call.user())).await;
    let workflows = [("chain", CHAIN), ("inner", INNER), ("branching", BRANCHING)];
    let kit = model::kit(&model, &workflows);
    let lab = Lab::new(&kit, &[KEY]).await;
    let api = Described::new(&lab.client).await;
    (kit, lab, api)
}

async fn estimate(api: &Described, run: &str, at_frame: u64) -> Value {
    let path = format!("/runs/{run}/fork?at_frame={at_frame}");
    let answer = api.get(&path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

fn calls(frames: &[Value]) -> u64 {
    let asks = |frame: &&Value| frame["type"] == "llm.request";
    frames.iter().filter(asks).count() as u64
}

/// What a branch asks, which is held against a bound.
async fn asked_within(
    api: &Described,
    lab: &Lab,
    (run, at_frame): (&str, u64),
    set: Value,
    bound: &Value,
) -> u64 {
    let body = json!({"at_frame": at_frame, "set": set, "go": true});
    let path = format!("/runs/{run}/fork");
    let answer = lab.client.post(&path, body.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
    let ended = lab.client.ended(&branch).await;
    assert_eq!(ended["status"], "complete", "{ended}");
    let frames = lab.client.frames(&branch).await;
    let asked = calls(&frames[at_frame as usize + 1..]);
    let llm_calls = &bound["llm_calls"];
    assert!(
        asked >= llm_calls["at_least"].as_u64().unwrap(),
        "{at_frame}: {asked} of {bound}"
    );
    if let Some(most) = llm_calls.get("at_most") {
        assert!(
            asked <= most.as_u64().unwrap(),
            "{at_frame}: {asked} of {bound}"
        );
    }
    let page = api
        .get(&format!("/inspector/diff?a={run}&b={branch}"))
        .await;
    is_harmless(&page);
    let words = words_of(&page.text());
    assert!(
        words.contains("That is within what was expected"),
        "{words}"
    );
    asked
}

#[tokio::test]
async fn a_fork_that_changes_nothing_asks_the_rest_again_and_within_its_bound_at_each_frame() {
    let (_kit, lab, api) = lab().await;
    let ended = lab.client.run("chain", json!({"list": ["a", "b"]})).await;
    let run = ended["run_id"].as_str().unwrap();
    let frames = lab.client.frames(run).await;
    let all = calls(&frames);
    assert!(all >= 4, "{all}");
    for at_frame in 0..frames.len() as u64 {
        let found = estimate(&api, run, at_frame).await;
        let rest = calls(&frames[at_frame as usize + 1..]);
        assert_eq!(found["recorded"]["llm_calls"], rest, "{found}");
        let asked = asked_within(&api, &lab, (run, at_frame), json!({}), &found["unchanged"]).await;
        let most = found["unchanged"]["llm_calls"]["at_most"].as_u64();
        assert!(
            most.is_some(),
            "nothing of this depends on replies: {found}"
        );
        assert!(
            asked >= rest,
            "an answer that was cut off is asked for again"
        );
    }
    let at_first = estimate(&api, run, 0).await;
    let least = &at_first["unchanged"]["llm_calls"]["at_least"];
    assert_eq!(least, 1, "agents may skip what follows them: {at_first}");
    let unknown = at_first["unchanged"]["unknown"].as_array().unwrap();
    assert!(unknown.contains(&json!({"why": "skips"})), "{at_first}");
    let at_last = estimate(&api, run, frames.len() as u64 - 1).await;
    for bound in ["unchanged", "changed"] {
        let none = json!({"at_least": 0, "at_most": 0});
        assert_eq!(at_last[bound]["llm_calls"], none, "{at_last}");
        assert_eq!(at_last[bound]["cost_micro_usd"], none, "{at_last}");
        assert_eq!(at_last[bound]["steps"], json!([]), "{at_last}");
    }
}

#[tokio::test]
async fn of_steps_that_depend_on_what_is_changed_the_bound_says_what_it_does_not_know() {
    let (_kit, lab, api) = lab().await;
    let params = json!({"msg": "calm", "list": ["a"]});
    let ended = lab.client.run("branching", params).await;
    let run = ended["run_id"].as_str().unwrap();
    let frames = lab.client.frames(run).await;
    let kinds = frames
        .iter()
        .position(|frame| frame["type"] == "step.completed");
    for at_frame in [0, 1, kinds.unwrap() as u64] {
        let found = estimate(&api, run, at_frame).await;
        let changed = &found["changed"];
        let unknown = changed["unknown"].as_array().unwrap();
        for part in [
            json!({"step": "urgent", "why": "runs"}),
            json!({"step": "each", "why": "items"}),
            json!({"why": "prices"}),
        ] {
            assert!(unknown.contains(&part), "{part}: {found}");
        }
        for set in [
            json!({"params.msg": "urgent"}),
            json!({"params.list": []}),
            json!({"params.list": ["a", "b", "c", "d", "e"], "params.msg": "urgent"}),
        ] {
            asked_within(&api, &lab, (run, at_frame), set, changed).await;
        }
        asked_within(&api, &lab, (run, at_frame), json!({}), &found["unchanged"]).await;
    }
}

#[tokio::test]
async fn the_form_of_a_fork_says_what_it_will_ask_before_it_is_sent() {
    let (_kit, lab, api) = lab().await;
    let ended = lab.client.run("chain", json!({"list": ["a", "b"]})).await;
    let run = ended["run_id"].as_str().unwrap();
    let last = lab.client.frames(run).await.len() - 1;
    let path = |at_frame: usize| format!("/inspector/runs/{run}/frames?frame={at_frame}");
    let first = api.get(&path(0)).await;
    is_harmless(&first);
    let words = words_of(&first.text());
    assert!(
        words.contains("Without changes, or with other prompts: 1 to"),
        "{words}"
    );
    assert!(
        words.contains("Not known: each: how many items it has"),
        "{words}"
    );
    let words = words_of(&api.get(&path(last)).await.text());
    assert!(
        words.contains("Without changes, or with other prompts: no model is asked again."),
        "{words}"
    );
}

/// The main kit of the README: a fan-out whose list a step computes, conditions on replies, a child and webhooks.
#[tokio::test]
async fn what_branches_of_a_kit_ask_lies_within_the_bound_at_frames_all_over_its_run() {
    let kit = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits/triage");
    let rules = kit.join("scripted/triage.yaml");
    let rules = format!("{{rules: '{}'}}", rules.display());
    let environment = format!(
        "egress: {{allow: [127.0.0.1]}}\nproviders: [{{name: desk, type: scripted, config: {rules}}}]\n"
    );
    let sink = Sink::new().await;
    let pairs = [("RECEIVER_URL", sink.url.as_str())];
    let lab = Lab::shipped("triage", &environment, &pairs).await;
    let api = Described::new(&lab.client).await;
    let example = std::fs::read_to_string(kit.join("examples/default.json")).unwrap();
    let mut params: Value = serde_json::from_str(&example).unwrap();
    // Of a night, some tickets unless the campaign is full.
    let tickets = params["tickets"].as_array_mut().unwrap();
    tickets.truncate(campaign(6, 100));
    let few = Value::Array(tickets[..2].to_vec());
    let ended = lab.client.run("triage", params).await;
    assert_eq!(ended["status"], "complete", "{ended}");
    let run = ended["run_id"].as_str().unwrap();
    let frames = lab.client.frames(run).await;
    let all = calls(&frames);
    let places = campaign(4, 40);
    for place in 0..places {
        let at_frame = (frames.len() * place / places) as u64;
        let found = estimate(&api, run, at_frame).await;
        let unchanged = asked_within(&api, &lab, (run, at_frame), json!({}), &found["unchanged"]);
        assert!(unchanged.await <= all, "{found}");
        let set = json!({"params.tickets": few});
        asked_within(&api, &lab, (run, at_frame), set, &found["changed"]).await;
    }
}

//! Several runtimes, gateways and orchestrators, as processes of their own.

use std::process::Command;

use serde_json::{Value, json};

use super::{of_type, step};
use crate::support::Sink;
use crate::support::fleet::{Fleet, FleetPlan};
use crate::support::model::{self, Call, KEY, Model, Said};
use crate::support::process::Process;
use crate::support::sink::Reply;

const WORKFLOWS: [(&str, &str); 2] = [
    (
        "each",
        r#"
params: {schema: {type: object, required: [list], properties: {list: {type: array}}}}
pipeline:
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 100}, params: {msg: "{{ item }}"}}
output: {map: {each: "{{ step.each.results[*].answer }}"}}
"#,
    ),
    (
        "twice",
        "pipeline: [{id: s, agent: ./agents/reflects.agent.yaml, params: {msg: hi}}]\n",
    ),
];

const PLAN: FleetPlan<'static> = FleetPlan {
    runtimes: &[1_024],
    gateways: &[KEY.1],
    dead_orchestrator: false,
};

fn items(count: u32) -> Vec<String> {
    (0..count).map(|item| format!("item {item}")).collect()
}

fn answers(items: &[String]) -> Value {
    items.iter().map(|item| format!("{item}!")).collect()
}

/// Answers every item once the gate is open.
async fn gated() -> Model {
    Model::scripted(|call| Said::answer(&format!("{}!", call.user())).when("go")).await
}

#[tokio::test]
async fn two_runtimes_share_the_items_of_a_step_by_their_free_places() {
    let model = gated().await;
    let kit = model::kit(&model, &WORKFLOWS);
    let plan = FleetPlan {
        runtimes: &[2, 4],
        ..PLAN
    };
    let fleet = Fleet::start(&kit, plan);
    let items = items(6);
    let run = fleet.client().invoke("each", json!({"list": items})).await;
    // More than either has places for.
    model.until(|calls| calls.len() == 6).await;
    model.open("go");
    let envelope = fleet.client().ended(&run).await;
    assert_eq!(envelope["output"]["each"], answers(&items), "{envelope:#}");
    let frames = fleet.client().frames(&run).await;
    assert!(of_type(&frames, "worker.lost").is_empty());
    let health = fleet.client().get("/health").await.json();
    assert_eq!(health["services"]["runtime"], "ok");
    let each = health["runtimes"].as_object().unwrap();
    assert_eq!(each.len(), 2, "{health:#}");
    assert!(each.values().all(|state| state == "ok"), "{health:#}");
}

#[tokio::test]
async fn a_task_of_a_killed_runtime_continues_at_another_with_its_history() {
    let is_reflection = |call: &Call| call.messages()[0].1.starts_with("Look");
    let model = Model::scripted(move |call| match is_reflection(call) {
        true => Said::answer("reflected").when("go"),
        false => Said::answer("draft"),
    })
    .await;
    let kit = model::kit(&model, &WORKFLOWS);
    let plan = FleetPlan {
        runtimes: &[2, 1],
        ..PLAN
    };
    let mut fleet = Fleet::start(&kit, plan);
    let run = fleet.client().invoke("twice", json!({})).await;
    model.until(|calls| calls.iter().any(is_reflection)).await;
    // It has more places, and so it has the task.
    fleet.runtimes[0].take().unwrap().kill();
    model.open("go");
    let envelope = fleet.client().ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(
        step(&envelope, "s")["output"],
        json!({"answer": "reflected"})
    );
    assert_eq!(step(&envelope, "s")["attempt"], 2);
    let drafts = model
        .calls()
        .iter()
        .filter(|call| !is_reflection(call))
        .count();
    assert_eq!(drafts, 1, "its answer was recorded");
    let frames = fleet.client().frames(&run).await;
    assert_eq!(of_type(&frames, "worker.lost").len(), 1);
    let health = fleet.client().get("/health").await.json();
    assert_eq!(health["services"]["runtime"], "ok", "one is enough");
}

#[tokio::test]
async fn a_runtime_works_off_more_tasks_than_it_has_places_without_a_loss() {
    let model = gated().await;
    let kit = model::kit(&model, &WORKFLOWS);
    let plan = FleetPlan {
        runtimes: &[2],
        ..PLAN
    };
    let fleet = Fleet::start(&kit, plan);
    let items = items(10);
    let run = fleet.client().invoke("each", json!({"list": items})).await;
    model.until(|calls| calls.len() == 2).await;
    model.open("go");
    let envelope = fleet.client().ended(&run).await;
    assert_eq!(envelope["output"]["each"], answers(&items), "{envelope:#}");
    let frames = fleet.client().frames(&run).await;
    assert!(of_type(&frames, "worker.lost").is_empty());
    assert_eq!(of_type(&frames, "worker.dispatched").len(), 10);
}

/// Which gateway a call came from, by its key at the provider.
fn gateway_of(call: &Call) -> usize {
    match call.authorization.as_str() {
        "Bearer first-key" => 0,
        "Bearer second-key" => 1,
        other => panic!("no gateway has the key of {other}"),
    }
}

#[tokio::test]
async fn calls_of_a_killed_gateway_go_to_the_other() {
    let model = gated().await;
    let kit = model::kit(&model, &WORKFLOWS);
    let plan = FleetPlan {
        gateways: &["first-key", "second-key"],
        ..PLAN
    };
    let mut fleet = Fleet::start(&kit, plan);
    let items = items(16);
    let run = fleet.client().invoke("each", json!({"list": items})).await;
    model.until(|calls| calls.len() == 16).await;
    let before = model.calls();
    let at_first = before.iter().filter(|call| gateway_of(call) == 0).count();
    assert!((1..16).contains(&at_first), "each has some: {at_first}");
    fleet.gateways[0].take().unwrap().kill();
    model.until(|calls| calls.len() == 16 + at_first).await;
    assert!(model.calls()[16..].iter().all(|call| gateway_of(call) == 1));
    model.open("go");
    let envelope = fleet.client().ended(&run).await;
    assert_eq!(envelope["output"]["each"], answers(&items), "{envelope:#}");
    assert_eq!(envelope["totals"]["llm_calls"], 16);
}

/// Heartbeats and reports: without either the task would be lost.
#[tokio::test]
async fn a_runtime_whose_first_orchestrator_is_not_there_works_for_the_second() {
    let model = Model::echo().await;
    let kit = model::kit(&model, &WORKFLOWS);
    let plan = FleetPlan {
        dead_orchestrator: true,
        ..PLAN
    };
    let fleet = Fleet::start(&kit, plan);
    let answer = json!({"answer": "x"}).to_string();
    let envelope = fleet.client().run("each", json!({"list": [answer]})).await;
    assert_eq!(envelope["output"]["each"], json!(["x"]), "{envelope:#}");
    let frames = fleet
        .client()
        .frames(envelope["run_id"].as_str().unwrap())
        .await;
    assert!(of_type(&frames, "worker.lost").is_empty());
}

#[tokio::test]
async fn an_engine_that_only_reads_refuses_no_message_of_a_runtime_for_good() {
    let model = Model::scripted(|_| Said::Never).await;
    let kit = model::kit(&model, &WORKFLOWS);
    let fleet = Fleet::start(&kit, PLAN);
    let run = fleet.client().invoke("twice", json!({})).await;
    model.until(|calls| !calls.is_empty()).await;
    let reader = fleet.reader();
    let task = format!("/runs/{run}/steps/s");
    for path in [
        format!("{task}/report?token=1.a"),
        format!("{task}/complete?token=1.a"),
        "/runs/run_unknown/steps/s/report?token=1.a".to_owned(),
        format!("/tools/ktsu/kv?run={run}&step=s&attempt=1&token=1.a"),
        "/heartbeat".to_owned(),
    ] {
        let answer = reader.client().post(&path, "{}").await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        assert!(answer.text().contains("this engine only reads"), "{path}");
    }
}

#[tokio::test]
async fn a_runtime_refuses_a_task_for_which_it_has_no_place_until_another_time() {
    let other = Sink::scripted(|heard| match heard.path.as_str() {
        "/heartbeat" => Reply::Now(200, json!({"stop": []}).to_string()),
        _ => Reply::Never,
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command.args(["start", "runtime", "--json", "--port", "0"]);
    command.args(["--orchestrator", &other.url, "--gateway", &other.url]);
    command.env_clear().env("KTSU_PLACES", "1");
    command.current_dir(folder.path());
    let runtime = Process::spawn(command);
    let client = runtime.client();
    let invoke = async |step: &str, attempt: u32| {
        let url = |what: &str| format!("{}/runs/r/steps/{step}/{what}?token=t", other.url);
        let task = json!({
            "run_id": "r", "step_id": step, "attempt": attempt, "agent_name": "a", "system": "s",
            "user_message": "u", "model": {"group": "std", "max_tokens": 9},
            "callback_url": url("complete"), "report_url": url("report"),
        });
        client.post("/invoke", task.to_string()).await
    };
    let first = invoke("one", 1).await;
    assert_eq!((first.status, &first.json()["places"]), (202, &json!(1)));
    let second = invoke("two", 1).await;
    assert_eq!(second.status, 503, "{}", second.text());
    let refused = second.json();
    assert_eq!(
        (&refused["error"], &refused["retryable"]),
        (&json!("busy"), &json!(true))
    );
    assert_eq!(invoke("one", 1).await.status, 202, "it has this one");
    assert_eq!(invoke("one", 2).await.status, 202, "in place of the first");
    assert_eq!(client.get("/health").await.json()["places"], 1);
    other
        .until(|heard| heard.iter().any(|one| one.path == "/heartbeat"))
        .await;
    let heard = other.heard();
    let beat = heard.iter().find(|one| one.path == "/heartbeat").unwrap();
    assert_eq!(beat.json()["places"], 1);
}

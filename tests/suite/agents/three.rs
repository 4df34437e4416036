//! The three services as processes of their own (seed 000, invariants 6, 7, 16 and 18).

use serde_json::{Value, json};

use super::{lab, step};
use crate::support::ledgers::timeless;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::services::{Service, Services};

const WORKFLOWS: [(&str, &str); 2] = [
    (
        "all",
        r#"
params: {schema: {type: object, required: [list], properties: {list: {type: array}}}}
pipeline:
  - {id: plain, agent: ./agents/echo.agent.yaml, params: {msg: plain}}
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, max_failures: -1}, params: {msg: "{{ item }}"}}
  - {id: again, depends_on: [plain], agent: ./agents/reflects.agent.yaml, params: {msg: "{{ step.plain.answer }}"}}
  - {id: call, depends_on: [again], workflow: ./part.workflow.yaml, params: {msg: "{{ step.again.answer }}"}}
output: {map: {call: "{{ step.call.answer }}", each: "{{ step.each.results[*].answer }}"}}
"#,
    ),
    (
        "part",
        r#"
visibility: sub-workflow
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: inner, agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
output: {map: {answer: "{{ step.inner.answer }}"}}
"#,
    ),
];

async fn script() -> Model {
    Model::scripted(|call| match call.user().as_str() {
        "bad" => Said::json(&json!({"no": "answer"})),
        user => Said::answer(&format!("{user}!")),
    })
    .await
}

/// An envelope without what differs between two runs of the same.
fn comparable(envelope: Value) -> Value {
    let mut envelope = timeless(envelope);
    envelope["run_id"] = Value::Null;
    envelope
}

fn files(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn three_processes_in_three_folders_give_what_one_gives() {
    let model = script().await;
    let body = json!({"list": ["x", "bad", "z"]});
    let (kit, lab) = lab(&model, &WORKFLOWS).await;
    let one = lab.client.run("all", body.clone()).await;
    assert_eq!(one["status"], "complete", "{one:#}");
    let calls = model.counts();
    model.forget();
    let services = Services::start(&kit, &[KEY]);
    let three = services.client().run("all", body).await;
    assert_eq!(comparable(three.clone()), comparable(one));
    assert_eq!(
        three["output"],
        json!({"call": "plain!!!", "each": ["x!", "z!"]})
    );
    assert_eq!(model.counts(), calls);
    assert!(
        model
            .calls()
            .iter()
            .all(|call| call.authorization == format!("Bearer {}", KEY.1))
    );
    // The ledger and its key are the orchestrator's; the others keep nothing.
    assert!(files(services.folder(Service::Orchestrator)).contains(&"ledger.db".to_owned()));
    assert_eq!(files(services.folder(Service::Runtime)), [""; 0]);
    assert_eq!(files(services.folder(Service::Gateway)), ["gateway.yaml"]);
    for service in Service::ALL {
        let client = crate::support::Client::of(&services.url(service));
        assert_eq!(client.get("/health").await.status, 200, "{service:?}");
        let described = client.get("/openapi.json").await.json();
        assert!(described["paths"]["/health"].is_object(), "{service:?}");
    }
}

/// Seed 000, invariant 16: whoever else has the provider's key, it is the gateway's that is used.
#[tokio::test]
async fn without_the_key_in_its_own_environment_the_gateway_does_not_start() {
    let model = script().await;
    let kit = model::kit(&model, &WORKFLOWS);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command
        .args(["start", "gateway", "--port", "0"])
        .env_clear();
    command
        .current_dir(kit.dir.path())
        .stdin(std::process::Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("LLM_KEY"), "{told}");
}

/// Seed 000, invariant 22: what needs no model needs neither runtime nor gateway.
#[tokio::test]
async fn with_runtime_and_gateway_gone_a_workflow_without_agents_completes() {
    let model = script().await;
    let plain = "pipeline: [{id: t, transform: {inputs: [], ops: []}}]\n";
    let kit = model::kit(&model, &[("plain", plain)]);
    let mut services = Services::start(&kit, &[KEY]);
    services.kill(Service::Runtime);
    services.kill(Service::Gateway);
    let envelope = services.client().run("plain", json!({})).await;
    assert_eq!(envelope["status"], "complete");
    let totals = &envelope["totals"];
    for name in [
        "tokens_in",
        "tokens_out",
        "llm_calls",
        "cost_micro_usd",
        "cost_usd",
    ] {
        assert_eq!(totals[name], 0, "{totals}");
    }
    assert_eq!(step(&envelope, "t")["status"], "complete");
    let health = services.client().get("/health").await;
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["services"]["runtime"], "down");
}

//! Worlds beside each other, and beside a workflow with steps.

use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::{engine, replays};
use crate::support::ledgers::Recorded;
use crate::support::model::{self, Model, Said};
use crate::support::worlds::{self, Known};
use crate::support::{KitDir, Sink};

const STEPS: &str = r#"
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: "step a"}}
  - {id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: "step b"}}
output: {map: {text: "{{ step.b.answer }}"}}
"#;
const SEES: &str = r#"
kind: world
name: sees
version: 1.0.0
objects: {Note: {}}
responders:
  - name: sees
    "on": step.completed
    ask: {model: std, messages: [{role: user, content: "seen {{ object.id }} {{ object.data.answer }}"}]}
    then: [{object: {type: Note, data: {text: "{{ reply.text }}"}}}]
"#;

fn kit(model: &Model) -> KitDir {
    KitDir::new(&[("main", STEPS)])
        .with("agents/echo.agent.yaml", model::ECHO)
        .with("worlds/sees.world.yaml", SEES)
        .with("gateway.yaml", &worlds::gateway(model))
}

fn said(call: &model::Call) -> Said {
    let user = call.user();
    match user.starts_with("step") {
        true => Said::answer(&format!("{user}!")),
        false => Said::Text(format!("{user}?")),
    }
}

fn notes(known: &Known) -> Vec<&Value> {
    known
        .of_type("Note")
        .iter()
        .map(|note| &note["text"])
        .collect()
}

/// A step fails while a question about another is in flight: that is stopped with the run, and asked
/// again when a person takes the run up from the step.
#[tokio::test]
async fn a_run_that_failed_beside_a_question_asks_it_again_when_it_is_resumed() {
    let model = Model::scripted(|call| match call.user().as_str() {
        "step b" => Said::Error(400),
        user if user.starts_with("seen") => said(call).when("never"),
        _ => said(call),
    })
    .await;
    let (kit, sink, store) = (kit(&model), Sink::new().await, MemoryStore::new());
    let within = engine(&kit, &store, &sink).await;
    let client = &within.client;
    let envelope = client.run("main", json!({})).await;
    assert_eq!(envelope["status"], "failed", "{envelope:#}");
    let run = envelope["run_id"].as_str().unwrap().to_owned();
    model.say(said);
    model.forget();
    let path = format!("/runs/{run}/resume");
    let resumed = client.post(&path, json!({"from": "b"}).to_string()).await;
    assert_eq!(resumed.status, 202, "{}", resumed.text());
    let envelope = client.ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let known = Known::of(client, &run).await;
    let mut texts = notes(&known);
    texts.sort_by_key(|text| text.to_string());
    assert_eq!(texts, ["seen step/a step a!?", "seen step/b step b!?"]);
    let mut users = model.users();
    users.sort();
    assert_eq!(
        users,
        ["seen step/a step a!", "seen step/b step b!", "step b"]
    );
    replays(&Recorded::read(&store, &run).frames(), "resumed");
}

/// The workflow ends before the questions about its steps do: the run waits for them.
#[tokio::test]
async fn a_run_ends_when_its_steps_and_its_responders_have() {
    let model = Model::scripted(|call| match call.user().starts_with("seen step/b") {
        true => said(call).when("gate"),
        false => said(call),
    })
    .await;
    let (kit, sink, store) = (kit(&model), Sink::new().await, MemoryStore::new());
    let within = engine(&kit, &store, &sink).await;
    let run = within.client.invoke("main", json!({})).await;
    let held = |calls: &[model::Call]| {
        calls
            .iter()
            .any(|call| call.user().starts_with("seen step/b"))
    };
    model.until(held).await;
    let mut events = within.client.events(&run, None).await;
    while let Some(event) = events.next().await {
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        assert_ne!(frame["type"], "run.completed");
        if frame["type"] == "responder.completed" {
            break;
        }
    }
    model.open("gate");
    let envelope = within.client.ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(envelope["output"], json!({"text": "step b!"}));
    let known = Known::of(&within.client, &run).await;
    assert_eq!(notes(&known).len(), 2);
}

/// Row 27 of seed 002: edge logic of two worlds for one type of relation.
#[tokio::test]
async fn edges_of_two_worlds_for_one_relation_both_fire() {
    let links = r#"
kind: world
name: links
version: 1.0.0
goal: [{object: {type: Claim, data: {text: "{{ goal }}"}}}]
objects: {Claim: {}, Flag: {}}
relations: {contradicts: {from: Claim, to: Claim}}
edges:
  - {name: flag-here, type: contradicts, emit: [{object: {type: Flag, data: {by: links, a: "{{ source.id }}"}}}]}
responders:
  - name: itself
    "on": object.created
    type: Claim
    emit: [{relation: {type: contradicts, from: "{{ object.id }}", to: "{{ object.id }}"}}]
"#;
    let audit = r#"
kind: world
name: audit
version: 1.0.0
objects: {Flag: {}}
edges:
  - {name: flag-there, type: contradicts, emit: [{object: {type: Flag, data: {by: audit, a: "{{ target.id }}"}}}]}
"#;
    let model = Model::echo().await;
    let kit = KitDir::new(&[])
        .with("worlds/links.world.yaml", links)
        .with("worlds/audit.world.yaml", audit)
        .with("gateway.yaml", &worlds::gateway(&model));
    let (sink, store) = (Sink::new().await, MemoryStore::new());
    let within = engine(&kit, &store, &sink).await;
    let envelope = within.client.run("links", json!({"goal": "x"})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let known = Known::of(&within.client, envelope["run_id"].as_str().unwrap()).await;
    let mut by: Vec<&Value> = known
        .of_type("Flag")
        .iter()
        .map(|flag| &flag["by"])
        .collect();
    by.sort_by_key(|by| by.to_string());
    assert_eq!(by, ["audit", "links"]);
}

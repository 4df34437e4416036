//! Replies that come in every order leave one world.

use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::{engine, goal, replays};
use crate::support::client::Events;
use crate::support::ledgers::Recorded;
use crate::support::model::Model;
use crate::support::worlds::{self, Known};
use crate::support::{KitDir, Sink};

/// Every order of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for next in 0..count {
        all = all
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, next);
                    order
                })
            })
            .collect();
    }
    all
}

/// A model in which every call waits for the gate of the first of these texts that it contains.
async fn gated(parts: &'static [&'static str]) -> Model {
    Model::scripted(move |call| {
        let user = call.user();
        let gate = parts.iter().find(|part| user.contains(**part));
        match gate {
            Some(gate) => worlds::said(call).when(gate),
            None => worlds::said(call),
        }
    })
    .await
}

/// Follows a run until an agent has finished.
async fn one_finished(events: &mut Events) {
    while let Some(event) = events.next().await {
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        if frame["type"] == "agent.finished" {
            return;
        }
    }
    panic!("the run has ended");
}

async fn in_every_order(
    name: &str,
    parts: &'static [&'static str],
    kit: impl Fn(&Model) -> KitDir,
) {
    let model = gated(parts).await;
    let kit = kit(&model);
    let sink = Sink::new().await;
    let store = MemoryStore::new();
    let within = engine(&kit, &store, &sink).await;
    let mut known: Option<Known> = None;
    let mut seen = std::collections::BTreeSet::new();
    for order in orders(parts.len()) {
        model.forget();
        let run = within.client.invoke(name, goal()).await;
        let all = |calls: &[crate::support::model::Call]| calls.len() >= parts.len();
        model.until(all).await;
        let mut events = within.client.events(&run, None).await;
        for part in &order {
            model.open(parts[*part]);
            one_finished(&mut events).await;
        }
        let envelope = within.client.ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{order:?}: {envelope:#}");
        let now = Known::of(&within.client, &run).await;
        let frames = Recorded::read(&store, &run).frames();
        replays(&frames, &format!("{name} {order:?}"));
        let ends: Vec<String> = frames
            .iter()
            .filter(|frame| frame.event.kind() == "agent.finished")
            .map(|frame| format!("{} {}", frame.scope, frame.event.data()["responder"]))
            .collect();
        seen.insert(ends);
        match &known {
            None => known = Some(now),
            Some(known) => assert_eq!(now, *known, "{order:?}"),
        }
    }
    // They really came in so many orders.
    assert_eq!(seen.len(), orders(parts.len()).len());
}

#[tokio::test]
async fn findings_in_any_order_are_one_synthesis() {
    let parts = &["key facts", "main risks", "evidence supports"];
    in_every_order("research", parts, |model| worlds::kando("research", model)).await;
}

/// Diligence asks one thing of each company; two worlds of it in one kit would be two claims.
#[tokio::test]
async fn one_reply_has_one_order() {
    in_every_order("diligence", &["Short"], |model| {
        worlds::kando("diligence", model)
    })
    .await;
}

const MIXED: &str = r#"
kind: world
name: mixed
version: 1.0.0
goal: [{object: {type: Topic, data: {text: "{{ goal }}"}}}]
objects: {Topic: {}, Note: {}, Sum: {}}
responders:
  - name: asks
    "on": object.created
    type: Topic
    for_each: {items: [one, two]}
    ask: {model: std, messages: [{role: user, content: "asks {{ item }}"}]}
    then: [{object: {type: Note, data: {text: "{{ reply.text }}", about: "{{ object.id }}"}}}]
  - name: digs
    "on": object.created
    type: Topic
    for_each: {items: [three, four]}
    run: {workflow: workflows/part.workflow.yaml, params: {text: "{{ item }}"}}
    then: [{object: {type: Note, data: {text: "{{ result.text }}", about: "{{ object.id }}"}}}]
  - name: sums
    "on": object.created
    type: Note
    with: {notes: {objects: Note, where: {about: "{{ object.data.about }}"}}}
    when: length(notes) == `4`
    emit:
      - object: {type: Sum, data: {texts: "{{ sort(notes[*].data.text) }}"}}
        key: "{{ object.data.about }}"
"#;
const PART: &str = r#"
visibility: sub-workflow
params: {schema: {type: object, required: [text], properties: {text: {type: string}}}}
pipeline: [{id: look, agent: ./agents/echo.agent.yaml, params: {msg: "dig {{ params.text }}"}}]
output: {map: {text: "{{ step.look.answer }}"}}
"#;

#[tokio::test]
async fn replies_and_workflows_in_any_order_leave_one_world() {
    let kit = |model: &Model| {
        KitDir::new(&[("part", PART)])
            .with("agents/echo.agent.yaml", crate::support::model::ECHO)
            .with("worlds/mixed.world.yaml", MIXED)
            .with("gateway.yaml", &worlds::gateway(model))
    };
    let parts = &["asks one", "asks two", "dig three", "dig four"];
    in_every_order("mixed", parts, kit).await;
    let sums = json!(["asks one!", "asks two!", "dig four!", "dig three!"]);
    let model = Model::scripted(worlds::said).await;
    let (kit, sink, store) = (kit(&model), Sink::new().await, MemoryStore::new());
    let within = engine(&kit, &store, &sink).await;
    let run = within.client.run("mixed", goal()).await;
    let known = Known::of(&within.client, run["run_id"].as_str().unwrap()).await;
    assert_eq!(known.of_type("Sum"), [&json!({"texts": sums})]);
}

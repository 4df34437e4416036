//! Outputs that people corrected, as responders take them.

use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Backend;
use ktsu_ledger::store::MemoryStore;
use serde_json::json;

use super::{asked, decide, holds, kit};
use crate::support::Lab;

const WORLD: &str = "kind: world
name: book
version: 1.0.0
responders:
  - name: looks
    \"on\": step.completed
    when: \"object.id == 'step/a'\"
    run: {workflow: workflows/looks.workflow.yaml, params: {verdict: \"{{ object.data.verdict }}\"}}
budget: {max_events: 100}
";
const LOOKS: &str = "kind: workflow
name: looks
version: 1.0.0
visibility: sub-workflow
params: {schema: {type: object, properties: {verdict: {type: string, default: none}}}}
pipeline: [{id: t, transform: {inputs: ['{{ params.verdict }}']}}]
";

#[tokio::test]
async fn a_responder_runs_with_what_the_person_left_and_both_verifiers_accept_it() {
    let store = MemoryStore::new();
    let kit = kit("true")
        .with("worlds/book.world.yaml", WORLD)
        .with("workflows/looks.workflow.yaml", LOOKS);
    let backend: Arc<dyn Backend> = Arc::new(store.clone());
    let lab = Lab::on(LedgerPlace::Backend(backend), kit.load(), &[], None).await;
    let run = asked(&lab.client, "judged").await;
    let body = json!({"decision": "approved", "overlay": {"verdict": "bad"}});
    assert_eq!(decide(&lab.client, &run, body).await.status, 200);
    lab.client.ended(&run).await;
    let frames = lab.client.frames(&run).await;
    let started = frames.iter().find(|one| {
        one["type"] == "run.started" && one["scope"].as_str().unwrap().starts_with('@')
    });
    let started = started.unwrap_or_else(|| panic!("{frames:#?}"));
    let given = &started["data"]["input"]["/params/verdict"]["value"]["value"];
    assert_eq!(given, "bad", "{started:#}");
    lab.close().await;
    holds(&store, &run);
}

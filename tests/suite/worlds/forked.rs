//! Branches of a run with worlds, from every position: inside firings, before replies and behind
//! them. A branch that changes nothing comes to the world of its run, and asks nothing again that is
//! answered in what it shares.

use ktsu_ledger::branch;
use ktsu_ledger::store::MemoryStore;
use ktsu_ledger::{Frame, StreamId};
use serde_json::{Value, json};

use super::{answered, engine, goal, replays};
use crate::support::ledgers::Recorded;
use crate::support::model::Model;
use crate::support::worlds::{self, Answers, Known};
use crate::support::{Client, KitDir, Sink};

async fn fork(client: &Client, run: &str, body: Value) -> String {
    let path = format!("/runs/{run}/fork");
    let answer = client.post(&path, body.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["branch_id"].as_str().unwrap().to_owned()
}

async fn fork_everywhere(name: &str, kit: &KitDir, model: &Model) {
    let sink = Sink::new().await;
    let store = MemoryStore::new();
    let within = engine(kit, &store, &sink).await;
    let client = &within.client;
    let envelope = client.run(name, goal()).await;
    let run = envelope["run_id"].as_str().unwrap().to_owned();
    let known = Known::of(client, &run).await;
    let frames = Recorded::read(&store, &run).frames();
    sink.forget();
    for position in 1..=frames.len() {
        let told = format!("{name} forked at {position} of {}", frames.len());
        model.forget();
        let branch = fork(client, &run, json!({"at": position, "go": true})).await;
        let envelope = client.ended(&branch).await;
        assert_eq!(envelope["status"], "complete", "{told}: {envelope:#}");
        assert_eq!(Known::of(client, &branch).await, known, "{told}");
        let got: Vec<Frame> = branch::frames(&store, &StreamId::run(&branch).unwrap()).unwrap();
        for (shared, original) in got.iter().zip(&frames).take(position) {
            assert_eq!(shared.hash, original.hash, "{told}");
        }
        replays(&got, &told);
        let counts = model.counts();
        for messages in answered(&frames[..position]) {
            assert_eq!(
                counts.get(&messages),
                None,
                "{told}: {messages} asked again"
            );
        }
    }
    assert_eq!(sink.heard().len(), 0, "a webhook of a branch was sent");
}

#[tokio::test]
async fn a_claim_that_a_model_writes_is_forked_everywhere() {
    let model = Answers::default().model().await;
    fork_everywhere("diligence", &worlds::kando("diligence", &model), &model).await;
}

#[tokio::test]
async fn findings_and_their_synthesis_are_forked_everywhere() {
    let model = Answers::default().model().await;
    fork_everywhere("research", &worlds::kando("research", &model), &model).await;
}

#[tokio::test]
async fn questions_with_schemas_workflows_and_limits_are_forked_everywhere() {
    let model = Answers::default().model().await;
    fork_everywhere("survey", &worlds::survey(&model), &model).await;
}

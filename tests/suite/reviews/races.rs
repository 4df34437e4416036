//! Two people at once: one decides, and the other is told what was decided.

use serde_json::json;
use tokio::task::JoinSet;

use ktsu_ledger::store::MemoryStore;

use super::{asked, decide, kinds, lab};
use crate::support::{Client, campaign};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_and_a_rejection_at_once_make_one_decision() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let mut races = JoinSet::new();
    for number in 0..campaign(200, 10_000) {
        if races.len() == 8 {
            races.join_next().await.unwrap().unwrap();
        }
        let client = lab.client.clone();
        races.spawn(async move { race(&client, number).await });
    }
    while let Some(raced) = races.join_next().await {
        raced.unwrap();
    }
    lab.close().await;
}

async fn race(client: &Client, number: usize) {
    let run = asked(client, "judged").await;
    let say = async |decision: &str| decide(client, &run, json!({"decision": decision})).await;
    let (approval, rejection) = match number % 2 {
        0 => tokio::join!(say("approved"), say("rejected")),
        _ => {
            let (rejection, approval) = tokio::join!(say("rejected"), say("approved"));
            (approval, rejection)
        }
    };
    let (won, lost, decision) = match approval.status {
        200 => (approval, rejection, "approved"),
        _ => (rejection, approval, "rejected"),
    };
    assert_eq!((won.status, lost.status), (200, 409), "{}", lost.text());
    assert_eq!(won.json()["status"], decision);
    let lost = lost.json();
    assert_eq!(lost["code"], "review_already_decided", "{lost:#}");
    assert_eq!(lost["review"]["status"], decision, "{lost:#}");
    assert_eq!(lost["review"]["votes"].as_array().map(Vec::len), Some(1));
    let envelope = client.ended(&run).await;
    let status = match decision {
        "approved" => "complete",
        _ => "failed",
    };
    assert_eq!(envelope["status"], status, "{envelope:#}");
    let frames = client.frames(&run).await;
    let mut decided = frames.iter().filter(|one| one["type"] == "review.decided");
    assert_eq!(decided.next().unwrap()["data"]["decision"], decision);
    assert!(decided.next().is_none());
    let kinds = kinds(client, &run).await;
    let emits = kinds.iter().filter(|kind| *kind == "command.requested");
    assert_eq!(emits.count(), usize::from(decision == "approved"));
}

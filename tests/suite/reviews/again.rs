//! A step that begins again after people had replaced fields of its output: its next outcome is decided
//! on as it is.

use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::{approve, asked, decide, holds, lab, review, seen, steer};
use crate::support::Client;

/// Begins `a` again, and waits until people are asked about its next outcome.
async fn begins_again(client: &Client, run: &str, times: usize) -> Value {
    client.ended(run).await;
    steer(client, run, "retry", json!({"from": "a"})).await;
    seen(client, run, "review.requested", times).await;
    review(client, run).await
}

async fn traced(client: &Client, run: &str) -> Value {
    let path = format!("/runs/{run}/trace?of=step.a.verdict");
    let answer = client.get(&path).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn what_a_review_replaced_is_dropped_when_its_step_begins_again() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    let run = asked(client, "judged").await;
    let corrected = json!({"decision": "approved", "overlay": {"verdict": "bad"}});
    assert_eq!(decide(client, &run, corrected).await.status, 200);
    let first = client.ended(&run).await;
    assert_eq!(first["output"], json!({"verdict": "bad", "seen": "bad"}));
    assert!(traced(client, &run).await.to_string().contains("overlay"));

    let question = begins_again(client, &run, 2).await;
    assert_eq!(question["output"], json!({"verdict": "good"}));
    assert_eq!(question.get("overlay"), None, "{question:#}");
    assert_eq!(approve(client, &run).await.status, 200);
    let second = client.ended(&run).await;
    assert_eq!(second["output"], json!({"verdict": "good", "seen": "good"}));
    assert_eq!(second["steps"][0].get("overlay"), None, "{second:#}");
    let origin = traced(client, &run).await;
    assert!(!origin.to_string().contains("overlay"), "{origin:#}");
    let state = client.get(&format!("/runs/{run}/state")).await.json();
    assert!(!state.to_string().contains("bad"), "{state:#}");
    lab.close().await;
    holds(&store, &run);
}

#[tokio::test]
async fn what_a_person_set_holds_for_the_next_outcome_too() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    let run = asked(client, "judged").await;
    assert_eq!(approve(client, &run).await.status, 200);
    client.ended(&run).await;
    let set = json!({"step": "a", "field": "verdict", "value": "bad", "reason": "as agreed"});
    steer(client, &run, "overlay", set).await;
    begins_again(client, &run, 2).await;
    assert_eq!(approve(client, &run).await.status, 200);
    let ended = client.ended(&run).await;
    assert_eq!(ended["output"], json!({"verdict": "bad", "seen": "bad"}));
    lab.close().await;
    holds(&store, &run);
}

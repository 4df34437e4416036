//! Reviews in `/metrics`: requested, decided, and waiting, also across a restart.

use ktsu_ledger::store::MemoryStore;
use serde_json::json;

use super::{approve, asked, decide, lab, steer};
use crate::support::{Client, guarded};

const ENDS: [&str; 4] = ["approved", "rejected", "timed_out", "void"];

/// Waits until so many were requested, ended in each way, and wait.
async fn counts(client: &Client, requested: u64, ended: [u64; 4], waiting: u64) {
    let mut wanted = vec![
        format!("ktsu_reviews_requested_total {requested}\n"),
        format!("ktsu_reviews_waiting {waiting}\n"),
    ];
    for (end, count) in ENDS.iter().zip(ended) {
        wanted.push(format!(
            "ktsu_reviews_decided_total{{decision=\"{end}\"}} {count}\n"
        ));
    }
    metrics_show(client, &wanted).await;
}

/// Waits until `/metrics` has these lines.
pub(crate) async fn metrics_show(client: &Client, wanted: &[String]) {
    let shown = async {
        loop {
            let text = client.get("/metrics").await.text();
            if wanted.iter().all(|line| text.contains(line.as_str())) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    guarded(&format!("{wanted:?}"), shown).await;
}

#[tokio::test]
async fn reviews_are_counted_as_they_are_requested_and_decided_and_while_they_wait() {
    let store = MemoryStore::new();
    let first = lab(&store, "true").await;
    let client = &first.client;
    counts(client, 0, [0; 4], 0).await;
    let approved = asked(client, "judged").await;
    let rejected = asked(client, "calls").await;
    let cancelled = asked(client, "judged").await;
    let left = asked(client, "judged").await;
    counts(client, 4, [0; 4], 4).await;
    assert_eq!(approve(client, &approved).await.status, 200);
    let body = json!({"decision": "rejected"});
    let child = format!("{rejected}/call");
    assert_eq!(decide(client, &child, body).await.status, 200);
    steer(client, &cancelled, "cancel", json!({})).await;
    counts(client, 4, [1, 1, 0, 1], 1).await;
    first.close().await;

    let second = lab(&store, "true").await;
    counts(&second.client, 0, [0; 4], 1).await;
    assert_eq!(approve(&second.client, &left).await.status, 200);
    counts(&second.client, 0, [1, 0, 0, 0], 0).await;
    second.close().await;

    let third = lab(&store, "{timeout: 1s}").await;
    let late = asked(&third.client, "judged").await;
    third.client.ended(&late).await;
    counts(&third.client, 1, [0, 0, 1, 0], 0).await;
    third.close().await;
}

//! Suspensions in `/metrics`: requested, ended, and waiting, also across a restart.

use ktsu_ledger::store::MemoryStore;
use serde_json::json;

use super::{RESUME, give, lab, suspended};
use crate::reviews::counted::metrics_show;
use crate::support::Client;

const ENDS: [&str; 3] = ["resumed", "timed_out", "void"];

async fn counts(client: &Client, requested: u64, ended: [u64; 3], waiting: u64) {
    let mut wanted = vec![
        format!("ktsu_suspensions_requested_total {requested}\n"),
        format!("ktsu_suspensions_waiting {waiting}\n"),
        "ktsu_reviews_requested_total 0\n".to_owned(),
    ];
    for (end, count) in ENDS.iter().zip(ended) {
        wanted.push(format!(
            "ktsu_suspensions_ended_total{{end=\"{end}\"}} {count}\n"
        ));
    }
    metrics_show(client, &wanted).await;
}

#[tokio::test]
async fn suspensions_are_counted_as_they_begin_and_end_and_while_they_wait() {
    let store = MemoryStore::new();
    let first = lab(&store, RESUME).await;
    let client = &first.client;
    counts(client, 0, [0; 3], 0).await;
    let resumed = suspended(client, "reads").await;
    let cancelled = suspended(client, "reads").await;
    let left = suspended(client, "reads").await;
    counts(client, 3, [0; 3], 3).await;
    assert_eq!(give(client, &resumed, "paper").await.status, 200);
    // The second half is asked for by another suspension of the same step.
    let more = suspended(client, "reads").await;
    assert_eq!(give(client, &more, "more").await.status, 200);
    let path = format!("/runs/{cancelled}/cancel");
    assert!(client.post(&path, json!({}).to_string()).await.status < 300);
    counts(client, 5, [2, 0, 1], 2).await;
    first.close().await;

    let second = lab(&store, RESUME).await;
    counts(&second.client, 0, [0; 3], 2).await;
    assert_eq!(give(&second.client, &left, "paper").await.status, 200);
    counts(&second.client, 0, [1, 0, 0], 1).await;
    second.close().await;

    let third = lab(&store, "{timeout: 1s}").await;
    let late = suspended(&third.client, "reads").await;
    third.client.ended(&late).await;
    counts(&third.client, 1, [0, 1, 0], 1).await;
    third.close().await;
}

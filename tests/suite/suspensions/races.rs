//! Several people at once: one gives the data, and the others learn what was given.

use ktsu_ledger::store::MemoryStore;
use serde_json::json;
use tokio::task::JoinSet;

use super::{RESUME, give, lab, suspended};
use crate::reviews::is;
use crate::support::{Client, campaign};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_data_given_at_once_one_counts_and_a_cancel_leaves_one_end() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let mut races = JoinSet::new();
    for number in 0..campaign(100, 10_000) {
        if races.len() == 8 {
            races.join_next().await.unwrap().unwrap();
        }
        let client = lab.client.clone();
        races.spawn(async move {
            match number % 2 {
                0 => twice(&client).await,
                _ => cancelled(&client).await,
            }
        });
    }
    while let Some(raced) = races.join_next().await {
        raced.unwrap();
    }
    lab.close().await;
}

async fn twice(client: &Client) {
    let run = suspended(client, "reads").await;
    let all = tokio::join!(
        give(client, &run, "one"),
        give(client, &run, "two"),
        give(client, &run, "three"),
    );
    let all = [all.0, all.1, all.2];
    let won: Vec<_> = all.iter().filter(|answer| answer.status == 200).collect();
    assert_eq!(won.len(), 1);
    let data = won[0].json()["data"].clone();
    for lost in all.iter().filter(|answer| answer.status != 200) {
        is(lost, 409, "suspension_over");
        assert_eq!(lost.json()["suspension"]["data"], data);
    }
    let envelope = client.ended(&run).await;
    let read = format!("read {}", data["text"].as_str().unwrap());
    assert_eq!(envelope["output"]["verdict"], read);
    let frames = client.frames(&run).await;
    let resumed = frames.iter().filter(|one| one["type"] == "suspend.resumed");
    assert_eq!(resumed.count(), 1);
}

async fn cancelled(client: &Client) {
    let run = suspended(client, "reads").await;
    let path = format!("/runs/{run}/cancel");
    let (given, cancel) = tokio::join!(give(client, &run, "one"), client.post(&path, "{}"));
    let envelope = client.ended(&run).await;
    match (given.status, cancel.status) {
        (200, _) => {}
        (409, 200..300) => is(&given, 409, "suspension_over"),
        other => panic!("{other:?}: {} {}", given.text(), cancel.text()),
    }
    let ended = if cancel.status < 300 {
        "cancelled"
    } else {
        "complete"
    };
    assert_eq!(envelope["status"], ended, "{}", json!(envelope));
}

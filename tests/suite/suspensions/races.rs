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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_data_and_the_end_of_their_time_one_counts() {
    let store = MemoryStore::new();
    let (mut in_time, mut too_late) = (0, 0);
    for timeout in [
        "{timeout: 1ms}",
        "{timeout: 12ms}",
        "{timeout: 30ms}",
        "{timeout: 2h}",
    ] {
        let lab = lab(&store, timeout).await;
        for _ in 0..campaign(20, 1_000) {
            match in_time_or_late(&lab.client).await {
                true => in_time += 1,
                false => too_late += 1,
            }
        }
        lab.close().await;
    }
    assert!(in_time > 0 && too_late > 0, "{in_time} {too_late}");
}

/// Whether the data came in time; either way there is one end.
async fn in_time_or_late(client: &Client) -> bool {
    let run = suspended(client, "reads").await;
    let given = give(client, &run, "one").await;
    let envelope = client.ended(&run).await;
    let frames = client.frames(&run).await;
    let count = |kind: &str| frames.iter().filter(|one| one["type"] == kind).count();
    let timers = frames
        .iter()
        .filter(|one| one["type"] == "timer.fired" && one["data"]["timer"] == "suspend")
        .count();
    match given.status {
        200 => {
            assert_eq!((count("suspend.resumed"), timers), (1, 0));
            assert_eq!(envelope["output"]["verdict"], "read one");
            true
        }
        _ => {
            is(&given, 409, "suspension_over");
            assert_eq!((count("suspend.resumed"), timers), (0, 1));
            assert_eq!(envelope["error"]["code"], "suspend_timed_out");
            false
        }
    }
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

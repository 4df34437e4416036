//! What took time, and what waited for people: told apart for items, steps, children and runs alike.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Timestamp;
use serde_json::{Value, json};

use super::edges::kit;
use crate::support::{Client, Lab};

const HOUR: u64 = 3_600_000_000;

/// Waits until a frame of this type about an item is there.
async fn until(client: &Client, run: &str, kind: &str, item: u64) {
    let mut events = client.events(run, None).await;
    while let Some(event) = events.next().await {
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        if frame["type"] == kind && frame["data"]["item"] == item {
            return;
        }
    }
    panic!("{run} ended without {kind}");
}

#[tokio::test]
async fn time_in_which_only_people_could_move_it_is_distinguished_from_time_at_work() {
    let kit = kit();
    let now = Arc::new(AtomicU64::new(1_800_000_000_000_000));
    let clock = Arc::clone(&now);
    let clock = Arc::new(move || Timestamp::from_micros(clock.load(Ordering::SeqCst)));
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let place = LedgerPlace::File(ledger.clone());
    let lab = Lab::on(place, kit.load(), &[], Some(clock)).await;
    let client = &lab.client;
    let list = json!({"list": ["keep", "let", "keep"]});
    let run = client.invoke("flow", list).await;
    for item in [0, 2] {
        until(client, &run, "approval.requested", item).await;
    }
    until(client, &run, "item.completed", 1).await;
    // An hour in which nothing is at work, then the first decision; and one more, then the second.
    for item in [0, 2] {
        now.fetch_add(HOUR, Ordering::SeqCst);
        let decide = format!("/runs/{run}/steps/a.{item}/approval/decide");
        let body = json!({"decision": "approved"}).to_string();
        assert_eq!(client.post(&decide, body).await.status, 200);
        until(client, &run, "item.completed", item).await;
    }
    let envelope = client.ended(&run).await;
    let times = |metrics: &Value| {
        let number = |name: &str| metrics[name].as_u64();
        (number("duration_ms").unwrap(), number("waited_ms"))
    };
    let hours = |count: u64| Some(count * 3_600_000);
    let step = &envelope["steps"][0];
    assert_eq!(times(&step["items"][0]["metrics"]), (0, hours(1)));
    assert_eq!(
        times(&step["items"][1]["metrics"]),
        (0, None),
        "it waited for nobody"
    );
    assert_eq!(times(&step["items"][2]["metrics"]), (0, hours(2)));
    assert_eq!(times(&step["metrics"]), (0, hours(2)));
    assert_eq!(times(&envelope["totals"]), (0, hours(2)));
    lab.close().await;
    // Whoever reads it is told the same, on a terminal and on a page.
    let told = trace(&ledger, &[&run]);
    for line in ["a.0 ", "a.2 ", "└─ ✓ a ", " steps in "] {
        let line = told.lines().find(|one| one.contains(line)).unwrap_or(&told);
        let hours = if line.contains("a.0 ") { 1 } else { 2 };
        assert!(line.contains(&format!("waited {hours} h")), "{told}");
    }
    let page = folder.path().join("page.html");
    trace(&ledger, &[&run, "--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    for (hours, count) in [(1u64, 1), (2, 3)] {
        let words = format!("{hours} h 0 min of it waiting for people");
        assert_eq!(page.matches(&words).count(), count, "{words}");
    }
}

/// A pause, a resumption and a cancel are words that come while people are waited for, and lose
/// nothing of the wait.
#[tokio::test]
async fn a_word_about_the_whole_run_loses_nothing_of_a_wait() {
    let kit = kit();
    let now = Arc::new(AtomicU64::new(1_800_000_000_000_000));
    let clock = Arc::clone(&now);
    let clock = Arc::new(move || Timestamp::from_micros(clock.load(Ordering::SeqCst)));
    let lab = Lab::on(LedgerPlace::Memory, kit.load(), &[], Some(clock)).await;
    let client = &lab.client;
    for (words, hours) in [
        (&["pause", "resume", "cancel"][..], 3),
        (&["pause", "cancel"][..], 2),
        (&["cancel"][..], 1),
        (&["terminate"][..], 1),
    ] {
        let run = client.invoke("flow", json!({"list": ["keep"]})).await;
        until(client, &run, "approval.requested", 0).await;
        for word in words {
            now.fetch_add(HOUR, Ordering::SeqCst);
            let answer = client.post(&format!("/runs/{run}/{word}"), "{}").await;
            assert!(answer.status < 300, "{word}: {}", answer.text());
        }
        let envelope = client.ended(&run).await;
        assert_eq!(envelope["status"], "cancelled", "{envelope}");
        let step = &envelope["steps"][0];
        for metrics in [
            &envelope["totals"],
            &step["metrics"],
            &step["items"][0]["metrics"],
        ] {
            assert_eq!(
                metrics["waited_ms"],
                hours * 3_600_000,
                "{words:?}: {envelope}"
            );
            assert_eq!(metrics["duration_ms"], 0, "{words:?}: {envelope}");
        }
    }
    lab.close().await;
}

/// What `ktsu trace` says of a ledger that nobody owns.
fn trace(ledger: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command.env_clear().arg("--ledger").arg(ledger);
    let output = command.arg("trace").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

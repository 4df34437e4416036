//! Long worlds that are read again and again, and posted to while they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ktsu::assemble::LedgerPlace;
use ktsu_history as history;
use ktsu_history::frame_page::PageLimit;
use ktsu_history::world::RecordedWorld;
use ktsu_ledger::StreamId;
use ktsu_ledger::Timestamp;
use ktsu_ledger::appender::Options;
use ktsu_ledger::store::{MemoryStore, Store as _};
use serde_json::{Value, json};

use crate::support::{Client, KitDir, Lab, Within};

/// What is posted, and a note about each.
const FEED: &str = r#"
kind: world
name: feed
version: 1.0.0
objects: {Alert: {}, Note: {}}
relations: {about: {from: Note, to: Alert}}
responders:
  - name: notes
    "on": object.created
    type: Alert
    emit:
      - {as: note, object: {type: Note, data: {of: "{{ object.data.n }}"}}}
      - relation: {type: about, from: "{{ note.id }}", to: "{{ object.id }}"}
budget: {max_events: 200000}
"#;

fn alerts(numbers: std::ops::Range<u32>) -> String {
    let alert = |n| json!({"type": "object.created", "data": {"type": "Alert", "data": {"n": n}}});
    Value::from(numbers.map(alert).collect::<Vec<_>>()).to_string()
}

/// An engine and a run of that world which is complete and has so many alerts.
async fn fed(count: u32) -> (KitDir, MemoryStore, Within, String) {
    let kit = KitDir::new(&[]).with("worlds/feed.world.yaml", FEED);
    let store = MemoryStore::new();
    let within = Within::new(kit.load(), store.clone(), Options::default(), &[], None).await;
    let run = feed(&within.client, count).await;
    (kit, store, within, run)
}

async fn feed(client: &Client, count: u32) -> String {
    let run = client.run("feed", json!({})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    for from in (0..count).step_by(50) {
        post(client, &run, alerts(from..from + 50)).await;
    }
    run
}

/// Posts, and waits until everything has reacted.
async fn post(client: &Client, run: &str, events: String) {
    let path = format!("/runs/{run}/events");
    let answer = client.post(&path, events).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    client.ended(run).await;
}

/// What is shown of a run is what its frames say, folded from the first one.
async fn shows_what_frames_say(within: &Within, store: &MemoryStore, run: &str) {
    let stream = StreamId::run(run).unwrap();
    let reader = store.reader().unwrap();
    let frames = history::frames(reader.as_ref(), &stream).unwrap();
    let envelope = history::fold(&frames).unwrap().envelope("").unwrap();
    let shown = within.client.get(&format!("/runs/{run}/envelope")).await;
    assert_eq!(shown.json(), json!(envelope));
    let last = frames.len() - 1;
    for (query, at, from, limit) in [
        (String::new(), None, 0, 10_000),
        ("?limit=3".to_owned(), None, 0, 3),
        (format!("?at={last}&from=200&limit=5"), None, 200, 5),
        (format!("?at={}&limit=5", last / 2), Some(last / 2), 0, 5),
    ] {
        let shown = within
            .client
            .get(&format!("/runs/{run}/world{query}"))
            .await;
        let world = RecordedWorld::of(&frames, at.map(|at| at as u64)).unwrap();
        let page = world.pages().page(run, from, PageLimit::frames(limit));
        assert_eq!(shown.json(), json!(page), "{query}");
    }
}

#[tokio::test]
async fn a_long_world_is_folded_once_and_then_follows_the_frames_that_are_appended() {
    let (_kit, store, within, run) = fed(400).await;
    let recent = within.orchestrator.recent_runs();
    let stream = StreamId::run(&run).unwrap();
    let reader = store.reader().unwrap();
    // The posts themselves left it there.
    let kept = recent.find(reader.as_ref(), &stream).unwrap();
    let before = kept.expect("it is long").fold().state().next_seq();
    assert!(before > 1000, "{before}");
    shows_what_frames_say(&within, &store, &run).await;
    for n in 0..3 {
        post(&within.client, &run, alerts(1000 + n..1001 + n)).await;
        shows_what_frames_say(&within, &store, &run).await;
    }
    let kept = recent.find(reader.as_ref(), &stream).unwrap().unwrap();
    let tail = reader.tail(&stream).unwrap().unwrap();
    assert_eq!(kept.fold().state().next_seq(), tail.seq + 1);
    assert!(tail.seq > before);
    // Nothing is folded again: what was found is what is given.
    let again = recent.find(reader.as_ref(), &stream).unwrap().unwrap();
    assert!(Arc::ptr_eq(&kept, &again));
}

#[tokio::test]
async fn a_run_that_ends_otherwise_than_what_is_kept_of_it_is_read_from_its_first_frame() {
    let (_kit, store, within, run) = fed(400).await;
    let recent = within.orchestrator.recent_runs();
    let reader = store.reader().unwrap();
    let stream = StreamId::run(&run).unwrap();
    let kept = recent.find(reader.as_ref(), &stream).unwrap().unwrap();
    // A stream that has other frames, and one that has none any more.
    let other = within.client.run("feed", json!({})).await;
    let other = StreamId::run(other["run_id"].as_str().unwrap()).unwrap();
    let gone = StreamId::run("run_gone").unwrap();
    for stream in [&other, &gone] {
        recent.keep(stream, kept.fold().clone(), &[]);
        assert!(recent.find(reader.as_ref(), stream).unwrap().is_none());
        assert!(recent.find(reader.as_ref(), stream).unwrap().is_none());
    }
    shows_what_frames_say(&within, &store, other.name()).await;
    // A short run is not kept at all.
    let other = recent.find(reader.as_ref(), &other).unwrap();
    assert!(other.is_none());
}

#[tokio::test]
async fn a_branch_of_a_long_run_and_the_run_itself_each_show_their_own_frames() {
    let (_kit, store, within, run) = fed(400).await;
    let client = &within.client;
    shows_what_frames_say(&within, &store, &run).await;
    let body = json!({"at": 1500, "go": true}).to_string();
    let answer = client.post(&format!("/runs/{run}/fork"), body).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
    client.ended(&branch).await;
    for n in 0..2 {
        for id in [&branch, &run] {
            shows_what_frames_say(&within, &store, id).await;
            post(client, id, alerts(1000 + n..1001 + n)).await;
        }
    }
    for id in [&branch, &run] {
        shows_what_frames_say(&within, &store, id).await;
    }
}

#[tokio::test]
async fn nothing_is_kept_of_a_long_run_that_retention_removed() {
    const DAY: u64 = 24 * 60 * 60 * 1_000_000;
    let time = Arc::new(AtomicU64::new(1_704_067_200_000_000));
    let read = Arc::clone(&time);
    let clock = move || Timestamp::from_micros(read.fetch_add(1, Ordering::SeqCst));
    let kit = KitDir::new(&[]).with("worlds/feed.world.yaml", FEED);
    let keep = "retention: {complete_days: 10}\n";
    let clock = Some(Arc::new(clock) as _);
    let lab = Lab::in_environment_at(LedgerPlace::Memory, &kit, keep, &[], clock).await;
    let run = feed(&lab.client, 300).await;
    let paths = ["", "/envelope", "/world", "/world?limit=1"].map(|of| format!("/runs/{run}{of}"));
    for path in &paths {
        assert_eq!(lab.client.get(path).await.status, 200, "{path}");
    }
    let orchestrator = &lab.engine.orchestrator;
    let before = orchestrator.recent_runs().len();
    assert_eq!(before, 1);
    time.fetch_add(11 * DAY, Ordering::SeqCst);
    assert_eq!(orchestrator.remove_due_runs().await.unwrap(), 1);
    assert_eq!(orchestrator.recent_runs().len(), 0);
    for path in &paths {
        assert_eq!(lab.client.get(path).await.status, 410, "{path}");
    }
    let path = format!("/runs/{run}/events");
    let answer = lab.client.post(&path, alerts(0..1)).await;
    assert_eq!(answer.status, 410);
}

//! The engine is killed while frames are on their way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{SECRET, assert_in_order, entry, environment, frame_id, frames, kit};
use crate::support::process::Process;
use crate::support::sink::{Heard, Reply};
use crate::support::{KitDir, Sink, guarded};

fn is_end(heard: &Heard) -> bool {
    heard.json()["type"] == "run.completed"
}

fn with_subscription(sink: &Sink) -> KitDir {
    let text = environment(&[entry("all", "*", &sink.url, ", backoff: 5ms")]);
    kit().with("environments/local.env.yaml", &text)
}

/// The ids under which each frame was sent.
fn ids(heard: &[Heard]) -> BTreeMap<String, BTreeSet<String>> {
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in heard {
        ids.entry(frame_id(one)).or_default().insert(one.id.clone());
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_sending_and_the_cursor_sends_again_under_the_same_id() {
    // The last frame of the run is taken, and the engine never hears of it.
    let sink = Sink::scripted(|heard| match is_end(heard) {
        true => Reply::Never,
        false => Reply::Now(200, String::new()),
    })
    .await;
    let kit = with_subscription(&sink);
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.db");
    let engine = Process::start(kit.dir.path(), &ledger, &[SECRET]);
    let run = engine.client().run_hello(1).await;
    sink.until(|heard| heard.iter().any(is_end)).await;
    engine.kill();
    let before = sink.heard();
    sink.follow(|_| Reply::Now(200, String::new()));
    let engine = Process::start(kit.dir.path(), &ledger, &[SECRET]);
    let ends = |heard: &[Heard]| heard.iter().filter(|one| is_end(one)).count();
    sink.until(|heard| ends(heard) == 2).await;
    let expected = engine.client().frames_by_id(&run).await;
    let heard = sink.heard();
    assert_eq!(frames(&heard), expected.into_keys().collect());
    assert!(
        ids(&heard).values().all(|ids| ids.len() == 1),
        "{:?}",
        ids(&heard)
    );
    assert_in_order(&heard[before.len()..]);
    engine.stop();
}

/// Killed again and again at any moment, with receivers that sometimes refuse: nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn whenever_the_engine_is_killed_every_frame_arrives() {
    let sink = Sink::new().await;
    let kit = with_subscription(&sink);
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.db");
    let mut runs = Vec::new();
    for round in 1..=crate::support::campaign(4, 30) {
        let engine = Process::start(kit.dir.path(), &ledger, &[SECRET]);
        runs.extend(engine.client().run_hello(2).await);
        // A few more arrive before the engine is killed, unless all of it has arrived already.
        let all = engine.client().frames_by_id(&runs).await.len();
        let wanted = sink.heard().len() + round % 5;
        sink.until(|heard| heard.len() >= wanted || frames(heard).len() == all)
            .await;
        engine.kill();
    }
    let engine = Process::start(kit.dir.path(), &ledger, &[SECRET]);
    runs.extend(engine.client().run_hello(1).await);
    let expected: BTreeSet<String> = engine
        .client()
        .frames_by_id(&runs)
        .await
        .into_keys()
        .collect();
    sink.until(|heard| frames(heard).is_superset(&expected))
        .await;
    let heard = sink.heard();
    assert_eq!(frames(&heard), expected);
    assert_in_order(&heard);
    assert!(ids(&heard).values().all(|ids| ids.len() == 1));
    engine.stop();
}

/// The secret signs, and is in nothing that can be read.
#[tokio::test(flavor = "multi_thread")]
async fn the_secret_of_a_subscription_is_in_no_frame_log_or_answer() {
    const CANARY: &str = "canary-of-a-subscription-7319";
    let sink = Sink::scripted(|heard| match is_end(heard) {
        true => Reply::Now(500, format!("I was told {CANARY}")),
        false => Reply::Now(200, String::new()),
    })
    .await;
    let text = environment(&[entry("all", "*", &sink.url, ", backoff: 1ms, attempts: 2")]);
    let kit = kit().with("environments/local.env.yaml", &text);
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.db");
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let mut around = Command::new("env");
    around.stderr(log);
    let pairs = [("HOOK_SECRET", CANARY), ("KTSU_LOG", "trace")];
    let engine = Process::within(around, kit.dir.path(), &ledger, &pairs);
    let client = engine.client();
    let added = json!({"pattern": "*", "url": sink.url, "secret": "{{ env.HOOK_SECRET }}"});
    let mut answers = vec![
        client
            .post("/subscriptions", added.to_string())
            .await
            .text(),
    ];
    let literal = json!({"pattern": "*", "url": sink.url, "secret": CANARY}).to_string();
    let refused = client.post("/subscriptions", literal).await;
    assert_eq!(refused.status, 422);
    answers.push(refused.text());
    let in_url = format!("{}/{CANARY}", sink.url);
    let in_url = json!({"pattern": "*", "url": in_url, "secret": "{{ env.HOOK_SECRET }}"});
    let refused = client.post("/subscriptions", in_url.to_string()).await;
    assert_eq!(refused.json()["code"], "subscription_refused");
    answers.push(refused.text());
    // A run that repeats it, as somebody might who was told.
    let echoed = client.run("hello", json!({"text": CANARY})).await;
    answers.push(echoed.to_string());
    let ends = |heard: &[Heard]| heard.iter().filter(|one| is_end(one)).count();
    sink.until(|heard| ends(heard) >= 3).await;
    for path in [
        "/subscriptions",
        "/subscriptions/all/dead",
        "/runs",
        "/metrics",
        "/health",
    ] {
        answers.push(client.get(path).await.text());
    }
    engine.stop();
    let bodies: Vec<String> = sink
        .heard()
        .iter()
        .map(|one| String::from_utf8_lossy(&one.body).into_owned())
        .collect();
    assert!(bodies.iter().any(|body| body.contains("[REDACTED]")));
    let files = every_file(dir.path());
    assert!(
        files
            .iter()
            .any(|(name, bytes)| name.ends_with("log") && !bytes.is_empty())
    );
    let texts = answers
        .iter()
        .chain(&bodies)
        .map(|text| text.as_bytes().to_vec());
    for bytes in texts.chain(files.into_iter().map(|(_, bytes)| bytes)) {
        let found = bytes
            .windows(CANARY.len())
            .any(|part| part == CANARY.as_bytes());
        assert!(!found, "{}", String::from_utf8_lossy(&bytes));
    }
}

/// What stands beside the ledger, the ledger included.
fn every_file(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let files = files.filter(|file| file.file_type().unwrap().is_file());
    let read = |file: std::fs::DirEntry| {
        let name = file.file_name().to_string_lossy().into_owned();
        (name, std::fs::read(file.path()).unwrap())
    };
    files.map(read).collect()
}

/// A run that is followed while the engine restarts: positions stay what they are.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_continues_after_a_crash_where_it_was() {
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.db");
    let engine = Process::start(kit.dir.path(), &ledger, &[]);
    let mut runs = engine.client().run_hello(2).await;
    let client = engine.client();
    let request = axum::http::Request::get("/events");
    let mut events = client.listen(request).await.unwrap().unwrap();
    let mut followed = Vec::new();
    for _ in 0..5 {
        followed.push(events.next().await.unwrap());
    }
    engine.kill();
    let engine = Process::start(kit.dir.path(), &ledger, &[]);
    runs.extend(engine.client().run_hello(1).await);
    let expected = engine.client().frames_by_id(&runs).await;
    let last = followed.last().unwrap().id.to_string();
    let request = axum::http::Request::get("/events").header("last-event-id", last);
    let mut events = engine.client().listen(request).await.unwrap().unwrap();
    let rest = guarded("the rest", async {
        while followed.len() < expected.len() {
            followed.push(events.next().await.unwrap());
        }
    });
    rest.await;
    let ids = followed.iter().map(|event| {
        let frame: serde_json::Value = serde_json::from_str(&event.data).unwrap();
        frame["id"].as_str().unwrap().to_owned()
    });
    let ids: Vec<String> = ids.collect();
    assert_eq!(
        ids.iter().cloned().collect::<BTreeSet<_>>(),
        expected.into_keys().collect()
    );
    assert!(followed.is_sorted_by_key(|event| event.id));
    engine.stop();
}

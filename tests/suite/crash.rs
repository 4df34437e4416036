//! A process that is killed at any moment loses nothing it has acknowledged (R01, R12, R15).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ktsu_ledger::event::RunEvent;
use ktsu_ledger::store::{Filter, read_all};
use ktsu_ledger::verify;
use ktsu_ledger::{Event, Ledger, LedgerPlace, StreamId};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::ledgers::frames;
use crate::support::postgres::Server;
use crate::support::process::Process;
use crate::support::random::RandomNumbers;
use crate::support::{Client, KitDir, Sink, campaign, guarded};

const CLIENTS: usize = 16;
/// The signing key: 32 bytes in hexadecimal digits.
const KEY: &str = "5ad1a7c3f2b84e0991d6c3b27a64f08e13c5d7e9f0a1b2c3d4e5f60718293a4b";

fn kit() -> KitDir {
    KitDir::new(&[
        (
            "part",
            r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [sink, token], properties: {sink: {type: string}, token: {type: string}}}}
pipeline:
  - {id: call, webhook: {url: "{{ params.sink }}/part", body: {token: "{{ params.token }}", step: inner/call}}}
"#,
        ),
        (
            "work",
            r#"
env: [{name: SINK}]
params: {schema: {type: object, required: [token], properties: {token: {type: string}}}}
pipeline:
  - {id: t, transform: {inputs: [{from: params.token}], ops: []}}
  - {id: a, webhook: {url: "{{ env.SINK }}/a", body: {token: "{{ step.t.result }}", step: a}}}
  - {id: b, webhook: {url: "{{ env.SINK }}/b", body: {token: "{{ params.token }}", step: b}}}
  - {id: inner, depends_on: [a], workflow: ./part.workflow.yaml, webhooks: execute, params: {sink: "{{ env.SINK }}", token: "{{ params.token }}"}}
  - {id: last, depends_on: [inner, b], webhook: {url: "{{ env.SINK }}/last", body: {token: "{{ params.token }}", step: last}}}
output: {map: {token: "{{ params.token }}"}}
"#,
        ),
    ])
}

/// What clients were told, kept outside the process that told it.
#[derive(Default)]
struct Journal {
    /// Runs acknowledged by 202, by the token their request carried.
    accepted: BTreeMap<String, BTreeSet<String>>,
    /// Runs whose end was acknowledged by `?wait`.
    ended: BTreeSet<String>,
    /// Frames that were followed: run, number, hash.
    frames: BTreeMap<(String, u64), String>,
}

struct World {
    url: watch::Receiver<String>,
    journal: Mutex<Journal>,
    finish: AtomicBool,
    broken: AtomicU64,
}

impl World {
    /// Waits until the engine listens somewhere else than before.
    async fn elsewhere(&self, than: &str) -> String {
        self.broken.fetch_add(1, Ordering::Relaxed);
        let mut url = self.url.clone();
        let waiting = url.wait_for(|url| url != than && !url.is_empty());
        guarded("a restart", waiting).await.unwrap().clone()
    }

    async fn live(self: Arc<Self>, number: usize) {
        let mut url = self.elsewhere("").await;
        let mut round = 0;
        while !self.finish.load(Ordering::Relaxed) {
            round += 1;
            let token = format!("{number}-{round}");
            // Asked again and again with one key, until somebody acknowledges.
            let wait = round % 3 == 0;
            let run = loop {
                match self.ask(&url, &token, wait).await {
                    Some(run) => break run,
                    None => url = self.elsewhere(&url).await,
                }
            };
            let mut last = None;
            while !self.follow(&url, &run, &mut last).await {
                url = self.elsewhere(&url).await;
            }
        }
    }

    async fn ask(&self, url: &str, token: &str, wait: bool) -> Option<String> {
        let path = if wait {
            "/invoke/work?wait=60"
        } else {
            "/invoke/work"
        };
        let headers = [("Idempotency-Key", token)];
        let body = json!({ "token": token }).to_string();
        let answer = Client::of(url)
            .try_send("POST", path, &headers, body)
            .await?;
        let told = answer.json();
        assert!(matches!(answer.status, 200 | 202), "{told}");
        let run = told["run_id"].as_str().unwrap().to_owned();
        let mut journal = self.journal.lock().unwrap();
        journal
            .accepted
            .entry(token.to_owned())
            .or_default()
            .insert(run.clone());
        if answer.status == 200 {
            assert_eq!(told["status"], "complete", "{told:#}");
            assert_eq!(told["output"], json!({ "token": token }));
            journal.ended.insert(run.clone());
        }
        Some(run)
    }

    /// Follows a run to its end; false if the engine went away before.
    async fn follow(&self, url: &str, run: &str, last: &mut Option<u64>) -> bool {
        let Some(mut events) = Client::of(url).try_events(run, *last).await else {
            return false;
        };
        let mut kind = String::new();
        while let Some(event) = events.next().await {
            let expected = last.map_or(0, |last| last + 1);
            assert_eq!(event.id, expected, "{run}: a gap or a repeat");
            *last = Some(event.id);
            let frame: Value = serde_json::from_str(&event.data).unwrap();
            kind = format!(
                "{}{}",
                frame["scope"].as_str().unwrap(),
                frame["type"].as_str().unwrap()
            );
            let hash = frame["hash"].as_str().unwrap().to_owned();
            let mut journal = self.journal.lock().unwrap();
            journal.frames.insert((run.to_owned(), event.id), hash);
        }
        if events.broken {
            return false;
        }
        // A stream that was followed to its end before is empty now.
        assert!(
            kind.is_empty() || kind == "run.completed",
            "{run} ended with {kind}"
        );
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn kills_lose_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let kills = campaign(15, 50) as u64;
    lose_nothing(&path, &LedgerPlace::from(&path), kills, None).await;
}

/// The server of the ledger crashes in the middle of the work, and then its owner is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn crashes_of_the_server_and_kills_lose_nothing_that_was_acknowledged() {
    let Some(server) = Server::alone() else {
        return;
    };
    let (place, schema) = server.ledger();
    let address = PathBuf::from(server.address(&schema));
    let place = LedgerPlace::Backend(Arc::new(place));
    let rounds = campaign(3, 20) as u64;
    lose_nothing(&address, &place, rounds, Some(&server)).await;
}

/// Starts and kills engines on a ledger while clients work with them, and holds what they saw against
/// the ledger.
async fn lose_nothing(path: &Path, place: &LedgerPlace, kills: u64, server: Option<&Server>) {
    let mut random = RandomNumbers::seeded();
    let kit = kit();
    let sink = Sink::new().await;
    let (told, url) = watch::channel(String::new());
    let world = Arc::new(World {
        url,
        journal: Mutex::default(),
        finish: AtomicBool::new(false),
        broken: AtomicU64::new(0),
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(Arc::clone(&world).live(number)))
        .collect();
    let start = || {
        let pairs = [("SINK", sink.url.as_str()), ("KTSU_SIGNING_KEY", KEY)];
        tokio::task::block_in_place(|| Process::start(kit.dir.path(), path, &pairs))
    };
    for _ in 0..kills {
        let process = start();
        told.send_replace(process.url.clone());
        // A moment by chance, from before the first commit to the middle of the work.
        tokio::time::sleep(Duration::from_micros(random.next(150_000))).await;
        if let Some(server) = server {
            tokio::task::block_in_place(|| server.crash());
            tokio::time::sleep(Duration::from_micros(random.next(500_000))).await;
        }
        tokio::task::block_in_place(|| process.kill());
        assert!(
            clients.iter().all(|client| !client.is_finished()),
            "a client gave up"
        );
    }
    world.finish.store(true, Ordering::Relaxed);
    let process = start();
    told.send_replace(process.url.clone());
    for client in clients {
        guarded("the end of every run", client).await.unwrap();
    }
    every_run_has_ended(&process.client()).await;
    let heard = sink.heard();
    process.stop();

    let options = verify::VerifyOptions::default();
    let report = ktsu_history::verify::ledger(place, &options, &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    let reader = Ledger::open(place).reader().unwrap();
    let journal = world.journal.lock().unwrap();
    for ((run, seq), hash) in &journal.frames {
        let stream = StreamId::run(run).unwrap();
        let kept = reader.read(&stream, *seq, 1).unwrap();
        assert_eq!(
            &kept[0].hash.to_string(),
            hash,
            "{run}#{seq} was acknowledged"
        );
    }
    let mut tokens: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let page = reader.list(&Filter::default(), None, 10_000).unwrap();
    for row in &page.rows {
        assert_eq!(row.status, "complete", "{}", row.stream);
        let frames = frames(&reader, row.stream.name());
        let Event::Run(RunEvent::Created(created)) = &frames[0].event else {
            panic!("{} begins with {}", row.stream, frames[0].event.kind());
        };
        let token = created.params.to_value()["token"]
            .as_str()
            .unwrap()
            .to_owned();
        tokens
            .entry(token)
            .or_default()
            .push(row.stream.name().to_owned());
    }
    for (token, runs) in &journal.accepted {
        assert_eq!(runs.len(), 1, "{token} was told of several runs: {runs:?}");
        let kept = tokens.get(token).map_or(&[][..], Vec::as_slice);
        assert_eq!(kept, runs.iter().cloned().collect::<Vec<_>>(), "{token}");
    }
    assert!(
        tokens.values().all(|runs| runs.len() == 1),
        "a key started two runs"
    );

    let mut bodies: BTreeMap<&str, &[u8]> = BTreeMap::new();
    let mut ids: BTreeMap<String, &str> = BTreeMap::new();
    for one in &heard {
        let body = bodies.entry(&one.id).or_insert(&one.body);
        assert_eq!(*body, one.body, "{} was sent with two bodies", one.id);
        let step = one.json().to_string();
        let id = ids.entry(step.clone()).or_insert(&one.id);
        assert_eq!(*id, one.id, "{step} was sent under two ids");
    }
    assert_eq!(
        ids.len(),
        tokens.len() * 4,
        "every webhook was sent at least once"
    );
    let opened = read_all(&reader, &StreamId::store(), 0).unwrap();
    let opened = opened
        .iter()
        .filter(|one| one.body.contains("store.opened"));
    assert_eq!(opened.count() as u64, kills + 1);
    eprintln!(
        "{kills} kills: {} runs, {} frames acknowledged, {} webhooks sent {} times, {} waits for an engine",
        tokens.len(),
        journal.frames.len(),
        ids.len(),
        heard.len(),
        world.broken.load(Ordering::Relaxed),
    );
    assert!(
        heard.len() > ids.len(),
        "no kill fell between a sending and its answer"
    );
}

async fn every_run_has_ended(client: &Client) {
    for status in ["pending", "running", "failed"] {
        let left = client.get(&format!("/runs?status={status}")).await.json();
        assert_eq!(left, json!({"runs": []}), "{status}");
    }
}

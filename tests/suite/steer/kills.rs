//! Words by chance to sixteen runs at once, and an owner that is killed again and again; each run is
//! cancelled at last. `KTSU_KILLS` says how often (10 without it), `KTSU_TEST_SEED` which words.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{verify, verify_file};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::ledgers::frames;
use crate::support::model::{self, KEY, Model};
use crate::support::process::Process;
use crate::support::{Client, Sink};

const RUNS: u64 = 16;
/// Words between two kills: fewer than all say, so that the kill comes in the middle.
const WORDS: u64 = 40;

const FLOW: &str = "env: [{name: HOOK}]
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: a, webhook: {url: '{{ env.HOOK }}/a', body: {of: '{{ params.msg }}'}}}
  - {id: think, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: '{{ params.msg }}'}}
  - {id: call, depends_on: [think], workflow: ./part.workflow.yaml, webhooks: execute, params: {hook: '{{ env.HOOK }}', msg: '{{ params.msg }}'}}
  - {id: last, depends_on: [call], webhook: {url: '{{ env.HOOK }}/last', body: {of: '{{ params.msg }}'}}}
";
const PART: &str = "visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [hook, msg], properties: {hook: {type: string}, msg: {type: string}}}}
pipeline: [{id: inner, webhook: {url: '{{ params.hook }}/inner', body: {of: '{{ params.msg }}'}}}]
";

/// Where the engine listens; empty while there is none.
struct World {
    url: watch::Receiver<String>,
    said: AtomicU64,
}

/// Says words by chance about a run until the engines are over; nothing that is answered may be strange.
async fn steer(world: Arc<World>, run: String, mut random: u64) {
    let mut url = world.url.clone();
    loop {
        let at = match url.wait_for(|url| !url.is_empty()).await {
            Ok(at) => at.clone(),
            Err(_) => return,
        };
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (word, body) = match random % 16 {
            0 => ("cancel", json!({})),
            1 => ("resume", json!({"from": "a"})),
            2 => ("resume", json!({"from": "call"})),
            3..9 => ("pause", json!({})),
            _ => ("resume", json!({})),
        };
        let path = format!("/runs/{run}/{word}");
        let answer = Client::of(&at)
            .try_send("POST", &path, &[], body.to_string())
            .await;
        world.said.fetch_add(1, Ordering::Relaxed);
        match answer {
            Some(answer) => {
                let fine = matches!(answer.status, 200 | 202 | 409 | 503);
                assert!(fine, "{word}: {} {}", answer.status, answer.text());
            }
            // It was killed: the next one listens elsewhere.
            None => {
                let elsewhere = url.wait_for(|url| *url != at).await;
                drop(elsewhere);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn words_by_chance_and_kills_leave_every_run_ended_and_start_nothing_after_a_cancel() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seed = ktsu_campaign::seed();
    eprintln!("KTSU_TEST_SEED={seed}");
    let (model, sink) = (Model::echo().await, Sink::new().await);
    let kit = model::kit(&model, &[("work", FLOW), ("part", PART)]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let pairs = [KEY, ("HOOK", sink.url.as_str())];
    let start = || tokio::task::block_in_place(|| Process::start(kit.dir.path(), &path, &pairs));
    let mut process = start();
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let msg = json!({"answer": format!("{number}")}).to_string();
        runs.push(process.client().invoke("work", json!({"msg": msg})).await);
    }
    let (told, url) = watch::channel(process.url.clone());
    let world = Arc::new(World {
        url,
        said: AtomicU64::new(0),
    });
    let people: Vec<_> = (1u64..)
        .zip(&runs)
        .map(|(number, run)| {
            tokio::spawn(steer(
                Arc::clone(&world),
                run.clone(),
                seed ^ (number << 32) | 1,
            ))
        })
        .collect();
    for _ in 0..number("KTSU_KILLS").unwrap_or(10) {
        let wanted = world.said.load(Ordering::Relaxed) + WORDS;
        while world.said.load(Ordering::Relaxed) < wanted {
            tokio::task::yield_now().await;
        }
        told.send_replace(String::new());
        process.kill();
        process = start();
        told.send_replace(process.url.clone());
    }
    // There will not be another one: whoever speaks stops.
    told.send_replace(String::new());
    drop(told);
    for one in people {
        one.await.unwrap();
    }
    let client = process.client();
    for run in &runs {
        let answer = client.post(&format!("/runs/{run}/cancel"), "{}").await;
        assert!(matches!(answer.status, 200 | 409), "{}", answer.text());
        let envelope = client.get(&format!("/runs/{run}/envelope")).await.json();
        let status = envelope["status"].as_str().unwrap();
        assert!(
            ["complete", "failed", "cancelled"].contains(&status),
            "{envelope:#}"
        );
        let replayed = client.post(&format!("/runs/{run}/replay"), "{}").await;
        assert_eq!(replayed.json()["verdict"], "ok", "{}", replayed.text());
    }
    process.stop();
    let reader = SqliteReader::open(&path).unwrap();
    let mut sent = BTreeSet::new();
    for run in &runs {
        let mut paused = false;
        for frame in frames(&reader, run) {
            let kind = frame.event.kind();
            paused = kind == "run.paused" || (paused && kind != "run.resumed");
            let starts = [
                "webhook.sent",
                "llm.request",
                "step.started",
                "worker.dispatched",
            ];
            assert!(
                !paused || !starts.contains(&kind),
                "{run}: {kind} while it is paused"
            );
            let data: Value = serde_json::to_value(frame.event.data()).unwrap();
            if let Some(id) = data["delivery_id"].as_str() {
                sent.insert(id.to_owned());
            }
        }
    }
    for heard in sink.heard() {
        assert!(
            sent.contains(&heard.id),
            "{} was sent and is not recorded",
            heard.path
        );
    }
    let report = verify_file(&path, &verify::VerifyOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
}

//! Golden exports: whole ledgers as `ktsu export` wrote them once, with all that people say about
//! runs (`tests/golden/README.md`).
//!
//! A run alone has its folder. What hangs together (branches and their parents, recomputes and their
//! runs) is kept as it travels from one ledger to another, so that the way there is tested, too.

#[path = "exports/checked.rs"]
mod checked;
#[path = "exports/kept.rs"]
mod kept;
#[path = "exports/steered.rs"]
mod steered;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ktsu::assemble::import::import;
use ktsu_evidence::export::ExportSelection;
use ktsu_evidence::{check, transfer};
use ktsu_history::{eval_list, replay as recorded_runs};
use ktsu_ledger::appender::Options;
use ktsu_ledger::branch;
use ktsu_ledger::store::{MemoryStore, Reader, SqliteReader};
use ktsu_ledger::{Hash, StreamId, Timestamp};
use ktsu_ledger::{verify, verify_file};
use ktsu_orchestrator::MicrosClock;
use ktsu_projections::RunState;
use ktsu_workflow::replay::{Definitions, replay};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::golden::{self, Pinned, alter_each, pinned};
use crate::support::ledgers::Recorded;
use crate::support::model::{ECHO, REFLECTS};
use crate::support::scenarios::agents::{self, GATEWAY};
use crate::support::scenarios::{MOMENT, TOKEN};
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Sink, Within, campaign};

/// What the manifest pins of a golden export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Export {
    hash: String,
    streams: BTreeMap<String, Pinned>,
}

fn folder() -> PathBuf {
    golden::folder().join("exports")
}

fn manifest() -> BTreeMap<String, Export> {
    match std::fs::read_to_string(folder().join("manifest.json")) {
        Ok(text) => serde_json::from_str(&text).unwrap(),
        Err(_) => BTreeMap::new(),
    }
}

fn lines(name: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{name}.jsonl"))).unwrap()
}

/// Every golden export, by name.
pub(crate) fn all() -> Vec<(String, String)> {
    let names = manifest().into_keys();
    names.map(|name| (name.clone(), lines(&name))).collect()
}

fn everything() -> ExportSelection {
    ExportSelection {
        all: true,
        evals: true,
        ..ExportSelection::default()
    }
}

/// A ledger that has an export and nothing else.
fn imported(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    import(&path, lines(name)).unwrap();
    (folder, path)
}

/// The effective frames of every run, branch and recompute, and where its own begin.
fn recorded(reader: &dyn Reader) -> Vec<(usize, Recorded)> {
    let streams = recorded_runs::streams(reader).unwrap();
    let one = |stream: StreamId| {
        let records = branch::records(reader, &stream).unwrap();
        let own = branch::Ancestry::of(reader, &stream).unwrap().forked();
        let mut blobs = Vec::new();
        for part in records.iter().map(|record| record.decode_bare().unwrap()) {
            for external in part.ext {
                let text = reader.blob_get(&external.hash).unwrap().unwrap();
                let hash = external.hash;
                blobs.push(ktsu_ledger::Blob { hash, text });
            }
        }
        let recorded = Recorded {
            stream,
            records,
            blobs,
        };
        (own.unwrap_or(0) as usize, recorded)
    };
    streams.into_iter().map(one).collect()
}

/// Every stream of every golden export, under a name.
pub(crate) fn streams() -> Vec<(String, Recorded)> {
    let mut all = Vec::new();
    for name in manifest().into_keys() {
        let (_folder, path) = imported(&name);
        let reader = SqliteReader::open(&path).unwrap();
        let found = recorded(&reader).into_iter();
        all.extend(found.map(|(_, one)| (format!("{name}/{}", one.stream), one)));
    }
    all
}

fn described(lines: &str, reader: &dyn Reader) -> Export {
    let streams = recorded(reader).into_iter();
    Export {
        hash: Hash::of(lines.as_bytes()).to_string(),
        streams: streams
            .map(|(_, one)| (one.stream.to_string(), pinned(&one)))
            .collect(),
    }
}

#[test]
fn every_golden_export_is_the_one_that_was_recorded() {
    let manifest = manifest();
    assert!(!manifest.is_empty());
    for (name, export) in &manifest {
        let (_folder, path) = imported(name);
        let reader = SqliteReader::open(&path).unwrap();
        assert_eq!(described(&lines(name), &reader), *export, "{name}");
    }
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned))
        .collect();
    files.sort();
    assert_eq!(files, manifest.into_keys().collect::<Vec<_>>());
}

#[test]
fn every_golden_export_comes_in_is_sound_and_goes_out_with_the_same_bytes() {
    for name in manifest().into_keys() {
        let (_folder, path) = imported(&name);
        let report = verify_file(&path, &verify::VerifyOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(report.problems, [], "{name}");
        let reader = SqliteReader::open(&path).unwrap();
        let again = transfer::export(&reader, &everything()).unwrap();
        assert_eq!(again, lines(&name), "{name}");
        assert!(
            ktsu_run_index::is_index_complete(&reader).unwrap(),
            "{name}"
        );
        crate::evidence::holds(&reader, &name);
    }
}

#[test]
fn the_golden_verdicts_are_read_and_judged_again() {
    let (_folder, path) = imported(checked::NAME);
    let reader = SqliteReader::open(&path).unwrap();
    let all = eval_list::list(&reader, None, usize::MAX).unwrap();
    let statuses = all
        .iter()
        .map(|eval| eval.as_ref().unwrap().status.as_str());
    let statuses: Vec<&str> = statuses.collect();
    assert_eq!(statuses, ["error", "passed", "failed", "passed"]);
    let report = ktsu_history::verify::ledger(&path, &Default::default(), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    let archive = ktsu_evidence::export::export(&reader, &everything()).unwrap();
    let report = check::verify(&archive.bytes, &check::ArchiveVerifyOptions::default()).unwrap();
    let claim = report
        .claims
        .iter()
        .find(|one| one.claim == "evals")
        .unwrap();
    assert_eq!(claim.reason, "4 verdicts follow from 13 checks made again");
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for stream in ktsu_run_index::evals(&reader).unwrap() {
        for frame in branch::frames(&reader, &stream).unwrap() {
            let known = ktsu_ledger::Event::KINDS.iter();
            let kind = known.copied().find(|kind| *kind == frame.event.kind());
            *kinds.entry(kind.unwrap()).or_default() += 1;
        }
    }
    let counted = [
        ("check.result", 13),
        ("eval.finished", 4),
        ("eval.started", 4),
        ("scenario.finished", 4),
        ("scenario.started", 4),
    ];
    assert_eq!(kinds, BTreeMap::from(counted));
}

#[test]
fn every_stream_of_the_golden_exports_follows_from_its_inputs_byte_for_byte() {
    for (name, one) in streams() {
        let frames = one.frames();
        assert!(frames.iter().all(|frame| frame.event.is_known()), "{name}");
        let folded = RunState::fold(&frames).unwrap();
        let state = replay(&frames, &mut Definitions::default());
        let state = state.unwrap_or_else(|diverged| panic!("{name}: {diverged}"));
        assert_eq!(state.next_seq(), frames.len() as u64, "{name}");
        assert_eq!(state.status(), folded.status(), "{name}");
    }
}

#[test]
fn every_altered_decision_of_the_golden_exports_is_caught_by_replay() {
    let mut altered = Vec::new();
    for name in manifest().into_keys() {
        let (_folder, path) = imported(&name);
        altered.extend(recorded(&SqliteReader::open(&path).unwrap()));
    }
    let (mut tried, mut decisions) = (0, 0);
    std::thread::scope(|scope| {
        let parts = altered.chunks(altered.len().div_ceil(4)).map(|part| {
            scope.spawn(move || {
                // What a branch shares is altered with its parent.
                let counts = part
                    .iter()
                    .map(|(own, one)| alter_each(&one.stream.to_string(), one, *own));
                counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
            })
        });
        for part in parts.collect::<Vec<_>>() {
            let counts = part.join().unwrap();
            tried += counts.0;
            decisions += counts.1;
        }
    });
    assert!(
        decisions > 100 && tried > campaign(1, 3) * decisions,
        "{tried} alterations of {decisions} decisions"
    );
}

const PARTS: [(&str, &str); 3] = [
    (
        "root",
        r#"
env: [{name: SINK}]
params:
  schema:
    type: object
    properties:
      note: {type: string, default: leaking tap}
      list: {type: array, items: {type: string}, default: [one, two]}
      limit: {type: integer, default: 3}
pipeline:
  - {id: think, agent: ./agents/echo.agent.yaml, params: {msg: "triage {{ params.note }}"}}
  - {id: each, agent: ./agents/reflects.agent.yaml, for_each: {from: params.list, concurrency: 1}, params: {msg: "{{ step.think.answer }} {{ item }}"}}
  - {id: call, workflow: ./part.workflow.yaml, webhooks: execute, params: {sink: "{{ env.SINK }}", text: "{{ step.think.answer }}"}}
  - id: sum
    transform:
      inputs: [{from: "{said: step.think.answer, many: length(step.each.results), limit: params.limit}"}]
      ops: []
    output: {schema: {type: object, required: [result], properties: {result: {type: object}}}}
  - {id: tell, depends_on: [call], condition: "step.sum.result.many < params.limit", webhook: {url: "{{ env.SINK }}/tell", body: {sum: "{{ step.sum.result }}"}}}
output: {map: {sum: "{{ step.sum.result }}", child: "{{ step.call.text }}"}}
"#,
    ),
    (
        "part",
        r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [sink, text], properties: {sink: {type: string}, text: {type: string}}}}
pipeline:
  - {id: inner, agent: ./agents/echo.agent.yaml, params: {msg: "inner {{ params.text }}"}}
  - {id: hook, depends_on: [inner], webhook: {url: "{{ params.sink }}/part", body: {text: "{{ step.inner.answer }}"}}}
output: {map: {text: "{{ step.inner.answer }}"}}
"#,
    ),
    (
        "fails",
        r#"
env: [{name: SINK}]
pipeline:
  - {id: think, agent: ./agents/echo.agent.yaml, params: {msg: before}}
  - {id: first, depends_on: [think], webhook: {url: "{{ env.SINK }}/first"}}
  - {id: slow, webhook: {url: "{{ env.SINK }}/slow"}}
  - {id: last, depends_on: [first], agent: ./agents/echo.agent.yaml, params: {msg: "after {{ step.think.answer }}"}}
"#,
    ),
];

fn kit(words: &str) -> KitDir {
    let parts = PARTS.map(|(name, text)| (name, text.replace("said:", words)));
    let parts: Vec<(&str, &str)> = parts.iter().map(|(a, b)| (*a, b.as_str())).collect();
    KitDir::new(&parts)
        .with("agents/echo.agent.yaml", ECHO)
        .with("agents/reflects.agent.yaml", REFLECTS)
        .with("gateway.yaml", GATEWAY)
}

/// A clock that goes on by a millisecond whenever it is asked.
fn ticking() -> MicrosClock {
    let now = Arc::new(AtomicU64::new(MOMENT));
    Arc::new(move || Timestamp::from_micros(now.fetch_add(1000, Ordering::SeqCst)))
}

/// Records the exports that are missing. One that is there is never written again.
#[tokio::test]
#[ignore = "writes tests/golden/exports"]
async fn record_what_is_missing() {
    let mut manifest = manifest();
    std::fs::create_dir_all(folder()).unwrap();
    for name in ["v2-people", steered::NAME, checked::NAME] {
        if manifest.contains_key(name) {
            continue;
        }
        let store = match name {
            steered::NAME => steered::store().await,
            checked::NAME => checked::store().await,
            _ => people().await,
        };
        let lines = transfer::export(&store, &everything()).unwrap();
        assert!(!lines.contains(TOKEN), "an export holds a secret");
        std::fs::write(folder().join(format!("{name}.jsonl")), &lines).unwrap();
        manifest.insert(name.to_owned(), described(&lines, &store));
    }
    if !manifest.contains_key(kept::NAME) {
        let folder_of_it = tempfile::tempdir().unwrap();
        let path = folder_of_it.path().join("ledger.db");
        kept::record(&path).await;
        let reader = SqliteReader::open(&path).unwrap();
        let lines = transfer::export(&reader, &everything()).unwrap();
        assert!(!lines.contains(TOKEN), "an export holds a secret");
        std::fs::write(folder().join(format!("{}.jsonl", kept::NAME)), &lines).unwrap();
        manifest.insert(kept::NAME.to_owned(), described(&lines, &reader));
    }
    let text = serde_json::to_string_pretty(&manifest).unwrap() + "\n";
    std::fs::write(folder().join("manifest.json"), text).unwrap();
}

/// What people say about runs, each in a run or branch of its own.
async fn people() -> MemoryStore {
    let sink = Sink::new().await;
    sink.follow(|heard| match heard.path.as_str() {
        "/first" => Reply::Now(500, String::new()),
        "/slow" => Reply::Never,
        _ if agents::asks_a_model(heard) => agents::model(heard),
        _ => Reply::Now(200, r#"{"received":true}"#.to_owned()),
    });
    let store = MemoryStore::new();
    let kit = kit("said:");
    let pairs = [("SINK", sink.url.as_str()), ("TOKEN", TOKEN)];
    let options = Options::default();
    let within = Within::new(kit.load(), store.clone(), options, &pairs, Some(ticking())).await;
    let client = &within.client;
    let run = ended(client, &client.invoke("root", json!({})).await, "complete").await;
    forked(client, &run).await;
    overlaid(client).await;
    failed(client, &sink).await;
    recomputed(client, &sink, &run).await;
    store
}

/// Forks of a run: one that waits, one that goes on with other values and a fork of it, one with
/// another definition, one of nothing, one in the middle of a turn, one that may call the world.
async fn forked(client: &Client, run: &str) {
    let waits = fork(client, run, json!({"before": "tell", "reason": "to look"})).await;
    let envelope = client.get(&format!("/runs/{waits}/envelope")).await.json();
    assert_eq!(envelope["status"], "waiting");
    let set = json!({"params.limit": 9, "step.think.output.answer": "calm", "step.call/inner.answer": "still"});
    let body = json!({"before": "sum", "set": set, "reason": "triaged wrongly", "go": true});
    let mended = fork(client, run, body).await;
    let envelope = ended(client, &mended, "complete").await;
    let body = json!({"before": "tell", "go": true, "effects": "execute"});
    let inner = fork(client, &envelope, body).await;
    ended(client, &inner, "complete").await;
    let other = kit("many_said: length(step.think.answer), said:").load();
    let definition = other.workflows["root"].definition.json.to_value();
    let body = json!({"before": "sum", "definition": definition, "go": true});
    ended(client, &fork(client, run, body).await, "complete").await;
    let body = json!({"at": 0, "set": {"params.list": ["three"]}, "go": true});
    ended(client, &fork(client, run, body).await, "complete").await;
    let body = json!({"at_frame": 2, "go": true});
    ended(client, &fork(client, run, body).await, "complete").await;
}

/// A run with an overlay of a step and one in a child, begun again from the steps after them.
async fn overlaid(client: &Client) {
    let body = json!({"note": "overlaid", "list": ["one"]});
    let run = ended(client, &client.invoke("root", body).await, "complete").await;
    for (path, step, value) in [
        (run.clone(), "think", "gas"),
        (format!("{run}%2Fcall"), "inner", "gas inside"),
    ] {
        let body =
            json!({"step": step, "field": "answer", "value": value, "reason": "on the phone"});
        post(client, &format!("/runs/{path}/overlay"), body, 200).await;
    }
    let body = json!({"from": "each", "reason": "with what is known now"});
    post(client, &format!("/runs/{run}/resume"), body, 202).await;
    ended(client, &run, "complete").await;
    post(
        client,
        &format!("/runs/{run}/resume"),
        json!({"from": "think"}),
        202,
    )
    .await;
    ended(client, &run, "complete").await;
}

/// A run that failed and goes on, and a branch of the failure that does not wait for it.
async fn failed(client: &Client, sink: &Sink) {
    let run = ended(client, &client.invoke("fails", json!({})).await, "failed").await;
    let still = fork(client, &run, json!({})).await;
    let envelope = client.get(&format!("/runs/{still}/envelope")).await.json();
    assert_eq!(envelope["status"], "failed");
    sink.follow(|heard| match agents::asks_a_model(heard) {
        true => agents::model(heard),
        false => Reply::Now(200, r#"{"received":true}"#.to_owned()),
    });
    for one in [&run, &still] {
        post(
            client,
            &format!("/runs/{one}/resume"),
            json!({"from": "first"}),
            202,
        )
        .await;
        ended(client, one, "complete").await;
    }
}

/// One with the same answers, of a step; one with others, of the whole run.
async fn recomputed(client: &Client, sink: &Sink, run: &str) {
    let path = format!("/runs/{run}/recompute?wait=60");
    let clean = post(client, &path, json!({"step": "each"}), 200).await;
    assert_eq!(clean["status"], "clean");
    sink.follow(|heard| {
        let reply = agents::model(heard);
        match reply {
            Reply::Now(status, text) => Reply::Now(status, text.replace("triage", "TRIAGE")),
            other => other,
        }
    });
    let changed = post(client, &path, json!({}), 200).await;
    assert_eq!(changed["status"], "value_changed");
}

async fn ended(client: &Client, run: &str, status: &str) -> String {
    let envelope = client.ended(run).await;
    assert_eq!(envelope["status"], status, "{envelope}");
    run.to_owned()
}

async fn fork(client: &Client, run: &str, body: Value) -> String {
    let branch = post(client, &format!("/runs/{run}/fork"), body, 201).await;
    branch["branch_id"].as_str().unwrap().to_owned()
}

async fn post(client: &Client, path: &str, body: Value, status: u16) -> Value {
    let answer = client.post(path, body.to_string()).await;
    assert_eq!(answer.status, status, "{path}: {}", answer.text());
    answer.json()
}

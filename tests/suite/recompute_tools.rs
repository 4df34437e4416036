//! What a recompute, or a baseline held against a kit, does with tools: it reads live, changes
//! nothing, asks nobody, and tells its models what the run recorded.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ktsu_baseline::{self as baseline, CaptureOptions};
use ktsu_ledger::StreamId;
use ktsu_ledger::event::{Principal, RecordedResult, Sameness};
use ktsu_ledger::store::SqliteReader;
use ktsu_workflow::definition::Definition;
use ktsu_workflow::recompute::{RecordedRun, prepare_task};
use serde_json::{Value, json};

use crate::evidence::holds;
use crate::support::Sink;
use crate::support::scenarios::tools::{Acting, Stage, all, tool_of, world};
use crate::support::sink::{Heard, Reply};

/// What is called live, and what is answered by the record: tools, and why they were not sent then.
struct Expected {
    name: &'static str,
    live: &'static [(&'static str, usize)],
    repeated: &'static [Option<&'static str>],
}

const EXPECTED: [Expected; 5] = [
    // A call to a stateful server.
    Expected {
        name: "tool-calls",
        live: &[("read", 1), ("blocks", 1), ("fail", 1)],
        repeated: &[None],
    },
    // A call that a person approved, and one that a person rejected.
    Expected {
        name: "tool-approved",
        live: &[("read", 2)],
        repeated: &[None],
    },
    Expected {
        name: "tool-recovers",
        live: &[("read", 1)],
        repeated: &[Some("rejected")],
    },
    Expected {
        name: "tool-two-gates",
        live: &[("read", 1)],
        repeated: &[None, Some("rejected"), None],
    },
    // A call of which a person said that it happened, and what it gave.
    Expected {
        name: "tool-doubt-happened",
        live: &[("read", 1)],
        repeated: &[None],
    },
];

/// How often each tool was called.
fn calls(sink: &Sink) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for tool in sink.heard().iter().filter_map(tool_of) {
        *calls.entry(tool).or_default() += 1;
    }
    calls
}

/// A run that was written down, played to its end.
struct Played {
    acting: Acting,
    stage: Stage,
    run: String,
    ledger: PathBuf,
    _folder: tempfile::TempDir,
}

async fn played(name: &str) -> Played {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let acting = all().into_iter().find(|acting| acting.name == name);
    let acting = acting.unwrap();
    let (stage, run) = acting.play(&ledger).await;
    Played {
        acting,
        stage,
        run,
        ledger,
        _folder: folder,
    }
}

async fn recompute(stage: &Stage, run: &str) -> Value {
    let path = format!("/runs/{run}/recompute?wait=60");
    let answer = stage.of("eva").post(&path, json!({}).to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Only this many calls of these tools were sent since; nobody was asked; every other result is one
/// that the run recorded, word for word, and says so.
async fn judge(
    stage: &Stage,
    run: &str,
    id: &str,
    before: BTreeMap<String, usize>,
    one: &Expected,
) {
    let mut expected = before;
    for (tool, more) in one.live {
        *expected.entry((*tool).to_owned()).or_default() += more;
    }
    assert_eq!(calls(&stage.sink), expected, "{}: what was sent", one.name);
    let frames = stage.of("eva").frames(id).await;
    let kinds = |kind: &str| frames.iter().filter(|frame| frame["type"] == kind).count();
    assert_eq!(kinds("approval.requested"), 0, "somebody was asked");
    assert_eq!(kinds("tool.in_doubt"), 0);
    let sent: usize = one.live.iter().map(|(_, more)| more).sum();
    assert_eq!(kinds("tool.called"), sent, "a call that was not sent");
    let recorded = stage.of("eva").frames(run).await;
    let repeats = |frame: &&Value| frame["data"]["recorded"].is_object();
    let repeated: Vec<&Value> = frames
        .iter()
        .filter(repeats)
        .map(|frame| &frame["data"])
        .collect();
    let why: Vec<Option<&str>> = repeated
        .iter()
        .map(|data| data["not_sent"].as_str())
        .collect();
    assert_eq!(why, one.repeated, "{}: {frames:#?}", one.name);
    for data in repeated {
        let place = &data["recorded"];
        assert_eq!(place["stream"], format!("run:{run}"), "{data:#}");
        let there = &recorded[place["seq"].as_u64().unwrap() as usize];
        assert_eq!(there["type"], "tool.returned");
        for member in ["content", "is_error", "not_sent", "structured"] {
            assert_eq!(data[member], there["data"][member], "{member}: {data:#}");
        }
    }
}

#[tokio::test]
async fn a_recompute_answers_from_the_record_what_it_does_not_send() {
    for one in &EXPECTED {
        let Played {
            stage,
            run,
            _folder: folder,
            ..
        } = played(one.name).await;
        let before = calls(&stage.sink);
        let verdict = recompute(&stage, &run).await;
        assert_eq!(verdict["status"], "clean", "{}: {verdict:#}", one.name);
        let id = verdict["recompute_id"].as_str().unwrap();
        judge(&stage, &run, id, before, one).await;
        stage.lab.close().await;
        let reader = SqliteReader::open(&folder.path().join("ledger.db")).unwrap();
        holds(&reader, one.name);
    }
}

#[tokio::test]
async fn a_baseline_is_held_against_a_kit_without_the_ledger_it_is_of() {
    for one in &EXPECTED {
        let Played {
            acting,
            stage,
            run,
            _folder,
            ..
        } = played(one.name).await;
        let stream = StreamId::run(&run).unwrap();
        let readers = stage.lab.engine.orchestrator.readers();
        let frames = readers.with(move |reader| ktsu_history::frames(reader, &stream));
        let recorded = RecordedRun::from_frames(&frames.await.unwrap()).unwrap();
        stage.lab.close().await;
        let (baselines, _) = baseline::capture(&recorded, &CaptureOptions::default());
        let text = baselines[0].write().unwrap();
        let held = baseline::Baseline::read(text.as_bytes()).unwrap();
        let results = held.results().unwrap();
        let (status, heard) = hold(&acting, &recorded, &held, &results).await;
        assert_eq!(status, Sameness::Clean, "{}", one.name);
        let live = one.live.iter().map(|(tool, n)| ((*tool).to_owned(), *n));
        assert_eq!(heard, live.collect(), "{}: what was sent", one.name);
        // A file of before there were results in it: nothing is sent, and nothing is called clean.
        let (status, without) = hold(&acting, &recorded, &held, &[]).await;
        assert_ne!(status, Sameness::Clean, "{}", one.name);
        assert_eq!(without, heard, "{}: what was sent", one.name);
    }
}

/// Holds a baseline against the kit it is of, on a ledger of its own: the verdict, and what was sent.
async fn hold(
    acting: &Acting,
    recorded: &RecordedRun,
    held: &baseline::Baseline,
    results: &[RecordedResult],
) -> (Sameness, BTreeMap<String, usize>) {
    let folder = tempfile::tempdir().unwrap();
    let sink = Sink::scripted(world).await;
    sink.open("slow");
    let stage = acting.stage(&folder.path().join("ledger.db"), &sink).await;
    let definition = Definition::compile(recorded.plan.clone()).unwrap();
    let step = baseline::find_step(&definition.plan, "act").unwrap();
    let principal = Principal {
        auth: "none".to_owned(),
        id: "local".to_owned(),
    };
    let input = &held.snapshot.input;
    let prepared = prepare_task(&definition, step.agent, "act", input, results, principal);
    let orchestrator = &stage.lab.engine.orchestrator;
    let id = orchestrator.begin(prepared.unwrap()).await.unwrap().run_id;
    orchestrator.wait_until_ended(&id).await.unwrap();
    let stream = StreamId::run(&id).unwrap();
    let readers = orchestrator.readers();
    let frames = readers.with(move |reader| ktsu_history::frames(reader, &stream));
    let fresh = RecordedRun::from_frames(&frames.await.unwrap()).unwrap();
    let agent = fresh
        .plan
        .agents
        .get(&step.agent.file)
        .map(|file| file.as_ref());
    let verdict = baseline::compare(held, fresh.tasks.first(), step.step, agent);
    stage.lab.close().await;
    let reader = SqliteReader::open(&folder.path().join("ledger.db")).unwrap();
    holds(&reader, "a baseline that is held against a kit");
    (verdict.task.status, calls(&sink))
}

/// The same world, whose model wants to write something else.
fn otherwise(heard: &Heard) -> Reply {
    match world(heard) {
        Reply::Now(status, text) if text.contains("tool_calls") => {
            Reply::Now(status, text.replace(r#"\"n\":6"#, r#"\"n\":7"#))
        }
        reply => reply,
    }
}

#[tokio::test]
async fn a_call_with_other_arguments_has_no_recorded_result_and_is_not_sent() {
    let Played {
        acting,
        stage,
        run,
        ledger,
        _folder,
    } = played("tool-calls").await;
    stage.lab.close().await;
    let sink = Sink::scripted(otherwise).await;
    let stage = acting.stage(&ledger, &sink).await;
    let verdict = recompute(&stage, &run).await;
    assert_eq!(verdict["status"], "value_changed", "{verdict:#}");
    let reason = verdict["tasks"][0]["reason"].as_str().unwrap();
    assert_eq!(
        reason,
        "1 call was not sent, and no recorded result answers it: write"
    );
    assert!(!calls(&sink).contains_key("write"));
    let id = verdict["recompute_id"].as_str().unwrap();
    let frames = stage.of("eva").frames(id).await;
    let held = |frame: &&Value| frame["data"]["not_sent"] == "suppressed_in_branch";
    let held: Vec<&Value> = frames.iter().filter(held).collect();
    let [held] = held[..] else {
        panic!("{frames:#?}")
    };
    assert_eq!(held["data"]["is_error"], true);
    assert_eq!(held["data"]["recorded"], Value::Null);
    let text = held["data"]["content"][0]["text"].as_str().unwrap();
    let words =
        format!("no recorded result of write of book with these arguments is left in run:{run}");
    assert!(text.contains(&words), "{text}");
    stage.lab.close().await;
}

//! Steps that are resumed to others, from outside.

use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Backend;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::histories::fork;
use super::{CLAIM, GATEWAY, give, suspended, suspension};
use crate::reviews::{holds, seen};
use crate::support::ledgers::Recorded;
use crate::support::{Client, KitDir, Lab};

const SEEKS: &str = "pipeline:
  - {id: first, transform: {inputs: ['{{ params.claim }}']}}
  - {id: a, depends_on: [first], agent: ./agents/seeker.agent.yaml}
  - id: read
    on: resume
    agent: ./agents/reader.agent.yaml
    params:
      first: '{{ step.first.result }}'
      text: '{{ resume.data.text }}'
      asked: '{{ resume.checkpoint.paper }}'
  - {id: b, transform: {inputs: ['{{ step.a.verdict }}']}}
output: {map: {verdict: '{{ step.a.verdict }}', seen: '{{ step.b.result }}'}}
";
/// Without a map: the output of the last step that completed.
const PLAIN: &str = "pipeline:
  - {id: a, agent: ./agents/seeker.agent.yaml}
  - {id: read, on: resume, agent: ./agents/reader.agent.yaml, params: {text: '{{ resume.data.text }}'}}
";
const SEEKER: &str = "name: seeker\nversion: 1.0.0\nmodel: std\n\
     prompt: {system: You seek., user: seek}\n\
     commands: {suspend: {roles: [operator]}}\n\
     output: {schema: {type: object, properties: {}}}\n";
const READER: &str = "name: reader\nversion: 1.0.0\nmodel: start\n\
     params: {schema: {type: object, properties: {first: {type: string, default: none}, \
     text: {type: string}, asked: {type: string, default: none}}}}\n\
     prompt: {system: You read., user: '{{ params.first }} {{ params.text }} of {{ params.asked }}'}\n\
     output: {schema: {type: object, required: [verdict], properties: {verdict: {type: string}}}}\n";
/// Names a step that it cannot be resumed to first.
const SEEKERS: &str = "rules:
  - when: {turn: 1}
    tool_calls:
      - {name: suspend, arguments: {reason: the contract is missing, checkpoint: {paper: contract}, resumeStep: b}}
  - when: {turn: 2}
    tool_calls:
      - {name: suspend, arguments: {reason: the contract is missing, checkpoint: {paper: contract}, resumeStep: read}}
default: {reply: {}}
";
const READERS: &str = "values:
  words: {from: user, pattern: '(?s)(.+)'}
rules:
  - when: {user: '.'}
    reply: {verdict: 'read {{ words }}'}
";

fn kit() -> KitDir {
    kit_of(&[("seeks", SEEKS), ("plain", PLAIN)])
}

/// A kit whose step `a` is suspended and then resumed to `read`.
pub(crate) fn seeking_kit() -> KitDir {
    kit_of(&[("seeks", SEEKS)])
}

fn kit_of(pipelines: &[(&str, &str)]) -> KitDir {
    let texts = pipelines.iter().map(|(_, one)| format!("{CLAIM}{one}"));
    let texts: Vec<String> = texts.collect();
    let names = pipelines.iter().map(|(name, _)| *name);
    let whole: Vec<(&str, &str)> = names.zip(texts.iter().map(String::as_str)).collect();
    KitDir::new(&whole)
        .with("agents/seeker.agent.yaml", SEEKER)
        .with("agents/reader.agent.yaml", READER)
        .with("gateway.yaml", GATEWAY)
        .with("clerk.yaml", SEEKERS)
        .with("start.yaml", READERS)
}

async fn lab(store: &MemoryStore) -> Lab {
    let backend: Arc<dyn Backend> = Arc::new(store.clone());
    Lab::on(LedgerPlace::Backend(backend), kit().load(), &[], None).await
}

/// A run whose step was resumed to another.
pub(crate) async fn recorded() -> Recorded {
    let store = MemoryStore::new();
    let lab = lab(&store).await;
    let run = suspended(&lab.client, "seeks").await;
    assert_eq!(give(&lab.client, &run, "clause 7").await.status, 200);
    lab.client.ended(&run).await;
    lab.close().await;
    Recorded::read(&store, &run)
}

async fn started(client: &Client, run: &str) -> Value {
    let frames = client.frames(run).await;
    let own = |one: &&Value| one["type"] == "step.started" && one["data"]["step"] == "a";
    frames.iter().rfind(own).unwrap()["data"].clone()
}

fn step<'e>(envelope: &'e Value, id: &str) -> &'e Value {
    let steps = envelope["steps"].as_array().unwrap();
    steps.iter().find(|step| step["id"] == id).unwrap()
}

async fn why_not_read(client: &Client, run: &str) -> String {
    let answer = client.get(&format!("/runs/{run}/trace?why_not=read")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().clone()
}

#[tokio::test]
async fn a_model_may_name_the_step_that_continues_and_its_output_is_that_of_its_own_step() {
    let store = MemoryStore::new();
    let lab = lab(&store).await;
    let client = &lab.client;
    let run = suspended(client, "seeks").await;
    let frames = client.frames(&run).await;
    let offered = frames
        .iter()
        .find(|one| one["type"] == "llm.request")
        .unwrap();
    let tools = offered["data"]["tools"].as_array().unwrap();
    let suspend = tools.iter().find(|tool| tool["name"] == "suspend").unwrap();
    let step_of = &suspend["input_schema"]["properties"]["resumeStep"];
    assert_eq!(step_of["enum"], json!(["read"]));
    let refused = frames
        .iter()
        .find(|one| one["type"] == "tool.returned")
        .unwrap();
    let words = refused["data"].to_string();
    assert!(
        words.contains("resumeStep (enum): expected one of"),
        "{words}"
    );
    assert_eq!(suspension(client, &run).await["resume_step"], "read");
    let waits = why_not_read(client, &run).await;
    assert!(
        waits.contains("step a waits for data, and is then resumed to it"),
        "{waits}"
    );

    assert_eq!(give(client, &run, "clause 7").await.status, 200);
    let envelope = client.ended(&run).await;
    let verdict = "read x clause 7 of contract";
    assert_eq!(
        envelope["output"],
        json!({"verdict": verdict, "seen": verdict})
    );
    assert_eq!(step(&envelope, "a")["output"]["verdict"], verdict);
    assert_eq!(step(&envelope, "a")["resume_step"], "read");
    assert_eq!(step(&envelope, "read")["status"], "skipped");
    let last = started(client, &run).await;
    assert_eq!(
        (&last["attempt"], &last["resume_step"]),
        (&json!(2), &json!("read"))
    );
    let was = why_not_read(client, &run).await;
    assert!(was.contains("step a was, and has its output"), "{was}");
    holds(&store, &run);
    lab.close().await;
}

#[tokio::test]
async fn a_workflow_without_a_map_gives_what_the_suspended_step_gave() {
    let store = MemoryStore::new();
    let lab = lab(&store).await;
    let run = suspended(&lab.client, "plain").await;
    assert_eq!(give(&lab.client, &run, "clause 7").await.status, 200);
    let envelope = lab.client.ended(&run).await;
    assert_eq!(
        envelope["output"],
        json!({"verdict": "read none clause 7 of none"})
    );
    holds(&store, &run);
    lab.close().await;
}

#[tokio::test]
async fn the_trace_leads_through_the_other_step_to_the_data_and_a_recompute_asks_its_agent() {
    let store = MemoryStore::new();
    let lab = lab(&store).await;
    let client = &lab.client;
    let run = suspended(client, "seeks").await;
    assert_eq!(give(client, &run, "clause 7").await.status, 200);
    client.ended(&run).await;
    let trace = client
        .get(&format!("/runs/{run}/trace?of=output.verdict"))
        .await;
    assert_eq!(trace.status, 200, "{}", trace.text());
    for words in ["suspend.resumed", "resumed to step read"] {
        assert!(trace.text().contains(words), "{words}: {}", trace.text());
    }
    let path = format!("/runs/{run}/recompute?wait=60");
    let verdict = client.post(&path, "{}").await;
    assert_eq!(verdict.json()["status"], "clean", "{}", verdict.text());
    assert_eq!(client.get("/approvals").await.json(), json!([]));
    lab.close().await;
}

#[tokio::test]
async fn cut_after_any_frame_and_in_branches_the_other_step_continues() {
    let store = MemoryStore::new();
    let first = lab(&store).await;
    let client = &first.client;
    let run = suspended(client, "seeks").await;
    assert_eq!(give(client, &run, "clause 7").await.status, 200);
    let envelope = client.ended(&run).await;
    let frames = client.frames(&run).await;
    let at = |kind: &str| frames.iter().position(|one| one["type"] == kind).unwrap();
    let before = fork(client, &run, at("suspend.requested") + 1).await;
    seen(client, &before, "suspend.requested", 2).await;
    assert_eq!(give(client, &before, "clause 8").await.status, 200);
    let verdict = "read x clause 8 of contract";
    assert_eq!(client.ended(&before).await["output"]["verdict"], verdict);
    holds(&store, &before);
    let after = fork(client, &run, at("suspend.resumed") + 1).await;
    assert_eq!(client.ended(&after).await["output"], envelope["output"]);
    holds(&store, &after);
    first.close().await;
    let recorded = Recorded::read(&store, &run);
    for cut in at("suspend.resumed") + 1..recorded.records.len() {
        let mut store = MemoryStore::new();
        recorded.cut(cut).put(&mut store);
        let again = lab(&store).await;
        let ended = again.client.ended(&run).await;
        assert_eq!(ended["output"], envelope["output"], "cut at {cut}");
        again.close().await;
        holds(&store, &run);
    }
}

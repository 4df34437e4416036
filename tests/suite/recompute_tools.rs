//! What a recompute, or a baseline held against a kit, does with tools: it reads live, and changes
//! nothing.

use std::collections::BTreeMap;

use ktsu::workflow::definition::Definition;
use ktsu::workflow::recompute::{Recorded, prepare_one};
use ktsu_ledger::StreamId;
use ktsu_ledger::event::{Principal, plan::AgentPlan};
use serde_json::{Map, Value, json};

use crate::support::scenarios::tools::{Stage, all, tool_of};

/// How often each tool was called.
fn calls(stage: &Stage) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for tool in stage.sink.heard().iter().filter_map(tool_of) {
        *calls.entry(tool).or_default() += 1;
    }
    calls
}

/// Plays a run that was written down, and gives what came of it.
async fn played(name: &str, folder: &tempfile::TempDir) -> (Stage, String) {
    let acting = all().into_iter().find(|acting| acting.name == name);
    acting.unwrap().play(&folder.path().join("ledger.db")).await
}

/// Only this many calls of these tools were sent since; every other call has its reason.
async fn judge(stage: &Stage, id: &str, before: BTreeMap<String, usize>, live: &[(&str, usize)]) {
    let mut expected = before;
    for (tool, more) in live {
        *expected.entry((*tool).to_owned()).or_default() += more;
    }
    assert_eq!(calls(stage), expected, "what was sent");
    let frames = stage.of("eva").frames(id).await;
    let kinds = |kind: &str| frames.iter().filter(|frame| frame["type"] == kind).count();
    assert_eq!(kinds("approval.requested"), 0, "somebody was asked");
    assert_eq!(kinds("tool.in_doubt"), 0);
    let sent: usize = live.iter().map(|(_, more)| more).sum();
    assert_eq!(kinds("tool.called"), sent, "a call that was not sent");
    let held = |frame: &&Value| frame["data"]["not_sent"] == "suppressed_in_branch";
    let held: Vec<&Value> = frames.iter().filter(held).collect();
    assert_eq!(held.len(), 1, "{frames:#?}");
    let text = held[0]["data"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("a recompute does not change the world"),
        "{text}"
    );
}

#[tokio::test]
async fn a_recompute_reads_with_tools_but_calls_none_that_keeps_something_or_needs_a_person() {
    let read: &[_] = &[("read", 1), ("blocks", 1), ("fail", 1)];
    // One has a call to a stateful server, the other a call that a person approved.
    for (name, live) in [("tool-calls", read), ("tool-approved", &[("read", 2)])] {
        let folder = tempfile::tempdir().unwrap();
        let (stage, run) = played(name, &folder).await;
        let before = calls(&stage);
        let path = format!("/runs/{run}/recompute?wait=60");
        let answer = stage.of("eva").post(&path, json!({}).to_string()).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        let verdict = answer.json();
        assert_eq!(verdict["status"], "value_changed", "{name}: {verdict:#}");
        let id = verdict["recompute_id"].as_str().unwrap();
        judge(&stage, id, before, live).await;
        stage.lab.close().await;
    }
}

#[tokio::test]
async fn a_baseline_is_held_against_a_kit_without_a_call_that_changes_the_world() {
    let read: &[_] = &[("read", 1), ("blocks", 1), ("fail", 1)];
    for (name, live) in [("tool-calls", read), ("tool-approved", &[("read", 2)])] {
        let folder = tempfile::tempdir().unwrap();
        let (stage, run) = played(name, &folder).await;
        let before = calls(&stage);
        let stream = StreamId::run(&run).unwrap();
        let orchestrator = &stage.lab.engine.orchestrator;
        let frames = orchestrator
            .readers()
            .with(move |reader| ktsu::history::frames(reader, &stream));
        let recorded = Recorded::of(&frames.await.unwrap()).unwrap();
        let task = &recorded.tasks[0];
        let agent: &AgentPlan = &task.agent;
        let given = task.given["/msg"].clone().unwrap();
        let input = Map::from_iter([("msg".to_owned(), given)]);
        let definition = Definition::compile(recorded.plan.clone()).unwrap();
        let principal = Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        };
        let prepared = prepare_one(&definition, agent, "act", &input, principal).unwrap();
        let id = orchestrator.begin(prepared).await.unwrap().run_id;
        orchestrator.wait_until_ended(&id).await.unwrap();
        judge(&stage, &id, before, live).await;
        stage.lab.close().await;
    }
}

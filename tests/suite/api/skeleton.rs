//! The skeleton of a run: what a drawing of it needs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use ktsu_history::skeleton::{CallSpanKind, CallSpanStatus, StepSpan, skeleton};
use ktsu_ledger::Event;
use ktsu_projections::envelope::EnvelopeFold;
use serde_json::{Value, json};

use super::describe::Described;
use super::pages::lab;
use crate::golden::goldens;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab};

fn step<'a>(steps: &'a Value, path: &str) -> &'a Value {
    let steps = steps.as_array().unwrap();
    let found = steps.iter().find(|step| step["path"] == path);
    found.unwrap_or_else(|| panic!("no {path} in {steps:?}"))
}

#[tokio::test]
async fn children_items_and_calls_have_their_times_and_nothing_that_was_said() {
    let (_kit, lab, api) = lab().await;
    let list = json!(["the-canary", "bad", "third"]);
    let run = lab.client.run("parent", json!({"list": list})).await;
    let run = run["run_id"].as_str().unwrap();
    let shown = api.get(&format!("/runs/{run}/skeleton")).await;
    assert!(!shown.text().contains("canary"), "{}", shown.text());
    let shown = shown.json();
    assert_eq!(shown["status"], "complete");
    assert_eq!(shown["principal"], "local");
    let child = &step(&shown["steps"], "call")["children"][0];
    assert_eq!(step(&child["steps"], "call/last")["after"], json!(["each"]));
    assert_eq!(child["run_id"], format!("{run}/call"));
    let each = step(&child["steps"], "call/each");
    assert_eq!(
        each["counts"],
        json!({"succeeded": 2, "failed": 1, "skipped": 0})
    );
    assert_eq!(each["items"].as_array().unwrap().len(), 3);
    assert_eq!(each["folded"], Value::Null);
    let failed = step(&each["items"], "call/each.1");
    assert_eq!(
        (&failed["status"], &failed["type"]),
        (&json!("failed"), &json!("item"))
    );
    assert!(failed["error"].is_string(), "{failed}");
    let call = &failed["calls"][0];
    assert_eq!(call["kind"], "model");
    assert!(
        call["from_ms"].as_u64() <= call["until_ms"].as_u64(),
        "{call}"
    );
    assert!(call["tokens_in"].as_u64() > Some(0), "{call}");
    let alone = api.get(&format!("/runs/{run}%2Fcall/skeleton")).await;
    assert_eq!(alone.json()["steps"], child["steps"]);
}

#[tokio::test]
async fn of_many_items_those_are_shown_that_did_not_just_complete() {
    let (_kit, lab, api) = lab().await;
    let list = json!(["a", "bad", "c", "d"]);
    let run = lab.client.run("parent", json!({"list": list})).await;
    let run = run["run_id"].as_str().unwrap();
    let each = async |items: u32| {
        let path = format!("/runs/{run}%2Fcall/skeleton?items={items}");
        let shown = api.get(&path).await.json();
        step(&shown["steps"], "call/each").clone()
    };
    let folded = each(3).await;
    assert_eq!(folded["items"].as_array().unwrap().len(), 1);
    assert_eq!(folded["items"][0]["path"], "call/each.1");
    let sum = &folded["folded"];
    assert_eq!((&sum["count"], &sum["complete"]), (&json!(3), &json!(3)));
    assert!(sum["from_ms"].as_u64() <= sum["until_ms"].as_u64(), "{sum}");
    let none = each(0).await;
    let sum = &none["folded"];
    assert_eq!((&sum["count"], &sum["complete"]), (&json!(4), &json!(3)));
    assert_eq!(none["items"], Value::Null);
    assert_eq!(each(4).await["folded"], Value::Null);
    let path = format!("/runs/{run}/skeleton?items=10001");
    assert_eq!(api.get(&path).await.status, 400);
}

/// A workflow whose child fails twice, until its model answers what it is to.
async fn failing_twice() -> (KitDir, Lab) {
    let times = AtomicUsize::new(0);
    let model = Model::scripted(move |call| match times.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Said::json(&json!({"noanswer": 1})),
        _ => Said::answer(&call.user()),
    })
    .await;
    let child = r#"
visibility: sub-workflow
pipeline:
  - {id: say, agent: ./agents/echo.agent.yaml, params: {msg: hello}}
"#;
    let parent = r#"
pipeline:
  - {id: call, workflow: ./child.workflow.yaml}
"#;
    let kit = model::kit(&model, &[("child", child), ("parent", parent)]);
    let lab = Lab::new(&kit, &[KEY]).await;
    (kit, lab)
}

#[tokio::test]
async fn each_attempt_has_its_times_its_calls_and_its_end() {
    let (_kit, lab) = failing_twice().await;
    let api = Described::new(&lab.client).await;
    let failed = lab.client.run("parent", json!({})).await;
    assert_eq!(failed["status"], "failed", "{failed:#}");
    let run = failed["run_id"].as_str().unwrap();
    for expected in ["failed", "complete"] {
        let again = json!({"from": "call"}).to_string();
        let answer = lab.client.post(&format!("/runs/{run}/resume"), again).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        assert_eq!(lab.client.ended(run).await["status"], expected);
    }
    let shown = api.get(&format!("/runs/{run}/skeleton")).await.json();
    let call = step(&shown["steps"], "call");
    let say = step(&call["children"][0]["steps"], "call/say");
    for (span, latest) in [(call, 3), (say, 1)] {
        assert_eq!(
            (&span["attempt"], &span["status"]),
            (&json!(latest), &json!("complete"))
        );
        let attempts = span["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 2, "{span:#}");
        let mut before = 0;
        for attempt in attempts {
            assert_eq!(attempt["status"], "failed", "{span:#}");
            assert!(attempt["error"].is_string(), "{span:#}");
            let (from, until) = (attempt["from_ms"].as_u64(), attempt["until_ms"].as_u64());
            assert!(before <= from.unwrap() && from <= until, "{span:#}");
            before = until.unwrap();
        }
        let (from, until) = (
            span["from_ms"].as_u64().unwrap(),
            span["until_ms"].as_u64().unwrap(),
        );
        assert!(before <= from, "{span:#}");
        // Each of them is rounded down.
        let took = span["metrics"]["duration_ms"].as_u64().unwrap();
        assert!(took.abs_diff(until - from) <= 1, "{span:#}");
    }
    let calls = |of: &Value| of["calls"].as_array().map_or(0, Vec::len);
    let each: Vec<usize> = say["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(calls)
        .collect();
    assert_eq!((each, calls(say)), (vec![1, 1], 1), "{say:#}");
    let page = api
        .get(&format!("/inspector/runs/{run}?step=call/say"))
        .await;
    super::pages::is_harmless(&page);
    let text = page.text();
    // Attempts of a step in a child that began again are counted on, too.
    for (number, attempt) in (1..).zip(say["attempts"].as_array().unwrap()) {
        let frame = &attempt["frame"];
        let lane = format!("runs/{run}/frames?frame={frame}#f{frame}\">attempt {number}</a>");
        assert!(text.contains(&lane), "{lane}: {text}");
        assert!(
            text.contains(&format!("Calls of attempt {number}")),
            "{text}"
        );
    }
    assert_eq!(text.matches("<tr class=\"attempt\">").count(), 4, "{text}");
}

/// The spans of calls in a step, its items and its children.
fn spans<'a>(steps: &'a [StepSpan], found: &mut Vec<(&'a StepSpan, CallSpanKind)>) {
    for step in steps {
        found.extend(step.calls.iter().map(|call| (step, call.kind)));
        let earlier = || step.attempts.iter().flat_map(|attempt| &attempt.calls);
        found.extend(earlier().map(|call| (step, call.kind)));
        for call in step.calls.iter().chain(earlier()) {
            let until = call.until_ms.unwrap_or(u64::MAX);
            assert!(call.from_ms <= until, "{call:?}");
            let open = call.status == CallSpanStatus::Open;
            assert_eq!(open, call.until_ms.is_none(), "{call:?}");
        }
        spans(&step.items, found);
        for child in &step.children {
            spans(&child.steps, found);
        }
    }
}

#[test]
fn every_golden_run_has_a_skeleton_with_each_call_that_it_recorded() {
    let mut kinds = BTreeMap::new();
    for (name, recorded) in goldens() {
        let frames = recorded.frames();
        let fold = EnvelopeFold::of(&frames).unwrap();
        let envelope = fold.envelope("").unwrap();
        let shown = skeleton(&fold, &frames, "", usize::MAX).unwrap();
        let mut found = Vec::new();
        spans(&shown.steps, &mut found);
        for (_, kind) in &found {
            *kinds.entry(kind.as_words()).or_insert(0) += 1;
        }
        assert_eq!(shown.steps.len(), envelope.steps.len(), "{name}");
        assert_eq!(shown.frames as usize, frames.len(), "{name}");
        // What responders ask belongs to no step.
        if envelope.world.is_some() {
            continue;
        }
        let count = |kind| found.iter().filter(|(_, one)| *one == kind).count() as u64;
        let recorded = |wanted: fn(&Event) -> bool| {
            frames.iter().filter(|frame| wanted(&frame.event)).count() as u64
        };
        let asked = recorded(|event| event.request().is_some());
        assert_eq!(count(CallSpanKind::Model), asked, "{name}");
        let answered = recorded(|event| event.webhook_answer().is_some());
        assert!(count(CallSpanKind::Webhook) >= answered, "{name}");
    }
    let all = [
        "approval", "data", "in doubt", "model", "review", "tool", "webhook",
    ];
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), all);
}

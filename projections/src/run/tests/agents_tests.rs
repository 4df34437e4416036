//! The transition tables of agents, items and workers.

use ktsu_ledger::event::{
    AgentEvent, ItemEvent, LostReason, StepCompleted, StepFailed, WorkerDispatched, WorkerEvent,
    WorkerLost,
};
use serde::de::DeserializeOwned;

use super::*;

fn read<T: DeserializeOwned>(data: Value) -> T {
    serde_json::from_value(data).unwrap()
}

/// An agent step `a` and a fan-out `f` over two items, one at a time; both are started.
fn begun() -> Given {
    let plan = json!({"format": 1, "root": "w",
        "agents": {"x": {"group": "g", "max_turns": 1, "name": "x", "version": "1.0.0",
            "output": {}, "prompt": {"system": "s", "reflect": "again"}}},
        "workflows": {"w": {"name": "w", "version": "1.0.0", "visibility": "root",
            "webhooks": "execute", "policy": {"cost_budget_micro_usd": 10}, "steps": [
                {"id": "a", "work": {"agent": {"agent": "x", "file": "x", "max_tokens": 1}}},
                {"id": "f", "work": {"agent": {"agent": "x", "file": "x", "max_tokens": 1,
                    "for_each": {"concurrency": 1, "from": "params.l", "max_failures": 0}}}}]}}});
    let Event::Run(RunEvent::Created(mut first)) = created(json!([])) else {
        panic!("a run is created");
    };
    first.definition = CanonicalJson::from_value(&plan).unwrap();
    let sealed = draft("", Event::Run(RunEvent::Created(first)))
        .seal(link("run:r", 0, Hash::ZERO), at(0))
        .unwrap();
    let state = RunState::fold([&sealed.frame]).unwrap();
    let fans_out = json!({"attempt": 1, "items": 2, "step": "f"});
    Given { state }
        .then(started_run())
        .then(started("a"))
        .then(Event::Step(StepEvent::Started(read(fans_out))))
}

fn sent_out(step: &str, item: Option<u32>, attempt: u32) -> Event {
    Event::Worker(WorkerEvent::Dispatched(WorkerDispatched {
        attempt,
        item,
        step: step.to_owned(),
    }))
}

fn lost(step: &str, attempt: u32) -> Event {
    Event::Worker(WorkerEvent::Lost(WorkerLost {
        attempt,
        item: None,
        reason: LostReason::Heartbeat,
        runtime_alive: true,
        step: step.to_owned(),
    }))
}

fn item(kind: &str, item: u32, attempt: u32) -> Event {
    let data = match kind {
        "started" => json!({"item": item, "step": "f"}),
        "completed" => json!({"attempt": attempt, "item": item, "step": "f"}),
        _ => json!({"attempt": attempt, "code": "c", "item": item, "message": "", "step": "f"}),
    };
    Event::Item(match kind {
        "started" => ItemEvent::Started(read(data)),
        "completed" => ItemEvent::Completed(read(data)),
        _ => ItemEvent::Failed(read(data)),
    })
}

fn finished(step: &str, item: Option<u32>, attempt: u32, n: Option<u32>) -> Event {
    let mut data = json!({"attempt": attempt, "item": item, "outcome": {"output": {"v": 1}},
        "reason": "completed", "step": step});
    if let Some(n) = n {
        data["report"] = json!({"digest": "d", "n": n});
    }
    Event::Agent(AgentEvent::Finished(Box::new(read(data))))
}

fn asked(n: u32, purpose: &str) -> Event {
    let data = json!({"attempt": 1, "digest": "", "group": "g", "max_tokens": 1, "messages": [],
        "purpose": purpose, "report": {"digest": format!("d{n}"), "n": n}, "step": "a"});
    Event::Agent(AgentEvent::Request(read(data)))
}

fn answered_with(n: u32, request: u64, cost: u64) -> Event {
    let data = json!({"attempt": 1, "cost_micro_usd": cost, "duration_ms": 0, "input_hash": "",
        "model": "", "output_hash": "", "provider": "", "request": request, "tokens_in": 0,
        "report": {"digest": format!("d{n}"), "n": n}, "step": "a", "tokens_out": 0});
    Event::Agent(AgentEvent::Response(Box::new(read(data))))
}

fn decided(n: u32) -> Event {
    let data = json!({"attempt": 1, "draft": {}, "step": "a",
        "report": {"digest": format!("d{n}"), "n": n}});
    Event::Agent(AgentEvent::Decided(read(data)))
}

fn reflecting() -> Event {
    let data = json!({"attempt": 1, "step": "a"});
    Event::Agent(AgentEvent::ReflectStarted(read(data)))
}

fn completed_of(step: &str) -> Event {
    Event::Step(StepEvent::Completed(StepCompleted {
        attempt: 1,
        output: None,
        output_from: None,
        step: step.to_owned(),
        stripped: Vec::new(),
    }))
}

fn failed_of(step: &str) -> Event {
    Event::Step(StepEvent::Failed(StepFailed {
        attempt: 1,
        code: "c".to_owned(),
        message: String::new(),
        raw: None,
        raw_from: None,
        step: step.to_owned(),
    }))
}

#[test]
fn a_task_is_sent_out_once_an_attempt_and_reported_on_by_its_attempt_alone() {
    let run = begun();
    run.refuses(finished("a", None, 0, None));
    run.refuses(sent_out("a", None, 2));
    run.refuses(sent_out("a", Some(0), 1));
    let run = run.then(sent_out("a", None, 1));
    run.refuses(sent_out("a", None, 2));
    run.refuses(lost("a", 2));
    run.refuses(finished("a", None, 2, Some(1)));
    let run = run.then(lost("a", 1));
    run.refuses(finished("a", None, 1, Some(1)));
    let run = run.then(sent_out("a", None, 2));
    run.refuses(finished("a", None, 1, Some(1)));
    let run = run.then(finished("a", None, 2, Some(1)));
    run.refuses(finished("a", None, 2, Some(2)));
    run.refuses(lost("a", 2));
}

#[test]
fn a_call_is_answered_before_the_next_and_a_draft_is_looked_at_once() {
    let run = begun().then(sent_out("a", None, 1));
    run.refuses(answered_with(1, 4, 1));
    run.refuses(asked(1, "reflect"));
    run.refuses(reflecting());
    let run = run.then(asked(1, "turn"));
    run.refuses(asked(2, "turn"));
    run.refuses(decided(2));
    run.refuses(answered_with(2, 4, 1));
    let run = run.then(answered_with(2, 5, 1)).then(decided(3));
    run.refuses(decided(4));
    run.refuses(asked(4, "turn"));
    run.refuses(asked(4, "reflect"));
    let run = run.then(reflecting());
    run.refuses(reflecting());
    run.refuses(asked(4, "repair"));
    let run = run.then(asked(4, "reflect")).then(answered_with(5, 9, 1));
    run.refuses(asked(6, "reflect"));
}

#[test]
fn no_call_is_recorded_once_the_budget_is_used_up() {
    let run = begun()
        .then(sent_out("a", None, 1))
        .then(asked(1, "turn"))
        .then(answered_with(2, 5, 10));
    run.refuses(asked(3, "turn"));
    run.then(finished("a", None, 1, Some(3)));
}

#[test]
fn items_start_in_order_and_end_after_their_agent() {
    let run = begun();
    run.refuses(item("started", 1, 0));
    run.refuses(item("completed", 0, 1));
    let run = run.then(item("started", 0, 0));
    run.refuses(item("started", 0, 0));
    run.refuses(item("completed", 0, 0));
    let run = run.then(sent_out("f", Some(0), 1));
    run.refuses(item("completed", 0, 1));
    run.refuses(item("failed", 0, 1));
    let run = run.then(finished("f", Some(0), 1, Some(1)));
    run.refuses(item("completed", 0, 2));
    let run = run.then(item("completed", 0, 1));
    run.refuses(item("completed", 0, 1));
    run.refuses(item("failed", 0, 1));
    let run = run.then(item("started", 1, 0));
    run.refuses(item("started", 2, 0));
    // What was never sent out fails without an end of its agent.
    run.then(item("failed", 1, 0));
}

#[test]
fn a_fan_out_ends_after_its_items_and_leaves_none_behind() {
    let run = begun()
        .then(item("started", 0, 0))
        .then(sent_out("f", Some(0), 1));
    run.refuses(completed_of("f"));
    run.refuses(checked("f", true));
    run.refuses(failed_of("f"));
    let run = run
        .then(finished("f", Some(0), 1, Some(1)))
        .then(item("completed", 0, 1));
    run.refuses(completed_of("f"));
    run.refuses(checked("f", true));
    let run = run
        .then(item("started", 1, 0))
        .then(sent_out("f", Some(1), 1))
        .then(finished("f", Some(1), 1, Some(1)))
        .then(item("completed", 1, 1))
        .then(checked("f", true));
    run.refuses(checked("f", true));
    let run = run.then(completed_of("f"));
    run.refuses(failed_of("f"));
}

#[test]
fn a_step_does_not_fail_while_its_agent_is_at_work() {
    let run = begun().then(sent_out("a", None, 1));
    run.refuses(failed_of("a"));
    run.refuses(skipped("a", SkipReason::AgentSkipped));
    let run = run.then(finished("a", None, 1, None));
    run.refuses(skipped("a", SkipReason::ConditionFalse));
    run.then(failed_of("a"));
}

#[test]
fn a_reserved_field_is_evaluated_between_the_end_and_the_verdict() {
    let evaluated = || {
        let data = json!({"attempt": 1, "field": "ktsu_flags", "step": "a", "verdict": "noted"});
        Event::Step(StepEvent::ReservedEvaluated(read(data)))
    };
    let run = begun().then(sent_out("a", None, 1));
    run.refuses(evaluated());
    let run = run.then(finished("a", None, 1, Some(1))).then(evaluated());
    assert_eq!(
        run.state.task(StepKey::of(0, 0), None).unwrap().evaluated,
        1
    );
    let run = run.then(checked("a", false));
    run.refuses(evaluated());
    run.refuses(completed_of("a"));
    run.then(failed_of("a"));
}

/// Decision R2: what a runtime gives after a draft is what the draft leads to.
#[test]
fn a_draft_cannot_be_exchanged_for_another_output() {
    let run = begun().then(sent_out("a", None, 1)).then(decided(1));
    run.refuses(finished("a", None, 1, Some(2)));
    let run = run.then(reflecting());
    run.refuses(finished("a", None, 1, Some(2)));
    let run = run.then(asked(2, "reflect"));
    run.refuses(finished("a", None, 1, Some(3)));
}

//! People whom a workflow of a responder waits for, and the time of the budget meanwhile.

use ktsu_ledger::event::Decision;
use ktsu_projections::run::RunStatus;

use super::posts_tests::request;
use super::*;
use crate::admit::post::{EventMembers, PostedEvent};
use crate::driven_tests::{Say, output};
use crate::plans_tests::agent;
use crate::timers;

const HOUR: u64 = 3_600_000_000;

/// A responder has a workflow do something for every topic, whose tool a person has to approve.
fn deleting(more: &[Value]) -> Driven {
    let deletes = json!({"work": {"run": {"workflow": "delete", "webhooks": "suppress",
        "params": {}}}});
    let mut responders = vec![responder("deletes", "object.created", "Topic", deletes)];
    responders.extend_from_slice(more);
    let world = world(
        json!({"responders": responders, "budget": {"max_events": 100,
        "max_llm_cost_micro_usd": 1000, "max_recursion_depth": 50, "max_wall_ms": 5_000}}),
    );
    let mut plan = plan(json!({
        "main": workflow("main", json!([])),
        "delete": workflow("delete", json!([agent("a", json!([]), "acts", json!({}))])),
    }));
    plan["worlds"] = json!({"worlds/w.world.yaml": world});
    Driven::invoke(plan, json!({"goal": "tides", "x": [1]}))
}

/// The addresses of what a responder asked or ran.
fn of_responder(run: &Driven, name: &str) -> Vec<String> {
    let tasks = run.state.responding().unwrap().tasks();
    let addresses = tasks.map(|task| task.context.address.to_string());
    let prefix = format!("@{name}.");
    addresses.filter(|one| one.starts_with(&prefix)).collect()
}

fn asks_a_person(run: &mut Driven) -> String {
    let step = format!("{}/a", of_responder(run, "deletes")[0]);
    run.asks(&step);
    run.says(&step, &[Say::Wants(vec!["delete-a"])]);
    run.says(
        &step,
        &[Say::Gate(0, "s".to_owned(), "delete-a".to_owned())],
    );
    step
}

/// What was approved is done, and the run ends.
fn acts(run: &mut Driven, step: &str) {
    let call = Say::Call(0, "s".to_owned(), "delete-a".to_owned());
    run.says(step, &[call]);
    run.says(step, &[Say::Result(0)]);
    run.does(step, json!({"v": 1}));
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.is_whole();
}

fn used_ms(run: &Driven) -> u64 {
    run.state.responding().unwrap().used_ms()
}

#[test]
fn time_in_which_a_workflow_of_a_responder_waits_for_a_person_is_not_used_up() {
    let mut run = deleting(&[]);
    assert_eq!(run.state.status(), RunStatus::Running);
    let step = asks_a_person(&mut run);
    assert_eq!(run.state.status(), RunStatus::Waiting);
    assert!(timers::next(&run.state).is_none());
    let used = used_ms(&run);
    run.now += HOUR;
    // What comes meanwhile makes no time of the run of the wait before it.
    let note = PostedEvent::Note {
        data: EventMembers::new(),
    };
    run.post(request(vec![note])).unwrap();
    assert_eq!(run.state.status(), RunStatus::Waiting);
    run.now += HOUR;
    run.decides(&step, "ann", Decision::Approved, None).unwrap();
    assert_eq!(used_ms(&run), used);
    assert_eq!(run.state.status(), RunStatus::Running);
    assert!(timers::next(&run.state).is_some(), "the run goes on");
    acts(&mut run, &step);
}

#[test]
fn time_in_which_a_model_is_asked_is_used_up_though_a_person_is_waited_for_beside_it() {
    let ask = json!({"group": "std", "max_tokens": 10,
        "messages": [{"role": "user", "content": "{{ object.data.text }}?"}]});
    let asks = responder(
        "asks",
        "object.created",
        "Topic",
        json!({"work": {"ask": ask}}),
    );
    let mut run = deleting(&[asks]);
    let question = of_responder(&run, "asks").remove(0);
    run.asks(&question);
    let step = asks_a_person(&mut run);
    assert_eq!(run.state.status(), RunStatus::Running);
    assert!(timers::next(&run.state).is_some());
    run.now += 3_000_000;
    run.says(&question, &[Say::Reply { cost: 1 }, output(json!("deep"))]);
    assert!(used_ms(&run) >= 3_000);
    assert_eq!(run.state.status(), RunStatus::Waiting);
    let used = used_ms(&run);
    run.now += HOUR;
    run.decides(&step, "ann", Decision::Approved, None).unwrap();
    assert_eq!(used_ms(&run), used);
    acts(&mut run, &step);
}

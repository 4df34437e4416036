//! Time that passes while a person's decision is pending counts as work only if something else is
//! in progress (decision F5).

use ktsu_ledger::event::Decision::Approved;
use ktsu_ledger::event::Effects;
use serde_json::{Value, json};

use crate::driven_tests::{Driven, Say};
use crate::plans_tests::{agent, child, plan, run_of, workflow};

const SECOND: u64 = 1_000_000;

/// A step asks for a tool that people are asked about.
fn waits(run: &mut Driven, name: &str) {
    run.asks(name);
    run.says(name, &[Say::Wants(vec!["delete-a"])]);
    let gate = Say::Gate(0, "s".to_owned(), "delete-a".to_owned());
    run.says(name, &[gate]);
}

/// Whole seconds that something took.
fn seconds(metrics: &Value) -> u64 {
    metrics["duration_ms"].as_u64().unwrap() / 1000
}

fn side_by_side() -> Driven {
    let steps = json!([
        agent("a", json!([]), "acts", json!({})),
        agent("b", json!([]), "plain", json!({})),
    ]);
    let mut run = run_of(steps, json!({}));
    waits(&mut run, "a");
    run.asks("b");
    run
}

#[test]
fn a_decision_takes_nothing_from_the_time_of_a_step_that_worked_meanwhile() {
    let mut run = side_by_side();
    run.now += 10 * SECOND;
    run.decides("a", "ann", Approved, None).unwrap();
    run.now += 5 * SECOND;
    run.replies("b", 3);
    assert_eq!(seconds(&run.envelope()["totals"]), 15);
}

#[test]
fn once_nothing_else_moves_the_wait_is_no_time_of_the_run() {
    let mut run = side_by_side();
    run.now += 10 * SECOND;
    run.replies("b", 3);
    run.finishes("b", json!({"v": 1}));
    run.now += 60 * SECOND;
    run.decides("a", "ann", Approved, None).unwrap();
    assert_eq!(seconds(&run.envelope()["totals"]), 10);
}

#[test]
fn a_child_that_waits_does_not_move_though_its_parent_works() {
    let inner = workflow("inner", json!([agent("a", json!([]), "acts", json!({}))]));
    let main = json!([
        child("call", json!([]), "inner", json!({})),
        agent("b", json!([]), "plain", json!({})),
    ]);
    let flows = json!({"main": workflow("main", main), "inner": inner});
    let mut run = Driven::invoke(plan(flows), json!({}));
    waits(&mut run, "call/a");
    run.asks("b");
    run.now += 10 * SECOND;
    run.decides("call/a", "ann", Approved, None).unwrap();
    assert_eq!(seconds(&run.envelope()["totals"]), 10);
    assert_eq!(seconds(&run.envelope_of("call")["totals"]), 0);
}

#[test]
fn a_child_that_works_while_its_parent_waits_is_at_work_and_so_is_the_run() {
    let inner = workflow("inner", json!([agent("b", json!([]), "plain", json!({}))]));
    let main = json!([
        child("call", json!([]), "inner", json!({})),
        agent("a", json!([]), "acts", json!({})),
    ]);
    let flows = json!({"main": workflow("main", main), "inner": inner});
    let mut run = Driven::invoke(plan(flows), json!({}));
    run.asks("call/b");
    waits(&mut run, "a");
    run.now += 10 * SECOND;
    run.decides("a", "ann", Approved, None).unwrap();
    run.replies("call/b", 3);
    assert_eq!(seconds(&run.envelope()["totals"]), 10);
    assert_eq!(seconds(&run.envelope_of("call")["totals"]), 10);
}

/// Whole seconds that a step took and waited.
fn step_seconds(run: &Driven, step: &str) -> (u64, u64) {
    let metrics = &run.step(step)["metrics"];
    (
        seconds(metrics),
        metrics["waited_ms"].as_u64().unwrap_or_default() / 1000,
    )
}

#[test]
fn a_wait_for_a_decision_is_no_time_of_its_step() {
    let mut run = run_of(json!([agent("a", json!([]), "acts", json!({}))]), json!({}));
    run.now += 10 * SECOND;
    waits(&mut run, "a");
    run.now += 3_600 * SECOND;
    run.decides("a", "ann", Approved, None).unwrap();
    run.now += 5 * SECOND;
    let call = Say::Call(0, "s".to_owned(), "delete-a".to_owned());
    run.says("a", &[call]);
    run.says("a", &[Say::Result(0)]);
    run.does("a", json!({"v": 1}));
    assert_eq!(step_seconds(&run, "a"), (15, 3_600));
}

#[test]
fn neither_the_time_before_a_branch_nor_that_in_which_it_is_parked_is_time_of_its_steps() {
    let inner = workflow("inner", json!([agent("b", json!([]), "plain", json!({}))]));
    let main = json!([
        child("call", json!([]), "inner", json!({})),
        agent("a", json!([]), "plain", json!({})),
    ]);
    let flows = json!({"main": workflow("main", main), "inner": inner});
    let mut run = Driven::invoke(plan(flows), json!({}));
    run.asks("a");
    run.asks("call/b");
    run.now += 10 * SECOND;
    run.replies("a", 3);
    let shared = run.frames.len();
    // What the run did after the shared frames is no time of the branch either.
    run.now += 7 * SECOND;
    run.finishes("a", json!({"v": 1}));
    assert_eq!(step_seconds(&run, "a"), (17, 0));
    run.now += 3_600 * SECOND;
    let mut branch = run.parked_branch(shared, Effects::Suppress);
    branch.now += 7_200 * SECOND;
    branch.resumes_branch();
    branch.now += 5 * SECOND;
    branch.finishes("a", json!({"v": 1}));
    assert_eq!(step_seconds(&branch, "a"), (15, 0));
    branch.now += 2 * SECOND;
    branch.replies("call/b", 3);
    branch.finishes("call/b", json!({"v": 1}));
    assert_eq!(step_seconds(&branch, "call"), (17, 0));
    let inner = branch.envelope_of("call");
    assert_eq!(seconds(&inner["steps"][0]["metrics"]), 17);
    assert_eq!(seconds(&inner["totals"]), 17);
    assert_eq!(seconds(&branch.envelope()["totals"]), 17);
    branch.shows_what_its_frames_show();
}

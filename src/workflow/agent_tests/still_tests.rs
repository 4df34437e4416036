//! Time that passes while a person's decision is pending counts as work only if something else is
//! in progress (decision F5).

use ktsu_ledger::event::Decision::Approved;
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
fn a_child_that_waits_stands_still_though_its_parent_works() {
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

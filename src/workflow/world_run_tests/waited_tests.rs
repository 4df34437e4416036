//! The time in which only people could have moved a run that loads worlds, as its envelope says it.

use ktsu_projections::run::RunStatus;

use super::after_tests::{MINUTE, begun, escalates};
use super::posts_tests::{posted, request};
use super::*;
use crate::admit::steer::{RunControl, steer};
use crate::driven_tests::{Say, output};

/// Minutes that the run used, and minutes that it waited for people.
fn minutes(run: &Driven) -> (u64, u64) {
    let totals = &run.envelope()["totals"];
    let minutes = |name: &str| totals[name].as_u64().unwrap_or_default() / MINUTE;
    (minutes("duration_ms"), minutes("waited_ms"))
}

fn note(run: &mut Driven) {
    let note = posted("Note", "n", json!({}));
    run.post(request(vec![note])).unwrap();
}

#[test]
fn a_timer_of_a_responder_is_no_person_and_a_pause_is_waited_whatever_is_posted_meanwhile() {
    let slow = json!({"after_ms": 60 * MINUTE});
    for posts in [false, true] {
        let mut run = begun(json!([escalates(slow.clone())]));
        run.now += 30 * MINUTE * 1_000;
        run.pauses();
        assert_eq!(minutes(&run), (30, 0));
        run.now += 10 * MINUTE * 1_000;
        if posts {
            note(&mut run);
        }
        run.now += 10 * MINUTE * 1_000;
        run.resumes(None).unwrap();
        assert_eq!(minutes(&run), (30, 20));
        assert!(run.waits_for_responder());
        assert_eq!(run.kinds().last().unwrap(), "run.completed");
        assert_eq!(minutes(&run), (60, 20));
        run.is_whole();
    }
}

#[test]
fn a_run_that_is_cancelled_while_a_timer_runs_has_waited_for_no_one() {
    let mut run = begun(json!([escalates(json!({}))]));
    run.now += 10 * MINUTE * 1_000;
    let by = super::budget_tests::ann();
    let cancel = steer(&run.state, RunControl::Cancel, by, None);
    run.input(cancel.unwrap());
    assert_eq!(run.state.status(), RunStatus::Cancelled);
    assert_eq!(minutes(&run), (10, 0));
}

#[test]
fn a_question_under_way_moves_a_run_to_which_something_is_posted() {
    let ask = json!({"work": {"ask": {"group": "std", "max_tokens": 10,
        "messages": [{"role": "user", "content": "?"}]}}, "then": []});
    let mut run = begun(json!([responder(
        "asks",
        "object.created",
        "Incident",
        ask
    )]));
    let asked = run.state.responding().unwrap().tasks().next().unwrap();
    let asked = asked.context.address.to_string();
    run.asks(&asked);
    run.now += MINUTE * 1_000;
    note(&mut run);
    assert_eq!(minutes(&run), (1, 0));
    run.says(&asked, &[Say::Reply { cost: 1 }, output(json!("deep"))]);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    assert_eq!(minutes(&run), (1, 0));
}

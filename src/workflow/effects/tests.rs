//! When an effect is due, and for how long. For every run that is driven by hand, the result is
//! compared with that of the frames.

use ktsu_ledger::Timestamp;
use ktsu_ledger::event::{Effects, LostReason, Principal};
use serde_json::json;

use super::by_frames::hold_at_every_cut;
use super::{Effect, EffectKind, effects_due, may_begin, task_is_due};
use crate::admit::intervention::resume;
use crate::admit::steer::{RunControl, steer};
use crate::driven_tests::Driven;
use crate::plans_tests::{agent, run_of, webhook};

fn somebody() -> Principal {
    Principal {
        auth: "none".to_owned(),
        id: "local".to_owned(),
    }
}

/// A webhook and an agent side by side.
fn two_effects() -> Driven {
    let steps = json!([
        webhook("w", json!([]), "http://x/"),
        agent("a", json!([]), "plain", json!({})),
    ]);
    run_of(steps, json!({}))
}

#[test]
fn what_is_announced_is_due_until_it_ends() {
    let mut run = two_effects();
    let due = |run: &Driven| effects_due(&run.state).len();
    assert_eq!(due(&run), 2);
    run.answer("", "w", 1, 204);
    assert_eq!(due(&run), 1);
    assert!(task_is_due(&run.state, "", "a", None));
    run.completes("a", json!({"v": 1}), Default::default());
    assert_eq!(due(&run), 0);
    assert!(!task_is_due(&run.state, "", "a", None));
    assert_eq!(hold_at_every_cut(&run.frames), 2);
}

#[test]
fn a_lost_task_is_due_again_with_the_frame_that_sends_it_out_again() {
    let mut run = two_effects();
    let task = |run: &Driven| effects_due(&run.state)[1];
    let first = task(&run);
    assert!(run.loses("a", LostReason::Heartbeat, true));
    let second = task(&run);
    assert_eq!(first.kind, second.kind);
    assert!(first.announced < second.announced);
    assert_eq!(hold_at_every_cut(&run.frames), 3);
}

#[test]
fn nothing_begins_while_a_run_is_paused_or_before_the_word_that_ends_it_is_durable() {
    let mut run = two_effects();
    let announced = run.state.next_seq() - 1;
    assert!(may_begin(&run.state, announced));
    run.input(steer(&run.state, RunControl::Pause, somebody(), None).unwrap());
    let paused = run.state.next_seq() - 1;
    assert!(!may_begin(&run.state, paused));
    assert_eq!(effects_due(&run.state).len(), 2, "what is due stays due");
    let now = Timestamp::from_micros(run.now + 1_000);
    run.input(resume(&run.state, None, somebody(), None, now).unwrap());
    let resumed = run.state.last_resumed();
    assert!(resumed > paused);
    assert!(!may_begin(&run.state, paused));
    assert!(may_begin(&run.state, resumed));
}

#[test]
fn a_run_that_ends_has_nothing_under_way_whoever_ends_it() {
    for how in [RunControl::Cancel, RunControl::Terminate] {
        let mut run = two_effects();
        run.input(steer(&run.state, how, somebody(), None).unwrap());
        assert_eq!(effects_due(&run.state), []);
        assert_eq!(run.state.announced(..).count(), 0);
        hold_at_every_cut(&run.frames);
    }
}

#[test]
fn a_branch_shares_no_effect_with_its_run() {
    let run = two_effects();
    let at = run.frames.len();
    let branch = run.branch(at, Effects::Execute);
    let due: Vec<u64> = effects_due(&branch.state)
        .iter()
        .map(|one| one.announced)
        .collect();
    assert!(due.iter().all(|seq| *seq > at as u64), "{due:?}");
    assert_eq!(due.len(), 2);
    assert_eq!(hold_at_every_cut(&branch.frames), 4);
}

#[test]
fn a_recompute_that_has_ended_is_to_be_compared() {
    let mut run = run_of(
        json!([agent("a", json!([]), "plain", json!({}))]),
        json!({}),
    );
    run.completes("a", json!({"v": 1}), Default::default());
    let mut again = run.recompute();
    again.completes("a.0", json!({"v": 1}), Default::default());
    let last = again.state.next_seq() - 1;
    let kind = EffectKind::Comparison;
    let comparison = Effect {
        announced: last,
        kind,
    };
    assert_eq!(effects_due(&again.state), [comparison]);
    hold_at_every_cut(&again.frames);
}

//! Each refusal of a decision has one cause: if that alone is corrected, the same decision is
//! accepted (seed 000, invariant 34; decision A1). Over HTTP they are tested in
//! `approvals::refused`; who may decide at all is defined in `api::routes::policy`.

use ktsu_ledger::event::{Decision, LostReason, Principal, RunEvent};
use ktsu_ledger::{Draft, Event, Timestamp};
use ktsu_projections::calls::CallHistory;
use serde_json::json;

use crate::admit;
use crate::admit::approval;
use crate::admit::approval::{ApprovalCommand, ApprovalDecisionError, decide};
use crate::driven_tests::{Driven, Say};
use crate::plans_tests::{agent, run_of};

use Decision::{Approved, Happened, Rejected};

/// A run whose model asks for these tools, all of which somebody is asked about.
fn gated(tools: &[&'static str]) -> Driven {
    let mut run = run_of(json!([agent("a", json!([]), "acts", json!({}))]), json!({}));
    run.asks("a");
    run.says("a", &[Say::Wants(tools.to_vec())]);
    let gate = |(at, tool): (u32, &&str)| Say::Gate(at, "s".to_owned(), (*tool).to_owned());
    let gates: Vec<Say> = (0..).zip(tools).map(gate).collect();
    run.says("a", &gates);
    run
}

/// A run whose call to a stateful server has no answer.
fn doubted() -> Driven {
    let mut run = run_of(json!([agent("a", json!([]), "acts", json!({}))]), json!({}));
    run.asks("a");
    run.says("a", &[Say::Wants(vec!["write"])]);
    run.says("a", &[Say::Call(0, "w".to_owned(), "write".to_owned())]);
    assert!(run.loses("a", LostReason::Heartbeat, true));
    run
}

/// What ann says of the one call of a run, having seen what it is.
fn said(run: &Driven, decision: Decision) -> ApprovalCommand {
    let record = CallHistory::fold(&run.frames)
        .into_approvals()
        .swap_remove(0);
    ApprovalCommand {
        scope: String::new(),
        step: "a".to_owned(),
        item: None,
        approval_id: Some(record.approval_id),
        digest: Some(record.digest),
        decision,
        by: person("ann"),
        reason: None,
        result: None,
    }
}

fn person(name: &str) -> Principal {
    Principal {
        auth: "token".to_owned(),
        id: name.to_owned(),
    }
}

fn judged(run: &Driven, said: &ApprovalCommand) -> Result<Draft, ApprovalDecisionError> {
    decide(&run.state, said.clone(), Timestamp::from_micros(run.now))
}

#[track_caller]
fn taken(run: &Driven, said: &ApprovalCommand) {
    if let Err(refused) = judged(run, said) {
        panic!("{said:?}: {refused}");
    }
}

#[test]
fn swapped_arguments_are_refused_by_their_digest_alone() {
    let run = gated(&["delete-a"]);
    for decision in [Approved, Rejected] {
        let right = said(&run, decision);
        for digest in [
            "",
            "0",
            &"0".repeat(64),
            &right.digest.clone().unwrap().to_uppercase(),
        ] {
            let swapped = ApprovalCommand {
                digest: Some(digest.to_owned()),
                ..right.clone()
            };
            let refused = judged(&run, &swapped);
            assert!(
                matches!(refused, Err(ApprovalDecisionError::OtherArguments { .. })),
                "{refused:?}"
            );
        }
        taken(&run, &right);
    }
}

#[test]
fn the_decision_on_another_call_is_refused_by_its_id_alone() {
    let run = gated(&["delete-a"]);
    let right = said(&run, Approved);
    for id in ["", "apr_", "apr_0000000000000000", "run_1#7"] {
        let foreign = ApprovalCommand {
            approval_id: Some(id.to_owned()),
            ..right.clone()
        };
        let refused = judged(&run, &foreign);
        assert!(
            matches!(refused, Err(ApprovalDecisionError::NotPending { .. })),
            "{refused:?}"
        );
    }
    for (scope, step, item) in [("call", "a", None), ("", "b", None), ("", "a", Some(0))] {
        let elsewhere = ApprovalCommand {
            scope: scope.to_owned(),
            step: step.to_owned(),
            item,
            ..right.clone()
        };
        let refused = judged(&run, &elsewhere);
        assert!(
            matches!(refused, Err(ApprovalDecisionError::NotPending { .. })),
            "{refused:?}"
        );
    }
    taken(&run, &right);
}

#[test]
fn a_late_decision_is_refused_by_the_clock_alone() {
    let mut run = gated(&["late-a"]);
    let until = CallHistory::fold(&run.frames).into_approvals()[0]
        .expires_at
        .unwrap()
        .as_micros();
    for decision in [Approved, Rejected] {
        let right = said(&run, decision);
        run.now = until;
        let refused = judged(&run, &right);
        assert!(
            matches!(refused, Err(ApprovalDecisionError::Expired { .. })),
            "{refused:?}"
        );
        run.now = until - 1;
        taken(&run, &right);
    }
}

#[test]
fn a_clock_that_jumps_forward_moves_the_end_of_a_wait_with_it() {
    let mut run = gated(&["late-a"]);
    let until = approval::next_deadline(&run.state).unwrap().0;
    let jumped = Timestamp::from_micros(run.now).plus_millis(3_600_000);
    run.now = jumped.as_micros();
    let right = said(&run, Approved);
    let refused = judged(&run, &right);
    assert!(
        matches!(refused, Err(ApprovalDecisionError::Expired { .. })),
        "{refused:?}"
    );
    run.input(admit::jumped(&run.state, jumped, 3_600_000).unwrap());
    let moved = until.plus_millis(3_600_000);
    assert_eq!(approval::next_deadline(&run.state).unwrap().0, moved);
    assert_eq!(
        CallHistory::fold(&run.frames).into_approvals()[0].expires_at,
        Some(moved)
    );
    let asked = approval::next_deadline(&run.state).unwrap().1;
    let announced = asked.call.state.gate().unwrap().announced_deadline();
    assert_eq!(announced, Some(until), "a notice sent again says the same");
    taken(&run, &right);
    run.now = moved.as_micros();
    let refused = judged(&run, &right);
    assert!(
        matches!(refused, Err(ApprovalDecisionError::Expired { .. })),
        "{refused:?}"
    );
}

#[test]
fn no_jump_is_longer_than_the_time_since_the_last_frame() {
    let run = gated(&["late-a"]);
    let now = run.state.at().plus_millis(5);
    let draft = admit::jumped(&run.state, now, 60_000).unwrap();
    let Event::Run(RunEvent::ClockJumped(jump)) = &draft.event else {
        panic!("{draft:?}");
    };
    assert_eq!(jump.forward_ms, Some(5));
    let mut more = jump.clone();
    more.forward_ms = Some(6);
    let event = Event::Run(RunEvent::ClockJumped(more));
    let forged = Draft { event, ..draft };
    let sealed = forged.seal(run.state.link(), now).unwrap();
    assert!(run.state.clone().apply(&sealed.frame).is_err());
}

#[test]
fn a_run_without_a_deadline_does_not_record_that_the_clock_jumped() {
    let run = gated(&["delete-a"]);
    let now = run.state.at().plus_millis(3_600_000);
    assert_eq!(admit::jumped(&run.state, now, 3_600_000), None);
}

#[test]
fn a_decision_that_is_repeated_is_refused_because_there_is_one() {
    let mut run = gated(&["delete-a"]);
    let right = said(&run, Approved);
    taken(&run, &right);
    run.decides("a", "ann", Approved, None).unwrap();
    for again in [
        right.clone(),
        ApprovalCommand {
            decision: Rejected,
            ..right
        },
    ] {
        let refused = judged(&run, &again);
        assert!(
            matches!(refused, Err(ApprovalDecisionError::NotPending { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn whoever_started_the_run_is_refused_for_who_they_are_and_by_that_policy_alone() {
    let run = gated(&["two-a"]);
    let right = said(&run, Approved);
    let own = ApprovalCommand {
        by: person("local"),
        ..right.clone()
    };
    let refused = judged(&run, &own);
    assert!(
        matches!(refused, Err(ApprovalDecisionError::Proposer { .. })),
        "{refused:?}"
    );
    taken(&run, &right);
    let plain = gated(&["delete-a"]);
    let own = ApprovalCommand {
        by: person("local"),
        ..said(&plain, Approved)
    };
    taken(&plain, &own);
}

#[test]
fn a_second_word_of_one_person_is_refused_for_who_they_are_alone() {
    let mut run = gated(&["two-a"]);
    run.decides("a", "ann", Approved, None).unwrap();
    let twice = said(&run, Approved);
    let refused = judged(&run, &twice);
    assert!(
        matches!(refused, Err(ApprovalDecisionError::Twice { .. })),
        "{refused:?}"
    );
    let bob = ApprovalCommand {
        by: person("bob"),
        ..twice
    };
    taken(&run, &bob);
}

#[test]
fn what_was_not_sent_cannot_have_happened_and_what_was_can() {
    let run = gated(&["delete-a"]);
    let refused = judged(&run, &said(&run, Happened));
    assert!(
        matches!(refused, Err(ApprovalDecisionError::NotInDoubt { .. })),
        "{refused:?}"
    );
    let run = doubted();
    taken(&run, &said(&run, Happened));
}

#[test]
fn one_of_several_calls_has_to_be_named() {
    let run = gated(&["delete-a", "delete-b"]);
    let right = said(&run, Approved);
    let unnamed = ApprovalCommand {
        approval_id: None,
        ..right.clone()
    };
    let refused = judged(&run, &unnamed);
    assert!(
        matches!(refused, Err(ApprovalDecisionError::Several { .. })),
        "{refused:?}"
    );
    taken(&run, &right);
}

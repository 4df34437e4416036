//! Tool calls, and people's decisions about them: given frames, when a runtime or a person acts,
//! then frames (seed 000, invariants 4, 5 and 34; decisions A1, A4, F1).

use ktsu_ledger::event::{Decision, Effects, FinishReason, LostReason, UnsentReason};
use ktsu_projections::approvals::{ApprovalRecord, ApprovalStatus};
use ktsu_projections::calls::CallHistory;
use ktsu_projections::life::call::CallState;
use ktsu_projections::run::RunStatus;
use serde_json::json;

use crate::admit::approval::ApprovalDecisionError;
use crate::admit::report::ReportAdmission;
use crate::driven_tests::{Driven, Say, output};
use crate::plans_tests::{agent, run_of, webhook};

use Decision::{Approved, Happened, Rejected};

fn one() -> Driven {
    run_of(json!([agent("a", json!([]), "acts", json!({}))]), json!({}))
}

fn call(at: u32, server: &str, tool: &str) -> Say {
    Say::Call(at, server.to_owned(), tool.to_owned())
}

fn gate(at: u32, tool: &str) -> Say {
    Say::Gate(at, "s".to_owned(), tool.to_owned())
}

/// A run whose model has asked for these tools.
fn wants(tools: &[&'static str]) -> Driven {
    let mut run = one();
    run.asks("a");
    run.says("a", &[Say::Wants(tools.to_vec())]);
    run
}

/// A run that waits for a decision on a tool.
fn gated(tool: &'static str) -> Driven {
    let mut run = wants(&[tool]);
    run.says("a", &[gate(0, tool)]);
    run
}

#[track_caller]
fn malformed(run: &mut Driven, says: &[Say]) -> String {
    let attempt = run.task("a").attempt;
    let n = 1 + run.task("a").reports.last().map_or(0, |seen| seen.report.n);
    match run.reports("a", attempt, n, says) {
        ReportAdmission::Malformed(words) => words,
        other => panic!("{other:?}"),
    }
}

fn ends(run: &mut Driven) {
    run.asks("a");
    run.says("a", &[Say::Reply { cost: 3 }, output(json!({"v": 1}))]);
}

fn records(run: &Driven) -> Vec<ApprovalRecord> {
    CallHistory::fold(&run.frames).into_approvals()
}

#[test]
fn calls_are_frames_between_the_reply_that_asks_and_the_next_request() {
    let mut run = wants(&["read-a", "read-b"]);
    let early = malformed(&mut run, &[Say::Ask(ktsu_ledger::event::Purpose::Turn)]);
    assert!(early.contains("llm.request"), "{early}");
    run.says("a", &[call(0, "s", "read-a"), call(1, "s", "read-b")]);
    run.says("a", &[Say::Result(1)]);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run);
    let kinds = run.kinds();
    assert_eq!(
        kinds[5..11],
        [
            "llm.response a",
            "agent.decided a",
            "tool.called a",
            "tool.called a",
            "tool.returned a",
            "tool.returned a"
        ]
    );
    let called = run.last("tool.called a");
    assert_eq!(
        called["arguments"],
        json!({"frame": 5, "path": "/tool_calls/1/arguments"})
    );
    assert_eq!(called["digest"].as_str().map(str::len), Some(64));
    assert_eq!(run.envelope()["totals"]["tool_calls"], 2);
    run.holds_together();
}

#[test]
fn a_call_is_answered_once_and_only_if_it_was_sent() {
    let mut run = wants(&["read-a"]);
    malformed(&mut run, &[Say::Result(0)]);
    run.says("a", &[call(0, "s", "read-a")]);
    malformed(&mut run, &[call(0, "s", "read-a")]);
    malformed(&mut run, &[Say::NotSent(0, UnsentReason::UnknownTool)]);
    malformed(&mut run, &[output(json!({}))]);
    run.says("a", &[Say::Result(0)]);
    malformed(&mut run, &[Say::Result(0)]);
    malformed(&mut run, &[call(7, "s", "read-a")]);
    ends(&mut run);
    run.holds_together();
}

#[test]
fn what_the_allowlists_do_not_permit_cannot_be_recorded_as_called() {
    for (server, tool) in [
        ("s", "write"),
        ("w", "read-a"),
        ("s", "read"),
        ("s", "Read-a"),
        ("s", "READ-A"),
        ("s", " read-a"),
        ("w", "write "),
        ("w", "write\0"),
        ("nobody", "read-a"),
    ] {
        let mut run = wants(&[tool]);
        let words = malformed(&mut run, &[call(0, server, tool)]);
        let refused = ["tool_not_permitted: ", "the agent has no tool server"];
        assert!(refused.iter().any(|known| words.contains(known)), "{words}");
    }
}

#[test]
fn a_call_is_of_the_tool_that_the_model_named() {
    for (named, tool) in [
        ("read-a", "read-b"),
        ("s__read-a", "read-b"),
        ("t__read-a", "read-a"),
        ("s_read-a", "read-a"),
        ("s__", "read-a"),
    ] {
        let mut run = wants(&[named]);
        malformed(&mut run, &[call(0, "s", tool)]);
        malformed(&mut run, &[gate(0, "delete-a")]);
    }
    for (named, server) in [("read-a", "s"), ("read-a", "t"), ("t__read-a", "t")] {
        wants(&[named]).says("a", &[call(0, server, "read-a")]);
    }
}

#[test]
fn an_approval_is_for_the_tool_of_one_server() {
    let mut run = gated("delete-a");
    assert_eq!(run.decides("a", "ann", Approved, None), Ok(()));
    malformed(&mut run, &[call(0, "t", "delete-a")]);
    run.says("a", &[call(0, "s", "delete-a")]);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run);
    run.holds_together();
}

#[test]
fn a_gated_call_cannot_be_recorded_before_a_person_approved_it() {
    let mut run = wants(&["delete-a"]);
    let words = malformed(&mut run, &[call(0, "s", "delete-a")]);
    assert!(words.contains("before a person has approved it"), "{words}");
    // Nor is anybody asked about what nobody is asked about.
    malformed(&mut run, &[gate(0, "read-a")]);
}

#[test]
fn a_call_with_a_secret_in_it_is_not_sent() {
    let mut run = wants(&["read-a!"]);
    malformed(&mut run, &[call(0, "s", "read-a")]);
    run.says("a", &[Say::NotSent(0, UnsentReason::SecretInArguments)]);
    ends(&mut run);
    run.holds_together();
}

#[test]
fn a_gate_suspends_the_step_and_an_approval_lets_the_call_be_sent() {
    let mut run = gated("delete-a");
    assert_eq!(run.state.status(), RunStatus::Waiting);
    assert_eq!(run.step("a")["status"], "pending_approval");
    assert!(
        !run.loses("a", LostReason::Heartbeat, true),
        "no runtime has it"
    );
    assert_eq!(run.decides("a", "ann", Approved, None), Ok(()));
    assert_eq!(run.state.status(), RunStatus::Running);
    assert_eq!(run.task("a").attempt, 2);
    run.says("a", &[call(0, "s", "delete-a")]);
    assert_eq!(run.last("tool.called a")["approval"], 7);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run);
    let records = records(&run);
    assert_eq!(records[0].status, ApprovalStatus::Approved);
    assert_eq!(records[0].executed, Some(10));
    assert!(records[0].votes[0].independent);
    assert_eq!(records[0].arguments, json!({"n": 0}));
    run.holds_together();
}

#[test]
fn other_branches_of_the_workflow_continue_while_one_waits() {
    let steps = json!([
        agent("a", json!([]), "acts", json!({})),
        webhook("b", json!([]), "http://127.0.0.1:9/"),
    ]);
    let mut run = run_of(steps, json!({"n": 1}));
    run.asks("a");
    run.says("a", &[Say::Wants(vec!["delete-a"])]);
    run.says("a", &[gate(0, "delete-a")]);
    assert_eq!(
        run.state.status(),
        RunStatus::Running,
        "the webhook is under way"
    );
    run.answer("", "b", 1, 200);
    assert_eq!(run.state.status(), RunStatus::Waiting);
    assert_eq!(run.step("b")["status"], "complete");
}

#[test]
fn there_is_one_decision() {
    let mut run = gated("delete-a");
    run.decides("a", "ann", Approved, None).unwrap();
    let late = run.decides("a", "bob", Rejected, None);
    assert!(
        matches!(late, Err(ApprovalDecisionError::NotPending { .. })),
        "{late:?}"
    );
}

#[test]
fn a_rejection_fails_the_step_or_is_reported_to_the_model_as_the_policy_says() {
    let mut run = gated("delete-a");
    run.decides("a", "ann", Rejected, None).unwrap();
    assert_eq!(run.envelope()["error"]["code"], "approval_rejected");
    let message = &run.envelope()["error"]["message"];
    assert_eq!(*message, "tool call rejected by reviewer: delete-a");
    run.holds_together();

    let mut run = gated("ask-a");
    run.decides("a", "ann", Rejected, None).unwrap();
    malformed(&mut run, &[call(0, "s", "ask-a")]);
    run.says("a", &[Say::NotSent(0, UnsentReason::Rejected)]);
    ends(&mut run);
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn a_wait_that_is_over_fails_the_step_or_rejects_as_the_policy_says() {
    let mut run = gated("late-a");
    let expires = records(&run)[0].expires_at.unwrap();
    run.waits_too_long();
    assert!(run.frames.last().unwrap().at >= expires);
    assert_eq!(run.envelope()["error"]["code"], "approval_timed_out");
    assert_eq!(records(&run)[0].status, ApprovalStatus::Timeout);
    run.holds_together();

    let mut run = gated("soft-a");
    run.waits_too_long();
    run.says("a", &[Say::NotSent(0, UnsentReason::Rejected)]);
    ends(&mut run);
    run.holds_together();
}

#[test]
fn a_decision_after_the_end_of_the_wait_is_not_taken_though_no_timer_has_fired() {
    let mut run = gated("late-a");
    run.now += 5_000_000;
    let late = run.decides("a", "ann", Approved, None);
    assert!(
        matches!(late, Err(ApprovalDecisionError::Expired { .. })),
        "{late:?}"
    );
}

#[test]
fn a_quorum_takes_different_people_none_of_whom_started_the_run() {
    let mut run = gated("two-a");
    let own = run.decides("a", "local", Approved, None);
    assert!(
        matches!(own, Err(ApprovalDecisionError::Proposer { .. })),
        "{own:?}"
    );
    run.decides("a", "ann", Approved, None).unwrap();
    assert_eq!(run.state.status(), RunStatus::Waiting);
    let twice = run.decides("a", "ann", Approved, None);
    assert!(
        matches!(twice, Err(ApprovalDecisionError::Twice { .. })),
        "{twice:?}"
    );
    run.decides("a", "bob", Approved, None).unwrap();
    run.says("a", &[call(0, "s", "two-a")]);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run);
    assert_eq!(records(&run)[0].votes.len(), 2);
    run.holds_together();
}

#[test]
fn one_rejection_is_enough_and_whoever_started_the_run_may_reject() {
    let mut run = gated("two-a");
    run.decides("a", "ann", Approved, None).unwrap();
    run.decides("a", "local", Rejected, None).unwrap();
    assert_eq!(run.envelope()["error"]["code"], "approval_rejected");
    run.holds_together();
}

#[test]
fn several_gates_in_one_reply_are_decided_one_by_one() {
    let mut run = wants(&["delete-a", "read-a", "delete-b"]);
    run.says("a", &[call(1, "s", "read-a")]);
    let early = malformed(&mut run, &[gate(0, "delete-a")]);
    assert!(early.contains("approval.requested"), "{early}");
    run.says("a", &[Say::Result(1)]);
    run.says("a", &[gate(0, "delete-a"), gate(2, "delete-b")]);
    let ids: Vec<String> = records(&run)
        .iter()
        .map(|one| one.approval_id.clone())
        .collect();
    let which = run.decides("a", "ann", Approved, None);
    assert!(
        matches!(which, Err(ApprovalDecisionError::Several { .. })),
        "{which:?}"
    );
    run.decides("a", "ann", Approved, Some(&ids[1])).unwrap();
    assert_eq!(
        run.state.status(),
        RunStatus::Waiting,
        "the other still waits"
    );
    run.decides("a", "ann", Approved, Some(&ids[0])).unwrap();
    run.says("a", &[call(0, "s", "delete-a"), call(2, "s", "delete-b")]);
    run.says("a", &[Say::Result(2), Say::Result(0)]);
    ends(&mut run);
    run.is_whole();
    assert!(records(&run).iter().all(|one| one.not_called.is_none()));
}

#[test]
fn an_approved_call_that_the_end_of_its_step_kept_back_says_so() {
    let mut run = wants(&["delete-a", "delete-b"]);
    run.says("a", &[gate(0, "delete-a"), gate(1, "delete-b")]);
    let ids: Vec<String> = records(&run)
        .iter()
        .map(|one| one.approval_id.clone())
        .collect();
    run.decides("a", "ann", Approved, Some(&ids[0])).unwrap();
    assert_eq!(records(&run)[0].not_called, None, "it may be called yet");
    run.decides("a", "bob", Rejected, Some(&ids[1])).unwrap();
    assert_eq!(run.state.status(), RunStatus::Failed);
    let records = records(&run);
    let told = |at: usize| {
        let one: &ApprovalRecord = &records[at];
        (one.status, one.executed, one.not_called.as_deref())
    };
    assert_eq!(
        told(0),
        (ApprovalStatus::Approved, None, Some("step_ended"))
    );
    assert_eq!(told(1), (ApprovalStatus::Rejected, None, None));
}

#[test]
fn a_second_gate_in_a_later_turn_has_a_record_of_its_own() {
    let mut run = gated("delete-a");
    run.decides("a", "ann", Approved, None).unwrap();
    run.says("a", &[call(0, "s", "delete-a")]);
    run.says("a", &[Say::Result(0)]);
    run.asks("a");
    run.says("a", &[Say::Wants(vec!["delete-a"])]);
    run.says("a", &[gate(0, "delete-a")]);
    run.decides("a", "bob", Approved, None).unwrap();
    run.says("a", &[call(0, "s", "delete-a")]);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run);
    let records = records(&run);
    assert_ne!(records[0].approval_id, records[1].approval_id);
    run.holds_together();
}

#[test]
fn a_lost_call_is_sent_again_under_the_same_key_where_nothing_lasts() {
    let mut run = wants(&["read-a"]);
    run.says("a", &[call(0, "s", "read-a")]);
    let first = run.last("tool.called a");
    assert!(run.loses("a", LostReason::Heartbeat, true));
    malformed(&mut run, &[call(0, "t", "read-a")]);
    run.says("a", &[call(0, "s", "read-a")]);
    let again = run.last("tool.called a");
    assert_eq!(again["idempotency_key"], first["idempotency_key"]);
    assert_eq!(again["again"], 7);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run);
    run.holds_together();
}

fn doubted() -> Driven {
    let mut run = wants(&["write"]);
    run.says("a", &[call(0, "w", "write")]);
    assert!(run.loses("a", LostReason::Heartbeat, true));
    assert_eq!(run.kinds()[8..], ["worker.lost a", "tool.in_doubt a"]);
    assert_eq!(
        run.state.status(),
        RunStatus::Waiting,
        "a person has to say"
    );
    run
}

#[test]
fn a_lost_call_to_a_stateful_server_waits_for_a_person_who_sends_it_again() {
    let mut run = doubted();
    run.decides("a", "ann", Approved, None).unwrap();
    let first = run.last("tool.called a");
    run.says("a", &[call(0, "w", "write")]);
    let again = run.last("tool.called a");
    assert_eq!(again["idempotency_key"], first["idempotency_key"]);
    let sent = records(&run)[0].executed.unwrap();
    assert_eq!(run.frames[sent as usize].event.kind(), "tool.called");
    assert!(sent > records(&run)[0].votes[0].frame);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run);
    run.is_whole();
}

#[test]
fn a_lost_call_that_happened_is_reported_to_the_model_and_not_sent() {
    let mut run = doubted();
    run.decides("a", "ann", Happened, None).unwrap();
    malformed(&mut run, &[call(0, "w", "write")]);
    run.says("a", &[Say::Result(0)]);
    assert_eq!(run.last("tool.returned a")["called"], 7);
    ends(&mut run);
    assert_eq!(records(&run)[0].status, ApprovalStatus::Happened);
    run.is_whole();
}

#[test]
fn a_lost_call_that_is_not_to_be_sent_again_fails_the_step() {
    let mut run = doubted();
    run.decides("a", "ann", Rejected, None).unwrap();
    assert_eq!(run.envelope()["error"]["code"], "tool_in_doubt");
    run.is_whole();
}

#[test]
fn no_answer_of_a_stateful_server_waits_for_a_person_too() {
    let mut run = wants(&["write", "read-a"]);
    run.says("a", &[call(0, "w", "write"), call(1, "s", "read-a")]);
    run.says("a", &[Say::Result(1)]);
    run.says("a", &[Say::Doubt(0)]);
    assert_eq!(run.state.status(), RunStatus::Waiting);
    run.decides("a", "ann", Approved, None).unwrap();
    run.says("a", &[call(0, "w", "write")]);
    run.says("a", &[Say::Result(0)]);
    ends(&mut run);
    run.is_whole();
}

#[test]
fn only_a_call_in_doubt_can_have_happened() {
    let mut run = gated("delete-a");
    let said = run.decides("a", "ann", Happened, None);
    assert!(
        matches!(said, Err(ApprovalDecisionError::NotInDoubt { .. })),
        "{said:?}"
    );
}

#[test]
fn a_branch_from_right_after_a_loss_asks_people_again() {
    let mut run = gated("delete-a");
    run.decides("a", "ann", Approved, None).unwrap();
    run.says("a", &[call(0, "s", "delete-a")]);
    assert!(run.loses("a", LostReason::Heartbeat, true));
    let lost = run.kinds().iter().position(|kind| kind == "worker.lost a");
    for at in [lost.unwrap(), lost.unwrap() + 1, run.frames.len()] {
        let mut branch = run.branch(at, Effects::Suppress);
        let calls = branch.task("a").calls.as_ref().unwrap();
        assert_eq!(calls.list[0].state, CallState::Requested, "at {at}");
        branch.says("a", &[gate(0, "delete-a")]);
        branch.decides("a", "ann", Approved, None).unwrap();
        branch.says("a", &[call(0, "s", "delete-a")]);
        branch.says("a", &[Say::Result(0)]);
        ends(&mut branch);
        branch.is_whole();
    }
}

#[test]
fn a_branch_calls_what_lasts_only_if_it_is_to_execute_effects() {
    let run = wants(&["write", "read-a"]);
    let at = run.frames.len();
    let mut branch = run.branch(at, Effects::Suppress);
    let words = malformed(&mut branch, &[call(0, "w", "write")]);
    assert!(words.contains("does not change the world"), "{words}");
    let held = Say::NotSent(0, UnsentReason::SuppressedInBranch);
    branch.says("a", &[held]);
    branch.says("a", &[call(1, "s", "read-a")]);
    run.branch(at, Effects::Execute)
        .says("a", &[call(0, "w", "write")]);
}

#[test]
fn a_task_that_is_stopped_leaves_no_call_without_a_word() {
    let steps = json!([
        agent("a", json!([]), "acts", json!({})),
        agent("b", json!([]), "plain", json!({})),
    ]);
    let mut run = run_of(steps, json!({}));
    run.asks("a");
    run.says("a", &[Say::Wants(vec!["read-a"])]);
    run.says("a", &[call(0, "s", "read-a")]);
    run.errs("b", "broken", "it broke");
    assert_eq!(run.last("tool.in_doubt a")["reason"], "task_ended");
    run.holds_together();
}

#[test]
fn a_wait_ends_with_its_run() {
    let steps = json!([
        agent("a", json!([]), "acts", json!({})),
        agent("b", json!([]), "plain", json!({})),
    ]);
    let mut run = run_of(steps, json!({}));
    run.asks("a");
    run.says("a", &[Say::Wants(vec!["delete-a"])]);
    run.says("a", &[gate(0, "delete-a")]);
    run.errs("b", "broken", "it broke");
    assert_eq!(records(&run)[0].status, ApprovalStatus::Void);
    let late = run.decides("a", "ann", Approved, None);
    assert!(
        matches!(late, Err(ApprovalDecisionError::NotPending { .. })),
        "{late:?}"
    );
    run.holds_together();
}

#[test]
fn a_model_that_never_stops_ends_by_its_turns_with_a_decision_each() {
    let mut run = one();
    for _ in 0..3 {
        run.asks("a");
        run.says("a", &[Say::Wants(vec!["read-a"])]);
        run.says("a", &[call(0, "s", "read-a")]);
        run.says("a", &[Say::Result(0)]);
    }
    let outcome = json!({"error": {"code": "max_turns_exceeded", "message": "m"}});
    run.says("a", &[Say::End(FinishReason::MaxTurns, outcome, None)]);
    let decisions = run
        .kinds()
        .iter()
        .filter(|kind| *kind == "agent.decided a")
        .count();
    assert_eq!(decisions, 3);
    run.holds_together();
}

//! Outcomes that a person decides on before they count (seed 004; decision P3).

use std::collections::BTreeMap;

use ktsu_ledger::event::ReviewDecision::{Approved, Rejected};
use ktsu_ledger::event::{Effects, Principal, Sameness};
use serde_json::{Value, json};

use crate::admit::intervention::{OverlayCommand, overlay, resume};
use crate::admit::review::{ReviewCommand, ReviewDecisionError, decide};
use crate::admit::steer::{RunControl, steer};
use crate::driven_tests::{Driven, data};
use crate::plans_tests::{agent, merge, plan, workflow};
use crate::recompute::{RecordedRun, compare};

/// A run whose step `a` may ask for a review, emit and invoke `verify`; `b` takes what it gives.
fn run(policy: Value) -> Driven {
    Driven::invoke(run_plan(policy), json!({}))
}

fn run_plan(policy: Value) -> Value {
    let may = json!({"may_invoke": {"verify": {"concurrency": 1, "max_items": 3,
        "child": {"webhooks": "suppress", "workflow": "verify"}}}});
    let see = json!({"params": {"x": "{{ step.a.verdict }}"}});
    let steps = json!([
        agent("a", json!([]), "judge", may),
        agent("b", json!([0]), "plain", see)
    ]);
    let mut verify = workflow("verify", json!([agent("v", json!([]), "plain", json!({}))]));
    verify["params"] = json!({"properties": {"claim": {"type": "string"}}});
    let mut plan = plan(json!({"main": workflow("main", steps), "verify": verify}));
    let mut review = json!({"quorum": 1, "timeout": {"behavior": "fail", "ms": 60_000}});
    merge(&mut review, policy);
    plan["agents"]["judge"] = plan["agents"]["plain"].clone();
    merge(
        &mut plan["agents"]["judge"],
        json!({"name": "judge",
            "commands": {"emit": ["claim.*"], "invoke": ["verify"], "review": review},
            "output": {"type": "object", "properties": {"verdict": {"enum": ["yes", "no"]}}}}),
    );
    plan
}

/// An outcome that asks for a review, with commands beside it.
fn outcome(siblings: bool) -> Value {
    let mut commands = vec![json!({"type": "emit", "topic": "claim.seen", "payload": 1})];
    commands.push(json!({"type": "review", "reason": "they contradict each other"}));
    commands.push(json!({"type": "invoke", "step": "verify", "input": {"claim": "p"}}));
    if !siblings {
        commands = vec![commands.swap_remove(1)];
    }
    json!({"output": {"verdict": "yes"}, "events": [{"type": "looked"}], "commands": commands})
}

fn asked(policy: Value, siblings: bool) -> Driven {
    let mut run = run(policy);
    run.completes_with("a", outcome(siblings), Default::default());
    run
}

/// The types of the frames from a certain one on.
fn kinds_from(run: &Driven, first: &str) -> Vec<String> {
    let kinds = run.kinds();
    let at = kinds.iter().position(|kind| kind == first).unwrap();
    kinds[at..].to_vec()
}

#[test]
fn an_outcome_under_review_waits_for_a_person_and_no_other_step_sees_it() {
    let run = asked(json!({}), true);
    let frames = kinds_from(&run, "step.output_checked a");
    assert_eq!(
        frames,
        [
            "step.output_checked a",
            "command.requested a",
            "command.deferred a",
            "review.requested a"
        ]
    );
    assert_eq!(run.last("command.deferred a")["indexes"], json!([0, 2]));
    assert_eq!(run.step("a")["status"], "pending_approval");
    assert_eq!(run.step("a").get("output"), None);
    assert_eq!(run.step("b")["status"], "pending");
    assert_eq!(run.envelope()["status"], "waiting");
}

#[test]
fn once_it_is_approved_its_commands_are_carried_out_and_its_step_completes() {
    let mut run = asked(json!({}), true);
    run.reviews("a", "ann", (Approved, json!({}))).unwrap();
    assert_eq!(
        kinds_from(&run, "review.decided")[1..3],
        ["command.requested a", "a/verify.0:run.started"]
    );
    run.finishes("a/verify.0/v", json!({}));
    let frames = kinds_from(&run, "command.completed a");
    assert_eq!(
        frames[1..4],
        ["note a", "command.requested a", "step.completed a"]
    );
    run.finishes("b", json!({}));
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn without_other_commands_the_decision_completes_the_step_in_one_append() {
    let mut run = asked(json!({}), false);
    assert!(!run.kinds().contains(&"command.deferred a".to_owned()));
    run.reviews("a", "ann", (Approved, json!({}))).unwrap();
    let frames = kinds_from(&run, "review.decided");
    assert_eq!(
        frames[1..4],
        ["note a", "step.completed a", "step.started b"]
    );
    run.finishes("b", json!({}));
    run.holds_together();
}

#[test]
fn what_the_person_replaces_holds_for_every_later_step_and_is_an_overlay() {
    let mut run = asked(json!({}), true);
    run.reviews("a", "ann", (Approved, json!({"verdict": "no"})))
        .unwrap();
    run.finishes("a/verify.0/v", json!({}));
    let step = run.step("a");
    assert_eq!(step["output"], json!({"verdict": "no"}));
    assert_eq!(step["computed"], json!({"verdict": "yes"}));
    assert_eq!(step["overlay"], json!({"verdict": "no"}));
    let decided = run
        .frames
        .iter()
        .find(|frame| frame.event.kind() == "review.decided");
    let place = json!({"frame": decided.unwrap().seq, "path": "/overlay/verdict"});
    let given = &run.last("step.started b")["input"]["/params/x"];
    assert_eq!(given["ref"], place);
    assert_eq!(data(decided.unwrap())["overlay"], json!({"verdict": "no"}));
    assert!(!run.kinds().contains(&"overlay.set".to_owned()));
    run.finishes("b", json!({}));
    run.holds_together();
}

/// Completes the review of `a` and what follows it, then begins `a` again.
fn begins_again(run: &mut Driven, overlay: Value) {
    run.reviews("a", "ann", (Approved, overlay)).unwrap();
    run.finishes("b", json!({}));
    let by = run.state.proposer().clone();
    let again = resume(&run.state, Some("a".to_owned()), by, None, run.state.at());
    run.input(again.unwrap());
}

#[test]
fn what_a_review_replaced_does_not_hold_once_its_step_begins_again() {
    let mut run = asked(json!({}), false);
    begins_again(&mut run, json!({"verdict": "no"}));
    run.completes_with("a", outcome(false), Default::default());
    run.reviews("a", "bob", (Approved, json!({}))).unwrap();
    let step = run.step("a");
    assert_eq!(step["output"], json!({"verdict": "yes"}), "{step:#}");
    assert_eq!(step.get("overlay"), None);
    let place = run.last("step.started b")["input"]["/params/x"]["ref"]["path"].clone();
    assert_eq!(place, "/outcome/output/verdict");
    run.finishes("b", json!({}));
    run.is_whole();
}

#[test]
fn what_a_person_set_holds_when_its_step_begins_again_unless_a_review_replaced_it() {
    let set = |run: &mut Driven, value: &str| {
        let said = OverlayCommand {
            scope: String::new(),
            step: "a".to_owned(),
            field: "verdict".to_owned(),
            value: json!(value),
            reason: "as agreed".to_owned(),
            by: run.state.proposer().clone(),
        };
        let draft = overlay(&run.definition, &run.state, said).unwrap();
        run.input(draft);
    };
    for (replaced, expected) in [(json!({}), "no"), (json!({"verdict": "yes"}), "yes")] {
        let mut run = asked(json!({}), false);
        run.reviews("a", "ann", (Approved, json!({}))).unwrap();
        set(&mut run, "no");
        run.finishes("b", json!({}));
        let by = run.state.proposer().clone();
        let again = resume(&run.state, Some("a".to_owned()), by, None, run.state.at());
        run.input(again.unwrap());
        run.completes_with("a", outcome(false), Default::default());
        begins_again(&mut run, replaced);
        run.completes_with("a", outcome(false), Default::default());
        run.reviews("a", "bob", (Approved, json!({}))).unwrap();
        assert_eq!(run.step("a")["output"], json!({"verdict": expected}));
        run.finishes("b", json!({}));
        run.is_whole();
    }
}

#[test]
fn an_overlay_that_its_step_could_not_give_is_refused_and_nothing_is_recorded() {
    let mut run = asked(json!({}), true);
    let before = run.frames.len();
    for (overlay, words) in [
        (json!({"verdict": "maybe"}), "verdict"),
        (json!({"ktsu_confidence": 1}), "ktsu_confidence"),
    ] {
        let refused = run.reviews("a", "ann", (Approved, overlay)).unwrap_err();
        assert!(matches!(refused, ReviewDecisionError::Overlay(_)));
        let text = format!("{refused:?}");
        assert!(text.contains(words), "{text}");
    }
    let refused = run.reviews("a", "ann", (Rejected, json!({"verdict": "no"})));
    assert!(matches!(
        refused,
        Err(ReviewDecisionError::OverlayOfRejection)
    ));
    assert_eq!(run.frames.len(), before);
    run.reviews("a", "ann", (Rejected, json!({}))).unwrap();
    run.holds_together();
}

#[test]
fn a_rejection_discards_the_other_commands_and_fails_the_step_and_the_run() {
    let mut run = asked(json!({}), true);
    run.reviews("a", "ann", (Rejected, json!({}))).unwrap();
    assert_eq!(
        kinds_from(&run, "review.decided"),
        [
            "review.decided",
            "command.discarded a",
            "step.failed a",
            "step.skipped b",
            "run.failed"
        ]
    );
    let step = run.step("a");
    assert_eq!(step["error"]["code"], "review_rejected");
    let words = "rejected by ann: as the contract says";
    assert_eq!(step["error"]["message"], words);
    assert_eq!(step["raw_output"], json!({"verdict": "yes"}));
    let discarded = run.last("command.discarded a");
    assert_eq!(discarded["indexes"], json!([0, 2]));
    run.holds_together();
}

#[test]
fn a_review_is_decided_once_and_the_later_person_learns_what_was_decided() {
    let mut run = asked(json!({}), true);
    run.reviews("a", "ann", (Approved, json!({}))).unwrap();
    let late = run.reviews("a", "bob", (Rejected, json!({}))).unwrap_err();
    assert_eq!(
        late.to_string(),
        "the review of step \"a\" is over: it was approved"
    );
    let none = run.reviews("b", "bob", (Rejected, json!({}))).unwrap_err();
    assert!(matches!(none, ReviewDecisionError::NotPending { .. }));
    let mut run = asked(json!({}), true);
    run.reviews("a", "ann", (Rejected, json!({}))).unwrap();
    let late = run.reviews("a", "bob", (Approved, json!({}))).unwrap_err();
    assert!(late.to_string().ends_with("ann rejected it"), "{late}");
}

#[test]
fn whoever_was_judged_before_people_were_asked_decides_nothing() {
    let mut run = asked(json!({}), true);
    let said = |permitted| ReviewCommand {
        scope: String::new(),
        step: "a".to_owned(),
        review_id: None,
        permitted,
        decision: Approved,
        overlay: BTreeMap::new(),
        by: Principal {
            auth: "token".to_owned(),
            id: "ann".to_owned(),
        },
        reason: None,
    };
    let request = run.state.pending_reviews()[0].review.request;
    for earlier in [None, Some(request - 1)] {
        let refused = decide(&run.definition, &run.state, said(earlier), run.state.at());
        assert!(matches!(
            refused,
            Err(ReviewDecisionError::NotPending { .. })
        ));
    }
    let draft = decide(
        &run.definition,
        &run.state,
        said(Some(request)),
        run.state.at(),
    )
    .unwrap();
    run.input(draft);
    assert_eq!(kinds_from(&run, "review.decided")[0], "review.decided");
}

#[test]
fn a_quorum_is_of_different_people_without_whoever_started_the_run() {
    let mut run = asked(json!({"quorum": 2, "not_by_proposer": true}), false);
    let own = run
        .reviews("a", "local", (Approved, json!({})))
        .unwrap_err();
    assert!(matches!(own, ReviewDecisionError::Proposer { .. }));
    run.reviews("a", "ann", (Approved, json!({"verdict": "no"})))
        .unwrap();
    assert_eq!(run.step("a")["status"], "pending_approval");
    let twice = run.reviews("a", "ann", (Approved, json!({}))).unwrap_err();
    assert!(matches!(twice, ReviewDecisionError::Twice { .. }));
    run.reviews("a", "bob", (Approved, json!({}))).unwrap();
    assert_eq!(run.step("a")["output"], json!({"verdict": "no"}));
    run.finishes("b", json!({}));
    run.holds_together();
    let mut run = asked(json!({"quorum": 2}), false);
    run.reviews("a", "ann", (Approved, json!({}))).unwrap();
    run.reviews("a", "bob", (Rejected, json!({}))).unwrap();
    assert_eq!(run.step("a")["error"]["code"], "review_rejected");
    run.holds_together();
}

#[test]
fn votes_replace_different_fields_or_agree_and_a_vote_against_another_is_refused() {
    let policy = json!({"quorum": 3});
    let mut plan = run_plan(policy);
    plan["agents"]["judge"]["output"]["properties"]["sure"] = json!({"type": "integer"});
    let mut run = Driven::invoke(plan, json!({}));
    run.completes_with("a", outcome(false), Default::default());
    run.reviews("a", "ann", (Approved, json!({"verdict": "no"})))
        .unwrap();
    let before = run.frames.len();
    let other = json!({"verdict": "yes", "sure": 2});
    let refused = run.reviews("a", "bob", (Approved, other)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the field \"verdict\" is already replaced otherwise: ann approved with verdict = \"no\""
    );
    assert_eq!(run.frames.len(), before);
    let both = json!({"verdict": "no", "sure": 2});
    run.reviews("a", "bob", (Approved, both)).unwrap();
    run.reviews("a", "eva", (Approved, json!({}))).unwrap();
    let output = run.step("a")["output"].clone();
    assert_eq!(output, json!({"verdict": "no", "sure": 2}));
    run.finishes("b", json!({}));
    run.holds_together();
}

#[test]
fn a_review_that_is_not_decided_in_time_fails_or_rejects_as_its_policy_says() {
    let mut run = asked(json!({}), true);
    run.waits_too_long_for_people();
    let frames = kinds_from(&run, "timer.fired");
    assert_eq!(frames[1], "step.failed a");
    let error = &run.step("a")["error"];
    assert_eq!(error["code"], "review_timed_out");
    assert_eq!(
        error["message"],
        "there was no decision on the review within 1m"
    );
    run.holds_together();
    let mut run = asked(json!({"timeout": {"behavior": "reject", "ms": 1000}}), true);
    run.waits_too_long_for_people();
    let frames = kinds_from(&run, "timer.fired");
    assert_eq!(frames[1..3], ["command.discarded a", "step.failed a"]);
    assert_eq!(run.step("a")["error"]["code"], "review_rejected");
    run.holds_together();
}

#[test]
fn a_skip_and_a_fatal_field_win_over_a_review() {
    let ends = |field: Value| {
        let mut run = run(json!({}));
        let mut skips = outcome(true);
        merge(&mut skips["output"], field);
        run.completes_with("a", skips, Default::default());
        assert!(!run.kinds().iter().any(|kind| kind.contains("review")));
        run.holds_together();
        run.step("a")
    };
    let skipped = ends(json!({"ktsu_skip_reason": "nothing to decide"}));
    assert_eq!(skipped["status"], "skipped");
    let failed = ends(json!({"ktsu_needs_human": true}));
    assert_eq!(failed["error"]["code"], "needs_human_review");
}

#[test]
fn a_review_that_is_not_declared_or_of_an_item_fails_with_nothing_committed() {
    let mut plan = run_plan(json!({}));
    plan["agents"]["judge"]["commands"]["review"].take();
    let mut run = Driven::invoke(plan, json!({}));
    run.completes_with("a", outcome(true), Default::default());
    assert_eq!(run.step("a")["error"]["code"], "command_not_permitted");
    assert!(!run.kinds().iter().any(|kind| kind.starts_with("command.")));
    run.holds_together();
    let mut plan = run_plan(json!({}));
    let each = json!({"concurrency": 0, "max_failures": 0, "from": "params.list"});
    plan["workflows"]["main"]["steps"][0]["work"]["agent"]["for_each"] = each.clone();
    let steps = plan["workflows"]["main"]["steps"].to_string();
    assert!(steps.contains("for_each"), "{steps}");
    let mut run = Driven::invoke(plan, json!({"list": [1]}));
    run.completes_with("a.0", outcome(false), Default::default());
    let failed = run.last("item.failed a.0");
    assert_eq!(failed["code"], "command_not_permitted");
    run.holds_together();
}

#[test]
fn a_review_of_a_cancelled_run_is_void() {
    let mut run = asked(json!({}), true);
    let by = Principal {
        auth: "none".to_owned(),
        id: "local".to_owned(),
    };
    let draft = steer(&run.state, RunControl::Cancel, by, None).unwrap();
    run.input(draft);
    assert_eq!(run.envelope()["status"], "cancelled");
    let late = run.reviews("a", "ann", (Approved, json!({}))).unwrap_err();
    let words = "the run ended before a decision";
    assert!(late.to_string().ends_with(words), "{late}");
    run.is_whole();
}

#[test]
fn a_branch_asks_again_before_the_decision_and_keeps_it_after() {
    let mut run = asked(json!({}), true);
    let pending = run.frames.len();
    run.reviews("a", "ann", (Approved, json!({"verdict": "no"})))
        .unwrap();
    let decided = pending + 1;
    run.finishes("a/verify.0/v", json!({}));
    run.finishes("b", json!({}));
    let mut before = run.branch(pending, Effects::Suppress);
    assert_eq!(before.kinds().last().unwrap(), "review.requested a");
    before.reviews("a", "bob", (Rejected, json!({}))).unwrap();
    assert_eq!(before.step("a")["error"]["code"], "review_rejected");
    before.is_whole();
    let mut after = run.branch(decided, Effects::Suppress);
    after.finishes("a/verify.0/v", json!({}));
    assert_eq!(after.step("a")["output"], json!({"verdict": "no"}));
    after.finishes("b", json!({}));
    after.is_whole();
}

#[test]
fn a_recompute_asks_no_one_and_compares_what_was_commanded() {
    for (decision, again, expected) in [
        (Approved, outcome(true), Sameness::Clean),
        (Rejected, outcome(true), Sameness::Clean),
        (Approved, outcome(false), Sameness::ValueChanged),
    ] {
        let mut run = run(json!({}));
        run.asks("a");
        run.replies("a", 1);
        run.completes_with("a", outcome(true), Default::default());
        run.reviews("a", "ann", (decision, json!({}))).unwrap();
        if decision == Approved {
            run.finishes("a/verify.0/v", json!({}));
            run.finishes("b", json!({}));
        }
        let recorded = RecordedRun::from_frames(&run.frames).unwrap();
        let mut recomputed = run.recompute();
        recomputed.asks("a.0");
        recomputed.replies("a.0", 1);
        recomputed.completes_with("a.0", again, Default::default());
        let kinds = recomputed.kinds();
        assert!(!kinds.iter().any(|kind| kind.starts_with("review.")));
        let compared = compare(&recorded, &recomputed.frames).unwrap();
        let task = compared.tasks.into_iter().find(|task| task.step == "a");
        assert_eq!(task.unwrap().status, expected, "{decision:?}");
    }
}

/// How `a` fails whose outcome has these commands beside its output.
fn refused(rules: u32, commands: Value) -> (Value, Value) {
    let mut plan = run_plan(json!({}));
    plan["agents"]["judge"]["commands"]["invoke"] = json!(["verify", "other"]);
    let mut run = Driven::invoke_under(rules, plan, json!({}));
    let outcome = json!({"output": {"verdict": "yes"}, "commands": commands});
    run.completes_with("a", outcome, Default::default());
    assert!(!run.kinds().iter().any(|kind| kind.starts_with("command.")));
    run.is_whole();
    let error = run.step("a")["error"].clone();
    (error["code"].clone(), error["message"].clone())
}

#[test]
fn a_refused_command_is_named_by_its_place_and_type_and_says_why() {
    let emit = json!({"type": "emit", "topic": "claim.seen", "payload": 1});
    let verify =
        |claim: Value| json!({"type": "invoke", "step": "verify", "input": {"claim": claim}});
    for (command, code, message) in [
        (
            json!({"type": "emit", "topic": "order.made", "payload": 1}),
            "command_not_permitted",
            "emit at /commands/2: the agent does not declare that it emits \"order.made\"",
        ),
        (
            json!({"type": "invoke", "step": "tell", "input": {}}),
            "command_not_permitted",
            "invoke at /commands/2: the agent does not declare that it invokes \"tell\"",
        ),
        (
            json!({"type": "invoke", "step": "other", "input": {}}),
            "command_not_permitted",
            "invoke at /commands/2: the step does not declare \"other\" in may_invoke",
        ),
        (
            json!({"type": "fanout", "step": "verify", "inputs": [{}, {}, {}, {}]}),
            "outcome_invalid",
            "fanout at /commands/2: the fanout of \"verify\" has 4 inputs, and may have 3",
        ),
        (
            json!({"type": "fanout", "step": "verify", "inputs": [{}, {"claim": 1}]}),
            "invalid_params",
            "fanout at /commands/2: input 1 of \"verify\" does not fit its params: \
             expected string, got integer at /claim",
        ),
        (
            json!({"type": "emit", "topic": "", "payload": 1}),
            "outcome_invalid",
            "emit: its topic is empty at /commands/2/topic",
        ),
        (
            emit.clone(),
            "outcome_invalid",
            "emit: it is the same as one before it at /commands/2",
        ),
        (
            json!({"type": "emit", "topic": "claim.seen"}),
            "outcome_invalid",
            "emit has no member \"payload\" at /commands/2",
        ),
        (
            json!({"type": "review", "reason": 1}),
            "outcome_invalid",
            "review: expected a string, got a number at /commands/2/reason",
        ),
    ] {
        let commands = json!([emit, verify(json!("p")), command]);
        let found = refused(7, commands);
        assert_eq!(found, (json!(code), json!(message)));
    }
    let both = json!([
        {"type": "review", "reason": "r"},
        emit,
        {"type": "review", "reason": "s"}
    ]);
    let words =
        "review: the outcome has more than one command that the step waits for at /commands/2";
    assert_eq!(refused(7, both), (json!("outcome_invalid"), json!(words)));
}

#[test]
fn runs_of_earlier_rules_keep_the_words_for_refused_commands() {
    let emit = json!([{"type": "emit", "topic": "order.made", "payload": 1}]);
    let words = "the agent does not declare that it emits \"order.made\"";
    let expected = (json!("command_not_permitted"), json!(words));
    assert_eq!(refused(6, emit), expected);
    let empty = json!([{"type": "emit", "topic": "", "payload": 1}]);
    let words = "its topic is empty at /commands/0/topic";
    let expected = (json!("outcome_invalid"), json!(words));
    assert_eq!(refused(6, empty), expected);
}

//! Steps that wait for data, and run again with them (seed 004; decisions P3, W5).

use ktsu_ledger::event::{Effects, Principal, Sameness};
use ktsu_projections::life::suspension::Resumption;
use ktsu_projections::run::StepKey;
use serde_json::{Value, json};

use crate::admit::steer::{RunControl, steer};
use crate::admit::suspend::StepResumptionError;
use crate::driven_tests::{Driven, data};
use crate::plans_tests::{agent, merge, plan, workflow};
use crate::recompute::{RecordedRun, compare, is_of_commands};

/// A run whose step `a` may wait for data, emit and invoke; `b` takes what it gives.
fn run() -> Driven {
    Driven::invoke(run_plan(), json!({}))
}

fn run_plan() -> Value {
    let own = json!({
        "may_invoke": {"verify": {"concurrency": 1, "max_items": 3,
            "child": {"webhooks": "suppress", "workflow": "verify"}}},
        "params": {"page": "{{ resume.checkpoint.page }}", "text": "{{ resume.data.text }}",
            "all": "{{ resume }}"},
        "resume": {"timeout_ms": 60_000, "schema": {"type": "object", "required": ["text"],
            "properties": {"text": {"type": "string"}}}},
    });
    let see = json!({"params": {"x": "{{ step.a.verdict }}"}});
    let steps = json!([
        agent("first", json!([]), "plain", json!({})),
        agent("a", json!([0]), "judge", own),
        agent("b", json!([1]), "plain", see)
    ]);
    let verify = workflow("verify", json!([agent("v", json!([]), "plain", json!({}))]));
    let mut plan = plan(json!({"main": workflow("main", steps), "verify": verify}));
    plan["agents"]["judge"] = plan["agents"]["plain"].clone();
    let suspend = json!({"roles": ["operator"], "timeout_ms": 1000});
    merge(
        &mut plan["agents"]["judge"],
        json!({"name": "judge",
            "commands": {"emit": ["claim.*"], "invoke": ["verify"], "suspend": suspend},
            "output": {"type": "object", "required": ["verdict"],
                "properties": {"verdict": {"enum": ["yes", "no"]}}}}),
    );
    plan
}

/// An outcome that asks for a document; its output is none that would pass.
fn outcome(siblings: bool) -> Value {
    let mut commands = vec![
        json!({"type": "emit", "topic": "claim.seen", "payload": 1}),
        json!({"type": "suspend", "reason": "the contract is missing",
            "checkpoint": {"page": 3}}),
        json!({"type": "invoke", "step": "verify", "input": {}}),
    ];
    if !siblings {
        commands = vec![commands.swap_remove(1)];
    }
    json!({"output": {"so_far": 1}, "events": [{"type": "looked"}], "commands": commands})
}

fn suspended(siblings: bool) -> Driven {
    let mut run = run();
    run.finishes("first", json!({}));
    run.completes_with("a", outcome(siblings), Default::default());
    run
}

fn text(words: &str) -> Value {
    json!({"text": words})
}

fn kinds_from(run: &Driven, first: &str) -> Vec<String> {
    let kinds = run.kinds();
    let at = kinds.iter().rposition(|kind| kind == first).unwrap();
    kinds[at..].to_vec()
}

#[test]
fn a_suspended_step_discards_its_other_commands_keeps_its_events_and_waits() {
    let run = suspended(true);
    assert_eq!(
        kinds_from(&run, "agent.finished a"),
        [
            "agent.finished a",
            "command.requested a",
            "command.discarded a",
            "note a",
            "suspend.requested a"
        ]
    );
    assert_eq!(run.last("command.requested a")["type"], "suspend");
    assert_eq!(run.last("command.discarded a")["indexes"], json!([0, 2]));
    let asked = run.last("suspend.requested a");
    assert_eq!(asked["policy"]["timeout_ms"], 60_000, "as the step says");
    assert_eq!(
        asked["policy"]["roles"],
        json!(["operator"]),
        "as the agent says"
    );
    assert_eq!(asked["policy"]["schema"]["required"], json!(["text"]));
    assert_eq!(run.step("a")["status"], "pending_approval");
    assert_eq!(run.step("a").get("output"), None);
    assert_eq!(run.envelope()["status"], "waiting");
}

#[test]
fn with_the_data_the_step_runs_again_and_its_params_have_them_and_the_checkpoint() {
    let mut run = suspended(true);
    run.resumes_step("a", "ann", text("clause 7")).unwrap();
    assert_eq!(
        kinds_from(&run, "suspend.resumed"),
        [
            "suspend.resumed",
            "step.reset a",
            "step.started a",
            "worker.dispatched a"
        ]
    );
    let started = run.last("step.started a");
    assert_eq!(started["attempt"], 2);
    let resumed = run
        .frames
        .iter()
        .find(|one| one.event.kind() == "suspend.resumed");
    let resumed = resumed.unwrap().seq;
    assert_eq!(
        started["input"]["/params/text"],
        json!({"ref": {"frame": resumed, "path": "/data/text"}})
    );
    let place = &started["input"]["/params/page"]["ref"]["path"];
    assert_eq!(place, "/outcome/commands/1/checkpoint/page");
    let all = &started["input"]["/params/all"]["value"]["value"];
    assert_eq!(
        all,
        &json!({"checkpoint": {"page": 3}, "data": text("clause 7")})
    );
    run.finishes("a", json!({"verdict": "yes"}));
    assert_eq!(run.last("step.completed a")["attempt"], 2);
    run.finishes("b", json!({}));
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn both_are_null_before_the_first_suspension() {
    let mut run = run();
    run.finishes("first", json!({}));
    let input = &run.last("step.started a")["input"];
    assert_eq!(input["/params/text"]["value"]["value"], json!(null));
    assert_eq!(
        input["/params/all"]["value"]["value"],
        json!({"checkpoint": null, "data": null})
    );
}

#[test]
fn a_step_may_be_suspended_again_and_each_suspension_has_its_own_data() {
    let mut run = suspended(false);
    for (round, words) in ["one", "two", "three", "four", "five"]
        .into_iter()
        .enumerate()
    {
        run.resumes_step("a", "ann", text(words)).unwrap();
        let started = run.last("step.started a");
        assert_eq!(started["attempt"], round + 2, "not bounded as losses are");
        run.completes_with("a", outcome(false), Default::default());
    }
    run.resumes_step("a", "ann", text("six")).unwrap();
    run.finishes("a", json!({"verdict": "no"}));
    run.finishes("b", json!({}));
    run.holds_together();
}

#[test]
fn data_come_once_and_what_does_not_fit_the_schema_is_refused_and_recorded_nowhere() {
    let mut run = suspended(true);
    let before = run.frames.len();
    let refused = run
        .resumes_step("a", "ann", json!({"text": 5}))
        .unwrap_err();
    assert!(matches!(refused, StepResumptionError::Data { .. }));
    let words = refused.to_string();
    assert!(words.contains("expected string, got integer"), "{words}");
    assert!(words.contains("/text"), "{words}");
    let other = run.resumes_step("b", "ann", text("x")).unwrap_err();
    assert!(matches!(other, StepResumptionError::NotPending { .. }));
    assert_eq!(run.frames.len(), before);
    run.resumes_step("a", "ann", text("x")).unwrap();
    let late = run.resumes_step("a", "bob", text("y")).unwrap_err();
    assert_eq!(
        late.to_string(),
        "the suspension of step \"a\" is over: it has its data"
    );
}

#[test]
fn data_that_do_not_come_in_time_fail_the_step() {
    let mut run = suspended(true);
    run.waits_too_long_for_people();
    assert_eq!(kinds_from(&run, "timer.fired")[1], "step.failed a");
    let error = run.step("a")["error"].clone();
    assert_eq!(error["code"], "suspend_timed_out");
    assert_eq!(error["message"], "the data did not come within 1m");
    let late = run.resumes_step("a", "ann", text("x")).unwrap_err();
    let words = late.to_string();
    assert!(words.ends_with("the data did not come in time"), "{words}");
    run.holds_together();
}

#[test]
fn a_skip_and_a_fatal_field_win_over_a_suspension() {
    let ends = |field: Value| {
        let mut run = run();
        run.finishes("first", json!({}));
        let mut skips = outcome(true);
        merge(&mut skips["output"], field);
        run.completes_with("a", skips, Default::default());
        assert!(!run.kinds().iter().any(|kind| kind.contains("suspend")));
        run.holds_together();
        run.step("a")
    };
    let skipped = ends(json!({"ktsu_skip_reason": "nothing to decide"}));
    assert_eq!(skipped["status"], "skipped");
    let failed = ends(json!({"ktsu_needs_human": true}));
    assert_eq!(failed["error"]["code"], "needs_human_review");
}

#[test]
fn a_suspension_that_is_not_declared_of_an_item_or_for_another_step_commits_nothing() {
    let fails = |plan: Value, outcome: Value, code: &str| {
        let mut run = Driven::invoke(plan, json!({}));
        run.finishes("first", json!({}));
        run.completes_with("a", outcome, Default::default());
        assert_eq!(run.step("a")["error"]["code"], code);
        assert!(!run.kinds().iter().any(|kind| kind.starts_with("command.")));
        assert!(!run.kinds().iter().any(|kind| kind.starts_with("note")));
        run.holds_together();
    };
    let mut plan = run_plan();
    plan["agents"]["judge"]["commands"]["suspend"].take();
    fails(plan, outcome(true), "command_not_permitted");
    let mut elsewhere = outcome(false);
    elsewhere["commands"][0]["resumeStep"] = json!("b");
    fails(run_plan(), elsewhere, "command_not_supported");
    let mut plan = run_plan();
    let each = json!({"concurrency": 0, "max_failures": 0, "from": "params.list"});
    let step = &mut plan["workflows"]["main"]["steps"][1]["work"]["agent"];
    step["for_each"] = each;
    step["params"] = json!({});
    let mut run = Driven::invoke(plan, json!({"list": [1]}));
    run.finishes("first", json!({}));
    run.completes_with("a.0", outcome(false), Default::default());
    let failed = run.last("item.failed a.0");
    assert_eq!(failed["code"], "command_not_permitted");
    run.holds_together();
}

fn person() -> Principal {
    Principal {
        auth: "none".to_owned(),
        id: "local".to_owned(),
    }
}

#[test]
fn a_suspension_of_a_cancelled_run_is_void() {
    let mut run = suspended(true);
    let draft = steer(&run.state, RunControl::Cancel, person(), None).unwrap();
    run.input(draft);
    assert_eq!(run.envelope()["status"], "cancelled");
    let late = run.resumes_step("a", "ann", text("x")).unwrap_err();
    let words = "the run ended before the data came";
    assert!(late.to_string().ends_with(words), "{late}");
    run.is_whole();
}

#[test]
fn data_in_a_pause_are_recorded_and_the_step_begins_again_once_the_run_is_resumed() {
    let mut run = suspended(true);
    let draft = steer(&run.state, RunControl::Pause, person(), None).unwrap();
    run.input(draft);
    run.resumes_step("a", "ann", text("x")).unwrap();
    assert_eq!(run.kinds().last().unwrap(), "suspend.resumed");
    run.resumes(None).unwrap();
    let frames = kinds_from(&run, "run.resumed");
    assert_eq!(frames[1..3], ["step.reset a", "step.started a"]);
    run.finishes("a", json!({"verdict": "yes"}));
    run.finishes("b", json!({}));
    run.is_whole();
}

fn given(run: &Driven) -> Option<Resumption> {
    run.state.resumption(StepKey::of(0, 1)).cloned()
}

#[test]
fn a_step_that_a_person_begins_again_keeps_its_data_unless_what_it_needs_begins_again() {
    let mut run = suspended(true);
    run.resumes_step("a", "ann", text("x")).unwrap();
    run.completes_with(
        "a",
        json!({"error": {"code": "down", "message": "m", "retryable": false}}),
        Default::default(),
    );
    assert_eq!(run.envelope()["status"], "failed");
    run.resumes(Some("a")).unwrap();
    let kept = given(&run).expect("no one is asked twice");
    assert_eq!(kept.data.to_value(), text("x"));
    run.completes_with("a", json!({"error": {"code": "down"}}), Default::default());
    run.resumes(Some("first")).unwrap();
    assert_eq!(given(&run), None, "what it needs may be another thing now");
    run.finishes("first", json!({}));
    run.completes_with("a", outcome(false), Default::default());
    run.resumes_step("a", "ann", text("y")).unwrap();
    run.finishes("a", json!({"verdict": "yes"}));
    run.finishes("b", json!({}));
    run.is_whole();
}

#[test]
fn a_cancel_discards_the_data_that_came_in_a_pause() {
    for from in ["a", "first"] {
        let mut run = suspended(true);
        let pause = steer(&run.state, RunControl::Pause, person(), None).unwrap();
        run.input(pause);
        run.resumes_step("a", "ann", text("x")).unwrap();
        let cancel = steer(&run.state, RunControl::Cancel, person(), None).unwrap();
        run.input(cancel);
        assert_eq!(run.envelope()["status"], "cancelled");
        run.resumes(Some(from)).unwrap();
        assert_eq!(given(&run), None, "{from}");
        if from == "first" {
            run.finishes("first", json!({}));
        }
        run.completes_with("a", outcome(false), Default::default());
        run.resumes_step("a", "ann", text("y")).unwrap();
        assert_eq!(given(&run).unwrap().data.to_value(), text("y"));
        run.finishes("a", json!({"verdict": "yes"}));
        run.finishes("b", json!({}));
        run.is_whole();
    }
}

#[test]
fn a_branch_asks_again_before_the_data_and_has_them_after() {
    let mut run = suspended(true);
    let pending = run.frames.len();
    run.resumes_step("a", "ann", text("x")).unwrap();
    run.finishes("a", json!({"verdict": "no"}));
    run.finishes("b", json!({}));
    let mut before = run.branch(pending, Effects::Suppress);
    assert_eq!(before.kinds().last().unwrap(), "suspend.requested a");
    before.resumes_step("a", "bob", text("other")).unwrap();
    before.finishes("a", json!({"verdict": "yes"}));
    before.finishes("b", json!({}));
    before.is_whole();
    for at in 1..=3 {
        let mut after = run.branch(pending + at, Effects::Suppress);
        let kept = given(&after).expect("the data hold");
        assert_eq!(kept.data.to_value(), text("x"), "{at} frames after");
        after.finishes("a", json!({"verdict": "yes"}));
        after.finishes("b", json!({}));
        after.is_whole();
    }
}

#[test]
fn a_suspension_in_an_invoked_workflow_and_a_child_waits_and_resumes_there() {
    let mut plan = run_plan();
    let steps = plan["workflows"]["main"]["steps"].clone();
    let inner = workflow("inner", steps);
    let child = json!({"id": "call", "needs": [], "work":
        {"workflow": {"webhooks": "suppress", "workflow": "inner"}}});
    plan["workflows"]["inner"] = inner;
    plan["workflows"]["main"] = workflow("main", json!([child]));
    let mut run = Driven::invoke(plan, json!({}));
    run.finishes("call/first", json!({}));
    run.completes_with("call/a", outcome(true), Default::default());
    assert_eq!(run.envelope()["status"], "waiting");
    run.resumes_step("call/a", "ann", text("x")).unwrap();
    assert_eq!(run.last("call:step.started a")["attempt"], 2);
    run.finishes("call/a", json!({"verdict": "yes"}));
    run.finishes("call/b", json!({}));
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn a_recompute_asks_the_attempt_that_counts_again_and_no_person() {
    for (again, expected) in [
        (json!({"output": {"verdict": "yes"}}), Sameness::Clean),
        (json!({"output": {"verdict": "no"}}), Sameness::ValueChanged),
        (outcome(true), Sameness::ValueChanged),
    ] {
        let mut run = suspended(true);
        run.resumes_step("a", "ann", text("x")).unwrap();
        run.asks("a");
        run.replies("a", 1);
        run.finishes("a", json!({"verdict": "yes"}));
        run.finishes("b", json!({}));
        let recorded = RecordedRun::from_frames(&run.frames).unwrap();
        let mut recomputed = run.recompute();
        recomputed.asks("a.0");
        recomputed.replies("a.0", 1);
        recomputed.completes_with("a.0", again, Default::default());
        let kinds = recomputed.kinds();
        assert!(!kinds.iter().any(|kind| kind.starts_with("suspend.")));
        let compared = compare(&recorded, &recomputed.frames).unwrap();
        let task = compared.tasks.into_iter().find(|task| task.step == "a");
        assert_eq!(task.unwrap().status, expected);
        assert!(
            data(&recomputed.frames[0])["params"]
                .to_string()
                .contains('x')
        );
    }
}

#[test]
fn a_recompute_of_a_run_that_waited_in_vain_finds_the_same_question() {
    let elsewhere = json!({"output": {}, "commands": [
        {"type": "suspend", "reason": "another paper is missing", "checkpoint": {"page": 4}}]});
    for (again, changed) in [(outcome(true), false), (elsewhere, true)] {
        let mut run = suspended(true);
        run.waits_too_long_for_people();
        let recorded = RecordedRun::from_frames(&run.frames).unwrap();
        let mut recomputed = run.recompute();
        recomputed.asks("a.0");
        recomputed.replies("a.0", 1);
        recomputed.completes_with("a.0", again, Default::default());
        let compared = compare(&recorded, &recomputed.frames).unwrap();
        let task = compared.tasks.into_iter().find(|task| task.step == "a");
        let task = task.unwrap();
        let found = task.diff.iter().any(is_of_commands);
        assert_eq!(found, changed, "{task:?}");
        assert_eq!(task.diff.is_empty(), !changed, "{task:?}");
    }
}

#[test]
fn whoever_was_judged_before_the_data_were_asked_for_gives_none() {
    let mut run = run();
    run.finishes("first", json!({}));
    let early = run.resumption("a", "ann", text("x"));
    run.completes_with("a", outcome(true), Default::default());
    let before = run.frames.len();
    let refused = run.gives(early).unwrap_err();
    assert!(matches!(refused, StepResumptionError::NotPending { .. }));
    assert_eq!(run.frames.len(), before);
    let judged = run.resumption("a", "ann", text("x"));
    run.gives(judged).unwrap();
}

//! Steps that another resumes: its definition makes the output of the suspended step (seed 004).

use std::sync::Arc;

use ktsu_ledger::event::{Effects, Principal, Sameness};
use serde_json::{Value, json};

use crate::admit::steer::{RunControl, steer};
use crate::definition::Definition;
use crate::driven_tests::{Driven, data};
use crate::plans_tests::{agent, merge, plan, workflow};
use crate::recompute::{RecordedRun, compare};
use crate::simulate::{self, Divergence, simulate};

/// A run whose step `a` may wait for data and be resumed to `read`; `b` takes what it gives, and `more`
/// needs what `a` does not.
fn run_plan() -> Value {
    let suspends =
        json!({"resume": {"timeout_ms": 60_000}, "params": {"text": "{{ resume.data }}"}});
    let reads = json!({"on_resume": true, "params": {
        "page": "{{ resume.checkpoint.page }}", "text": "{{ resume.data.text }}",
        "first": "{{ step.first.v }}"}});
    let see = json!({"params": {"x": "{{ step.a.verdict }}"}});
    let more = json!({"on_resume": true, "params": {"x": "{{ step.aside.v }}"}});
    let steps = json!([
        agent("first", json!([]), "plain", json!({})),
        agent("a", json!([0]), "asks", suspends),
        agent("b", json!([1]), "plain", see),
        agent("read", json!([0]), "reads", reads),
        agent("aside", json!([]), "plain", json!({})),
        agent("more", json!([4]), "reads", more),
    ]);
    let mut plan = plan(json!({"main": workflow("main", steps)}));
    for name in ["asks", "reads"] {
        plan["agents"][name] = plan["agents"]["plain"].clone();
        plan["agents"][name]["name"] = json!(name);
    }
    let suspend = json!({"suspend": {"roles": ["operator"], "timeout_ms": 1000}});
    plan["agents"]["asks"]["commands"] = suspend;
    merge(
        &mut plan["agents"]["reads"],
        json!({"output": {"type": "object", "required": ["verdict"],
            "properties": {"verdict": {"enum": ["yes", "no"]}}}}),
    );
    plan
}

fn outcome(resume_step: &str) -> Value {
    json!({"output": {}, "commands": [{"type": "suspend", "reason": "the contract is missing",
        "checkpoint": {"page": 3}, "resumeStep": resume_step}]})
}

/// A run whose step `a` waits for data for this step.
fn suspended(resume_step: &str) -> Driven {
    let mut run = Driven::invoke(run_plan(), json!({}));
    run.finishes("first", json!({"v": 1}));
    run.finishes("aside", json!({"v": 1}));
    run.completes_with("a", outcome(resume_step), Default::default());
    run
}

fn text(words: &str) -> Value {
    json!({"text": words})
}

#[test]
fn the_next_attempt_runs_by_the_step_that_resumes_it_and_gives_the_output_of_the_suspended_one() {
    let mut run = suspended("read");
    assert_eq!(run.step("read")["status"], "skipped");
    assert_eq!(run.last("step.skipped read")["reason"], "on_resume");
    run.resumes_step("a", "ann", text("clause 7")).unwrap();
    let started = run.last("step.started a");
    assert_eq!(started["attempt"], 2);
    assert_eq!(started["resume_step"], "read");
    let given = started["input"].as_object().unwrap();
    let places: Vec<&String> = given.keys().collect();
    assert_eq!(places, ["/params/first", "/params/page", "/params/text"]);
    let path = &given["/params/page"]["ref"]["path"];
    assert_eq!(path, "/outcome/commands/0/checkpoint/page");
    run.finishes("a", json!({"verdict": "yes"}));
    assert_eq!(run.step("a")["output"]["verdict"], "yes");
    run.finishes("b", json!({}));
    assert_eq!(run.envelope()["status"], "complete");
    let refused = run.resumes(Some("read")).unwrap_err().to_string();
    assert!(refused.contains("runs only in place of"), "{refused}");
    run.holds_together();
}

/// A run that was resumed to `read`, and has not ended.
fn resumed() -> Driven {
    let mut run = suspended("read");
    run.resumes_step("a", "ann", text("clause 7")).unwrap();
    run
}

fn ends(run: &mut Driven) {
    run.finishes("a", json!({"verdict": "yes"}));
    run.finishes("b", json!({}));
    assert_eq!(run.envelope()["status"], "complete");
    run.is_whole();
}

#[test]
fn its_output_passes_the_schemas_of_both_steps() {
    let mut run = resumed();
    run.finishes("a", json!({"verdict": "perhaps"}));
    let error = run.step("a")["error"].clone();
    assert_eq!(error["code"], "schema_violation");
    run.holds_together();

    let mut plan = run_plan();
    let narrow = json!({"properties": {"verdict": {"const": "no"}}});
    plan["workflows"]["main"]["steps"][1]["schema"] = narrow;
    let mut run = Driven::invoke(plan, json!({}));
    run.finishes("first", json!({"v": 1}));
    run.finishes("aside", json!({"v": 1}));
    run.completes_with("a", outcome("read"), Default::default());
    run.resumes_step("a", "ann", text("clause 7")).unwrap();
    run.finishes("a", json!({"verdict": "yes"}));
    assert_eq!(run.step("a")["error"]["code"], "schema_violation");
    assert_eq!(run.envelope()["status"], "failed");
    run.holds_together();
}

#[test]
fn a_step_is_resumed_only_to_one_that_is_declared_so_and_needs_no_more() {
    for (name, words) in [
        ("b", "\"b\" is not a step declared on: resume"),
        ("nothing", "\"nothing\" is not a step declared on: resume"),
        (
            "more",
            "\"more\" needs aside, which the step \"a\" does not need",
        ),
    ] {
        let run = suspended(name);
        let error = run.step("a")["error"].clone();
        assert_eq!(error["code"], "command_not_permitted", "{name}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
        assert!(!run.kinds().iter().any(|kind| kind.starts_with("command.")));
        run.holds_together();
    }
}

#[test]
fn a_step_that_is_resumed_to_another_may_be_suspended_again_and_then_resumed_to_any() {
    let mut plan = run_plan();
    plan["agents"]["reads"]["commands"] = plan["agents"]["asks"]["commands"].clone();
    let mut run = Driven::invoke(plan, json!({}));
    run.finishes("first", json!({"v": 1}));
    run.finishes("aside", json!({"v": 1}));
    for round in 0..2 {
        run.completes_with("a", outcome("read"), Default::default());
        run.resumes_step("a", "ann", text("clause 7")).unwrap();
        assert_eq!(run.last("step.started a")["resume_step"], "read", "{round}");
    }
    let mut again = outcome("read");
    let own = again["commands"][0].as_object_mut().unwrap();
    own.remove("resumeStep");
    run.completes_with("a", again, Default::default());
    run.resumes_step("a", "ann", text("clause 8")).unwrap();
    let started = run.last("step.started a");
    assert_eq!(started.get("resume_step"), None, "its own step runs again");
    assert_eq!(started["attempt"], 4);
    ends(&mut run);
    run.holds_together();
}

#[test]
fn data_of_a_step_that_runs_by_another_are_judged_by_the_schema_of_that() {
    let schema = |member: &str| {
        json!({"type": "object", "required": [member], "additionalProperties": false,
            "properties": {member: {}}})
    };
    let mut plan = run_plan();
    plan["agents"]["reads"]["commands"] =
        json!({"suspend": {"roles": ["operator"], "timeout_ms": 1000}});
    let steps = plan["workflows"]["main"]["steps"].as_array_mut().unwrap();
    steps[1]["work"]["agent"]["resume"]["schema"] = schema("text");
    steps[3]["work"]["agent"]["resume"] = json!({"schema": schema("page")});
    let mut run = Driven::invoke(plan, json!({}));
    run.finishes("first", json!({"v": 1}));
    run.finishes("aside", json!({"v": 1}));
    run.completes_with("a", outcome("read"), Default::default());
    run.resumes_step("a", "ann", json!({"page": 7}))
        .unwrap_err();
    run.resumes_step("a", "ann", text("clause 7")).unwrap();
    run.completes_with("a", outcome("read"), Default::default());
    assert_eq!(
        run.last("suspend.requested a")["policy"]["schema"],
        schema("page")
    );
    run.resumes_step("a", "ann", text("clause 8")).unwrap_err();
    run.resumes_step("a", "ann", json!({"page": 7})).unwrap();
    run.finishes("a", json!({"verdict": "yes"}));
    run.finishes("b", json!({}));
    run.holds_together();
}

#[test]
fn two_steps_may_be_resumed_to_one_at_once() {
    let mut plan = run_plan();
    let mut other = plan["workflows"]["main"]["steps"][1].clone();
    other["id"] = json!("c");
    let steps = plan["workflows"]["main"]["steps"].as_array_mut().unwrap();
    steps.push(other);
    let mut run = Driven::invoke(plan, json!({}));
    run.finishes("first", json!({"v": 1}));
    run.finishes("aside", json!({"v": 1}));
    for step in ["a", "c"] {
        run.completes_with(step, outcome("read"), Default::default());
    }
    run.resumes_step("c", "ann", text("of c")).unwrap();
    run.resumes_step("a", "ann", text("of a")).unwrap();
    run.finishes("c", json!({"verdict": "no"}));
    ends(&mut run);
    assert_eq!(run.step("c")["output"]["verdict"], "no");
}

#[test]
fn a_loss_and_a_retry_by_a_person_keep_the_step_and_one_of_what_it_needs_does_not() {
    let mut run = resumed();
    run.completes_with(
        "a",
        json!({"error": {"code": "down", "message": "m", "retryable": false}}),
        Default::default(),
    );
    assert_eq!(run.envelope()["status"], "failed");
    run.resumes(Some("a")).unwrap();
    let started = run.last("step.started a");
    assert_eq!(
        (&started["attempt"], &started["resume_step"]),
        (&json!(3), &json!("read"))
    );
    run.completes_with("a", json!({"error": {"code": "down"}}), Default::default());
    run.resumes(Some("first")).unwrap();
    run.finishes("first", json!({"v": 2}));
    let started = run.last("step.started a");
    assert_eq!(started.get("resume_step"), None, "its own step asks again");
    run.completes_with("a", outcome("read"), Default::default());
    run.resumes_step("a", "ann", text("clause 8")).unwrap();
    ends(&mut run);
}

#[test]
fn a_pause_and_a_cancel_mean_what_they_mean_for_every_step() {
    let mut run = suspended("read");
    let draft = steer(&run.state, RunControl::Pause, person(), None).unwrap();
    run.input(draft);
    run.resumes_step("a", "ann", text("x")).unwrap();
    assert_eq!(run.kinds().last().unwrap(), "suspend.resumed");
    run.resumes(None).unwrap();
    assert_eq!(run.last("step.started a")["resume_step"], "read");
    ends(&mut run);
    for control in [RunControl::Cancel, RunControl::Terminate] {
        let mut run = resumed();
        let draft = steer(&run.state, control, person(), None).unwrap();
        run.input(draft);
        assert_eq!(run.envelope()["status"], "cancelled");
        assert_eq!(run.step("a")["status"], "failed");
        run.is_whole();
    }
}

#[test]
fn a_branch_asks_again_before_the_data_and_runs_by_the_step_after_them() {
    let mut run = suspended("read");
    let pending = run.frames.len();
    run.resumes_step("a", "ann", text("x")).unwrap();
    ends(&mut run);
    let mut before = run.branch(pending, Effects::Suppress);
    assert_eq!(before.kinds().last().unwrap(), "suspend.requested a");
    before.resumes_step("a", "bob", text("other")).unwrap();
    assert_eq!(before.last("step.started a")["resume_step"], "read");
    ends(&mut before);
    for at in 1..=4 {
        let mut after = run.branch(pending + at, Effects::Suppress);
        assert_eq!(
            after.last("step.started a")["resume_step"],
            "read",
            "{at} frames after"
        );
        ends(&mut after);
    }
}

#[test]
fn a_recompute_asks_the_agent_of_the_step_that_gave_the_output() {
    for (verdict, expected) in [("yes", Sameness::Clean), ("no", Sameness::ValueChanged)] {
        let mut run = resumed();
        run.asks("a");
        run.replies("a", 1);
        ends(&mut run);
        let recorded = RecordedRun::from_frames(&run.frames).unwrap();
        let task = recorded.tasks.iter().find(|task| task.path() == "a");
        assert_eq!(task.unwrap().definition_path(), "read");
        let mut recomputed = run.recompute();
        let agent = data(&recomputed.frames[0])["definition"]["workflows"].to_string();
        assert!(agent.contains("\"file\":\"reads\""), "{agent}");
        recomputed.asks("a.0");
        recomputed.replies("a.0", 1);
        recomputed.completes_with(
            "a.0",
            json!({"output": {"verdict": verdict}}),
            Default::default(),
        );
        let compared = compare(&recorded, &recomputed.frames).unwrap();
        let task = compared.tasks.into_iter().find(|task| task.step == "a");
        assert_eq!(task.unwrap().status, expected);
    }
}

#[test]
fn under_another_definition_each_attempt_is_compared_with_the_step_that_it_ran_by() {
    let mut run = resumed();
    ends(&mut run);
    assert_eq!(under(&run, |_| {}), [""; 0]);
    let found = under(&run, |plan| {
        plan["agents"]["asks"]["commands"]["suspend"]["timeout_ms"] = json!(70_000);
        plan["workflows"]["main"]["steps"][1]["work"]["agent"]["resume"].take();
        let own = plan["workflows"]["main"]["steps"][1]["work"]["agent"].as_object_mut();
        own.unwrap().remove("resume");
    });
    assert!(found.contains(&"suspend_timeout a".to_owned()), "{found:?}");
    let found = under(&run, |plan| {
        let step = &mut plan["workflows"]["main"]["steps"][3]["work"]["agent"];
        step["params"]["text"] = json!("{{ resume.data }}");
    });
    assert!(found.iter().any(|one| one.ends_with(" a")), "{found:?}");
    let found = under(&run, |plan| {
        plan["workflows"]["main"]["steps"][3]["id"] = json!("other");
    });
    assert!(found.iter().any(|one| one.ends_with(" a")), "{found:?}");
}

/// What is said of a run under its own definition with the plan changed: what differs, and of which step.
fn under(run: &Driven, change: impl FnOnce(&mut Value)) -> Vec<String> {
    let own = &run.definition;
    let base = simulate(&run.frames, own, own).unwrap();
    let mut plan: Value = serde_json::from_str(own.json.as_str()).unwrap();
    change(&mut plan);
    let plan = serde_json::from_value(plan).unwrap();
    let definition = Arc::new(Definition::compile(plan).unwrap());
    let new = simulate(&run.frames, own, &definition).unwrap();
    let found = simulate::compare(&run.frames, &base, &new).unwrap();
    let words = |one: Divergence| format!("{} {}", one.what.name(), one.step);
    found.into_iter().map(words).collect()
}

fn person() -> Principal {
    Principal {
        auth: "none".to_owned(),
        id: "local".to_owned(),
    }
}

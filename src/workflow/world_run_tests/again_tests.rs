//! What came to nothing for responders, and begins again when a person takes up a run that has ended.

use ktsu_projections::run::RunStatus;

use super::budget_tests::{answers, open};
use super::*;
use crate::admit::intervention::{InterventionError, OverlayCommand, overlay_of_run};
use crate::plans_tests::agent;

/// A question about a topic, and a workflow of one agent for it.
fn asking_and_digging() -> Driven {
    let ask = json!({"group": "std", "max_tokens": 10,
        "messages": [{"role": "user", "content": "{{ object.data.text }}?"}]});
    let dig = json!({"workflow": "dig", "webhooks": "suppress", "params": {}});
    let note = json!([object("Note", json!({"about": "{{ object.id }}"}))]);
    let of = |name: &str, work: Value| {
        let more = json!({"work": work, "then": note});
        responder(name, "object.created", "Topic", more)
    };
    let mut world = world(json!({}));
    world["budget"]["max_llm_cost_micro_usd"] = json!(1000);
    world["responders"] = json!([
        of("asks", json!({"ask": ask})),
        of("digs", json!({"run": dig}))
    ]);
    let look = agent("look", json!([]), "plain", json!({}));
    let mut plan = plan(json!({
        "main": workflow("main", json!([])), "dig": workflow("dig", json!([look]))}));
    plan["worlds"] = json!({"worlds/w.world.yaml": world});
    Driven::invoke(plan, json!({"goal": "tides", "x": [1]}))
}

fn address(run: &Driven, name: &str) -> String {
    let prefix = format!("@{name}.");
    let found = open(run).into_iter().find(|one| one.starts_with(&prefix));
    found.unwrap_or_else(|| panic!("{name}: {:?}", run.kinds()))
}

fn notes(run: &Driven) -> usize {
    let head = run.state.responding().unwrap().head();
    head.of_type("Note").count()
}

#[test]
fn a_question_that_no_gateway_answered_is_asked_when_the_complete_run_is_resumed() {
    for from in [None, Some("asks"), Some("address")] {
        let mut run = asking_and_digging();
        let question = address(&run, "asks");
        let look = format!("{}/look", address(&run, "digs"));
        run.does(&look, json!({"v": 1}));
        run.asks(&question);
        run.errs(&question, "unknown_group", "there is no group std");
        assert_eq!(run.state.status(), RunStatus::Complete);
        assert!(run.envelope().get("warnings").is_some());
        let from = match from {
            Some("address") => Some(question.as_str()),
            other => other,
        };
        run.resumes(from).unwrap();
        assert_eq!(run.last("run.resumed")["from"], json!(question));
        assert_eq!(run.state.status(), RunStatus::Running);
        assert_eq!(run.task(&question).attempt, 2);
        answers(&mut run, &question, 1);
        assert_eq!(run.state.status(), RunStatus::Complete);
        assert_eq!(notes(&run), 2);
        assert!(run.envelope().get("warnings").is_none());
        run.is_whole();
    }
}

#[test]
fn a_failed_question_or_workflow_is_tried_again_with_what_was_stopped_by_its_failure() {
    let mut asked = asking_and_digging();
    let question = address(&asked, "asks");
    let look = format!("{}/look", address(&asked, "digs"));
    asked.errs(&question, "provider_error", "no");
    assert_eq!(asked.state.status(), RunStatus::Failed);
    assert!(matches!(
        asked.resumes(Some("digs/look")),
        Err(InterventionError::Inside(_))
    ));
    assert!(matches!(
        asked.resumes(Some("nobody")),
        Err(InterventionError::NoStep(_))
    ));
    assert!(matches!(
        asked.resumes(Some("nobody/look")),
        Err(InterventionError::NoStep(_))
    ));
    asked.resumes(None).unwrap();
    answers(&mut asked, &question, 1);
    asked.does(&look, json!({"v": 1}));
    assert!(matches!(
        asked.resumes(Some("digs")),
        Err(InterventionError::NothingLeftOf(_))
    ));
    assert_eq!(asked.state.status(), RunStatus::Complete);
    assert!(asked.envelope().get("error").is_none());
    assert_eq!(notes(&asked), 2);
    asked.is_whole();

    let mut dug = asking_and_digging();
    dug.errs(&look, "provider_error", "no");
    assert_eq!(dug.state.status(), RunStatus::Failed);
    dug.resumes(Some("digs")).unwrap();
    dug.does(&look, json!({"v": 1}));
    answers(&mut dug, &question, 1);
    assert_eq!(dug.state.status(), RunStatus::Complete);
    assert_eq!(notes(&dug), 2);
    dug.is_whole();
}

fn note_of_patches(more: Value) -> Value {
    let mut sees = emits(json!([object(
        "Note",
        json!({"about": "{{ object.data.result }}"})
    )]));
    merge(&mut sees, more);
    let mut sees = responder("sees", "object.patched", "Step", sees);
    sees["type"] = json!(["step"]);
    sees
}

fn overlays(run: &mut Driven, value: Value) {
    let command = OverlayCommand {
        scope: String::new(),
        step: "a".to_owned(),
        field: "result".to_owned(),
        value,
        reason: "counted".to_owned(),
        by: super::posts_tests::request(Vec::new()).by,
    };
    let drafts = overlay_of_run(&run.definition, &run.state, command).unwrap();
    run.inputs(drafts);
}

#[test]
fn a_value_laid_over_a_step_of_a_complete_run_is_reacted_to_at_once() {
    let steps = json!([transform("a", json!([]), "params.x")]);
    let reacts = json!({"responders": [note_of_patches(json!({}))]});
    let mut run = run(steps.clone(), world(reacts));
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    let before = run.frames.len();
    run.now += 86_400_000_000;
    let used = run.state.responding().unwrap().used_ms();
    overlays(&mut run, json!([7]));
    let kinds = run.kinds_from(before);
    let expected = [
        "overlay.set",
        "run.resumed",
        "responder.fired",
        "object.created",
    ];
    assert_eq!(kinds[..4], expected);
    assert_eq!(kinds.last().unwrap(), "run.completed");
    assert_eq!(notes(&run), 1);
    assert!(run.state.responding().unwrap().used_ms() <= used + 10);
    run.is_whole();
    // Nobody reacts to this one, and the run stays as it is.
    let other = json!({"responders": [note_of_patches(json!({"changed": ["other"]}))]});
    let mut run = super::run(steps, world(other));
    let before = run.frames.len();
    overlays(&mut run, json!([7]));
    assert_eq!(run.kinds_from(before), ["overlay.set"]);
}

#[test]
fn a_value_set_in_a_branch_of_a_complete_run_is_reacted_to_once_the_branch_is_resumed() {
    let steps = json!([transform("a", json!([]), "params.x")]);
    let reacts = json!({"responders": [note_of_patches(json!({}))]});
    let mut branch = run(steps, world(reacts)).forked();
    overlays(&mut branch, json!([7]));
    assert_eq!(branch.kinds().last().unwrap(), "overlay.set");
    branch.resumes(None).unwrap();
    assert_eq!(branch.last("run.resumed")["from"], json!("step/a"));
    assert_eq!(branch.kinds().last().unwrap(), "run.completed");
    assert_eq!(notes(&branch), 1);
    branch.is_whole();
}

#[test]
fn a_run_whose_responders_have_all_replies_or_that_failed_otherwise_is_not_resumed() {
    let mut whole = run(json!([]), world(json!({})));
    let refused = whole.resumes(None).unwrap_err();
    assert!(
        matches!(refused, InterventionError::NothingUnanswered),
        "{refused}"
    );
    let wrong = emits(json!([object("Topic", json!({"txt": "no"}))]));
    let fails = responder("wrong", "object.created", "Topic", wrong);
    let mut failed = run(json!([]), world(json!({"responders": [fails]})));
    let refused = failed.resumes(None).unwrap_err();
    assert!(
        matches!(refused, InterventionError::EndedWithoutFrom(_)),
        "{refused}"
    );
}

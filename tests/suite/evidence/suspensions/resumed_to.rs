//! Steps that were resumed to others: both verifiers accept what is honest, and find steps that ran by
//! another than the one that was named.

use serde_json::{Value, json};

use super::super::mutants::every_mutant_of_is_found;
use super::super::reviews::forge::{Forge, find, missed, of_judge};
use super::{FAILED, FOUND, NONE, TWICE, is_accepted};
use crate::support::scenarios::suspensions::{Suspended, Word};

fn of(workflow: &'static str, words: &[Word]) -> Suspended {
    Suspended {
        workflow,
        resume_step: Some("read"),
        ..Suspended::with(words)
    }
}

fn again(from: &'static str, words: &[Word]) -> Suspended {
    Suspended {
        again: Some(from),
        ..of("main", words)
    }
}

#[tokio::test]
async fn honest_steps_that_are_resumed_to_others_are_accepted_by_both_verifiers() {
    is_accepted("resumed", of("main", &[FOUND]), &[-2, 0, 1, 2, 3]).await;
    is_accepted("twice", of("main", &TWICE), &[0, 1, isize::MAX / 2]).await;
    is_accepted("child", of("outer", &TWICE), &[0, 1]).await;
    is_accepted("invoked", of("invoking", &TWICE), &[0, 1]).await;
}

#[tokio::test]
async fn honest_steps_that_begin_again_by_others_are_accepted_by_both_verifiers() {
    let kept = again("a", &FAILED);
    is_accepted("with its data", kept, &[1, isize::MAX / 2]).await;
    let without = again("first", &FAILED);
    is_accepted("without its data", without, &[isize::MAX / 2]).await;
    let cancelled = again("a", &[Word::Cancel, FOUND]);
    is_accepted("cancelled, and begun again", cancelled, &[1]).await;
    is_accepted("paused", of("main", &[Word::Paused("clause 7")]), &[0, 1]).await;
}

/// The beginnings of step `a`, by their places.
fn beginnings(forge: &Forge) -> Vec<usize> {
    let all = forge.all.iter().enumerate();
    let own = all.filter(|(_, one)| one["type"] == "step.started" && one["data"]["step"] == "a");
    own.map(|(at, _)| at).collect()
}

#[tokio::test]
async fn a_step_that_ran_by_another_than_the_one_named_is_found_by_both_verifiers() {
    let twice = Forge::of_run(of("main", &TWICE).record().await);
    let [first, second, third] = beginnings(&twice)[..] else {
        panic!("three attempts");
    };
    let by = |at: usize, step: Value| {
        twice.changed(|all| match step.is_null() {
            true => drop(
                all[at]["data"]
                    .as_object_mut()
                    .unwrap()
                    .remove("resume_step"),
            ),
            false => all[at]["data"]["resume_step"] = step,
        })
    };
    assert_eq!(twice.all[second]["data"]["resume_step"], "read");
    let end = of_judge(&twice.all, "agent.finished");
    let named = |step: &str| {
        twice.changed(|all| all[end]["data"]["outcome"]["commands"][1]["resumeStep"] = json!(step))
    };
    let elsewhere = |step: &str| {
        twice.changed(|all| {
            all[end]["data"]["outcome"]["commands"][1]["resumeStep"] = json!(step);
            all[second]["data"]["resume_step"] = json!(step);
        })
    };
    let asked = |all: &[Value]| {
        let kind = |one: &Value| one["type"] == "suspend.requested";
        all.iter().rposition(kind).unwrap()
    };
    let policy =
        twice.all[find(&twice.all, "suspend.requested", |_| true)]["data"]["policy"].clone();
    let other_policy = twice.changed(|all| {
        let at = asked(all);
        assert_ne!(all[at]["data"]["policy"], policy);
        all[at]["data"]["policy"] = policy;
    });
    let of_b = find(&twice.all, "step.started", |one| one["data"]["step"] == "b");
    let ended = find(&twice.all, "step.completed", |one| {
        one["data"]["step"] == "a"
    });
    let swapped = twice.changed(|all| all[ended]["data"]["output_from"]["frame"] = json!(end));
    let forgeries = vec![
        (
            "by another that it may be resumed to",
            "outputs",
            by(second, json!("reread")),
        ),
        ("by itself", "outputs", by(second, Value::Null)),
        ("by itself, later", "outputs", by(third, Value::Null)),
        ("by an ordinary step", "outputs", by(second, json!("b"))),
        ("by no step", "outputs", by(second, json!(""))),
        (
            "by another, before it was suspended",
            "outputs",
            by(first, json!("read")),
        ),
        ("another step by it", "outputs", by(of_b, json!("read"))),
        ("another named", "outputs", named("reread")),
        ("an ordinary step named", "outputs", elsewhere("b")),
        (
            "a step named that is not there",
            "outputs",
            elsewhere("nothing"),
        ),
        (
            "the policy of the suspended step",
            "approvals",
            other_policy,
        ),
        ("the output of the attempt before", "outputs", swapped),
    ];
    assert_eq!(missed(forgeries), NONE);
}

#[tokio::test]
async fn the_frames_of_a_step_that_is_resumed_to_another_cannot_be_changed() {
    let run = of("main", &[FOUND]).record().await;
    every_mutant_of_is_found("resumed to another", &run, |body| {
        let kind = body["type"].as_str().unwrap();
        kind.starts_with("suspend.") || kind == "step.reset"
    });
}

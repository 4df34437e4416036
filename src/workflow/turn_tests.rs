//! Given frames, when an input, then frames.

use ktsu_ledger::{CanonicalJson, Frame};
use ktsu_projections::envelope::EnvelopeFold;
use serde_json::{Value, json};

use super::*;
use crate::driven_tests::{Driven, data};
use crate::plans_tests::{plan, transform, webhook, workflow};
use crate::replay::{Definitions, MismatchKind, ReplayError, replay};

#[test]
fn a_chain_of_transforms_ends_in_its_first_turn() {
    let steps = json!([
        transform("a", json!([]), "params.list"),
        transform("b", json!([0]), "step.a.result")
    ]);
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", steps)})),
        json!({"list": [[1], 2]}),
    );
    assert_eq!(
        run.kinds(),
        [
            "run.created",
            "run.started",
            "step.started a",
            "step.completed a",
            "step.started b",
            "step.completed b",
            "run.completed"
        ]
    );
    assert_eq!(run.envelope()["output"], json!({"result": [1, 2]}));
    run.holds_together();
}

/// A run of transforms, one after another.
fn chain(steps: u32) -> Driven {
    let step = |number: u32| match number.checked_sub(1) {
        None => transform("s0", json!([]), "params.list"),
        Some(before) => transform(
            &format!("s{number}"),
            json!([before]),
            &format!("step.s{before}.result"),
        ),
    };
    let steps: Vec<Value> = (0..steps).map(step).collect();
    Driven::invoke(
        plan(json!({"main": workflow("main", json!(steps))})),
        json!({"list": [[1], 2]}),
    )
}

#[test]
fn the_first_turn_of_an_accepted_run_is_small_and_the_run_replays_from_its_inputs() {
    let run = chain(300);
    let continued = |kind: &String| kind == "run.continued";
    let kinds = run.kinds();
    let first = kinds.iter().position(continued).unwrap();
    let bytes = |frame: &Frame| data(frame).to_string().len();
    let sum: usize = run.frames[1..first].iter().map(bytes).sum();
    assert!(sum < 8 * 1024, "the data alone has {sum} bytes");
    let next = kinds.iter().skip(first + 1).position(continued).unwrap();
    assert!(next > 3 * first, "{next} frames after {first}");
    assert_eq!(run.envelope()["output"], json!({"result": [1, 2]}));
    run.holds_together_every(97);
}

#[test]
fn a_run_that_fits_into_a_small_turn_is_not_continued() {
    let run = chain(10);
    assert!(!run.kinds().contains(&"run.continued".to_owned()));
    run.holds_together();
}

#[test]
fn effects_are_announced_before_pure_steps_and_each_answer_is_a_turn() {
    let steps = json!([
        transform("a", json!([]), "params.list"),
        webhook("w", json!([]), "http://x/{{ params.n }}"),
        webhook("v", json!([0]), "http://y/"),
        transform("z", json!([1, 2]), "step.w"),
    ]);
    let mut run = Driven::invoke(
        plan(json!({"main": workflow("main", steps)})),
        json!({"list": [], "n": 7}),
    );
    assert_eq!(
        run.kinds()[2..],
        [
            "step.started w",
            "webhook.sent w",
            "step.started a",
            "step.completed a",
            "step.started v",
            "webhook.sent v"
        ]
    );
    run.answer("", "v", 1, 204);
    run.answer("", "w", 1, 200);
    assert_eq!(run.envelope()["status"], "complete");
    assert_eq!(
        run.envelope()["steps"][3]["output"],
        json!({"result": {"sent": true, "status_code": 200}})
    );
    run.holds_together();
}

#[test]
fn a_failure_stops_skips_and_fails_in_one_append() {
    let child = workflow(
        "child",
        json!([
            webhook("in", json!([]), "http://c/"),
            transform("after", json!([0]), "step.in")
        ]),
    );
    let steps = json!([
        webhook("w", json!([]), "http://x/"),
        {"id": "call", "work": {"workflow": {"workflow": "child", "webhooks": "execute",
            "params": {"n": "{{ params.n }}"}}}},
        transform("z", json!([1]), "step.call"),
    ]);
    let mut run = Driven::invoke(
        plan(json!({"main": workflow("main", steps), "child": child})),
        json!({"n": 1}),
    );
    let before = run.frames.len();
    run.answer("call", "in", 1, 500);
    assert_eq!(
        run.kinds()[before..],
        [
            "call:webhook.failed in",
            "call:step.failed in",
            "call:step.skipped after",
            "call:run.failed",
            "step.failed w",
            "step.failed call",
            "step.skipped z",
            "run.failed"
        ]
    );
    let envelope = run.envelope();
    assert_eq!(envelope["error"]["step"], "call/in");
    assert_eq!(envelope["error"]["code"], "webhook_status");
    assert_eq!(envelope["steps"][0]["error"]["code"], "stopped");
    run.holds_together();
}

#[test]
fn a_child_hands_its_output_up_by_reference() {
    let mut child = workflow("child", json!([transform("in", json!([]), "params.list")]));
    child["params"] = json!({"properties": {"extra": {"default": 5}}});
    let steps = json!([
        transform("a", json!([]), "params.list"),
        {"id": "call", "needs": [0], "work": {"workflow": {"workflow": "child", "webhooks": "execute",
            "params": {"list": "{{ step.a.result }}"}}}},
        transform("z", json!([1]), "step.call.result"),
    ]);
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", steps), "child": child})),
        json!({"list": [[1], [2]]}),
    );
    assert_eq!(run.envelope()["output"], json!({"result": [1, 2]}));
    let fold = EnvelopeFold::of(&run.frames).unwrap();
    let child = fold.envelope("call").unwrap();
    assert_eq!(child.params, json!({"extra": 5, "list": [1, 2]}));
    let by_value = run.frames.iter().filter(|frame| {
        matches!(&frame.event,
        Event::Step(ktsu_ledger::event::StepEvent::Completed(done)) if done.output.is_some())
    });
    assert_eq!(
        by_value.count(),
        3,
        "the step that holds the child refers to its output"
    );
    run.holds_together();
}

#[test]
fn a_turn_ends_at_its_bound_and_continues() {
    let steps: Vec<Value> = (0..300)
        .map(|n| {
            let needs = if n == 0 { json!([]) } else { json!([n - 1]) };
            transform(&format!("s{n}"), needs, "params.list")
        })
        .collect();
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", json!(steps))})),
        json!({"list": []}),
    );
    let turns = run
        .kinds()
        .iter()
        .filter(|kind| *kind == "run.continued")
        .count();
    assert!(turns >= 2, "{turns}");
    assert_eq!(run.envelope()["status"], "complete");
    replay(&run.frames, &mut Definitions::default()).unwrap();
}

#[test]
fn a_changed_decision_is_caught_even_when_it_is_linked_again() {
    let steps = json!([
        transform("a", json!([]), "params.list"),
        transform("b", json!([0]), "step.a.result")
    ]);
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", steps)})),
        json!({"list": [[1], 2]}),
    );
    let changed = 3;
    let mut link = Link {
        stream: run.frames[0].stream.clone(),
        seq: 0,
        prev: Hash::ZERO,
    };
    let mut forged = Vec::new();
    for (number, frame) in run.frames.iter().enumerate() {
        let mut event = frame.event.clone();
        if let (true, Event::Step(ktsu_ledger::event::StepEvent::Completed(done))) =
            (number == changed, &mut event)
        {
            done.output = Some(CanonicalJson::parse(br#"{"result":[9]}"#).unwrap());
        }
        let draft = Draft {
            scope: frame.scope.clone(),
            actor: frame.actor.clone(),
            cause: frame.cause.clone(),
            event,
        };
        let sealed = draft.seal(link.clone(), frame.at).unwrap();
        link = Link {
            seq: link.seq + 1,
            prev: sealed.record.hash,
            stream: link.stream,
        };
        forged.push(sealed.frame);
    }
    assert!(RunState::fold(&forged).is_ok(), "the chain itself is whole");
    let Err(ReplayError::Diverged(diverged)) = replay(&forged, &mut Definitions::default()) else {
        panic!("the forged frame was not noticed");
    };
    assert_eq!(diverged.seq, changed as u64);
    assert_eq!(diverged.kind, MismatchKind::Data);
    assert_eq!(
        diverged.history,
        Some(json!(9)),
        "history is what is recorded"
    );
    assert_ne!(diverged.decided, Some(json!(9)));
}

#[test]
fn what_is_handed_down_inside_a_param_is_a_reference_too() {
    let inner = workflow(
        "inner",
        json!([transform("in", json!([]), "params.z.b[0]")]),
    );
    let child = workflow(
        "child",
        json!([
            transform("in", json!([]), "params.a.b[0]"),
            {"id": "deeper", "work": {"workflow": {"workflow": "inner", "webhooks": "execute",
                "params": {"z": {"b": ["{{ params.a.b[0] }}"]}}}}},
        ]),
    );
    let steps = json!([{"id": "call", "work": {"workflow": {"workflow": "child", "webhooks": "execute",
        "params": {"a": {"b": ["{{ params.list }}", "n={{ params.n }}"], "c": 1}}}}}]);
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", steps), "child": child, "inner": inner})),
        json!({"list": [[1], [2]], "n": 3}),
    );
    let fold = EnvelopeFold::of(&run.frames).unwrap();
    let params = |path: &str| fold.envelope(path).unwrap().params;
    assert_eq!(
        params("call"),
        json!({"a": {"b": [[[1], [2]], "n=3"], "c": 1}})
    );
    assert_eq!(params("call/deeper"), json!({"z": {"b": [[[1], [2]]]}}));
    assert_eq!(run.envelope()["output"], json!({"result": [1, 2]}));
    let given = |step: &str| {
        let of_step = run.frames.iter().find_map(|frame| match &frame.event {
            Event::Step(ktsu_ledger::event::StepEvent::Started(started))
                if started.step == step =>
            {
                Some(serde_json::to_value(&started.input).unwrap())
            }
            _ => None,
        });
        of_step.unwrap()
    };
    let list = json!({"ref": {"frame": 0, "path": "/params/list"}});
    assert_eq!(given("call")["/params/a/b/0"], list);
    assert_eq!(
        given("call")["/params/a"]["value"]["value"],
        json!({"b": [null, "n=3"], "c": 1})
    );
    assert_eq!(
        given("deeper")["/params/z/b/0"],
        list,
        "through both children to its first place"
    );
    run.holds_together();
}

#[test]
fn a_cut_after_the_verdict_ends_the_step_from_the_verdict() {
    let mut step = transform("a", json!([]), "params.list");
    step["schema"] = json!({"type": "array"});
    let run = Driven::invoke(
        plan(json!({"main": workflow("main", json!([step]))})),
        json!({"list": [1]}),
    );
    assert_eq!(
        run.kinds()[3..5],
        ["step.output_checked a", "step.completed a"]
    );
    run.holds_together();
    let cut = run.frames[..4].to_vec();
    let state = RunState::fold(&cut).unwrap();
    let unit = next(&run.definition, &state, &Memo::default()).unwrap();
    assert_eq!(unit[0].cause, [ktsu_ledger::Cause::Here(3)]);
}

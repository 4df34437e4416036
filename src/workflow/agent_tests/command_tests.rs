//! What becomes of the events and commands of an outcome.

use ktsu_ledger::Event;
use ktsu_ledger::event::{Effects, StepEvent};
use serde_json::{Value, json};

use crate::driven_tests::{Driven, data};
use crate::plans_tests::{agent, merge, run_of};

fn outcome(output: Value) -> Value {
    json!({"output": output, "events": [{"type": "looked", "payload": {"n": 1}}],
        "commands": [{"type": "emit", "topic": "claim.seen", "payload": [1]},
            {"type": "emit", "topic": "claim.kept", "payload": null}]})
}

fn commands(run: &Driven) -> Vec<Value> {
    let commanded = |event: &Event| {
        matches!(
            event,
            Event::Step(StepEvent::Commanded(_) | StepEvent::Noted(_))
        )
    };
    let frames = run.frames.iter().filter(|frame| commanded(&frame.event));
    frames.map(data).collect()
}

#[test]
fn what_an_outcome_asks_for_is_before_the_end_of_its_step_in_one_append() {
    let mut run = run_of(
        json!([agent("a", json!([]), "tells", json!({}))]),
        json!({}),
    );
    run.completes_with("a", outcome(json!({"x": 1})), Default::default());
    let kinds = run.kinds();
    let finished = kinds
        .iter()
        .position(|kind| kind.starts_with("agent.finished"))
        .unwrap();
    let names: Vec<&str> = kinds[finished..]
        .iter()
        .map(|kind| kind.split(' ').next().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "agent.finished",
            "step.output_checked",
            "note",
            "command.requested",
            "command.requested",
            "step.completed",
            "run.completed"
        ]
    );
    let place = |member: &str, index: u32| json!({"frame": finished, "path": format!("/outcome/{member}/{index}")});
    let told = commands(&run);
    let note = json!({"attempt": 1, "event": place("events", 0), "index": 0, "step": "a",
        "type": "looked"});
    let second = json!({"attempt": 1, "command": place("commands", 1), "index": 1, "step": "a",
        "topic": "claim.kept", "type": "emit"});
    assert_eq!((&told[0], &told[2]), (&note, &second));
    // A log that is cut after any of them goes on with the next.
    run.holds_together();
}

#[test]
fn each_item_of_a_fan_out_emits_for_itself_and_those_that_fail_emit_nothing() {
    let each = json!({"for_each": {"concurrency": 0, "max_failures": -1, "from": "params.list"},
        "params": {"x": "{{ item }}"}});
    let steps = json!([agent("f", json!([]), "tells", each)]);
    let mut run = run_of(steps, json!({"list": [1, 2]}));
    let mut wrong = outcome(json!({}));
    merge(
        &mut wrong,
        json!({"commands": [{"type": "emit", "topic": "other", "payload": 1}]}),
    );
    run.completes_with("f.0", wrong, Default::default());
    run.completes_with("f.1", outcome(json!({})), Default::default());
    assert_eq!(run.last("item.failed f.0")["code"], "command_not_permitted");
    let told = commands(&run);
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|one| one["item"] == 1));
    run.holds_together();
}

#[test]
fn a_skipped_outcome_has_events_and_no_commands() {
    let mut run = run_of(
        json!([agent("a", json!([]), "tells", json!({}))]),
        json!({}),
    );
    let mut skips = outcome(json!({"ktsu_skip_reason": "nothing to say"}));
    skips["commands"] = json!([]);
    run.completes_with("a", skips, Default::default());
    assert_eq!(run.step("a")["status"], "skipped");
    assert_eq!(commands(&run).len(), 1);
    run.holds_together();
    let mut run = run_of(
        json!([agent("a", json!([]), "tells", json!({}))]),
        json!({}),
    );
    let skips = outcome(json!({"ktsu_skip_reason": "nothing to say"}));
    run.completes_with("a", skips, Default::default());
    assert_eq!(run.step("a")["error"]["code"], "outcome_invalid");
    assert_eq!(commands(&run).len(), 0);
    run.holds_together();
}

#[test]
fn a_branch_emits_only_if_it_is_to_execute_effects() {
    let mut run = run_of(
        json!([agent("a", json!([]), "tells", json!({}))]),
        json!({}),
    );
    run.completes_with("a", outcome(json!({})), Default::default());
    let finished = run
        .kinds()
        .iter()
        .position(|kind| kind.starts_with("agent.finished"));
    let at = finished.unwrap();
    for (effects, suppressed) in [(Effects::Suppress, true), (Effects::Execute, false)] {
        let mut branch = run.branch(at, effects);
        branch.completes_with("a", outcome(json!({})), Default::default());
        let told = commands(&branch);
        assert_eq!(told.len(), 3);
        for one in &told[1..] {
            assert_eq!(one.get("suppressed").is_some(), suppressed, "{one}");
        }
        branch.is_whole();
    }
    assert!(
        commands(&run)
            .iter()
            .all(|one| one.get("suppressed").is_none())
    );
}

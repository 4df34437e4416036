//! Runs that load worlds: what happens in them, however their logs are cut.

mod after_tests;
mod again_tests;
mod budget_tests;
mod cost_tests;
mod people_tests;
mod posts_tests;
mod waited_tests;

use ktsu_ledger::Event;
use ktsu_ledger::event::WorldEvent;
use ktsu_projections::world::activity::is_world_frame;
use serde_json::{Value, json};

use super::driven_tests::Driven;
use super::plans_tests::{merge, plan, transform, workflow};

fn responder(name: &str, on: &str, kind: &str, more: Value) -> Value {
    let mut responder = json!({"name": name, "on": [on], "type": [kind], "work": {"emit": []}});
    merge(&mut responder, more);
    responder
}

fn emits(entries: Value) -> Value {
    json!({"work": {"emit": entries}})
}

fn object(kind: &str, data: Value) -> Value {
    json!({"make": {"object": {"type": kind, "data": data}}})
}

/// A goal becomes a topic, a topic three questions that belong to it, each in turn one note.
fn world(more: Value) -> Value {
    let question = json!({"as": "question", "make": {"object":
        {"type": "Question", "data": {"text": "{{ item }}: {{ object.data.text }}"}}}});
    let belongs = json!({"make": {"relation":
        {"type": "belongs", "from": "{{ question.id }}", "to": "{{ object.id }}"}}});
    let mut asks = emits(json!([question, belongs]));
    asks["for_each"] = json!({"from": "[`\"who\"`, `\"what\"`, `\"why\"`]"});
    let mut world = json!({
        "name": "w", "version": "1.0.0",
        "budget": {"max_events": 1000, "max_llm_cost_micro_usd": 1, "max_recursion_depth": 50,
            "max_wall_ms": 100_000},
        "goal": [object("Topic", json!({"text": "{{ goal }}"}))],
        "objects": {
            "Topic": {"schema": {"type": "object", "required": ["text"]}},
            "Question": {"schema": {"type": "object", "properties": {"text": {"type": "string"}}}},
            "Note": {}},
        "relations": {"belongs": {"from": ["Question"], "to": ["Topic"]}},
        "responders": [
            responder("asks", "object.created", "Topic", asks),
            responder("notes", "object.created", "Question",
                emits(json!([object("Note", json!({"about": "{{ object.data.text }}"}))]))),
        ],
    });
    merge(&mut world, more);
    world
}

fn run(steps: Value, world: Value) -> Driven {
    let mut plan = plan(json!({"main": workflow("main", steps)}));
    plan["worlds"] = json!({"worlds/w.world.yaml": world});
    Driven::invoke(plan, json!({"goal": "tides", "x": [1]}))
}

fn world_frames(run: &Driven) -> Vec<&str> {
    let frames = run.frames.iter().filter(|frame| is_world_frame(frame));
    frames.map(|frame| frame.event.kind()).collect()
}

#[test]
fn responders_react_to_what_a_goal_becomes_until_nothing_is_left_to_react_to() {
    let run = run(json!([]), world(json!({})));
    assert_eq!(
        world_frames(&run),
        [
            "object.created",
            "object.created",
            "relation.created",
            "object.created",
            "relation.created",
            "object.created",
            "relation.created",
            "object.created",
            "object.created",
            "object.created",
        ]
    );
    let head = run.state.responding().unwrap().head();
    let notes = head.of_type("Note").map(|note| note.data.to_value());
    let about: Vec<Value> = notes.map(|data| data["about"].clone()).collect();
    assert_eq!(about, ["who: tides", "what: tides", "why: tides"]);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.holds_together();
}

#[test]
fn two_runs_of_the_same_goal_make_the_same_objects_and_end_with_the_same_world() {
    let [one, other] = [(); 2].map(|()| run(json!([]), world(json!({}))));
    let hash = |run: &Driven| run.state.responding().unwrap().head().hash();
    assert_eq!(hash(&one), hash(&other));
    for run in [&one, &other] {
        assert_eq!(run.last("run.completed")["world"], json!(hash(run)));
    }
}

#[test]
fn responders_react_to_completed_steps_which_are_in_the_world() {
    let seen = emits(json!([object(
        "Note",
        json!({"about": "{{ object.data.result }}"})
    )]));
    let reacts = json!({"responders": [responder("sees", "step.completed", "Step", seen)]});
    let mut sees = reacts["responders"][0].clone();
    sees.as_object_mut().unwrap().remove("type");
    let steps = json!([
        transform("a", json!([]), "params.x"),
        transform("b", json!([0]), "step.a.result"),
    ]);
    let run = run(steps, world(json!({"responders": [sees]})));
    let head = run.state.responding().unwrap().head();
    assert!(head.object("step/a").is_some());
    assert_eq!(head.of_type("Note").count(), 2, "{:?}", run.kinds());
    run.holds_together();
}

#[test]
fn an_output_that_breaks_the_schema_of_its_type_is_refused_and_fails_the_run_unless_it_may_continue()
 {
    let wrong = emits(json!([object("Topic", json!({"txt": "no"}))]));
    let fails = responder("wrong", "object.created", "Topic", wrong);
    let run_of = |more: Value| {
        let mut fails = fails.clone();
        merge(&mut fails, more);
        run(json!([]), world(json!({"responders": [fails]})))
    };
    let failed = run_of(json!({}));
    let kinds = failed.kinds();
    let last = &kinds[kinds.len() - 3..];
    assert_eq!(last, ["output.rejected", "responder.failed", "run.failed"]);
    failed.holds_together();
    let goes_on = run_of(json!({"on_error": "continue"}));
    assert_eq!(goes_on.kinds().last().unwrap(), "run.completed");
    goes_on.holds_together();
}

/// Every object makes another one.
fn endless(budget: Value) -> Driven {
    let again = emits(json!([object("Topic", json!({"text": "again"}))]));
    let responders = json!([responder("again", "object.created", "Topic", again)]);
    let mut world = world(json!({"responders": responders}));
    merge(&mut world["budget"], budget);
    run(json!([]), world)
}

#[test]
fn a_world_that_continues_for_ever_ends_with_its_budget_and_every_reason_is_named() {
    let depths = |run: &Driven| -> Vec<u32> {
        let activity = run.state.responding().unwrap().activity();
        let frames = run.frames.iter().filter(|frame| is_world_frame(frame));
        frames
            .filter_map(|frame| activity.depth_of(frame.seq))
            .collect()
    };
    for (budget, events, reasons) in [
        (json!({"max_events": 5}), 5, vec!["max_events=5"]),
        (
            json!({"max_recursion_depth": 2}),
            3,
            vec!["max_recursion_depth=2"],
        ),
        (
            json!({"max_events": 3, "max_recursion_depth": 2}),
            3,
            vec!["max_events=3", "max_recursion_depth=2"],
        ),
    ] {
        let run = endless(budget);
        assert_eq!(depths(&run), Vec::from_iter(0..events));
        let kinds = run.kinds();
        let ends = &kinds[kinds.len() - 2..];
        assert_eq!(ends, ["budget.exhausted", "run.failed"]);
        let Event::World(WorldEvent::BudgetExhausted(told)) = &run.frames[kinds.len() - 2].event
        else {
            panic!("{kinds:?}");
        };
        assert_eq!(told.reasons, reasons);
        assert_eq!(told.event_count, u64::from(events));
        assert_eq!(run.state.failing().unwrap().code, "budget_exhausted");
        run.holds_together();
    }
}

#[test]
fn a_budget_that_fits_exactly_is_not_exhausted() {
    let run = run(
        json!([]),
        world(
            json!({"budget": {"max_events": 10, "max_llm_cost_micro_usd": 1,
            "max_recursion_depth": 2, "max_wall_ms": 100_000}}),
        ),
    );
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    assert_eq!(world_frames(&run).len(), 10);
}

#[test]
fn a_run_ends_though_the_last_entries_of_its_last_trigger_make_nothing() {
    let mut nothing = object("Note", json!({"about": "nothing"}));
    nothing["when"] = json!("object.data.absent");
    let responders = json!([responder(
        "notes",
        "object.created",
        "Topic",
        emits(json!([nothing]))
    )]);
    let run = run(json!([]), world(json!({"responders": responders})));
    assert_eq!(world_frames(&run), ["object.created"]);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.holds_together();
}

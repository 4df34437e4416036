//! The worlds of Kando's kits, and what responders promise, in a small loop.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::loop_tests::{Loop, definition};
use ktsu_ledger::Event;
use ktsu_ledger::event::{FiringVerdict, WorldEvent};
use ktsu_projections::world::WorldDiff;

fn kit(name: &str) -> Value {
    let text = match name {
        "diligence" => include_str!("worlds/diligence.json"),
        _ => include_str!("worlds/research.json"),
    };
    serde_json::from_str(text).unwrap()
}

/// Answers what is open until nothing is.
fn answer_all(run: &mut Loop<'_>) {
    run.run();
    while let Some(address) = run.open_tasks().first().cloned() {
        run.reply(&address, &format!("reply to {address}"));
        run.run();
    }
}

#[test]
fn diligence_makes_three_world_frames_and_five_with_a_reply() {
    let definition = definition(&[&kit("diligence")]);
    let mut run = Loop::new(&definition, "Acme");
    run.run();
    assert_eq!(
        run.world_frames(),
        ["object.created", "object.created", "llm.request"]
    );
    assert_eq!((run.count("Company"), run.count("Claim")), (1, 1));
    answer_all(&mut run);
    assert_eq!(run.world_frames()[3..], ["llm.response", "object.patched"]);
    let claims: Vec<_> = run.world().of_type("Claim").collect();
    let data = claims[0].data.to_value();
    assert_eq!(data["status"], "complete");
    assert!(
        data["text"]
            .as_str()
            .unwrap()
            .starts_with("reply to @write-claim.")
    );
    assert!(run.responding.is_idle() && run.open_tasks().is_empty());
    assert_eq!(run.responding.activity().deepest(), Some(4));
    let kinds: Vec<_> = run.frames.iter().map(|frame| frame.event.kind()).collect();
    assert_eq!(kinds.last(), Some(&"responder.completed"));
}

#[test]
fn research_makes_eighteen_world_frames_and_twenty_five_with_replies() {
    let definition = definition(&[&kit("research")]);
    let mut run = Loop::new(&definition, "Acme");
    run.run();
    assert_eq!(run.world_frames().len(), 18);
    let counts = ["Goal", "Question", "Finding", "Synthesis"].map(|kind| run.count(kind));
    assert_eq!(counts, [1, 3, 3, 1]);
    let counts = ["decomposes_into", "answers", "synthesizes"].map(|kind| run.count(kind));
    assert_eq!(counts, [3, 3, 1]);
    // Item by item: a question, its relation, the next question.
    assert_eq!(
        run.world_frames()[..5],
        [
            "object.created",
            "object.created",
            "relation.created",
            "object.created",
            "relation.created"
        ]
    );
    answer_all(&mut run);
    assert_eq!(run.world_frames().len(), 25);
    let synthesis: Vec<_> = run.world().of_type("Synthesis").collect();
    let data = synthesis[0].data.to_value();
    assert_eq!(
        (&data["status"], &data["finding_count"]),
        (&json!("complete"), &json!(3))
    );
    assert_eq!(data["summary"].as_str().unwrap().split("\n\n").count(), 3);
}

#[test]
fn replies_in_any_order_make_one_world() {
    let definition = definition(&[&kit("research")]);
    let mut started = Loop::new(&definition, "Acme");
    started.run();
    let tasks = started.open_tasks();
    assert_eq!(tasks.len(), 3);
    let mut hashes = Vec::new();
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        for eager in [true, false] {
            let mut run = started.restarted(&started.frames);
            for at in order {
                run.reply(&tasks[at], &format!("reply {at}"));
                if eager {
                    run.run();
                }
            }
            run.run();
            assert_eq!(run.world_frames().len(), 25);
            hashes.push(run.world().hash());
        }
    }
    hashes.dedup();
    assert_eq!(hashes.len(), 1);
}

#[test]
fn a_log_that_is_cut_after_any_frame_continues_to_the_same_world() {
    for name in ["diligence", "research"] {
        let definition = definition(&[&kit(name)]);
        let mut whole = Loop::new(&definition, "Acme");
        answer_all(&mut whole);
        for length in 0..=whole.frames.len() {
            let mut cut = whole.restarted(&whole.frames[..length]);
            // What is asked is answered as before; what the cut took away is asked again.
            answer_all(&mut cut);
            let diff = WorldDiff::between(whole.world(), cut.world());
            assert!(diff.is_empty(), "{name} cut at {length}: {diff} {diff:?}");
            // A request that the cut took away is recorded later.
            let sorted = |run: &Loop<'_>| {
                let mut kinds: Vec<_> = run.world_frames().into_iter().map(str::to_owned).collect();
                kinds.sort_unstable();
                kinds
            };
            assert_eq!(sorted(&cut), sorted(&whole), "{name} cut at {length}");
        }
    }
}

#[test]
fn what_is_posted_to_a_run_that_has_ended_is_related_if_it_names_what_is_there() {
    let definition = definition(&[&kit("diligence")]);
    let mut run = Loop::new(&definition, "Acme");
    answer_all(&mut run);
    let claim = run.world().of_type("Claim").next().unwrap().id.to_string();
    let company = run
        .world()
        .of_type("Company")
        .next()
        .unwrap()
        .id
        .to_string();
    run.post("e1", "Evidence", &json!({"claim_id": claim}));
    run.post("e2", "Evidence", &json!({"claim_id": "unknown"}));
    run.post(
        "x1",
        "Contradiction",
        &json!({"claim_a_id": claim, "claim_b_id": claim}),
    );
    run.post(
        "x2",
        "Contradiction",
        &json!({"claim_a_id": claim, "claim_b_id": "no"}),
    );
    run.post("r1", "Report", &json!({"company_id": company}));
    run.post("r2", "Report", &json!({}));
    run.run();
    let counts = ["sourced_from", "contradicts", "depends_on"].map(|kind| run.count(kind));
    assert_eq!(counts, [1, 1, 1]);
    assert!(run.failures.is_empty());
}

/// A world of one type, with these responders.
pub(super) fn world(name: &str, responders: Value) -> Value {
    json!({
        "name": name, "version": "1.0.0",
        "budget": {"max_events": 100, "max_llm_cost_micro_usd": 1, "max_recursion_depth": 5,
            "max_wall_ms": 1000},
        "goal": [{"make": {"object": {"type": "Start", "data": {"n": "{{ goal }}"}}}}],
        "objects": {"Start": {}, "Thing": {"schema": {"type": "object",
            "properties": {"n": {"type": "integer"}}}}},
        "relations": {"near": {}},
        "responders": responders,
    })
}

pub(super) fn on_start(name: &str, more: Value) -> Value {
    let mut responder = json!({"name": name, "on": ["object.created"], "type": ["Start"],
        "work": {"emit": []}});
    crate::plans_tests::merge(&mut responder, more);
    responder
}

pub(super) fn thing(data: Value) -> Value {
    json!({"make": {"object": {"type": "Thing", "data": data}}})
}

fn verdicts(run: &Loop<'_>) -> Vec<(String, FiringVerdict, Option<String>)> {
    let fired = run.frames.iter().filter_map(|frame| match &frame.event {
        Event::World(WorldEvent::Fired(fired)) => Some(fired),
        _ => None,
    });
    fired
        .flat_map(|fired| &fired.candidates)
        .map(|one| (one.responder.clone(), one.verdict, one.reason.clone()))
        .collect()
}

#[test]
fn a_guard_that_cannot_be_evaluated_is_false_and_says_why() {
    // T3
    let entries = json!({"emit": [thing(json!({"n": 1}))]});
    let definition = definition(&[&world(
        "w",
        json!([
            on_start(
                "bad",
                json!({"when": "length(object.data.m)", "work": entries})
            ),
            on_start("no", json!({"when": "object.data.m", "work": entries})),
            on_start(
                "none",
                json!({"for_each": {"from": "object.data.m"}, "work": entries})
            ),
            on_start("yes", json!({"work": entries})),
        ]),
    )]);
    let mut run = Loop::new(&definition, "text");
    run.run();
    let verdicts = verdicts(&run);
    let found: Vec<_> = verdicts.iter().map(|(_, verdict, _)| *verdict).collect();
    use FiringVerdict::{Failed, False, Fired};
    assert_eq!(found, [Failed, False, Fired, Fired]);
    assert!(verdicts[0].2.is_some());
    assert_eq!(run.count("Thing"), 1);
    assert!(run.failures.is_empty() && run.responding.is_idle());
}

#[test]
fn an_output_that_is_not_valid_is_rejected_and_the_rest_of_its_responder_is_not_made() {
    let patch = json!({"make": {"patch": {"id": "nobody", "data": {"n": 1}}}});
    let definition = definition(&[&world(
        "w",
        json!([
            on_start(
                "schema",
                json!({"work": {"emit": [thing(json!({"n": "x"})), thing(json!({}))]}})
            ),
            on_start("missing", json!({"work": {"emit": [patch]}})),
            on_start("fine", json!({"work": {"emit": [thing(json!({"n": 2}))]}})),
        ]),
    )]);
    let mut run = Loop::new(&definition, "go");
    run.run();
    assert_eq!(run.count("Thing"), 1);
    assert_eq!(run.failures.len(), 4);
    assert!(
        run.failures[0].contains(r#""code":"schema_violation""#),
        "{}",
        run.failures[0]
    );
    assert!(run.failures[0].contains(r#""type":"object.created""#));
    assert!(run.failures[1].contains(r#""responder":"schema""#));
    assert!(run.failures[2].contains(r#""code":"unknown_object""#));
    let kinds: Vec<_> = run.frames.iter().map(|frame| frame.event.kind()).collect();
    assert_eq!(
        kinds[1..],
        [
            "responder.fired",
            "output.rejected",
            "responder.failed",
            "output.rejected",
            "responder.failed",
            "object.created"
        ]
    );
}

#[test]
fn an_object_with_a_key_is_made_once_and_then_kept_or_patched() {
    let mut kept = thing(json!({"n": "{{ item }}"}));
    kept["key"] = json!("same");
    let mut patched = kept.clone();
    patched["key"] = json!("other");
    patched["if_exists"] = json!("patch");
    patched["as"] = json!("it");
    let near = json!({"make": {"relation": {"type": "near", "from": "{{ it.id }}",
        "to": "{{ object.id }}"}}});
    let definition = definition(&[&world(
        "w",
        json!([on_start(
            "once",
            json!({
        "for_each": {"items": [1, 2, 3]}, "work": {"emit": [kept, patched, near]}})
        )]),
    )]);
    let mut run = Loop::new(&definition, "go");
    run.run();
    let things: Vec<_> = run
        .world()
        .of_type("Thing")
        .map(|one| one.data.to_value())
        .collect();
    assert_eq!(things, [json!({"n": 1}), json!({"n": 3})]);
    assert_eq!(run.count("near"), 1);
    let hash = run.world().hash();
    for length in 0..=run.frames.len() {
        let mut cut = run.restarted(&run.frames[..length]);
        cut.run();
        assert_eq!(cut.world().hash(), hash, "cut at {length}");
        assert_eq!(cut.frames.len(), run.frames.len());
    }
}

#[test]
fn outputs_that_make_nothing_at_the_end_hold_nothing_up() {
    let mut never = thing(json!({}));
    never["when"] = json!("object.data.never");
    let ask = json!({"ask": {"group": "fast", "max_tokens": 9,
        "messages": [{"role": "user", "content": "{{ object.data.n }}"}]}});
    let definition = definition(&[&world(
        "w",
        json!([
            on_start(
                "first",
                json!({"work": {"emit": [thing(json!({"n": 1})), never]}})
            ),
            on_start("asks", json!({"work": ask, "then": [never]})),
            json!({"name": "second", "on": ["object.created"], "type": ["Thing"],
            "work": {"emit": [never]}}),
            json!({"name": "third", "on": ["object.created"], "type": ["Thing"],
            "work": {"emit": [{"make": {"relation": {"type": "near", "from": "a", "to": "b"}}}]}}),
        ]),
    )]);
    let mut run = Loop::new(&definition, "go");
    answer_all(&mut run);
    assert_eq!(run.count("near"), 1);
    let kinds: Vec<_> = run.frames.iter().map(|frame| frame.event.kind()).collect();
    assert_eq!(
        kinds,
        [
            "object.created",
            "responder.fired",
            "object.created",
            "responder.fired",
            "worker.dispatched",
            "llm.request",
            "relation.created",
            "llm.response",
            "agent.finished",
            "responder.completed"
        ]
    );
    for length in 0..=run.frames.len() {
        let mut cut = run.restarted(&run.frames[..length]);
        answer_all(&mut cut);
        assert_eq!(cut.world().hash(), run.world().hash(), "cut at {length}");
    }
}

#[test]
fn a_reaction_to_a_reply_does_not_replace_what_a_person_changed_meanwhile() {
    let definition = definition(&[&kit("diligence")]);
    let mut run = Loop::new(&definition, "Acme");
    run.run();
    let claim = run.world().of_type("Claim").next().unwrap().id.to_string();
    run.post_patch(&claim, &json!({"text": "hers"}));
    answer_all(&mut run);
    let data = run.world().object(&claim).unwrap().data.to_value();
    assert_eq!(
        (&data["text"], &data["status"]),
        (&json!("hers"), &json!("complete"))
    );
    let shown = run
        .frames
        .iter()
        .rev()
        .find_map(|frame| match &frame.event {
            Event::World(WorldEvent::ObjectPatched(patched)) => Some(patched.withheld.to_value()),
            _ => None,
        });
    assert!(
        shown.unwrap()["text"]
            .as_str()
            .unwrap()
            .starts_with("reply to")
    );
}

#[test]
fn a_reaction_to_a_reply_looks_things_up_as_of_the_reply() {
    let ask = json!({"ask": {"group": "fast", "max_tokens": 9,
        "messages": [{"role": "user", "content": "{{ item }}"}]}});
    let definition = definition(&[&world(
        "w",
        json!([on_start(
            "asks",
            json!({"for_each": {"items": [1, 2, 3]}, "work": ask,
            "with": [{"name": "all", "find": {"count": {"type": "Thing"}}}],
            "then": [thing(json!({"n": "{{ all }}"}))]})
        )]),
    )]);
    let mut run = Loop::new(&definition, "go");
    run.run();
    let tasks = run.open_tasks();
    run.reply(&tasks[0], "alone");
    run.run();
    // Both are recorded before anything is made of the first of them.
    run.reply(&tasks[1], "together");
    run.reply(&tasks[2], "together");
    run.run();
    let things = run.world().of_type("Thing");
    let seen: Vec<Value> = things.map(|one| one.data.to_value()).collect();
    assert_eq!(seen, [0, 1, 1].map(|n| json!({ "n": n })));
}

#[test]
fn a_question_that_fails_fails_its_responder() {
    let definition = definition(&[&kit("diligence")]);
    let mut run = Loop::new(&definition, "Acme");
    run.run();
    let address = run.open_tasks()[0].clone();
    run.finish(
        &address,
        &json!({"error": {"code": "provider_error", "message": "no"}}),
    );
    run.run();
    assert_eq!(run.failures.len(), 1);
    assert!(run.failures[0].contains("provider_error"));
    assert!(run.open_tasks().is_empty() && run.responding.is_idle());
}

#[test]
fn edges_of_two_worlds_both_fire_and_a_guard_sees_the_world_as_of_its_trigger() {
    let edge = |name: &str| {
        json!({"name": name, "on": ["relation.created"], "type": ["near"],
        "with": [{"name": "all", "find": {"count": {"type": "Thing"}}}],
        "work": {"emit": [thing(json!({"n": "{{ all }}"}))]}})
    };
    let near = json!({"make": {"relation": {"type": "near", "from": "a", "to": "b"}}});
    // The thing behind the relation is there by the time that its edges are judged.
    let emit = json!([near, thing(json!({"n": 7}))]);
    let mut one = world(
        "one",
        json!([on_start("relate", json!({"work": {"emit": emit}}))]),
    );
    one["edges"] = json!([edge("first")]);
    let mut two = world("two", json!([]));
    two["edges"] = json!([edge("second")]);
    two["goal"] = json!([]);
    let definition = definition(&[&one, &two]);
    let mut run = Loop::new(&definition, "go");
    run.run();
    let things: Vec<_> = run
        .world()
        .of_type("Thing")
        .map(|one| one.data.to_value())
        .collect();
    assert_eq!(things, [7, 0, 0].map(|n| json!({ "n": n })));
}

#[test]
fn a_large_firing_takes_time_in_proportion_to_its_outputs() {
    let items: Vec<u32> = (0..2_000).collect();
    let definition = definition(&[&world(
        "w",
        json!([on_start(
            "many",
            json!({
        "for_each": {"items": items}, "work": {"emit": [thing(json!({"n": "{{ item }}"}))]}})
        )]),
    )]);
    let mut run = Loop::new(&definition, "go");
    run.step();
    run.step();
    let before = crate::expression::converted();
    run.run();
    // Each output converts what it mentions; none converts the list again.
    let converted = crate::expression::converted() - before;
    assert_eq!(run.count("Thing"), 2_000);
    assert!(converted < 2_000 * 20, "{converted}");
    // What comes after a restart evaluates the list once more.
    let mut cut = run.restarted(&run.frames[..1_000]);
    let before = crate::expression::converted();
    cut.run();
    assert_eq!(cut.world().hash(), run.world().hash());
    assert!(crate::expression::converted() - before < 2_000 * 20);
}

#[test]
fn a_responder_has_no_more_questions_under_way_than_it_may() {
    let ask = json!({"ask": {"group": "fast", "max_tokens": 9,
        "messages": [{"role": "user", "content": "{{ item }} of {{ object.data.n }}"}]}});
    let made = thing(json!({"n": "{{ item }}"}));
    let definition = definition(&[&world(
        "w",
        json!([on_start(
            "asks",
            json!({"concurrency": 2, "for_each": {"items": [1, 2, 3]},
            "work": ask, "then": [made]})
        )]),
    )]);
    let mut run = Loop::new(&definition, "go");
    run.run();
    assert_eq!(
        run.world_frames(),
        ["object.created", "llm.request", "llm.request"]
    );
    let second = run.open_tasks()[1].clone();
    run.reply(&second, "later");
    run.run();
    assert_eq!(
        run.world_frames()[3..],
        ["llm.response", "llm.request", "object.created"]
    );
    answer_all(&mut run);
    let mut things: Vec<_> = run
        .world()
        .of_type("Thing")
        .map(|one| one.data.to_value())
        .collect();
    things.sort_by_key(|one| one["n"].as_u64());
    assert_eq!(things, [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})]);
}

proptest! {
    #![proptest_config(ktsu_campaign::config(48))]

    /// Replies and posts come at any moment, also inside of firings.
    #[test]
    fn whatever_comes_when_a_cut_behind_the_last_input_changes_nothing(
        moves in prop::collection::vec((0..12usize, 0..4usize, any::<prop::sample::Index>()), 0..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let definition = definition(&[&kit("research"), &kit("diligence")]);
        let mut run = Loop::new(&definition, "Acme");
        let mut last_input = 0;
        for (steps, input, which) in moves {
            for _ in 0..steps {
                run.step();
            }
            let tasks = run.open_tasks();
            let ids: Vec<String> = run.world().objects().iter().map(|one| one.id.to_string()).collect();
            match input {
                0 | 1 if !tasks.is_empty() => run.reply(&tasks[which.index(tasks.len())], "reply"),
                2 if !ids.is_empty() => run.post_patch(&ids[which.index(ids.len())], &json!({"text": "hers"})),
                3 if !ids.is_empty() => {
                    let id = format!("e{}", run.frames.len());
                    run.post(&id, "Evidence", &json!({"claim_id": ids[which.index(ids.len())]}));
                }
                _ => continue,
            }
            last_input = run.frames.len();
        }
        run.run();
        let length = last_input + cut.index(run.frames.len() - last_input + 1);
        // What the loop records as a task's request is an input, too.
        let dispatched = |frame: &ktsu_ledger::Frame| frame.event.kind() == "worker.dispatched";
        let after = length > 0 && dispatched(&run.frames[length - 1]);
        let length = length + usize::from(after);
        let mut again = run.restarted(&run.frames[..length]);
        again.run();
        let same = |run: &Loop<'_>| -> Vec<String> {
            let frames = run.frames.iter();
            frames.map(|frame| format!("{} {}", frame.actor, frame.event.data())).collect()
        };
        let (a, b) = (same(&again), same(&run));
        let first = a.iter().zip(&b).position(|(a, b)| a != b);
        let at = |all: &[String]| first.and_then(|at| all.get(at).cloned());
        prop_assert_eq!((length, first, at(&a), a.len()), (length, None, at(&b), b.len()));
        prop_assert_eq!(again.world().hash(), run.world().hash());
    }
}

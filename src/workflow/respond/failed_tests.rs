//! Responders that fail: what they go through cannot be evaluated, or what they make is too long.

use serde_json::{Value, json};

use super::loop_tests::{Loop, definition};
use super::worlds_tests::{on_start, thing, world};

#[test]
fn a_for_each_that_cannot_be_evaluated_fails_its_responder_in_its_turn() {
    let entries = json!({"emit": [thing(json!({"n": 1}))]});
    let ask = json!({"ask": {"group": "fast", "max_tokens": 9,
        "messages": [{"role": "user", "content": "{{ item }}"}]}});
    let each = |work: &Value| json!({"for_each": {"from": "object.data.n"}, "work": work});
    let definition = definition(&[&world(
        "w",
        json!([
            on_start("first", json!({"work": entries})),
            on_start("emits", each(&entries)),
            on_start("emits-nothing", each(&json!({"emit": []}))),
            on_start("asks", each(&ask)),
            on_start("last", json!({"work": entries})),
        ]),
    )]);
    let mut run = Loop::new(&definition, "text");
    run.run();
    let kinds: Vec<_> = run.frames.iter().map(|frame| frame.event.kind()).collect();
    let failed = "responder.failed";
    let made = "object.created";
    assert_eq!(
        kinds[1..],
        ["responder.fired", made, failed, failed, failed, made]
    );
    for (told, name) in run.failures.iter().zip(["emits", "emits-nothing", "asks"]) {
        assert!(told.contains(&format!(r#""responder":"{name}""#)), "{told}");
        let why = "for_each needs a list, and has a value of type string";
        assert!(told.contains(why), "{told}");
    }
    let hash = run.world().hash();
    for length in 0..=run.frames.len() {
        let mut cut = run.restarted(&run.frames[..length]);
        cut.run();
        let same = cut.world().hash() == hash && cut.frames.len() == run.frames.len();
        assert!(same && cut.responding.is_idle(), "cut at {length}");
    }
}

#[test]
fn an_id_or_a_key_that_is_too_long_is_rejected_and_data_may_be_as_long_as_it_likes() {
    let long = "{{ params.goal }}";
    let relation = |more: Value| {
        let mut relation = json!({"type": "near", "from": "a", "to": "b"});
        crate::plans_tests::merge(&mut relation, more);
        json!({"make": {"relation": relation}})
    };
    let mut keyed = thing(json!({"n": 1}));
    keyed["key"] = json!(long);
    let data = json!({"text": long});
    let makes = [
        ("id", relation(json!({"id": long}))),
        ("source_id", relation(json!({"from": long}))),
        ("target_id", relation(json!({"to": long}))),
        (
            "id",
            json!({"make": {"patch": {"id": long, "data": {"n": 1}}}}),
        ),
        ("id", json!({"make": {"remove": {"relation": long}}})),
        ("key", keyed),
    ];
    let place = |at: usize| format!("r{at}");
    let mut responders: Vec<Value> = (0..)
        .zip(&makes)
        .map(|(at, (_, make))| on_start(&place(at), json!({"work": {"emit": [make]}})))
        .collect();
    let large = [
        thing(data.clone()),
        json!({"make": {"patch": {"id": "{{ object.id }}", "data": data}}}),
        relation(json!({"data": data})),
    ];
    responders.push(on_start("large", json!({"work": {"emit": large}})));
    let mut long_world = world("w", json!(responders));
    long_world["goal"] = json!([{"make": {"object": {"type": "Start", "data": {"n": "goal"}}}}]);
    let definition = definition(&[&long_world]);
    let goal: &'static str = Box::leak("k".repeat(70_000).into_boxed_str());
    let mut run = Loop::new(&definition, goal);
    run.run();
    assert_eq!(
        run.failures.len(),
        2 * makes.len(),
        "{:?}",
        run.failures.len()
    );
    for (pair, (member, _)) in run.failures.chunks(2).zip(&makes) {
        let told: Value = serde_json::from_str(&pair[0]).unwrap();
        assert_eq!(told["code"], "schema_violation");
        assert_eq!(told["errors"][0]["rule"], "maxLength");
        let message = format!("{member} has 70000 characters, and may have 256");
        assert_eq!(told["message"], message);
        assert_eq!(told["output"][member].as_str().map(str::len), Some(70_000));
        assert!(pair[1].contains(&message));
    }
    assert_eq!((run.count("Thing"), run.count("near")), (1, 1));
    let read = |data: &ktsu_ledger::CanonicalJson| data.to_value()["text"].as_str().map(str::len);
    let mut objects = ["Thing", "Start"]
        .into_iter()
        .flat_map(|kind| run.world().of_type(kind));
    assert!(objects.all(|one| read(&one.data) == Some(70_000)));
    let again = run.restarted(&run.frames);
    assert_eq!(again.world().hash(), run.world().hash());
    // As long as an id may be.
    let fits: &'static str = Box::leak("é".repeat(256).into_boxed_str());
    let mut run = Loop::new(&definition, fits);
    run.run();
    assert_eq!(run.failures.len(), 2, "the patch alone: {:?}", run.failures);
    assert!(run.failures[0].contains("unknown_object"));
}

#[test]
fn params_are_read_where_an_expression_names_them_and_nowhere_else() {
    let reads = |text: &str| {
        let emit = json!({"emit": [thing(json!({"n": 1}))]});
        let work = json!({"for_each": {"from": text}, "work": emit});
        let definition = definition(&[&world("w", json!([on_start("first", work)]))]);
        let mut run = Loop::new(&definition, "text");
        run.run();
        assert!(run.failures.is_empty(), "{:?}", run.failures);
        run.reads.get()
    };
    assert_eq!(reads("[object.id]"), 0);
    assert_eq!(reads("[params.goal]"), 1);
}

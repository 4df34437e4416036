//! Simulations of runs whose agents call tools: given the frames, when the plan differs, then the
//! divergences (seed 000, invariants 5 and 34).

use ktsu_ledger::event::{AgentEvent, Decision, LostReason, UnsentReason};
use serde_json::{Value, json};

use super::*;
use crate::driven_tests::{Driven, Say};
use crate::plans_tests::{agent, run_of, transform};

fn run() -> Driven {
    run_of(json!([agent("a", json!([]), "acts", json!({}))]), json!({}))
}

fn call(server: &str, tool: &str) -> Say {
    Say::Call(0, server.to_owned(), tool.to_owned())
}

/// A run whose agent asks for a tool, which people decide on, if they are asked at all.
fn acted(server: &str, tool: &'static str, gate: Option<&[Decision]>) -> Driven {
    let mut run = run();
    run.asks("a");
    run.says("a", &[Say::Wants(vec![tool])]);
    let mut rejected = false;
    if let Some(words) = gate {
        run.says("a", &[Say::Gate(0, server.to_owned(), tool.to_owned())]);
        for (by, word) in ["ann", "bob"].iter().zip(words) {
            run.decides("a", by, *word, None).unwrap();
            rejected = *word == Decision::Rejected;
        }
    }
    match rejected {
        true => run.says("a", &[Say::NotSent(0, UnsentReason::Rejected)]),
        false => {
            run.says("a", &[call(server, tool)]);
            run.says("a", &[Say::Result(0)]);
        }
    }
    run.does("a", json!({"v": 1}));
    run
}

/// What is said of a run under its own definition with the plan changed.
fn under(run: &Driven, change: impl FnOnce(&mut Value)) -> Vec<Divergence> {
    let own = &run.definition;
    let base = simulate(&run.frames, own, own).unwrap();
    assert_eq!(compare(&run.frames, &base, &base).unwrap(), []);
    let mut plan: Value = serde_json::from_str(own.json.as_str()).unwrap();
    change(&mut plan);
    let plan = serde_json::from_value(plan).unwrap();
    let definition = Arc::new(Definition::compile(plan).unwrap());
    let new = simulate(&run.frames, own, &definition).unwrap();
    compare(&run.frames, &base, &new).unwrap()
}

/// What is said of calls of tools: respect, server and tool, and both sides.
fn calls(found: Vec<Divergence>) -> Vec<(String, Value, Value)> {
    let calls = found.into_iter().filter(|one| one.server.is_some());
    let told = calls.map(|one| {
        let (server, tool) = (one.server.unwrap_or_default(), one.tool.unwrap_or_default());
        let words = format!("{} {} {server} {tool}", one.what.name(), one.step);
        let side = Option::unwrap_or_default;
        (words, side(one.history), side(one.decided))
    });
    told.collect()
}

/// The rule of the server `s` that has this pattern.
fn rule<'p>(plan: &'p mut Value, pattern: &str) -> &'p mut Value {
    let rules = plan["agents"]["acts"]["servers"][0]["tools"].as_array_mut();
    let mut rules = rules.unwrap().iter_mut();
    rules.find(|rule| rule["pattern"] == pattern).unwrap()
}

fn said(words: &str, history: Value, decided: Value) -> Vec<(String, Value, Value)> {
    vec![(words.to_owned(), history, decided)]
}

const APPROVED: Option<&[Decision]> = Some(&[Decision::Approved]);
const TWICE: Option<&[Decision]> = Some(&[Decision::Approved, Decision::Approved]);

#[test]
fn a_gate_that_comes_or_goes_is_named() {
    let policy = json!({"on_reject": "fail", "quorum": 1});
    let read = acted("s", "read-a", None);
    let found = under(&read, |plan| {
        rule(plan, "read-*")["approval"] = policy.clone()
    });
    let words = "gate_added a s read-a";
    assert_eq!(calls(found), said(words, Value::Null, policy.clone()));
    let delete = acted("s", "delete-a", APPROVED);
    let found = under(&delete, |plan| {
        let rule = rule(plan, "delete-*").as_object_mut().unwrap();
        rule.remove("approval");
    });
    let words = "gate_removed a s delete-a";
    assert_eq!(calls(found), said(words, policy, Value::Null));
}

#[test]
fn each_term_of_a_gate_is_named_by_itself() {
    let delete = acted("s", "delete-a", APPROVED);
    let two = acted("s", "two-a", TWICE);
    let timeout = json!({"behavior": "fail", "ms": 9000});
    for (run, pattern, term, is, words, was) in [
        (
            &delete,
            "delete-*",
            "on_reject",
            json!("recover"),
            "on_reject a s delete-a",
            json!("fail"),
        ),
        (
            &delete,
            "delete-*",
            "timeout",
            timeout,
            "approval_timeout a s delete-a",
            Value::Null,
        ),
        (
            &delete,
            "delete-*",
            "quorum",
            json!(2),
            "quorum a s delete-a",
            json!(1),
        ),
        (
            &two,
            "two-*",
            "not_by_proposer",
            json!(false),
            "not_by_proposer a s two-a",
            json!(true),
        ),
    ] {
        let found = under(run, |plan| {
            rule(plan, pattern)["approval"][term] = is.clone()
        });
        assert_eq!(calls(found), said(words, was, is));
    }
}

#[test]
fn a_tool_or_a_server_that_is_gone_is_named() {
    let read = acted("s", "read-a", None);
    let found = under(&read, |plan| {
        rule(plan, "read-*")["pattern"] = json!("read-b")
    });
    let (words, found) = ("tool_not_permitted a s read-a", calls(found));
    assert_eq!(found[0].0, words);
    assert_eq!(
        (&found[0].1[0], &found[0].2[0]),
        (&json!("read-*"), &json!("read-b"))
    );
    let write = acted("w", "write", None);
    let found = under(&write, |plan| {
        let servers = plan["agents"]["acts"]["servers"].as_array_mut();
        servers.unwrap().remove(1);
    });
    let words = "server_removed a w write";
    assert_eq!(
        calls(found),
        said(words, json!("w.server.yaml"), Value::Null)
    );
}

#[test]
fn a_policy_is_named_for_calls_that_were_made_and_once_for_all_of_them() {
    let mut twice = run();
    for _ in 0..2 {
        twice.asks("a");
        twice.says("a", &[Say::Wants(vec!["read-a"])]);
        twice.says("a", &[call("s", "read-a")]);
        twice.says("a", &[Say::Result(0)]);
    }
    twice.does("a", json!({"v": 1}));
    let gate = json!({"on_reject": "fail", "quorum": 1});
    let found = under(&twice, |plan| {
        rule(plan, "read-*")["approval"] = gate.clone()
    });
    assert_eq!(calls(found).len(), 1);
    let found = under(&twice, |plan| {
        rule(plan, "delete-*")["approval"]["quorum"] = json!(2)
    });
    assert_eq!(calls(found), []);
}

/// The frames of an agent have other numbers behind a step that is new; what they name moves along.
#[test]
fn a_step_before_an_agent_changes_nothing_about_its_calls() {
    let happened = {
        let mut run = run();
        run.asks("a");
        run.says("a", &[Say::Wants(vec!["write"])]);
        run.says("a", &[call("w", "write")]);
        run.says("a", &[Say::Doubt(0)]);
        run.decides("a", "ann", Decision::Happened, None).unwrap();
        run.says("a", &[Say::Result(0)]);
        run.does("a", json!({"v": 1}));
        run
    };
    let again = {
        let mut run = run();
        run.asks("a");
        run.says("a", &[Say::Wants(vec!["write"])]);
        run.says("a", &[call("w", "write")]);
        run.says("a", &[Say::Doubt(0)]);
        run.decides("a", "ann", Decision::Approved, None).unwrap();
        run.says("a", &[call("w", "write")]);
        run.says("a", &[Say::Result(0)]);
        run.does("a", json!({"v": 1}));
        run
    };
    let lost = {
        let mut run = run();
        run.asks("a");
        run.says("a", &[Say::Wants(vec!["write"])]);
        run.says("a", &[call("w", "write")]);
        assert!(run.loses("a", LostReason::Heartbeat, true));
        run.decides("a", "ann", Decision::Happened, None).unwrap();
        run.says("a", &[Say::Result(0)]);
        run.does("a", json!({"v": 1}));
        run
    };
    let late = {
        let mut run = run();
        run.asks("a");
        run.says("a", &[Say::Wants(vec!["soft-a"])]);
        run.says("a", &[Say::Gate(0, "s".to_owned(), "soft-a".to_owned())]);
        run.waits_too_long();
        run.says("a", &[Say::NotSent(0, UnsentReason::Rejected)]);
        run.does("a", json!({"v": 1}));
        run
    };
    for (told, run) in [
        ("read", acted("s", "read-a", None)),
        ("approved", acted("s", "delete-a", APPROVED)),
        ("by two", acted("s", "two-a", TWICE)),
        ("rejected", acted("s", "ask-a", Some(&[Decision::Rejected]))),
        ("happened", happened),
        ("again", again),
        ("lost", lost),
        ("late", late),
    ] {
        let found = under(&run, |plan| {
            let steps = plan["workflows"]["main"]["steps"].as_array_mut().unwrap();
            steps.insert(0, transform("first", json!([]), "`[[1]]`"));
            steps[1]["needs"] = json!([0]);
        });
        let of_a: Vec<String> = found
            .iter()
            .filter(|one| one.step == "a")
            .map(|one| one.what.name().to_owned())
            .collect();
        assert!(
            !of_a
                .iter()
                .any(|what| ["no_record", "unused_record"].contains(&what.as_str())),
            "{told}: {found:#?}"
        );
        let added = found.iter().any(|one| one.step == "first");
        assert!(added, "{told}: {found:#?}");
        assert_eq!(
            found.iter().filter(|one| one.step.is_empty()).count(),
            0,
            "{told}: {found:#?}"
        );
    }
}

#[test]
fn a_request_names_the_frames_it_refers_to_by_their_new_numbers() {
    let run = acted("s", "read-a", None);
    let mut events = run.frames.iter().map(|frame| &frame.event);
    let asks = |event: &&Event| event.kind() == "llm.request";
    let mut event = events.find(asks).unwrap().clone();
    let Event::Agent(AgentEvent::Request(request)) = &mut event else {
        panic!("it is a request");
    };
    let told = json!([{"content": "hi", "role": "user"}, {"frame": 5, "role": "assistant"}]);
    request.messages = CanonicalJson::from_value(&told).unwrap();
    renumber::renumber(&mut event, |seq| Some(seq + 10));
    let messages = &event.data()["messages"];
    assert_eq!(messages[0], told[0]);
    assert_eq!(messages[1], json!({"frame": 15, "role": "assistant"}));
}

/// A topic becomes two questions, about which a model is asked.
fn asking_world() -> Value {
    json!({
        "name": "w", "version": "1.0.0",
        "budget": {"max_events": 1000, "max_llm_cost_micro_usd": 1_000_000,
            "max_recursion_depth": 50, "max_wall_ms": 100_000},
        "goal": [{"make": {"object": {"type": "Topic", "data": {"text": "{{ goal }}"}}}}],
        "objects": {"Topic": {}, "Question": {}},
        "relations": {"about": {}},
        "responders": [
            {"name": "questions", "on": ["object.created"], "type": ["Topic"],
                "for_each": {"items": ["what", "why"]},
                "work": {"emit": [{"as": "q", "make": {"object":
                    {"type": "Question", "data": {"text": "{{ item }}"}}}},
                    {"make": {"relation": {"type": "about", "from": "{{ q.id }}",
                        "to": "{{ object.id }}"}}}]}},
            {"name": "asks", "on": ["object.created"], "type": ["Question"],
                "work": {"ask": {"group": "std", "max_tokens": 10, "messages":
                    [{"role": "user", "content": "{{ object.data.text }}?"}]}},
                "then": [{"make": {"patch": {"id": "{{ object.id }}",
                    "data": {"answer": "{{ reply.text }}"}}}}]},
        ],
    })
}

/// A run of it, of which both questions are answered.
fn asked() -> Driven {
    let main = crate::plans_tests::workflow("main", json!([]));
    let mut plan = crate::plans_tests::plan(json!({"main": main}));
    plan["worlds"] = json!({"worlds/w.world.yaml": asking_world()});
    let mut run = Driven::invoke(plan, json!({"goal": "tides", "x": [1]}));
    let tasks = run.state.responding().unwrap().tasks();
    let open: Vec<String> = tasks.map(|task| task.context.address.to_string()).collect();
    for address in open.iter().rev() {
        run.does(address, json!("because"));
    }
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run
}

fn in_short(found: &[Divergence]) -> Vec<(String, bool, bool)> {
    let short = found.iter().map(|one| {
        let mut parts = one.field.split(['/', '-']).skip(1);
        let part = |part: Option<&str>| part.unwrap_or_default().to_owned();
        let (base, id) = (part(parts.next()), part(parts.next()));
        let words = format!("{} {base} {id}", one.what.name());
        (words, one.history.is_some(), one.decided.is_some())
    });
    short.collect()
}

#[test]
fn a_world_decided_again_by_its_own_kit_does_not_diverge_and_ends() {
    let run = asked();
    assert_eq!(under(&run, |_| ()), []);
    let own = &run.definition;
    let again = simulate(&run.frames, own, own).unwrap();
    assert_eq!(again.state.status().as_str(), "complete");
    assert_eq!(again.unused_inputs, []);
}

#[test]
fn what_a_changed_kit_does_to_a_world_is_named_object_by_object() {
    let run = asked();
    let world = "/worlds/worlds~1w.world.yaml/responders";
    let change = |path: &str, value: Value| {
        under(&run, |plan| {
            *plan.pointer_mut(&format!("{world}{path}")).unwrap() = value;
        })
    };
    // A guard that lets no question be asked: the run ends by itself, and replies find no place.
    let found = change("/1", {
        let mut asks = asking_world()["responders"][1].clone();
        asks["when"] = json!("object.data.nothing");
        asks
    });
    let short = in_short(&found);
    let firing = ("firing responders asks".to_owned(), true, true);
    let answer = ("object objects Question".to_owned(), true, false);
    assert_eq!(
        short.iter().filter(|one| **one == firing).count(),
        2,
        "{short:?}"
    );
    assert_eq!(
        short.iter().filter(|one| **one == answer).count(),
        2,
        "{short:?}"
    );
    let object = found
        .iter()
        .find(|one| one.what == DivergenceKind::Object)
        .unwrap();
    assert!(object.field.ends_with("/data/answer"), "{object:?}");
    let patched = run.frames[object.frame.unwrap() as usize].event.kind();
    assert_eq!(patched, "object.patched");
    // One question more: an object and a relation that history does not have, and an open question.
    let found = change("/0/for_each/items", json!(["what", "why", "when"]));
    let short = in_short(&found);
    for what in ["object objects Question", "relation relations about"] {
        assert!(short.contains(&(what.to_owned(), false, true)), "{short:?}");
    }
    assert!(
        found.iter().any(|one| one.what == DivergenceKind::NoRecord),
        "{short:?}"
    );
    // Another prompt is named as of any agent; the recorded reply is used all the same.
    let found = change(
        "/1/work/ask/messages/0/content",
        json!("Tell: {{ object.data.text }}"),
    );
    assert!(
        found.iter().all(|one| one.what == DivergenceKind::Prompt),
        "{:?}",
        in_short(&found)
    );
    assert!(!found.is_empty());
}

//! What responders did, explained: traces, origins, reasons, and differences of worlds.

use serde_json::{Value, json};

use super::Desk;
use crate::support::worlds::TIDES;

/// A desk with two runs of the tides, of different goals.
fn desk() -> (Desk, String, String) {
    let desk = Desk::new();
    desk.write_file("tides/worlds/tides.world.yaml", TIDES);
    let run = |goal: &str| {
        let said = desk.ktsu(&["run", "tides", "--goal", goal, "--json"]);
        said.is(0).json()["run_id"].as_str().unwrap().to_owned()
    };
    let (one, other) = (run("tides"), run("moons"));
    (desk, one, other)
}

fn names<'v>(list: &'v Value, member: &str) -> Vec<&'v str> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one[member].as_str().unwrap_or_default())
        .collect()
}

#[test]
fn a_trace_lists_what_responders_did_below_what_they_reacted_to() {
    let (desk, run, _) = desk();
    let trace = desk.ktsu(&["trace", &run, "--json"]).is(0).json();
    let tree = trace["world"]["tree"].as_array().unwrap();
    assert_eq!((&trace["world"]["events"], tree.len()), (&json!(7), 7));
    let frame = |at: usize| &tree[at]["frame"];
    assert_eq!(tree[0]["actor"], "goal");
    assert_eq!(tree[0].get("parent"), None);
    let below_goal = tree.iter().filter(|one| one["parent"] == *frame(0));
    assert_eq!(below_goal.count(), 4);
    let closed: Vec<&Value> = tree.iter().filter(|one| one["actor"] == "close").collect();
    assert_eq!(closed.len(), 2);
    assert!(closed.iter().all(|one| one["type"] == "object.patched"));
    let text = desk.ktsu(&["trace", &run]);
    let text = &text.is(0).out;
    assert!(text.contains("7 world events, 3 reactions"), "{text}");
    assert!(!text.contains("0 steps"), "{text}");
}

#[test]
fn a_field_of_an_object_is_traced_to_the_goal_and_a_responder_says_why_it_did_not_react() {
    let (desk, run, _) = desk();
    let of = desk.ktsu(&["trace", &run, "--of", "Question[1].text", "--json"]);
    let of = of.is(0).json();
    assert_eq!(of["value"], "Why tides?");
    assert_eq!(names(&of["origins"], "at"), ["/params/goal"]);
    assert_eq!(names(&of["chain"], "responder"), ["questions", ""]);
    let refused = desk.ktsu(&["trace", &run, "--of", "Question.text"]);
    assert!(refused.is(2).err.contains("Question[0]"));
    let why = desk.ktsu(&[
        "trace",
        &run,
        "--why-not",
        "questions",
        "--for",
        "Question[0]",
    ]);
    let why = &why.is(0).out;
    assert!(why.contains("questions was never triggered"), "{why}");
    let unknown = desk.ktsu(&["trace", &run, "--why-not", "question"]);
    assert!(unknown.is(2).err.contains("did you mean questions?"));
}

#[test]
fn two_worlds_are_compared_field_by_field_and_a_changed_kit_names_what_it_would_make() {
    let (desk, one, other) = desk();
    let diff = desk.ktsu(&["diff", &one, &other, "--json"]).is(1).json();
    let world = &diff["world"];
    for list in [
        "added_objects",
        "removed_objects",
        "added_relations",
        "removed_relations",
    ] {
        assert_eq!(world[list], json!([]), "{list}");
    }
    assert_eq!(world["patched_objects"].as_array().unwrap().len(), 3);
    let changes = diff["world_changes"].as_array().unwrap();
    assert_eq!(changes.len(), 3);
    assert_eq!(changes[0]["id"], world["patched_objects"][0]);
    assert_eq!(changes[0]["changes"][0]["path"], "/data/text");
    let same = desk.ktsu(&["diff", &one, &one]);
    assert!(same.is(0).out.contains("no changes"));
    let against = |text: &str| {
        desk.write_file("tides/worlds/tides.world.yaml", text);
        desk.ktsu(&["replay", &one, "--against", "tides", "--json"])
    };
    against(TIDES).is(0);
    let changed = TIDES.replace("state: asked", "state: closed");
    let found = against(&changed).is(1).json();
    let found = &found["runs"][0]["divergences"];
    assert_eq!(names(found, "what"), ["object"]);
    assert_eq!(
        (&found[0]["history"], &found[0]["decided"]),
        (&json!("asked"), &json!("closed"))
    );
}

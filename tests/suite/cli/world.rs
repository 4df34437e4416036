//! The world of a run, printed.

use serde_json::{Value, json};

use super::Desk;
use crate::support::worlds::TIDES;

/// A desk with a run of that world.
fn desk(goal: &str) -> (Desk, String) {
    let desk = Desk::new();
    desk.write_file("tides/worlds/tides.world.yaml", TIDES);
    let said = desk.ktsu(&["run", "tides", "--goal", goal, "--json"]);
    let run = said.is(0).json()["run_id"].as_str().unwrap().to_owned();
    (desk, run)
}

fn ids(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one["id"].as_str().unwrap()).collect()
}

#[test]
fn a_world_is_shown_as_any_frame_left_it_with_the_hash_that_its_run_ended_with() {
    let (desk, run) = desk("tides");
    let world = desk.ktsu(&["world", &run, "--json"]).is(0).json();
    let members: Vec<&String> = world.as_object().unwrap().keys().collect();
    for name in [
        "run_id",
        "at",
        "world_hash",
        "events",
        "objects",
        "relations",
        "context",
    ] {
        assert!(members.iter().any(|member| *member == name), "{members:?}");
    }
    assert_eq!(members.len(), 7);
    assert_eq!(world["events"], 7);
    assert_eq!(world["run_id"], run.as_str());
    assert_eq!(world["context"], json!({"budget_exhausted": false}));
    let (objects, relations) = (ids(&world["objects"]), ids(&world["relations"]));
    assert_eq!((objects.len(), relations.len()), (3, 2));
    assert_eq!(world["objects"][0]["type"], "Topic");
    assert_eq!(
        world["objects"][0]["data"],
        json!({"text": "tides", "state": "asked"})
    );
    assert_eq!(world["relations"][0]["source_id"], objects[1]);
    assert_eq!(world["relations"][0]["target_id"], objects[0]);

    let last = world["at"].as_u64().unwrap();
    let end = desk.ktsu(&["frames", &run, "--from", &last.to_string(), "--json"]);
    let end = end.is(0).json();
    assert_eq!(end["data"]["world"], world["world_hash"]);

    // A part of the id, and every frame: objects come one by one, and nothing comes back.
    let mut before = 0;
    for at in 0..=last {
        let at = at.to_string();
        let then = desk.ktsu(&["world", &run[run.len() - 9..], "--at", &at, "--json"]);
        let then = then.is(0).json();
        assert_eq!(then["at"].to_string(), at);
        let now = ids(&then["objects"]);
        assert!(objects.starts_with(&now) && now.len() >= before, "{then}");
        before = now.len();
    }
    let made = world["objects"][0]["created"].to_string();
    let then = desk
        .ktsu(&["world", &run, "--at", &made, "--json"])
        .is(0)
        .json();
    assert_eq!(
        then["objects"][0]["data"],
        json!({"text": "tides", "state": "open"})
    );
    assert_eq!(then["objects"][0]["changed"], then["at"]);
}

#[test]
fn people_see_tables_and_one_object_in_full() {
    let (desk, run) = desk("tides");
    let world = desk.ktsu(&["world", &run, "--json"]).is(0).json();
    let (topic, question) = (&world["objects"][0], &world["objects"][1]);
    let (topic_id, id) = (
        topic["id"].as_str().unwrap(),
        question["id"].as_str().unwrap(),
    );
    desk.ktsu(&["world", &run])
        .is(0)
        .says(": 3 objects, 2 relations\n")
        .says(world["world_hash"].as_str().unwrap())
        .says("OBJECT  ")
        .says(topic_id)
        .says(r#"{"state":"asked","text":"tides"}"#)
        .says("RELATION  ");
    let some = desk.ktsu(&["world", &run, "--type", "Topic"]);
    assert!(
        some.is(0)
            .says(topic_id)
            .out
            .lines()
            .all(|line| !line.contains(id))
    );
    let some = desk
        .ktsu(&["world", &run, "--type", "about", "--json"])
        .is(0)
        .json();
    assert_eq!(some["relations"], world["relations"]);
    assert_eq!(some["objects"], json!([]));
    desk.ktsu(&["world", &run, "--type", "Nothing"])
        .is(0)
        .warns("no objects or relations of type Nothing");

    let one = desk.ktsu(&["world", &run, "--object", topic_id]);
    let frame =
        |verb: &str, name: &str| format!("{verb} by frame {:>5}  ", topic[name].as_u64().unwrap());
    one.is(0)
        .says(&frame("created", "created"))
        .says(&frame("changed", "changed"))
        .says("object.patched  responder:close")
        .says("  \"state\": \"asked\"")
        .says(id);
    let part = &id[id.len() - 10..];
    let one = desk
        .ktsu(&["world", &run, "--object", part, "--json"])
        .is(0)
        .json();
    assert_eq!(one["objects"], json!([question]));
    assert_eq!(one["relations"], json!([world["relations"][0]]));
    desk.ktsu(&["world", &run, "--object", "Question"])
        .is(2)
        .warns("matches several objects")
        .warns(id);
    desk.ktsu(&["world", &run, "--object", "nobody"])
        .is(2)
        .warns("there is no object nobody");
}

#[test]
fn a_completed_step_beside_a_world_is_an_object_of_it() {
    let desk = Desk::new();
    desk.write_file("both/worlds/tides.world.yaml", TIDES);
    desk.write_kit(
        "both",
        "kind: workflow\nname: both\nversion: 1.0.0\npipeline:\n  - id: one\n    transform: \
         {inputs: [{from: \"{a: `1`}\"}], ops: []}\n",
    );
    let said = desk.ktsu(&["run", "both", "both", "--json"]);
    let run = said.is(0).json()["run_id"].as_str().unwrap().to_owned();
    desk.ktsu(&["world", &run, "--object", "step/one"])
        .is(0)
        .says("step/one step, after frame ")
        .says("created by frame ")
        .says("step.completed  orchestrator");
}

#[test]
fn a_world_is_drawn() {
    let (desk, run) = desk("\"tides\" \u{1b}]");
    let drawn = desk.ktsu(&["world", &run, "--graph", "mermaid"]);
    let lines: Vec<&str> = drawn.is(0).out.lines().collect();
    assert_eq!(lines.len(), 1 + 3 + 2, "{drawn:?}");
    assert_eq!(lines[0], "flowchart LR");
    assert_eq!(lines[4], "  o2 -->|\"about\"| o1");
    let drawn = desk.ktsu(&["world", &run, "--object", "Topic-", "--graph", "dot"]);
    drawn
        .is(0)
        .says("digraph world {\n")
        .says("  o2 -> o1 [label=\"about\"]\n");
    assert!(!drawn.out.contains('\u{1b}'), "{drawn:?}");
    let page = desk.ktsu(&["world", &run, "--graph", "html"]);
    page.is(0)
        .says("<!DOCTYPE html>")
        .says("<svg ")
        .says("&quot;tides&quot;");
    let count = |text: &str| page.out.matches(text).count();
    assert_eq!(count("class=\"box\""), 3, "{page:?}");
    assert_eq!(count("class=\"relation\""), 2, "{page:?}");
    assert_eq!(count(" tip\""), 2, "{page:?}");
    for never in [
        "\u{1b}",
        "src=",
        "<script",
        "<link",
        "url(",
        "@import",
        "href=\"http",
        " style=",
    ] {
        assert!(!page.out.contains(never), "{never}: {page:?}");
    }
    // The file is the drawing of the page, with the style sheet of pages within.
    let policy = "http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;";
    assert!(page.out.contains(&policy.replace("&#39;", "'")), "{page:?}");
    page.says(".relation {").says("href=\"#row-Topic-");
    desk.ktsu(&["world", &run, "--graph", "png"]).is(2);
}

#[test]
fn two_frames_of_a_run_are_compared() {
    let (desk, run) = desk("tides");
    let world = desk.ktsu(&["world", &run, "--json"]).is(0).json();
    let (a, b) = (
        world["objects"][0]["created"].to_string(),
        world["at"].to_string(),
    );
    let differ = desk
        .ktsu(&["world", &run, "--diff", &a, &b, "--json"])
        .is(1)
        .json();
    assert_eq!(differ["same"], false);
    assert_eq!(
        differ["patched_objects"],
        json!([world["objects"][0]["id"]])
    );
    assert_eq!(differ["added_objects"].as_array().unwrap().len(), 2);
    assert_eq!(differ["added_relations"].as_array().unwrap().len(), 2);
    let back = desk
        .ktsu(&["world", &run, "--diff", &b, &a, "--json"])
        .is(1)
        .json();
    assert_eq!(back["removed_objects"], differ["added_objects"]);
    desk.ktsu(&["world", &run, "--diff", &a, &b])
        .is(1)
        .says("+2 objects, ~1 objects patched, +2 relations\n")
        .says("  ~ object    Topic-");
    desk.ktsu(&["world", &run, "--diff", &b, &b])
        .is(0)
        .says("no changes\n");
}

#[test]
fn what_has_no_world_is_refused_with_a_reason() {
    let (desk, run) = desk("tides");
    let hello = desk.hello();
    desk.ktsu(&["world", &hello])
        .is(2)
        .warns("the run loads no worlds")
        .warns("ktsu explain no_world");
    desk.ktsu(&["world", &run, "--at", "9999"])
        .is(2)
        .warns("the run has no frame 9999: its last is frame ");
    desk.ktsu(&["world", "run_none"])
        .is(2)
        .warns("there is no run");
    desk.ktsu(&["world", &run, "--diff", "1", "2", "--at", "1"])
        .is(2);
    desk.ktsu(&["explain", "no_world"])
        .is(0)
        .says("loads no worlds");
}

#[test]
fn data_of_a_world_cannot_steer_the_terminal() {
    let (desk, run) = desk("red \u{1b}[31m\u{202e}tides\n");
    for arguments in [
        &["world", &run][..],
        &["world", &run, "--object", "Topic"],
        &["world", &run, "--json"],
    ] {
        let said = desk.ktsu(arguments);
        let steers = |one: char| one == '\u{1b}' || one == '\u{202e}';
        assert!(!said.is(0).says("tides").out.contains(steers), "{said:?}");
    }
}

//! Events posted to a world, and raised budgets, at the command line.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::Desk;
use crate::support::worlds::TIDES;

/// A desk with a finished run of a world, and the id of its topic.
fn desk() -> (Desk, String, String) {
    let desk = Desk::new();
    desk.write_file("tides/worlds/tides.world.yaml", TIDES);
    let said = desk.ktsu(&["run", "tides", "--goal", "tides", "--json"]);
    let run = said.is(0).json()["run_id"].as_str().unwrap().to_owned();
    let world = world(&desk, &run);
    let topic = world["objects"][0]["id"].as_str().unwrap().to_owned();
    (desk, run, topic)
}

fn world(desk: &Desk, run: &str) -> Value {
    desk.ktsu(&["world", run, "--json"]).is(0).json()
}

#[test]
fn what_is_posted_is_recorded_and_reacted_to_before_the_command_ends() {
    let (desk, run, topic) = desk();
    let event = r#"{"type": "object.created", "data": {"type": "Topic", "id": "t2",
        "data": {"text": "waves"}}}"#;
    let said = desk.ktsu(&["post", &run, event]);
    said.is(0)
        .says(" object.created t2\n")
        .says(&format!("{run}#"));
    let after = world(&desk, &run);
    assert_eq!(after["objects"].as_array().unwrap().len(), 6);
    assert_eq!(after["objects"][3]["data"]["state"], "asked");
    desk.ktsu(&["runs", "get", &run]).is(0).says("complete");

    // A file, standard input, and no part of the run's own.
    let patch =
        json!({"type": "object.patched", "data": {"id": topic, "patch": {"state": "done"}}});
    desk.write_file("events.json", &json!([patch, {"type": "note"}]).to_string());
    let receipt = desk
        .ktsu(&["post", &run, "@events.json", "--key", "k1", "--json"])
        .is(0)
        .json();
    assert_eq!(
        (&receipt["run_id"], &receipt["post"]),
        (&json!(run), &json!(2))
    );
    assert_eq!(receipt["events"][0]["id"], topic.as_str());
    let again = desk.ktsu(&["post", &run, "@events.json", "--key", "k1", "--json"]);
    assert_eq!(again.is(0).json(), receipt);
    desk.ktsu(&["post", &run, r#"{"type":"note"}"#, "--key", "k1"])
        .is(2)
        .warns("the idempotency key was used for another request");
    let mut child = desk
        .command(&["post", &run, "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let note = br#"{"type": "note", "data": {"seen": true}}"#;
    child.stdin.take().unwrap().write_all(note).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let receipt: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(receipt["post"], 3);
    desk.ktsu(&["replay", &run, "--strict"]).is(0);
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn posts_that_do_not_fit_are_refused_with_what_to_do() {
    let (desk, run, topic) = desk();
    let post = |events: &str, more: &[&str]| {
        let all = [&["post", &run, events], more].concat();
        desk.ktsu(&all)
    };
    post("nope", &[])
        .is(2)
        .warns("the events are not JSON: this is no value: the only words are true, false and null")
        .warns("at line 1 column 2")
        .warns("@FILE");
    post("[]", &[]).is(2).warns("1 to 256 events");
    post(r#"{"type": "run.paused"}"#, &[]).is(2).warns("/type");
    let unknown = r#"{"type": "object.created", "data": {"type": "Tide"}}"#;
    post(unknown, &[])
        .is(2)
        .warns("event 0: there is no type of objects \"Tide\"")
        .warns("ktsu explain post_refused");
    let patch = json!({"type": "object.patched", "data": {"id": topic, "patch": {}}}).to_string();
    let changed = world(&desk, &run)["objects"][0]["changed"].to_string();
    post(&patch, &["--expect", "1"])
        .is(2)
        .warns(&format!("--expect {changed}"));
    post(&patch, &["--expect", &changed]).is(0);
    let hello = desk.hello();
    desk.ktsu(&["post", &hello, r#"{"type": "note"}"#])
        .is(2)
        .warns("the run loads no worlds");
}

#[test]
fn a_run_that_continues_in_an_engine_takes_posts_there() {
    let (desk, run, _) = desk();
    let owner = desk.start(&["--kit", "tides"]);
    let event =
        r#"{"type": "object.created", "data": {"type": "Topic", "data": {"text": "wind"}}}"#;
    let said = desk.ktsu(&["post", &run, event, "--json"]);
    let id = said.is(0).json()["events"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(id.starts_with("Topic-"), "{id}");
    assert_eq!(owner.stop("TERM").0, 0);
    let after = world(&desk, &run);
    let ids = after["objects"].as_array().unwrap().iter();
    assert!(ids.into_iter().any(|object| object["id"] == id.as_str()));
}

#[test]
fn a_branch_of_all_frames_of_a_complete_run_takes_posts_once_it_is_resumed() {
    let (desk, run, _) = desk();
    let branch = desk.ktsu(&["fork", &run, "--json"]).is(0).json();
    assert_eq!(branch["status"], "complete");
    let branch = branch["branch_id"].as_str().unwrap().to_owned();
    let before = world(&desk, &branch);
    let event = r#"{"type": "object.created", "data": {"type": "Topic", "id": "t2",
        "data": {"text": "waves"}}}"#;
    desk.ktsu(&["post", &branch, event])
        .is(2)
        .warns("the branch was not resumed, so nothing can be posted to it")
        .warns("ktsu resume");
    assert_eq!(world(&desk, &branch), before);
    let resume = ["resume", &branch, "--kit", "tides", "--json"];
    let envelope = desk.ktsu(&resume).is(0).json();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    desk.ktsu(&resume).is(2).warns("ktsu explain not_resumable");
    desk.ktsu(&["post", &branch, event]).is(0);
    assert_eq!(world(&desk, &branch)["objects"][3]["id"], "t2");
    // With `--go` it is resumed at once.
    let going = desk.ktsu(&["fork", &run, "--go", "--kit", "tides", "--json"]);
    let going = going.is(0).json()["run_id"].as_str().unwrap().to_owned();
    desk.ktsu(&["post", &going, event]).is(0);
    desk.ktsu(&["replay", "--strict", "--all"]).is(0);
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_used_up_budget_is_raised_by_name() {
    let desk = Desk::new();
    let text = format!("{TIDES}budget: {{max_events: 3}}\n");
    desk.write_file("tides/worlds/tides.world.yaml", &text);
    let said = desk.ktsu(&["run", "tides", "--goal", "tides", "--json"]);
    let run = said.is(1).json()["run_id"].as_str().unwrap().to_owned();
    let resume = |more: &[&str]| desk.ktsu(&[&["resume", &run, "--kit", "tides"], more].concat());
    resume(&[])
        .is(2)
        .warns("the budget of the world is used up: max_events=3")
        .warns("--raise max_events=N");
    resume(&["--raise", "max_evnts=9"])
        .is(2)
        .warns("did you mean max_events?");
    resume(&["--raise", "max_events=many"])
        .is(2)
        .warns("is not a number");
    resume(&["--raise", "max_events=3"])
        .is(2)
        .warns("max_events=3 holds now");
    resume(&["--raise", "max_events=4", "--json"]).is(1);
    resume(&[
        "--raise",
        "max_events=100,max_llm_cost_usd=20",
        "--reason",
        "enough",
    ])
    .is(0);
    let after = world(&desk, &run);
    assert_eq!(after["objects"].as_array().unwrap().len(), 3);
    assert_eq!(after["context"], json!({"budget_exhausted": false}));
    desk.ktsu(&["trace", &run, "--type", "budget"])
        .is(0)
        .says("budget.raised")
        .says("enough");
    desk.ktsu(&["replay", &run, "--strict"]).is(0);
    desk.ktsu(&["verify"]).is(0);
    desk.ktsu(&["explain", "budget_exhausted"])
        .is(0)
        .says("--raise");
}

//! Real forks, overlays and resumptions, made and looked back at by the real binary.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::replay::opens_no_socket;
use super::{Desk, kit};
use crate::exports;

/// Everything in the ledger decided again: the ids, and that all of them came out the same.
fn replayed(desk: &Desk) -> Vec<String> {
    let told = desk.ktsu(&["replay", "--strict", "--all", "--json"]);
    let told = told.is(0).json();
    assert_eq!(told["ok"], true, "{told:#}");
    let runs = told["runs"].as_array().unwrap().iter();
    let id = |run: &Value| {
        assert_eq!(run["verdict"], "ok", "{run}");
        run["run_id"].as_str().unwrap().to_owned()
    };
    runs.map(id).collect()
}

/// A branch that went on to its end.
fn fork(desk: &Desk, run: &str, more: &[&str]) -> Value {
    let kit = kit("hello");
    let arguments = [&["fork", run, "--go", "--kit", &kit, "--json"], more].concat();
    let envelope = desk.ktsu(&arguments).is(0).json();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    envelope
}

fn id(envelope: &Value) -> String {
    envelope["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn forks_everywhere_overlays_and_resumptions_are_decided_again_without_a_socket() {
    let desk = Desk::new();
    let run = desk.hello();
    let before = desk.ktsu(&["frames", &run, "--json"]).is(0).out.clone();
    let frames = before.lines().count();
    let mut made = vec![run.clone()];
    for position in 0..=frames {
        let branch = fork(&desk, &run, &["--at", &position.to_string()]);
        assert_eq!(branch["output"]["greeting"], "Hello, world!");
        made.push(id(&branch));
        let same = desk.ktsu(&["diff", &run, made.last().unwrap(), "--json"]);
        let shared = same.json()["shared"].clone();
        assert_eq!(shared, json!(position), "{same:?}");
    }
    let set = ["--before", "measure", "--set", "params.name=Ada"];
    let named = fork(&desk, &run, &set);
    assert_eq!(named["params"]["name"], "Ada");
    let text = json!([{"text": "Good morning", "name": "all"}]).to_string();
    let greet = format!("step.greet.output.result={text}");
    let set = fork(
        &desk,
        &id(&named),
        &["--before", "measure", "--set", &greet],
    );
    assert_eq!(
        set["output"],
        json!({"greeting": "Good morning", "letters": 3})
    );
    let waiting = desk.ktsu(&["fork", &run, "--before", "measure", "--json"]);
    let waiting = waiting.is(0).json()["branch_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let overlay = format!("greet.result={text}");
    let arguments = ["overlay", &waiting, &overlay, "--reason", "it is early"];
    desk.ktsu(&arguments).is(0);
    let hello = kit("hello");
    desk.ktsu(&["resume", &waiting, "--kit", &hello]).is(0);
    made.extend([id(&named), id(&set), waiting.clone()]);
    let after = desk.ktsu(&["frames", &run, "--json"]).is(0).out.clone();
    assert_eq!(after, before, "what was forked stays as it is");
    let arguments = ["overlay", &run, &overlay, "--reason", "it is early"];
    desk.ktsu(&arguments).is(0);
    desk.ktsu(&["resume", &run, "--from", "measure", "--kit", &hello])
        .is(0);
    for one in [&run, &waiting] {
        let envelope = desk.ktsu(&["runs", "get", one, "--json"]).is(0).json();
        assert_eq!(envelope["output"]["greeting"], "Good morning");
    }
    let mut found = replayed(&desk);
    found.sort();
    made.sort();
    assert_eq!(found, made);
    desk.ktsu(&["verify"]).is(0);
    // What people said is a difference, the same way round from both sides.
    desk.ktsu(&["diff", &id(&named), &id(&set)]).is(1);
    desk.ktsu(&["diff", &id(&set), &id(&set)]).is(0);
    let arguments = ["replay", "--strict", "--all"];
    opens_no_socket(&desk, &arguments);
}

#[test]
fn the_golden_exports_come_in_are_listed_decided_again_and_go_out_the_same() {
    let mut kinds = BTreeSet::new();
    for (name, lines) in exports::all() {
        let desk = Desk::new();
        desk.write_file("in.jsonl", &lines);
        desk.ktsu(&["import", "in.jsonl"]).is(0);
        desk.ktsu(&["verify"]).is(0);
        let runs = replayed(&desk);
        for run in &runs {
            let kind = run.split_once('_').unwrap().0.to_owned();
            desk.ktsu(&["replay", run, "--strict"])
                .is(0)
                .says(&format!("ok {kind}_"));
            kinds.insert(kind);
            desk.ktsu(&["trace", run]).is(0);
            desk.ktsu(&["diff", run, run]).is(0);
        }
        desk.ktsu(&["export", "--all", "--evals", "-o", "out.jsonl"])
            .is(0);
        let out = std::fs::read_to_string(desk.path().join("out.jsonl")).unwrap();
        assert_eq!(out, lines, "{name}");
        opens_no_socket(&desk, &["replay", "--strict", "--all"]);
    }
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["branch", "recompute", "run"]);
}

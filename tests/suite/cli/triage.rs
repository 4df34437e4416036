//! The main job of the README: `kits/triage`, as it is shipped.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Desk, kit, repository, send};

/// The example, as a tree.
fn example() -> Value {
    let path = repository().join("kits/triage/examples/default.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The envelope of a run with an input.
fn run(desk: &Desk, input: &Value) -> Value {
    let input = input.to_string();
    let said = desk.ktsu(&["run", &kit("triage"), "--input", &input, "--json"]);
    said.is(0).json()
}

fn step<'a>(envelope: &'a Value, id: &str) -> &'a Value {
    let mut steps = envelope["steps"].as_array().unwrap().iter();
    steps.find(|step| step["id"] == id).unwrap()
}

#[test]
fn the_triage_kit_ends_well_with_everything_it_is_there_to_show() {
    let desk = Desk::new();
    let envelope = run(&desk, &example());
    assert_eq!(envelope["status"], "complete");
    let classify = step(&envelope, "classify");
    assert_eq!(
        classify["counts"],
        json!({"succeeded": 26, "failed": 1, "skipped": 1})
    );
    assert_eq!(classify["metrics"]["llm_calls"], 29);
    assert_eq!(classify["metrics"]["repair_calls"], 1);
    let items = classify["items"].as_array().unwrap();
    let failed = items
        .iter()
        .find(|item| item["status"] == "failed")
        .unwrap();
    assert_eq!(failed["error"]["code"], "confidence_below_threshold");
    assert!(failed["raw_output"].is_object(), "{failed}");
    let flagged = |item: &&Value| item["flags"] == json!(["suspicious_instructions"]);
    assert_eq!(items.iter().filter(flagged).count(), 1);
    let brief = step(&envelope, "brief");
    assert_eq!(brief["reflected"], true);
    assert_eq!(brief["metrics"]["llm_calls"], 2);
    let escalate = step(&envelope, "escalate");
    assert_eq!(escalate["metrics"]["llm_calls"], 1, "its child's agent");
    let cost: u64 = ["classify", "brief", "escalate"]
        .iter()
        .map(|id| {
            step(&envelope, id)["metrics"]["cost_micro_usd"]
                .as_u64()
                .unwrap()
        })
        .sum();
    assert!(cost > 0);
    assert_eq!(envelope["totals"]["cost_micro_usd"], cost);
    assert_eq!(envelope["output"]["handed_over"], true);
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn an_edited_ticket_ends_elsewhere() {
    let desk = Desk::new();
    let mut input = example();
    let before = run(&desk, &input);
    assert!(topic(&before, "how_to").contains(&json!(5103)));
    let tickets = input["tickets"].as_array_mut().unwrap();
    let ticket = tickets
        .iter_mut()
        .find(|ticket| ticket["number"] == 5103)
        .unwrap();
    ticket["subject"] = json!("Nothing loads");
    ticket["body"] = json!("Every page answers 503, for everybody here.");
    let after = run(&desk, &input);
    assert!(topic(&after, "outage").contains(&json!(5103)), "{after:#}");
    assert!(!topic(&after, "how_to").contains(&json!(5103)));
}

fn topic(envelope: &Value, name: &str) -> Vec<Value> {
    let found = envelope["output"]["topics"][name].as_array();
    found.cloned().unwrap_or_default()
}

#[test]
fn the_live_view_shows_calls_cost_and_what_to_type_next() {
    let desk = Desk::new();
    let said = desk.ktsu(&["run", &kit("triage")]);
    said.is(0)
        .warns("step classify.10 repairs its draft")
        .warns("flags: suspicious_instructions")
        .warns("step brief reflects")
        .warns("ktsu trace run_")
        .warns("ktsu frames run_")
        .says("$0.0");
}

/// It is interrupted while its agents work; another kit leaves it alone; its own takes it up, and
/// finds its receiver where it was.
#[test]
fn an_interrupted_triage_waits_for_its_own_kit_and_ends_well() {
    let desk = Desk::new();
    let mut child = desk
        .command(&["run", &kit("triage")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let begun = lines.find(|line| line.as_ref().unwrap().starts_with("step classify."));
    assert!(begun.is_some());
    send("INT", child.id());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{rest:?}");
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    let run = runs["runs"][0]["run_id"].as_str().unwrap().to_owned();
    desk.ktsu(&["run", &kit("hello")])
        .is(0)
        .warns("not resuming 1 unfinished run of other kits");
    let owner = desk.start(&["--kit", &kit("triage")]);
    desk.ktsu(&["frames", &run, "--follow"]).is(0);
    assert_eq!(owner.stop("TERM").0, 0);
    let envelope = desk.ktsu(&["runs", "get", &run]).is(0).json();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let totals = &envelope["totals"];
    assert!(totals["llm_calls"].as_u64().unwrap() >= 32, "{totals}");
    desk.ktsu(&["verify"]).is(0);
}

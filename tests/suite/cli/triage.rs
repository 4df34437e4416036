//! The main job of the README: `kits/triage`, as it is shipped.

use serde_json::{Value, json};

use super::{Desk, kit, repository};

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
fn the_live_view_tells_calls_cost_and_what_to_type_next() {
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

//! `ktsu run --answers FILE` and `--yes`: a run that needs people, without them.

use serde_json::Value;

use super::{Desk, kit};
use crate::support::KitDir;

const MISSING: &str = "kits/verification/examples/missing.json";

fn answers(desk: &Desk, text: &str) -> String {
    let path = desk.path().join("answers.yaml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn missing() -> String {
    format!("@{}/{MISSING}", env!("CARGO_MANIFEST_DIR"))
}

fn holds(desk: &Desk) {
    desk.ktsu(&["verify"]).is(0);
    desk.ktsu(&["replay", "--strict", "--all"]).is(0);
}

#[test]
fn the_kit_runs_alone_on_its_own_answers_and_they_are_recorded_as_scripted() {
    let desk = Desk::new();
    let (kit, input) = (kit("verification"), missing());
    let run = desk.ktsu(&["run", &kit, "--input", &input, "--yes", "--json"]);
    run.is(0);
    let envelope = run.json();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(envelope["output"]["verdict"], "doubtful");
    let id = envelope["run_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", id, "--json"]);
    frames.is(0);
    let given: Vec<Value> = frames
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|frame: &Value| {
            frame["data"]["by"]["id"]
                .as_str()
                .is_some_and(|id| id != "local")
        })
        .collect();
    let seen: Vec<(&str, &str, &str)> = given
        .iter()
        .map(|frame| {
            let by = &frame["data"]["by"];
            let text = |value: &'static str| by[value].as_str().unwrap();
            (frame["type"].as_str().unwrap(), text("id"), text("auth"))
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("suspend.resumed", "scripted-archive", "none"),
            ("review.decided", "scripted-editor", "none")
        ]
    );
    holds(&desk);
    let bundle = desk.path().join("run.evidence");
    let bundle = bundle.to_str().unwrap();
    desk.ktsu(&["evidence", "export", id, "-o", bundle]).is(0);
    let verdict = desk.ktsu(&["evidence", "verify", bundle]);
    verdict.is(0).says("was not authenticated");
}

#[test]
fn what_no_answer_fits_ends_the_command_and_keeps_the_run() {
    let desk = Desk::new();
    let (kit, input) = (kit("verification"), missing());
    let file = answers(
        &desk,
        "people:\n- {match: {step: registrar}, data: {register: \"Lindqvist Shipping: fleet 11 ships\"}}\n",
    );
    let run = desk.ktsu(&["run", &kit, "--input", &input, "--answers", &file]);
    run.is(2)
        .warns("registrar: resumed by scripted")
        .warns("judge asks for a review of its output")
        .warns("waits for an answer that")
        .warns("answers.yaml does not have");
    let waiting = desk.ktsu(&["approvals", "--json"]).is(0).json();
    let id = waiting[0]["review_id"].as_str().unwrap();
    desk.ktsu(&["approve", id, "--kit", &kit]).is(0);
    holds(&desk);
}

#[test]
fn an_answer_that_is_refused_is_shown_and_the_next_one_counts() {
    let desk = Desk::new();
    let (kit, input) = (kit("verification"), missing());
    let file = answers(
        &desk,
        "people:\n- {by: a, data: {register: 7}}\n- {by: a, data: {txt: x}}\n- {by: a, data: {register: \"fleet: 11\"}}\n\
         - {decision: rejected, reason: not today}\n",
    );
    let run = desk.ktsu(&["run", &kit, "--input", &input, "--answers", &file]);
    run.is(1)
        .warns("scripted-a cannot answer registrar")
        .warns("registrar: resumed by scripted-a");
    let envelope = format!("{}{}", run.out, run.err);
    assert!(
        envelope.contains("complete") || envelope.contains("review_rejected"),
        "{envelope}"
    );
    holds(&desk);
}

#[test]
fn several_scripted_people_make_a_quorum() {
    let desk = Desk::new();
    let agent = "name: judge\nversion: 1.0.0\nmodel: std\nprompt: {system: s, user: u}\n\
         commands: {review: {quorum: 2}}\noutput: {schema: {type: object}}\n";
    let gateway = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                   model_groups: [{name: std, models: [desk/m]}]\n";
    let rules = "rules:\n- when: {turn: 1}\n  tool_calls: [{name: review, arguments: {reason: r}}]\n\
                 default: {reply: {kept: true}}\n";
    let flow = "pipeline: [{id: a, agent: ./agents/judge.agent.yaml}]\n";
    let kit = KitDir::new(&[("flow", flow)])
        .with("agents/judge.agent.yaml", agent)
        .with("gateway.yaml", gateway)
        .with("rules.yaml", rules);
    let dir = kit.dir.path().to_str().unwrap();
    let both = answers(
        &desk,
        "people:\n- {by: ann, decision: approved}\n- {by: bob, decision: approved}\n",
    );
    let run = desk.ktsu(&["run", dir, "--input", "{}", "--answers", &both]);
    run.is(0).warns("scripted-ann").warns("scripted-bob");
    let one = answers(&desk, "people: [{by: ann, decision: approved}]");
    let run = desk.ktsu(&["run", dir, "--input", "{}", "--answers", &one]);
    run.is(2).warns("scripted-ann").warns("does not have");
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn answers_that_are_missing_or_wrong_are_refused_before_the_run_starts() {
    let desk = Desk::new();
    let kit = kit("verification");
    let none = desk.ktsu(&["run", &kit, "--answers", "none.yaml"]);
    none.is(2).warns("no answers at none.yaml");
    let hello = super::kit("hello");
    let yes = desk.ktsu(&["run", &hello, "--yes"]);
    yes.is(2).warns("examples/answers.yaml");
    let file = answers(
        &desk,
        "people:\n- {match: {stp: judge}, decision: approved}\n",
    );
    let wrong = desk.ktsu(&["run", &kit, "--answers", &file]);
    wrong.is(2).warns("answers.yaml:2:").warns("step");
    let runs = desk.ktsu(&["runs", "--json"]);
    assert!(!runs.out.contains("run_"), "{}", runs.out);
}

//! What agents command besides their outputs, in `ktsu recompute`, `capture` and `test`: the real
//! binary, a scripted model, exit codes.

use serde_json::{Value, json};

use super::Desk;

const MAIN: &str = r#"
kind: workflow
name: main
version: 1.0.0
pipeline:
  - {id: judge, agent: ./agents/judge.agent.yaml, may_invoke: {verify: ./verify.workflow.yaml}}
"#;
const VERIFY: &str = r#"
kind: workflow
name: verify
version: 1.0.0
visibility: sub-workflow
params: {schema: {type: object, properties: {claim: {type: string}}}}
pipeline: [{id: v, transform: {inputs: ["{{ params.claim }}"]}}]
"#;
const JUDGE: &str = r#"
name: judge
version: 1.0.0
model: std
prompt: {system: You judge., user: Judge it.}
commands: {emit: ["claim.*"], invoke: [verify]}
output: {schema: {type: object, required: [verdict], properties: {verdict: {type: string}}}}
"#;
const GATEWAY: &str = r#"
providers: [{name: fake, type: scripted, config: {rules: replies.yaml}}]
model_groups: [{name: std, models: [fake/one]}]
"#;
const EMIT: &str = "{name: emit, arguments: {topic: claim.judged, payload: {n: 1}}}";
const INVOKE: &str = "{name: invoke, arguments: {step: verify, input: {claim: p}}}";

/// A kit whose model calls for these commands, and gives this verdict.
fn kit(desk: &Desk, calls: &[&str], verdict: &str) {
    desk.write_file("kit/workflows/main.workflow.yaml", MAIN);
    desk.write_file("kit/workflows/verify.workflow.yaml", VERIFY);
    desk.write_file("kit/agents/judge.agent.yaml", JUDGE);
    desk.write_file("kit/gateway.yaml", GATEWAY);
    let calls = match calls {
        [] => "rules: []\n".to_owned(),
        calls => format!(
            "rules: [{{when: {{turn: 1}}, tool_calls: [{}]}}]\n",
            calls.join(", ")
        ),
    };
    let reply = format!("default: {{reply: {{verdict: {verdict}}}}}\n");
    desk.write_file("kit/replies.yaml", &format!("{calls}{reply}"));
}

fn run(desk: &Desk) -> String {
    let said = desk.ktsu(&["run", "kit", "--json"]);
    let envelope = said.is(0).json();
    envelope["run_id"].as_str().unwrap().to_owned()
}

fn commands() -> Value {
    json!([
        {"type": "emit", "topic": "claim.judged", "payload": {"n": 1}},
        {"type": "invoke", "step": "verify", "input": {"claim": "p"}},
    ])
}

/// Other calls than [`EMIT`] and [`INVOKE`], and a line in which the difference is named.
const OTHERS: [(&[&str], &str); 3] = [
    (&[EMIT], "- /ktsu_commands/1: "),
    (
        &[
            "{name: emit, arguments: {topic: claim.judged, payload: {n: 2}}}",
            INVOKE,
        ],
        "/ktsu_commands/0/payload/n: 1 → 2",
    ),
    (
        &[
            EMIT,
            INVOKE,
            "{name: emit, arguments: {topic: claim.seen, payload: 3}}",
        ],
        "+ /ktsu_commands/2: ",
    ),
];

#[test]
fn dropped_changed_and_added_commands_are_differences_of_a_recompute() {
    let desk = Desk::new();
    kit(&desk, &[EMIT, INVOKE], "yes");
    let run = run(&desk);
    let recompute = || desk.ktsu(&["recompute", &run, "--kit", "kit"]);
    recompute().is(0).says("verdict clean");
    for (calls, named) in OTHERS {
        kit(&desk, calls, "yes");
        recompute()
            .is(1)
            .says("judge  value_changed")
            .says("its commands differ")
            .says(named);
    }
}

#[test]
fn baselines_hold_commands_and_dropped_changed_and_added_ones_are_differences() {
    let desk = Desk::new();
    kit(&desk, &[EMIT, INVOKE], "yes");
    let run = run(&desk);
    desk.ktsu(&["capture", &run, "-o", "base"]).is(0);
    let file = "base/judge.baseline.json";
    let text = std::fs::read_to_string(desk.path().join(file)).unwrap();
    let one: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(one["snapshot"]["commands"], commands(), "{text}");
    let test = |more: &[&str]| desk.ktsu(&[&["test", "base", "--kit", "kit"], more].concat());
    test(&[]).is(0).says("pass  1 of 1 clean");
    let report = test(&["--json"]).is(0).json();
    assert_eq!(report["counts"]["commandsChanged"], 0);
    for (calls, named) in OTHERS {
        kit(&desk, calls, "yes");
        test(&[])
            .is(1)
            .says("judge.baseline.json  value_changed")
            .says("its commands differ")
            .says(named)
            .says("1 with other commands");
        let report = test(&["--json"]).is(1).json();
        assert_eq!(report["counts"]["commandsChanged"], 1, "{report:#}");
        assert_eq!(report["status"], "fail");
        // Another value may be tolerated; what an agent asks for is not meant by that.
        test(&["--no-fail-on-diff"]).is(1);
        test(&["--no-fail-on-commands-diff"]).is(0);
    }
    // Another output is one difference, and other commands are another.
    kit(&desk, &[EMIT, INVOKE], "no");
    let report = test(&["--json"]).is(1).json();
    assert_eq!(report["counts"]["commandsChanged"], 0, "{report:#}");
    assert_eq!(report["counts"]["changed"], 1, "{report:#}");
    test(&["--no-fail-on-commands-diff"]).is(1);
    test(&["--no-fail-on-diff"]).is(0);
    kit(&desk, &[EMIT], "no");
    test(&["--no-fail-on-commands-diff"]).is(1);
    test(&["--no-fail-on-diff"]).is(1);
    test(&["--no-fail-on-diff", "--no-fail-on-commands-diff"]).is(0);
    // A file that was edited by hand.
    desk.write_file(file, &text.replace("\"n\": 1", "\"n\": 2"));
    test(&[]).is(2).warns("commands_corrupted");
}

#[test]
fn an_agent_that_commanded_nothing_is_held_to_it_and_hashes_and_older_files_say_what_they_can() {
    let desk = Desk::new();
    kit(&desk, &[], "yes");
    let silent = run(&desk);
    desk.ktsu(&["capture", &silent, "-o", "base"]).is(0);
    let test = |more: &[&str]| desk.ktsu(&[&["test", "base", "--kit", "kit"], more].concat());
    test(&[]).is(0);
    kit(&desk, &[EMIT, INVOKE], "yes");
    test(&[]).is(1).says("+ /ktsu_commands/0: ");
    // Hashes alone: other commands are other commands, and which is not known.
    let run = run(&desk);
    let capture = ["capture", &run, "-o", "base", "--force"];
    desk.ktsu(&[&capture[..], &["--hash-only"]].concat()).is(0);
    let file = "base/judge.baseline.json";
    let read = || std::fs::read_to_string(desk.path().join(file)).unwrap();
    assert!(!read().contains("claim.judged"), "{}", read());
    test(&[]).is(0);
    kit(&desk, &[EMIT], "yes");
    test(&[])
        .is(1)
        .says("value_changed")
        .says("other commands than those whose hash the baseline has");
    let report = test(&["--json"]).is(1).json();
    assert_eq!(report["counts"]["commandsChanged"], 1, "{report:#}");
    // Where a hash says nothing about the output, that commands may differ excuses nothing.
    kit(&desk, &[EMIT], "no");
    test(&["--no-fail-on-commands-diff"]).is(1);
    test(&["--no-fail-on-commands-diff", "--allow-not-comparable"]).is(0);
    // A file of before there were commands in them.
    kit(&desk, &[EMIT, INVOKE], "yes");
    desk.ktsu(&capture).is(0);
    let mut old: Value = serde_json::from_str(&read()).unwrap();
    for member in ["commands", "commandsHash"] {
        old["snapshot"].as_object_mut().unwrap().remove(member);
    }
    desk.write_file(file, &old.to_string());
    test(&[])
        .is(1)
        .says("not_comparable")
        .says("the baseline holds no commands; capture it again");
    kit(&desk, &[], "yes");
    test(&[]).is(0);
}

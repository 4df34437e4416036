//! Runs that wait for people, at a terminal and without one.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc::channel;

use super::{Desk, Said, send};
use crate::support::GUARD;
use crate::support::terminal::Terminal;

const KEEPER: &str = r#"
name: keeper
version: 1.0.0
model: std
prompt: {system: You keep things., user: Keep it.}
servers:
  - name: ktsu/kv
    access: {allowlist: [kv-get, {name: kv-set, require_approval: {on_reject: recover}}]}
output: {schema: {type: object}}
"#;
const GATEWAY: &str = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [desk/m]}]\n";
const RULES: &str = r#"
rules:
  - when: {turn: 1}
    tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}]
default:
  reply: {kept: true}
"#;
const QUESTION: &str = "approve? y, n, or n WHY:";

/// A kit `gated` whose agents ask for a tool that people are asked about.
fn desk(pipeline: &str) -> Desk {
    let desk = Desk::new();
    let flow = format!("kind: workflow\nname: gated\nversion: 1.0.0\n{pipeline}");
    desk.write_kit("gated", &flow);
    desk.write_file("gated/agents/keeper.agent.yaml", KEEPER);
    desk.write_file("gated/gateway.yaml", GATEWAY);
    desk.write_file("gated/rules.yaml", RULES);
    desk
}

/// As [`Desk::ktsu`], of a command that might never end.
#[track_caller]
fn ends(desk: &Desk, arguments: &[&str]) -> Said {
    let mut command = desk.command(arguments);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(GUARD) else {
        send("KILL", pid);
        panic!("{arguments:?} does not end");
    };
    let output = output.unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the kit until so many calls wait, and is interrupted: their ids, in the order of the steps.
fn waiting(desk: &Desk, calls: usize) -> Vec<String> {
    let mut run = desk.command(&["run", "gated"]);
    let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let told = lines.filter(|line| line.as_ref().unwrap().contains("ktsu approve apr_"));
    assert_eq!(told.take(calls).count(), calls, "it ended before");
    send("INT", run.id());
    assert_eq!(run.wait().unwrap().code(), Some(2));
    let mut records = desk.ktsu(&["approvals", "--json"]).is(0).json();
    let records = records.as_array_mut().unwrap();
    records.sort_by_key(|record| record["step_id"].to_string());
    let id = |record: &serde_json::Value| record["approval_id"].as_str().unwrap().to_owned();
    records.iter().map(id).collect()
}

const TWO: &str = "pipeline:
  - {id: a, agent: ./agents/keeper.agent.yaml}
  - {id: b, agent: ./agents/keeper.agent.yaml}
";

#[test]
fn whoever_sits_at_the_terminal_is_asked_about_every_item_of_a_fan_out() {
    let desk = desk(
        "params: {schema: {type: object, properties: {list: {type: array, default: [1, 2, 3]}}}}
pipeline: [{id: each, agent: ./agents/keeper.agent.yaml, for_each: {from: params.list}}]
",
    );
    let mut terminal = Terminal::of(desk.command(&["run", "gated"]), 200);
    for question in 1..=3 {
        terminal.until(QUESTION, question);
        terminal.types("y");
    }
    let (code, _) = terminal.ends();
    let shown = std::mem::take(&mut terminal.text);
    assert_eq!(code, 0, "{shown}");
    for item in ["each.0", "each.1", "each.2"] {
        assert_eq!(
            shown.matches(&format!("{item} asks for")).count(),
            1,
            "{shown}"
        );
    }
}

#[test]
fn a_command_that_decides_ends_when_the_run_waits_again() {
    let desk = desk(TWO);
    let ids = waiting(&desk, 2);
    let first = ends(&desk, &["approve", &ids[0], "--kit", "gated"]);
    first
        .warns("kv-set: approved")
        .warns(&format!("ktsu approve {}", ids[1]));
    first.says("waiting");
    let last = ends(&desk, &["approve", &ids[1], "--kit", "gated"]);
    last.is(0).says("complete");
}

#[test]
fn a_text_that_says_too_little_decides_nothing() {
    let desk = desk("pipeline: [{id: a, agent: ./agents/keeper.agent.yaml}]\n");
    let ids = waiting(&desk, 1);
    let letter = &ids[0][4..5];
    let two = &ids[0][..6];
    for text in ["", " ", letter, "apr_", "run_", "run_0", two] {
        for word in ["approve", "reject"] {
            let said = desk.ktsu(&[word, text, "--kit", "gated"]);
            said.is(2).warns("too short").warns("ktsu approvals");
        }
    }
    desk.ktsu(&["approve", "run", "--kit", "gated"])
        .is(2)
        .warns("no pending approval matches \"run\"");
    let still = desk.ktsu(&["approvals", "--json"]).is(0).json();
    assert_eq!(still[0]["status"], "pending", "{still}");
    let said = ends(&desk, &["approve", &ids[0][..7], "--kit", "gated"]);
    said.is(0).says("complete");
}

//! `ktsu test --twice`: each agent again on the replies of its first run.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::Desk;
use crate::support::tools::{Given, ToolServer, any};

const FLOW: &str = "kind: workflow
name: one
version: 1.0.0
pipeline:
  - {id: ask, agent: ./agents/clerk.agent.yaml}
  - {id: each, agent: ./agents/clerk.agent.yaml, for_each: {from: '[`1`, `2`]'}}
";
const CLERK: &str = "name: clerk
version: 1.0.0
model: std
prompt: {system: s, user: u}
servers: [{name: desk, path: ../servers/desk.server.yaml}]
commands: {emit: ['claim.*']}
output: {schema: {type: object, required: [kind], properties: {kind: {type: string}}}}
";
const GATEWAY: &str = "env: [{name: KEY, secret: true}]
providers:
  - {name: p, type: scripted, config: {rules: rules.yaml}}
  - {name: q, type: openai, config: {base_url: 'https://models.invalid', api_key: '{{ env.KEY }}'}}
model_groups: [{name: std, models: [p/m]}, {name: other, models: [q/m]}]
";
const RULES: &str = "rules:
  - when: {turn: 1}
    tool_calls:
      - {name: next, arguments: {n: 1}}
      - {name: emit, arguments: {topic: claim.seen, payload: 1}}
default: {reply: {kind: warm}}
";

/// A kit whose agents look something up, and the baselines of a run of it.
fn captured(server: &ToolServer) -> Desk {
    let desk = Desk::new();
    let file = format!("name: desk\nversion: 1.0.0\nurl: {}\n", server.url);
    for (path, text) in [
        ("kit/workflows/one.workflow.yaml", FLOW),
        ("kit/agents/clerk.agent.yaml", CLERK),
        ("kit/gateway.yaml", GATEWAY),
        ("kit/rules.yaml", RULES),
        ("kit/servers/desk.server.yaml", &file),
        (
            "kit/environments/local.env.yaml",
            "variables: {KEY: secret-key}\n",
        ),
    ] {
        desk.write_file(path, text);
    }
    let run = desk.ktsu(&["run", "kit", "--json"]);
    let run = run.is(0).json()["run_id"].as_str().unwrap().to_owned();
    desk.ktsu(&["capture", &run, "-o", "base"]).is(0);
    desk
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_do_the_same_on_the_same_replies_pass_and_no_model_is_asked_again() {
    let server = ToolServer::scripted(any(&["next"]), |_| Given::text("it")).await;
    let desk = captured(&server);
    let test = |more: &[&str]| desk.ktsu(&[&["test", "base", "--kit", "kit"], more].concat());
    test(&["--twice"])
        .is(0)
        .says("twice: the same on the recorded replies")
        .says("pass  3 of 3 clean")
        .says("3 the same twice");
    let report = test(&["--twice", "--json"]).is(0).json();
    assert_eq!(report["counts"]["repeated_otherwise"], json!(null));
    assert_eq!(report["counts"]["repeatedOtherwise"], 0, "{report:#}");
    assert_eq!(
        report["baselines"][2]["repeated"],
        json!({"status": "clean"})
    );
    let once = test(&["--json"]).is(0).json();
    assert_eq!(once["counts"]["repeatedOtherwise"], json!(null));
    assert_eq!(once["baselines"][0]["repeated"], json!(null));
    // A model that says something else is a difference from the baseline, and none between two runs.
    desk.write_file("kit/rules.yaml", &RULES.replace("warm", "cold"));
    test(&["--twice"])
        .is(1)
        .says("value_changed")
        .says("twice: the same on the recorded replies");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_otherwise_the_second_time_fails() {
    let count = AtomicUsize::new(0);
    let server = ToolServer::scripted(any(&["next"]), move |_| {
        Given::text(&count.fetch_add(1, Ordering::SeqCst).to_string())
    })
    .await;
    let desk = captured(&server);
    let once = desk.ktsu(&["test", "base", "--kit", "kit"]);
    once.is(0).says("pass  3 of 3 clean");
    let twice = ["test", "base", "--kit", "kit", "--twice"];
    desk.ktsu(&twice)
        .is(1)
        .says("twice: not the same on the recorded replies")
        .says("3 not the same twice");
    desk.ktsu(&[&twice[..], &["--no-fail-on-diff"]].concat())
        .is(1);
    desk.ktsu(&[&twice[..], &["--format", "markdown"]].concat())
        .is(1)
        .says("Run twice on the same replies: not the same");
}

//! Two users of one agent, at once: each call of a tool carries the key of whoever started its run.

use std::collections::BTreeMap;

use ktsu::assemble::LedgerPlace;
use serde_json::json;

use crate::support::model::{self, KEY, Model, Said};
use crate::support::tools::{self, Given, ToolServer};
use crate::support::{Client, Lab};

const ADA: &str = "key-of-ada-alone";
const BEA: &str = "key-of-bea-alone";
/// Runs of each.
const RUNS: usize = 50;

const FLOW: &str = r#"
env: [{name: DESK_KEY, secret: true}]
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - id: act
    agent: ./agents/asks.agent.yaml
    params: {msg: "{{ params.msg }}", key: "{{ env.DESK_KEY }}"}
"#;

const ASKS: &str = r#"
name: asks
version: 1.0.0
model: std
params:
  schema:
    type: object
    required: [msg, key]
    properties: {msg: {type: string}, key: {type: string, secret: true}}
prompt: {system: s, user: "{{ params.msg }}"}
output: {schema: {type: object}}
servers:
  - {name: desk, path: ../servers/desk.server.yaml, params: {key: "{{ params.key }}"}}
"#;

#[tokio::test]
async fn each_call_of_a_tool_carries_the_key_of_whoever_started_its_run() {
    let server = ToolServer::scripted(tools::any(&["whose"]), |asked| {
        // Gives back what it must not know of others.
        Given::Text(format!("called with {}", asked.secret))
    })
    .await;
    let model = Model::scripted(|call| match call.turn() {
        0 => Said::calls(&[("whose", json!({"who": call.user()}))]),
        _ => Said::answer(&call.results()[0]),
    })
    .await;
    let desk = format!(
        "name: desk
version: 1.0.0
url: {}
params: {{key: {{secret: true}}}}
auth: {{header: X-Key, scheme: raw, secret: '{{{{ params.key }}}}'}}
",
        server.url
    );
    let kit = model::kit(&model, &[("flow", FLOW)])
        .with("agents/asks.agent.yaml", ASKS)
        .with("servers/desk.server.yaml", &desk);
    let environment = format!(
        "egress: {{allow: [127.0.0.1]}}
variables: {{TA: token-of-ada, TB: token-of-bea, KA: {ADA}, KB: {BEA}}}
principals:
  - {{name: ada, token: {{env: TA}}, roles: [operator], secrets: {{DESK_KEY: {{env: KA}}}}}}
  - {{name: bea, token: {{env: TB}}, roles: [operator], secrets: {{DESK_KEY: {{env: KB}}}}}}
"
    );
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment, &[KEY]).await;
    let keys = BTreeMap::from([("ada", ADA), ("bea", BEA)]);
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..RUNS {
        for &who in keys.keys() {
            let client = Client::showing(&lab.engine.url, &format!("token-of-{who}"));
            runs.spawn(async move { client.run("flow", json!({"msg": who})).await });
        }
    }
    for envelope in runs.join_all().await {
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        let shown = envelope.to_string();
        assert!(!shown.contains("key-of-"), "{shown}");
    }
    let asked = server.asked();
    assert_eq!(asked.len(), 2 * RUNS);
    for one in asked {
        let who = one.arguments["who"].as_str().unwrap();
        assert_eq!(one.secret, keys[who], "{who}");
    }
    lab.close().await;
}

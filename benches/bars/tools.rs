//! What the engine adds to an agent that calls tools: everything in one process, a provider that
//! answers at once, and a tool server over loopback.
//!
//! How it is counted. The agent asks its model twice and calls two tools side by side in between. What
//! the model and the tools take by themselves is taken off: two calls of the gateway, and the same
//! session (handshake, list, two calls, end) without an engine.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode};
use axum::routing::post;
use ktsu::assemble::Engine;
use ktsu_egress::{Client, EgressPolicy};
use ktsu_tools::{McpClient, McpServer};
use serde_json::{Map, Value, json};

use crate::agents::{call, provider, resident, run};
use crate::table::{Row, Table, median, ms};
use crate::{Effort, disk, engine};

/// How many syncs such a step may take.
const SYNCS: u32 = 8;

const AGENT: &str = r#"
name: acts
version: "1.0.0"
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: "You repeat what you are told.", user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
servers: [{name: desk, path: ../servers/desk.server.yaml}]
"#;

const ONE: &str = r#"
kind: workflow
name: one
version: "1.0.0"
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: act, agent: agents/acts.agent.yaml, params: {msg: "{{ params.msg }}"}}
"#;

const GATEWAY: &str = "
providers: [{name: here, type: scripted, config: {rules: rules.yaml}}]
model_groups: [{name: std, models: [here/echo]}]
";

const RULES: &str = "
rules:
  - when: {turn: 1, tools: '.'}
    tool_calls: [{name: one, arguments: {n: 1}}, {name: two, arguments: {n: 2}}]
default: {reply: {answer: done}}
";

fn kit(folder: &Path, url: &str) {
    let server = format!("name: desk\nversion: \"1.0.0\"\nurl: {url}\n");
    for (name, text) in [
        ("agents/acts.agent.yaml", AGENT),
        ("servers/desk.server.yaml", &server),
        ("workflows/one.workflow.yaml", ONE),
        ("gateway.yaml", GATEWAY),
        ("rules.yaml", RULES),
    ] {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// A tool server with two tools that do nothing.
async fn desk() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = Router::new().route("/mcp", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn answer(body: Bytes) -> Response<Body> {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({"protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "desk", "version": "1"}}),
        "tools/list" => json!({"tools": [tool("one"), tool("two")]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "done"}]}),
        _ => {
            let mut nothing = Response::new(Body::empty());
            *nothing.status_mut() = StatusCode::ACCEPTED;
            return nothing;
        }
    };
    let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    let response = Response::builder().header("content-type", "application/json");
    response.body(Body::from(text)).unwrap()
}

/// The same session without an engine.
async fn session(tools: &McpClient, url: &str) -> Duration {
    let server = McpServer {
        name: "desk".to_owned(),
        url: url.to_owned(),
        builtin: None,
        auth: None,
        params: std::collections::BTreeMap::new(),
    };
    let started = Instant::now();
    let session = tools.open(&server).await.unwrap();
    let (limit, none) = (Duration::from_secs(60), Map::new());
    let both = tokio::join!(
        session.call("one", &none, "a", limit),
        session.call("two", &none, "b", limit)
    );
    assert!(both.0.is_ok() && both.1.is_ok());
    session.close().await;
    started.elapsed()
}

async fn open(folder: &Path) -> (Engine, McpClient, String) {
    let url = desk().await;
    kit(folder, &url);
    let kit = ktsu_kit::load(folder).unwrap_or_else(|_| panic!("the kit of the bench is sound"));
    let engine = engine::open(folder, Arc::new(kit)).await;
    let policy = EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    };
    (engine, McpClient::new(Client::new(&policy).unwrap()), url)
}

/// One run after the other, less the time of its model and its tools without an engine.
pub(crate) fn one_step(effort: Effort, table: &mut Table) {
    let rounds = effort.of(200, 40);
    let folder = disk::folder();
    let mut bare = disk::Bare::new();
    let (mut whole, mut effect, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    engine::runtime().block_on(async {
        let (engine, tools, url) = open(folder.path()).await;
        let provider = provider(folder.path());
        for round in 0..rounds {
            let params = json!({"msg": format!("message {round}")});
            let started = Instant::now();
            let envelope = run(&engine, "one", &params).await;
            whole.push(started.elapsed());
            assert_eq!(envelope["totals"]["tool_calls"], 2);
            let models = call(&provider, &params).await + call(&provider, &params).await;
            effect.push(models + session(&tools, &url).await);
            syncs.push(bare.sync(4096, 3));
        }
        engine.close().await.unwrap();
    });
    let (whole, effect, sync) = (median(&mut whole), median(&mut effect), median(&mut syncs));
    let overhead = whole.saturating_sub(effect);
    let bar = SYNCS * sync + Duration::from_millis(1);
    table.add(Row {
        what: format!(
            "agent step with two tool calls, beyond its model and its tools ({}), median of {rounds}",
            ms(effect)
        ),
        figure: ms(overhead),
        bare: format!("sync of 4 KiB: {}", ms(sync)),
        ratio: format!("{:.1} syncs", overhead.as_secs_f64() / sync.as_secs_f64()),
        bar: format!("≤ {SYNCS} syncs + 1 ms = {}", ms(bar)),
        met: Some(overhead <= bar),
    });
}

/// Two hundred of them at once, less as many sessions at once without an engine.
pub(crate) fn many_runs(effort: Effort, table: &mut Table) {
    let runs: u32 = effort.of(200, 50);
    let folder = disk::folder();
    let mut bare = disk::Bare::new();
    let (took, alone, before, after) = engine::runtime().block_on(async {
        let (engine, tools, url) = open(folder.path()).await;
        let engine = Arc::new(engine);
        run(&engine, "one", &json!({"msg": "first"})).await;
        let before = resident();
        let started = Instant::now();
        let all = (0..runs).map(|number| {
            let engine = Arc::clone(&engine);
            let params = json!({"msg": format!("message {number}")});
            tokio::spawn(async move { run(&engine, "one", &params).await })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        let (took, after) = (started.elapsed(), resident());
        let started = Instant::now();
        let all = (0..runs).map(|_| {
            let (tools, url) = (tools.clone(), url.clone());
            tokio::spawn(async move { session(&tools, &url).await })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        let alone = started.elapsed();
        Arc::into_inner(engine).unwrap().close().await.unwrap();
        (took, alone, before, after)
    });
    let sync = bare.sync(4096, 9);
    let each = took.saturating_sub(alone) / runs;
    let bar = SYNCS * sync + Duration::from_millis(1);
    table.add(Row {
        what: format!(
            "{runs} agent runs at once with two tool calls each, all ended after {}: each, beyond as many sessions alone ({})",
            ms(took),
            ms(alone)
        ),
        figure: format!("{}; {:.0} MiB more", ms(each), after - before),
        bare: format!("sync of 4 KiB: {}", ms(sync)),
        ratio: format!("{:.1} syncs", each.as_secs_f64() / sync.as_secs_f64()),
        bar: format!("≤ {SYNCS} syncs + 1 ms = {}", ms(bar)),
        met: Some(each <= bar),
    });
}

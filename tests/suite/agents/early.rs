//! A task whose runtime is of the same process begins before its dispatch is durable. What it asks a
//! model for goes to the ledger with the dispatch, and to the model after that.

use ktsu_ledger::store::MemoryStore;
use serde_json::json;

use super::MSG;
use crate::support::gate::gated;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{Within, by_bytes};

const CHAIN: &str = r#"
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
  - {id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: "{{ step.a.answer }}"}}
  - {id: c, depends_on: [b], agent: ./agents/reflects.agent.yaml, params: {msg: "{{ step.b.answer }}"}}
"#;

#[tokio::test]
async fn a_step_costs_one_append_and_its_model_is_asked_once_that_is_durable() {
    let model = Model::scripted(|call| Said::answer(&call.user())).await;
    let workflow = format!("{MSG}{CHAIN}");
    let kit = model::kit(&model, &[("chain", &workflow)]);
    let (options, gate) = gated();
    let within = Within::new(kit.load(), MemoryStore::new(), options, &[KEY], None).await;
    // Dropped before the engine, whose appender waits for it.
    let mut gate = gate;
    let client = within.client.clone();
    let run = async move { client.run("chain", json!({"msg": "hello"})).await };
    let mut run = std::pin::pin!(run);
    let mut appends = Vec::new();
    let envelope = loop {
        let kinds = tokio::select! {
            kinds = gate.appended.recv() => kinds.unwrap(),
            envelope = &mut run => break envelope,
        };
        // Everything that is ready gets its turn, and a model that could be asked is.
        for _ in 0..500 {
            tokio::task::yield_now().await;
        }
        assert_eq!(model.calls().len(), requests(&appends), "{kinds:?}");
        appends.push(kinds);
        gate.open.send(()).unwrap();
    };
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(requests(&appends), 4);
    if by_bytes() {
        return;
    }
    let ends: Vec<&str> = appends
        .iter()
        .map(|kinds| kinds.last().unwrap().as_str())
        .collect();
    let expected = [
        "llm.request",
        "llm.request",
        "llm.request",
        "llm.request",
        "run.completed",
    ];
    assert_eq!(ends, expected, "{appends:#?}");
}

/// How many requests for models are appended.
fn requests(appends: &[Vec<String>]) -> usize {
    let kinds = appends.iter().flatten();
    kinds.filter(|kind| *kind == "llm.request").count()
}

const WITH_TOOLS: &str = r#"
name: looks
version: 1.0.0
model: std
prompt: {system: s, user: u}
output: {schema: {type: object}}
servers: [{name: files, path: ../servers/files.server.yaml, access: {allowlist: ["*"]}}]
"#;

#[tokio::test]
async fn a_tool_server_hears_nothing_before_the_dispatch_of_the_task_is_durable() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let model = Model::echo().await;
    let looks = "pipeline: [{id: a, agent: ./agents/looks.agent.yaml}]\n";
    let kit = model::kit(&model, &[("looks", looks)])
        .with("agents/looks.agent.yaml", WITH_TOOLS)
        .with(
            "servers/files.server.yaml",
            &format!("name: files\nversion: 1.0.0\nurl: {url}\n"),
        );
    let (options, gate) = gated();
    let within = Within::new(kit.load(), MemoryStore::new(), options, &[KEY], None).await;
    // Dropped before the engine, whose appender waits for it.
    let mut gate = gate;
    let client = within.client.clone();
    let reply = tokio::spawn(async move { client.post("/invoke/looks", "{}").await.status });
    let kinds = gate.appended.recv().await.unwrap();
    assert_eq!(kinds.last().unwrap(), "worker.dispatched");
    for _ in 0..500 {
        let session = tokio::select! {
            biased;
            session = server.accept() => Some(session.unwrap()),
            () = tokio::task::yield_now() => None,
        };
        assert!(session.is_none());
    }
    gate.open.send(()).unwrap();
    server.accept().await.unwrap();
    assert_eq!(reply.await.unwrap(), 202);
}

//! What becomes of calls that a server does not answer: those it refuses because it has forgotten
//! the session, those it takes too long for, and those it fails.

use serde_json::{Value, json};

use crate::support::model::{self, KEY, Model, Said};
use crate::support::tools::{self, Given, ToolServer};
use crate::support::{KitDir, Lab};

const FLOW: &str = "pipeline: [{id: act, agent: ./agents/clerk.agent.yaml}]\n";

const CLERK: &str = "
name: clerk
version: 1.0.0
model: std
prompt: {system: s, user: u}
output: {schema: {type: object}}
servers: [{name: desk, path: ../servers/desk.server.yaml}]
";

/// A kit whose agent calls a tool once, with the rest of its server's file.
fn kit(model: &Model, server: &ToolServer, rest: &str) -> KitDir {
    let desk = format!("name: desk\nversion: 1.0.0\nurl: {}\n{rest}", server.url);
    model::kit(model, &[("flow", FLOW)])
        .with("agents/clerk.agent.yaml", CLERK)
        .with("servers/desk.server.yaml", &desk)
}

/// A model that calls a tool, after something has happened, and gives back the result.
async fn calls(tool: &'static str, before: impl Fn() + Send + Sync + 'static) -> Model {
    Model::scripted(move |call| match call.turn() {
        0 => {
            before();
            Said::calls(&[(tool, json!({}))])
        }
        _ => Said::answer(&call.results()[0]),
    })
    .await
}

fn of<'a>(frames: &'a [Value], kind: &str) -> Vec<&'a Value> {
    frames.iter().filter(|one| one["type"] == kind).collect()
}

#[tokio::test]
async fn a_call_to_a_stateful_server_that_forgot_the_session_happens_once_and_asks_no_one() {
    for status in [404, 400] {
        let server = ToolServer::scripted(tools::any(&["put"]), |_| Given::text("done")).await;
        server.keep_sessions();
        let forgets = server.clone();
        let model = calls("put", move || forgets.forget_sessions(status)).await;
        let kit = kit(&model, &server, "stateful: true\n");
        let lab = Lab::new(&kit, &[KEY]).await;
        let envelope = lab.client.run("flow", json!({})).await;
        assert_eq!(envelope["status"], "complete", "{status}: {envelope:#}");
        assert_eq!(envelope["steps"][0]["output"], json!({"answer": "done"}));
        let run = envelope["run_id"].as_str().unwrap();
        let frames = lab.client.frames(run).await;
        assert_eq!(of(&frames, "tool.called").len(), 1);
        assert_eq!(of(&frames, "tool.in_doubt"), [] as [&Value; 0]);
        let refused = server.refused();
        assert_eq!((refused.len(), server.asked().len()), (1, 1), "{status}");
        assert_eq!(refused[0], server.asked()[0].key, "under the same key");
        lab.close().await;
    }
}

#[tokio::test]
async fn a_call_that_timed_out_says_how_long_it_took_and_its_server_hears_of_it() {
    let server = ToolServer::scripted(tools::any(&["slow"]), |_| {
        Given::text("late").when("never opened")
    })
    .await;
    let model = calls("slow", || {}).await;
    let kit = kit(&model, &server, "timeout: 300ms\n");
    let lab = Lab::new(&kit, &[KEY]).await;
    let envelope = lab.client.run("flow", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let told = envelope["steps"][0]["output"]["answer"].as_str().unwrap();
    let words = "Error: the tool could not be used: tool server desk: ";
    assert!(told.starts_with(words), "{told}");
    assert_eq!(told.matches("Error:").count(), 1, "{told}");
    let run = envelope["run_id"].as_str().unwrap();
    let frames = lab.client.frames(run).await;
    let returned = of(&frames, "tool.returned")[0];
    let took = returned["data"]["duration_ms"].as_u64().unwrap();
    assert!(took >= 300, "{returned:#}");
    server.until_cancelled(1).await;
    assert_eq!(server.cancelled(), server.numbers());
    lab.close().await;
}

#[tokio::test]
async fn the_error_of_a_tool_reaches_the_model_with_one_mark() {
    for (says, told) in [
        ("out of stock", "Error: out of stock"),
        ("Error: out of stock", "Error: out of stock"),
    ] {
        let server = ToolServer::scripted(tools::any(&["get"]), move |_| {
            Given::Failed(says.to_owned())
        });
        let server = server.await;
        let model = calls("get", || {}).await;
        let lab = Lab::new(&kit(&model, &server, ""), &[KEY]).await;
        let envelope = lab.client.run("flow", json!({})).await;
        assert_eq!(envelope["steps"][0]["output"], json!({ "answer": told }));
        lab.close().await;
    }
}

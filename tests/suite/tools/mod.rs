//! Tools: agents that act, killed, fooled and watched over; and tool servers that others wrote, on
//! the official SDK for Python.
//!
//! Those run where `KTSU_MCP_PYTHON` names a python that has it (see `tests/interop/mcp/setup`);
//! elsewhere their tests say so and are skipped.

mod access_request;
mod answers;
mod exact;
mod gullible;
mod keys;
mod kills;
mod own;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::http::HeaderName;
use ktsu_egress::{Client, EgressPolicy};
use ktsu_secret::Secret;
use ktsu_tools::{McpClient, McpServer, McpSession, ToolCallResult, ToolErrorCode, ToolList};
use serde_json::{Map, Value, json};

/// Far more than any call takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The servers; they end when their standard input does.
struct Others {
    child: Child,
    urls: BTreeMap<String, String>,
}

impl Drop for Others {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn others() -> Option<Others> {
    let Ok(python) = std::env::var("KTSU_MCP_PYTHON") else {
        crate::support::not_tested("tool servers on the official SDK; KTSU_MCP_PYTHON is not set");
        return None;
    };
    let mut child = Command::new(python)
        .arg("tests/interop/mcp/server.py")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let urls = serde_json::from_str(&line).unwrap();
    Some(Others { child, urls })
}

fn tools() -> McpClient {
    let policy = EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    };
    McpClient::new(Client::new(&policy).unwrap())
}

async fn open(tools: &McpClient, name: &str, url: &str) -> McpSession {
    let server = McpServer {
        name: name.to_owned(),
        url: url.to_owned(),
        builtin: None,
        auth: Some((HeaderName::from_static("x-key"), Secret::new("k-of-ours"))),
        params: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
    };
    tools.open(&server).await.unwrap()
}

async fn call(session: &McpSession, tool: &str, arguments: Value) -> ToolCallResult {
    let arguments: Map<String, Value> = serde_json::from_value(arguments).unwrap();
    let returned = session.call(tool, &arguments, "once-7", PATIENCE).await;
    returned.unwrap_or_else(|error| panic!("{tool}: {error:?}"))
}

fn text(returned: &ToolCallResult) -> &str {
    returned.content[0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn servers_on_the_official_sdk_are_called_in_every_way_they_offer() {
    let Some(others) = others() else { return };
    let tools = tools();
    for (name, url) in &others.urls {
        let session = open(&tools, name, url).await;
        let all = session.tools();
        let offered: Vec<&str> = all.iter().map(|tool| &*tool.name).collect();
        for tool in ["add", "blocks", "fail", "heard", "asks", "progress"] {
            assert!(offered.contains(&tool), "{name}: {offered:?}");
        }
        let add = all.iter().find(|tool| tool.name == "add");
        let add = add.unwrap();
        assert_eq!(add.description, "Adds two numbers.");
        assert_eq!(add.input_schema["required"], json!(["a", "b"]), "{name}");

        let sum = call(&session, "add", json!({"a": 20, "b": 22})).await;
        assert_eq!(sum.structured, Some(json!({"sum": 42})), "{name}");
        assert!(!sum.is_error, "{name}");

        let blocks = call(&session, "blocks", json!({})).await.content;
        let kinds: Vec<&Value> = blocks.iter().map(|block| &block["type"]).collect();
        assert_eq!(kinds, ["text", "image", "text"], "{name}");
        assert_eq!(blocks[1]["mimeType"], "image/png", "{name}");
        assert_eq!(blocks[2]["text"], "last é", "{name}");

        let failed = call(&session, "fail", json!({})).await;
        assert!(failed.is_error, "{name}: {failed:?}");

        let wrong = call(&session, "add", json!({"a": "no number"})).await;
        assert!(wrong.is_error, "{name}: {wrong:?}");

        let heard = call(&session, "heard", json!({})).await;
        let heard: Value = serde_json::from_str(text(&heard)).unwrap();
        assert_eq!(heard["key"], "k-of-ours", "{name}");
        assert_eq!(heard["meta"]["ktsu/idempotency-key"], "once-7", "{name}");

        let done = call(&session, "progress", json!({})).await;
        assert_eq!(text(&done), "done", "{name}");
        session.close().await;
    }
}

#[tokio::test]
async fn a_server_that_asks_for_what_we_do_not_offer_is_refused_in_words() {
    let Some(others) = others() else { return };
    for name in ["events", "legacy"] {
        let session = open(&tools(), name, &others.urls[name]).await;
        let said = call(&session, "asks", json!({})).await;
        assert!(text(&said).contains("method not found"), "{name}: {said:?}");
        // And goes on.
        let sum = call(&session, "add", json!({"a": 1, "b": 1})).await;
        assert_eq!(sum.structured, Some(json!({"sum": 2})), "{name}");
    }
}

#[tokio::test]
async fn an_answer_whose_stream_was_hung_up_is_fetched_and_not_asked_for_again() {
    let Some(others) = others() else { return };
    let session = open(&tools(), "events", &others.urls["events"]).await;
    let said = call(&session, "leaves", json!({})).await;
    assert_eq!(text(&said), "fetched");
}

#[tokio::test]
async fn after_a_server_says_that_its_tools_changed_they_are_listed_again() {
    let Some(others) = others() else { return };
    let session = open(&tools(), "legacy", &others.urls["legacy"]).await;
    let later = |tools: &ToolList| tools.iter().any(|tool| tool.name == "later");
    assert!(!later(&session.renew().await.unwrap()));
    // On one stream the notification comes before the answer.
    call(&session, "changes", json!({})).await;
    assert!(later(&session.renew().await.unwrap()));
    let said = call(&session, "later", json!({})).await;
    assert_eq!(text(&said), "there now");
}

#[tokio::test]
async fn a_call_that_timed_out_is_cancelled_at_the_server() {
    let Some(others) = others() else { return };
    for name in ["json", "events", "legacy"] {
        let session = open(&tools(), name, &others.urls[name]).await;
        let limit = Duration::from_millis(300);
        let late = session.call("waits", &Map::new(), "once-8", limit).await;
        let late = late.map_err(|error| (error.code, error.sent));
        assert_eq!(late, Err((ToolErrorCode::Timeout, true)), "{name}");
        let said = call(&session, "stopped_waiting", json!({})).await;
        assert_eq!(text(&said), "cancelled", "{name}");
        session.close().await;
    }
}

#[tokio::test]
async fn a_server_that_forgot_the_session_gets_the_call_in_another_one() {
    let Some(others) = others() else { return };
    for name in ["json", "events"] {
        let session = open(&tools(), name, &others.urls[name]).await;
        assert_eq!(
            text(&call(&session, "forgets", json!({})).await),
            "forgotten"
        );
        let none = Map::new();
        let refused = session.call("progress", &none, "once-9", PATIENCE).await;
        let refused = refused.map_err(|error| (error.code, error.sent));
        assert_eq!(
            refused,
            Err((ToolErrorCode::SessionExpired, false)),
            "{name}"
        );
        session.renew().await.unwrap();
        let said = call(&session, "progress", json!({})).await;
        assert_eq!(text(&said), "done", "{name}");
    }
}

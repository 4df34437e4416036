//! Calls whose results are no longer awaited: the server is informed.

use std::time::Duration;

use serde_json::{Value, json};

use super::dialect::Dialect;
use super::scripted_tests::*;
use super::*;

const LIMIT: Duration = Duration::from_millis(200);

const CANCELLED: &str = "notifications/cancelled";

fn of(scripted: &Scripted, method: &str) -> Vec<Seen> {
    let mut seen = scripted.seen();
    seen.retain(|seen| seen.rpc() == method);
    seen
}

/// The numbers of the requests that were cancelled, which are those of the calls.
fn cancelled(scripted: &Scripted) -> Vec<Value> {
    let cancelled = of(scripted, CANCELLED);
    let numbers = cancelled.iter().map(|seen| {
        assert_eq!(seen.body.get("id"), None, "a notification has no id");
        seen.body["params"]["requestId"].clone()
    });
    numbers.collect()
}

fn called(scripted: &Scripted) -> Vec<Value> {
    let calls = of(scripted, "tools/call");
    calls.iter().map(|seen| seen.id().clone()).collect()
}

#[tokio::test]
async fn a_call_that_timed_out_is_followed_by_its_cancellation() {
    for begun in ["", STREAM] {
        let scripted = Scripted::start(move |seen| match seen.rpc() {
            "tools/call" => Reply::Hang(begun.into()),
            _ => good(seen),
        })
        .await;
        let session = tools().open(&scripted.server()).await.expect("a session");
        let none = arguments(json!({}));
        let late = session.call("read-a", &none, "key", LIMIT).await;
        let late = late.expect_err("no answer");
        assert_eq!((late.code, late.sent), (ToolErrorCode::Timeout, true));
        assert!(
            u128::from(late.duration_ms) >= LIMIT.as_millis(),
            "{late:?}"
        );
        session.close().await;
        assert_eq!(cancelled(&scripted), called(&scripted));
        assert_eq!(cancelled(&scripted).len(), 1);
        let told = of(&scripted, CANCELLED);
        assert_eq!(told[0].headers["mcp-session-id"], "s-1");
        let last = scripted.methods().pop();
        assert_eq!(last.as_deref(), Some("DELETE"), "the session ends after it");
    }
}

#[tokio::test]
async fn a_call_that_timed_out_is_cancelled_on_the_older_transport_too() {
    let accepted = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
    let scripted = Scripted::start(move |seen| {
        let push = |answer: Value| Reply::Push(event(&answer).into(), accepted.into());
        match seen.rpc() {
            "GET" => {
                let endpoint = "event: endpoint\ndata: /messages?session=1\n\n";
                Reply::Listen(format!("{STREAM}{endpoint}").into())
            }
            "initialize" => push(result(
                seen.id(),
                json!({"protocolVersion": "2024-11-05", "capabilities": {}}),
            )),
            "tools/list" => push(result(seen.id(), json!({"tools": [tool("read-a")]}))),
            _ => Reply::Whole(accepted.into()),
        }
    })
    .await;
    let tools = tools();
    let stream = Dialect::Legacy(scripted.url.clone());
    tools.dialects.learn(&scripted.url, stream);
    let session = tools.open(&scripted.server()).await.expect("a session");
    let none = arguments(json!({}));
    let late = session.call("read-a", &none, "key", LIMIT).await;
    assert_eq!(
        late.map_err(|error| error.code),
        Err(ToolErrorCode::Timeout)
    );
    session.close().await;
    assert_eq!(cancelled(&scripted), called(&scripted));
    assert_eq!(of(&scripted, CANCELLED)[0].path, "/messages?session=1");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_before_the_session_ends() {
    let scripted = Scripted::start(|seen| match seen.rpc() {
        "tools/call" => Reply::Hang(Vec::new()),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let none = arguments(json!({}));
    tokio::select! {
        returned = session.call("read-a", &none, "key", PATIENCE) => panic!("{returned:?}"),
        () = scripted.until_held(1) => {}
    }
    session.close().await;
    assert_eq!(cancelled(&scripted), called(&scripted));
    let last = scripted.methods().pop();
    assert_eq!(last.as_deref(), Some("DELETE"));
}

#[tokio::test]
async fn a_call_that_was_answered_refused_or_never_sent_is_not_cancelled() {
    let scripted = Scripted::start(|seen| {
        let n = seen.body["params"]["arguments"]["n"].as_i64();
        match (seen.rpc(), n) {
            ("tools/call", Some(1)) => http("500 Internal Server Error", "", b""),
            ("tools/call", Some(2)) => Reply::Reset(Vec::new()),
            _ => good(seen),
        }
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    for n in 0..3 {
        let given = arguments(json!({ "n": n }));
        let returned = session.call("read-a", &given, "key", PATIENCE).await;
        assert_eq!(returned.is_ok(), n == 0, "{returned:?}");
    }
    let none = arguments(json!({}));
    let unknown = session.call("unheard-of", &none, "key", PATIENCE).await;
    assert!(unknown.is_err());
    session.close().await;
    assert_eq!(called(&scripted).len(), 3);
    assert_eq!(cancelled(&scripted), [] as [Value; 0]);
}

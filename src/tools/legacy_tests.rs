//! Servers of the older transport, correct and hostile.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::dialect::Dialect;
use super::scripted_tests::*;
use super::*;
use ToolErrorCode::{
    Protocol, Refused, SessionExpired, Status, Timeout, TooLarge, Unauthorized, Unreachable,
};
use ktsu_egress::{EgressPolicy, SESSION_STREAMS_PER_REQUEST};

const ACCEPTED: &[u8] = b"HTTP/1.1 202 Accepted\r\ncontent-length: 8\r\n\r\nAccepted";
const REFUSED: &[u8] = b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n";

fn bytes(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Whole(bytes) => bytes,
        other => panic!("{other:?} is not whole"),
    }
}

fn named(endpoint: &str) -> Reply {
    Reply::Listen(format!("{STREAM}event: endpoint\r\ndata: {endpoint}\r\n\r\n").into())
}

/// An answer on the stream.
fn push(message: &Value) -> Reply {
    Reply::Push(event(message).into(), ACCEPTED.into())
}

/// What a server that means well answers: the messages of [`good`], on its stream.
fn older(seen: &Seen) -> Reply {
    match (seen.method.as_str(), seen.path.as_str()) {
        ("GET", "/mcp") => named("/messages/?session=1"),
        ("POST", "/messages/?session=1") => {
            let answer = bytes(good(seen));
            let answer = String::from_utf8(answer).expect("a text");
            match answer.split_once("\r\n\r\n") {
                Some((_, body)) if !body.is_empty() => {
                    let said: Value = serde_json::from_str(body).expect("a message");
                    push(&said)
                }
                _ => Reply::Whole(ACCEPTED.into()),
            }
        }
        _ => Reply::Whole(REFUSED.into()),
    }
}

#[tokio::test]
async fn the_older_dialect_is_found_once_and_then_known() {
    let scripted = Scripted::start(older).await;
    let tools = tools();
    let mut server = scripted.server();
    server.auth = Some((HeaderName::from_static("x-key"), Secret::new("a key")));
    for _ in 0..2 {
        let session = tools.open(&server).await.expect("a session");
        assert_eq!(session.tools().len(), 2);
        let returned = call(&session).await.expect("a result");
        assert_eq!(returned.content[0]["text"], "{\"n\":1}");
        session.close().await;
    }
    let seen = scripted.seen();
    let on_the_stream = |seen: &&Seen| seen.path == "/mcp";
    let probes: Vec<&str> = seen
        .iter()
        .filter(on_the_stream)
        .map(|seen| seen.method.as_str())
        .collect();
    assert_eq!(probes, ["POST", "GET", "GET"]);
    let keyless = seen
        .iter()
        .filter(|seen| !seen.headers.contains_key("x-key"));
    assert_eq!(keyless.count(), 0, "every request carries the key");
}

#[tokio::test]
async fn the_stream_may_be_below_the_url() {
    let scripted = Scripted::start(|seen| match (seen.method.as_str(), seen.path.as_str()) {
        ("GET", "/mcp/sse") => named("../messages/?session=1"),
        ("POST", "/messages/?session=1") => older(seen),
        _ => http("404 Not Found", "", b""),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    assert!(call(&session).await.is_ok());
}

#[tokio::test]
async fn the_query_of_a_url_stays_where_the_stream_is_below_its_path() {
    let scripted = Scripted::start(|seen| match (seen.method.as_str(), seen.path.as_str()) {
        ("GET", "/mcp/sse?key=1") => named("../messages/?session=1"),
        ("POST", "/messages/?session=1") => older(seen),
        _ => http("404 Not Found", "", b""),
    })
    .await;
    let server = server(&format!("{}/?key=1", scripted.url));
    let session = tools().open(&server).await.expect("a session");
    assert!(call(&session).await.is_ok());
}

#[tokio::test]
async fn credentials_that_the_stream_refuses_are_reported_before_the_post_that_no_one_takes() {
    for (status, code) in [
        ("401 Unauthorized", Unauthorized),
        ("403 Forbidden", Unauthorized),
        ("404 Not Found", Status),
    ] {
        let scripted = Scripted::start(move |seen| match seen.method.as_str() {
            "GET" => http(status, "", b""),
            _ => Reply::Whole(REFUSED.into()),
        })
        .await;
        let error = tools().open(&scripted.server()).await.err();
        let error = error.expect("refused");
        assert_eq!((error.code, error.sent), (code, false), "{error}");
        let told = if code == Status { "405" } else { &status[..3] };
        assert!(error.message.ends_with(told), "{error}");
    }
}

#[tokio::test]
async fn sessions_hold_no_place_that_others_wait_for_and_their_bound_says_whose_it_is() {
    let scripted = Scripted::start(older).await;
    let policy = EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    };
    // One request at a time, so that there is not much to open.
    let mut tools =
        McpClient::new(egress::Client::with_connections_per_host(&policy, 1).expect("a policy"));
    tools.limits = Arc::new(small());
    let mut open = Vec::new();
    for _ in 0..SESSION_STREAMS_PER_REQUEST {
        open.push(tools.open(&scripted.server()).await.expect("a session"));
    }
    let error = tools.open(&scripted.server()).await.err();
    let error = error.expect("one too many");
    assert_eq!((error.code, error.sent), (Refused, false));
    let words = "which is as many as ktsu keeps";
    assert!(error.message.ends_with(words), "{error}");
    drop(open.pop());
    scripted.until_held(SESSION_STREAMS_PER_REQUEST - 1).await;
    open.push(tools.open(&scripted.server()).await.expect("a session"));
    assert!(call(&open[0]).await.is_ok());
}

#[tokio::test]
async fn a_session_whose_stream_has_ended_is_opened_again() {
    let turn = AtomicU32::new(0);
    let scripted = Scripted::start(move |seen| match seen.rpc() {
        "tools/call" if turn.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Hangup(ACCEPTED.into()),
        _ => older(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let error = call(&session).await.expect_err("no answer");
    assert_eq!((error.code, error.sent), (Unreachable, true));
    assert!(session.renew().await.is_ok());
    assert!(call(&session).await.is_ok());
}

#[tokio::test]
async fn a_stream_that_is_dropped_ends_with_its_session() {
    let scripted = Scripted::start(older).await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    assert!(call(&session).await.is_ok());
    assert_eq!(scripted.held(), 1, "the stream");
    drop(session);
    scripted.until_held(0).await;
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_nobodys() {
    let turn = AtomicU32::new(0);
    let scripted = Scripted::start(move |seen| match seen.rpc() {
        "tools/call" => match turn.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::Whole(ACCEPTED.into()),
            // First what the call before was told too late.
            _ => {
                let id = seen.id().as_i64().expect("a number");
                let late = event(&result(&(id - 1).into(), text("late")));
                let own = event(&result(seen.id(), text("own")));
                Reply::Push(format!("{late}{own}").into(), ACCEPTED.into())
            }
        },
        _ => older(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let none = arguments(json!({}));
    let first = session
        .call("read-a", &none, "1", Duration::from_millis(100))
        .await;
    let first = first.expect_err("no answer");
    assert_eq!((first.code, first.sent), (Timeout, true));
    let second = session.call("read-a", &none, "2", PATIENCE).await;
    assert_eq!(second.expect("a result").content[0]["text"], "own");
}

/// What a server does, when, and what comes of it.
type Case = (
    &'static str,
    &'static str,
    ToolErrorCode,
    fn(&Seen) -> Reply,
);

fn cases() -> Vec<Case> {
    vec![
        ("an endpoint elsewhere", "GET", Protocol, |_| {
            named("http://127.0.0.1:1/messages")
        }),
        ("an endpoint on another host", "GET", Protocol, |_| {
            named("//10.0.0.1/messages")
        }),
        (
            "an endpoint that looks like ours",
            "GET",
            Protocol,
            |seen| named(&format!("http://{}@10.0.0.1/", seen.headers["host"])),
        ),
        ("an endpoint with another's name", "GET", Protocol, |seen| {
            named(&format!("http://user:word@{}/", seen.headers["host"]))
        }),
        ("an endpoint of another scheme", "GET", Protocol, |seen| {
            named(&format!("https://{}/messages", seen.headers["host"]))
        }),
        ("an endpoint that is none", "GET", Protocol, |_| {
            named("http://[")
        }),
        ("an event before the endpoint", "GET", Protocol, |_| {
            Reply::Listen(format!("{STREAM}{}", event(&json!({}))).into())
        }),
        ("no endpoint", "GET", Timeout, |_| {
            Reply::Hang(STREAM.into())
        }),
        ("an endpoint that does not end", "GET", TooLarge, |_| {
            Reply::Endless(
                format!("{STREAM}data: ").into(),
                vec![b'x'; 999],
                Duration::ZERO,
            )
        }),
        ("a stream that ends at once", "GET", Unreachable, |_| {
            Reply::Close(STREAM.into())
        }),
        ("no stream", "GET", Status, |_| {
            http("404 Not Found", "", b"")
        }),
        (
            "an answer to what was never asked",
            "tools/call",
            Protocol,
            |_| push(&result(&json!(4711), text("x"))),
        ),
        ("an answer to nothing", "tools/call", Protocol, |_| {
            push(&json!({"jsonrpc": "2.0", "error": {"code": 1, "message": "x"}}))
        }),
        (
            "an event that is no message",
            "tools/call",
            Protocol,
            |_| push(&json!([1])),
        ),
        ("silence", "tools/call", Timeout, |_| {
            Reply::Whole(ACCEPTED.into())
        }),
        ("the end of the stream", "tools/call", Unreachable, |_| {
            Reply::Hangup(ACCEPTED.into())
        }),
        ("a forgotten session", "tools/call", SessionExpired, |_| {
            http("404 Not Found", "", b"")
        }),
        ("an unknown session", "tools/call", SessionExpired, |_| {
            http("400 Bad Request", "", b"")
        }),
        ("a refusal", "tools/call", Status, |_| {
            http("500 Internal Server Error", "", b"")
        }),
        ("questions without end", "tools/call", Protocol, |_| {
            let asks = event(&json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}));
            Reply::Push(asks.repeat(100).into(), ACCEPTED.into())
        }),
        ("a flood", "tools/call", TooLarge, |_| {
            Reply::Push(b": still here\n".repeat(30_000), ACCEPTED.into())
        }),
        ("a huge result", "tools/call", TooLarge, |seen| {
            push(&result(seen.id(), text(&"x".repeat(20_000))))
        }),
    ]
}

#[tokio::test]
async fn whatever_a_server_of_the_older_dialect_does_ends_in_a_failure_of_its_kind() {
    let mut faults = Vec::new();
    for (what, at, code, reply) in cases() {
        let scripted = Scripted::start(move |seen| {
            if seen.rpc() == at {
                reply(seen)
            } else {
                older(seen)
            }
        })
        .await;
        // What the URL speaks is known: else the answer to the first POST would be told.
        let tools = tools();
        let stream = Dialect::Legacy(scripted.url.clone());
        tools.dialects.learn(&scripted.url, stream);
        let ended = async {
            let session = tools.open(&scripted.server()).await?;
            let returned = call(&session).await;
            session.close().await;
            returned
        };
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        let sent = at == "tools/call" && code != SessionExpired;
        match ended.expect("an end") {
            Err(error) if (error.code, error.sent) == (code, sent) => {}
            other => faults.push(format!("{what}: {other:?}")),
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

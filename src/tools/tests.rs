//! Sessions with correct servers.

use std::sync::atomic::{AtomicU32, Ordering};

use http::HeaderName;
use serde_json::{Value, json};

use super::scripted_tests::*;
use super::*;
use ToolErrorCode::{Refused, Unreachable};

#[tokio::test]
async fn a_session_shakes_hands_lists_calls_and_says_goodbye() {
    let scripted = Scripted::start(good).await;
    let mut server = scripted.server();
    server.auth = Some((
        HeaderName::from_static("x-key"),
        Secret::new("the key of one principal"),
    ));
    server.params = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
    let session = tools().open(&server).await.expect("a session");
    let tools = session.tools();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["read-a", "delete-a"]);
    let given = arguments(json!({"id": 7}));
    let returned = session.call("read-a", &given, "k-1", PATIENCE).await;
    let returned = returned.expect("a result");
    assert_eq!(
        returned.content,
        [json!({"type": "text", "text": "{\"id\":7}"})]
    );
    assert!(!returned.is_error);
    session.close().await;

    let mut methods = scripted.methods();
    // Listening goes side by side with the rest.
    methods.retain(|method| method != "GET");
    assert_eq!(
        methods,
        [
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call",
            "DELETE"
        ]
    );
    let mut seen = scripted.seen();
    let keys = seen.iter().map(|seen| seen.headers.get("x-key"));
    assert!(keys.into_iter().all(|key| key.is_some()), "{seen:?}");
    seen.retain(|seen| seen.method != "GET");
    let header = |seen: &Seen, name: &str| seen.headers.get(name).cloned();
    assert_eq!(header(&seen[0], "mcp-session-id"), None);
    for seen in &seen[1..] {
        assert_eq!(header(seen, "mcp-session-id").as_deref(), Some("s-1"));
        let version = header(seen, "mcp-protocol-version");
        assert_eq!(version.as_deref(), Some("2025-11-25"));
    }
    let config = json!({"region": "eu"});
    let opened = &seen[0].body["params"];
    assert_eq!(opened["config"], config);
    assert_eq!(opened["_meta"], json!({"ktsu/config": config}));
    assert_eq!(opened["clientInfo"]["name"], "ktsu");
    assert_eq!(seen[2].body["params"]["_meta"], Value::Null);
    // Nothing else: a server is not told whose call it is.
    assert_eq!(
        seen[3].body["params"],
        json!({"name": "read-a", "arguments": {"id": 7}, "_meta": {"ktsu/idempotency-key": "k-1"}})
    );
}

#[tokio::test]
async fn pages_are_read_to_the_end() {
    let scripted = Scripted::start(|seen| match seen.rpc() {
        "tools/list" => {
            let cursor = seen.body["params"]["cursor"].as_str().unwrap_or("0");
            let page: u32 = cursor.parse().expect("a number");
            let mut said = json!({"tools": [tool(&format!("t{page}"))]});
            if page < 5 {
                said["nextCursor"] = Value::from((page + 1).to_string());
            }
            message(&result(seen.id(), said))
        }
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let tools = session.tools();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["t0", "t1", "t2", "t3", "t4", "t5"]);
}

#[tokio::test]
async fn results_are_kept_as_they_come_and_errors_are_results() {
    let blocks = json!([
        {"type": "text", "text": "one", "annotations": {"audience": ["user"]}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "of tomorrow", "unknown": {"a": [1.5, null]}},
    ]);
    let expected = blocks.clone();
    let turn = AtomicU32::new(0);
    let scripted = Scripted::start(move |seen| match seen.rpc() {
        "tools/call" => message(&match turn.fetch_add(1, Ordering::SeqCst) {
            0 => result(
                seen.id(),
                json!({"content": blocks, "isError": true, "structuredContent": {"a": 1}}),
            ),
            _ => json!({"jsonrpc": "2.0", "id": seen.id(),
                "error": {"code": -32602, "message": "no such customer"}}),
        }),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let returned = call(&session).await.expect("a result");
    assert_eq!(Value::from(returned.content), expected);
    assert_eq!(returned.structured, Some(json!({"a": 1})));
    assert!(returned.is_error);
    let returned = call(&session).await.expect("a result");
    let text = "-32602: no such customer";
    assert_eq!(returned.content, [json!({"type": "text", "text": text})]);
    assert!(returned.is_error);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_session_go_side_by_side() {
    let both = std::sync::Arc::new(std::sync::Barrier::new(2));
    let scripted = Scripted::start(move |seen| {
        if seen.rpc() == "tools/call" {
            // Neither is answered before both are there.
            tokio::task::block_in_place(|| both.wait());
        }
        good(seen)
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let (one, two) = tokio::join!(call(&session), call(&session));
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
}

#[tokio::test]
async fn an_answer_may_come_as_events_among_other_things() {
    let scripted = Scripted::start(|seen| match seen.rpc() {
        "tools/call" => events(&[
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}),
            json!({"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage"}),
            json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}),
            result(seen.id(), text("done")),
        ]),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let returned = call(&session).await.expect("a result");
    assert_eq!(returned.content[0]["text"], "done");
    let seen = scripted.seen();
    let replies: Vec<&Value> = seen
        .iter()
        .map(|seen| &seen.body)
        .filter(|body| body.get("method").is_none() && body.get("id").is_some())
        .collect();
    assert_eq!(replies[0]["id"], "s1");
    assert_eq!(replies[0]["error"]["code"], -32601);
    assert_eq!(
        *replies[1],
        json!({"jsonrpc": "2.0", "id": 9, "result": {}})
    );
}

#[tokio::test]
async fn a_call_that_is_given_up_ends_and_so_does_a_session_that_is_dropped() {
    let scripted = Scripted::start(|seen| match seen.rpc() {
        "tools/call" => Reply::Hang(STREAM.as_bytes().to_vec()),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let given = arguments(json!({}));
    {
        let calling = session.call("read-a", &given, "key", PATIENCE * 9);
        let sent = scripted.until_held(1);
        tokio::select! {
            returned = calling => panic!("{returned:?}"),
            () = sent => {}
        }
    }
    // The call is given up as soon as nobody waits for it, though the session goes on.
    scripted.until_held(0).await;
    let waiting =
        tokio::spawn(async move { session.call("read-a", &given, "key", PATIENCE * 9).await });
    scripted.until_held(1).await;
    waiting.abort();
    scripted.until_held(0).await;
    let said_goodbye = async {
        while scripted.methods().last().map(String::as_str) != Some("DELETE") {
            tokio::task::yield_now().await;
        }
    };
    let said_goodbye = tokio::time::timeout(PATIENCE, said_goodbye).await;
    said_goodbye.expect("the server is told");
}

#[tokio::test]
async fn a_server_of_our_own_is_called_without_a_socket() {
    use axum::body::{Body, to_bytes};
    use http::{Request, Response};

    let answer = |request: Request<Body>| async move {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body");
        let seen = Seen {
            method: parts.method.to_string(),
            path: parts.uri.to_string(),
            headers: BTreeMap::new(),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        };
        let Reply::Whole(answer) = good(&seen) else {
            panic!("a whole answer");
        };
        let answer = String::from_utf8(answer).expect("a text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status: u16 = head[9..12].parse().expect("a status");
        Response::builder()
            .status(status)
            .header("content-type", "application/json")
            .body(Body::from(body.to_owned()))
            .expect("an answer")
    };
    let router = axum::Router::new().route("/tools/ktsu/kv", axum::routing::any(answer));
    let peer = Peer::Local(router);
    // A client that may not reach this machine at all.
    let tools =
        McpClient::new(egress::Client::new(&egress::EgressPolicy::default()).expect("a policy"));
    let mut server = server("/tools/ktsu/kv");
    server.builtin = Some(peer);
    let session = tools.open(&server).await.expect("a session");
    let returned = call(&session).await.expect("a result");
    assert_eq!(returned.content[0]["text"], "{\"n\":1}");
    session.close().await;
}

#[tokio::test]
async fn what_cannot_have_reached_the_server_is_known() {
    // A port that nobody listens on any more.
    let gone = Scripted::start(good).await;
    let url = gone.url.clone();
    let session = tools().open(&gone.server()).await.expect("a session");
    drop(gone);
    let refused = call(&session).await;
    // Over a connection that was kept, which may have taken it, or over a new one that was refused.
    assert_eq!(refused.map_err(|error| error.code), Err(Unreachable));
    let error = tools().open(&server(&url)).await.err().expect("nobody");
    assert_eq!((error.code, error.sent), (Unreachable, false));

    for url in [
        "http://169.254.169.254/",
        "http://10.0.0.1/mcp",
        "ftp://x/",
        "nothing",
    ] {
        let error = tools().open(&server(url)).await.err().expect("refused");
        assert_eq!((error.code, error.sent), (Refused, false), "{url}");
    }

    let scripted = Scripted::start(good).await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let none = arguments(json!({}));
    let unknown = session.call("write-b", &none, "key", PATIENCE).await;
    let unknown = unknown.expect_err("unknown");
    assert_eq!(
        (unknown.code, unknown.sent),
        (ToolErrorCode::UnknownTool, false)
    );
    assert!(!scripted.methods().contains(&"tools/call".to_owned()));
}

#[tokio::test]
async fn an_answer_that_is_resumed_leaves_room_for_what_the_server_asks_meanwhile() {
    let scripted = Scripted::start(|seen| {
        let last_id = seen.headers.get("last-event-id").map(String::as_str);
        match (seen.rpc(), last_id) {
            ("tools/call", _) => {
                let id = seen.id().as_i64().expect("a number");
                Reply::Close(format!("{STREAM}id: {id}\nretry: 1\ndata:\n\n").into())
            }
            ("GET", Some(id)) => {
                let id: i64 = id.parse().expect("a number");
                let asks = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"});
                events(&[asks, result(&id.into(), text("done"))])
            }
            _ => good(seen),
        }
    })
    .await;
    let policy = egress::EgressPolicy {
        allow: Vec::new(),
        loopback: true,
    };
    // Each kind of place once.
    let mut tools =
        McpClient::new(egress::Client::with_connections_per_host(&policy, 1).expect("a policy"));
    tools.limits = std::sync::Arc::new(small());
    let session = tools.open(&scripted.server()).await.expect("a session");
    let returned = call(&session).await.expect("a result");
    assert_eq!(returned.content[0]["text"], "done");
    let seen = scripted.seen();
    let replies = seen.iter().filter(|seen| seen.body["id"] == 9);
    assert_eq!(replies.count(), 1);
}

#[tokio::test]
async fn a_failed_handshake_leaves_no_session_behind() {
    let scripted = Scripted::start(|seen| match seen.rpc() {
        "tools/list" => raw(b"nonsense"),
        _ => good(seen),
    })
    .await;
    assert!(tools().open(&scripted.server()).await.is_err());
    assert!(scripted.methods().contains(&"DELETE".to_owned()));
}

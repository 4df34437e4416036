//! Servers that are hostile or broken. Each ends in the right kind of failure within its limit, and
//! concurrent sessions continue.

use std::time::{Duration, Instant};

use super::limits::SessionLimits;
use super::scripted_tests::*;
use super::*;
use serde_json::{Value, json};

/// When a server shows what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Open,
    List,
    Call,
}

impl At {
    fn method(self) -> &'static str {
        match self {
            Self::Open => "initialize",
            Self::List => "tools/list",
            Self::Call => "tools/call",
        }
    }
}

use At::{Call, List, Open};
use ToolErrorCode::{
    Protocol, SessionExpired, Status, Timeout, TooLarge, Unauthorized, Unreachable,
};

type Case = (&'static str, At, ToolErrorCode, fn(&Seen) -> Reply);

const JSON: &str = "content-type: application/json\r\n";
const EVENTS: &str = "content-type: text/event-stream\r\n";

/// The beginning of an answer that promises so many bytes.
fn promise(length: usize, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{JSON}content-length: {length}\r\n\r\n{body}").into_bytes()
}

fn stream(text: &str) -> Vec<u8> {
    format!("{STREAM}{text}").into_bytes()
}

fn listing(seen: &Seen, tools: &[Value], cursor: Option<&str>) -> Reply {
    let mut page = json!({ "tools": tools });
    if let Some(cursor) = cursor {
        page["nextCursor"] = cursor.into();
    }
    message(&result(seen.id(), page))
}

fn version(seen: &Seen, version: &Value) -> Reply {
    message(&result(
        seen.id(),
        json!({"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}),
    ))
}

/// A result with what is told after it, so that an `id` can be chosen.
fn answer(id: &Value, rest: &str) -> Reply {
    raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}").as_bytes())
}

const MS: Duration = Duration::from_millis(1);

fn cases() -> Vec<Case> {
    vec![
        // Bytes without end, and bytes that do not come.
        ("an endless stream of notifications", Call, TooLarge, |_| {
            let told = event(&json!({"jsonrpc": "2.0", "method": "notifications/message"}));
            Reply::Endless(STREAM.into(), told.repeat(20).into(), Duration::ZERO)
        }),
        ("an endless stream of comments", Call, TooLarge, |_| {
            Reply::Endless(STREAM.into(), b": still here\n".repeat(99), Duration::ZERO)
        }),
        ("an endless line", Call, TooLarge, |_| {
            Reply::Endless(stream("data: "), vec![b'x'; 999], Duration::ZERO)
        }),
        ("an endless event of small lines", Call, TooLarge, |_| {
            Reply::Endless(
                STREAM.into(),
                b"data: xxxxxxxxx\n".repeat(64),
                Duration::ZERO,
            )
        }),
        ("an endless message", Call, TooLarge, |_| {
            let head = promise(1 << 40, "{\"jsonrpc\":\"2.0\",\"x\":\"");
            Reply::Endless(head, vec![b'x'; 999], Duration::ZERO)
        }),
        ("a message drop by drop", Call, Timeout, |_| {
            Reply::Endless(promise(5000, "{"), b" ".into(), 50 * MS)
        }),
        ("events drop by drop", Call, Timeout, |_| {
            Reply::Endless(STREAM.into(), b":".into(), 50 * MS)
        }),
        ("a handshake drop by drop", Open, Timeout, |_| {
            Reply::Endless(promise(5000, "{"), b" ".into(), 50 * MS)
        }),
        ("a head drop by drop", Call, Timeout, |_| {
            Reply::Endless(b"HTTP/1.1 200 OK\r\n".into(), b"a: b\r\n".into(), 50 * MS)
        }),
        ("silence instead of a head", Call, Timeout, |_| {
            Reply::Hang(Vec::new())
        }),
        ("silence after the head", Call, Timeout, |_| {
            Reply::Hang(STREAM.into())
        }),
        ("silence in the middle of a message", Call, Timeout, |_| {
            Reply::Hang(promise(100, "{\"jsonrpc\""))
        }),
        ("silence after initialize", Open, Timeout, |_| {
            Reply::Hang(Vec::new())
        }),
        ("silence instead of a list", List, Timeout, |_| {
            Reply::Hang(STREAM.into())
        }),
        // Connections that break.
        ("a reset before the head", Call, Unreachable, |_| {
            Reply::Reset(Vec::new())
        }),
        (
            "a reset in the middle of a message",
            Call,
            Unreachable,
            |_| Reply::Reset(promise(100, "{\"jsonrpc\"")),
        ),
        (
            "a reset in the middle of an event",
            Call,
            Unreachable,
            |_| Reply::Reset(stream("data: {\"jsonrpc\"")),
        ),
        ("the end before the head", Call, Unreachable, |_| {
            Reply::Close(Vec::new())
        }),
        (
            "the end in the middle of a message",
            Call,
            Unreachable,
            |_| Reply::Close(promise(100, "{\"jsonrpc\"")),
        ),
        ("the end before the answer", Call, Unreachable, |_| {
            events(&[json!({"jsonrpc": "2.0", "method": "notifications/message"})])
        }),
        (
            "the end of an event that was the answer but for its last line",
            Call,
            Unreachable,
            |seen| {
                let whole = event(&result(seen.id(), text("done")));
                Reply::Close(stream(whole.trim_end()))
            },
        ),
        (
            "events to come back to that never come",
            Call,
            Unreachable,
            |_| Reply::Close(stream("id: 1\nretry: 1\ndata:\n\n")),
        ),
        ("chunks that are none", Call, Unreachable, |_| {
            Reply::Close(
                format!("HTTP/1.1 200 OK\r\n{JSON}transfer-encoding: chunked\r\n\r\nxyz\r\n")
                    .into(),
            )
        }),
        ("what is not HTTP", Call, Unreachable, |_| {
            Reply::Close(b"220 mail ready\r\n".into())
        }),
        // Statuses.
        ("a redirect to a private address", Call, Status, |_| {
            http("302 Found", "location: http://10.0.0.1/\r\n", b"")
        }),
        ("a redirect to cloud metadata", Open, Status, |_| {
            http(
                "307 Temporary Redirect",
                "location: http://169.254.169.254/\r\n",
                b"",
            )
        }),
        ("401", Open, Unauthorized, |_| {
            http("401 Unauthorized", "", b"")
        }),
        ("403", Call, Unauthorized, |_| {
            http("403 Forbidden", "", b"")
        }),
        ("404 from the start", Open, Status, |_| {
            http("404 Not Found", "", b"")
        }),
        ("a session that is forgotten", Call, SessionExpired, |_| {
            http(
                "404 Not Found",
                JSON,
                br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"x"}}"#,
            )
        }),
        ("a 400 before the session is open", List, Status, |_| {
            http("400 Bad Request", "", b"unsupported protocol version")
        }),
        ("a 404 before the session is open", List, Status, |_| {
            http("404 Not Found", "", b"")
        }),
        ("a 400 within a session", Call, SessionExpired, |_| {
            http("400 Bad Request", "", b"no valid session id")
        }),
        ("429", Call, Status, |_| {
            http("429 Too Many Requests", "retry-after: 1\r\n", b"")
        }),
        ("500 with a result", Call, Status, |seen| {
            http(
                "500 Internal Server Error",
                JSON,
                result(seen.id(), text("x")).to_string().as_bytes(),
            )
        }),
        ("202 without an answer", Call, Protocol, |_| {
            http("202 Accepted", "", b"")
        }),
        ("200 without anything", Call, Protocol, |_| {
            http("200 OK", JSON, b"")
        }),
        ("204", List, Protocol, |_| http("204 No Content", "", b"")),
        // Bodies that are something else.
        ("a page", Call, Protocol, |_| {
            http("200 OK", "content-type: text/html\r\n", b"<h1>x</h1>")
        }),
        ("no content type", Call, Protocol, |seen| {
            http(
                "200 OK",
                "",
                result(seen.id(), text("x")).to_string().as_bytes(),
            )
        }),
        ("a message that is compressed", Call, Protocol, |_| {
            http(
                "200 OK",
                "content-type: application/json\r\ncontent-encoding: gzip\r\n",
                b"\x1f\x8b\x08",
            )
        }),
        ("events that are a message", Call, Unreachable, |seen| {
            http(
                "200 OK",
                EVENTS,
                result(seen.id(), text("x")).to_string().as_bytes(),
            )
        }),
        ("what is not JSON", Call, Protocol, |_| {
            raw(b"{\"jsonrpc\": 2.0,")
        }),
        ("JSON and more", Call, Protocol, |seen| {
            raw(format!("{} {{}}", result(seen.id(), text("x"))).as_bytes())
        }),
        ("what is not UTF-8", Call, Protocol, |_| {
            raw(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\xfe\"}")
        }),
        ("events that are not UTF-8", Call, Protocol, |_| {
            Reply::Close(stream("data: ").into_iter().chain(*b"\xff\n\n").collect())
        }),
        ("a batch", Call, Protocol, |seen| {
            raw(json!([result(seen.id(), text("x"))]).to_string().as_bytes())
        }),
        ("nesting without end", Call, Protocol, |seen| {
            answer(
                seen.id(),
                &format!("\"result\":{}1{}", "[".repeat(900), "]".repeat(900)),
            )
        }),
        ("a key twice", Call, Protocol, |seen| {
            answer(
                seen.id(),
                "\"result\":{\"content\":[],\"isError\":true,\"isError\":false}",
            )
        }),
        ("a lone surrogate", Call, Protocol, |seen| {
            answer(
                seen.id(),
                r#""result":{"content":[{"type":"text","text":"\ud800"}]}"#,
            )
        }),
        ("another version of JSON-RPC", Call, Protocol, |seen| {
            raw(format!(
                "{{\"jsonrpc\":\"1.0\",\"id\":{},\"result\":{{}}}}",
                seen.id()
            )
            .as_bytes())
        }),
        // Answers to something else.
        ("the answer to another request", Call, Protocol, |seen| {
            let id = seen.id().as_i64().expect("a number") + 1;
            message(&result(&id.into(), text("x")))
        }),
        (
            "the answer to an earlier request, as an event",
            Call,
            Protocol,
            |seen| {
                let id = seen.id().as_i64().expect("a number") - 1;
                events(&[result(&id.into(), text("x")), result(seen.id(), text("y"))])
            },
        ),
        ("an id that is a text", Call, Protocol, |seen| {
            message(&result(&seen.id().to_string().into(), text("x")))
        }),
        ("an id that is no integer", Call, Protocol, |seen| {
            answer(
                &json!(seen.id().as_f64().expect("a number") + 0.5),
                "\"result\":{}",
            )
        }),
        ("no id", Call, Protocol, |_| {
            raw(br#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#)
        }),
        ("both a result and an error", Call, Protocol, |seen| {
            answer(
                seen.id(),
                r#""result":{"content":[]},"error":{"code":1,"message":"x"}"#,
            )
        }),
        ("a question instead of an answer", Call, Protocol, |seen| {
            answer(seen.id(), r#""method":"sampling/createMessage""#)
        }),
        ("questions without end", Call, Protocol, |_| {
            let asks = event(&json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}));
            Reply::Close(stream(&asks.repeat(100)))
        }),
        // Results that are none.
        ("a huge result", Call, TooLarge, |seen| {
            message(&result(seen.id(), text(&"x".repeat(20_000))))
        }),
        ("a huge error", Call, TooLarge, |seen| {
            answer(
                seen.id(),
                &format!(r#""error":{{"code":1,"message":"{}"}}"#, "x".repeat(20_000)),
            )
        }),
        ("a result that is a text", Call, Protocol, |seen| {
            message(&result(seen.id(), json!("done")))
        }),
        ("a result without content", Call, Protocol, |seen| {
            message(&result(seen.id(), json!({})))
        }),
        ("content that is a text", Call, Protocol, |seen| {
            message(&result(seen.id(), json!({"content": "x"})))
        }),
        ("a block without a type", Call, Protocol, |seen| {
            message(&result(seen.id(), json!({"content": [{"text": "x"}]})))
        }),
        ("a block that is a text", Call, Protocol, |seen| {
            message(&result(seen.id(), json!({"content": ["x"]})))
        }),
        ("isError that is a text", Call, Protocol, |seen| {
            message(&result(
                seen.id(),
                json!({"content": [], "isError": "false"}),
            ))
        }),
        // Lists.
        ("a list without end", List, TooLarge, |seen| {
            let page: u64 = seen.body["params"]["cursor"]
                .as_str()
                .map_or(0, |at| at.parse().expect("a number"));
            listing(
                seen,
                &[tool(&format!("t{page}"))],
                Some(&(page + 1).to_string()),
            )
        }),
        ("a list that goes round", List, Protocol, |seen| {
            listing(seen, &[], Some("again"))
        }),
        ("a list of too many", List, TooLarge, |seen| {
            let tools: Vec<Value> = (0..600).map(|n| tool(&format!("t{n}"))).collect();
            listing(seen, &tools, None)
        }),
        ("a page that is too large", List, TooLarge, |seen| {
            let mut huge = tool("t");
            huge["description"] = "x".repeat(70_000).into();
            listing(seen, &[huge], None)
        }),
        ("the same name twice", List, Protocol, |seen| {
            listing(seen, &[tool("a"), tool("a")], None)
        }),
        ("a tool without a name", List, Protocol, |seen| {
            listing(seen, &[json!({})], None)
        }),
        ("tools that are none", List, Protocol, |seen| {
            message(&result(seen.id(), json!({"tools": 7})))
        }),
        ("a cursor that is a number", List, Protocol, |seen| {
            message(&result(seen.id(), json!({"tools": [], "nextCursor": 7})))
        }),
        ("a list that is refused", List, Protocol, |seen| {
            answer(seen.id(), r#""error":{"code":-32601,"message":"no"}"#)
        }),
        // Handshakes.
        ("a version of tomorrow", Open, Protocol, |seen| {
            version(seen, &json!("2099-01-01"))
        }),
        ("a version without a handshake", Open, Protocol, |seen| {
            version(seen, &json!("2026-07-28"))
        }),
        ("a version that is a number", Open, Protocol, |seen| {
            version(seen, &json!(1))
        }),
        ("a handshake that is refused", Open, Protocol, |seen| {
            answer(seen.id(), r#""error":{"code":-32603,"message":"no"}"#)
        }),
        ("a session's name that is none", Open, Protocol, |seen| {
            let said = result(
                seen.id(),
                json!({"protocolVersion": "2025-11-25", "capabilities": {}}),
            );
            http(
                "200 OK",
                &format!("{JSON}mcp-session-id: a b\u{e9}\r\n"),
                said.to_string().as_bytes(),
            )
        }),
        ("the handshake of another", Open, Protocol, |_| {
            message(&result(&json!(77), json!({})))
        }),
    ]
}

#[tokio::test]
async fn whatever_a_server_does_ends_in_a_failure_of_its_kind_and_others_continue() {
    let tools = tools();
    let neighbour = Scripted::start(good).await;
    let neighbour = tools
        .open(&neighbour.server())
        .await
        .map(|session| (session, neighbour));
    let (neighbour, _kept) = neighbour.expect("a session");
    let mut faults = Vec::new();
    for (what, at, code, reply) in cases() {
        let scripted = Scripted::start(move |seen| {
            if seen.rpc() == at.method() {
                reply(seen)
            } else {
                good(seen)
            }
        })
        .await;
        let started = Instant::now();
        let (ended, unaffected) = tokio::join!(try_it(&tools, &scripted), call(&neighbour));
        let took = started.elapsed();
        match ended {
            Err(error) if error.code != code => faults.push(format!("{what}: {error:?}")),
            // What fails before there is a call has sent none; what the server refused for want of a
            // session, it has not taken.
            Err(error) if error.sent != (at == Call && code != SessionExpired) => {
                faults.push(format!("{what}: {error:?}"));
            }
            Err(error) if !error.message.starts_with("tool server crm: ") => {
                faults.push(format!("{what}: {error:?}"));
            }
            Err(_) => {}
            Ok(returned) => faults.push(format!("{what}: {returned:?}")),
        }
        if unaffected.is_err() {
            faults.push(format!("{what}: the neighbour: {unaffected:?}"));
        }
        // Its limits are a second and two; this is for those that would hang.
        if took > PATIENCE {
            faults.push(format!("{what}: {took:?}"));
        }
        let calls = scripted.methods();
        let calls = calls.iter().filter(|method| *method == "tools/call");
        let calls = calls.count();
        if calls != usize::from(at == Call) {
            faults.push(format!("{what}: {calls} calls were sent"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

async fn try_it(tools: &McpClient, scripted: &Scripted) -> Result<ToolCallResult, ToolError> {
    let session = tools.open(&scripted.server()).await?;
    let returned = call(&session).await;
    session.close().await;
    returned
}

#[tokio::test]
async fn what_a_server_says_of_its_own_accord_is_heard() {
    let scripted = Scripted::start(|seen| match seen.rpc() {
        "GET" => Reply::Hang(stream(&event(
            &json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
        ))),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    // It comes when it comes; until then nothing is asked for again.
    let heard = async {
        while lists(&scripted) < 2 {
            session.renew().await.expect("a list");
            tokio::task::yield_now().await;
        }
    };
    let heard = tokio::time::timeout(PATIENCE, heard).await;
    heard.expect("it is heard");
    session.close().await;
}

/// How often the tools were asked for.
fn lists(scripted: &Scripted) -> usize {
    let methods = scripted.methods();
    let lists = methods.iter().filter(|method| *method == "tools/list");
    lists.count()
}

#[tokio::test]
async fn a_handshake_may_not_be_silent_but_a_call_may_be_as_long_as_it_may_last() {
    let limits = SessionLimits {
        open: PATIENCE,
        ..small()
    };
    for (begun, said) in [("", "no answer from 127.0.0.1"), (STREAM, "nothing came")] {
        let scripted = Scripted::start(move |seen| match seen.rpc() {
            "tools/list" => Reply::Hang(begun.into()),
            _ => good(seen),
        })
        .await;
        let opened = within(limits.clone()).open(&scripted.server()).await;
        let error = opened.err().expect("silence");
        assert_eq!((error.code, error.sent), (Timeout, false));
        assert!(error.message.contains(said), "{error}");
    }
    let slow = Scripted::start(|seen| match seen.rpc() {
        "tools/call" => {
            let body = result(seen.id(), text("worked for long")).to_string();
            let rest = " ".repeat(2);
            // A byte after 400 ms of silence, and another: longer than a handshake may take.
            let head = promise(body.len() + rest.len(), &body);
            Reply::Endless(head, b" ".into(), 400 * MS)
        }
        _ => good(seen),
    })
    .await;
    let session = tools().open(&slow.server()).await.expect("a session");
    let none = arguments(json!({}));
    let returned = session.call("read-a", &none, "key", PATIENCE).await;
    assert!(returned.is_ok(), "{returned:?}");
}

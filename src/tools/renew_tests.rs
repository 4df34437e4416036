//! Servers whose tools change, and servers that forget a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::scripted_tests::*;
use super::*;
use ToolErrorCode::{SessionExpired, Timeout, Unauthorized};

/// A count that a script and its test share.
#[derive(Clone, Default)]
struct Turn(Arc<AtomicUsize>);

impl Turn {
    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

fn changed() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
}

fn count(scripted: &Scripted, method: &str) -> usize {
    let methods = scripted.methods();
    methods.iter().filter(|one| *one == method).count()
}

fn names(offer: &ToolList) -> Vec<&str> {
    offer.iter().map(|tool| tool.name.as_str()).collect()
}

/// The list of a server that offers these.
fn listed(seen: &Seen, names: &[&str]) -> Value {
    let tools: Vec<Value> = names.iter().map(|name| tool(name)).collect();
    result(seen.id(), json!({ "tools": tools }))
}

#[tokio::test]
async fn tools_are_listed_again_only_when_the_server_says_that_they_changed() {
    let turn = Turn::default();
    let scripted = Scripted::start(move |seen| match seen.rpc() {
        "tools/list" => message(&match turn.next() {
            0 => listed(seen, &["read-a", "delete-a"]),
            _ => listed(seen, &["read-a", "read-b"]),
        }),
        "tools/call" => events(&[changed(), changed(), result(seen.id(), text("done"))]),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    let offer = session.renew().await.expect("a list");
    assert_eq!(names(&offer), ["read-a", "delete-a"]);
    assert_eq!(count(&scripted, "tools/list"), 1, "nothing was said");
    assert!(call(&session).await.is_ok());
    let (one, two) = tokio::join!(session.renew(), session.renew());
    let offers = [one.expect("a list"), two.expect("a list"), session.tools()];
    for offer in offers {
        assert_eq!(names(&offer), ["read-a", "read-b"]);
    }
    assert_eq!(count(&scripted, "tools/list"), 2, "said twice, asked once");
    let none = arguments(json!({}));
    let gone = session.call("delete-a", &none, "key", PATIENCE).await;
    assert_eq!(
        gone.map_err(|error| error.code),
        Err(ToolErrorCode::UnknownTool)
    );
    assert_eq!(count(&scripted, "tools/call"), 1);
    assert_eq!(count(&scripted, "initialize"), 1);
}

#[tokio::test]
async fn what_is_said_before_the_list_is_settled_by_it() {
    let scripted = Scripted::start(|seen| match seen.rpc() {
        "initialize" => {
            let said = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
            events(&[changed(), result(seen.id(), said)])
        }
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    assert!(session.renew().await.is_ok() && call(&session).await.is_ok());
    assert_eq!(count(&scripted, "tools/list"), 1);
}

#[tokio::test]
async fn a_server_that_always_says_so_is_asked_once_a_call() {
    let scripted = Scripted::start(|seen| match seen.rpc() {
        "tools/list" => events(&[changed(), listed(seen, &["read-a"])]),
        "tools/call" => events(&[changed(), result(seen.id(), text("done"))]),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    for _ in 0..3 {
        assert_eq!(names(&session.renew().await.expect("a list")), ["read-a"]);
        assert!(call(&session).await.is_ok());
    }
    assert_eq!(count(&scripted, "tools/list"), 1 + 3);
}

#[tokio::test]
async fn a_list_that_is_not_given_again_is_asked_for_before_the_next_call() {
    let turn = Turn::default();
    let scripted = Scripted::start(move |seen| match seen.rpc() {
        "tools/list" => match turn.next() {
            1 => Reply::Hang(Vec::new()),
            2 => http("401 Unauthorized", "", b""),
            _ => good(seen),
        },
        "tools/call" => events(&[changed(), result(seen.id(), text("done"))]),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    assert!(call(&session).await.is_ok());
    for code in [Timeout, Unauthorized] {
        let error = session.renew().await.expect_err("no list");
        assert_eq!((error.code, error.sent), (code, false));
        assert!(error.message.starts_with("tool server crm: "), "{error}");
    }
    assert!(session.renew().await.is_ok());
    assert_eq!(count(&scripted, "tools/list"), 4);
}

#[tokio::test]
async fn a_list_that_no_one_waits_for_any_more_is_asked_for_again() {
    let turn = Turn::default();
    let scripted = Scripted::start(move |seen| match seen.rpc() {
        "tools/list" if turn.next() == 1 => Reply::Hang(Vec::new()),
        "tools/call" => events(&[changed(), result(seen.id(), text("done"))]),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    assert!(call(&session).await.is_ok());
    tokio::select! {
        listed = session.renew() => panic!("{listed:?}"),
        () = scripted.until_held(1) => {}
    }
    assert!(session.renew().await.is_ok());
    assert_eq!(count(&scripted, "tools/list"), 3);
}

/// A server that has forgotten its first session by the first call, and says so by this status.
fn forgetful(status: &'static str) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    let turn = AtomicU32::new(0);
    move |seen| {
        let session = seen.headers.get("mcp-session-id").map(String::as_str);
        match seen.rpc() {
            "initialize" => {
                let name = turn.fetch_add(1, Ordering::SeqCst) + 1;
                let version = seen.body["params"]["protocolVersion"].clone();
                let said = json!({"protocolVersion": version, "capabilities": {}});
                let said = result(seen.id(), said).to_string();
                let head = "content-type: application/json\r\nmcp-session-id: s-";
                http("200 OK", &format!("{head}{name}\r\n"), said.as_bytes())
            }
            "tools/call" if session == Some("s-1") => http(status, "", b""),
            _ => good(seen),
        }
    }
}

#[tokio::test]
async fn a_call_that_met_a_forgotten_session_was_not_taken_and_goes_into_another_one() {
    for status in ["404 Not Found", "400 Bad Request"] {
        let scripted = Scripted::start(forgetful(status)).await;
        let session = tools().open(&scripted.server()).await.expect("a session");
        let none = arguments(json!({}));
        let forgotten = session.call("read-a", &none, "one", PATIENCE).await;
        let forgotten = forgotten.expect_err("no session");
        let told = (forgotten.code, forgotten.sent);
        assert_eq!(told, (SessionExpired, false), "{status}");
        let (one, two) = tokio::join!(session.renew(), session.renew());
        assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
        assert_eq!(count(&scripted, "initialize"), 2, "one for both");
        let again = session.call("read-a", &none, "one", PATIENCE).await;
        assert!(again.is_ok(), "{again:?}");
        session.close().await;
        let calls = scripted.seen();
        let calls = calls.iter().filter(|seen| seen.rpc() == "tools/call");
        let key = |seen: &Seen| seen.body["params"]["_meta"]["ktsu/idempotency-key"].clone();
        let calls: Vec<_> = calls
            .map(|seen| (seen.headers["mcp-session-id"].clone(), key(seen)))
            .collect();
        let expected = ["s-1", "s-2"].map(|name| (name.to_owned(), "one".into()));
        assert_eq!(calls, expected, "{status}");
    }
}

#[tokio::test]
async fn without_a_session_a_refusal_says_nothing_about_one() {
    for status in ["404 Not Found", "400 Bad Request"] {
        let scripted = Scripted::start(move |seen| match seen.rpc() {
            "initialize" => {
                let version = seen.body["params"]["protocolVersion"].clone();
                let said = json!({"protocolVersion": version, "capabilities": {}});
                message(&result(seen.id(), said))
            }
            "tools/call" => http(status, "", b""),
            _ => good(seen),
        })
        .await;
        let session = tools().open(&scripted.server()).await.expect("a session");
        let refused = call(&session).await.expect_err("a refusal");
        assert_eq!((refused.code, refused.sent), (ToolErrorCode::Status, true));
    }
}

#[tokio::test]
async fn where_no_other_session_is_given_the_next_call_asks_for_one_again() {
    let opened = Turn::default();
    let script = forgetful("404 Not Found");
    let scripted = Scripted::start(move |seen| match seen.rpc() {
        "initialize" if opened.next() == 1 => http("403 Forbidden", "", b""),
        _ => script(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    assert!(call(&session).await.is_err());
    let refused = session.renew().await.expect_err("refused");
    assert_eq!((refused.code, refused.sent), (Unauthorized, false));
    assert!(session.renew().await.is_ok());
    assert!(call(&session).await.is_ok());
}

#[tokio::test]
async fn a_session_that_is_forgotten_while_its_tools_are_listed_is_opened_again() {
    let lists = Turn::default();
    let scripted = Scripted::start(move |seen| match seen.rpc() {
        "tools/list" if lists.next() == 1 => http("404 Not Found", "", b""),
        "tools/call" => events(&[changed(), result(seen.id(), text("done"))]),
        _ => good(seen),
    })
    .await;
    let session = tools().open(&scripted.server()).await.expect("a session");
    assert!(call(&session).await.is_ok());
    assert!(session.renew().await.is_ok());
    assert_eq!(count(&scripted, "initialize"), 2);
}

//! What is refused before a run exists (seed 000, invariants 14 and 30; decisions H2 and S1).

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::lab;
use crate::support::guarded;

#[tokio::test]
async fn a_body_that_is_refused_leaves_nothing_behind() {
    let (_kit, _lab, api) = lab("http://127.0.0.1:9").await;
    let deep = format!(r#"{{"list":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    let cases = [
        ("not json", 400, "invalid_json"),
        ("{", 400, "invalid_json"),
        (r#"{"msg":"a","msg":"b"}"#, 400, "invalid_json"),
        (r#"{"list":[{"a":1,"a":1}]}"#, 400, "invalid_json"),
        (r#"{"msg":"\ud800"}"#, 400, "invalid_json"),
        (deep.as_str(), 400, "too_deep"),
        ("[]", 422, "not_an_object"),
        ("null", 422, "not_an_object"),
        ("5", 422, "not_an_object"),
        (r#"{"msg":5}"#, 422, "invalid_params"),
    ];
    for (body, status, code) in cases {
        let answer = api.post("/invoke/hello", body).await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (status, Some(code)),
            "{body}"
        );
    }
    let named = api.post("/invoke/hello", r#"{"msg":5}"#).await.json();
    assert_eq!(named["errors"][0]["path"], "/msg");
    assert_eq!(named["errors"][0]["rule"], "type");
    assert!(named["message"].as_str().unwrap().contains("msg"));
    assert_eq!(api.get("/runs").await.json(), json!({"runs": []}));
    // One level less is fine, and so is nothing at all.
    let fits = format!(r#"{{"list":{}{}}}"#, "[".repeat(63), "]".repeat(63));
    for body in [fits.as_str(), "", " \n", "{}"] {
        assert_eq!(api.post("/invoke/hello", body).await.status, 202, "{body}");
    }
}

/// Parsers and deserializers have words of their own, which name their types.
#[tokio::test]
async fn what_is_wrong_with_a_body_is_said_with_its_place_in_words_of_our_own() {
    let (_kit, _lab, api) = lab("http://127.0.0.1:9").await;
    let run = api.client.run("hello", json!({})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    let fork = format!("/runs/{run}/fork");
    let events = format!("/runs/{run}/events");
    let replay = format!("/runs/{run}/replay");
    for (path, body, words) in [
        ("/invoke/hello", "", None),
        (
            "/invoke/hello",
            "{",
            Some("the text ends within an object at line 1 column 1"),
        ),
        (
            "/invoke/hello",
            "{\n \"a\" 1}",
            Some("a colon is missing after a key at line 2 column 6"),
        ),
        (
            "/invoke/hello",
            "{} x",
            Some("there is more text after the value at line 1 column 4"),
        ),
        (
            &fork,
            r#"{"at": "x"}"#,
            Some("/at: expected integer, got string"),
        ),
        (
            &fork,
            "[",
            Some("the text ends within an array at line 1 column 1"),
        ),
        (
            &events,
            r#"{"type":"#,
            Some("the text ends where a value is expected at line 1 column 8"),
        ),
        (
            &replay,
            r#"{"strict": 1}"#,
            Some("/strict: expected boolean, got integer"),
        ),
        ("/heartbeat", r#"{"runtime_id": 5}"#, None),
        (
            "/subscriptions",
            r#"{"url": 5}"#,
            Some("/url: expected string, got integer"),
        ),
    ] {
        let answer = api.client.send("POST", path, &[], body).await;
        let said = answer.json()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if let Some(words) = words {
            assert_eq!(said, words, "{path} {body}");
        }
        for theirs in [
            "EOF",
            "serde",
            "invalid type",
            "expected `",
            "trailing",
            "untagged",
        ] {
            assert!(!answer.text().contains(theirs), "{path} {body}: {said}");
        }
    }
    // Neither has a path that is not UTF-8 words of a router.
    for path in [
        "/runs/%ff/steps/a",
        "/runs/x/steps/%ff",
        "/subscriptions/%ff/dead",
    ] {
        let answer = api.client.get(path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
        api.fits("Problem", &answer.json(), path);
    }
}

#[tokio::test]
async fn names_in_a_path_never_leave_it() {
    let (_kit, _lab, api) = lab("http://127.0.0.1:9").await;
    let absent = api.post("/invoke/absent", "{}").await;
    for name in [
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "hello%00",
        "a%2fb",
        "..",
        "%2e%2e",
        "hello%0d%0a",
        "hello%20",
        "..%5c..",
        "workflows%2fhello",
        "%ff",
        "hello.workflow.yaml",
        &"a".repeat(65),
    ] {
        let answer = api
            .client
            .send("POST", &format!("/invoke/{name}"), &[], "{}")
            .await;
        assert_eq!(answer.status, 404, "{name}: {}", answer.text());
        api.fits("Problem", &answer.json(), name);
        if !name.starts_with('.') {
            assert_eq!(answer.body, absent.body, "{name}");
        }
        for below in ["", "/envelope", "/frames", "/trace"] {
            let answer = api.client.get(&format!("/runs/{name}{below}")).await;
            assert_eq!(answer.status, 404, "{name}{below}: {}", answer.text());
            api.fits("Problem", &answer.json(), name);
            assert!(!answer.text().contains("etc"), "a 404 repeats no name");
        }
    }
    assert_eq!(api.get("/runs").await.json(), json!({"runs": []}));
}

#[tokio::test]
async fn methods_and_paths_that_are_not_served_are_distinguished() {
    let (_kit, _lab, api) = lab("http://127.0.0.1:9").await;
    for (method, path, status) in [
        ("GET", "/invoke/hello", 405),
        ("PUT", "/invoke/hello", 405),
        ("DELETE", "/runs", 405),
        ("POST", "/health", 405),
        ("POST", "/runs/x/frames", 405),
        ("GET", "//", 404),
        ("POST", "/", 405),
        ("GET", "/etc/passwd", 404),
        ("POST", "/invoke", 404),
        ("POST", "/invoke/a/b", 404),
        ("GET", "/runs/", 404),
    ] {
        let answer = api.client.send(method, path, &[], "{}").await;
        assert_eq!(answer.status, status, "{method} {path}");
        api.fits("Problem", &answer.json(), path);
    }
}

/// A body of 60 MB is answered from its announced length, before a byte of it is sent; one that
/// does not say how long it is is cut off where it passes the limit.
#[tokio::test]
async fn a_body_that_is_too_large_is_refused_early() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let address = lab.engine.url.strip_prefix("http://").unwrap().to_owned();
    let announced =
        "POST /invoke/hello HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000000\r\n\r\n";
    let answer = guarded("an answer", raw(&address, announced, 0)).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("body_too_large"), "{answer}");
    let chunked =
        "POST /invoke/hello HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = guarded("an answer", raw(&address, chunked, 60)).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(api.get("/runs").await.json(), json!({"runs": []}));
}

/// Sends a head and some chunks of 1 MB, as far as the server takes them; gives what it answers.
async fn raw(address: &str, head: &str, chunks: usize) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut from, mut to) = stream.into_split();
    to.write_all(head.as_bytes()).await.unwrap();
    let sending = tokio::spawn(async move {
        let chunk = format!("f4240\r\n{}\r\n", " ".repeat(1_000_000));
        for _ in 0..chunks {
            if to.write_all(chunk.as_bytes()).await.is_err() {
                return;
            }
        }
        // The connection stays open: an answer must not need its end.
        std::future::pending::<()>().await;
    });
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&answer).contains("\r\n\r\n{") {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
        }
    }
    sending.abort();
    String::from_utf8_lossy(&answer).into_owned()
}

//! Streams of events that are open at once: bounds for a principal and for all, so that connections
//! remain for requests.

use ktsu::assemble::LedgerPlace;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Client, KitDir, Lab, guarded};

/// Of 24 connections streams take at most 16, those of one principal 6.
const LIMITS: &str = "limits: {connections: 24}\n";
const PRINCIPALS: &str = "variables: {A: token-of-ada, B: token-of-bob, C: token-of-cleo}\n\
    principals:\n  - {name: ada, token: {env: A}, roles: [auditor]}\n  \
    - {name: bob, token: {env: B}, roles: [auditor]}\n  \
    - {name: cleo, token: {env: C}, roles: [operator]}\n";

fn kit() -> KitDir {
    KitDir::new(&[(
        "hello",
        "pipeline: [{id: greet, transform: {inputs: [{from: \"{a: `1`}\"}], ops: []}}]\n",
    )])
}

/// A stream that nothing reads, if it is accepted; else the response.
async fn open(url: &str, path: &str, token: &str) -> Result<TcpStream, String> {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\
         ktsu-token: {token}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    let is_whole = |read: &[u8]| {
        let text = String::from_utf8_lossy(read).into_owned();
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        body.is_some_and(|body| text.starts_with("HTTP/1.1 200") || body.ends_with('}'))
    };
    let response = async {
        while !is_whole(&read) {
            let mut byte = [0; 1];
            assert_eq!(stream.read(&mut byte).await.unwrap(), 1);
            read.push(byte[0]);
        }
    };
    guarded("the response", response).await;
    let text = String::from_utf8(read).unwrap();
    match text.starts_with("HTTP/1.1 200") {
        true => Ok(stream),
        false => Err(text),
    }
}

#[tokio::test]
async fn a_principal_opens_so_many_streams_and_others_still_open_theirs() {
    let kit = kit();
    let text = format!("{LIMITS}{PRINCIPALS}");
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &text, &[]).await;
    let url = &lab.engine.url;
    let cleo = Client::showing(url, "token-of-cleo");
    let run = cleo.run("hello", json!({})).await["run_id"].clone();
    let live = "/events?live=true";
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(open(url, live, "token-of-ada").await.unwrap());
    }
    // One of a run counts as well.
    let frames = format!("/runs/{}/frames", run.as_str().unwrap());
    for path in [live, &frames] {
        let refused = open(url, path, "token-of-ada").await.unwrap_err();
        assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
        for words in [
            "too_many_streams",
            "ada has 6",
            "retry-after: 1",
            "close one",
        ] {
            assert!(refused.contains(words), "{refused}");
        }
    }
    for (who, count) in [("bob", 6), ("cleo", 4)] {
        for _ in 0..count {
            let token = format!("token-of-{who}");
            streams.push(open(url, live, &token).await.unwrap());
        }
    }
    let refused = open(url, live, "token-of-cleo").await.unwrap_err();
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert!(
        refused.contains("16 streams of events are open"),
        "{refused}"
    );
    // Requests are answered meanwhile, also those of who may open no further stream.
    let ada = Client::showing(url, "token-of-ada");
    for client in [&ada, &cleo] {
        assert_eq!(client.get("/runs").await.status, 200);
        assert_eq!(client.get(&frames).await.status, 200);
    }
    cleo.run("hello", json!({})).await;
    // Who may not listen hears that first.
    let refused = open(url, live, "token-of-nobody").await.unwrap_err();
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    // What is closed counts no longer.
    drop(streams.swap_remove(0));
    let again = async {
        while open(url, live, "token-of-ada").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    guarded("a stream in the place of the one that was closed", again).await;
    lab.close().await;
}

#[tokio::test]
async fn without_principals_streams_leave_a_third_of_the_connections() {
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, LIMITS, &[]).await;
    let url = &lab.engine.url;
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(open(url, "/events?live=true", "").await.unwrap());
    }
    let refused = open(url, "/events?live=true", "").await.unwrap_err();
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert_eq!(lab.client.get("/health").await.status, 200);
    lab.client.run("hello", json!({})).await;
    lab.close().await;
}

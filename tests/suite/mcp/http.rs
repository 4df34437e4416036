//! Over Streamable HTTP: no sessions, the token of each request, and none from foreign pages.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::Project;
use crate::support::Client;
use crate::support::client::Answer;
use crate::support::process::Process;

const CLOSED: &str = "variables: {ADA: token-of-ada, VIC: token-of-vic}\n\
    principals:\n  - {name: ada, token: {env: ADA}, roles: [operator]}\n  \
    - {name: vic, token: {env: VIC}, roles: [viewer]}\n";

pub(super) fn serve(project: &Project, arguments: &[&str]) -> Process {
    let all = ["mcp", "--json", "--http", "127.0.0.1:0"];
    Process::spawn(project.command(&[&all, arguments].concat()))
}

pub(super) fn client(server: &Process) -> Client {
    Client::of(server.url.strip_suffix("/mcp").unwrap())
}

/// A request that stands alone.
async fn post(client: &Client, headers: &[(&str, &str)], body: String) -> Answer {
    let mut all = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    all.extend(headers);
    client.send("POST", "/mcp", &all, body).await
}

pub(super) async fn call(
    client: &Client,
    token: Option<&str>,
    tool: &str,
    arguments: Value,
) -> Value {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer
        .iter()
        .map(|bearer| ("authorization", bearer.as_str()))
        .collect();
    let params = json!({"name": tool, "arguments": arguments});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let answer = post(client, &headers, body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["result"]["structuredContent"].clone()
}

#[tokio::test]
async fn each_request_is_on_its_own() {
    let project = Project::new();
    let server = serve(&project, &[]);
    let client = client(&server);
    let started = call(
        &client,
        None,
        "start_run",
        json!({"kit": "harbour", "goal": "g"}),
    )
    .await;
    assert_eq!(started["status"], "complete", "{started}");
    let run = json!({"run_id": started["run_id"]});
    assert_eq!(
        call(&client, None, "query_world", run).await["event_count"],
        7
    );
    for method in ["GET", "DELETE"] {
        let headers = [("accept", "text/event-stream"), ("mcp-session-id", "1")];
        let answer = client.send(method, "/mcp", &headers, "").await;
        assert_eq!(answer.status, 405, "{method}");
    }
    assert_eq!(client.get("/").await.status, 404);
    let answer = post(&client, &[], "x".repeat(4 * 1024 * 1024 + 1)).await;
    assert_eq!(answer.status, 413);
    let error = call(&client, None, "format_disk", json!({})).await;
    assert!(error["error"].as_str().unwrap().contains("format_disk"));
}

#[tokio::test]
async fn the_token_of_a_request_says_who_calls() {
    let project = Project::new();
    project.write("environments/local.env.yaml", CLOSED);
    // The token of the server's own process is nobody's.
    let mut command = project.command(&["mcp", "--json", "--http", "127.0.0.1:0"]);
    command.env("KTSU_TOKEN", "token-of-ada");
    let server = Process::spawn(command);
    let client = client(&server);
    let run = json!({"kit": "harbour", "goal": "g"});
    let error = call(&client, None, "start_run", run.clone()).await;
    assert_eq!(error["code"], "unauthorized", "{error}");
    let error = call(&client, Some("token-of-nobody"), "start_run", run.clone()).await;
    assert_eq!(error["code"], "unauthorized", "{error}");
    let error = call(&client, Some("token-of-vic"), "start_run", run.clone()).await;
    assert_eq!(error["code"], "forbidden", "{error}");
    let started = call(&client, Some("token-of-ada"), "start_run", run).await;
    let id = started["run_id"].as_str().unwrap();
    assert_eq!(project.frames(id)[0]["data"]["principal"]["id"], "ada");
    // Reading asks for a token, too, whether or not an engine is open.
    let query = json!({"run_id": id});
    let error = call(&client, None, "query_world", query.clone()).await;
    assert_eq!(error["code"], "unauthorized", "{error}");
    let error = call(&client, None, "verify_run", query.clone()).await;
    assert_eq!(error["code"], "unauthorized", "{error}");
    let world = call(&client, Some("token-of-vic"), "query_world", query).await;
    assert_eq!(world["event_count"], 7);
    let twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
    let params = json!({"name": "query_world", "arguments": {"run_id": id}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let answer = post(&client, &twice, body.to_string()).await.json();
    assert!(
        answer["result"]["structuredContent"]["error"].is_string(),
        "{answer}"
    );
}

/// What is no message is refused as every body is, in words of ktsu (decision H2).
#[tokio::test]
async fn a_body_that_is_no_message_is_refused_in_words_of_our_own() {
    let project = Project::new();
    let server = serve(&project, &[]);
    let client = client(&server);
    for (body, status, code, words) in [
        (
            "{",
            400,
            "invalid_json",
            "the text ends within an object at line 1 column 1",
        ),
        (
            "",
            400,
            "invalid_json",
            "the text ends where a value is expected at line 1 column 0",
        ),
        (
            "nope",
            400,
            "invalid_json",
            "this is no value: the only words are true, false and null at line 1 column 2",
        ),
        (
            r#"{"id": 1, "id": 2}"#,
            400,
            "invalid_json",
            "the key \"id\" twice at line 1 column 14",
        ),
        (
            "{}",
            422,
            "invalid_request",
            "the body is not a message of JSON-RPC 2.0",
        ),
        (
            "[5]",
            422,
            "invalid_request",
            "the body is not a message of JSON-RPC 2.0",
        ),
        (
            r#"{"jsonrpc": "1.0", "id": 1, "method": "ping"}"#,
            422,
            "invalid_request",
            "the body is not a message of JSON-RPC 2.0",
        ),
    ] {
        for kind in [
            "application/json",
            "text/plain",
            "application/x-www-form-urlencoded",
        ] {
            let accept = ("accept", "application/json, text/event-stream");
            let headers = [("content-type", kind), accept];
            let answer = client.send("POST", "/mcp", &headers, body).await;
            assert_eq!(answer.status, status, "{body}: {}", answer.text());
            assert_eq!(answer.json()["code"], code, "{body}");
            assert_eq!(answer.json()["message"], words, "{body}");
        }
    }
    // Nor do other refusals have words of the library.
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let answer = client
        .send(
            "POST",
            "/mcp",
            &[("accept", "application/json")],
            list.clone(),
        )
        .await;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str()),
        (406, Some("not_acceptable"))
    );
    let version = [
        ("mcp-protocol-version", "1999-01-01"),
        ("accept", "*/*, application/json, text/event-stream"),
    ];
    let answer = client.send("POST", "/mcp", &version, list.clone()).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_i64()),
        (400, Some(-32600))
    );
    // The type that a body is said to have does not count.
    let plain = [
        ("content-type", "text/plain"),
        ("accept", "application/json, text/event-stream"),
    ];
    let answer = client.send("POST", "/mcp", &plain, list).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Without a token nothing is said but that one is needed: not what is wrong with a message, and
/// not which tools there are.
#[tokio::test]
async fn without_a_token_there_is_nothing_but_a_refusal() {
    let project = Project::new();
    project.write("environments/local.env.yaml", CLOSED);
    let server = serve(&project, &[]);
    let client = client(&server);
    for body in ["{", "{}", &"x".repeat(4 * 1024 * 1024 + 1)] {
        let answer = post(&client, &[], body.to_owned()).await;
        assert_eq!(answer.status, 401, "{}", answer.text());
        assert_eq!(answer.json()["code"], "unauthorized");
    }
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let refused = post(&client, &[], list.clone()).await.json();
    assert_eq!(
        refused["error"]["data"]["code"], "unauthorized",
        "{refused}"
    );
    assert!(!refused.to_string().contains("start_run"), "{refused}");
    let malformed = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"x": 1}});
    let refused = post(&client, &[], malformed.to_string()).await.json();
    let content = &refused["result"]["structuredContent"];
    assert_eq!(content["code"], "unauthorized", "{refused}");
    let bearer = [("authorization", "Bearer token-of-vic")];
    let listed = post(&client, &bearer, list).await.json();
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(11));
}

#[test]
fn a_server_whose_principals_have_no_tokens_does_not_start() {
    let project = Project::new();
    let without = CLOSED.replace("ADA: token-of-ada, ", "");
    project.write("environments/local.env.yaml", &without);
    let mut command = project.command(&["mcp", "--http", "127.0.0.1:0"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("the token of ada"), "{error}");
}

#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let project = Project::new();
    let server = serve(&project, &[]);
    let client = client(&server);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    assert_eq!(post(&client, &[], list.clone()).await.status, 200);
    for header in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let answer = post(&client, &[header], list.clone()).await;
        assert_eq!(answer.status, 403, "{header:?}");
        assert_eq!(answer.json()["code"], "foreign_origin");
    }
    // A name that its owner has pointed at this machine.
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address.strip_suffix("/mcp").unwrap()).unwrap();
    let head = "POST /mcp HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\
        content-type: application/json\r\naccept: application/json, text/event-stream\r\n";
    let length = list.len();
    write!(stream, "{head}content-length: {length}\r\n\r\n{list}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("foreign_origin"),
        "{answer}"
    );
}

#[test]
fn without_principals_only_this_machine_is_served() {
    let project = Project::new();
    let output = project
        .command(&["mcp", "--http", "0.0.0.0:0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("other machines could reach it"), "{error}");
}

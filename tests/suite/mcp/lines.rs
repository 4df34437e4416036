//! Standard input and output, byte by byte: what is no call of a tool, and what else is printed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};

use serde_json::{Value, json};

use super::Project;

/// A server that is spoken to line by line.
struct Lines {
    child: Child,
    input: ChildStdin,
    output: std::io::Lines<BufReader<std::process::ChildStdout>>,
    id: u64,
}

impl Lines {
    fn open(project: &Project, arguments: &[&str]) -> Self {
        let mut command = project.command(&[&["mcp"], arguments].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = Self {
            child,
            input,
            output,
            id: 0,
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "tests", "version": "1"}});
        let hello = lines.request("initialize", hello);
        assert_eq!(hello["result"]["serverInfo"]["name"], "ktsu");
        lines.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        lines
    }

    fn write(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Each line of the output is a message of the protocol.
    fn read(&mut self) -> Value {
        let line = self.output.next().unwrap().unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params});
        self.write(&message.to_string());
        let answer = self.read();
        assert_eq!(answer["id"], self.id);
        answer
    }

    /// Closes the input: what the server still prints, and how it ends.
    fn end(mut self) -> (Vec<String>, Option<i32>) {
        drop(self.input);
        let rest: Vec<String> = self.output.by_ref().map(Result::unwrap).collect();
        (rest, self.child.wait().unwrap().code())
    }
}

#[test]
fn a_malformed_call_is_an_error_value_and_the_next_one_is_answered() {
    let project = Project::new();
    let mut lines = Lines::open(&project, &[]);
    for params in [
        json!({}),
        json!({"name": 1}),
        json!({"name": "start_run", "arguments": "harbour"}),
        json!({"name": "start_run", "arguments": ["harbour"]}),
        json!({"arguments": {}}),
    ] {
        let answer = lines.request("tools/call", params.clone());
        let result = &answer["result"];
        assert_eq!(result["isError"], true, "{params}: {answer}");
        assert!(
            result["structuredContent"]["error"].is_string(),
            "{params}: {answer}"
        );
    }
    // What is not of the protocol at all.
    lines.write("{\"jsonrpc\": \"2.0\", ");
    lines.write("");
    // A line beyond the limit is dropped; the next one is read from its beginning.
    let long = "x".repeat(4 * 1024 * 1024 + 1);
    lines.write(
        &json!({"jsonrpc": "2.0", "id": 99, "method": "ping", "params": {"x": long}}).to_string(),
    );
    let run = json!({"name": "start_run", "arguments": {"kit": "harbour", "goal": "g"}});
    let answer = lines.request("tools/call", run);
    assert_eq!(
        answer["result"]["structuredContent"]["status"], "complete",
        "{answer}"
    );
    assert_eq!(lines.end(), (Vec::new(), Some(0)));
}

#[test]
fn nothing_but_the_protocol_is_printed_whatever_is_logged() {
    let project = Project::new();
    let mut command = project.command(&["mcp"]);
    command.env("KTSU_LOG", "debug");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for (id, method, params) in [
        (
            1,
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "tests", "version": "1"}}),
        ),
        (
            2,
            "tools/call",
            json!({"name": "start_run", "arguments": {"kit": "harbour", "goal": "g"}}),
        ),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{message}").unwrap();
        if id == 1 {
            writeln!(
                input,
                r#"{{"jsonrpc":"2.0","method":"notifications/initialized"}}"#
            )
            .unwrap();
        }
    }
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    for id in [1, 2] {
        let line = output.next().unwrap().unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["id"], id, "{line}");
    }
    drop(input);
    assert_eq!(output.count(), 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("run accepted"), "{log}");
}

#[test]
fn a_client_that_says_nothing_or_leaves_ends_the_server() {
    let project = Project::new();
    let output = project.command(&["mcp"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    // While a run is in progress.
    let mut lines = Lines::open(&project, &["--kit", "kits/gated"]);
    let call =
        json!({"name": "invoke_workflow", "arguments": {"workflow": "gated", "wait_seconds": 0}});
    let answer = lines.request("tools/call", call);
    let run = answer["result"]["structuredContent"]["run_id"].clone();
    assert_eq!(lines.end().1, Some(0));
    let shown = project.json(&["runs", "get", run.as_str().unwrap()]);
    assert_ne!(shown["status"], "failed");
    assert!(ktsu_ledger::lock::holder(&project.path().join(".ktsu/ledger.db")).is_none());
}

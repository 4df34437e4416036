//! Clients that others wrote: the official SDK for Python, where `KTSU_MCP_PYTHON` names a python
//! that has it, and the command line of MCP Inspector, where npm can have it. Elsewhere their tests
//! say so and are skipped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::{Value, json};

use super::{Project, texts};
use crate::support::not_tested;
use crate::support::process::Process;

/// The version of MCP Inspector that is tested.
const INSPECTOR: &str = "@modelcontextprotocol/inspector@2.12.0";

/// Every tool.
pub(super) const NAMES: [&str; 11] = [
    "start_run",
    "invoke_workflow",
    "query_world",
    "get_envelope",
    "fork_run",
    "diff_branches",
    "explain_trace",
    "list_approvals",
    "decide_approval",
    "resume_step",
    "verify_run",
];

/// A client that lists tools and calls them, and gives what it got.
trait ToolClient {
    fn list(&mut self) -> Vec<String>;
    fn call(&mut self, tool: &str, arguments: Value) -> Value;
}

/// Lists every tool and calls it.
fn calls_every_tool(client: &mut dyn ToolClient) {
    assert_eq!(client.list(), NAMES);
    let mut answer = |tool: &str, arguments: Value| {
        let result = client.call(tool, arguments);
        let answer = result["structuredContent"].clone();
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(text).unwrap(),
            answer,
            "{tool}"
        );
        assert_eq!(
            result["isError"] == true,
            answer["error"].is_string(),
            "{tool}: {answer}"
        );
        answer
    };
    let started = answer("start_run", json!({"kit": "harbour", "goal": "the quay"}));
    assert_eq!(
        (&started["status"], &started["event_count"]),
        (&json!("complete"), &json!(7))
    );
    let run = &started["run_id"];
    let world = answer("query_world", json!({"run_id": run}));
    assert_eq!(world["objects"], started["objects"]);
    let branch = answer("fork_run", json!({"run_id": run, "fork_at": 3}));
    assert_eq!(branch["shared_prefix_events"], 3);
    let diff = answer(
        "diff_branches",
        json!({"run_a": branch["branch_id"], "run_b": run}),
    );
    assert_eq!(diff["has_changes"], true);
    let event = texts(&started["event_ids"])[6].to_owned();
    let explained = answer("explain_trace", json!({"event_id": event, "run_id": run}));
    assert_eq!(explained["causal_chain"][0]["type"], "object.patched");
    let unknown = answer("explain_trace", json!({"event_id": "evt_1", "run_id": run}));
    assert!(unknown["available_events"].is_array(), "{unknown}");
    let envelope = answer("get_envelope", json!({"run_id": run}));
    assert_eq!(envelope["envelope"]["status"], "complete");
    let verified = answer("verify_run", json!({"run_id": run}));
    assert_eq!(verified["verified"], true);
    let invoked = answer(
        "invoke_workflow",
        json!({"workflow": "plain", "params": {"goal": "g"}}),
    );
    assert_eq!(invoked["output"], json!({"goal": "g"}));
    let approvals = answer("list_approvals", json!({"limit": 5}));
    assert_eq!(approvals["approvals"], json!([]));
    let arguments = json!({"run_id": run, "step_id": "a", "decision": "approved"});
    assert!(answer("decide_approval", arguments)["error"].is_string());
    assert!(answer("query_world", json!({"run_id": "run_nobody"}))["error"].is_string());
}

/// The SDK for Python, told line by line what to do.
struct Python {
    child: Child,
    input: ChildStdin,
    output: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Python {
    /// Connected, unless there is no python with the SDK.
    fn open(project: &Project, arguments: &[&str]) -> Option<Self> {
        let Ok(python) = std::env::var("KTSU_MCP_PYTHON") else {
            not_tested("ktsu mcp with the official SDK for Python; KTSU_MCP_PYTHON is not set");
            return None;
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/mcp/client.py");
        let mut child = Command::new(python)
            .arg(script)
            .args(arguments)
            .current_dir(project.path())
            .env_remove("KTSU_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut python = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        };
        let hello = python.read();
        assert!(hello["version"].is_string(), "{hello}");
        Some(python)
    }

    fn read(&mut self) -> Value {
        let line = self.output.next().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, line: &Value) -> Value {
        writeln!(self.input, "{line}").unwrap();
        self.read()
    }
}

impl ToolClient for Python {
    fn list(&mut self) -> Vec<String> {
        let listed = self.ask(&json!({"list": true}));
        texts(&listed["tools"])
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask(&json!({"call": tool, "arguments": arguments}))
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_sdk_for_python_calls_every_tool_over_standard_input_and_output() {
    let project = Project::new();
    let server = [
        "stdio",
        env!("CARGO_BIN_EXE_ktsu"),
        "mcp",
        "--kit",
        "kits/plain",
    ];
    if let Some(mut python) = Python::open(&project, &server) {
        calls_every_tool(&mut python);
    }
}

#[test]
fn the_sdk_for_python_calls_every_tool_over_http() {
    let project = Project::new();
    let server = http_server(&project);
    if let Some(mut python) = Python::open(&project, &["http", &server.url]) {
        calls_every_tool(&mut python);
    }
}

fn http_server(project: &Project) -> Process {
    let arguments = [
        "mcp",
        "--json",
        "--http",
        "127.0.0.1:0",
        "--kit",
        "kits/plain",
    ];
    Process::spawn(project.command(&arguments))
}

/// The command line of MCP Inspector: a process a call.
struct Inspector<'p> {
    project: &'p Project,
    server: Vec<String>,
}

impl<'p> Inspector<'p> {
    /// Unless npm cannot have it.
    fn open(project: &'p Project, server: &[&str]) -> Option<Self> {
        let inspector = Self {
            project,
            server: server.iter().map(|&part| part.to_owned()).collect(),
        };
        let tried = inspector.npx(&["--version".to_owned()]).output();
        let why = match tried {
            Ok(output) if output.status.success() => return Some(inspector),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        let why = why.lines().last().unwrap_or_default();
        not_tested(&format!(
            "ktsu mcp with MCP Inspector; npx cannot run {INSPECTOR}: {why}"
        ));
        None
    }

    fn npx(&self, arguments: &[String]) -> Command {
        let mut npx = Command::new("npx");
        npx.args(["--yes", INSPECTOR, "--cli"])
            .args(arguments)
            .current_dir(self.project.path())
            .env_remove("KTSU_TOKEN")
            // Its own settings, which are none.
            .env(
                "MCP_CATALOG_PATH",
                self.project.path().join("inspector.json"),
            )
            .stdin(Stdio::null());
        npx
    }

    fn ask(&self, method: &str, more: &[String]) -> Value {
        let mut arguments = self.server.clone();
        arguments.extend(["--method".to_owned(), method.to_owned()]);
        arguments.extend_from_slice(more);
        let output = self.npx(&arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

impl ToolClient for Inspector<'_> {
    fn list(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", &[]);
        let tools = listed["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut more = vec!["--tool-name".to_owned(), tool.to_owned()];
        for (name, value) in arguments.as_object().unwrap() {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            more.extend(["--tool-arg".to_owned(), format!("{name}={text}")]);
        }
        self.ask("tools/call", &more)
    }
}

#[test]
fn mcp_inspector_calls_every_tool_over_standard_input_and_output() {
    let project = Project::new();
    let server = [env!("CARGO_BIN_EXE_ktsu"), "mcp", "--kit", "kits/plain"];
    if let Some(mut inspector) = Inspector::open(&project, &server) {
        calls_every_tool(&mut inspector);
    }
}

#[test]
fn mcp_inspector_calls_every_tool_over_http() {
    let project = Project::new();
    let server = http_server(&project);
    if let Some(mut inspector) = Inspector::open(&project, &[&server.url, "--transport", "http"]) {
        calls_every_tool(&mut inspector);
    }
}

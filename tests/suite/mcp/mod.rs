//! `ktsu mcp`: the real binary as a tool server of agents, over standard input and output and over
//! HTTP, for the SDK's client for Rust, its client for Python, and MCP Inspector.

mod access;
mod clients;
mod deciding;
mod http;
mod lines;
mod long;
mod refusals;
mod tools;

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use rmcp::model::{CallToolRequestParams, ContentBlock};
use rmcp::service::{RoleClient, RunningService, ServiceExt as _};
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::guarded;
use crate::support::worlds::TIDES;

/// A workflow without a world that takes a goal.
const PLAIN: &str = "kind: workflow\nname: plain\nversion: 1.0.0\n\
    params: {schema: {type: object, properties: {goal: {type: string}, n: {type: integer}}}}\n\
    pipeline:\n  - id: one\n    transform: {inputs: [{from: \"{a: `1`}\"}], ops: []}\n\
    output: {map: {goal: \"{{ params.goal }}\"}}\n";

/// An agent whose one tool call needs approval, in branches, too: its server keeps nothing.
const GATED: [(&str, &str); 4] = [
    (
        "kits/gated/workflows/gated.workflow.yaml",
        "kind: workflow\nname: gated\nversion: 1.0.0\n\
         params: {schema: {type: object, properties: {goal: {type: string}}}}\n\
         pipeline:\n  - id: before\n    transform: {inputs: [{from: \"{a: `1`}\"}], ops: []}\n  \
         - {id: a, depends_on: [before], agent: ./agents/reader.agent.yaml}\n",
    ),
    (
        "kits/gated/agents/reader.agent.yaml",
        "name: reader\nversion: 1.0.0\nmodel: std\n\
         prompt: {system: You read., user: Read it.}\n\
         servers: [{name: ktsu/envelope, access: {allowlist: [{name: envelope-get, require_approval: {on_reject: recover}}]}}]\n\
         output: {schema: {type: object}}\n",
    ),
    (
        "kits/gated/gateway.yaml",
        "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
         model_groups: [{name: std, models: [desk/m]}]\n",
    ),
    (
        "kits/gated/rules.yaml",
        "rules:\n  - when: {turn: 1}\n    tool_calls: [{name: envelope-get, arguments: {step: before}}]\n\
         default:\n  reply: {kept: true}\n",
    ),
];

/// A working directory with kits.
struct Project {
    dir: TempDir,
}

impl Project {
    fn new() -> Self {
        let project = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let harbour = TIDES.replace("name: tides", "name: harbour");
        project.write("kits/harbour/worlds/harbour.world.yaml", &harbour);
        project.write("kits/plain/workflows/plain.workflow.yaml", PLAIN);
        for (path, text) in GATED {
            project.write(path, text);
        }
        project
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A command in the project; no variable of the machine gets through.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .stdin(Stdio::null());
        command
    }

    /// The JSON that a command prints; it has to succeed.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).arg("--json").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The frames of a run, as the command line shows them.
    fn frames(&self, run: &str) -> Vec<Value> {
        let mut command = self.command(&["frames", run, "--json"]);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// An agent that uses `ktsu mcp` over standard input and output.
    async fn agent(&self, arguments: &[&str]) -> Agent {
        self.agent_with(arguments, &[]).await
    }

    async fn agent_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Agent {
        let arguments = [&["mcp"], arguments].concat();
        let mut command = self.command(&arguments);
        command.envs(variables.iter().copied());
        let mut child = tokio::process::Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let transport =
            AsyncRwTransport::new_client(child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let client = guarded("the handshake", ().serve(transport)).await.unwrap();
        Agent { client, child }
    }
}

/// The SDK's client, and the server that it talks to.
struct Agent {
    client: RunningService<RoleClient, ()>,
    child: tokio::process::Child,
}

impl Agent {
    /// What a call gives: whether it is an error, and the answer, which is the same as text and as
    /// structured content.
    async fn ask(&self, tool: &str, arguments: Value) -> (bool, Value) {
        let Value::Object(arguments) = arguments else {
            panic!("{arguments} is no object");
        };
        let call = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result = guarded(tool, self.client.call_tool(call)).await;
        let result = result.unwrap_or_else(|error| panic!("{tool}: {error}"));
        let [ContentBlock::Text(text)] = result.content.as_slice() else {
            panic!("{result:?}");
        };
        let answer: Value = serde_json::from_str(&text.text).unwrap();
        assert_eq!(result.structured_content.as_ref(), Some(&answer));
        (result.is_error == Some(true), answer)
    }

    /// The answer of a call that succeeds.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let (is_error, answer) = self.ask(tool, arguments).await;
        assert!(!is_error && answer["error"].is_null(), "{tool}: {answer}");
        answer
    }

    /// The answer of a call that is refused: `{"error"}`.
    async fn refused(&self, tool: &str, arguments: Value) -> Value {
        let (is_error, answer) = self.ask(tool, arguments).await;
        assert!(is_error && answer["error"].is_string(), "{tool}: {answer}");
        answer
    }

    /// Closes its end of the pipe; the server ends by itself.
    async fn close(mut self) -> ExitStatus {
        self.client.cancel().await.unwrap();
        guarded("the end of the server", self.child.wait())
            .await
            .unwrap()
    }
}

/// The names of an object's members, in order.
fn members(value: &Value) -> Vec<&str> {
    let members = value.as_object().unwrap().keys();
    members.map(String::as_str).collect()
}

/// The texts of a list.
fn texts(value: &Value) -> Vec<&str> {
    let list = value.as_array().unwrap().iter();
    list.map(|one| one.as_str().unwrap()).collect()
}

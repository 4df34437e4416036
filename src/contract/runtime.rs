//! Orchestrator → runtime: `POST /invoke`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One task of an agent: a step, or an item of a fan-out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InvokeAgent {
    /// `run_…`, or `run_…/call` for a step of an inline child.
    pub run_id: String,
    /// The step; for an item `STEP.INDEX`.
    pub step_id: String,
    /// Which attempt this is, counted from 1. Goes into every report.
    #[serde(default = "one")]
    pub attempt: u32,
    /// The item of a fan-out, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The agent's name.
    #[serde(default)]
    pub agent_name: String,
    /// The system prompt, without the output schema.
    pub system: String,
    /// The user message, rendered.
    pub user_message: String,
    /// What a responder of a world asks: all messages of the request, rendered, in order. Where there
    /// are some, `system` and `user_message` say the same in fewer parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<PromptMessage>,
    /// The output is the text of the reply, as a JSON string, and not the JSON object in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text_reply: bool,
    /// The prompt of the reflection, rendered; absent if the agent does not reflect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflect: Option<String>,
    /// The step's threshold, between 0 and 1. Judged by the orchestrator; here for information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence_threshold: Option<f64>,
    /// Model calls of the loop at the most.
    #[serde(default = "ten")]
    pub max_turns: u32,
    /// What to ask the gateway for.
    pub model: ModelSettings,
    /// Tool servers, and what may be called there.
    #[serde(default)]
    pub tool_servers: Vec<ToolServer>,
    /// JSON Schema of the output, for the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Where a runtime that reports nothing else posts its [`super::report::TaskCompletion`]. A
    /// capability: it carries the attempt's token (decision W1).
    pub callback_url: String,
    /// Where reports go. A capability, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_url: Option<String>,
    /// What is recorded of the task so far, of earlier attempts too, in order.
    #[serde(default)]
    pub history: Vec<RecordedFrame>,
    /// Where the step was suspended before: what it left behind, and the data that it waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeInput>,
    /// What is left of the run's time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// What a step begins again with after it was suspended (seed 004).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResumeInput {
    /// The checkpoint of its `suspend`.
    #[serde(default)]
    pub checkpoint: Value,
    /// The data.
    #[serde(default)]
    pub data: Value,
}

/// A tool server, with everything that is needed to call it. It may hold secrets: it is sent to the
/// runtime, and never recorded.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolServer {
    /// The agent's name for it.
    pub name: String,
    /// `http` or `https`. One that begins with `ktsu:` is the orchestrator's own, under the origin
    /// of `callback_url`.
    pub url: String,
    /// Names of tools, beginnings with a star behind them, or a star.
    #[serde(default)]
    pub allowlist: Vec<String>,
    /// Which of them a person is asked about first. The orchestrator judges; a runtime that sends
    /// such a call without having been told to is refused its report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approval_rules: Vec<ApprovalRule>,
    /// The header that proves who calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_header: Option<String>,
    /// Its value, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_value: Option<String>,
    /// What the server is told when a session begins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// Whether its calls change something that lasts: one without an answer is never sent again by
    /// itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateful: bool,
    /// Calls are not sent: the model gets the error `suppressed_in_branch`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// Names as in an allowlist, of which calls are not sent either: a recompute calls nothing that
    /// changes the world, and asks nobody. They are reported as `suppressed_in_branch`; what is
    /// recorded of that, and told to the model, is the run's result of the same call, if it has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
    /// The digests its tools were locked with, by name; absent where they were not locked. A
    /// permitted tool with another digest, or with none, ends the task: with `{}`, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins: Option<BTreeMap<String, String>>,
    /// Texts in arguments, such as `{{ workspace }}`, each with what the server gets in its place. In results,
    /// the value is replaced by the text before anything is reported.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub references: BTreeMap<String, String>,
    /// How long one call may take, in milliseconds; 60 s where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Tools that a person is asked about first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalRule {
    /// As in an allowlist.
    pub pattern: String,
    /// `fail` or `recover`.
    pub on_reject: String,
    /// 0: none.
    #[serde(default)]
    pub timeout_ms: u64,
    /// `fail` or `reject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_behavior: Option<String>,
}

/// Without what may be secret.
impl std::fmt::Debug for ToolServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ToolServer({})", self.name)
    }
}

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptMessage {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

/// What to ask the gateway for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelSettings {
    /// The model group.
    pub group: String,
    /// The orchestrator may have an earlier reply to a request of this task. A runtime that takes one
    /// says so in its `llm.request`; any other asks the gateway.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cache: bool,
    /// The most tokens of a reply.
    #[serde(default = "tokens")]
    pub max_tokens: u32,
    /// Between 0 and 2; absent: the group's. Goes into every call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The run has a budget: only models whose price is known may be asked. Goes into every call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub priced_only: bool,
}

/// A frame of the task, as it stands in the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordedFrame {
    /// Its number; a later report names it.
    pub seq: u64,
    /// Its type: `llm.request`, `llm.response`, `agent.decided`, `reflect.started`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Its data.
    pub data: Value,
}

/// The code with which a runtime refuses a task for want of a free place.
pub const BUSY: &str = "busy";

/// 202: the runtime works on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskAccepted {
    /// As in the request.
    pub run_id: String,
    /// As in the request.
    pub step_id: String,
    /// `accepted`.
    pub status: String,
    /// The runtime's instance, as in its heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_id: Option<String>,
    /// Number of tasks that it works on at once, at most; absent: 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<u32>,
}

/// An error of runtime or gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskRefused {
    /// A stable code.
    pub error: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// Whether another try might do.
    #[serde(default)]
    pub retryable: bool,
}

fn one() -> u32 {
    1
}

fn ten() -> u32 {
    10
}

fn tokens() -> u32 {
    1024
}

//! Runtime → orchestrator: `POST …/report`, `POST …/complete`, `POST /heartbeat`.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::gateway::{ChatMessage, ModelAttempt, ToolCall};
use super::runtime::RecordedFrame;

/// The built-in tool server by which a model commands; each of its tools is a type of command.
pub const COMMANDS_SERVER: &str = "ktsu/commands";

/// Something happened to a task. Answered once it is durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// The attempt, as in the dispatch.
    pub attempt: u32,
    /// Counted from 1 within the attempt. The same number with the same bytes is answered again as
    /// it was; with other bytes it is refused (decision W2).
    #[schema(minimum = 1)]
    pub n: u32,
    /// What happened, in order.
    #[schema(min_items = 1)]
    pub events: Vec<ReportEvent>,
}

/// What a runtime reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", content = "data")]
pub enum ReportEvent {
    /// A model is about to be called. Stands alone in its report, or last.
    #[serde(rename = "llm.request")]
    Request(LlmRequest),
    /// It answered, or will not.
    #[serde(rename = "llm.response")]
    Response(LlmResponse),
    /// Tools are asked for; or there is a draft, and the agent may reflect.
    #[serde(rename = "agent.decided")]
    Decided(Decided),
    /// A tool is about to be called.
    #[serde(rename = "tool.called")]
    ToolCalled(ToolCalled),
    /// What the model gets for a call it asked for.
    #[serde(rename = "tool.returned")]
    ToolReturned(ToolReturned),
    /// A call to a stateful server was sent, and no answer came.
    #[serde(rename = "tool.in_doubt")]
    ToolInDoubt(ToolInDoubt),
    /// A person is to decide on a call.
    #[serde(rename = "approval.requested")]
    ApprovalRequested(ApprovalRequested),
    /// The task has ended.
    #[serde(rename = "agent.finished")]
    Finished(Finished),
}

/// `llm.request`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LlmRequest {
    /// Whether the runtime takes an earlier reply of the run from the answer to this report, if the
    /// orchestrator has one: the answer then lists an `llm.response` behind the `llm.request`, and no
    /// call is made. Only where the dispatch offers that (`model.cache`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepts_cached: bool,
    /// The number of the request this one goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// The model group.
    pub group: String,
    /// The most tokens of the reply.
    pub max_tokens: u32,
    /// The messages; with `base`, those that are new.
    pub messages: Vec<RequestMessage>,
    /// `turn`, `repair` or `reflect`.
    pub purpose: Purpose,
    /// The temperature that was asked for; absent: the group's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The tools the model is told of; absent: those of the base, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<OfferedTool>>,
}

/// A message of a request: its text, or the frame it stands in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RequestMessage {
    /// What an `llm.response` (role `assistant`) or a `tool.returned` (role `tool`) says.
    Frame {
        /// Its number.
        frame: u64,
        /// `assistant` or `tool`.
        role: String,
    },
    /// Written out.
    Text(ChatMessage),
}

/// A tool, as a model is told of it, and whose it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OfferedTool {
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// BLAKE3 of `{description, input_schema, name}` of the server, as canonical JSON.
    pub digest: String,
    /// JSON Schema of its arguments.
    #[serde(default)]
    pub input_schema: Value,
    /// The name the model has for it: `SERVER__TOOL` where two servers offer it.
    pub name: String,
    /// The agent's name for the server.
    pub server: String,
    /// The server's name for the tool.
    pub tool: String,
}

/// `tool.called`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCalled {
    /// The number of the `llm.response` that asks for it.
    pub response: u64,
    /// Its place there, counted from 0.
    pub call: u32,
    /// The agent's name for the server.
    pub server: String,
    /// The server's name for the tool.
    pub tool: String,
}

/// `tool.returned`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolReturned {
    /// The number of the `llm.response` that asked for it.
    pub response: u64,
    /// Its place there.
    pub call: u32,
    /// The blocks of the result, as MCP has them.
    #[serde(default)]
    pub content: Vec<Value>,
    /// Its structured content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Whether it is an error.
    #[serde(default)]
    pub is_error: bool,
    /// Milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// Why it was not sent: `unknown_tool`, `invalid_arguments`, `secret_in_arguments`, `rejected`,
    /// `in_doubt`, `suppressed_in_branch`. Absent: it answers the `tool.called`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_sent: Option<String>,
}

/// `tool.in_doubt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolInDoubt {
    /// The number of the `tool.called`.
    pub called: u64,
}

/// `approval.requested`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalRequested {
    /// The number of the `llm.response` that asks for the call.
    pub response: u64,
    /// Its place there.
    pub call: u32,
    /// The agent's name for the server.
    pub server: String,
    /// The server's name for the tool.
    pub tool: String,
}

/// What a model is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A turn of the loop.
    Turn,
    /// A draft that was not JSON is to be put right.
    Repair,
    /// A draft is looked at once more.
    Reflect,
}

/// `llm.response`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LlmResponse {
    /// The number of the request it answers, from the report's answer or from the history.
    pub request: u64,
    /// The reply's text; absent if there is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Why there is no reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureDetails>,
    /// The model that answered.
    #[serde(default)]
    pub model: String,
    /// The provider that answered.
    #[serde(default)]
    pub provider: String,
    /// Tokens sent.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens received.
    #[serde(default)]
    pub tokens_out: u64,
    /// Millionths of a US dollar.
    #[serde(default)]
    pub cost_micro_usd: u64,
    /// The version of the gateway's price table.
    #[serde(default)]
    pub prices: String,
    /// Milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// Whether the gateway had the reply at hand.
    #[serde(default)]
    pub cached: bool,
    /// The tools the model asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// How many of the tokens sent the provider had read before.
    #[serde(default)]
    pub tokens_cached: u64,
    /// How many of the tokens received were spent on reasoning.
    #[serde(default)]
    pub tokens_reasoning: u64,
    /// Every model that the gateway asked, in order; absent where it was the one that answered
    /// alone. The counts and the cost above are those of all of them. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<ModelAttempt>,
    /// Whether the price of a model that was asked is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

/// `agent.decided`: one of the two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Decided {
    /// The draft: a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<Value>,
    /// The number of the reply whose tools are to be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<u64>,
}

/// `agent.finished`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Finished {
    /// `completed`, `max_turns`, `tool_not_permitted`, `budget_exceeded`, `timeout`, `stopped`,
    /// `error`.
    pub reason: String,
    /// What came of it.
    pub outcome: TaskOutcome,
}

/// What came of a task (seed 004; decision W5): an output, or an error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskOutcome {
    /// A JSON object, reserved fields included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Audit events `{type, payload?}`, kept as they are.
    #[serde(
        default,
        deserialize_with = "null_is_none",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schema(value_type = Option<Vec<Value>>)]
    pub events: Vec<Value>,
    /// Commands ([`COMMANDS_SERVER`] is how a model gives them). One that the agent's file does not
    /// declare fails the step.
    #[serde(
        default,
        deserialize_with = "null_is_none",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schema(value_type = Option<Vec<Value>>)]
    pub commands: Vec<Value>,
    /// Why there is no output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureDetails>,
    /// The text that could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_output: Option<String>,
}

/// A list for which null is none, as its schema says, too.
fn null_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A structured failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureDetails {
    /// A stable code.
    pub code: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// Whether another try might do.
    #[serde(default)]
    pub retryable: bool,
}

/// 200: the report is durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReportAck {
    /// As in the report.
    pub n: u32,
    /// What is recorded of it, redacted: go on with this, not with what was sent.
    pub events: Vec<RecordedFrame>,
    /// After `agent.decided`: whether to reflect (decision R2).
    #[serde(default)]
    pub reflect: bool,
    /// A person has to decide: end the task without a word. It is dispatched again, with what is
    /// recorded by then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// The model call that was asked for may not be made. Report `agent.finished` with this error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<FailureDetails>,
}

/// The end of a task, from a runtime that reports nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskCompletion {
    /// As in the dispatch.
    #[serde(default)]
    pub run_id: String,
    /// As in the dispatch.
    #[serde(default)]
    pub step_id: String,
    /// `ok` or `failed`; of a runtime of the earlier contract also `pending_approval`, which ends the
    /// task with `approval_unsupported`.
    pub status: String,
    /// With `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// With `failed`: text, or `{code, message, retryable}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// The text that could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_output: Option<Value>,
    /// What was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<ClaimedMetrics>,
    /// With `pending_approval`: `{tool_name, …}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_approval: Option<Value>,
    /// As in [`TaskOutcome`].
    #[serde(
        default,
        deserialize_with = "null_is_none",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schema(value_type = Option<Vec<Value>>)]
    pub events: Vec<Value>,
    /// As in [`TaskOutcome`].
    #[serde(
        default,
        deserialize_with = "null_is_none",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schema(value_type = Option<Vec<Value>>)]
    pub commands: Vec<Value>,
}

/// What a runtime says it used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClaimedMetrics {
    /// `provider/model`.
    #[serde(default)]
    pub model_resolved: String,
    /// Tokens sent.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens received.
    #[serde(default)]
    pub tokens_out: u64,
    /// US dollars.
    #[serde(default)]
    pub cost_usd: f64,
    /// Milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// Model calls.
    #[serde(default)]
    pub llm_calls: u64,
    /// Tool calls.
    #[serde(default)]
    pub tool_calls: u64,
    /// Reflections.
    #[serde(default)]
    pub reflect_calls: u64,
}

/// A runtime is alive, and works on these. Sent every [`HEARTBEAT_INTERVAL_SECONDS`], and once at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Heartbeat {
    /// The instance: another one after every start.
    pub runtime_id: String,
    /// What it works on.
    #[serde(default)]
    pub active: Vec<HeartbeatTask>,
    /// Number of tasks that it works on at once, at most; absent: 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<u32>,
}

/// The members of a runtime's `GET /health` by which it is recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RuntimeHealth {
    /// The instance, as in its heartbeats.
    #[serde(default)]
    pub runtime_id: Option<String>,
    /// As in its heartbeats.
    #[serde(default)]
    pub places: Option<u32>,
}

/// A task in a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatTask {
    /// As in the dispatch.
    pub run_id: String,
    /// As in the dispatch: `STEP` or `STEP.INDEX`.
    pub step_id: String,
    /// As in the dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

/// 200 to a heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatAck {
    /// Tasks of the beat that nobody waits for any more: the runtime may drop them.
    #[serde(default)]
    pub stop: Vec<HeartbeatTask>,
    /// Tasks of the beat whose run is paused: their time stands still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<HeartbeatTask>,
}

/// Seconds between two heartbeats (decision W3).
pub const HEARTBEAT_INTERVAL_SECONDS: u64 = 5;

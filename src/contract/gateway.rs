//! Runtime → gateway: `POST /invoke`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A model call. The header `idempotency-key`, if there is one, names it: a gateway that has
/// answered a call of that name lately gives the same reply and asks no provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InvokeModel {
    /// The run, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The step, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// The model group.
    pub group: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// The most tokens of the reply.
    pub max_tokens: u32,
    /// Only sent on if it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Tools the model may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolDefinition>,
    /// Asks only models whose price is known: another is refused with `budget_unpriced`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub priced_only: bool,
}

/// A tool, as a model is told of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolDefinition {
    /// The name the model asks for it by.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    #[serde(default)]
    pub input_schema: Value,
}

/// A message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    #[serde(default)]
    pub content: String,
    /// Of an assistant: the tools it asked for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool: the id of the call whose result this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Of a tool: whether the result is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// A tool that a model asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    /// Unique within its reply.
    pub id: String,
    /// As the model was told it.
    pub name: String,
    /// A JSON object. Text that is none comes as `{"_raw": TEXT}`.
    #[serde(default)]
    pub arguments: Value,
}

/// 200: the model replied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelReply {
    /// The text.
    #[serde(default)]
    pub content: String,
    /// `provider/model`.
    #[serde(default)]
    pub model_resolved: String,
    /// Tokens sent, in all attempts of the call. So are the other counts and the cost.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens received.
    #[serde(default)]
    pub tokens_out: u64,
    /// How many of those sent the provider had read before, and takes less for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_cached: u64,
    /// How many of those received were spent on reasoning, and are not in the text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_reasoning: u64,
    /// US dollars, for reading.
    #[serde(default)]
    pub cost_usd: f64,
    /// Millionths of a US dollar, rounded half up; where it is absent, taken from `cost_usd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<u64>,
    /// The version of the price table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// Whether no provider was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// Tools the model asks for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Every model that was asked, in order; absent where it was the one that answered alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<ModelAttempt>,
    /// Whether a model answered whose price is not known, so that its cost counts as 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

/// Any other status: there is no reply. What the call used counts all the same (decision F4).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelCallFailure {
    /// A stable code.
    pub error: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// Whether another try might do.
    #[serde(default)]
    pub retryable: bool,
    /// Tokens sent, in all attempts of the call. So are the other counts and the cost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_in: u64,
    /// Tokens received.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_out: u64,
    /// How many of those sent the provider had read before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_cached: u64,
    /// How many of those received were spent on reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_reasoning: u64,
    /// Millionths of a US dollar.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_micro_usd: u64,
    /// The version of the price table, if anything was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// Every model that was asked, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<ModelAttempt>,
}

/// One model that was asked for the reply to a call (decision S5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelAttempt {
    /// From asking to answer, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// `provider/model`.
    pub model: String,
    /// `ok`, a word of `retry.on` (`rate_limited`, `server_error`, `timeout`, `unreachable`), or the
    /// code of the failure.
    pub status: String,
    /// What it used, whatever came of it.
    #[serde(default)]
    pub usage: AttemptUsage,
}

/// What one attempt used, as its provider counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptUsage {
    /// Millionths of a US dollar, rounded half up.
    #[serde(default)]
    pub cost_micro_usd: u64,
    /// How many of the tokens sent the provider had read before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_cached: u64,
    /// Tokens sent.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens received.
    #[serde(default)]
    pub tokens_out: u64,
    /// How many of the tokens received were spent on reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_reasoning: u64,
}

/// The most attempts of a call that are listed; all of them count.
pub const MAX_ATTEMPTS_LISTED: usize = 64;

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The text that a model wrote, without the one Markdown fence that may be around it.
pub fn strip_code_fence(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```") else {
        return text;
    };
    let inner = inner.strip_suffix("```").unwrap_or(inner);
    let language = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.');
    inner.trim_start_matches(language).trim()
}

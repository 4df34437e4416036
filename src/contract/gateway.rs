//! Runtime → gateway: `POST /invoke`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A model call. The header `idempotency-key`, if there is one, names it: a gateway that has
/// answered a call of that name lately gives the same reply and asks no provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Invoke {
    /// The run, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The step, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// The model group.
    pub group: String,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The most tokens of the reply.
    pub max_tokens: u32,
    /// Only sent on if it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Tools the model may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    #[serde(default)]
    pub content: String,
}

/// 200: the model replied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reply {
    /// The text.
    #[serde(default)]
    pub content: String,
    /// `provider/model`.
    #[serde(default)]
    pub model_resolved: String,
    /// Tokens sent.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens received.
    #[serde(default)]
    pub tokens_out: u64,
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
    /// Tools the model asks for: `{id, name, arguments}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
}

/// What a model wrote, without the one Markdown fence that may stand around it.
pub fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```") else {
        return text;
    };
    let inner = inner.strip_suffix("```").unwrap_or(inner);
    let language = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.');
    inner.trim_start_matches(language).trim()
}

//! The schemas of approvals and decisions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A message of JSON-RPC 2.0, as MCP has it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ToolMessage {
    /// `2.0`.
    #[schema(pattern = r"^2\.0$")]
    pub jsonrpc: String,
    /// A text or a whole number; absent for notifications, null in the refusal of what could not be
    /// read.
    pub id: Option<Value>,
    /// Of a request: `initialize`, `tools/list`, `tools/call`, `ping`.
    pub method: Option<String>,
    /// Of a request: an object, or absent.
    pub params: Option<Value>,
    /// Of an answer: an object.
    pub result: Option<Value>,
    /// Of an answer that is a refusal: an object.
    pub error: Option<Value>,
}

/// One of them, or several that come as one, as versions before 2025-06-18 have it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ToolMessages {
    /// One.
    One(ToolMessage),
    /// Several.
    Several(Vec<ToolMessage>),
}

/// A decision. `result` goes with `happened`, and with nothing else.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// `approved` (or `approve`), `rejected` (or `reject`); of a call in doubt also `happened`.
    #[schema(value_type = Decision)]
    pub decision: String,
    /// Which call, where several wait in the step.
    #[schema(min_length = 1)]
    pub approval_id: Option<String>,
    /// The digest of the arguments that were looked at: others are not decided on.
    #[schema(min_length = 1)]
    pub digest: Option<String>,
    /// Why.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: Option<String>,
    /// For a call that happened: its result, for the model.
    #[schema(min_length = 1)]
    pub result: Option<String>,
}

/// A decision on an outcome. `overlay` goes with an approval, and with nothing else.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideReview {
    /// `approved` (or `approve`), `rejected` (or `reject`).
    #[schema(value_type = ReviewWord)]
    pub decision: String,
    /// Why.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: Option<String>,
    /// The fields of the output that are replaced, each with its value.
    #[schema(value_type = Option<Object>)]
    pub overlay: Option<BTreeMap<String, Value>>,
    /// Which review is meant; the one that is pending if absent.
    #[schema(min_length = 1)]
    pub review_id: Option<String>,
}

/// The data that a step waits for.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeStep {
    /// Any JSON value that the schema of the step allows.
    pub data: Value,
    /// Why.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: Option<String>,
    /// Which suspension is meant; the one that is pending if absent.
    #[schema(min_length = 1)]
    pub suspend_id: Option<String>,
}

/// What the holder of a link learns.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Resumed {
    /// `resumed`.
    pub status: String,
}

/// A link by which a step can be given its data.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ResumeLink {
    /// The suspension.
    pub suspend_id: String,
    /// Where to post `{"data": …}`. A capability: its holder may, once.
    pub url: String,
    /// Until when.
    pub expires_at: String,
}

/// A decision on an outcome.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewWord {
    /// It counts.
    Approve,
    /// The same.
    Approved,
    /// It does not.
    Reject,
    /// The same.
    Rejected,
}

/// A decision.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call is made.
    Approve,
    /// The same.
    Approved,
    /// It is not made.
    Reject,
    /// The same.
    Rejected,
    /// It was made, and gave `result`.
    Happened,
}

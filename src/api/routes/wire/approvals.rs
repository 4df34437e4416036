//! The schemas of approvals and decisions.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A tool call that needs a decision.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// `apr_…`.
    pub approval_id: String,
    /// `approval`: before the call; `in_doubt`: after one that may have happened.
    pub kind: String,
    /// The run, with the path of an inline child.
    pub run_id: String,
    /// The step; for an item `STEP.INDEX`.
    pub step_id: String,
    /// The server, by the agent's name for it.
    pub server: String,
    /// The tool.
    pub tool_name: String,
    /// The model's name for the call.
    pub tool_use_id: String,
    /// The exact arguments.
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// BLAKE3 of them, as canonical JSON.
    pub digest: String,
    /// `fail` or `recover`.
    pub on_reject: String,
    /// 0: none.
    pub timeout_ms: u64,
    /// `fail` or `reject`, if there is a timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_behavior: Option<String>,
    /// How many people have to approve.
    pub quorum: u32,
    /// Whether the principal that started the run may not approve.
    pub not_by_proposer: bool,
    /// `pending`, `approved`, `rejected`, `happened`, `timeout` or `void`.
    pub status: String,
    /// When the approval was requested.
    pub created_at: String,
    /// Until when a decision is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was decided, or ended without a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
    /// Who started the run.
    pub proposer: String,
    /// The decisions, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<Vote>,
    /// The frame of the request.
    pub request: u64,
    /// The frame of the call that was made on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<u64>,
    /// Why a call that was approved was never made: `step_ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_called: Option<String>,
    /// Where several wait in the step: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
}

/// A person's decision.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vote {
    /// Who.
    pub by: String,
    /// How the person was authenticated: `none` without authentication.
    pub auth: String,
    /// `approved`, `rejected` or `happened`.
    pub decision: String,
    /// When.
    pub at: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a call that happened: what it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Whether the person did not start the run, and was authenticated by a token.
    pub independent: bool,
    /// The frame.
    pub frame: u64,
}

/// A message of JSON-RPC 2.0, as MCP has it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ToolMessage {
    /// `2.0`.
    #[schema(pattern = r"^2\.0$")]
    pub jsonrpc: String,
    /// A text or a whole number; absent for notifications, null in the refusal of what could not be
    /// read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Value>,
    /// Of a request: `initialize`, `tools/list`, `tools/call`, `ping`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Of a request: an object, or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
    /// Of an answer: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Of an answer that is a refusal: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    pub decision: Decision,
    /// Which call, where several wait in the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub approval_id: Option<String>,
    /// The digest of the arguments that were looked at: others are not decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub digest: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: Option<String>,
    /// For a call that happened: its result, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub result: Option<String>,
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

/// A run that failed because an agent wants a person to look.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Review {
    /// The run.
    pub run_id: String,
    /// Its workflow.
    pub workflow: String,
    /// When it began.
    pub created_at: String,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
}

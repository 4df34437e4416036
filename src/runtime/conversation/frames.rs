//! The fields of call frames that the conversation uses.

use serde::Deserialize;
use serde_json::Value;

use ktsu_contract::gateway::ToolCall;

/// A tool that a reply asks for, as it is recorded.
#[derive(Debug, Deserialize)]
pub(super) struct RequestedTool {
    #[serde(flatten)]
    pub(super) call: ToolCall,
    #[serde(default)]
    pub(super) secret: bool,
}

/// Of a recorded `tool.called`.
#[derive(Deserialize)]
pub(super) struct ToolCalledData {
    pub(super) call: u32,
    #[serde(default)]
    pub(super) idempotency_key: Option<String>,
    pub(super) response: u64,
    pub(super) server: String,
    pub(super) tool: String,
}

/// Of a recorded `approval.requested`.
#[derive(Deserialize)]
pub(super) struct ApprovalRequestedData {
    pub(super) call: u32,
    pub(super) response: u64,
    pub(super) server: String,
    pub(super) tool: String,
    #[serde(default)]
    pub(super) policy: ApprovalPolicyData,
}

/// The part of it about the people who are asked.
#[derive(Default, Deserialize)]
pub(super) struct ApprovalPolicyData {
    #[serde(default)]
    pub(super) quorum: u32,
}

/// Of a recorded `approval.decided`.
#[derive(Deserialize)]
pub(super) struct ApprovalDecidedData {
    pub(super) decision: String,
    #[serde(default)]
    pub(super) reason: Option<String>,
    pub(super) request: u64,
    #[serde(default)]
    pub(super) result: Option<String>,
}

/// The members of a recorded `tool.returned` that matter here.
#[derive(Deserialize)]
pub(super) struct ToolReturnedData {
    pub(super) call: u32,
    #[serde(default)]
    pub(super) content: Value,
    #[serde(default)]
    pub(super) is_error: bool,
    pub(super) response: u64,
    #[serde(default)]
    pub(super) structured: Option<Value>,
}

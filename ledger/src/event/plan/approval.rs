//! The policies on who decides on calls and outcomes, and until when.

use serde::{Deserialize, Serialize};

/// `require_approval:` (seed 000, invariant 34; `spec` A10, A11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalPolicy {
    /// The principal that started the run may not approve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_by_proposer: bool,
    /// The consequence for the step if the call is rejected.
    pub on_reject: OnReject,
    /// The number of different people who have to approve; one rejection is enough.
    pub quorum: u32,
    /// The time that a decision may take, in milliseconds from `approval.requested`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<ApprovalTimeout>,
}

/// `review:` of an agent's commands: who decides on an outcome, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewPolicy {
    /// The principal that started the run may not approve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_by_proposer: bool,
    /// The number of different people who have to approve; one rejection is enough.
    pub quorum: u32,
    /// The roles of which a person who decides needs one; empty: those that decide on tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// The time that a decision may take, from `review.requested`, and the consequence for the step
    /// then.
    pub timeout: ApprovalTimeout,
}

/// `on_reject:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnReject {
    /// The step fails.
    Fail,
    /// The model receives the refusal and continues.
    Recover,
}

impl OnReject {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Recover => "recover",
        }
    }
}

/// `timeout:` and `timeout_behavior:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalTimeout {
    /// The consequence for the call then.
    pub behavior: TimeoutBehavior,
    /// Milliseconds.
    pub ms: u64,
}

/// `timeout_behavior:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutBehavior {
    /// The step fails.
    Fail,
    /// As if a person had rejected the call: see `on_reject`.
    Reject,
}

impl TimeoutBehavior {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Reject => "reject",
        }
    }
}

//! Events of tools: what an agent called, the result, and what people decided (seed 000, invariants
//! 4 and 34; decision A1).
//!
//! A reply that requests tools contains the calls in `llm.response.tool_calls`. Each ends in one
//! `tool.returned`, in a `tool.in_doubt` that is not decided, or with its task:
//!
//! ```text
//! llm.response ─▶ agent.decided ─┬────────────────────────▶ tool.returned   (never sent: refused)
//!                                ├─▶ tool.called ─┬───────▶ tool.returned
//!                                │       ▲        └▶ tool.in_doubt ─▶ approval.decided ─▶ …
//!                                └─▶ approval.requested ─▶ approval.decided | approval.expired
//! ```
//!
//! `tool.called` is durable before the call leaves the process. An approval is about one call, and
//! contains the digest of its exact arguments. In a recompute, a call that must not be sent is
//! answered with a result that the run recorded: `tool.returned{recorded}`.

use serde::{Deserialize, Serialize};

use super::place::Reference;
use super::plan::ApprovalPolicy;
use super::recorded::{RecordedAt, UnsentReason};
use super::report::ReportReference;
use super::start::Principal;
use crate::canonical::CanonicalJson;

/// `tool.called`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCalled {
    /// The earlier `tool.called` that had no answer: this one has its idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<u64>,
    /// The `approval.requested` that allowed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<u64>,
    /// The location of the arguments: in the reply that requested the call.
    pub arguments: Reference,
    /// The task's attempt.
    pub attempt: u32,
    /// Its place in the reply, counted from 0.
    pub call: u32,
    /// BLAKE3 of the arguments, as canonical JSON.
    pub digest: String,
    /// Sent with the call, so that a server can recognise a repeated call (decision A4).
    pub idempotency_key: String,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The report.
    pub report: ReportReference,
    /// The `llm.response` that requested it.
    pub response: u64,
    /// The server, by the name the agent has for it.
    pub server: String,
    /// The step.
    pub step: String,
    /// The tool, by the name the server has for it.
    pub tool: String,
}

/// `tool.returned`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolReturned {
    /// The task's attempt.
    pub attempt: u32,
    /// Its place in the reply.
    pub call: u32,
    /// The call this answers; absent for one that was not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<u64>,
    /// The blocks of the result, as MCP has them: a list of `{type, …}`.
    #[serde(default)]
    pub content: CanonicalJson,
    /// From sending to answer, in milliseconds.
    pub duration_ms: u64,
    /// True if the tool reported a failure, or could not be called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The reason, if it was not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_sent: Option<UnsentReason>,
    /// In a recompute: the recorded result that this one repeats. Nothing was sent for it;
    /// `not_sent` is that of the recorded result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Box<RecordedAt>>,
    /// The report.
    pub report: ReportReference,
    /// The `llm.response` that requested it.
    pub response: u64,
    /// The step.
    pub step: String,
    /// The structured content of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<CanonicalJson>,
}

/// The reason why it is unknown whether a call happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtReason {
    /// It was sent, and no answer came.
    NoAnswer,
    /// The runtime that was about to send it is lost.
    WorkerLost,
    /// The task ended before an answer came.
    TaskEnded,
}

/// `tool.in_doubt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolInDoubt {
    /// The task's attempt.
    pub attempt: u32,
    /// The call.
    pub called: u64,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The reason.
    pub reason: DoubtReason,
    /// The report; absent where the engine decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportReference>,
    /// The step.
    pub step: String,
}

/// `approval.requested`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequested {
    /// The location of the arguments.
    pub arguments: Reference,
    /// The task's attempt.
    pub attempt: u32,
    /// Its place in the reply.
    pub call: u32,
    /// BLAKE3 of the arguments as canonical JSON: exactly these are approved.
    pub digest: String,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The policy in the definition.
    pub policy: ApprovalPolicy,
    /// The report.
    pub report: ReportReference,
    /// The `llm.response` that requested the call.
    pub response: u64,
    /// The server, by the name the agent has for it.
    pub server: String,
    /// The step.
    pub step: String,
    /// The tool.
    pub tool: String,
}

/// A person's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call may be sent; one in doubt, sent again.
    Approved,
    /// It may not.
    Rejected,
    /// Of a call in doubt: it happened, and gave this.
    Happened,
}

impl Decision {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Happened => "happened",
        }
    }
}

/// `approval.decided`. If a policy requires several people, the decision of one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecided {
    /// The attempt that requested it.
    pub attempt: u32,
    /// The person who decided, and how that is known.
    pub by: Principal,
    /// The decision.
    pub decision: Decision,
    /// The digest of the arguments they saw.
    pub digest: String,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The reason, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The `approval.requested` or `tool.in_doubt`.
    pub request: u64,
    /// Of a call that happened: what it gave, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The step.
    pub step: String,
}

/// `approval.expired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalExpired {
    /// The attempt that requested it.
    pub attempt: u32,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The `approval.requested`.
    pub request: u64,
    /// The step.
    pub step: String,
}

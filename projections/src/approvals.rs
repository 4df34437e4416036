//! The records of who approved what: one for each request for a decision about a tool call (seed
//! 000, invariant 34; decision A1).
//!
//! A record begins with `approval.requested`, or with a `tool.in_doubt` that waits for a person. It
//! contains what people saw (the arguments and their digest), each decision with the way its author
//! was authenticated, and whether the call was made. [`crate::calls::CallHistory`] creates the
//! records.

use ktsu_ledger::{StreamId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use crate::asked_records::{ApprovalStatus, ApprovalVote};
use crate::asked_records::{AskedRecord, Wait, request_id};

/// A question to people about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalRecord {
    /// `apr_…`.
    pub approval_id: String,
    /// `approval`: before the call; `in_doubt`: after one that may have happened.
    #[schema(value_type = String)]
    pub kind: ApprovalKind,
    /// `run_…` or `branch_…`; with the path of an inline child behind it.
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
    /// BLAKE3 of them, as canonical JSON: what is decided on.
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
    /// Whether the proposer may not approve.
    pub not_by_proposer: bool,
    /// `pending`, `approved`, `rejected`, `happened`, `timeout` or `void`.
    #[schema(value_type = String)]
    pub status: ApprovalStatus,
    /// When it was asked.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// Until when a decision is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub expires_at: Option<Timestamp>,
    /// Since when the run is paused: meanwhile the time to decide stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub paused_at: Option<Timestamp>,
    /// When it was decided, or ended without a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub decided_at: Option<Timestamp>,
    /// Who started the run.
    pub proposer: String,
    /// Their decisions, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<ApprovalVote>,
    /// The frame that asks.
    pub request: u64,
    /// The `tool.called` that was made on it; of a call in doubt, the one that sent it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<u64>,
    /// Why a call that was approved was never made: `step_ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_called: Option<String>,
    /// Where several wait in the step, and one of them is asked for: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
}

/// The question that is asked about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// Permission to make a call.
    Approval,
    /// The fate of a call that may have been made.
    InDoubt,
}

/// The reason why an approved call was not made.
const STEP_ENDED: &str = "step_ended";

/// The name of a record: of the stream and the frame that asks.
pub fn approval_id(stream: &StreamId, request: u64) -> String {
    request_id("apr_", stream, request)
}

impl ApprovalRecord {
    /// Returns `true` if this decision had a call in doubt sent again, and it was not sent since.
    pub(crate) fn allows_resending(&self) -> bool {
        let approved = self.status == ApprovalStatus::Approved;
        approved && self.kind == ApprovalKind::InDoubt && self.executed.is_none()
    }

    /// Notes that the task of the call has ended, or begins again.
    pub(crate) fn note_task_end(&mut self, at: Timestamp) {
        self.wait().close(ApprovalStatus::Void, at);
        if self.status == ApprovalStatus::Approved && self.executed.is_none() {
            self.not_called = Some(STEP_ENDED.to_owned());
        }
    }
}

impl AskedRecord for ApprovalRecord {
    fn wait(&mut self) -> Wait<'_> {
        Wait {
            status: &mut self.status,
            votes: &mut self.votes,
            expires_at: self.expires_at.as_mut(),
            paused_at: &mut self.paused_at,
            ended_at: &mut self.decided_at,
            proposer: &self.proposer,
            quorum: self.quorum,
        }
    }
}

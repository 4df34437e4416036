//! Suspensions of steps as people see them: what data are asked for, by when, and who gave them (seed
//! 004; decision P3).
//!
//! A record begins with `suspend.requested`. It contains the reason and the checkpoint of the command,
//! and ends with the data, with the end of the time, or with that of the step.

use ktsu_ledger::event::SuspendRequested;
use ktsu_ledger::{CanonicalJson, Frame, StreamId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::asked_records::{ApprovalStatus, ApprovalVote, AskedRecord, Basis, Wait, request_id};
use crate::life::{Given, PersonAnswer};
use crate::reviews::deciding_roles;
use crate::step_name::scoped_run;

/// The prefix of the names of suspensions.
const PREFIX: &str = "sus_";

/// The name of a suspension: of the stream and the frame that asks.
pub fn suspend_id(stream: &StreamId, request: u64) -> String {
    request_id(PREFIX, stream, request)
}

/// Returns `true` if an id is that of a suspension.
pub fn is_suspend_id(id: &str) -> bool {
    id.starts_with(PREFIX)
}

/// A step that waits for data, or did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuspensionRecord {
    /// `sus_…`.
    pub suspend_id: String,
    /// `suspend`.
    pub kind: String,
    /// `run_…` or `branch_…`; with the path of an inline child behind it.
    pub run_id: String,
    /// The step.
    pub step_id: String,
    /// What its agent asks for.
    pub reason: String,
    /// What the next attempt is given of this one.
    pub checkpoint: Value,
    /// JSON Schema of the data; absent: any.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Object)]
    pub schema: Value,
    /// How long the step waits, in milliseconds.
    pub timeout_ms: u64,
    /// The roles of which a person who gives the data needs one.
    pub roles: Vec<String>,
    /// `pending`, `resumed`, `timeout` or `void`.
    #[schema(value_type = String)]
    pub status: ApprovalStatus,
    /// When the data were asked for.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// Until when they are waited for.
    #[schema(value_type = String)]
    pub expires_at: Timestamp,
    /// Since when the run is paused: meanwhile the time to give them does not pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub paused_at: Option<Timestamp>,
    /// When they came, or the wait ended without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ended_at: Option<Timestamp>,
    /// Who started the run.
    pub proposer: String,
    /// The attempt that waits.
    pub attempt: u32,
    /// The step that continues in its place, if the outcome names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_step: Option<String>,
    /// Who gave the data: none, or one; `capability` is the holder of the step's link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<ApprovalVote>,
    /// The data, once they are there.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// The frame that asks.
    pub request: u64,
}

impl SuspensionRecord {
    /// The record of a wait that begins at a frame.
    pub(crate) fn of(basis: Basis<'_>, frame: &Frame, asked: &SuspendRequested) -> Self {
        let outcome = basis.outcome;
        let command = basis
            .index
            .and_then(|at| outcome.pointer(&format!("/commands/{at}")));
        let command = command.unwrap_or_default();
        let policy = &asked.policy;
        Self {
            suspend_id: suspend_id(&frame.stream, frame.seq),
            kind: "suspend".to_owned(),
            run_id: scoped_run(frame.stream.name(), &frame.scope),
            step_id: asked.step.clone(),
            reason: command["reason"].as_str().unwrap_or_default().to_owned(),
            checkpoint: command["checkpoint"].clone(),
            schema: policy
                .schema
                .as_ref()
                .map_or(Value::Null, CanonicalJson::to_value),
            timeout_ms: policy.timeout_ms,
            roles: deciding_roles(&policy.roles),
            status: ApprovalStatus::Pending,
            created_at: frame.at,
            expires_at: frame.at.plus_millis(policy.timeout_ms),
            paused_at: None,
            ended_at: None,
            proposer: basis.proposer.to_owned(),
            attempt: asked.attempt,
            resume_step: command["resumeStep"].as_str().map(str::to_owned),
            votes: Vec::new(),
            data: Value::Null,
            request: frame.seq,
        }
    }

    /// Takes the data.
    pub(crate) fn take_answer(&mut self, frame: &Frame, answer: &PersonAnswer<'_>) {
        if self.answer(frame, answer)
            && let Given::Data(data) = answer.given
        {
            self.data = data.to_value();
        }
    }
}

impl AskedRecord for SuspensionRecord {
    fn wait(&mut self) -> Wait<'_> {
        Wait {
            status: &mut self.status,
            votes: &mut self.votes,
            expires_at: Some(&mut self.expires_at),
            paused_at: &mut self.paused_at,
            ended_at: &mut self.ended_at,
            proposer: &self.proposer,
            quorum: 1,
        }
    }
}

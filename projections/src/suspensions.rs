//! Suspensions of steps as people see them: what data are asked for, by when, and who gave them (seed
//! 004; decision P3).
//!
//! A record begins with `suspend.requested`. It contains the reason and the checkpoint of the command,
//! and ends with the data, with the end of the time, or with that of the step.

use std::collections::BTreeMap;

use ktsu_ledger::event::{PersonEvent, StepEvent, SuspendRequested, SuspendResumed, TimerKind};
use ktsu_ledger::{CanonicalJson, Event, Frame, StreamId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::approvals::{ApprovalStatus, ApprovalVote, is_independent, request_id};
use crate::asked_records::{AskedRecord, AskedRecords};
use crate::reviews::deciding_roles;
use crate::step_name::scoped_run;

/// What the names of suspensions begin with.
const PREFIX: &str = "sus_";

/// The name of a suspension: of the stream and the frame that asks.
pub fn suspend_id(stream: &StreamId, request: u64) -> String {
    request_id(PREFIX, stream, request)
}

/// Whether an id is that of a suspension.
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

/// The suspensions of a run.
#[derive(Debug, Default)]
pub struct SuspensionHistory(AskedRecords<SuspensionRecord>);

impl SuspensionHistory {
    /// The suspensions of these frames, in the order they were asked for.
    pub fn fold<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Vec<SuspensionRecord> {
        let mut history = Self::default();
        for frame in frames {
            history.0.apply(frame);
            if let Event::Step(StepEvent::SuspendRequested(asked)) = &frame.event {
                history.ask(frame, asked);
            }
            if let Event::Person(PersonEvent::SuspendResumed(resumed)) = &frame.event {
                history.resume(frame, resumed);
            }
        }
        history.0.records
    }

    fn ask(&mut self, frame: &Frame, asked: &SuspendRequested) {
        let command = self
            .0
            .index(asked.command)
            .zip(self.0.outcome(frame, &asked.step))
            .and_then(|(at, outcome)| outcome.pointer(&format!("/commands/{at}")));
        let command = command.unwrap_or_default();
        let policy = &asked.policy;
        self.0.records.push(SuspensionRecord {
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
            proposer: self.0.proposer.clone(),
            attempt: asked.attempt,
            resume_step: command["resumeStep"].as_str().map(str::to_owned),
            votes: Vec::new(),
            data: Value::Null,
            request: frame.seq,
        });
    }

    fn resume(&mut self, frame: &Frame, resumed: &SuspendResumed) {
        let mut records = self.0.records.iter_mut();
        let Some(record) = records.find(|record| record.request == resumed.request) else {
            return;
        };
        record.votes.push(ApprovalVote {
            by: resumed.by.id.clone(),
            auth: resumed.by.auth.clone(),
            decision: ApprovalStatus::Resumed.as_str().to_owned(),
            at: frame.at,
            reason: resumed.reason.clone(),
            overlay: BTreeMap::new(),
            result: None,
            independent: is_independent(&resumed.by, &record.proposer),
            frame: frame.seq,
        });
        record.data = resumed.data.to_value();
        record.close(ApprovalStatus::Resumed, frame.at);
    }
}

impl AskedRecord for SuspensionRecord {
    const TIMER: TimerKind = TimerKind::Suspend;

    fn place(&self) -> (&str, &str) {
        (&self.run_id, &self.step_id)
    }

    fn status(&self) -> ApprovalStatus {
        self.status
    }

    fn paused_at(&mut self) -> &mut Option<Timestamp> {
        &mut self.paused_at
    }

    fn expires_at(&mut self) -> &mut Timestamp {
        &mut self.expires_at
    }

    fn end(&mut self, status: ApprovalStatus, at: Timestamp) {
        self.status = status;
        self.ended_at = Some(at);
    }
}

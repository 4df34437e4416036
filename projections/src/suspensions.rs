//! Suspensions of steps as people see them: what data are asked for, by when, and who gave them (seed
//! 004; decision P3).
//!
//! A record begins with `suspend.requested`. It contains the reason and the checkpoint of the command,
//! and ends with the data, with the end of the time, or with that of the step.

use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::event::{
    AgentEvent, PersonEvent, RunEvent, StepEvent, SuspendRequested, SuspendResumed, TimerKind,
};
use ktsu_ledger::{CanonicalJson, Event, Frame, StreamId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::approvals::{ApprovalStatus, ApprovalVote, is_independent, request_id};
use crate::reviews::{deciding_roles, same_scope};
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
    /// Who gave the data: none, or one; `capability` is whoever had the step's link.
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
pub struct SuspensionHistory {
    records: Vec<SuspensionRecord>,
    proposer: String,
    /// The last outcome of each step, by scope and id.
    outcomes: HashMap<(String, String), CanonicalJson>,
    /// The commands that suspend steps, by the frame that records them: their place in the outcome.
    commands: HashMap<u64, u32>,
}

impl SuspensionHistory {
    /// The suspensions of these frames, in the order they were asked for.
    pub fn fold<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Vec<SuspensionRecord> {
        let mut history = Self::default();
        for frame in frames {
            history.apply(frame);
        }
        history.records
    }

    fn apply(&mut self, frame: &Frame) {
        if let Some(created) = frame.event.created() {
            self.proposer.clone_from(&created.principal.id);
        }
        match &frame.event {
            Event::Agent(AgentEvent::Finished(end)) if end.item.is_none() => {
                let key = (frame.scope.clone(), end.step.clone());
                self.outcomes.insert(key, end.outcome.clone());
            }
            Event::Step(StepEvent::Commanded(command)) => {
                self.commands.insert(frame.seq, command.index);
            }
            Event::Step(StepEvent::SuspendRequested(asked)) => self.ask(frame, asked),
            Event::Step(
                StepEvent::Completed(_)
                | StepEvent::Failed(_)
                | StepEvent::Skipped(_)
                | StepEvent::Reset(_),
            ) => {
                let step = frame.event.task().map(|(step, _)| step.to_owned());
                self.close(frame, step.as_deref(), ApprovalStatus::Void);
            }
            Event::Person(PersonEvent::SuspendResumed(resumed)) => self.resume(frame, resumed),
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::Suspend => {
                self.close(frame, fired.step.as_deref(), ApprovalStatus::Timeout);
            }
            Event::Run(RunEvent::Branched(branch)) => {
                self.proposer.clone_from(&branch.by.id);
                self.close(frame, None, ApprovalStatus::Void);
            }
            Event::Run(RunEvent::ClockJumped(jumped)) => self.postpone(jumped.forward_ms),
            Event::Run(RunEvent::Paused(_)) => self.pause(Some(frame.at)),
            Event::Run(RunEvent::Resumed(resumed)) => {
                self.pause(None);
                self.postpone(resumed.paused_ms);
            }
            Event::Run(_)
            | Event::Recompute(_)
            | Event::Step(_)
            | Event::Item(_)
            | Event::Agent(_)
            | Event::Worker(_)
            | Event::Webhook(_)
            | Event::Person(_)
            | Event::World(_)
            | Event::Kv(_)
            | Event::Delivery(_)
            | Event::Store(_)
            | Event::Foreign { .. } => {}
        }
    }

    fn ask(&mut self, frame: &Frame, asked: &SuspendRequested) {
        let key = (frame.scope.clone(), asked.step.clone());
        let index = self.commands.get(&asked.command).copied();
        let command = index
            .zip(self.outcomes.get(&key))
            .and_then(|(at, outcome)| outcome.pointer(&format!("/commands/{at}")));
        let command = command.unwrap_or_default();
        let policy = &asked.policy;
        self.records.push(SuspensionRecord {
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
            proposer: self.proposer.clone(),
            attempt: asked.attempt,
            votes: Vec::new(),
            data: Value::Null,
            request: frame.seq,
        });
    }

    fn resume(&mut self, frame: &Frame, resumed: &SuspendResumed) {
        let mut records = self.records.iter_mut();
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

    /// Ends the suspensions that are pending: of a step of the frame's scope, or all.
    fn close(&mut self, frame: &Frame, step: Option<&str>, status: ApprovalStatus) {
        let run = scoped_run(frame.stream.name(), &frame.scope);
        for record in &mut self.records {
            let own = |step: &str| record.step_id == step && same_scope(&record.run_id, &run);
            if step.is_none_or(own) {
                record.close(status, frame.at);
            }
        }
    }

    /// Notes since when the run is paused, if it is.
    fn pause(&mut self, at: Option<Timestamp>) {
        for record in &mut self.records {
            if record.status == ApprovalStatus::Pending {
                record.paused_at = at;
            }
        }
    }

    fn postpone(&mut self, by_ms: Option<u64>) {
        for record in &mut self.records {
            if record.status == ApprovalStatus::Pending {
                record.expires_at = record.expires_at.plus_millis(by_ms.unwrap_or_default());
            }
        }
    }
}

impl SuspensionRecord {
    fn close(&mut self, status: ApprovalStatus, at: Timestamp) {
        if self.status == ApprovalStatus::Pending {
            self.status = status;
            self.paused_at = None;
            self.ended_at = Some(at);
        }
    }
}

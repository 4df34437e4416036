//! Reviews of outcomes as people see them: what is asked, by when, and what was decided (seed 004;
//! decision P3).
//!
//! A record begins with `review.requested`. It contains what people saw (the provisional output, the
//! reason and the payload of the command, and which other commands wait for it) and each decision.

use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::event::{
    AgentEvent, PersonEvent, ReviewDecided, ReviewDecision, ReviewRequested, RunEvent, StepEvent,
    TimerKind,
};
use ktsu_ledger::{CanonicalJson, Event, Frame, StreamId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::approvals::{ApprovalStatus, ApprovalVote, is_independent, request_id};
use crate::run::task::output_without_reserved_fields;
use crate::step_name::scoped_run;

/// A question to people about the outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReviewRecord {
    /// `rev_…`.
    pub review_id: String,
    /// `review`.
    pub kind: String,
    /// `run_…` or `branch_…`; with the path of an inline child behind it.
    pub run_id: String,
    /// The step.
    pub step_id: String,
    /// Why its agent asks.
    pub reason: String,
    /// What its agent shows besides its output.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub payload: Value,
    /// The provisional output: no step sees it before it is approved.
    #[schema(value_type = Object)]
    pub output: Value,
    /// The other commands of the outcome, as it has them: they are carried out once it is approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub deferred: Vec<Value>,
    /// How long a decision may take, in milliseconds.
    pub timeout_ms: u64,
    /// `fail` or `reject`.
    pub timeout_behavior: String,
    /// How many people have to approve.
    pub quorum: u32,
    /// Whether the proposer may not approve.
    pub not_by_proposer: bool,
    /// The roles of which a person who decides needs one.
    pub roles: Vec<String>,
    /// `pending`, `approved`, `rejected`, `timeout` or `void`.
    #[schema(value_type = String)]
    pub status: ApprovalStatus,
    /// When it was asked.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// Until when a decision is waited for.
    #[schema(value_type = String)]
    pub expires_at: Timestamp,
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
    /// The fields of the output that they replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object)]
    pub overlay: BTreeMap<String, Value>,
    /// The frame that asks.
    pub request: u64,
}

/// The roles that decide on reviews where the policy names none.
const DEFAULT_ROLES: [&str; 2] = ["approver", "admin"];

/// The roles of which a person who decides on an outcome, or gives data, needs one: those that a policy
/// names, or those that decide on tool calls.
pub fn deciding_roles(named: &[String]) -> Vec<String> {
    match named.is_empty() {
        true => DEFAULT_ROLES.map(str::to_owned).to_vec(),
        false => named.to_vec(),
    }
}

/// What the names of reviews begin with.
const PREFIX: &str = "rev_";

/// The name of a review: of the stream and the frame that asks.
pub fn review_id(stream: &StreamId, request: u64) -> String {
    request_id(PREFIX, stream, request)
}

/// Whether an id is that of a review.
pub fn is_review_id(id: &str) -> bool {
    id.starts_with(PREFIX)
}

/// The reviews of a run.
#[derive(Debug, Default)]
pub struct ReviewHistory {
    records: Vec<ReviewRecord>,
    proposer: String,
    /// The last outcome of each step, by scope and id.
    outcomes: HashMap<(String, String), CanonicalJson>,
    /// The commands that ask for reviews, by the frame that records them: their place in the outcome.
    commands: HashMap<u64, u32>,
}

impl ReviewHistory {
    /// The reviews of these frames, in the order they were asked for.
    pub fn fold<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Vec<ReviewRecord> {
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
            Event::Step(StepEvent::ReviewRequested(asked)) => self.ask(frame, asked),
            Event::Step(
                StepEvent::Completed(_)
                | StepEvent::Failed(_)
                | StepEvent::Skipped(_)
                | StepEvent::Reset(_),
            ) => {
                let step = frame.event.task().map(|(step, _)| step.to_owned());
                self.close(frame, step.as_deref(), ApprovalStatus::Void);
            }
            Event::Person(PersonEvent::ReviewDecided(decided)) => self.vote(frame, decided),
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::Review => {
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

    fn ask(&mut self, frame: &Frame, asked: &ReviewRequested) {
        let key = (frame.scope.clone(), asked.step.clone());
        let outcome = self.outcomes.get(&key).cloned().unwrap_or_default();
        let commands = outcome.pointer("/commands").unwrap_or_default();
        let commands = commands.as_array().map_or(&[][..], Vec::as_slice);
        let own = self.commands.get(&asked.command).copied();
        let own = own.map_or(usize::MAX, |own| own as usize);
        let command = commands.get(own);
        let others = commands.iter().enumerate().filter(|(at, _)| *at != own);
        let policy = &asked.policy;
        self.records.push(ReviewRecord {
            review_id: review_id(&frame.stream, frame.seq),
            kind: "review".to_owned(),
            run_id: scoped_run(frame.stream.name(), &frame.scope),
            step_id: asked.step.clone(),
            reason: command
                .and_then(|command| command["reason"].as_str())
                .unwrap_or_default()
                .to_owned(),
            payload: command.map_or(Value::Null, |command| command["payload"].clone()),
            output: output_without_reserved_fields(&outcome)
                .map_or(Value::Null, |output| output.to_value()),
            deferred: others.map(|(_, one)| one.clone()).collect(),
            timeout_ms: policy.timeout.ms,
            timeout_behavior: policy.timeout.behavior.as_str().to_owned(),
            quorum: policy.quorum,
            not_by_proposer: policy.not_by_proposer,
            roles: deciding_roles(&policy.roles),
            status: ApprovalStatus::Pending,
            created_at: frame.at,
            expires_at: frame.at.plus_millis(policy.timeout.ms),
            paused_at: None,
            decided_at: None,
            proposer: self.proposer.clone(),
            votes: Vec::new(),
            overlay: BTreeMap::new(),
            request: frame.seq,
        });
    }

    fn vote(&mut self, frame: &Frame, decided: &ReviewDecided) {
        let mut records = self.records.iter_mut();
        let Some(record) = records.find(|record| record.request == decided.request) else {
            return;
        };
        let overlay = decided.overlay.iter();
        let overlay = overlay.map(|(field, value)| (field.clone(), value.to_value()));
        record.votes.push(ApprovalVote {
            by: decided.by.id.clone(),
            auth: decided.by.auth.clone(),
            decision: decided.decision.as_str().to_owned(),
            at: frame.at,
            reason: decided.reason.clone(),
            result: None,
            overlay: overlay.clone().collect(),
            independent: is_independent(&decided.by, &record.proposer),
            frame: frame.seq,
        });
        record.overlay.extend(overlay);
        let status = match decided.decision {
            ReviewDecision::Rejected => ApprovalStatus::Rejected,
            ReviewDecision::Approved if record.votes.len() < record.quorum.max(1) as usize => {
                return;
            }
            ReviewDecision::Approved => ApprovalStatus::Approved,
        };
        record.close(status, frame.at);
    }

    /// Ends the reviews that are pending: of a step of the frame's scope, or all.
    fn close(&mut self, frame: &Frame, step: Option<&str>, status: ApprovalStatus) {
        let run = scoped_run(frame.stream.name(), &frame.scope);
        for record in &mut self.records {
            let own = |step: &str| record.step_id == step && same_scope(&record.run_id, &run);
            if step.is_none_or(own) {
                record.close(status, frame.at);
            }
        }
    }

    fn pause(&mut self, at: Option<Timestamp>) {
        let records = self.records.iter_mut();
        let pending = records.filter(|record| record.status == ApprovalStatus::Pending);
        pending.for_each(|record| record.paused_at = at);
    }

    fn postpone(&mut self, by_ms: Option<u64>) {
        for record in &mut self.records {
            if record.status == ApprovalStatus::Pending {
                record.expires_at = record.expires_at.plus_millis(by_ms.unwrap_or_default());
            }
        }
    }
}

/// Whether two places are the same within a run, whichever of its branches they name.
pub(crate) fn same_scope(one: &str, other: &str) -> bool {
    let scope = |run: &str| run.split_once('/').map(|(_, scope)| scope.to_owned());
    scope(one) == scope(other)
}

impl ReviewRecord {
    fn close(&mut self, status: ApprovalStatus, at: Timestamp) {
        if self.status == ApprovalStatus::Pending {
            self.status = status;
            self.paused_at = None;
            self.decided_at = Some(at);
        }
    }
}

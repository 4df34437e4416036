//! Reviews of outcomes as people see them: what is asked, by when, and what was decided (seed 004;
//! decision P3).
//!
//! A record begins with `review.requested`. It contains what people saw (the provisional output, the
//! reason and the payload of the command, and which other commands wait for it) and each decision.

use std::collections::BTreeMap;

use ktsu_ledger::event::ReviewRequested;
use ktsu_ledger::{Frame, StreamId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::asked_records::{ApprovalStatus, ApprovalVote, AskedRecord, Basis, Wait, request_id};
use crate::life::task::output_without_reserved_fields;
use crate::life::{Given, PersonAnswer};
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

/// The prefix of the names of reviews.
const PREFIX: &str = "rev_";

/// The name of a review: of the stream and the frame that asks.
pub fn review_id(stream: &StreamId, request: u64) -> String {
    request_id(PREFIX, stream, request)
}

/// Returns `true` if an id is that of a review.
pub fn is_review_id(id: &str) -> bool {
    id.starts_with(PREFIX)
}

impl ReviewRecord {
    /// The record of a question that begins at a frame.
    pub(crate) fn of(basis: Basis<'_>, frame: &Frame, asked: &ReviewRequested) -> Self {
        let outcome = basis.outcome;
        let commands = outcome.pointer("/commands").unwrap_or_default();
        let commands = commands.as_array().map_or(&[][..], Vec::as_slice);
        let own = basis.index.map_or(usize::MAX, |own| own as usize);
        let command = commands.get(own);
        let others = commands.iter().enumerate().filter(|(at, _)| *at != own);
        let policy = &asked.policy;
        Self {
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
            proposer: basis.proposer.to_owned(),
            votes: Vec::new(),
            overlay: BTreeMap::new(),
            request: frame.seq,
        }
    }

    /// Takes what a person says, and what they replaced.
    pub(crate) fn take_answer(&mut self, frame: &Frame, answer: &PersonAnswer<'_>) {
        if self.answer(frame, answer)
            && let Given::Review(_, overlay) = answer.given
        {
            let overlay = overlay.iter();
            let overlay = overlay.map(|(field, value)| (field.clone(), value.to_value()));
            self.overlay.extend(overlay);
        }
    }
}

impl AskedRecord for ReviewRecord {
    fn wait(&mut self) -> Wait<'_> {
        Wait {
            status: &mut self.status,
            votes: &mut self.votes,
            expires_at: Some(&mut self.expires_at),
            paused_at: &mut self.paused_at,
            ended_at: &mut self.decided_at,
            proposer: &self.proposer,
            quorum: self.quorum,
        }
    }
}

//! Who approved what: one record a call that people were asked about (seed 000, invariant 34;
//! decision A1).
//!
//! A record begins with `approval.requested`, or with a `tool.in_doubt` that waits for a person. It
//! says what they saw (the arguments and their digest), what each of them said and how it is known
//! who they are, and whether the call was made.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::{ApprovalPolicy, OnReject};
use ktsu_ledger::event::{
    AgentEvent, ApprovalDecided, Decision, DoubtReason, Principal, RunEvent, StepEvent, ToolCalled,
};
use ktsu_ledger::{CanonicalJson, Event, Frame, Hash, StreamId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::lineage::item_name;

/// A call that people were asked about.
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
    /// Whether whoever started the run may not approve.
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
    /// When it was decided, or ended without a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub decided_at: Option<Timestamp>,
    /// Who started what asks.
    pub proposer: String,
    /// What people said, in order.
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

/// What a person said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalVote {
    /// Who.
    pub by: String,
    /// How it is known who that is: `none` where nobody was asked.
    pub auth: String,
    /// `approved`, `rejected` or `happened`.
    pub decision: String,
    /// When.
    #[schema(value_type = String)]
    pub at: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a call that happened: what it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Whether it is somebody else who started the run, and known by a token.
    pub independent: bool,
    /// The frame.
    pub frame: u64,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// Whether a call may be made.
    Approval,
    /// What became of one that may have been made.
    InDoubt,
}

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStatus {
    /// It waits for people.
    Pending,
    /// Enough of them approved.
    Approved,
    /// One rejected it.
    Rejected,
    /// One says that it happened.
    Happened,
    /// Nobody decided in time.
    Timeout,
    /// Its task ended, or began again, before anybody decided.
    Void,
}

impl ApprovalStatus {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Happened => "happened",
            Self::Timeout => "timeout",
            Self::Void => "void",
        }
    }
}

/// Why an approved call was not made.
const STEP_ENDED: &str = "step_ended";

/// The name of a record: of the stream and the frame that asks.
pub fn approval_id(stream: &StreamId, request: u64) -> String {
    let hash = Hash::of(format!("{stream}#{request}").as_bytes()).to_string();
    let short: String = hash.chars().take(16).collect();
    format!("apr_{short}")
}

/// The fold behind the records of a run.
#[derive(Debug, Clone, Default)]
pub struct Approvals {
    records: Vec<ApprovalRecord>,
    proposer: String,
    /// What replies ask for, by their frames.
    requested_calls: BTreeMap<u64, CanonicalJson>,
    calls: BTreeMap<u64, ToolCalled>,
    /// The reply and the call that a `tool.in_doubt` is about.
    doubts: BTreeMap<u64, (u64, u32)>,
}

impl Approvals {
    /// The records of a run, in the order they were asked.
    pub fn fold<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Vec<ApprovalRecord> {
        let mut fold = Self::default();
        for frame in frames {
            fold.apply(frame);
        }
        fold.records
    }

    /// Takes a frame.
    pub fn apply(&mut self, frame: &Frame) {
        if let Some(created) = frame.event.created() {
            self.proposer.clone_from(&created.principal.id);
        }
        match &frame.event {
            Event::Run(RunEvent::Branched(branch)) => {
                self.proposer.clone_from(&branch.by.id);
                self.void_pending(frame, |_| true);
            }
            Event::Step(StepEvent::Reset(reset)) => {
                self.void_pending(frame, |step| step == reset.step);
            }
            Event::Agent(event) => self.apply_agent(frame, event),
            Event::Run(RunEvent::ClockJumped(jumped)) => {
                self.postpone(jumped.forward_ms.unwrap_or_default());
            }
            Event::Run(RunEvent::Resumed(resumed)) => {
                self.postpone(resumed.paused_ms.unwrap_or_default());
            }
            Event::Run(_)
            | Event::Recompute(_)
            | Event::Step(_)
            | Event::Item(_)
            | Event::Worker(_)
            | Event::Webhook(_)
            | Event::Person(_)
            | Event::Kv(_)
            | Event::Store(_)
            | Event::Foreign { .. } => {}
        }
    }

    /// Everybody who is asked has as much more time.
    fn postpone(&mut self, by_ms: u64) {
        let pending = |record: &&mut ApprovalRecord| record.status == ApprovalStatus::Pending;
        for record in self.records.iter_mut().filter(pending) {
            let until = record.expires_at;
            record.expires_at = until.map(|until| until.plus_millis(by_ms));
        }
    }

    fn apply_agent(&mut self, frame: &Frame, event: &AgentEvent) {
        match event {
            AgentEvent::Response(answer) => {
                if let Some(calls) = &answer.tool_calls {
                    self.requested_calls.insert(frame.seq, calls.clone());
                }
            }
            AgentEvent::ApprovalRequested(asked) => {
                let place = (asked.response, asked.call);
                let name = item_name(&asked.step, asked.item);
                let record = self.record(frame, ApprovalKind::Approval, name, place, &asked.policy);
                self.records.push(ApprovalRecord {
                    server: asked.server.clone(),
                    tool_name: asked.tool.clone(),
                    digest: asked.digest.clone(),
                    ..record
                });
            }
            AgentEvent::ToolCalled(called) => {
                let place = (called.response, called.call);
                if let Some(approval) = called.approval {
                    self.mark_executed(approval, frame.seq);
                }
                if let (Some(_), Some(doubt)) = (called.again, self.resolved_doubt(place)) {
                    self.mark_executed(doubt, frame.seq);
                }
                self.calls.insert(frame.seq, (**called).clone());
            }
            AgentEvent::ToolInDoubt(doubt) if doubt.reason != DoubtReason::TaskEnded => {
                let Some(called) = self.calls.get(&doubt.called).cloned() else {
                    return;
                };
                let policy = ApprovalPolicy {
                    not_by_proposer: false,
                    on_reject: OnReject::Fail,
                    quorum: 1,
                    timeout: None,
                };
                let place = (called.response, called.call);
                self.doubts.insert(frame.seq, place);
                let name = item_name(&doubt.step, doubt.item);
                let record = self.record(frame, ApprovalKind::InDoubt, name, place, &policy);
                self.records.push(ApprovalRecord {
                    server: called.server.clone(),
                    tool_name: called.tool.clone(),
                    digest: called.digest.clone(),
                    ..record
                });
            }
            AgentEvent::ApprovalDecided(decided) => self.record_vote(frame, decided),
            AgentEvent::ApprovalExpired(expired) => {
                if let Some(record) = self.pending(expired.request) {
                    record.status = ApprovalStatus::Timeout;
                    record.decided_at = Some(frame.at);
                }
            }
            AgentEvent::Finished(finished) => {
                let name = item_name(&finished.step, finished.item);
                self.void_pending(frame, |step| step == name);
            }
            AgentEvent::Request(_)
            | AgentEvent::Decided(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::BudgetExhausted(_)
            | AgentEvent::ToolReturned(_)
            | AgentEvent::ToolInDoubt(_) => {}
        }
    }

    fn record(
        &self,
        frame: &Frame,
        kind: ApprovalKind,
        step_id: String,
        (response, call): (u64, u32),
        policy: &ApprovalPolicy,
    ) -> ApprovalRecord {
        let asked = self
            .requested_calls
            .get(&response)
            .map(CanonicalJson::to_value);
        let wanted = asked.and_then(|mut calls| Some(calls.get_mut(call as usize)?.take()));
        let mut wanted = wanted.unwrap_or_default();
        let timeout = policy.timeout.as_ref();
        let run_id = match frame.scope.as_str() {
            "" => frame.stream.name().to_owned(),
            scope => format!("{}/{scope}", frame.stream.name()),
        };
        ApprovalRecord {
            approval_id: approval_id(&frame.stream, frame.seq),
            kind,
            run_id,
            step_id,
            server: String::new(),
            tool_name: String::new(),
            tool_use_id: wanted["id"].as_str().unwrap_or_default().to_owned(),
            arguments: wanted["arguments"].take(),
            digest: String::new(),
            on_reject: policy.on_reject.as_str().to_owned(),
            timeout_ms: timeout.map_or(0, |timeout| timeout.ms),
            timeout_behavior: timeout.map(|timeout| timeout.behavior.as_str().to_owned()),
            quorum: policy.quorum,
            not_by_proposer: policy.not_by_proposer,
            status: ApprovalStatus::Pending,
            created_at: frame.at,
            expires_at: timeout.map(|timeout| frame.at.plus_millis(timeout.ms)),
            decided_at: None,
            proposer: self.proposer.clone(),
            votes: Vec::new(),
            request: frame.seq,
            executed: None,
            not_called: None,
            pending: Vec::new(),
        }
    }

    fn record_vote(&mut self, frame: &Frame, decided: &ApprovalDecided) {
        let proposer = self.proposer.clone();
        let Some(record) = self.pending(decided.request) else {
            return;
        };
        record.votes.push(ApprovalVote {
            by: decided.by.id.clone(),
            auth: decided.by.auth.clone(),
            decision: decided.decision.as_str().to_owned(),
            at: frame.at,
            reason: decided.reason.clone(),
            result: decided.result.clone(),
            independent: is_independent(&decided.by, &proposer),
            frame: frame.seq,
        });
        let approvals = record.votes.len();
        let status = match decided.decision {
            Decision::Approved if approvals < record.quorum.max(1) as usize => return,
            Decision::Approved => ApprovalStatus::Approved,
            Decision::Rejected => ApprovalStatus::Rejected,
            Decision::Happened => ApprovalStatus::Happened,
        };
        record.status = status;
        record.decided_at = Some(frame.at);
    }

    fn pending(&mut self, request: u64) -> Option<&mut ApprovalRecord> {
        let mut records = self.records.iter_mut();
        records.find(|record| record.request == request && record.status == ApprovalStatus::Pending)
    }

    /// The doubt about a call that somebody settled by having it sent again, which has not happened
    /// yet.
    fn resolved_doubt(&self, place: (u64, u32)) -> Option<u64> {
        let about = |request| self.doubts.get(&request) == Some(&place);
        let mut records = self.records.iter();
        let found = records.find(|record| {
            about(record.request)
                && record.status == ApprovalStatus::Approved
                && record.executed.is_none()
        });
        found.map(|record| record.request)
    }

    fn mark_executed(&mut self, approval: u64, called: u64) {
        let mut records = self.records.iter_mut();
        if let Some(record) = records.find(|record| record.request == approval) {
            record.executed = record.executed.or(Some(called));
        }
    }

    /// What waits in a scope, at steps that hold, waits no more.
    fn void_pending(&mut self, frame: &Frame, holds: impl Fn(&str) -> bool) {
        let scope = &frame.scope;
        for record in &mut self.records {
            let there = record.run_id.split_once('/').map_or("", |(_, scope)| scope);
            let step = record.step_id.as_str();
            let here =
                there == scope && (holds(step) || step.split('.').next().is_some_and(&holds));
            let within = matches!(frame.event, Event::Run(_));
            if record.status == ApprovalStatus::Pending && (here || within) {
                record.status = ApprovalStatus::Void;
                record.decided_at = Some(frame.at);
            }
            let approved = record.status == ApprovalStatus::Approved && record.executed.is_none();
            if approved && here && !within {
                record.not_called = Some(STEP_ENDED.to_owned());
            }
        }
    }
}

/// Whether somebody else decided than the one who started the run, and showed who they are.
fn is_independent(by: &Principal, proposer: &str) -> bool {
    by.id != proposer && by.auth != "none"
}

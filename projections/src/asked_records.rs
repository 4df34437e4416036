//! The common parts of all records of questions to people: how long they wait, what is answered,
//! and when the wait ends.

use std::collections::BTreeMap;

use ktsu_ledger::event::{Decision, Principal, ReviewDecision};
use ktsu_ledger::{CanonicalJson, Frame, Hash, StreamId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::life::{Change, Given, PersonAnswer};

/// The status of a record.
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
    /// The data that a step waited for are there.
    Resumed,
    /// The time to decide passed.
    Timeout,
    /// Its task ended, or began again, before a decision.
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
            Self::Resumed => "resumed",
            Self::Timeout => "timeout",
            Self::Void => "void",
        }
    }
}

/// One person's decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalVote {
    /// Who.
    pub by: String,
    /// How the person was authenticated: `none` without authentication.
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
    /// Of an outcome that is approved: the fields of the output that the person replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object)]
    pub overlay: BTreeMap<String, Value>,
    /// Whether the person did not start the run, and was authenticated by a token.
    pub independent: bool,
    /// The frame.
    pub frame: u64,
}

/// The basis of a question of a step.
pub(crate) struct Basis<'b> {
    /// The outcome that asks.
    pub(crate) outcome: CanonicalJson,
    /// The place of the command among those of the outcome.
    pub(crate) index: Option<u32>,
    /// The person who started the run, or the branch.
    pub(crate) proposer: &'b str,
}

/// A record of something that people are asked.
pub(crate) trait AskedRecord {
    /// The parts that change while it waits, and with its end.
    fn wait(&mut self) -> Wait<'_>;

    /// Takes what a person says. Returns whether it still waited.
    fn answer(&mut self, frame: &Frame, answer: &PersonAnswer<'_>) -> bool {
        let wait = self.wait();
        let waits = *wait.status == ApprovalStatus::Pending;
        if waits {
            wait.votes.push(vote(frame, answer, wait.proposer));
            if let Some(status) = status(answer.given, wait.votes.len(), wait.quorum) {
                wait.close(status, frame.at);
            }
        }
        waits
    }

    /// Follows what a frame changes for everything that waits for people.
    fn follow(&mut self, change: &Change<'_>, at: Timestamp) {
        let wait = self.wait();
        if *wait.status != ApprovalStatus::Pending {
            return;
        }
        if let Change::Forked(_) = change {
            wait.close(ApprovalStatus::Void, at);
        } else if let Change::DeadlinesMoved(by_ms, _) = change {
            if let Some(until) = wait.expires_at {
                *until = until.plus_millis(*by_ms);
            }
        } else if let Change::Paused(_) = change {
            *wait.paused_at = Some(at);
        } else if let Change::Resumed(_) = change {
            *wait.paused_at = None;
        }
    }
}

/// The parts of a record that change.
pub(crate) struct Wait<'r> {
    pub(crate) status: &'r mut ApprovalStatus,
    pub(crate) votes: &'r mut Vec<ApprovalVote>,
    pub(crate) expires_at: Option<&'r mut Timestamp>,
    pub(crate) paused_at: &'r mut Option<Timestamp>,
    pub(crate) ended_at: &'r mut Option<Timestamp>,
    pub(crate) proposer: &'r str,
    pub(crate) quorum: u32,
}

impl Wait<'_> {
    /// Ends the wait, if it is still on.
    pub(crate) fn close(self, status: ApprovalStatus, at: Timestamp) {
        if *self.status == ApprovalStatus::Pending {
            *self.status = status;
            *self.paused_at = None;
            *self.ended_at = Some(at);
        }
    }
}

/// The status that the last of so many answers leads to, if it ends the wait.
fn status(given: Given<'_>, answers: usize, quorum: u32) -> Option<ApprovalStatus> {
    let approves = |enough: bool| enough.then_some(ApprovalStatus::Approved);
    let enough = answers >= quorum.max(1) as usize;
    match given {
        Given::Decision(Decision::Approved, _) => approves(enough),
        Given::Review(ReviewDecision::Approved, _) => approves(enough),
        Given::Decision(Decision::Rejected, _) | Given::Review(ReviewDecision::Rejected, _) => {
            Some(ApprovalStatus::Rejected)
        }
        Given::Decision(Decision::Happened, _) => Some(ApprovalStatus::Happened),
        Given::Data(_) => Some(ApprovalStatus::Resumed),
    }
}

fn vote(frame: &Frame, answer: &PersonAnswer<'_>, proposer: &str) -> ApprovalVote {
    let (decision, result, overlay) = match answer.given {
        Given::Decision(decision, result) => (decision.as_str(), result, BTreeMap::new()),
        Given::Review(decision, overlay) => {
            let overlay = overlay.iter();
            let overlay = overlay.map(|(field, value)| (field.clone(), value.to_value()));
            (decision.as_str(), None, overlay.collect())
        }
        Given::Data(_) => (ApprovalStatus::Resumed.as_str(), None, BTreeMap::new()),
    };
    ApprovalVote {
        by: answer.by.id.clone(),
        auth: answer.by.auth.clone(),
        decision: decision.to_owned(),
        at: frame.at,
        reason: answer.reason.cloned(),
        result: result.cloned(),
        overlay,
        independent: is_independent(answer.by, proposer),
        frame: frame.seq,
    }
}

/// Returns `true` if another person decided than the one who started the run, and was
/// authenticated.
fn is_independent(by: &Principal, proposer: &str) -> bool {
    by.id != proposer && by.auth != "none"
}

/// The name of something that people are asked, with the prefix of its kind.
pub(crate) fn request_id(prefix: &str, stream: &StreamId, request: u64) -> String {
    let hash = Hash::of(format!("{stream}#{request}").as_bytes()).to_string();
    let short: String = hash.chars().take(16).collect();
    format!("{prefix}{short}")
}

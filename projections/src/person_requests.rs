//! The requests of a run to people: about calls of tools and outcomes of steps, and for data.

use ktsu_ledger::{Frame, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::approvals::{ApprovalKind, ApprovalRecord, ApprovalStatus, ApprovalVote};
use crate::calls::CallHistory;
use crate::life::QuestionKind;
use crate::reviews::ReviewRecord;
use crate::step_name::split_scope;
use crate::step_questions::StepQuestions;
use crate::suspensions::SuspensionRecord;

/// What people are asked: about a call of a tool, about the outcome of a step, or for data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum PersonRequest {
    /// Data that a step waits for.
    Suspension(Box<SuspensionRecord>),
    /// An outcome.
    Review(Box<ReviewRecord>),
    /// A call.
    Approval(Box<ApprovalRecord>),
}

/// The questions about outcomes in these frames, in the order they were asked.
pub fn reviews<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Vec<ReviewRecord> {
    StepQuestions::fold(frames).reviews
}

/// The data that steps ask for in these frames, in the order they were asked for.
pub fn suspensions<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Vec<SuspensionRecord> {
    StepQuestions::fold(frames).suspensions
}

/// The requests to people in these frames, pending and past, in order.
pub fn requests<'f>(frames: impl IntoIterator<Item = &'f Frame> + Clone) -> Vec<PersonRequest> {
    let calls = CallHistory::fold(frames.clone()).into_approvals();
    let calls = calls.into_iter().map(Box::new);
    let steps = StepQuestions::fold(frames);
    let reviews = steps.reviews.into_iter().map(Box::new);
    let waits = steps.suspensions.into_iter().map(Box::new);
    let mut all: Vec<PersonRequest> = calls
        .map(PersonRequest::Approval)
        .chain(reviews.map(PersonRequest::Review))
        .chain(waits.map(PersonRequest::Suspension))
        .collect();
    all.sort_by_key(PersonRequest::request);
    all
}

impl PersonRequest {
    /// `sus_…`, `rev_…` or `apr_…`.
    pub fn id(&self) -> &str {
        match self {
            Self::Suspension(suspension) => &suspension.suspend_id,
            Self::Review(review) => &review.review_id,
            Self::Approval(approval) => &approval.approval_id,
        }
    }

    /// The run, with the path of an inline child behind it.
    pub fn run_id(&self) -> &str {
        match self {
            Self::Suspension(suspension) => &suspension.run_id,
            Self::Review(review) => &review.run_id,
            Self::Approval(approval) => &approval.run_id,
        }
    }

    /// The path of the inline child that its step is in; empty for the run itself.
    pub fn scope(&self) -> &str {
        split_scope(self.run_id()).1
    }

    /// The step; for an item `STEP.INDEX`.
    pub fn step_id(&self) -> &str {
        match self {
            Self::Suspension(suspension) => &suspension.step_id,
            Self::Review(review) => &review.step_id,
            Self::Approval(approval) => &approval.step_id,
        }
    }

    /// The status of the request.
    pub fn status(&self) -> ApprovalStatus {
        match self {
            Self::Suspension(suspension) => suspension.status,
            Self::Review(review) => review.status,
            Self::Approval(approval) => approval.status,
        }
    }

    /// The time at which it was asked.
    pub fn created_at(&self) -> Timestamp {
        match self {
            Self::Suspension(suspension) => suspension.created_at,
            Self::Review(review) => review.created_at,
            Self::Approval(approval) => approval.created_at,
        }
    }

    /// The time at which it was decided, or ended without a decision.
    pub fn ended_at(&self) -> Option<Timestamp> {
        match self {
            Self::Suspension(suspension) => suspension.ended_at,
            Self::Review(review) => review.decided_at,
            Self::Approval(approval) => approval.decided_at,
        }
    }

    /// The kind of question.
    pub fn kind(&self) -> QuestionKind {
        match self {
            Self::Suspension(_) => QuestionKind::Suspension,
            Self::Review(_) => QuestionKind::Review,
            Self::Approval(approval) => match approval.kind {
                ApprovalKind::Approval => QuestionKind::Approval,
                ApprovalKind::InDoubt => QuestionKind::InDoubt,
            },
        }
    }

    /// Their decisions, in order.
    pub fn votes(&self) -> &[ApprovalVote] {
        match self {
            Self::Suspension(suspension) => &suspension.votes,
            Self::Review(review) => &review.votes,
            Self::Approval(approval) => &approval.votes,
        }
    }

    /// Number of people who have to approve.
    pub fn quorum(&self) -> u32 {
        match self {
            Self::Suspension(_) => 1,
            Self::Review(review) => review.quorum,
            Self::Approval(approval) => approval.quorum,
        }
    }

    /// Until when a decision is waited for.
    pub fn expires_at(&self) -> Option<Timestamp> {
        match self {
            Self::Suspension(suspension) => Some(suspension.expires_at),
            Self::Review(review) => Some(review.expires_at),
            Self::Approval(approval) => approval.expires_at,
        }
    }

    /// Since when its run is paused.
    pub fn paused_at(&self) -> Option<Timestamp> {
        match self {
            Self::Suspension(suspension) => suspension.paused_at,
            Self::Review(review) => review.paused_at,
            Self::Approval(approval) => approval.paused_at,
        }
    }

    /// The subject of the request, for people: the tool, or the step.
    pub fn about(&self) -> &str {
        match self {
            Self::Suspension(suspension) => &suspension.step_id,
            Self::Review(review) => &review.step_id,
            Self::Approval(approval) => &approval.tool_name,
        }
    }

    /// The route of the engine by which it is answered.
    pub fn decide_path(&self) -> String {
        let what = match self {
            Self::Suspension(_) => "resume",
            Self::Review(_) => "review/decide",
            Self::Approval(_) => "approval/decide",
        };
        let run = self.run_id().replace('/', "%2F");
        format!("/runs/{run}/steps/{}/{what}", self.step_id())
    }

    /// The frame that asks.
    pub fn request(&self) -> u64 {
        match self {
            Self::Suspension(suspension) => suspension.request,
            Self::Review(review) => review.request,
            Self::Approval(approval) => approval.request,
        }
    }
}

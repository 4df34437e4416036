//! Reviews: an outcome that a person decides on before it counts (seed 004, command `review`).
//!
//! ```text
//! agent.finished ─▶ step.output_checked ─▶ command.requested {review} ─▶ command.deferred ─▶ review.requested
//! review.decided {approved} ─▶ command.requested … ─▶ note … ─▶ step.completed
//! review.decided {rejected} ─▶ command.discarded ─▶ step.failed {review_rejected}
//! timer.fired {review}      ─▶ step.failed {review_timed_out}
//! ```
//!
//! Until the decision the output is provisional: it has passed the air-lock, and no other step sees it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::ReviewPolicy;
use super::start::Principal;
use crate::canonical::CanonicalJson;

/// `command.deferred`: the other commands of an outcome wait for the one that blocks the step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandsDeferred {
    /// The task's attempt.
    pub attempt: u32,
    /// Their positions among the commands of the outcome, ascending.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub indexes: Vec<u32>,
    /// The `command.requested` that they wait for.
    pub request: u64,
    /// The step.
    pub step: String,
}

/// `command.discarded`: commands of an outcome that will not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandsDiscarded {
    /// The task's attempt.
    pub attempt: u32,
    /// The frame that discards them: a `review.decided`, a `timer.fired`, or the `command.requested` of
    /// a suspension.
    pub decision: u64,
    /// Their positions among the commands of the outcome, ascending.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub indexes: Vec<u32>,
    /// The step.
    pub step: String,
}

/// `review.requested`: people are asked about the outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewRequested {
    /// The task's attempt.
    pub attempt: u32,
    /// The `command.requested` of the review: it names the place of its reason and payload.
    pub command: u64,
    /// The policy in the definition.
    pub policy: ReviewPolicy,
    /// The step.
    pub step: String,
}

/// A person's decision about an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReviewDecision {
    /// It counts.
    Approved,
    /// It does not, and its step fails.
    Rejected,
}

impl ReviewDecision {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        }
    }
}

/// `review.decided`. If a policy requires several people, the decision of one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewDecided {
    /// The attempt that asks.
    pub attempt: u32,
    /// The person who decided, and how that is known.
    pub by: Principal,
    /// The decision.
    pub decision: ReviewDecision,
    /// Top-level fields of the output that the person replaces, if the decision approves. They hold
    /// from `step.completed` on, like those of `overlay.set`.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub overlay: BTreeMap<String, CanonicalJson>,
    /// The reason, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The `review.requested`.
    pub request: u64,
    /// The step.
    pub step: String,
}

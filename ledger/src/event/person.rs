//! Interventions of people in recorded runs (seed 004).

use serde::{Deserialize, Serialize};

use super::review::ReviewDecided;
use super::start::Principal;
use super::suspend::SuspendResumed;
use crate::canonical::CanonicalJson;

/// A person's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersonEvent {
    /// `overlay.set` (input): replaces one field of a step's output for everything that follows.
    /// Refused unless the step is complete. Never written by steps or by a recompute.
    OverlaySet(OverlaySet),
    /// `review.decided` (input): what a person decides about the outcome of a step. Refused unless it
    /// is asked for.
    ReviewDecided(Box<ReviewDecided>),
    /// `suspend.resumed` (input): the data that a step waits for. Refused unless it waits for them.
    SuspendResumed(Box<SuspendResumed>),
}

impl PersonEvent {
    /// The step this is about, in the frame's scope.
    pub fn step(&self) -> &str {
        match self {
            Self::OverlaySet(event) => &event.step,
            Self::ReviewDecided(event) => &event.step,
            Self::SuspendResumed(event) => &event.step,
        }
    }
}

/// `overlay.set`. The computed output stays where it is; effective is the computed output with
/// every overlaid field replaced (decision F2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlaySet {
    /// The principal that set it.
    pub by: Principal,
    /// The top-level field of the output.
    pub field: String,
    /// The reason.
    pub reason: String,
    /// The step.
    pub step: String,
    /// The value from now on.
    #[serde(default)]
    pub value: CanonicalJson,
}

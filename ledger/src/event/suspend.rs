//! Suspensions: a step that waits for data from outside (seed 004, command `suspend`).
//!
//! ```text
//! agent.finished ─▶ command.requested {suspend} ─▶ command.discarded ─▶ note … ─▶ suspend.requested
//! suspend.resumed         ─▶ step.reset ─▶ step.started (the next attempt)
//! timer.fired {suspend}   ─▶ step.failed {suspend_timed_out}
//! ```
//!
//! The outcome has no output that counts: the step runs again once the data are there.

use serde::{Deserialize, Serialize};

use super::plan::SuspendPolicy;
use super::start::Principal;
use crate::canonical::CanonicalJson;

/// `suspend.requested`: a step waits for data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendRequested {
    /// The task's attempt.
    pub attempt: u32,
    /// The `command.requested` of the suspension: it names the place of its reason and checkpoint.
    pub command: u64,
    /// The policy on who may give the data, and until when, as the definition has it. Its schema
    /// may be large.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "SuspendPolicy::is_empty"
    )]
    pub policy: SuspendPolicy,
    /// The step.
    pub step: String,
}

/// `suspend.resumed`: the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendResumed {
    /// The attempt that waits.
    pub attempt: u32,
    /// The person who gave the data, and how that is known. `capability` is the holder of the
    /// step's link.
    pub by: Principal,
    /// The data, as the step's schema allows them. Absent: null.
    #[serde(default, skip_serializing_if = "CanonicalJson::is_null")]
    pub data: CanonicalJson,
    /// The reason, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The `suspend.requested`.
    pub request: u64,
    /// The step.
    pub step: String,
}

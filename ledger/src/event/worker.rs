//! Events of the workers that run agents (seed 000, invariant 19; decision W3).
//!
//! `worker.dispatched` is durable before a runtime receives a task. A task whose worker is lost is
//! dispatched again as its next attempt, with its recorded frames.

use serde::{Deserialize, Serialize};

use super::Role;

/// A fact about a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerEvent {
    /// `worker.dispatched` (decision): a runtime is about to be given a task.
    Dispatched(WorkerDispatched),
    /// `worker.lost` (input): its worker is gone.
    Lost(WorkerLost),
}

impl WorkerEvent {
    /// See [`super::Event::role`].
    pub(super) fn role(&self) -> Role {
        match self {
            Self::Dispatched(_) => Role::Decision,
            Self::Lost(_) => Role::Input,
        }
    }

    /// The step this is about, in the frame's scope.
    pub fn step(&self) -> &str {
        match self {
            Self::Dispatched(event) => &event.step,
            Self::Lost(event) => &event.step,
        }
    }

    /// The item of a fan-out, counted from 0.
    pub fn item(&self) -> Option<u32> {
        match self {
            Self::Dispatched(event) => event.item,
            Self::Lost(event) => event.item,
        }
    }
}

/// `worker.dispatched`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerDispatched {
    /// Counted from 1; the token is valid only for this attempt (decision W1).
    pub attempt: u32,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
}

/// The sign that a worker was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostReason {
    /// No beat named the task for 15 seconds.
    Heartbeat,
    /// The runtime was started again and does not know the task.
    Instance,
    /// The runtime worked inside an orchestrator that ended; such losses are not counted.
    Restart,
}

/// `worker.lost`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLost {
    /// The attempt that was lost.
    pub attempt: u32,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The sign that it was lost.
    pub reason: LostReason,
    /// True if a runtime was alive then.
    pub runtime_alive: bool,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
}

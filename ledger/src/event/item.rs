//! Events of the items of a fan-out (seed 000, invariants 26 and 27; decision R4). All are
//! decisions.
//!
//! An item's life: `item.started` → `item.completed` | `item.failed`. The output of the step,
//! `{"results": […]}`, is a projection of these frames and is not stored in a frame of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::place::Reference;
use super::step::StepInput;
use crate::canonical::CanonicalJson;

/// A fact about an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemEvent {
    /// `item.started`: pending → running.
    Started(ItemStarted),
    /// `item.completed`: running → complete, or skipped by the agent.
    Completed(ItemCompleted),
    /// `item.failed`: running → failed.
    Failed(ItemFailed),
}

impl ItemEvent {
    /// The step this is about, in the frame's scope.
    pub fn step(&self) -> &str {
        match self {
            Self::Started(event) => &event.step,
            Self::Completed(event) => &event.step,
            Self::Failed(event) => &event.step,
        }
    }

    /// The item, counted from 0.
    pub fn item(&self) -> u32 {
        match self {
            Self::Started(event) => event.item,
            Self::Completed(event) => event.item,
            Self::Failed(event) => event.item,
        }
    }
}

/// `item.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemStarted {
    /// The inputs of the agent, by JSON pointer into the step's declaration, as in `step.started`.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub input: BTreeMap<String, StepInput>,
    /// Counted from 0.
    pub item: u32,
    /// The step.
    pub step: String,
}

/// `item.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCompleted {
    /// The task's attempt.
    pub attempt: u32,
    /// Counted from 0.
    pub item: u32,
    /// The location of the output; absent for a skipped item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_from: Option<Reference>,
    /// The agent's reason to skip it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The step.
    pub step: String,
    /// The reserved fields that are not part of the output.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub stripped: Vec<String>,
}

/// `item.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemFailed {
    /// The task's attempt; 0 if none had been dispatched.
    pub attempt: u32,
    /// A stable error code.
    pub code: String,
    /// Counted from 0.
    pub item: u32,
    /// For people.
    pub message: String,
    /// The refused output, if it is not in another frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<CanonicalJson>,
    /// The location of the refused output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_from: Option<Reference>,
    /// The step.
    pub step: String,
}

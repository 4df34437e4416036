//! Events of a recompute: new model calls with the recorded inputs of a run, in a stream of their
//! own (seed 004).
//!
//! A recompute's life is that of a run, with `recompute.created` in place of `run.created`. After
//! its end, `recompute.compared` records the differences; nothing follows it.

use serde::{Deserialize, Serialize};

use super::Role;
use super::run::RunCreated;
use super::step::Violation;
use crate::canonical::CanonicalJson;

/// A fact about a recompute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecomputeEvent {
    /// `recompute.created` (input): none → pending. Always the first frame of its stream.
    Created(Box<RunCreated>),
    /// `recompute.compared` (input): the comparison with the run. Refused before the recompute has
    /// ended, and a second time.
    Compared(RecomputeCompared),
}

impl RecomputeEvent {
    /// See [`super::Event::role`].
    pub(super) fn role(&self) -> Role {
        match self {
            Self::Created(_) | Self::Compared(_) => Role::Input,
        }
    }
}

/// `recompute.compared`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecomputeCompared {
    /// The verdict over all tasks: the worst of theirs.
    pub status: Sameness,
    /// One for each task of an agent.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tasks: Vec<ComparedTask>,
}

/// The result of recomputing one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedTask {
    /// The differences, by path; the keys of objects in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<ValueChange>,
    /// The item of a fan-out, as the run counted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The reason why it cannot be compared, or the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// If it failed: whether the failure was marked as retryable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// The verdict.
    pub status: Sameness,
    /// The step by its path from the run: `call/inner`.
    pub step: String,
    /// The violations of its schema by the fresh output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
}

/// One difference between two values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueChange {
    /// The new value; absent if there is none.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<CanonicalJson>,
    /// The recorded value; absent if there is none.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub before: Option<CanonicalJson>,
    /// JSON pointer; empty for the value itself.
    pub path: String,
}

/// A member that is there is a value, null included.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<CanonicalJson>, D::Error> {
    CanonicalJson::deserialize(from).map(Some)
}

/// The verdict on whether the same came out again, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sameness {
    /// The same value, and it fits its schema.
    Clean,
    /// There is nothing to compare with.
    NotComparable,
    /// Another value.
    ValueChanged,
    /// The fresh output breaks its schema.
    SchemaViolation,
    /// The new calls produced no output.
    Failed,
}

impl Sameness {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::NotComparable => "not_comparable",
            Self::ValueChanged => "value_changed",
            Self::SchemaViolation => "schema_violation",
            Self::Failed => "failed",
        }
    }
}

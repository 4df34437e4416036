//! Events of an eval: verdicts about finished runs, in a stream of their own (seed 003, decision V1).
//!
//! ```text
//! eval.started ─▶ scenario.started ─▶ check.result… ─▶ scenario.finished ─▶ … ─▶ eval.finished
//! ```
//!
//! Only what checks a run appends to its eval; the stream of the run is never touched by it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::start::Principal;
use crate::canonical::CanonicalJson;
use crate::hash::Hash;
use crate::id::StreamId;

/// A fact about an eval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvalEvent {
    /// `eval.started` (input): the spec. Always the first frame of its stream.
    Started(Box<EvalStarted>),
    /// `scenario.started` (input): what is checked.
    ScenarioStarted(ScenarioStarted),
    /// `check.result` (input): what one check found.
    Checked(Box<CheckResult>),
    /// `scenario.finished` (input): the verdict on a scenario.
    ScenarioFinished(ScenarioFinished),
    /// `eval.finished` (input): the totals. Nothing follows it.
    Finished(EvalFinished),
}

/// `eval.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalStarted {
    /// Who asked for it.
    pub by: Principal,
    /// What the spec checks, as it was read: for verifiers without a reader of YAML.
    #[serde(deserialize_with = "super::null_is_empty")]
    pub checks: CanonicalJson,
    /// The version of ktsu that judged.
    pub engine: String,
    /// The name of the spec's file.
    pub file: String,
    /// The text of the spec.
    #[serde(deserialize_with = "super::null_is_empty")]
    pub spec: String,
    /// BLAKE3 of that text.
    pub spec_digest: Hash,
}

/// `scenario.started`. Its cause is the last frame of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioStarted {
    /// How many frames the run has, those that a branch shares among them.
    pub frames: u64,
    /// The hash of the last of them.
    pub head: Hash,
    /// The run.
    pub run: StreamId,
    /// Its place in the eval, from 0.
    pub scenario: u32,
}

/// `check.result`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The type of the check: `output`, `trace`, …
    pub check: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Whether a score below 1 makes the composite 0.
    pub gate: bool,
    /// Its place in the spec's file, from 0; sums go by it (decision V4).
    pub index: u32,
    /// What the result rests on.
    pub looked_at: LookedAt,
    /// The name of the invariant.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// What was found, and what was expected.
    pub reason: String,
    /// The scenario that it belongs to.
    pub scenario: u32,
    /// From 0 to 1; 0 where the check could not be made.
    pub score: Score,
    /// Whether it holds, does not, or could not be made.
    pub status: EvalStatus,
    /// Its weight in the composite.
    pub weight: Score,
}

/// What a check looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedAt {
    /// How many frames there are.
    pub count: u64,
    /// BLAKE3 of it, as canonical JSON: a value; `[[seq, hash], …]` of frames; `{path, content}` of
    /// a file, with the BLAKE3 of its bytes, or null where there is none.
    pub digest: Hash,
    /// The numbers of the frames, ascending: the first of them, where there are many.
    pub frames: Vec<u64>,
}

/// `scenario.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioFinished {
    /// The composite score, rounded to 12 decimals. A check that could not be made counts as 0.
    pub composite: Score,
    /// Why no check was made at all: `waiting`, where the run waited for a person. There are no results
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The composite at which it passes.
    pub pass_threshold: Score,
    /// Whether it passes.
    pub passed: bool,
    /// Its place in the eval, from 0.
    pub scenario: u32,
    /// Whether it passes, fails, or has a check that could not be made.
    pub status: EvalStatus,
}

/// `eval.finished`: `passed`, `failed` and `errors` together are `scenarios` (decision V5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalFinished {
    /// Scenarios with a check that could not be made.
    pub errors: u32,
    /// Scenarios that failed.
    pub failed: u32,
    /// Scenarios that passed.
    pub passed: u32,
    /// All of them.
    pub scenarios: u32,
}

/// How a check or a scenario ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvalStatus {
    /// It holds; the composite reaches the threshold.
    Passed,
    /// It does not.
    Failed,
    /// A check could not be made: neither passed nor failed (decision V2).
    Error,
}

impl EvalStatus {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Error => "error",
        }
    }
}

/// A finite number: a score, a weight, a threshold. Written as it will be read back, whole numbers
/// without a point.
#[derive(Debug, Clone, Copy, Default)]
pub struct Score(f64);

impl Score {
    /// A number; 0 in place of one that is not finite, which JSON does not have.
    pub fn new(number: f64) -> Self {
        match number.is_finite() {
            // Adding 0 makes -0 the 0 that it is read back as.
            true => Self(number + 0.0),
            false => Self(0.0),
        }
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Score {}

impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Below this, whole numbers are exact.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && self.0.abs() < EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and below 2^53")]
            let whole = self.0 as i64;
            return serializer.serialize_i64(whole);
        }
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::new)
    }
}

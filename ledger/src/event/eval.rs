//! Events of an eval: verdicts about finished runs, in a stream of their own (seed 003, decision V1).
//!
//! ```text
//! eval.started ─▶ scenario.started ─▶ check.result… ─▶ scenario.finished ─▶ … ─▶ eval.finished
//! ```
//!
//! Where a suite runs each scenario several times, the three in the middle are those of one replica, and
//! `scenario.aggregated` follows the last replica of a scenario.
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
    /// `scenario.finished` (input): the verdict on a scenario, or on a replica of it.
    ScenarioFinished(ScenarioFinished),
    /// `scenario.aggregated` (input): the verdict on all replicas of a scenario.
    Aggregated(ScenarioAggregated),
    /// `eval.finished` (input): the totals. Nothing follows it.
    Finished(EvalFinished),
}

/// `eval.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalStarted {
    /// The principal that asked for it.
    pub by: Principal,
    /// The checks of the spec, as they were read: for verifiers without a reader of YAML.
    #[serde(deserialize_with = "super::null_is_empty")]
    pub checks: CanonicalJson,
    /// The version of ktsu that judged.
    pub engine: String,
    /// The name of the spec's file.
    pub file: String,
    /// The isolation of the programs of checks from the machine: `none`, where a person wanted it
    /// so. Absent if they ran in the sandbox, or none ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The text of the spec.
    #[serde(deserialize_with = "super::null_is_empty")]
    pub spec: String,
    /// BLAKE3 of that text.
    pub spec_digest: Hash,
    /// The runs that are made to be checked; none if recorded runs are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<EvalSuite>,
}

/// The runs that an eval makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalSuite {
    /// The rule by which the verdicts of replicas are combined.
    pub aggregation: ReplicaAggregation,
    /// The name of the only scenarios of the spec that run; all do if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// The number of runs of each scenario.
    pub replicas: u32,
    /// The number of scenarios.
    pub scenarios: u32,
}

/// The rule by which the verdicts of the replicas of a scenario become one. With a replica that has
/// no verdict the scenario has none, whatever the others are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaAggregation {
    /// Every replica passes.
    #[default]
    All,
    /// One replica passes.
    Any,
    /// More than half of them pass.
    Majority,
    /// The mean of their composites reaches the threshold of the spec.
    Mean,
    /// So many pass.
    AtLeast(u32),
    /// The probability that of `k` replicas, drawn without putting them back, at least one passes.
    PassAt(PassEstimate),
    /// The probability that of `k` replicas, drawn without putting them back, all pass.
    PassHat(PassEstimate),
}

/// A probability that is estimated from replicas, and where it passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassEstimate {
    /// The number of replicas that are drawn.
    pub k: u32,
    /// The probability at which the scenario passes.
    pub threshold: Score,
}

/// `scenario.started`. Its cause is the last frame of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioStarted {
    /// Runs of the same replica that were interrupted, and are not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abandoned: Vec<StreamId>,
    /// The number of frames of the run, those that a branch shares among them.
    pub frames: u64,
    /// The hash of the last of them.
    pub head: Hash,
    /// The number of the replica in the scenario, from 0.
    #[serde(default, skip_serializing_if = "is_first")]
    pub replica: u32,
    /// The run.
    pub run: StreamId,
    /// Its place in the eval, from 0.
    pub scenario: u32,
    /// The data that services of the suite received and hold, by their names; see
    /// `docs/ledger-format.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<CanonicalJson>,
    /// The changes it made in its workspace, if it had one: `{added, after, before, left_out?,
    /// modified, removed, whole}`. `after` and `before` are BLAKE3 of all that was in it; see
    /// `docs/ledger-format.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<CanonicalJson>,
}

/// `check.result`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The type of the check: `output`, `trace`, …
    pub check: String,
    /// The time it took, in milliseconds.
    pub duration_ms: u64,
    /// True if a score below 1 makes the composite 0.
    pub gate: bool,
    /// Its place in the spec's file, from 0; sums go by it (decision V4).
    pub index: u32,
    /// The evidence that the result rests on.
    pub looked_at: LookedAt,
    /// The name of the invariant.
    pub name: String,
    /// True if it holds.
    pub passed: bool,
    /// The finding, and what was expected.
    pub reason: String,
    /// The replica that it belongs to.
    #[serde(default, skip_serializing_if = "is_first")]
    pub replica: u32,
    /// The scenario that it belongs to.
    pub scenario: u32,
    /// From 0 to 1; 0 where the check could not be made.
    pub score: Score,
    /// The result: it holds, does not, or could not be made.
    pub status: EvalStatus,
    /// Its weight in the composite.
    pub weight: Score,
}

/// The evidence that a check looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedAt {
    /// The number of frames.
    pub count: u64,
    /// BLAKE3 of it, as canonical JSON: a value; `[[seq, hash], …]` of frames; `{path, content}` of
    /// a file, with the BLAKE3 of its bytes, or null where there is none; `{bytes, command, exit_code,
    /// output}` of a command, and the same with `script` of a script: the BLAKE3 of its text, the
    /// bytes that it printed, and the BLAKE3 of those that were kept.
    pub digest: Hash,
    /// The numbers of the frames, ascending: the first of them, where there are many.
    pub frames: Vec<u64>,
}

/// `scenario.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioFinished {
    /// The composite score, rounded to 12 decimals. A check that could not be made counts as 0.
    pub composite: Score,
    /// The reason why no check was made at all: `waiting`, where the run waited for a person;
    /// `timeout`, where it took too long; `not_kept`, where what it left is not there any more.
    /// There are no results then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The composite at which it passes.
    pub pass_threshold: Score,
    /// True if it passes.
    pub passed: bool,
    /// The number of the replica in the scenario, from 0.
    #[serde(default, skip_serializing_if = "is_first")]
    pub replica: u32,
    /// Its place in the eval, from 0.
    pub scenario: u32,
    /// The result: it passes, fails, or has a check that could not be made.
    pub status: EvalStatus,
}

/// `scenario.aggregated`: the verdict on a scenario with several replicas. Its causes are theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScenarioAggregated {
    /// The mean of the replicas' composites, rounded to 12 decimals.
    pub composite: Score,
    /// The estimated probability, rounded to 12 decimals, where the aggregation has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Score>,
    /// True if some replicas pass and some fail.
    pub flaky: bool,
    /// True if it passes.
    pub passed: bool,
    /// The numbers of its replicas, by result.
    pub replicas: ReplicaTotals,
    /// Its place in the eval, from 0.
    pub scenario: u32,
    /// The result: it passes, fails, or has a replica without a verdict.
    pub status: EvalStatus,
}

/// The numbers of replicas, by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaTotals {
    /// Those with a check that could not be made, or without any.
    pub errors: u32,
    /// Those that failed.
    pub failed: u32,
    /// Those that passed.
    pub passed: u32,
}

/// `eval.finished`: `passed`, `failed` and `errors` together are `scenarios` (decision V5).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalFinished {
    /// Scenarios with a check that could not be made.
    pub errors: u32,
    /// Scenarios that failed.
    pub failed: u32,
    /// Scenarios some of whose replicas pass and some fail; each counts among the others, too.
    #[serde(default, skip_serializing_if = "is_first")]
    pub flaky: u32,
    /// Scenarios that passed.
    pub passed: u32,
    /// The numbers of replicas, by result, where scenarios have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicaTotals>,
    /// All of them.
    pub scenarios: u32,
}

/// The result of a check or a scenario.
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

/// Returns `true` if a number is 0, and is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_first(number: &u32) -> bool {
    *number == 0
}

impl ReplicaTotals {
    /// Counts one more.
    pub fn add(&mut self, status: EvalStatus) {
        match status {
            EvalStatus::Passed => self.passed += 1,
            EvalStatus::Failed => self.failed += 1,
            EvalStatus::Error => self.errors += 1,
        }
    }

    /// The number of all of them.
    pub fn all(self) -> u32 {
        self.errors
            .saturating_add(self.failed)
            .saturating_add(self.passed)
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

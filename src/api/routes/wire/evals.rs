//! The schemas of checks, and of the verdicts that they give.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A run to be checked.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckPost {
    /// The run.
    #[schema(min_length = 1)]
    pub run: String,
    /// The text of the spec: a file `NAME.eval.yaml`.
    #[schema(min_length = 1)]
    pub spec: String,
    /// The name of its file, as the record and messages have it.
    #[schema(min_length = 1, max_length = 500)]
    pub file: Option<String>,
}

/// Verdicts.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Evals {
    /// Newest first, without the results of their checks.
    pub evals: Vec<Eval>,
}

/// A verdict. Of one that cannot be read, only `eval_id` and `status` are there.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Eval {
    /// `eval_…`.
    pub eval_id: String,
    /// `passed`, `failed`, `error`, `running`, or `unreadable`.
    pub status: String,
    /// When it was made.
    pub at: Option<String>,
    /// Who asked for it.
    pub by: Option<String>,
    /// The version of ktsu that judged.
    pub engine: Option<String>,
    /// Scenarios that passed.
    pub passed: Option<u64>,
    /// Scenarios that failed.
    pub failed: Option<u64>,
    /// Scenarios with a check that could not be made.
    pub errors: Option<u64>,
    /// Scenarios some of whose replicas passed and some failed; each counts among the others, too.
    pub flaky: Option<u64>,
    /// What its checks used of models; absent if none was asked.
    pub judges: Option<EvalJudgeUsage>,
    /// How replicas ended, where scenarios have several.
    pub replicas: Option<EvalReplicaTotals>,
    /// What was checked.
    pub scenarios: Option<Vec<EvalScenario>>,
    /// `none` if programs of checks ran without a sandbox.
    pub sandbox: Option<String>,
    /// What it was checked by.
    pub spec: Option<EvalSpecView>,
}

/// The spec of an eval.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalSpecView {
    /// BLAKE3 of its text.
    pub digest: String,
    /// The name of its file.
    pub file: String,
}

/// What checks used of models. The runs that they judge have none of it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalJudgeUsage {
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Model calls.
    pub llm_calls: u64,
    /// Tokens sent.
    pub tokens_in: u64,
    /// Tokens received.
    pub tokens_out: u64,
}

/// How replicas ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalReplicaTotals {
    /// Those with a check that could not be made, or without any.
    pub errors: u32,
    /// Those that failed.
    pub failed: u32,
    /// Those that passed.
    pub passed: u32,
}

/// The verdict on a scenario.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum EvalScenario {
    /// It ran once.
    Run(EvalRun),
    /// It ran several times.
    Replicas(EvalReplicas),
}

/// The verdict on a scenario with several replicas.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalReplicas {
    /// `passed`, `failed`, `error` or `running`.
    pub status: String,
    /// Whether it passes.
    pub passed: bool,
    /// Whether some replicas passed and some failed.
    pub flaky: bool,
    /// The mean of the composites of its replicas, from 0 to 1.
    pub composite: Option<f64>,
    /// The estimated probability, where the aggregation has one.
    pub estimate: Option<f64>,
    /// The replicas, in order.
    pub replicas: Vec<EvalRun>,
}

/// The verdict on one run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalRun {
    /// Runs of the same replica that were interrupted, and are not judged.
    pub abandoned: Option<Vec<String>>,
    /// The run.
    pub run_id: String,
    /// How many frames it had.
    pub frames: u64,
    /// The hash of the last of them.
    pub head: String,
    /// `passed`, `failed`, `error` or `running`.
    pub status: String,
    /// Whether it passes.
    pub passed: bool,
    /// Why no check was made: `waiting`, `timeout` or `not_kept`.
    pub error: Option<String>,
    /// The composite score, from 0 to 1.
    pub composite: Option<f64>,
    /// The composite at which it passes.
    pub pass_threshold: Option<f64>,
    /// What every check found, in the order of the spec.
    pub results: Vec<EvalResult>,
}

/// What one check found.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalResult {
    /// Its place in the spec's file, from 0.
    pub index: u32,
    /// The name of the invariant.
    pub name: String,
    /// The type of the check: `output`, `trace`, `forbidden`, …
    pub check: String,
    /// `passed`, `failed` or `error`.
    pub status: String,
    /// Whether it holds.
    pub passed: bool,
    /// From 0 to 1.
    pub score: f64,
    /// Its weight in the composite.
    pub weight: f64,
    /// Whether a score below 1 makes the composite 0.
    pub gate: bool,
    /// What was found, and what was expected.
    pub reason: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The replica that it belongs to; 0 if absent.
    pub replica: Option<u32>,
    /// The scenario that it belongs to.
    pub scenario: u32,
    /// What the result rests on.
    pub looked_at: EvalLookedAt,
}

/// What a check looked at.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EvalLookedAt {
    /// How many frames there are.
    pub count: u64,
    /// BLAKE3 of it.
    pub digest: String,
    /// The numbers of the frames; the first 100.
    pub frames: Vec<u64>,
}

//! The schemas of responses, declared for `/openapi.json`.
//!
//! Responses are serialised by the projections themselves; a test compares every response with
//! these declarations, in both directions: a missing member fails, and so does an additional one.

mod approvals;
mod comparison;
mod home;
mod interventions;
mod trace;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use approvals::{Approval, Decide, Review, ToolMessage, ToolMessages};
pub use comparison::{Diff, Replay, Replayed};
pub use home::{Authentication, Home, HomeRoute, HomeWorkflow};
pub use interventions::{Branch, CommandRecorded, Fork, Overlay, Resume, Retry, RunCommandView};
pub use trace::{Node, Placed, Request, Trace};

/// A run was accepted.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// `run_…`.
    pub run_id: String,
    /// `accepted`.
    pub status: String,
}

/// What to recompute.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Recompute {
    /// The path of a step: `triage`, `call/inner`; absent for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub step: Option<String>,
}

/// A recompute was accepted.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecomputeAccepted {
    /// `recompute_…`; serves wherever the id of a run does.
    pub recompute_id: String,
    /// The run.
    pub run_id: String,
    /// `accepted`.
    pub status: String,
}

/// The result of a recompute.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Recomputed {
    /// `recompute_…`.
    pub recompute_id: String,
    /// The run it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// `running`, `clean`, `not_comparable`, `value_changed`, `schema_violation` or `failed`.
    pub status: String,
    /// The requested step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// One for each task of an agent; empty while the recompute is in progress.
    pub tasks: Vec<ComparedTask>,
}

/// The result of recomputing one task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparedTask {
    /// The step, by its path from the run.
    pub step: String,
    /// The item of a fan-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// As of the whole.
    pub status: String,
    /// Why it cannot be compared, or what failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where it failed: whether it may go well another time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// What differs, place by place; absent if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<Vec<ValueChange>>,
    /// Where the fresh output breaks its schema; absent if nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violations: Option<Vec<Violation>>,
}

/// One difference between two values.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueChange {
    /// A JSON pointer; empty for the value itself.
    pub path: String,
    /// What the run recorded, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What came out again, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The health of the engine.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// `ok` or `error`.
    pub status: String,
    /// `ok`, `down`, `error` or `unconfigured`, by service.
    pub services: BTreeMap<String, String>,
    /// Runs under way.
    pub active_runs: u64,
    /// Name and version of the engine.
    pub engine: String,
    /// How signing and witnessing go; runs go on without them.
    pub evidence: Evidence,
    /// The health of the ledger.
    pub ledger: LedgerHealth,
}

/// The health of the ledger.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LedgerHealth {
    /// `ok`, `read_only`, `low_on_space` (no new runs start), `full` (nothing is written until
    /// there is space), `stopped` or `damaged`.
    pub state: String,
    /// Why it has stopped, or what is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How far the ledger is signed, and who receives the checkpoints.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// How many frames the last checkpoint of this process is over.
    pub signed_frames: u64,
    /// `ok`, or why the last attempt to sign failed.
    pub signing: String,
    /// `ok`, `none`, or why the last attempt to hand a checkpoint over failed.
    pub witness: String,
}

/// A page of runs, newest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    /// The runs.
    pub runs: Vec<RunRow>,
    /// For the next page: `?cursor=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A run in a list.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRow {
    /// `run_…`.
    pub run_id: String,
    /// The same as `run_id`, for clients of the earlier API.
    pub id: String,
    /// The workflow.
    pub workflow: String,
    /// The same as `workflow`, for clients of the earlier API.
    pub workflow_name: String,
    /// The workflow's version.
    pub version: String,
    /// `pending`, `running`, `waiting`, `complete` or `failed`.
    pub status: String,
    /// When it was accepted.
    pub created_at: String,
    /// When it ended.
    pub ended_at: Option<String>,
    /// The same as `ended_at`, for clients of the earlier API.
    pub completed_at: Option<String>,
    /// The error code, if it failed.
    pub error: Option<String>,
    /// Since when it is paused.
    pub paused_at: Option<String>,
    /// For a branch: what it was forked from.
    pub parent_run_id: Option<String>,
    /// For a branch: how many frames it shares.
    pub fork_position: Option<u64>,
}

/// A run and its steps.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunView {
    /// The run, without its steps.
    pub run: RunSummary,
    /// Every step, in file order.
    pub steps: Vec<StepView>,
}

/// A run without its steps.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSummary {
    /// `run_…`, or `run_…/call` for an inline child.
    pub run_id: String,
    /// The workflow.
    pub workflow: String,
    /// The workflow's version.
    pub version: String,
    /// `pending`, `running`, `waiting`, `complete` or `failed`.
    pub status: String,
    /// For a branch: where it begins.
    pub branch: Option<interventions::BranchView>,
    /// Why it failed.
    pub error: Option<Fault>,
    /// When it was accepted.
    pub created_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Who paused it, while it is paused.
    pub paused: Option<SteeringCommand>,
    /// Who ended it, of a run that a person ended.
    pub cancelled: Option<SteeringCommand>,
    /// What it used.
    pub totals: Metrics,
}

/// A person's word about a whole run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteeringCommand {
    /// When.
    pub at: String,
    /// Who.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
}

/// What a run was given, what its steps gave, how it ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// `run_…`, or `run_…/call` for an inline child.
    pub run_id: String,
    /// The workflow.
    pub workflow: String,
    /// The workflow's version.
    pub version: String,
    /// `pending`, `running`, `waiting`, `complete` or `failed`.
    pub status: String,
    /// For a branch: where it begins.
    pub branch: Option<interventions::BranchView>,
    /// Why it failed.
    pub error: Option<Fault>,
    /// Validated params, with defaults.
    pub params: Value,
    /// Declared variables; secret ones as `[REDACTED]`.
    pub env: BTreeMap<String, String>,
    /// Every step, in file order.
    pub steps: Vec<StepView>,
    /// The workflow's output.
    pub output: Option<Value>,
    /// What all of it used.
    pub totals: Metrics,
    /// When it was accepted.
    pub created_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
}

/// An error inside a run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// A stable code.
    pub code: String,
    /// For people.
    pub message: String,
    /// The step, by path.
    pub step: Option<String>,
}

/// A step.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepView {
    /// Its id.
    pub id: String,
    /// `agent`, `transform`, `webhook` or `workflow`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `pending`, `running`, `complete`, `failed` or `skipped`.
    pub status: String,
    /// Which attempt this is.
    pub attempt: Option<u32>,
    /// When it started.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Its output; for a skipped step, `{"skipped": true, "reason": …}`.
    pub output: Option<Value>,
    /// Its output as it was computed, where a person laid something over it.
    pub computed: Option<Value>,
    /// What a person laid over its output, by field.
    pub overlay: Option<BTreeMap<String, Value>>,
    /// The output that was refused.
    pub raw_output: Option<Value>,
    /// Why it was skipped.
    pub skip_reason: Option<String>,
    /// Why it failed.
    pub error: Option<Fault>,
    /// For agent steps: whether an agent reviewed its draft; for a fan-out, in any item.
    pub reflected: Option<bool>,
    /// `ktsu_flags` of its agent, as far as they are strings.
    pub flags: Option<Vec<String>>,
    /// `ktsu_rationale` of its agent.
    pub rationale: Option<String>,
    /// `ktsu_confidence` of its agent, as it gave it.
    pub confidence: Option<Value>,
    /// `provider/model` of its last call that was answered.
    pub model: Option<String>,
    /// For fan-outs that have begun: how their items ended.
    pub counts: Option<Counts>,
    /// For fan-outs that have begun: the items that were started, by index.
    pub items: Option<Vec<ItemView>>,
    /// What it used.
    pub metrics: Metrics,
}

/// A step, or with `STEP.INDEX` an item of a fan-out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StepOrItem {
    /// A step.
    Step(Box<StepView>),
    /// An item.
    Item(Box<ItemView>),
}

/// How the items of a fan-out ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// With an output.
    pub succeeded: u32,
    /// Badly, or stopped by the engine.
    pub failed: u32,
    /// Skipped by their agent or, once the step has ended, never started.
    pub skipped: u32,
}

/// An item of a fan-out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemView {
    /// Counted from 0.
    pub item: u32,
    /// `STEP.INDEX`.
    pub id: String,
    /// `running`, `complete`, `failed` or `skipped`.
    pub status: String,
    /// Which attempt this is.
    pub attempt: Option<u32>,
    /// When it started.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Its output; for a skipped item, its marker in the results.
    pub output: Option<Value>,
    /// The output that was refused.
    pub raw_output: Option<Value>,
    /// Its agent's reason to skip it.
    pub skip_reason: Option<String>,
    /// Why it failed; `stopped` where the engine ended it.
    pub error: Option<Fault>,
    /// Whether its agent reviewed its draft.
    pub reflected: bool,
    /// `ktsu_flags` of its agent, as far as they are strings.
    pub flags: Option<Vec<String>>,
    /// `ktsu_rationale` of its agent.
    pub rationale: Option<String>,
    /// `ktsu_confidence` of its agent, as it gave it.
    pub confidence: Option<Value>,
    /// `provider/model` of its last call that was answered.
    pub model: Option<String>,
    /// What it used.
    pub metrics: Metrics,
}

/// Usage.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Milliseconds at work: without those in which only people could move it.
    pub duration_ms: u64,
    /// Milliseconds in which only people could move it, if any.
    pub waited_ms: Option<u64>,
    /// Tokens sent to models.
    pub tokens_in: u64,
    /// Tokens received from models.
    pub tokens_out: u64,
    /// US dollars, for reading.
    pub cost_usd: f64,
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Model calls.
    pub llm_calls: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Model calls that reviewed a draft, if any; included in `llm_calls`.
    pub reflect_calls: Option<u64>,
    /// Model calls that put a draft right, if any; among `llm_calls` too.
    pub repair_calls: Option<u64>,
}

/// A page of frames.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Frames {
    /// In order.
    pub frames: Vec<Frame>,
    /// For the next page: `?from=`.
    pub next: Option<u64>,
}

/// A frame (docs/ledger-format.md).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Format version.
    pub v: u8,
    /// The stream.
    pub stream: String,
    /// Its number there.
    pub seq: u64,
    /// The type of the fact.
    #[serde(rename = "type")]
    pub kind: String,
    /// The inline child it belongs to.
    pub scope: String,
    /// Who appended it.
    pub actor: String,
    /// What it follows from: numbers here, `stream#seq` elsewhere.
    pub cause: Vec<Value>,
    /// When its turn began.
    pub at: String,
    /// The fact.
    pub data: Value,
    /// Members of `data` kept as blobs.
    pub ext: Vec<External>,
    /// The hash of the frame before it.
    pub prev: String,
    /// BLAKE3 of the stored bytes.
    pub hash: String,
    /// `stream#seq`.
    pub id: String,
    /// The id of the first cause.
    pub source_frame_id: Option<String>,
}

/// A member of `data` that is kept as a blob.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// Its length.
    pub bytes: u64,
    /// BLAKE3 of its text.
    pub hash: String,
    /// Where it belongs in `data`.
    pub path: String,
}

/// A problem document (RFC 9457).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// A name for the kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same for every occurrence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// A stable code.
    pub code: String,
    /// The code again.
    pub error: String,
    /// The detail again.
    pub message: String,
    /// Places that break a rule.
    pub errors: Option<Vec<Violation>>,
    /// Something to do or to type.
    pub hint: Option<String>,
    /// Of `approval_already_decided` and its like: the record, with who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Box<Approval>>,
}

/// A place that breaks a rule.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Violation {
    /// JSON pointer into the body.
    pub path: String,
    /// For people.
    pub message: String,
    /// The rule.
    pub rule: String,
}

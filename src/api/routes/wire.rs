//! The schemas of responses, declared for `/openapi.json`.
//!
//! Projections that are sent unchanged declare their own schemas. A test compares every response
//! with its declaration, in both directions: an additional member fails as a missing one does.

mod approvals;
mod comparison;
mod evals;
mod home;
mod interventions;
mod posts;
mod subscriptions;
mod trace;

use std::collections::BTreeMap;

use ktsu_ledger::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use ktsu_history::steering::SteeringView;
use ktsu_projections::approvals::ApprovalRecord;
use ktsu_projections::envelope::{BranchView, ErrorView, ItemView, StepView, UsageView};
use ktsu_projections::reviews::ReviewRecord;
use ktsu_projections::suspensions::SuspensionRecord;
use ktsu_projections::value_diff::ValueDifference;
use ktsu_server::FieldViolation;

pub use approvals::{
    Decide, DecideReview, Decision, ResumeLink, ResumeStep, Resumed, ReviewWord, ToolMessage,
    ToolMessages,
};
pub use comparison::{DiffView, RecomputedWorld, Replay, Replayed};
pub use evals::{CheckPost, Eval, EvalLookedAt, EvalResult, EvalScenario, EvalSpecView, Evals};
pub use home::{Authentication, Home, HomeRoute, HomeWorkflow};
pub use interventions::{
    Branch, CommandRecorded, EditedPrompt, Effects, Fork, ForkCheck, HoldPost, HoldRecorded,
    Overlay, PromptTexts, RaisedLimits, Resume, Retry, RunCommandView,
};
pub use posts::{
    EventPost, EventPosts, KitEventPost, NotePost, ObjectPatchPost, ObjectPost, PatchedObject,
    PostRecorded, PostedObject, PostedRelation, RecordedEvent, RelationPost, RelationRemovalPost,
    RemovedRelation,
};
pub use subscriptions::{
    DeadLetterShown, DeadLetters, DeliveryErrorShown, RedriveAccepted, SECRET_SYNTAX,
    SubscriptionList, SubscriptionRequest, SubscriptionShown, URL_SYNTAX,
};
pub use trace::{Placed, Trace};

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
    /// The path of a step: `triage`, `call/inner`, or the address of a question; absent for all of them.
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
    pub run_id: Option<String>,
    /// `running`, `clean`, `not_comparable`, `value_changed`, `schema_violation` or `failed`.
    pub status: String,
    /// The requested step.
    pub step: Option<String>,
    /// One for each task of an agent and each question of a responder; empty while the recompute is in
    /// progress.
    pub tasks: Vec<ComparedTask>,
    /// Which objects would differ; absent unless the run loads worlds and has been compared.
    pub world: Option<RecomputedWorld>,
}

/// The result of recomputing one task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparedTask {
    /// The step, by its path from the run, or the address of a question: `@NAME.KEY`.
    pub step: String,
    /// The item of a fan-out.
    pub item: Option<u32>,
    /// As of the whole.
    pub status: String,
    /// Why it cannot be compared, or what failed.
    pub reason: Option<String>,
    /// Where it failed: whether it may go well another time.
    pub retryable: Option<bool>,
    /// What differs, place by place; absent if nothing does.
    pub diff: Option<Vec<ValueDifference>>,
    /// Where the fresh output breaks its schema; absent if nowhere.
    pub violations: Option<Vec<FieldViolation>>,
}

/// The health of the engine.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// `ok`, `error`, or `draining`: the engine is about to stop and starts nothing new.
    pub status: String,
    /// `ok`, `down`, `error` or `unconfigured`, by service; `draining` for the orchestrator.
    pub services: BTreeMap<String, String>,
    /// Runs under way.
    pub active_runs: u64,
    /// Name and version of the engine.
    pub engine: String,
    /// How signing and witnessing go; runs go on without them.
    pub evidence: Evidence,
    /// The health of the ledger.
    pub ledger: LedgerHealth,
    /// `owner` of the ledger, `standby`, or `reader`.
    pub role: String,
    /// What a standby sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<StandbyHealth>,
    /// Why no run is removed at the moment, although some may be due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<String>,
    /// `ok`, `unhealthy` or `down`, by URL; absent unless there are several runtimes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub runtimes: BTreeMap<String, String>,
    /// The same of several gateways.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gateways: BTreeMap<String, String>,
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
    /// What may lose acknowledged frames of a ledger on a server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What a standby sees of the ledger and its owner.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StandbyHealth {
    /// The process that owns the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The URL at which it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_url: Option<String>,
    /// How far the ledger has grown: the position of its last frame, or a number that rises with it.
    pub position: u64,
    /// The milliseconds since the server of the ledger answered: what is read is no older.
    pub age_ms: u64,
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

/// What is signed of a ledger, and by which keys.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedLedger {
    /// The name of the ledger, `ktsu/ledger/…`; absent while it has no frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// How many frames were appended to it.
    pub frames: u64,
    /// `ok`, or why the last attempt of this process to sign failed.
    pub signing: String,
    /// `ok`, `none`, or why the last attempt to hand a checkpoint over failed.
    pub witness: String,
    /// The last checkpoint; absent while nothing is signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<SignedCheckpoint>,
    /// The keys, the one that signs now last; absent if the ledger is too large to look for all of them:
    /// `ktsu evidence key show` lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<LedgerKey>>,
}

/// A signed checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignedCheckpoint {
    /// How many frames it is over, from the first.
    pub frames: u64,
    /// When it was recorded; the time is not signed.
    pub at: String,
    /// The id of the key.
    pub key: String,
    /// The signed note, as witnesses get it.
    pub note: String,
}

/// A key of a ledger.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LedgerKey {
    /// Eight hexadecimal digits.
    pub id: String,
    /// The key, as `--key` of `ktsu evidence verify` takes it.
    pub public_key: String,
    /// `in force`, `replaced` or `revoked`.
    pub state: String,
    /// Why it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the key before it vouches for it; true of the first key.
    pub vouched: bool,
}

/// A page of runs, newest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    /// The runs.
    pub runs: Vec<RunRow>,
    /// For the next page: `?cursor=`.
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
    /// How many questions to people are open in it; absent if none is.
    pub approvals: Option<u64>,
    /// The principal that started it, or forked it.
    pub principal: Option<String>,
    /// The recorded cost of its model calls, in millionths of a US dollar, once it has ended.
    pub cost_micro_usd: Option<u64>,
}

/// A run and its steps.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunView {
    /// The run, without its steps.
    pub run: RunSummary,
    /// Every step, in file order.
    pub steps: Vec<StepView>,
}

/// A run without its steps.
#[derive(Debug, Clone, Serialize, ToSchema)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchView>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// When it was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub created_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ended_at: Option<Timestamp>,
    /// Who paused it, while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<SteeringView>,
    /// Who ended it, of a run that a person ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<SteeringView>,
    /// What it used.
    pub totals: UsageView,
}

/// A step, or with `STEP.INDEX` an item of a fan-out.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum StepOrItem {
    /// A step.
    Step(Box<StepView>),
    /// An item.
    Item(Box<ItemView>),
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
    pub errors: Option<Vec<FieldViolation>>,
    /// Something to do or to type.
    pub hint: Option<String>,
    /// Of `approval_already_decided` and its like: the record, with who decided.
    pub approval: Option<Box<ApprovalRecord>>,
    /// Of `review_already_decided` and its like: the record, with who decided.
    pub review: Option<Box<ReviewRecord>>,
    /// Of `suspension_over`: the record, with who resumed it.
    pub suspension: Option<Box<SuspensionRecord>>,
}

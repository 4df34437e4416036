//! The schemas of comparisons: two runs, or a run and its replay.

use ktsu_projections::diff::Diff;
use ktsu_projections::world::comparison::PatchedEntry;
use ktsu_projections::world::{WorldComparison, WorldDiff};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// How to replay.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Whether everything is decided again; otherwise the run is folded.
    pub strict: Option<bool>,
}

/// The result of a replay.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Replayed {
    /// `run_…` or `branch_…`.
    pub run_id: String,
    /// `ok`, `diverged` or `could_not_run`.
    pub verdict: String,
    /// The replayed status of the run.
    pub status: Option<String>,
    /// How many frames it has.
    pub frames: Option<u64>,
    /// How many of them are inputs.
    pub inputs: Option<u64>,
    /// The hash of the last one, which covers all before it.
    pub head: Option<String>,
    /// Why it is not ok, for people.
    pub message: Option<String>,
    /// `diverged`, `no_root`, `rules`, `definition` or `unknown_type`.
    pub why: Option<String>,
    /// The first frame that does not follow.
    pub divergence: Option<ReplayDivergence>,
}

/// A recorded frame that does not follow from the recorded inputs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename = "Divergence", deny_unknown_fields)]
#[schema(as = Divergence)]
pub struct ReplayDivergence {
    /// Its number.
    pub seq: u64,
    /// `type`, `data`, `scope`, `cause`, `time`, `actor`, `length`, `input` or `bytes`.
    pub kind: String,
    /// JSON pointer into the frame.
    pub field: String,
    /// The recorded value; absent if there is none.
    pub history: Option<Value>,
    /// What the recorded inputs lead to; absent: nothing.
    pub decided: Option<Value>,
}

/// What differs between two runs.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffView {
    /// The first.
    pub a: String,
    /// The second.
    pub b: String,
    /// Whether nothing differs but what no two runs share: ids, times, durations, digests.
    pub same: bool,
    /// The rest.
    #[serde(flatten)]
    pub diff: Diff,
    /// What differs between their worlds, as their last frames left them; absent unless both load
    /// worlds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world: Option<WorldDiff>,
    /// What differs in the objects, then in the relations, that both worlds have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<PatchedEntry>>)]
    pub world_changes: Vec<PatchedEntry>,
}

/// What a recompute says about the world of its run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecomputedWorld {
    /// How the world would differ, had the new replies come in the place of the recorded ones.
    pub diff: WorldComparison,
    /// Why nothing is said about it.
    pub reason: Option<String>,
    /// How the run would stand otherwise.
    pub status: Option<StatusChange>,
    /// What would be asked or done, and has no recorded answer: addresses of questions, paths of steps.
    pub would_ask: Option<Vec<String>>,
    /// What would be asked with other words; the reply is the one to the recorded words.
    pub would_ask_otherwise: Option<Vec<String>>,
    /// What would not be asked or done any more.
    pub would_not_ask: Option<Vec<String>>,
    /// Recorded posts, and what else people did, that would find no place.
    pub unused: Option<Vec<String>>,
    /// What was asked and not asked again, since the run recorded no end of it.
    pub not_recomputed: Option<Vec<String>>,
    /// New replies that this does not contain: the call failed, or the recorded one had no reply.
    pub not_applied: Option<Vec<String>>,
}

/// Where a run stands, and where it would stand.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusChange {
    /// `complete`, `failed`, …
    pub before: String,
    /// Likewise.
    pub after: String,
    /// Why it would fail, if it would.
    pub error: Option<String>,
}

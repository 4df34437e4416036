//! The schemas of comparisons: two runs, or a run and its replay.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// How to replay.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Whether everything is decided again; otherwise the run is folded.
    #[serde(default)]
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
    pub divergence: Option<Divergence>,
}

/// A recorded frame that does not follow from the recorded inputs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Divergence {
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
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Diff {
    /// The first.
    pub a: String,
    /// The second.
    pub b: String,
    /// Whether nothing differs but what no two runs share: ids, times, durations, digests.
    pub same: bool,
    /// How many frames at the beginning are the same frames.
    pub shared: u64,
    /// Where they part.
    pub first: Option<Parting>,
    /// The envelopes, field by field; steps by id.
    pub envelope: Vec<Change>,
    /// Steps whose status differs.
    pub steps: Vec<StepStatus>,
    /// Frames of the first only.
    pub only_a: Vec<FrameName>,
    /// Frames of the second only.
    pub only_b: Vec<FrameName>,
    /// Frames that differ.
    pub changed: Vec<ChangedFrame>,
    /// What each used.
    pub used: Used,
}

/// Where two runs part.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Parting {
    /// The number.
    pub seq: u64,
    /// The frame the first has there.
    pub a: Option<FrameShown>,
    /// The frame the second has there.
    pub b: Option<FrameShown>,
}

/// A frame: its subject and its content.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameShown {
    /// The inline child.
    pub scope: Option<String>,
    /// The step.
    pub step: Option<String>,
    /// The item of a fan-out.
    pub item: Option<u64>,
    /// The attempt.
    pub attempt: Option<u64>,
    /// The type of the frame.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many frames before it are about the same.
    pub nth: Option<u32>,
    /// The content, without what differs between any two runs.
    pub data: Value,
}

/// A frame, by its number and what it is about.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FrameName {
    /// Its number.
    pub seq: u64,
    /// The inline child.
    pub scope: Option<String>,
    /// The step.
    pub step: Option<String>,
    /// The item of a fan-out.
    pub item: Option<u64>,
    /// The attempt.
    pub attempt: Option<u64>,
    /// The type of the frame.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many frames before it are about the same.
    pub nth: Option<u32>,
}

/// A frame of both runs that differs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangedFrame {
    /// Its number in the first.
    pub a: u64,
    /// Its number in the second.
    pub b: u64,
    /// The inline child.
    pub scope: Option<String>,
    /// The step.
    pub step: Option<String>,
    /// The item of a fan-out.
    pub item: Option<u64>,
    /// The attempt.
    pub attempt: Option<u64>,
    /// The type of the frame.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many frames before it are about the same.
    pub nth: Option<u32>,
    /// Its `data`, place by place.
    pub changes: Vec<Change>,
}

/// A place at which two values differ.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// JSON pointer.
    pub path: String,
    /// The value in the first run; absent if there is none.
    pub before: Option<Value>,
    /// The value in the second run; absent if there is none.
    pub after: Option<Value>,
}

/// A step that ended otherwise.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepStatus {
    /// Its path.
    pub step: String,
    /// Its status in the first; absent: there is no such step.
    pub a: Option<String>,
    /// Its status in the second.
    pub b: Option<String>,
}

/// What two runs used.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Used {
    /// The first.
    pub a: Amounts,
    /// The second.
    pub b: Amounts,
    /// The second less the first.
    pub difference: Amounts,
}

/// Cost and calls.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    /// Millionths of a US dollar.
    pub cost_micro_usd: i64,
    /// Model calls.
    pub llm_calls: i64,
    /// Tokens sent.
    pub tokens_in: i64,
    /// Tokens received.
    pub tokens_out: i64,
}

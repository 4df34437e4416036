//! The schemas of interventions in recorded runs, and of their results.

use std::collections::BTreeMap;

use ktsu_history::fork_estimate::{ForkBoundName, ForkEstimate};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A fork. Without `at`, `at_frame` and `before` everything is shared.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// How many frames are shared.
    #[schema(minimum = 0, maximum = 9007199254740991_u64)]
    pub at: Option<u64>,
    /// The last frame that is shared.
    #[schema(minimum = 0, maximum = 9007199254740991_u64)]
    pub at_frame: Option<u64>,
    /// A step: everything before its latest attempt is shared.
    #[schema(min_length = 1)]
    pub before: Option<String>,
    /// Values by path: `params.NAME`, `step.ID.output.FIELD`.
    pub set: Option<BTreeMap<String, Value>>,
    /// The resolved definition to go on with, as `run.created` carries it.
    #[schema(value_type = Option<Object>)]
    pub definition: Option<Value>,
    /// Prompts in place of those of the definition of the run, by agent step (`call/inner`) or agent file.
    pub prompts: Option<BTreeMap<String, PromptTexts>>,
    /// `suppress` (if absent): webhooks are skipped; or `execute`.
    #[schema(value_type = Option<Effects>)]
    pub effects: Option<String>,
    /// Whether the branch continues at once; otherwise it waits.
    pub go: Option<bool>,
    /// Whether the fork is checked alone: nothing is recorded.
    pub dry_run: Option<bool>,
    /// Why.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: Option<String>,
}

/// Prompts of an agent; those that are absent stay as they are recorded.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptTexts {
    /// The static instructions.
    pub system: Option<String>,
    /// The template of the user message.
    pub user: Option<String>,
    /// The template for one more look at a draft.
    pub reflect: Option<String>,
}

/// A fork that could be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkCheck {
    /// How many frames the branch would share.
    pub fork_position: u64,
    /// The bound of the estimate that holds for it, unless it brings another definition.
    pub bound: ForkBoundName,
    /// What it would ask models again; absent if it shares no frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<ForkEstimate>,
    /// The prompts that differ from the recorded ones.
    pub prompts: Vec<EditedPrompt>,
}

/// A prompt that a fork changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditedPrompt {
    /// The file of the agent.
    pub agent: String,
    /// `system`, `user` or `reflect`.
    pub prompt: String,
    /// The steps that ask with it in the branch, as far as is known.
    pub steps: Vec<String>,
}

/// What becomes of webhooks in a branch.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// They are skipped.
    Suppress,
    /// They are sent.
    Execute,
}

/// A branch was made.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// `branch_…`: it is addressed as runs are.
    pub run_id: String,
    /// The same.
    pub branch_id: String,
    /// What it was forked from.
    pub parent_run_id: String,
    /// How many frames it shares.
    pub fork_position: u64,
    /// The same.
    pub shared_prefix_events: u64,
    /// The status of the branch.
    pub status: String,
}

/// A person's value for one top-level field of an output.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Overlay {
    /// The step.
    #[schema(min_length = 1)]
    pub step: String,
    /// The field.
    #[schema(min_length = 1)]
    pub field: String,
    /// The value.
    pub value: Value,
    /// Why.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: String,
}

/// A resumption.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// The step to begin again with; a waiting branch and a paused run need none.
    #[schema(min_length = 1)]
    pub from: Option<String>,
    /// Limits of the budget of the run's worlds that are raised.
    pub raise: Option<RaisedLimits>,
    /// Why.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: Option<String>,
}

/// Raised limits, as world files name them; each is higher than the one that holds.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RaisedLimits {
    /// World frames of the run.
    #[schema(minimum = 0, maximum = 9007199254740991_u64)]
    pub max_events: Option<u64>,
    /// What model calls of responders may cost, in US dollars.
    #[schema(minimum = 0, maximum = 1000000)]
    pub max_llm_cost_usd: Option<f64>,
    /// Depth of a world frame.
    #[schema(minimum = 0, maximum = 4294967295_u64)]
    pub max_recursion_depth: Option<u32>,
    /// Seconds that the run uses up, without waiting for people.
    #[schema(minimum = 0, maximum = 1000000000)]
    pub max_wall_seconds: Option<f64>,
}

/// A step of a run begins again.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// The step to begin again with.
    #[schema(min_length = 1)]
    pub from: String,
    /// Why.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: Option<String>,
}

/// A person's word about a whole run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCommandView {
    /// Why.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: Option<String>,
}

/// A legal hold, or its end.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldPost {
    /// Why.
    #[schema(min_length = 1, max_length = 4096)]
    pub reason: String,
    /// Whether the hold is lifted instead of placed.
    #[serde(default)]
    pub release: bool,
}

/// A hold was placed or lifted.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldRecorded {
    /// The run, the branch or the recompute.
    pub run_id: String,
    /// Whether it is under hold now.
    pub held: bool,
    /// The number of the frame in the stream `store` that records it.
    pub seq: u64,
}

/// A person's word was recorded.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRecorded {
    /// The run or branch.
    pub run_id: String,
    /// The frame that records it.
    pub seq: u64,
    /// The last frame of its turn.
    pub last: u64,
    /// The status of the run after the command.
    pub status: String,
}

//! The envelope: the input of a run, the outputs of its steps, and how it ended (decision E2).
//!
//! The envelope of an inline child is the same projection, applied to its scope.

mod details;
mod fold;
mod lookup;
mod offers;
mod scope;
mod status;
mod view;
mod wait_time;
mod world;

pub use details::{DetailedRun, EnvelopeDetails};
pub use fold::EnvelopeFold;
pub use status::ShownStatus;
pub use world::{EnvelopeWarning, ResponderWait, WorldSummary};

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::{CanonicalJson, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::run::{Effective, RunStatus};
use crate::usage::Usage;

/// The text in place of a secret.
pub const REDACTED: &str = "[REDACTED]";

/// What the outside sees of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// `run_…`, or `run_…/call/inner` for an inline child.
    pub run_id: String,
    /// The workflow's name.
    pub workflow: String,
    /// The workflow's version.
    pub version: String,
    /// `pending`, `running`, `waiting`, `complete` or `failed`.
    #[schema(value_type = String)]
    pub status: RunStatus,
    /// For a branch: where it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchView>,
    /// `suppress`, for a run that was created so: its webhooks and messages are held back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// What did not stop the run, and somebody should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<EnvelopeWarning>>)]
    pub warnings: Vec<EnvelopeWarning>,
    /// Validated params, with defaults.
    pub params: Value,
    /// Declared variables; secret ones as `[REDACTED]`.
    pub env: BTreeMap<String, String>,
    /// Every step, in file order.
    pub steps: Vec<StepView>,
    /// The workflow's output, made of what its steps gave with what people laid over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub output: Option<CanonicalJson>,
    /// How much its world holds, if it loads any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world: Option<WorldSummary>,
    /// What all of it used.
    pub totals: UsageView,
    /// When it was accepted or, for a child, begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub created_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ended_at: Option<Timestamp>,
}

/// Where a branch begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchView {
    /// What it was forked from.
    pub parent_run_id: String,
    /// How many frames it shares.
    pub fork_position: u64,
    /// What those frames cost, in millionths of a US dollar; among the totals too.
    pub inherited_cost_micro_usd: u64,
}

/// An error in an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorView {
    /// A stable code.
    pub code: String,
    /// For people.
    pub message: String,
    /// The step, by path from the run it is shown in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// A step in an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepView {
    /// Its id.
    pub id: String,
    /// `agent`, `transform`, `webhook` or `workflow`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `pending`, `running`, `complete`, `failed` or `skipped`; `pending_approval` where only people
    /// can move it.
    #[schema(value_type = String)]
    pub status: ShownStatus,
    /// Which attempt this is, once there is one.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u32>)]
    pub attempt: u32,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ended_at: Option<Timestamp>,
    /// Its output; for a skipped step, `{"skipped": true, "reason": …}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub output: Option<CanonicalJson>,
    /// Its output as it was computed, where a person laid something over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub computed: Option<CanonicalJson>,
    /// What a person laid over its output, by field.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Option<BTreeMap<String, Value>>)]
    pub overlay: BTreeMap<String, CanonicalJson>,
    /// The output that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub raw_output: Option<CanonicalJson>,
    /// The step by whose definition it runs, if it was resumed to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_step: Option<String>,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// For agent steps: whether an agent looked at its draft once more; of a fan-out, in any item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflected: Option<bool>,
    /// What its agent said beside its output; of a fan-out its items tell.
    #[serde(flatten)]
    pub said: AgentRemarks,
    /// For fan-outs that have begun: how their items ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<ItemCountsView>,
    /// For fan-outs that have begun: the items that were started, by index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<ItemView>>,
    /// What its commands ran, in the order of items, commands and inputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<InvokedView>>)]
    pub invoked: Vec<InvokedView>,
    /// What it used.
    pub metrics: UsageView,
}

/// A workflow that a command of a step ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InvokedView {
    /// The name that the step has for it.
    pub step: String,
    /// Its number among those of the step, or of the item.
    pub index: u32,
    /// The item of a fan-out that commanded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// Where it ran, by path from the run: `check/verify.0`.
    pub run: String,
    /// `running`, `complete` or `failed`.
    #[schema(value_type = String)]
    pub status: RunStatus,
    /// Its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub output: Option<CanonicalJson>,
}

/// What an agent said beside its output, and which model spoke.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentRemarks {
    /// `ktsu_flags`, as far as they are strings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<String>>)]
    pub flags: Vec<String>,
    /// `ktsu_rationale`, if it is a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rationale: Option<String>,
    /// `ktsu_confidence`, as the agent gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub confidence: Option<CanonicalJson>,
    /// `provider/model` of its last call that was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// How the items of a fan-out ended. In one that has ended they are as many as there are items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemCountsView {
    /// With an output.
    pub succeeded: u32,
    /// Badly, or stopped by the engine.
    pub failed: u32,
    /// Skipped by their agent or, once the step has ended, never started.
    pub skipped: u32,
}

/// An item of a fan-out in an envelope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemView {
    /// Counted from 0.
    pub item: u32,
    /// `STEP.INDEX`.
    pub id: String,
    /// `running`, `complete`, `failed` or `skipped`.
    #[schema(value_type = String)]
    pub status: ShownStatus,
    /// Which attempt this is, once there is one.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u32>)]
    pub attempt: u32,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ended_at: Option<Timestamp>,
    /// Its output; for a skipped item, its marker in the results.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub output: Option<CanonicalJson>,
    /// The output that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub raw_output: Option<CanonicalJson>,
    /// Its agent's reason to skip it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
    /// Why it failed; `stopped` where the engine ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
    /// Whether its agent looked at its draft once more.
    pub reflected: bool,
    /// What its agent said beside its output.
    #[serde(flatten)]
    pub said: AgentRemarks,
    /// What it used.
    pub metrics: UsageView,
}

/// What was used, as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageView {
    /// Milliseconds at work: without those in which only people could move it.
    pub duration_ms: u64,
    /// Milliseconds in which only people could move it.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u64>)]
    pub waited_ms: u64,
    /// Tokens sent to models.
    pub tokens_in: u64,
    /// Tokens received from models.
    pub tokens_out: u64,
    /// US dollars, for reading; the exact figure is `cost_micro_usd`.
    #[schema(value_type = f64)]
    pub cost_usd: Value,
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Model calls that an earlier reply of the run answered, at no cost; among `llm_calls` too.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u64>)]
    pub cached_calls: u64,
    /// What those replies had cost, in millionths of a US dollar.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u64>)]
    pub saved_micro_usd: u64,
    /// Tokens sent to models for those replies.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u64>)]
    pub saved_tokens_in: u64,
    /// Tokens received from models for those replies.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u64>)]
    pub saved_tokens_out: u64,
    /// Model calls.
    pub llm_calls: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Model calls that looked at a draft once more; among `llm_calls` too.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u64>)]
    pub reflect_calls: u64,
    /// Model calls that put a draft right; among `llm_calls` too.
    #[serde(skip_serializing_if = "crate::is_default")]
    #[schema(value_type = Option<u64>)]
    pub repair_calls: u64,
}

impl UsageView {
    fn of(usage: &Usage) -> Self {
        let micros = usage.cost_micro_usd;
        let dollars = micros as f64 / 1_000_000.0;
        Self {
            duration_ms: usage.duration_ms,
            waited_ms: usage.waited_ms(),
            tokens_in: usage.tokens_in,
            tokens_out: usage.tokens_out,
            cost_usd: if micros == 0 {
                Value::from(0)
            } else {
                Value::from(dollars)
            },
            cost_micro_usd: micros,
            cached_calls: usage.cached_calls,
            saved_micro_usd: usage.saved_micro_usd,
            saved_tokens_in: usage.saved_tokens_in,
            saved_tokens_out: usage.saved_tokens_out,
            llm_calls: usage.llm_calls,
            tool_calls: usage.tool_calls,
            reflect_calls: usage.reflect_calls,
            repair_calls: usage.repair_calls,
        }
    }
}

/// The name of a primitive.
pub fn step_kind(work: &StepWork) -> &'static str {
    match work {
        StepWork::Agent(_) => "agent",
        StepWork::Transform(_) => "transform",
        StepWork::Webhook(_) => "webhook",
        StepWork::Workflow(_) => "workflow",
    }
}

/// The marker later steps see in place of an output, if the step was skipped (decision S3).
pub fn skip_marker(value: &Effective<'_>) -> Option<Value> {
    match value {
        Effective::Skipped(reason) => Some(json!({"skipped": true, "reason": reason})),
        Effective::Suppressed(reason) => {
            Some(json!({"suppressed": true, "reason": reason.as_str()}))
        }
        Effective::Output(_) | Effective::Absent => None,
    }
}

#[cfg(test)]
mod tests;

//! Events of steps. All are decisions.
//!
//! A step's life: pending → running (`step.started`) → complete | failed, or pending → skipped.
//! `step.output_checked` comes between start and end if there is a schema, after the
//! `reserved.evaluated` of an agent's output. It is followed by the events and commands of the outcome,
//! `note` and `command.requested`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::command::{CommandCompleted, StepCommand, StepNote};
use super::place::Reference;
use super::review::{CommandsDeferred, CommandsDiscarded, ReviewRequested};
use super::suspend::SuspendRequested;
use crate::canonical::CanonicalJson;

/// A fact about a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepEvent {
    /// `step.started`: pending → running. Refused while something it needs is unsettled.
    Started(StepStarted),
    /// `reserved.evaluated`: a reserved field of an agent's output (seed 000, invariant 21).
    ReservedEvaluated(ReservedEvaluated),
    /// `step.output_checked`: the air-lock's verdict (seed 000, invariant 9).
    OutputChecked(OutputChecked),
    /// `note`: an event of the outcome (seed 004).
    Noted(StepNote),
    /// `command.requested`: a command of the outcome; what it asks for may happen from here on.
    Commanded(StepCommand),
    /// `command.completed`: the workflows that a command runs have ended well.
    CommandCompleted(CommandCompleted),
    /// `command.deferred`: other commands of the outcome wait for a decision.
    CommandsDeferred(CommandsDeferred),
    /// `command.discarded`: they are not carried out.
    CommandsDiscarded(CommandsDiscarded),
    /// `review.requested`: a person decides on the outcome.
    ReviewRequested(ReviewRequested),
    /// `suspend.requested`: the step waits for data.
    SuspendRequested(SuspendRequested),
    /// `step.completed`: running → complete.
    Completed(StepCompleted),
    /// `step.failed`: running → failed; the run fails with it (seed 000, invariant 11).
    Failed(StepFailed),
    /// `step.skipped`: pending → skipped; running → skipped if an agent requested it.
    Skipped(StepSkipped),
    /// `step.reset`: complete, failed, skipped or running → pending. Follows only `run.resumed`
    /// or `suspend.resumed`.
    Reset(StepReset),
}

impl StepEvent {
    /// The step this is about, in the frame's scope.
    pub fn step(&self) -> &str {
        match self {
            Self::Started(event) => &event.step,
            Self::ReservedEvaluated(event) => &event.step,
            Self::OutputChecked(event) => &event.step,
            Self::Noted(event) => &event.step,
            Self::Commanded(event) => &event.step,
            Self::CommandCompleted(event) => &event.step,
            Self::CommandsDeferred(event) => &event.step,
            Self::CommandsDiscarded(event) => &event.step,
            Self::ReviewRequested(event) => &event.step,
            Self::SuspendRequested(event) => &event.step,
            Self::Completed(event) => &event.step,
            Self::Failed(event) => &event.step,
            Self::Skipped(event) => &event.step,
            Self::Reset(event) => &event.step,
        }
    }

    /// The item of a fan-out whose outcome it is about.
    pub fn item(&self) -> Option<u32> {
        match self {
            Self::ReservedEvaluated(event) => event.item,
            Self::OutputChecked(event) => event.item,
            Self::Noted(event) => event.item,
            Self::Commanded(event) => event.item,
            Self::CommandCompleted(event) => event.item,
            Self::Started(_)
            | Self::CommandsDeferred(_)
            | Self::CommandsDiscarded(_)
            | Self::ReviewRequested(_)
            | Self::SuspendRequested(_)
            | Self::Completed(_)
            | Self::Failed(_)
            | Self::Skipped(_)
            | Self::Reset(_) => None,
        }
    }
}

/// `step.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStarted {
    /// Counted from 1.
    pub attempt: u32,
    /// The inputs of the step, by JSON pointer into its declaration: `/inputs/0`, `/body/text`,
    /// `/params/who`. Literals of the definition are not repeated.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub input: BTreeMap<String, StepInput>,
    /// For a fan-out: how many items there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// The step declared `on: resume` whose definition it runs by, if it was resumed to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_step: Option<String>,
    /// The step.
    pub step: String,
}

/// One input value of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepInput {
    /// It is in an earlier frame of this stream.
    Ref(Reference),
    /// It resolves through a secret, and is recorded as its template.
    Template(String),
    /// It was computed.
    Value {
        /// The frames it was computed from.
        from: Vec<u64>,
        /// The result.
        value: CanonicalJson,
    },
}

/// `step.output_checked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputChecked {
    /// The attempt.
    pub attempt: u32,
    /// The violations, if any.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub errors: Vec<Violation>,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
    /// The verdict.
    pub valid: bool,
}

/// `reserved.evaluated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedEvaluated {
    /// The task's attempt.
    pub attempt: u32,
    /// `ktsu_…`.
    pub field: String,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
    /// The value from the agent; null if a required field is missing.
    #[serde(default)]
    pub value: CanonicalJson,
    /// The consequence.
    pub verdict: Verdict,
}

/// The consequence of a reserved field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing.
    Pass,
    /// It is kept for information.
    Noted,
    /// The step or item is skipped.
    Skip,
    /// The step or item fails.
    Fail,
    /// The run fails, whatever a fan-out tolerates.
    FailRun,
}

/// A place where a value breaks its schema. The words are ours, never a library's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// For people.
    pub message: String,
    /// JSON pointer into the value.
    pub path: String,
    /// The schema keyword: `required`, `type`, `enum`.
    pub rule: String,
}

/// `step.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCompleted {
    /// The attempt.
    pub attempt: u32,
    /// The output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<CanonicalJson>,
    /// The location of the output, if in another frame (an inline child's, an agent's). A fan-out
    /// has neither: its output is a projection of its item frames (decision R4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_from: Option<Reference>,
    /// The step.
    pub step: String,
    /// The reserved fields that are not part of the output.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub stripped: Vec<String>,
}

/// `step.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailed {
    /// The attempt; 0 if none had begun.
    pub attempt: u32,
    /// A stable error code; `stopped` where something else failed the run.
    pub code: String,
    /// For people.
    pub message: String,
    /// The refused output, if it is not in another frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<CanonicalJson>,
    /// The location of the refused output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_from: Option<Reference>,
    /// The step.
    pub step: String,
}

/// `step.skipped`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSkipped {
    /// More about the reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The reason.
    pub reason: SkipReason,
    /// The step.
    pub step: String,
}

/// `step.reset`. What a person laid over the output stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReset {
    /// The attempt that no longer counts; 0 if there was none.
    pub attempt: u32,
    /// The step.
    pub step: String,
}

/// The reason why a step did not run (decision S3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Its agent requested it; the reason is in `detail`.
    AgentSkipped,
    /// Its condition could not be evaluated.
    ConditionError,
    /// Its condition is falsy.
    ConditionFalse,
    /// Something it needs was skipped by an agent, or because of one.
    DependencySkipped,
    /// It fires for approvals only.
    OnApproval,
    /// It runs only in place of a suspended step that is resumed to it.
    OnResume,
    /// The run failed before it started.
    RunFailed,
    /// A webhook in a child workflow without the dual opt-in (seed 000, invariant 31).
    WebhooksSuppressed,
}

impl SkipReason {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentSkipped => "agent_skipped",
            Self::ConditionError => "condition_error",
            Self::ConditionFalse => "condition_false",
            Self::DependencySkipped => "dependency_skipped",
            Self::OnApproval => "on_approval",
            Self::OnResume => "on_resume",
            Self::RunFailed => "run_failed",
            Self::WebhooksSuppressed => "webhooks_suppressed",
        }
    }
}

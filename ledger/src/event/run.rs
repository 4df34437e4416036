//! Facts about a run, and about the inline child workflows inside it.
//!
//! A run's life: `run.created` → `run.started` → … → `run.completed` | `run.failed`, or, where a person
//! ends it, `run.cancelled` | `run.terminated` and the ends of its steps. An inline
//! child has no `run.created`: the `step.started` of the step that holds it carries its params, and
//! its own `run.started`, in its scope, opens it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Role;
use super::branch::{BranchCreated, Effects};
use super::place::Reference;
use super::plan::Webhooks;
use super::recorded::{RecomputeOf, RecordedResult};
use super::start::{EnvValue, Limits, Principal};
use super::step::StepInput;
use crate::canonical::CanonicalJson;
use crate::time::Timestamp;

/// A fact about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    /// `run.created`: none → pending. Always the first frame of its stream, and never in a scope.
    Created(Box<RunCreated>),
    /// `run.started`: pending → running. In a scope: the child begins.
    Started(RunStarted),
    /// `run.continued`: the run continues after a restart. Refused once the run has ended.
    Continued(Continued),
    /// `run.resumed`: a person continues a waiting branch or a paused run, or restarts steps of an
    /// ended run: waiting, complete, failed or cancelled → running. Refused while the run is
    /// active.
    Resumed(RunResumed),
    /// `run.paused`: a person pauses the run: nothing starts until `run.resumed`, what is in
    /// progress may end, and deadlines are suspended. Refused unless the run is active or waiting
    /// by itself (decision P1).
    Paused(RunCommand),
    /// `run.cancelled`: a person ends the run, and its workers are cancelled: not ended →
    /// cancelled, once every step has ended. Refused once the run has ended (decision P1).
    Cancelled(RunCommand),
    /// `run.terminated`: as `run.cancelled`, without notifying workers.
    Terminated(RunCommand),
    /// `branch.created`: a fork begins: shared frames → waiting, unless they had ended.
    Branched(Box<BranchCreated>),
    /// `run.completed`: running → complete. Refused while a step is unsettled.
    Completed(RunCompleted),
    /// `run.failed`: running → failed. Refused while no step failed and no timer fired.
    Failed(RunFailed),
    /// `timer.fired`: a deadline or a backoff is over. Refused if the state does not wait for it.
    TimerFired(TimerFired),
    /// `clock.jumped`: the wall clock contradicts the ledger.
    ClockJumped(ClockJumped),
}

impl RunEvent {
    /// See [`super::Event::role`].
    pub(super) fn role(&self) -> Role {
        match self {
            Self::Created(_)
            | Self::Continued(_)
            | Self::Resumed(_)
            | Self::Paused(_)
            | Self::Cancelled(_)
            | Self::Terminated(_)
            | Self::Branched(_)
            | Self::TimerFired(_)
            | Self::ClockJumped(_) => Role::Input,
            Self::Started(_) | Self::Completed(_) | Self::Failed(_) => Role::Decision,
        }
    }
}

/// `run.created`: an invocation was accepted; everything that decides the run is in here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCreated {
    /// The resolved [`super::plan::Plan`], always kept as a blob that runs share.
    pub definition: CanonicalJson,
    /// BLAKE3 of the definition's canonical text.
    pub digest: String,
    /// The treatment of its webhooks and messages; absent: they are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// Name and version of the engine that accepted it.
    pub engine: String,
    /// Declared environment variables: values, and for secrets the fact that they are.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub env: BTreeMap<String, EnvValue>,
    /// BLAKE3 of the request, to distinguish a repeated request from a different one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_digest: Option<String>,
    /// The client's `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The bounds of a turn.
    pub limits: Limits,
    /// The [`super::lock::Lock`] of the kit, where the files of the workflow were those it names;
    /// always kept as a blob that runs share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<CanonicalJson>,
    /// True if every model call is made, although an earlier reply of the run may answer it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_cache: bool,
    /// For a recompute: of what; absent for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<RecomputeOf>,
    /// Validated, with defaults.
    pub params: CanonicalJson,
    /// The principal that started it.
    pub principal: Principal,
    /// Names that stand for something of this run alone, such as `workspace`, in ascending order. What each
    /// stands for is never recorded.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub references: Vec<String>,
    /// For a recompute: what answers the calls it does not send, by task in the order of the run.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub results: Vec<RecordedResult>,
    /// The version of the decision rules: strict replay under another version means nothing.
    pub rules: u32,
    /// The workflow's version.
    pub version: String,
    /// The workflow's name.
    pub workflow: String,
}

impl RunCreated {
    /// The treatment of webhooks and messages.
    pub fn effects(&self) -> Effects {
        self.effects.unwrap_or(Effects::Execute)
    }
}

/// `run.started`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Of what a responder runs: its params, as in [`StepStarted`](super::StepStarted).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub input: BTreeMap<String, StepInput>,
    /// For a child: its key in the definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// For a child: the combined result of both opt-ins and all enclosing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<Webhooks>,
}

/// `run.continued`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continued {
    /// The reason why the run had stopped deciding.
    pub why: ContinueReason,
}

/// The reason why a run continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContinueReason {
    /// The turn before reached its bound.
    Bound,
    /// Nothing is due in a run that loads worlds: unless something was by then, it ends.
    Idle,
    /// The orchestrator was started again.
    Restart,
}

/// `run.resumed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunResumed {
    /// The principal that requested it.
    pub by: Principal,
    /// The step to restart, with everything that depends on it and all that was stopped or skipped
    /// because the run failed. Absent: a waiting branch or a paused run continues; a branch of all
    /// frames of a complete run accepts posts from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Of a paused run: for how many milliseconds it was. Every deadline that is pending moves by as
    /// much. Always the time from the `at` of `run.paused` to that of this frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_ms: Option<u64>,
    /// The reason given for the resumption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `run.paused`, `run.cancelled`, `run.terminated`: a person's word about a whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommand {
    /// The principal that requested it.
    pub by: Principal,
    /// The reason given for the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `run.completed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCompleted {
    /// The output, where it was computed (`output.map`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<CanonicalJson>,
    /// The location of the output, if in another frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_from: Option<Reference>,
    /// The hash of the world, in a run that loads worlds (seed 002).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<String>,
}

/// `run.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailed {
    /// A stable error code.
    pub code: String,
    /// For people.
    pub message: String,
    /// The step that failed, by path from this run: `call/inner`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The hash of the world, in a run that loads worlds (seed 002).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<String>,
}

/// `timer.fired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerFired {
    /// For `after` of a responder: its name. The first cause is the event that it waited with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responder: Option<String>,
    /// For a backoff: the step, in the frame's scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Its purpose.
    pub timer: TimerKind,
}

/// The purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// `after` of a responder.
    After,
    /// The wait before a declared retry of a webhook.
    Retry,
    /// The time to decide on the outcome of a step.
    Review,
    /// `model_policy.timeout_s` of the run.
    RunTimeout,
    /// The time to give a suspended step its data.
    Suspend,
    /// `max_wall_seconds` of the run's worlds.
    WorldBudget,
}

impl TimerKind {
    /// Returns `true` if it ends a step's wait for people.
    pub fn is_for_people(self) -> bool {
        matches!(self, Self::Review | Self::Suspend)
    }
}

/// `clock.jumped`: at a start the wall clock was before the last frame, or it went forward by more
/// than the time that passed while the engine ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockJumped {
    /// The wall clock's time.
    pub clock: Timestamp,
    /// Of a jump forward: by how many milliseconds. Every deadline that is pending moves by as much,
    /// so that no time is lost that did not pass (decision F3). At most the time from `last` to the
    /// frame's own `at`. What the clock jumps in the minute after such a frame is one jump, and none
    /// of it is in the `at` of the frames between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_ms: Option<u64>,
    /// The `at` of the frame before.
    pub last: Timestamp,
}

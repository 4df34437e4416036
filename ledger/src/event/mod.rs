//! Every event a frame can hold, one file per subject.
//!
//! Persisted, keep stable: a `type` is never renamed, and the members of `data` are in the order of
//! their names, which is the order of the fields below. A type is an **input** (something that
//! happened outside) or a **decision** (what follows from inputs); see [`Role`]. Strict replay,
//! recovery and golden ledgers depend on that distinction, so every new type must state its role.

mod agent;
mod branch;
mod command;
mod delivery;
mod eval;
mod item;
mod kv;
pub mod lock;
mod person;
mod place;
pub mod plan;
mod recompute;
mod recorded;
mod report;
mod review;
mod run;
mod shared;
mod start;
mod step;
mod store;
mod suspend;
mod tool;
mod webhook;
mod worker;
mod world;

pub use agent::{
    AgentDecided, AgentEvent, AgentFinished, BudgetExhausted, CallAttempt, CallError, CallUsage,
    ClaimedMetrics, FinishReason, LlmRequest, LlmResponse, Purpose, ReflectStarted,
};
pub use branch::{BranchCreated, Effects};
pub use command::{CommandCompleted, CommandKind, StepCommand, StepNote, WorldCommand};
pub use delivery::{
    DeliveryAdvanced, DeliveryDead, DeliveryEvent, DeliveryRedriven, DeliverySettled,
    SubscriptionAdded, SubscriptionRemoved,
};
pub use eval::{
    CheckResult, EvalEvent, EvalFinished, EvalStarted, EvalStatus, EvalSuite, LookedAt,
    PassEstimate, ReplicaAggregation, ReplicaTotals, ScenarioAggregated, ScenarioFinished,
    ScenarioStarted, Score,
};
pub use item::{ItemCompleted, ItemEvent, ItemFailed, ItemStarted};
pub use kv::{KvDeleted, KvEvent, KvSet};
pub use person::{OverlaySet, PersonEvent};
pub use place::{Derivation, Reference};
pub use recompute::{ComparedTask, RecomputeCompared, RecomputeEvent, Sameness, ValueChange};
pub use recorded::{RecomputeOf, RecordedAt, RecordedResult, UnsentReason};
pub use report::ReportReference;
pub use review::{
    CommandsDeferred, CommandsDiscarded, ReviewDecided, ReviewDecision, ReviewRequested,
};
pub use run::{
    ClockJumped, ContinueReason, Continued, RunCommand, RunCompleted, RunCreated, RunEvent,
    RunFailed, RunResumed, RunStarted, TimerFired, TimerKind,
};
pub use start::{EnvValue, Limits, Principal};
pub use step::{
    OutputChecked, ReservedEvaluated, SkipReason, StepCompleted, StepEvent, StepFailed, StepInput,
    StepReset, StepSkipped, StepStarted, Verdict, Violation,
};
pub use store::{
    CheckpointSigned, HoldLifted, HoldPlaced, KeyAdded, KeyRevoked, OPEN, RETENTION, RunHead,
    RunRemoved, StoreEvent, StoreOpened, StoreRecovered,
};
pub use suspend::{SuspendRequested, SuspendResumed};
pub use tool::{
    ApprovalDecided, ApprovalExpired, ApprovalRequested, Decision, DoubtReason, ToolCalled,
    ToolInDoubt, ToolReturned,
};
pub use webhook::{WebhookAnswer, WebhookDead, WebhookEvent, WebhookSent};
pub use worker::{LostReason, WorkerDispatched, WorkerEvent, WorkerLost};
pub use world::{
    BudgetRaised, Candidate, Dropped, FiringVerdict, KitLoaded, LoadedWorld, Note, ObjectCreated,
    ObjectPatched, OutputRejected, Post, Posted, RelationCreated, RelationRemoved,
    ResponderCompleted, ResponderFailed, ResponderFired, SkippedEntry, TaskKind,
    WorldBudgetExhausted, WorldEvent, is_address,
};

use std::collections::BTreeMap;

use serde::{Deserialize as _, Serialize};
use serde_json::value::RawValue;

use crate::canonical::CanonicalJson;
use command::{COMMAND_REQUESTED, NOTE};
use shared::{AnyCommand, AnyNote};

/// The member that brings a definition.
pub(crate) const DEFINITION: &str = "definition";
/// The member that brings the lock of a kit.
pub(crate) const LOCK: &str = "lock";

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// About a run or an inline child.
    Run(RunEvent),
    /// About a recompute.
    Recompute(RecomputeEvent),
    /// About a step.
    Step(StepEvent),
    /// About an item of a fan-out.
    Item(ItemEvent),
    /// About an agent at work.
    Agent(AgentEvent),
    /// About who works on an agent's task.
    Worker(WorkerEvent),
    /// About a call to an HTTP endpoint.
    Webhook(WebhookEvent),
    /// An intervention of a person in a recorded run.
    Person(PersonEvent),
    /// About objects, relations and responders.
    World(WorldEvent),
    /// About what agents keep between runs.
    Kv(KvEvent),
    /// About subscriptions and what is delivered to them.
    Delivery(DeliveryEvent),
    /// About checks of finished runs.
    Eval(EvalEvent),
    /// About the ledger as a whole.
    Store(StoreEvent),
    /// A type this version does not know. Kits' own (`x.KIT.NAME`) mean nothing to projections;
    /// any other makes its stream read-only here.
    Foreign {
        /// The name.
        kind: String,
        /// The content.
        data: CanonicalJson,
    },
}

/// The role of a frame: an input or a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Something that happened outside. Replay feeds it.
    Input,
    /// A consequence of inputs. Replay must reproduce it byte for byte.
    Decision,
}

impl Event {
    /// Its role: fed to a replay, or reproduced by it.
    pub fn role(&self) -> Role {
        match self {
            Self::Run(event) => event.role(),
            Self::Recompute(event) => event.role(),
            Self::Step(_) | Self::Item(_) => Role::Decision,
            Self::Agent(event) => event.role(),
            Self::Worker(event) => event.role(),
            Self::Webhook(event) => event.role(),
            Self::World(event) => event.role(),
            Self::Person(_)
            | Self::Kv(_)
            | Self::Delivery(_)
            | Self::Eval(_)
            | Self::Store(_)
            | Self::Foreign { .. } => Role::Input,
        }
    }

    /// The step that this is about, in the frame's scope, and the item of a fan-out.
    pub fn task(&self) -> Option<(&str, Option<u32>)> {
        match self {
            Self::Step(event) => Some((event.step(), event.item())),
            Self::Item(event) => Some((event.step(), Some(event.item()))),
            Self::Agent(event) => Some((event.step(), event.item())),
            Self::Worker(event) => Some((event.step(), event.item())),
            Self::Webhook(event) => Some((event.step(), None)),
            Self::Person(event) => Some((event.step(), None)),
            Self::Run(RunEvent::TimerFired(fired)) if fired.timer.is_for_people() => {
                Some((fired.step.as_deref()?, None))
            }
            Self::Run(_)
            | Self::Recompute(_)
            | Self::World(_)
            | Self::Kv(_)
            | Self::Delivery(_)
            | Self::Eval(_)
            | Self::Store(_)
            | Self::Foreign { .. } => None,
        }
    }

    /// The `run.created` or `recompute.created` of a first frame.
    pub fn created(&self) -> Option<&RunCreated> {
        if let Self::Run(RunEvent::Created(created))
        | Self::Recompute(RecomputeEvent::Created(created)) = self
        {
            return Some(created);
        }
        None
    }

    /// The `branch.created` with which a branch begins.
    pub fn branched(&self) -> Option<&BranchCreated> {
        if let Self::Run(RunEvent::Branched(branch)) = self {
            return Some(branch);
        }
        None
    }

    /// The event about objects, relations and responders, if it is one.
    pub fn world(&self) -> Option<&WorldEvent> {
        let Self::World(event) = self else {
            return None;
        };
        Some(event)
    }

    /// The beginning of an attempt of a step.
    pub fn started(&self) -> Option<&StepStarted> {
        let Self::Step(StepEvent::Started(started)) = self else {
            return None;
        };
        Some(started)
    }

    /// The code with which a step or an item fails.
    pub fn failure(&self) -> Option<&str> {
        if let Self::Step(StepEvent::Failed(failed)) = self {
            return Some(&failed.code);
        } else if let Self::Item(ItemEvent::Failed(failed)) = self {
            return Some(&failed.code);
        }
        None
    }

    /// The request to a model.
    pub fn request(&self) -> Option<&LlmRequest> {
        let Self::Agent(AgentEvent::Request(request)) = self else {
            return None;
        };
        Some(request)
    }

    /// The answer of a model.
    pub fn response(&self) -> Option<&LlmResponse> {
        let Self::Agent(AgentEvent::Response(answer)) = self else {
            return None;
        };
        Some(answer)
    }

    /// The end of an agent's task.
    pub fn finished(&self) -> Option<&AgentFinished> {
        let Self::Agent(AgentEvent::Finished(finished)) = self else {
            return None;
        };
        Some(finished)
    }

    /// The result of a tool.
    pub fn tool_result(&self) -> Option<&ToolReturned> {
        let Self::Agent(AgentEvent::ToolReturned(returned)) = self else {
            return None;
        };
        Some(returned)
    }

    /// A person's decision about a call.
    pub fn approval_decided(&self) -> Option<&ApprovalDecided> {
        let Self::Agent(AgentEvent::ApprovalDecided(decided)) = self else {
            return None;
        };
        Some(decided)
    }

    /// The answer of an endpoint to a webhook, or the lack of one.
    pub fn webhook_answer(&self) -> Option<&WebhookAnswer> {
        let Self::Webhook(WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer)) = self
        else {
            return None;
        };
        Some(answer)
    }

    /// The definition that holds from here on, and its digest, if the frame brings one.
    pub fn definition(&self) -> Option<(&CanonicalJson, &str)> {
        if let Some(branch) = self.branched() {
            return branch.definition.as_ref().zip(branch.digest.as_deref());
        }
        let created = self.created()?;
        Some((&created.definition, &created.digest))
    }

    /// Takes out the members that runs share, leaving null in their places.
    pub(crate) fn take_shared(&mut self) -> Vec<(&'static str, CanonicalJson)> {
        let (definition, lock) = if let Self::Run(RunEvent::Created(created))
        | Self::Recompute(RecomputeEvent::Created(created)) = self
        {
            (Some(&mut created.definition), created.lock.as_mut())
        } else if let Self::Run(RunEvent::Branched(branch)) = self {
            (branch.definition.as_mut(), None)
        } else {
            return Vec::new();
        };
        let definition = definition.map(|text| (DEFINITION, std::mem::take(text)));
        let lock = lock.map(|text| (LOCK, std::mem::take(text)));
        let mut shared: Vec<_> = definition.into_iter().chain(lock).collect();
        shared.retain(|(_, text)| !text.is_null());
        shared
    }

    /// Puts them back.
    pub(crate) fn put_shared(&mut self, shared: &[(&'static str, CanonicalJson)]) {
        for (name, text) in shared {
            if let Self::Run(RunEvent::Created(created))
            | Self::Recompute(RecomputeEvent::Created(created)) = self
            {
                match *name {
                    LOCK => created.lock = Some(text.clone()),
                    _ => created.definition = text.clone(),
                }
            } else if let Self::Run(RunEvent::Branched(branch)) = self {
                branch.definition = Some(text.clone());
            }
        }
    }

    /// Writes `data`.
    pub(crate) fn serialize_data<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let (may_be_asked, task) = (self.may_be_of_a_responder(), self.task());
        match task.is_some_and(|(step, _)| may_be_asked && is_address(step)) {
            true => self.with_responder()?.serialize(serializer),
            false => self.serialize_as_step(serializer),
        }
    }

    /// Returns `true` if frames about what a responder asks can be of its type.
    fn may_be_of_a_responder(&self) -> bool {
        matches!(
            self,
            Self::Worker(_)
                | Self::Step(StepEvent::ReservedEvaluated(_) | StepEvent::OutputChecked(_))
                | Self::Agent(
                    AgentEvent::Request(_)
                        | AgentEvent::Response(_)
                        | AgentEvent::Decided(_)
                        | AgentEvent::ReflectStarted(_)
                        | AgentEvent::BudgetExhausted(_)
                        | AgentEvent::Finished(_)
                )
        )
    }

    /// The members of `data` of an event about what a responder asks: its address is the member
    /// `responder`, and there is no step.
    fn with_responder<E: serde::ser::Error>(&self) -> Result<BTreeMap<String, Box<RawValue>>, E> {
        struct AsStep<'a>(&'a Event);
        impl Serialize for AsStep<'_> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize_as_step(serializer)
            }
        }
        let text = serde_json::to_string(&AsStep(self)).map_err(E::custom)?;
        let members: Result<BTreeMap<String, Box<RawValue>>, _> = serde_json::from_str(&text);
        let mut members = members.map_err(E::custom)?;
        if let Some(address) = members.remove("step") {
            members.insert("responder".to_owned(), address);
        }
        Ok(members)
    }

    /// `data` as a tree, blobs in their places.
    pub fn data(&self) -> serde_json::Value {
        let tree = self.serialize_data(serde_json::value::Serializer);
        tree.unwrap_or_default()
    }

    /// Returns `true` if projections of this version may continue after it.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Foreign { .. }) || self.is_of_kit()
    }

    /// Returns `true` if it is of a type that a kit has for itself: `x.KIT.NAME`.
    pub fn is_of_kit(&self) -> bool {
        matches!(self, Self::Foreign { kind, .. } if kind.starts_with("x."))
    }
}

/// Reads a member that may be stored as a blob: null, until it is inserted, is an empty value.
fn null_is_empty<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A type that two subjects share, like those of [`command`].
const BUDGET_EXHAUSTED: &str = "budget.exhausted";

/// The two shapes of [`BUDGET_EXHAUSTED`]. A task of a step has a report, a world has reasons.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum AnyBudgetExhausted {
    World(WorldBudgetExhausted),
    Task(BudgetExhausted),
}

impl From<AnyBudgetExhausted> for Event {
    fn from(any: AnyBudgetExhausted) -> Self {
        match any {
            AnyBudgetExhausted::World(data) => Self::World(WorldEvent::BudgetExhausted(data)),
            AnyBudgetExhausted::Task(data) => Self::Agent(AgentEvent::BudgetExhausted(data)),
        }
    }
}

/// Ties the variants of the subject enums to their persisted names: `kind()`, the writing of
/// `data`, and the reading of it, each one table.
macro_rules! event_types {
    ($($name:literal => $subject:ident :: $group:ident :: $variant:ident,)*) => {
        impl Event {
            /// The persisted name of the type.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$subject($group::$variant(_)) => $name,)*
                    Self::World(WorldEvent::BudgetExhausted(_)) => BUDGET_EXHAUSTED,
                    Self::World(WorldEvent::Commanded(_)) => COMMAND_REQUESTED,
                    Self::Step(StepEvent::Noted(_)) => NOTE,
                    Self::Foreign { kind, .. } => kind,
                }
            }

            /// Writes `data`, with the address of a responder's task as if it were a step.
            fn serialize_as_step<S: serde::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$subject($group::$variant(data)) => data.serialize(serializer),)*
                    Self::World(WorldEvent::BudgetExhausted(data)) => data.serialize(serializer),
                    Self::World(WorldEvent::Commanded(data)) => data.serialize(serializer),
                    Self::Step(StepEvent::Noted(data)) => data.serialize(serializer),
                    Self::Foreign { data, .. } => data.serialize(serializer),
                }
            }

            /// Reads `data` of a type.
            pub(crate) fn deserialize_data<'de, D: serde::Deserializer<'de>>(
                kind: &str,
                deserializer: D,
            ) -> Result<Self, D::Error> {
                use serde::Deserialize;
                if kind == BUDGET_EXHAUSTED {
                    return AnyBudgetExhausted::deserialize(deserializer).map(Self::from);
                }
                if kind == COMMAND_REQUESTED {
                    let any = AnyCommand::deserialize(deserializer)?;
                    return any.into_event().map_err(serde::de::Error::custom);
                }
                if kind == NOTE {
                    let any = AnyNote::deserialize(deserializer)?;
                    return any.into_event().map_err(serde::de::Error::custom);
                }
                match kind {
                    $($name => Deserialize::deserialize(deserializer)
                        .map(|data| Self::$subject($group::$variant(data))),)*
                    _ => Deserialize::deserialize(deserializer)
                        .map(|data| Self::Foreign { kind: kind.to_owned(), data }),
                }
            }

            /// The persisted names of all types this version knows.
            pub const KINDS: &'static [&'static str] = &[$($name),*];
        }
    };
}

event_types! {
    "run.created" => Run::RunEvent::Created,
    "recompute.created" => Recompute::RecomputeEvent::Created,
    "recompute.compared" => Recompute::RecomputeEvent::Compared,
    "run.started" => Run::RunEvent::Started,
    "run.continued" => Run::RunEvent::Continued,
    "run.resumed" => Run::RunEvent::Resumed,
    "run.paused" => Run::RunEvent::Paused,
    "run.cancelled" => Run::RunEvent::Cancelled,
    "run.terminated" => Run::RunEvent::Terminated,
    "branch.created" => Run::RunEvent::Branched,
    "run.completed" => Run::RunEvent::Completed,
    "run.failed" => Run::RunEvent::Failed,
    "timer.fired" => Run::RunEvent::TimerFired,
    "clock.jumped" => Run::RunEvent::ClockJumped,
    "step.started" => Step::StepEvent::Started,
    "reserved.evaluated" => Step::StepEvent::ReservedEvaluated,
    "step.output_checked" => Step::StepEvent::OutputChecked,
    "command.requested" => Step::StepEvent::Commanded,
    "command.completed" => Step::StepEvent::CommandCompleted,
    "command.deferred" => Step::StepEvent::CommandsDeferred,
    "command.discarded" => Step::StepEvent::CommandsDiscarded,
    "review.requested" => Step::StepEvent::ReviewRequested,
    "suspend.requested" => Step::StepEvent::SuspendRequested,
    "step.completed" => Step::StepEvent::Completed,
    "step.failed" => Step::StepEvent::Failed,
    "step.skipped" => Step::StepEvent::Skipped,
    "step.reset" => Step::StepEvent::Reset,
    "item.started" => Item::ItemEvent::Started,
    "item.completed" => Item::ItemEvent::Completed,
    "item.failed" => Item::ItemEvent::Failed,
    "llm.request" => Agent::AgentEvent::Request,
    "llm.response" => Agent::AgentEvent::Response,
    "agent.decided" => Agent::AgentEvent::Decided,
    "reflect.started" => Agent::AgentEvent::ReflectStarted,
    "budget.exhausted" => Agent::AgentEvent::BudgetExhausted,
    "tool.called" => Agent::AgentEvent::ToolCalled,
    "tool.returned" => Agent::AgentEvent::ToolReturned,
    "tool.in_doubt" => Agent::AgentEvent::ToolInDoubt,
    "approval.requested" => Agent::AgentEvent::ApprovalRequested,
    "approval.decided" => Agent::AgentEvent::ApprovalDecided,
    "approval.expired" => Agent::AgentEvent::ApprovalExpired,
    "agent.finished" => Agent::AgentEvent::Finished,
    "worker.dispatched" => Worker::WorkerEvent::Dispatched,
    "worker.lost" => Worker::WorkerEvent::Lost,
    "webhook.sent" => Webhook::WebhookEvent::Sent,
    "webhook.delivered" => Webhook::WebhookEvent::Delivered,
    "webhook.failed" => Webhook::WebhookEvent::Failed,
    "webhook.dead" => Webhook::WebhookEvent::Dead,
    "overlay.set" => Person::PersonEvent::OverlaySet,
    "review.decided" => Person::PersonEvent::ReviewDecided,
    "suspend.resumed" => Person::PersonEvent::SuspendResumed,
    "object.created" => World::WorldEvent::ObjectCreated,
    "object.patched" => World::WorldEvent::ObjectPatched,
    "relation.created" => World::WorldEvent::RelationCreated,
    "relation.removed" => World::WorldEvent::RelationRemoved,
    "note" => World::WorldEvent::Noted,
    "responder.fired" => World::WorldEvent::Fired,
    "responder.completed" => World::WorldEvent::Completed,
    "responder.failed" => World::WorldEvent::Failed,
    "output.rejected" => World::WorldEvent::Rejected,
    "kit.loaded" => World::WorldEvent::Loaded,
    "budget.raised" => World::WorldEvent::BudgetRaised,
    "kv.set" => Kv::KvEvent::Set,
    "kv.deleted" => Kv::KvEvent::Deleted,
    "subscription.added" => Delivery::DeliveryEvent::Added,
    "subscription.removed" => Delivery::DeliveryEvent::Removed,
    "delivery.advanced" => Delivery::DeliveryEvent::Advanced,
    "delivery.dead" => Delivery::DeliveryEvent::Dead,
    "delivery.redriven" => Delivery::DeliveryEvent::Redriven,
    "delivery.settled" => Delivery::DeliveryEvent::Settled,
    "eval.started" => Eval::EvalEvent::Started,
    "scenario.started" => Eval::EvalEvent::ScenarioStarted,
    "check.result" => Eval::EvalEvent::Checked,
    "scenario.finished" => Eval::EvalEvent::ScenarioFinished,
    "scenario.aggregated" => Eval::EvalEvent::Aggregated,
    "eval.finished" => Eval::EvalEvent::Finished,
    "store.opened" => Store::StoreEvent::Opened,
    "store.recovered" => Store::StoreEvent::Recovered,
    "run.head" => Store::StoreEvent::RunHead,
    "checkpoint.signed" => Store::StoreEvent::CheckpointSigned,
    "signing_key.added" => Store::StoreEvent::KeyAdded,
    "signing_key.revoked" => Store::StoreEvent::KeyRevoked,
    "hold.placed" => Store::StoreEvent::HoldPlaced,
    "hold.lifted" => Store::StoreEvent::HoldLifted,
    "run.removed" => Store::StoreEvent::RunRemoved,
}

//! Events of worlds: objects and relations, and the responders that react to them (seed 002).
//!
//! An event about objects or relations is an input exactly if it has `by` and `post`: a person or a
//! peer posted it. Otherwise a responder made it, `derived` says where, its cause is the trigger, and
//! it is a decision. A trigger has a responder for which its type is declared; its life: it is
//! queued → `responder.fired` (the verdict of every candidate) → what they make, one frame an output.
//! An `ask` or a `run` ends later, as `responder.completed` or `responder.failed`.
//!
//! What kits call `x.KIT.NAME` are inputs, too: see [`Posted`].

use serde::{Deserialize, Serialize};

use super::Role;
use super::command::WorldCommand;
use super::place::Derivation;
use super::start::Principal;
use super::step::Violation;
use crate::canonical::CanonicalJson;

/// A fact about a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorldEvent {
    /// `object.created`: an object is there, or replaces another as a whole.
    ObjectCreated(ObjectCreated),
    /// `object.patched`: members of an object's data are replaced. Refused if there is none.
    ObjectPatched(ObjectPatched),
    /// `relation.created`: a relation is there, or replaces another. Its ends need not exist.
    RelationCreated(RelationCreated),
    /// `relation.removed`: it is gone. Nothing changes if there is none.
    RelationRemoved(RelationRemoved),
    /// `note`: a remark. It changes nothing.
    Noted(Note),
    /// `command.requested` (decision): a responder's `publish`. It changes nothing.
    Commanded(WorldCommand),
    /// `responder.fired` (decision): a trigger was taken, and its candidates evaluated.
    Fired(ResponderFired),
    /// `responder.completed` (decision): a responder reacted to all of a reply or an output.
    Completed(ResponderCompleted),
    /// `responder.failed` (decision): a responder could not do what it should; nothing further
    /// follows from it.
    Failed(ResponderFailed),
    /// `output.rejected` (decision): what a responder made is not a valid event here.
    /// `responder.failed` follows.
    Rejected(OutputRejected),
    /// `kit.loaded` (decision): the worlds of the run.
    Loaded(KitLoaded),
    /// `budget.exhausted` (decision): the world's budget is used up, and nothing more is decided.
    BudgetExhausted(WorldBudgetExhausted),
    /// `budget.raised` (input): a person raised limits.
    BudgetRaised(BudgetRaised),
}

impl WorldEvent {
    /// See [`super::Event::role`].
    pub(super) fn role(&self) -> Role {
        let posted = match self {
            Self::BudgetRaised(_) => true,
            Self::ObjectCreated(_)
            | Self::ObjectPatched(_)
            | Self::RelationCreated(_)
            | Self::RelationRemoved(_)
            | Self::Noted(_) => self.by().is_some() && self.post().is_some(),
            Self::Commanded(_)
            | Self::Fired(_)
            | Self::Completed(_)
            | Self::Failed(_)
            | Self::Rejected(_)
            | Self::Loaded(_)
            | Self::BudgetExhausted(_) => false,
        };
        match posted {
            true => Role::Input,
            false => Role::Decision,
        }
    }

    /// The principal that posted it, or raised the budget.
    pub fn by(&self) -> Option<&Principal> {
        match self {
            Self::ObjectCreated(event) => event.by.as_ref(),
            Self::ObjectPatched(event) => event.by.as_ref(),
            Self::RelationCreated(event) => event.by.as_ref(),
            Self::RelationRemoved(event) => event.by.as_ref(),
            Self::Noted(event) => event.by.as_ref(),
            Self::BudgetRaised(event) => Some(&event.by),
            Self::Commanded(_)
            | Self::Fired(_)
            | Self::Completed(_)
            | Self::Failed(_)
            | Self::Rejected(_)
            | Self::Loaded(_)
            | Self::BudgetExhausted(_) => None,
        }
    }

    /// The post it came with.
    pub fn post(&self) -> Option<&Post> {
        match self {
            Self::ObjectCreated(event) => event.post.as_ref(),
            Self::ObjectPatched(event) => event.post.as_ref(),
            Self::RelationCreated(event) => event.post.as_ref(),
            Self::RelationRemoved(event) => event.post.as_ref(),
            Self::Noted(event) => event.post.as_ref(),
            Self::Commanded(_)
            | Self::Fired(_)
            | Self::Completed(_)
            | Self::Failed(_)
            | Self::Rejected(_)
            | Self::Loaded(_)
            | Self::BudgetExhausted(_)
            | Self::BudgetRaised(_) => None,
        }
    }

    /// Its origin, if it is an output of a responder or of a run's goal.
    pub fn derived(&self) -> Option<&Derivation> {
        match self {
            Self::ObjectCreated(event) => event.derived.as_ref(),
            Self::ObjectPatched(event) => event.derived.as_ref(),
            Self::RelationCreated(event) => event.derived.as_ref(),
            Self::RelationRemoved(event) => event.derived.as_ref(),
            Self::Noted(event) => event.derived.as_ref(),
            Self::Commanded(event) => Some(&event.derived),
            Self::Rejected(event) => Some(&event.derived),
            Self::Fired(_)
            | Self::Completed(_)
            | Self::Failed(_)
            | Self::Loaded(_)
            | Self::BudgetExhausted(_)
            | Self::BudgetRaised(_) => None,
        }
    }

    /// The object or the relation that it is about.
    pub fn subject(&self) -> Option<&str> {
        match self {
            Self::ObjectCreated(event) => Some(&event.id),
            Self::ObjectPatched(event) => Some(&event.id),
            Self::RelationCreated(event) => Some(&event.id),
            Self::RelationRemoved(event) => Some(&event.id),
            Self::Noted(_)
            | Self::Commanded(_)
            | Self::Fired(_)
            | Self::Completed(_)
            | Self::Failed(_)
            | Self::Rejected(_)
            | Self::Loaded(_)
            | Self::BudgetExhausted(_)
            | Self::BudgetRaised(_) => None,
        }
    }
}

/// The request that a posted event came with. All events of one post are one input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Post {
    /// BLAKE3 of its events.
    pub digest: String,
    /// The idempotency key of the request, on the first event of the post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Counted from 1 in a run.
    pub n: u64,
}

/// `object.created`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCreated {
    /// The principal that posted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// The data, an object. Null is an empty one.
    #[serde(default, skip_serializing_if = "CanonicalJson::is_null")]
    pub data: CanonicalJson,
    /// Its origin: an output of a responder, or of the goal of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<Derivation>,
    /// The object.
    pub id: String,
    /// The key that makes it the only one of its type: its id follows from both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<Post>,
    /// The type of the object.
    #[serde(rename = "type")]
    pub kind: String,
}

/// `object.patched`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectPatched {
    /// The principal that posted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// Its origin: an output of a responder, or of the goal of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<Derivation>,
    /// The object.
    pub id: String,
    /// Members that replace those of the data, whole. Null changes nothing.
    #[serde(default, skip_serializing_if = "CanonicalJson::is_null")]
    pub patch: CanonicalJson,
    /// The post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<Post>,
    /// Members that a reaction to a reply would have replaced, had a person not changed them since
    /// the trigger: shown here, and not applied.
    #[serde(default, skip_serializing_if = "CanonicalJson::is_null")]
    pub withheld: CanonicalJson,
}

/// `relation.created`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelationCreated {
    /// The principal that posted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// The data, an object. Null is an empty one.
    #[serde(default, skip_serializing_if = "CanonicalJson::is_null")]
    pub data: CanonicalJson,
    /// Its origin: an output of a responder, or of the goal of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<Derivation>,
    /// The relation.
    pub id: String,
    /// The post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<Post>,
    /// The object it begins at.
    pub source_id: String,
    /// The object it ends at.
    pub target_id: String,
    /// The type of the relation.
    #[serde(rename = "type")]
    pub kind: String,
}

/// `relation.removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelationRemoved {
    /// The principal that posted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// Its origin: an output of a responder, or of the goal of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<Derivation>,
    /// The relation.
    pub id: String,
    /// The post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<Post>,
}

/// `note`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The principal that posted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
    /// The content.
    #[serde(default, skip_serializing_if = "CanonicalJson::is_null")]
    pub data: CanonicalJson,
    /// Its origin: an output of a responder, or of the goal of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<Derivation>,
    /// The post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<Post>,
}

/// The `data` of an event that a kit has named, `x.KIT.NAME`. Other contents of such an event are
/// kept as they are and trigger nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posted {
    /// The principal that it comes from.
    pub by: Principal,
    /// The content.
    #[serde(default, skip_serializing_if = "CanonicalJson::is_null")]
    pub data: CanonicalJson,
    /// The post.
    pub post: Post,
}

impl super::Event {
    /// The principal that posted it, and the post it came with; `None` if it is no posted event.
    pub fn posted(&self) -> Option<(Principal, Post)> {
        if let Self::World(event) = self {
            return event.by().cloned().zip(event.post().cloned());
        }
        let posted = Posted::of(self)?;
        Some((posted.by, posted.post))
    }

    /// Returns `true` if it is a person's input to the world of a run: something posted, or a
    /// raised budget.
    pub fn is_world_input(&self) -> bool {
        if let Self::World(event) = self {
            return event.by().is_some();
        }
        Posted::of(self).is_some()
    }
}

impl Posted {
    /// Reads the content of a posted event.
    pub fn of(event: &super::Event) -> Option<Self> {
        let super::Event::Foreign { kind, data } = event else {
            return None;
        };
        let data = data.as_str();
        kind.starts_with("x.")
            .then(|| serde_json::from_str(data).ok())?
    }
}

/// `responder.fired`. Its first cause is the trigger; the frames that follow from the trigger name
/// the trigger itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponderFired {
    /// Every responder for which the trigger's type is declared, in the order they act.
    #[serde(default, deserialize_with = "super::null_is_empty")]
    pub candidates: Vec<Candidate>,
}

/// One responder, and what a trigger is to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The time that it waits, in milliseconds, if it is postponed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// The number of its outputs for each item: the entries of `emit`, and a `publish`. An output
    /// may turn out to make nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub entries: u32,
    /// True if the responder fails, as `responder.failed` says next of it: its guard is truthy, and
    /// what it goes through could not be evaluated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fails: bool,
    /// The number of items, where there is a `for_each`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// The reason why it could not be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its name.
    pub responder: String,
    /// The task that it starts, once for each item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskKind>,
    /// The verdict of its guard.
    pub verdict: FiringVerdict,
}

impl Candidate {
    /// The number of all of its outputs.
    pub fn outputs(&self) -> u64 {
        u64::from(self.entries) * u64::from(self.items.unwrap_or(1))
    }
}

/// A task that a responder starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// A model is asked.
    Ask,
    /// A workflow runs inline.
    Run,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The verdict on whether a responder reacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FiringVerdict {
    /// Its guard or a look-up could not be evaluated: it does not react (decision T3). Or it fails,
    /// because its items could not be: see [`Candidate::fails`].
    Failed,
    /// Its guard is falsy.
    False,
    /// It reacts.
    Fired,
    /// It is evaluated when its `after` is over.
    Postponed,
}

/// `responder.completed`. Its first cause is the reply, or the end of the workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponderCompleted {
    /// The address of what it asked or ran: `@NAME.KEY`.
    pub address: String,
    /// Its name.
    pub responder: String,
    /// Entries of `then` whose guards could not be evaluated, and which made nothing therefore.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub skipped: Vec<SkippedEntry>,
}

/// An entry that makes nothing because its guard could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedEntry {
    /// Its position.
    pub entry: u32,
    /// The reason.
    pub reason: String,
}

/// `responder.failed`. Its first cause is the trigger, or the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponderFailed {
    /// The address of what it asked or ran, where that failed or its reply could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// A stable error code.
    pub code: String,
    /// The entry that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<u32>,
    /// The item that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// For people.
    pub message: String,
    /// Its name.
    pub responder: String,
}

/// `output.rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRejected {
    /// A stable error code: `schema_violation`, `unknown_object`, …
    pub code: String,
    /// Its origin: an output of a responder, or of the goal of the run.
    pub derived: Derivation,
    /// The violations of the schema of its type.
    #[serde(
        default,
        deserialize_with = "super::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub errors: Vec<Violation>,
    /// For people.
    pub message: String,
    /// The `data` that the event would have had.
    #[serde(default)]
    pub output: CanonicalJson,
    /// The type that the event would have had.
    #[serde(rename = "type")]
    pub kind: String,
}

/// `kit.loaded`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KitLoaded {
    /// In the order in which their responders act.
    #[serde(default, deserialize_with = "super::null_is_empty")]
    pub worlds: Vec<LoadedWorld>,
}

/// A world of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedWorld {
    /// Its name.
    pub name: String,
    /// Its file, relative to the kit.
    pub path: String,
    /// Its version.
    pub version: String,
}

/// `budget.exhausted` of a run that loads worlds. Its cause is the last frame that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldBudgetExhausted {
    /// The cost of model calls of responders by then, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The depth of what would have come next.
    pub depth: u32,
    /// The triggers, outputs and tasks that are left undone, and the timers that were still to
    /// fire.
    pub dropped: Dropped,
    /// The time that the run had used up, in milliseconds.
    pub elapsed_ms: u64,
    /// World frames of the run by then.
    pub event_count: u64,
    /// Every limit that is reached, as `NAME=LIMIT`.
    pub reasons: Vec<String>,
}

/// The work that the end of a budget leaves undone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Outputs of the trigger under way, at the most, and what responders were to ask or run and had
    /// not begun.
    pub outputs: u64,
    /// Timers that responders had set with `after`.
    #[serde(default, skip_serializing_if = "is_none_left")]
    pub timers: u64,
    /// Triggers after the current one, which no responder has seen.
    pub triggers: u64,
}

fn is_none_left(count: &u64) -> bool {
    *count == 0
}

/// `budget.raised`. Limits that are absent stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetRaised {
    /// The principal that it comes from.
    pub by: Principal,
    /// World frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    /// Millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_llm_cost_micro_usd: Option<u64>,
    /// Depth of a world frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_recursion_depth: Option<u32>,
    /// Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wall_ms: Option<u64>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Returns `true` if this is the address of what a responder asks or runs, or a scope within it. No
/// step has such a name.
pub fn is_address(name: &str) -> bool {
    name.starts_with('@')
}

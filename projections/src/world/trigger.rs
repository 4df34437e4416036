//! The triggers, which responders react to.

use std::sync::Arc;

use ktsu_ledger::event::TaskKind;
use ktsu_ledger::{CanonicalJson, Timestamp};

use super::derivation::TriggerKey;
use super::graph::World;
use super::object::{WorldObject, WorldRelation};

/// A frame that responders react to, and what they see of it.
#[derive(Debug, Clone)]
pub struct Trigger {
    /// The frame; of an event with which a responder waited, the one of its timer.
    pub seq: u64,
    /// The time at which it was appended, by the run's own time ([`ResponderTimer::due`]).
    ///
    /// [`ResponderTimer::due`]: super::ResponderTimer::due
    pub at: Timestamp,
    /// Of an event with which a responder waited: its own frame. The responder looks it up in the world
    /// as of the timer, and sees the object as it is there; everything else is as of the event.
    pub waited_with: Option<u64>,
    /// The type of the event: `event.type`.
    pub kind: String,
    /// The actor that appended it: `event.actor`.
    pub actor: String,
    /// The key from which ids of its outputs are made.
    pub key: TriggerKey,
    /// Its subject.
    pub subject: TriggerSubject,
    /// The responders that react: positions among all responders, ascending. A reply has none: the
    /// responder that asked reacts to it.
    pub candidates: Vec<u32>,
}

/// The subject of a trigger.
#[derive(Debug, Clone)]
pub enum TriggerSubject {
    /// An object.
    Object {
        /// As of the trigger, or of the timer.
        object: Arc<WorldObject>,
        /// As it was before, if it is patched.
        before: Option<Arc<WorldObject>>,
        /// The members that were replaced, if it is patched.
        patch: Option<CanonicalJson>,
    },
    /// A relation; if it was removed, as it was.
    Relation(Arc<WorldRelation>),
    /// The data of a post or a note: `event.data`.
    Posted(CanonicalJson),
    /// The end of what a responder asked or ran.
    Reply {
        /// The question or the workflow.
        task: Arc<TaskContext>,
        /// Its outcome: `{output}` or `{error}`.
        outcome: CanonicalJson,
    },
}

/// A question that a responder asked, or a workflow that it ran. It keeps the world as of its
/// trigger, so that it can be made again after a restart.
#[derive(Debug, Clone)]
pub struct TaskContext {
    /// `@NAME.KEY`: its step or its scope.
    pub address: Arc<str>,
    /// The responder that started it.
    pub responder: Arc<str>,
    /// The item it is for, where there is a `for_each`.
    pub item: Option<u32>,
    /// Its kind.
    pub kind: TaskKind,
    /// The trigger that its responder reacted to.
    pub trigger: Arc<Trigger>,
    /// As of that trigger, or of the timer.
    pub world: World,
}

impl Trigger {
    /// The frame of the event itself.
    pub fn event_seq(&self) -> u64 {
        self.waited_with.unwrap_or(self.seq)
    }

    /// The type of the object or the relation it is about.
    pub fn subject_type(&self) -> Option<&str> {
        match &self.subject {
            TriggerSubject::Object { object, .. } => Some(&object.kind),
            TriggerSubject::Relation(relation) => Some(&relation.kind),
            TriggerSubject::Posted(_) | TriggerSubject::Reply { .. } => None,
        }
    }
}

//! The frames that responders have not seen yet, in their order.

use std::sync::Arc;

use ktsu_ledger::event::Derivation;
use ktsu_ledger::{CanonicalJson, Timestamp};

use crate::world::derivation::TriggerKey;
use crate::world::graph::{World, WorldChange};
use crate::world::steps::changed_object;
use crate::world::trigger::{TaskContext, Trigger, TriggerSubject};

/// A frame that the cursor has not passed.
#[derive(Debug, Clone)]
pub(super) struct QueuedFrame {
    pub(super) change: WorldChange,
    /// If somebody reacts to it.
    pub(super) trigger: Option<Box<QueuedTrigger>>,
}

#[derive(Debug, Clone)]
pub(super) struct QueuedTrigger {
    pub(super) seq: u64,
    pub(super) at: Timestamp,
    pub(super) kind: String,
    pub(super) actor: String,
    pub(super) key: KeySource,
    pub(super) subject: QueuedSubject,
    pub(super) candidates: Vec<u32>,
}

#[derive(Debug, Clone)]
pub(super) enum QueuedSubject {
    /// The change of the frame, and the members that were patched.
    Change {
        patch: Option<CanonicalJson>,
    },
    Posted(CanonicalJson),
    Reply(Arc<TaskContext>, CanonicalJson),
    /// A responder has waited with this long enough.
    Waited(Arc<Trigger>),
}

/// The parts that a key is made of, when it is needed.
#[derive(Debug, Clone)]
pub(super) enum KeySource {
    Root(TriggerKey),
    Output(TriggerKey, Derivation),
}

/// The type of the object or the relation that a queued frame is about, and what is patched.
pub(super) fn subject_of<'q>(
    subject: &'q QueuedSubject,
    change: &'q WorldChange,
) -> (Option<&'q str>, Option<&'q CanonicalJson>) {
    match (subject, change) {
        (QueuedSubject::Change { patch }, WorldChange::Object(object)) => {
            (Some(&*object.kind), patch.as_ref())
        }
        (
            QueuedSubject::Change { .. },
            WorldChange::Relation(relation) | WorldChange::Removed(relation),
        ) => (Some(&*relation.kind), None),
        (QueuedSubject::Change { .. }, _)
        | (QueuedSubject::Posted(_) | QueuedSubject::Reply(..) | QueuedSubject::Waited(_), _) => {
            (None, None)
        }
    }
}

/// Moves a world past a frame. Gives the trigger that it is, if it is one.
pub(super) fn take(world: &mut World, queued: &QueuedFrame) -> Option<Trigger> {
    let before =
        changed_object(&queued.change).and_then(|object| world.object(&object.id).cloned());
    world.follow(&queued.change);
    let trigger = queued.trigger.as_deref()?;
    let subject = match (&trigger.subject, &queued.change) {
        (QueuedSubject::Posted(data), _) => TriggerSubject::Posted(data.clone()),
        (QueuedSubject::Reply(task, outcome), _) => TriggerSubject::Reply {
            task: Arc::clone(task),
            outcome: outcome.clone(),
        },
        (QueuedSubject::Waited(event), _) => as_of(event, world),
        (QueuedSubject::Change { patch }, WorldChange::Object(object)) => TriggerSubject::Object {
            object: Arc::clone(object),
            before: before.filter(|_| patch.is_some()),
            patch: patch.clone(),
        },
        (
            QueuedSubject::Change { .. },
            WorldChange::Relation(relation) | WorldChange::Removed(relation),
        ) => TriggerSubject::Relation(Arc::clone(relation)),
        (
            QueuedSubject::Change { .. },
            WorldChange::Nothing | WorldChange::Exhausted | WorldChange::Raised,
        ) => return None,
    };
    let key = match &trigger.key {
        KeySource::Root(key) => key.clone(),
        KeySource::Output(parent, derived) => {
            let responder = derived.responder.as_deref().unwrap_or_default();
            parent.output(responder, derived.item, derived.entry)
        }
    };
    let waited_with = match &trigger.subject {
        QueuedSubject::Waited(event) => Some(event.seq),
        QueuedSubject::Change { .. } | QueuedSubject::Posted(_) | QueuedSubject::Reply(..) => None,
    };
    Some(Trigger {
        seq: trigger.seq,
        at: trigger.at,
        waited_with,
        kind: trigger.kind.clone(),
        actor: trigger.actor.clone(),
        key,
        subject,
        candidates: trigger.candidates.clone(),
    })
}

/// The subject of an event in a later world: its object as it is there.
fn as_of(event: &Trigger, world: &World) -> TriggerSubject {
    let mut subject = event.subject.clone();
    if let TriggerSubject::Object { object, .. } = &mut subject
        && let Some(now) = world.object(&object.id)
    {
        *object = Arc::clone(now);
    }
    subject
}

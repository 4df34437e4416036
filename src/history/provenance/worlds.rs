//! The worlds of a recorded run, for those who ask where a value in them came from: which frame set
//! which field, and what responders saw of each trigger.

use std::collections::HashMap;
use std::sync::Arc;

use ktsu_ledger::event::{Derivation, WorldEvent};
use ktsu_ledger::{Cause, Frame};
use ktsu_projections::world::activity::is_address;
use ktsu_projections::world::{Responding, TaskContext, Trigger, World, object};
use ktsu_workflow::expression::provenance::FramePointer;

/// The place of an output: its trigger, its responder, its item, its entry.
type OutputKey = (u64, Option<String>, Option<u32>, u32);

/// The facts about a run's worlds that its frames have.
#[derive(Debug, Default)]
pub(crate) struct WorldFacts {
    /// Each trigger that was decided on, with the world as of it.
    triggers: HashMap<u64, (Arc<Trigger>, World)>,
    /// The tasks that responders asked or ran, by address.
    tasks: HashMap<String, Arc<TaskContext>>,
    objects: HashMap<String, ObjectFrames>,
    /// The frames that made a relation, ascending.
    relations: HashMap<String, Vec<u64>>,
    outputs: HashMap<OutputKey, u64>,
    /// The number of times that a trigger was looked for in the state.
    #[cfg(test)]
    pub(crate) work: usize,
}

/// The frames that set an object's data, ascending.
#[derive(Debug, Default)]
struct ObjectFrames {
    /// Those that set all of it.
    whole: Vec<u64>,
    /// Those that replaced a member, by its name.
    members: HashMap<String, Vec<u64>>,
}

impl WorldFacts {
    /// A trigger that was decided on, and the world as of it.
    pub(crate) fn trigger(&self, seq: u64) -> Option<(&Arc<Trigger>, &World)> {
        let (trigger, world) = self.triggers.get(&seq)?;
        Some((trigger, world))
    }

    /// The task that a responder asked or ran.
    pub(crate) fn task(&self, address: &str) -> Option<&Arc<TaskContext>> {
        self.tasks.get(address)
    }

    /// The frame that made an output, if it made anything.
    pub(crate) fn output(&self, trigger: Option<u64>, derived: &Derivation) -> Option<u64> {
        self.outputs.get(&output_key(trigger, derived)).copied()
    }

    /// The frame that created an object, as it was when a frame had left it.
    pub(crate) fn created(&self, id: &str, until: u64) -> Option<u64> {
        last_until(&self.objects.get(id)?.whole, until)
    }

    /// Returns `true` if an object was created no more than once.
    pub(crate) fn is_created_once(&self, id: &str) -> bool {
        self.objects.get(id).is_none_or(|of| of.whole.len() < 2)
    }

    /// The frame that made a relation, as a frame had left it.
    pub(crate) fn related(&self, id: &str, until: u64) -> Option<u64> {
        last_until(self.relations.get(id)?, until)
    }

    /// The place where a member of an object's data was set, as a frame had left it.
    pub(crate) fn member(&self, id: &str, member: &str, until: u64) -> Option<FramePointer> {
        let frames = self.objects.get(id)?;
        let whole = last_until(&frames.whole, until);
        let patched = frames.members.get(member);
        let patched = patched.and_then(|all| last_until(all, until));
        match (whole, patched) {
            (whole, Some(patched)) if whole < Some(patched) => {
                Some(FramePointer::new(patched, "/patch").below(member))
            }
            (whole, _) => Some(FramePointer::new(whole?, "/data").below(member)),
        }
    }

    /// A decision about a trigger: what its responders saw is known before it is folded, since the
    /// cursor may pass the trigger with it.
    pub(super) fn see_trigger(&mut self, responding: &Responding, frame: &Frame) {
        let decides = frame
            .event
            .world()
            .is_some_and(|event| event.by().is_none());
        let Some(Cause::Here(seq)) = frame.cause.first().filter(|_| decides) else {
            return;
        };
        if self.triggers.contains_key(seq) {
            return;
        }
        let current = responding
            .current()
            .map(|(trigger, world)| (Arc::clone(trigger), world.clone()));
        let seen = match current.filter(|(trigger, _)| trigger.seq == *seq) {
            Some(current) => Some(current),
            None => responding.after_current(),
        };
        #[cfg(test)]
        {
            self.work += 1;
        }
        if let Some(seen) = seen.filter(|(trigger, _)| trigger.seq == *seq) {
            self.triggers.insert(*seq, seen);
        }
    }

    /// Takes a frame that was folded; `responding` is what it led to.
    pub(super) fn take(&mut self, responding: &Responding, frame: &Frame) {
        let about = match frame.scope.as_str() {
            "" => frame.event.task().map(|(address, _)| address),
            address => Some(address),
        };
        let address = about.filter(|address| is_address(address));
        if let Some((address, task)) = address.and_then(|at| Some((at, responding.task(at)?))) {
            let context = Arc::clone(&task.context);
            self.tasks.insert(address.to_owned(), context);
        }
        if let Some(event) = frame.event.world() {
            self.take_event(frame, event);
        }
    }

    fn take_event(&mut self, frame: &Frame, event: &WorldEvent) {
        if let WorldEvent::ObjectCreated(created) = event {
            let of = self.objects.entry(created.id.clone()).or_default();
            of.whole.push(frame.seq);
        } else if let WorldEvent::ObjectPatched(patched) = event {
            let of = self.objects.entry(patched.id.clone()).or_default();
            for member in object::members(&patched.patch).into_keys() {
                of.members.entry(member).or_default().push(frame.seq);
            }
        } else if let WorldEvent::RelationCreated(created) = event {
            let of = self.relations.entry(created.id.clone()).or_default();
            of.push(frame.seq);
        }
        let made = event.subject().is_some();
        if let Some(derived) = event.derived().filter(|_| made) {
            let key = output_key(cause(frame), derived);
            self.outputs.insert(key, frame.seq);
        }
    }
}

/// The first cause of a frame that is in its own stream.
pub(crate) fn cause(frame: &Frame) -> Option<u64> {
    match frame.cause.first()? {
        Cause::Here(seq) => Some(*seq),
        Cause::There(..) => None,
    }
}

fn output_key(trigger: Option<u64>, derived: &Derivation) -> OutputKey {
    let responder = derived.responder.clone();
    // What a goal becomes has no trigger.
    let trigger = trigger.filter(|_| responder.is_some());
    (
        trigger.unwrap_or_default(),
        responder,
        derived.item,
        derived.entry,
    )
}

fn last_until(frames: &[u64], until: u64) -> Option<u64> {
    let behind = frames.partition_point(|seq| *seq <= until);
    frames.get(behind.checked_sub(1)?).copied()
}

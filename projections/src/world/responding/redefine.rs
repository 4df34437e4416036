//! Worlds that are replaced by others, where a branch begins with another kit.

use std::sync::Arc;

use super::Responding;
use super::queue::{QueuedSubject, subject_of};
use crate::world::reactions::Reactions;
use crate::world::trigger::{Trigger, TriggerSubject};

impl Responding {
    /// Other worlds are in force from here on: for the triggers that are queued and the timers that are
    /// set, too, but not for the trigger under way. A timer is due when it was due before, and is gone
    /// with its responder.
    pub fn redefine(&mut self, reactions: Arc<Reactions>) {
        let fields = reactions.fields();
        self.head = self.head.reindexed(fields);
        self.seen = self.seen.reindexed(fields);
        let before = Arc::clone(&self.reactions);
        let still_there = |candidates: &[u32]| -> Vec<u32> {
            let names = candidates.iter().filter_map(|place| before.name(*place));
            names.filter_map(|name| reactions.place(name)).collect()
        };
        for queued in &mut self.queue {
            queued.change = queued.change.reindexed(fields);
            if let Some(trigger) = &mut queued.trigger {
                let (about, patch) = subject_of(&trigger.subject, &queued.change);
                match &trigger.subject {
                    QueuedSubject::Reply(..) => {}
                    QueuedSubject::Waited(_) => {
                        trigger.candidates = still_there(&trigger.candidates);
                    }
                    QueuedSubject::Change { .. } | QueuedSubject::Posted(_) => {
                        trigger.candidates = reactions.candidates(&trigger.kind, about, patch);
                    }
                }
            }
        }
        if let (Some(current), None) = (&self.current, &self.firing) {
            let mut trigger = Trigger::clone(current);
            trigger.candidates = match trigger.waited_with {
                Some(_) => still_there(&trigger.candidates),
                None => candidates(&reactions, &trigger),
            };
            self.current = Some(Arc::new(trigger));
        }
        self.timers.redefine(&reactions);
        self.reactions = reactions;
    }
}

fn candidates(reactions: &Reactions, trigger: &Trigger) -> Vec<u32> {
    let patch = match &trigger.subject {
        TriggerSubject::Object { patch, .. } => patch.as_ref(),
        TriggerSubject::Relation(_) | TriggerSubject::Posted(_) | TriggerSubject::Reply { .. } => {
            None
        }
    };
    reactions.candidates(&trigger.kind, trigger.subject_type(), patch)
}

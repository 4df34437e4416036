//! The triggers that responders have not seen yet, for those who explain a run.

use super::Responding;

/// A trigger that was not decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingTrigger<'r> {
    /// The frame.
    pub seq: u64,
    /// The type of the event.
    pub kind: &'r str,
    /// The responders that would react, as in
    /// [`Trigger::candidates`](crate::world::Trigger::candidates).
    pub candidates: &'r [u32],
}

impl Responding {
    /// The triggers whose candidates were not evaluated, in order. Replies are none of them.
    pub fn pending_triggers(&self) -> impl Iterator<Item = PendingTrigger<'_>> {
        let current = self.current.as_deref().filter(|_| self.firing.is_none());
        let current = current.map(|trigger| PendingTrigger {
            seq: trigger.seq,
            kind: &trigger.kind,
            candidates: &trigger.candidates,
        });
        let queued = self.queue.iter().filter_map(|queued| {
            let trigger = queued.trigger.as_deref()?;
            Some(PendingTrigger {
                seq: trigger.seq,
                kind: &trigger.kind,
                candidates: &trigger.candidates,
            })
        });
        current.into_iter().chain(queued)
    }
}

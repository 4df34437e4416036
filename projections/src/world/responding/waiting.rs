//! The waits of responders: the events that they wait with, and what follows when the time is over.

use std::sync::Arc;

use ktsu_ledger::Frame;
use ktsu_ledger::event::{Candidate, FiringVerdict, TimerFired, TimerKind};

use super::Responding;
use super::queue::{KeySource, QueuedFrame, QueuedSubject, QueuedTrigger};
use super::timers::{MAX_TIMERS, ResponderTimer};
use crate::world::graph::WorldChange;
use crate::world::trigger::Trigger;

impl Responding {
    /// The timers that have not fired, in the order in which they do.
    pub fn timers(&self) -> impl Iterator<Item = ResponderTimer<'_>> {
        self.timers.all()
    }

    /// The timer that fires next.
    pub fn next_timer(&self) -> Option<ResponderTimer<'_>> {
        self.timers.first()
    }

    /// Number of timers that have not fired.
    pub fn timer_count(&self) -> usize {
        self.timers.count()
    }

    /// Returns `Some(true)` if a responder sets a timer for what it reacts to, instead of looking
    /// at it at once; `Some(false)` where it would be one too many; `None` if it sets none. `more`:
    /// how many are set for the event already.
    pub fn sets_timer(&self, event: &Trigger, place: u32, more: usize) -> Option<bool> {
        self.reactions.after_ms(place)?;
        let is_new = event.waited_with.is_none();
        is_new.then(|| self.timer_count().saturating_add(more) < MAX_TIMERS)
    }

    /// Returns `true` if a frame says that the next timer fired, and not too early.
    pub fn may_fire(&self, frame: &Frame, fired: &TimerFired) -> bool {
        let next = self.next_timer();
        next.is_some_and(|next| next.is_of(frame, fired) && next.due <= frame.at)
    }

    /// The run's own time stood still: all timers are due later by as much.
    pub(crate) fn postpone(&mut self, by_ms: u64) {
        self.timers.postpone(by_ms);
    }

    /// Returns `true` if verdicts are postponed exactly where a timer is set.
    pub(super) fn sets_timers_as_told(&self, event: &Trigger, candidates: &[Candidate]) -> bool {
        let mut more = 0;
        let mut told = event.candidates.iter().zip(candidates);
        told.all(|(place, told)| {
            let sets = self.sets_timer(event, *place, more);
            let postponed = told.verdict == FiringVerdict::Postponed;
            let after = self.reactions.after_ms(*place).filter(|_| postponed);
            if told.after_ms != after {
                return false;
            }
            more += usize::from(postponed);
            match sets {
                Some(false) => told.verdict == FiringVerdict::Failed,
                sets => postponed == sets.is_some(),
            }
        })
    }

    /// Sets a timer for each candidate that is postponed.
    pub(super) fn set_timers(&mut self, event: &Arc<Trigger>, candidates: &[Candidate]) {
        let reactions = Arc::clone(&self.reactions);
        for (place, told) in event.candidates.iter().zip(candidates) {
            let after_ms = reactions.after_ms(*place);
            if let (FiringVerdict::Postponed, Some(after_ms), Some(name)) =
                (told.verdict, after_ms, reactions.name(*place))
            {
                self.timers.set(event, (*place, name), after_ms);
            }
        }
    }

    /// A timer fired: what its responder waited with is behind the cursor, in the world as it is now.
    pub(super) fn fire_timer(&mut self, frame: &Frame, fired: &TimerFired) {
        let is_after = fired.timer == TimerKind::After;
        let is_next = is_after && self.next_timer().is_some_and(|one| one.is_of(frame, fired));
        let Some((place, timer)) = is_next.then(|| self.timers.pop_first()).flatten() else {
            return;
        };
        let trigger = QueuedTrigger {
            seq: frame.seq,
            at: self.timers.own_time(frame.at),
            kind: timer.event.kind.clone(),
            actor: timer.event.actor.clone(),
            key: KeySource::Root(timer.event.key.clone()),
            subject: QueuedSubject::Waited(timer.event),
            candidates: vec![place],
        };
        self.queued_triggers += 1;
        self.queue.push_back(QueuedFrame {
            change: WorldChange::Nothing,
            trigger: Some(Box::new(trigger)),
        });
    }
}

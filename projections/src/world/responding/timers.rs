//! `after` of responders: the events that they wait with, and until when.
//!
//! ```text
//! responder.fired {postponed} ──▶ a timer ──timer.fired──▶ a trigger of its own: one candidate,
//!                                                          the world as of the timer
//! ```
//!
//! Due times are kept in the run's own time: without what clocks jumped, and without pauses.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::{Candidate, FiringVerdict, TimerFired, TimerKind};
use ktsu_ledger::{Cause, Frame, Timestamp};

use super::Responding;
use super::queue::{KeySource, QueuedFrame, QueuedSubject, QueuedTrigger};
use crate::world::graph::WorldChange;
use crate::world::reactions::Reactions;
use crate::world::trigger::Trigger;

/// The most timers of the responders of a run at once. Each keeps what it was set for.
pub const MAX_TIMERS: usize = 10_000;

/// A responder that waits before it looks at an event.
#[derive(Debug, Clone, Copy)]
pub struct ResponderTimer<'r> {
    /// When it is due, by the wall clock.
    pub due: Timestamp,
    /// How long it waits in all, in milliseconds.
    pub after_ms: u64,
    /// Who waits.
    pub responder: &'r str,
    /// What it waits with.
    pub event: &'r Trigger,
}

/// Which timer comes first: by due time, then by event, then by responder.
type TimerOrder = (Timestamp, u64, u32);

#[derive(Debug, Clone)]
struct SetTimer {
    responder: Arc<str>,
    after_ms: u64,
    event: Arc<Trigger>,
}

/// All timers of a run's responders that have not fired.
#[derive(Debug, Clone, Default)]
pub(super) struct Timers {
    pending: BTreeMap<TimerOrder, SetTimer>,
    /// How long the run's own time stood still so far.
    still_ms: u64,
}

impl Timers {
    /// A moment of the wall clock in the run's own time.
    pub(super) fn own_time(&self, at: Timestamp) -> Timestamp {
        let still = self.still_ms.saturating_mul(1000);
        Timestamp::from_micros(at.as_micros().saturating_sub(still))
    }

    /// The run's own time stood still.
    pub(super) fn postpone(&mut self, by_ms: u64) {
        self.still_ms = self.still_ms.saturating_add(by_ms);
    }

    fn set(&mut self, event: &Arc<Trigger>, (place, responder): (u32, &Arc<str>), after_ms: u64) {
        let due = event.at.plus_millis(after_ms);
        let timer = SetTimer {
            responder: Arc::clone(responder),
            after_ms,
            event: Arc::clone(event),
        };
        self.pending.insert((due, event.seq, place), timer);
    }

    /// Responders have other places, or are gone.
    pub(super) fn redefine(&mut self, reactions: &Reactions) {
        let all = std::mem::take(&mut self.pending).into_iter();
        self.pending = all
            .filter_map(|((due, seq, _), timer)| {
                let place = reactions.place(&timer.responder)?;
                Some(((due, seq, place), timer))
            })
            .collect();
    }

    fn first(&self) -> Option<ResponderTimer<'_>> {
        self.all().next()
    }

    fn all(&self) -> impl Iterator<Item = ResponderTimer<'_>> {
        self.pending
            .iter()
            .map(|((due, ..), timer)| ResponderTimer {
                due: due.plus_millis(self.still_ms),
                after_ms: timer.after_ms,
                responder: &timer.responder,
                event: &timer.event,
            })
    }
}

impl ResponderTimer<'_> {
    /// Whether a frame says that it fired.
    fn is_of(&self, frame: &Frame, fired: &TimerFired) -> bool {
        frame.cause == [Cause::Here(self.event.seq)]
            && fired.responder.as_deref() == Some(self.responder)
    }
}

impl Responding {
    /// The timers that have not fired, in the order in which they do.
    pub fn timers(&self) -> impl Iterator<Item = ResponderTimer<'_>> {
        self.timers.all()
    }

    /// The timer that fires next.
    pub fn next_timer(&self) -> Option<ResponderTimer<'_>> {
        self.timers.first()
    }

    /// How many timers have not fired.
    pub fn timer_count(&self) -> usize {
        self.timers.pending.len()
    }

    /// Whether a responder sets a timer for what it reacts to, instead of looking at it at once;
    /// and `false` where it would be one too many. `more`: how many are set for the event already.
    pub fn sets_timer(&self, event: &Trigger, place: u32, more: usize) -> Option<bool> {
        self.reactions.after_ms(place)?;
        let is_new = event.waited_with.is_none();
        is_new.then(|| self.timer_count().saturating_add(more) < MAX_TIMERS)
    }

    /// Whether a frame says that the next timer fired, and not too early.
    pub fn may_fire(&self, frame: &Frame, fired: &TimerFired) -> bool {
        let next = self.next_timer();
        next.is_some_and(|next| next.is_of(frame, fired) && next.due <= frame.at)
    }

    /// The run's own time stood still: all timers are due later by as much.
    pub(crate) fn postpone(&mut self, by_ms: u64) {
        self.timers.postpone(by_ms);
    }

    /// Whether verdicts are postponed exactly where a timer is set.
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
        let Some(((_, _, place), timer)) =
            is_next.then(|| self.timers.pending.pop_first()).flatten()
        else {
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

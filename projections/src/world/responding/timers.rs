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

use ktsu_ledger::event::TimerFired;
use ktsu_ledger::{Cause, Frame, Timestamp};

use crate::world::reactions::Reactions;
use crate::world::trigger::Trigger;

/// The most timers of the responders of a run at once. Each keeps what it was set for.
pub const MAX_TIMERS: usize = 10_000;

/// A responder that waits before it looks at an event.
#[derive(Debug, Clone, Copy)]
pub struct ResponderTimer<'r> {
    /// The time at which it is due, by the wall clock.
    pub due: Timestamp,
    /// The time that it waits in all, in milliseconds.
    pub after_ms: u64,
    /// The responder that waits.
    pub responder: &'r str,
    /// The event that it waits with.
    pub event: &'r Trigger,
}

/// The order of timers: by due time, then by event, then by responder.
type TimerOrder = (Timestamp, u64, u32);

#[derive(Debug, Clone)]
pub(super) struct SetTimer {
    responder: Arc<str>,
    after_ms: u64,
    pub(super) event: Arc<Trigger>,
}

/// All timers of a run's responders that have not fired.
#[derive(Debug, Clone, Default)]
pub(super) struct Timers {
    pending: BTreeMap<TimerOrder, SetTimer>,
    /// The time that the run's own time stood still so far.
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

    pub(super) fn set(
        &mut self,
        event: &Arc<Trigger>,
        (place, responder): (u32, &Arc<str>),
        after_ms: u64,
    ) {
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

    /// Number of timers that have not fired.
    pub(super) fn count(&self) -> usize {
        self.pending.len()
    }

    /// Takes the first away: its place among the responders, and what it is.
    pub(super) fn pop_first(&mut self) -> Option<(u32, SetTimer)> {
        let ((_, _, place), timer) = self.pending.pop_first()?;
        Some((place, timer))
    }

    pub(super) fn first(&self) -> Option<ResponderTimer<'_>> {
        self.all().next()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = ResponderTimer<'_>> {
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
    /// Returns `true` if a frame says that it fired.
    pub(super) fn is_of(&self, frame: &Frame, fired: &TimerFired) -> bool {
        frame.cause == [Cause::Here(self.event.seq)]
            && fired.responder.as_deref() == Some(self.responder)
    }
}

//! The part of `max_wall_seconds` that a run has used up (decision F5).

use ktsu_ledger::event::{ContinueReason, RunEvent};
use ktsu_ledger::{Event, Frame, Timestamp};

use crate::used_time::UsedTime;

/// The time that a run has used up, over all restarts and resumptions: without waiting for people and
/// pauses, without waiting for timers of responders alone, without the time after its end, and without
/// the time in which no engine ran, as far as frames tell it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WallTime {
    used: UsedTime,
    /// The time in which no engine ran, the machine slept, or only people or timers of responders
    /// could move it.
    down_ms: u64,
}

/// Those that could move a run until a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MovedBy {
    /// Itself, or whoever works for it.
    Work,
    /// Only people.
    People,
    /// Only timers of responders, and people.
    Timers,
}

impl WallTime {
    /// Takes a frame. `until`: what could move the run until then.
    pub(super) fn apply(&mut self, frame: &Frame, until: MovedBy) {
        let before = self.used.millis();
        self.used.apply(frame, until != MovedBy::Work);
        let since = self.used.millis().saturating_sub(before);
        if until != MovedBy::Work {
            // Of a wait for people, what a decision of theirs did not end.
            self.down_ms += since;
        } else if let Event::Run(RunEvent::Continued(again)) = &frame.event
            && again.why == ContinueReason::Restart
        {
            self.down_ms += since;
        } else if let Event::Run(RunEvent::ClockJumped(jump)) = &frame.event {
            self.down_ms += jump.forward_ms.unwrap_or_default().min(since);
        }
    }

    /// The time that is used up as of the last frame, in milliseconds.
    pub(super) fn millis(&self) -> u64 {
        self.used.millis().saturating_sub(self.down_ms)
    }

    /// The time at which so many milliseconds are used up if the run continues without a break, and
    /// how many of them are left.
    pub(super) fn deadline(&self, limit_ms: u64) -> Option<(Timestamp, u64)> {
        let left_ms = limit_ms.saturating_sub(self.millis());
        Some((self.used.last()?.plus_millis(left_ms), left_ms))
    }
}

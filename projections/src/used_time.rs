//! The time that something took: from its first frame to its last, without the times in which only
//! people could move it, and those in which it had ended.

use ktsu_ledger::event::PersonEvent;
use ktsu_ledger::{Event, Frame, Timestamp};

use crate::life::{Change, changes, run_end};

/// See the module documentation. Sums only, so a frame costs the same wherever it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsedTime {
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    /// The time that it stood still before frames that a person's word led to.
    still_ms: u64,
    /// The time for which it had ended before it began again, or before a branch of it was made;
    /// and time that did not pass.
    over_ms: u64,
    is_over: bool,
    used_ms: u64,
}

impl UsedTime {
    /// Takes a frame. `still`: whether only people could move what this is about until then.
    ///
    /// Waiting for a person is no time of the run's (decision F5), unless something else went on.
    pub fn apply(&mut self, frame: &Frame, still: bool) {
        if matches!(frame.event, Event::Person(PersonEvent::OverlaySet(_))) {
            return;
        }
        let first = *self.first.get_or_insert(frame.at);
        let last = self.last.replace(frame.at).unwrap_or(frame.at);
        let since = frame.at.millis_since(last);
        let forks = frame.event.branched().is_some();
        let resumes = changes(frame).any(|change| matches!(change, Change::Resumed(_)));
        let began = forks || resumes || (self.is_over && frame.event.is_world_input());
        // Nobody waits for what has ended, nor did a branch before it was made.
        let was_over = self.is_over || forks;
        match (began, was_over) {
            (true, true) => self.over_ms += since,
            (true, false) => self.still_ms += since,
            (false, _) if still && ends_wait_for_people(frame) => self.still_ms += since,
            (false, _) => {}
        }
        self.is_over = !began && (self.is_over || ends(frame));
        let whole = frame.at.millis_since(first);
        let whole = whole.saturating_sub(self.still_ms + self.over_ms);
        self.used_ms = self.used_ms.max(whole);
    }

    /// So many milliseconds did not pass, or not here: the clock jumped, or a branch was not made yet.
    /// `taken`: they are among those before the last frame that was taken; otherwise they follow it.
    pub fn leave_out(&mut self, ms: u64, taken: bool) {
        self.over_ms = self.over_ms.saturating_add(ms);
        match taken {
            true => self.used_ms = self.used_ms.saturating_sub(ms),
            false => self.last = self.last.map(|last| last.plus_millis(ms)),
        }
    }

    /// The time that is used, in milliseconds.
    pub fn millis(&self) -> u64 {
        self.used_ms
    }

    /// The time in which only people could move it, in milliseconds.
    pub fn waited_ms(&self) -> u64 {
        self.still_ms
    }

    /// The moment of the last frame that counts.
    pub fn last(&self) -> Option<Timestamp> {
        self.last
    }
}

/// Returns `true` if a whole run ends here.
fn ends(frame: &Frame) -> bool {
    run_end(frame).is_some() || changes(frame).any(|change| matches!(change, Change::Stopped(..)))
}

/// Returns `true` if a wait for people ends here, or part of it: by what they decide or post, or by
/// a word about the whole run.
pub fn ends_wait_for_people(frame: &Frame) -> bool {
    changes(frame).any(|change| change.ends_wait()) || frame.event.is_world_input()
}

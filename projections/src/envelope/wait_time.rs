//! The time that steps and items waited for people: time in which none of their own work was in
//! progress. It is counted separately from the time they took, as for whole runs.

use ktsu_ledger::{Frame, Timestamp};

use crate::life::{Change, DeadlineShift, changes};
use crate::run::{RunState, StepKey};
use crate::used_time::ends_wait_for_people;

/// The parts of a run that only people could move until a frame came, by the state before it is
/// applied. None for a frame that ends no wait.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitBefore {
    /// The item.
    pub(super) item: bool,
    /// The step.
    pub(super) step: bool,
    /// The scope, and each scope around it.
    pub(super) scopes: Vec<bool>,
    /// Of a word by which a pause ends: how long that was, in milliseconds; of one that ends a run
    /// which was not paused, nothing.
    pub(super) ended_pause_ms: Option<u64>,
}

impl WaitBefore {
    /// Of a frame, by the state before it.
    pub(super) fn before(state: &RunState, frame: &Frame) -> Self {
        let mut still = Self::default();
        for change in changes(frame) {
            still.take_word(state, &change, frame);
        }
        if frame.event.is_world_input() {
            still.scopes.push(is_still(state));
            return still;
        }
        let (true, Some(at), Some((step, item))) = (
            ends_wait_for_people(frame),
            state.scope_at(&frame.scope),
            frame.event.task(),
        ) else {
            return still;
        };
        let step = state.step_at(&frame.scope, step);
        let step = step.and_then(|step| state.step(step));
        still.step = step.is_some_and(|step| state.awaits_people(step));
        let tasks = step.and_then(|step| step.tasks.as_deref());
        still.item = tasks.is_some_and(|tasks| {
            let mut list = (0u32..).zip(&tasks.list);
            list.any(|(index, task)| tasks.item(index) == item && task.awaits_people())
        });
        let mut scope = Some(at);
        while let Some(at) = scope {
            still.scopes.push(state.waits_only_for_people(at));
            let parent = state.scope(at).and_then(|held| held.parent);
            scope = parent.map(StepKey::scope);
        }
        still
    }

    /// A word about the whole run: whether it ends a pause.
    fn take_word(&mut self, state: &RunState, change: &Change<'_>, frame: &Frame) {
        let pause = state.paused();
        let resumes = matches!(change, Change::Resumed(_));
        let stops = matches!(change, Change::Stopped(..));
        if !resumes && !stops && !matches!(change, Change::Paused(_)) {
            return;
        }
        let ends = stops || (resumes && pause.is_some());
        self.scopes.push(is_still(state));
        self.ended_pause_ms =
            ends.then(|| pause.map_or(0, |pause| frame.at.millis_since(pause.at)));
    }
}

/// Time before a frame in which nothing that is under way went on: the clock jumped over it, the
/// branch was not made yet, or it was parked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LeftOut {
    /// In milliseconds.
    pub(super) ms: u64,
    /// True if it did not pass at all.
    pub(super) of_clock: bool,
}

impl LeftOut {
    /// Of a frame, by the state before it.
    pub(super) fn before(state: &RunState, frame: &Frame) -> Self {
        let since = frame.at.millis_since(state.at());
        let mut gap = Self::default();
        for change in changes(frame) {
            if let Change::DeadlinesMoved(by_ms, DeadlineShift::Clock) = change {
                (gap.ms, gap.of_clock) = (by_ms.min(since), true);
            } else if matches!(change, Change::Forked(_))
                || (matches!(change, Change::Resumed(_)) && state.is_parked())
            {
                gap.ms = since;
            }
        }
        gap
    }
}

/// Returns `true` if nothing but people can move a run.
fn is_still(state: &RunState) -> bool {
    state.paused().is_some() || state.waits_only_for_people(0)
}

/// The waits of one attempt of a step, or of an item.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WaitTime {
    last: Option<Timestamp>,
    ms: u64,
}

impl WaitTime {
    /// Takes the moment of a frame about it.
    pub(super) fn take(&mut self, at: Timestamp, still: bool) {
        let last = self.last.replace(at).unwrap_or(at);
        if still {
            self.ms = self.ms.saturating_add(at.millis_since(last));
        }
    }

    /// So many milliseconds after the last frame about it are none of it.
    pub(super) fn leave_out(&mut self, ms: u64) {
        self.last = self.last.map(|last| last.plus_millis(ms));
    }

    /// A word about the whole run came: of the time since the last frame about it, at most so much
    /// was a wait.
    pub(super) fn take_word(&mut self, at: Timestamp, most_ms: u64) {
        let since = self.last.map_or(most_ms, |last| at.millis_since(last));
        let unknown = self.last.is_none() && most_ms == u64::MAX;
        self.last = Some(at);
        if !unknown {
            self.ms = self.ms.saturating_add(since.min(most_ms));
        }
    }

    /// In milliseconds.
    pub(super) fn millis(&self) -> u64 {
        self.ms
    }
}

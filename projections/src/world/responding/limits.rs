//! The budget of a run's worlds: its limits, the time used up, and its end; what was posted, and
//! what begins anew when a run is taken up again.

use std::collections::BTreeMap;

use ktsu_ledger::event::WorldBudgetExhausted;
use ktsu_ledger::event::plan::world::WorldBudget;
use ktsu_ledger::{Frame, Timestamp};

use super::Responding;
use crate::world::failures::ResponderFailures;
use crate::world::posts::PostRecord;
use crate::world::tasks::ResponderTaskPhase;
use crate::world::wall_time::MovedBy;

impl Responding {
    /// The number that the next post has.
    pub fn next_post(&self) -> u64 {
        self.posts.next()
    }

    /// The post that a principal made to this run, or to this branch itself, with an idempotency
    /// key.
    pub fn post_with_key(&self, principal: &str, key: &str) -> Option<&PostRecord> {
        self.posts.with_key(principal, key)
    }

    /// The end of the budget, unless limits were raised since.
    pub fn exhausted(&self) -> Option<&WorldBudgetExhausted> {
        self.exhausted.as_deref()
    }

    /// Takes the time of a frame. `until`: what could move the run until then.
    pub(crate) fn apply_time(&mut self, frame: &Frame, until: MovedBy) {
        self.wall.apply(frame, until);
    }

    /// The limits in force: those of the worlds, and what people raised.
    pub fn budget(&self, of_worlds: WorldBudget) -> WorldBudget {
        self.raised.over(of_worlds)
    }

    /// The time that the run has used up as of its last frame, in milliseconds: over all restarts and
    /// resumptions, without waiting for people or for timers of responders alone, pauses, and what came
    /// after its end.
    pub fn used_ms(&self) -> u64 {
        self.wall.millis()
    }

    /// The time at which so much time is used up if the run continues without a break, and how many
    /// milliseconds of it are left.
    pub fn time_limit(&self, limit_ms: u64) -> Option<(Timestamp, u64)> {
        self.wall.deadline(limit_ms)
    }

    /// Returns `true` if the timer of the budget fired, and limits were not raised since.
    pub fn is_time_up(&self) -> bool {
        self.is_time_up
    }

    /// Responders that failed and did not stop the run, by name.
    pub fn failures(&self) -> &BTreeMap<String, ResponderFailures> {
        self.failures.all()
    }

    /// Returns `true` if a model call was refused, since the cost had reached its limit, and limits
    /// were not raised since.
    pub fn is_call_refused(&self) -> bool {
        self.is_call_refused
    }

    /// A model call was refused, since the cost has reached its limit.
    pub fn refuse_call(&mut self) {
        self.is_call_refused = true;
    }

    /// A person takes the run up again: what was set aside is asked or run again.
    pub fn take_up(&mut self) {
        self.tasks
            .wait_again(|phase| phase == ResponderTaskPhase::SetAside);
    }

    /// Restarts what has begun and not ended.
    pub fn restart_tasks(&mut self) {
        let begun = |phase| matches!(phase, ResponderTaskPhase::Announced { .. });
        self.tasks.wait_again(begun);
    }
}

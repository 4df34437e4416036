//! The effects that a run should have in progress, from its state alone.
//!
//! An effect is due from the frame that announces it until it ends. Live operation, recovery, forks
//! and resumed runs all use this function, so that none of them needs rules of its own.
//!
//! ```text
//! webhook.sent | worker.dispatched | the end of a recompute ──▶ due ──▶ answered, lost, not wanted
//! ```

use std::collections::BTreeSet;
use std::ops::RangeBounds;

use ktsu_projections::run::notices::Notice;
use ktsu_projections::run::{AnnouncedEffect, RunState, TaskId};

/// Something that should be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Effect {
    /// The frame that announces it.
    pub announced: u64,
    /// The kind of the effect.
    pub kind: EffectKind,
}

/// The kind of an effect that should be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EffectKind {
    /// The request of a webhook step.
    Webhook(TaskId),
    /// A webhook that tells people of a call that waits for them.
    Notice(Notice),
    /// A task is with a runtime.
    Task(TaskId),
    /// A recompute that has ended is compared with its run.
    Comparison,
}

/// The effects that are due, in the order they were announced.
pub fn effects_due(state: &RunState) -> Vec<Effect> {
    effects_due_in(state, ..)
}

/// The effects that are due and were announced by these frames, in that order. Costs what it finds.
pub fn effects_due_in(state: &RunState, frames: impl RangeBounds<u64> + Clone) -> Vec<Effect> {
    if state.status().is_terminal() {
        return comparison(state)
            .filter(|due| frames.contains(&due.announced))
            .into_iter()
            .collect();
    }
    // A failing run is about to be closed, and what it has under way with it.
    if state.failing().is_some() {
        return Vec::new();
    }
    let mut asked = None;
    let due = state.announced(frames).filter_map(|(announced, what)| {
        let kind = match what {
            AnnouncedEffect::Webhook(at) => EffectKind::Webhook(at),
            AnnouncedEffect::Task(at) => EffectKind::Task(at),
            AnnouncedEffect::Notice(notice) => {
                // People need not be told of a call that no longer waits.
                let asked: &BTreeSet<u64> = asked.get_or_insert_with(|| requests(state));
                asked
                    .contains(&notice.request)
                    .then_some(EffectKind::Notice(notice))?
            }
        };
        Some(Effect { announced, kind })
    });
    due.collect()
}

/// The tasks that are due: those that a runtime has, or is to have.
pub fn tasks_due(state: &RunState) -> impl Iterator<Item = TaskId> {
    let due = effects_due(state).into_iter();
    due.filter_map(|effect| match effect.kind {
        EffectKind::Task(at) => Some(at),
        EffectKind::Webhook(_) | EffectKind::Notice(_) | EffectKind::Comparison => None,
    })
}

/// Returns `true` if a runtime has a task, or is to have it.
pub fn task_is_due(state: &RunState, scope: &str, step: &str, item: Option<u32>) -> bool {
    let at = state.step_at(scope, step);
    let task = at.and_then(|at| state.task(at, item));
    state.failing().is_none() && task.is_some_and(|task| task.dispatched.is_some())
}

/// Returns `true` if an effect that is due may begin once the frames up to `durable` are durable.
/// None begins while the run is paused (decision P1), or before the frame that resumes it is
/// durable.
pub fn may_begin(state: &RunState, durable: u64) -> bool {
    state.paused().is_none() && state.last_resumed() <= durable
}

/// The requests that wait for people.
fn requests(state: &RunState) -> BTreeSet<u64> {
    let asked = state.pending_decisions().into_iter();
    asked.map(|asked| asked.request).collect()
}

/// A recompute is over only once it is compared; it rests on the frame that ended it.
fn comparison(state: &RunState) -> Option<Effect> {
    let root = state.scopes().first()?;
    let ended = root.ended.as_ref().filter(|_| !state.is_over())?;
    Some(Effect {
        announced: ended.seq,
        kind: EffectKind::Comparison,
    })
}

#[cfg(test)]
pub(crate) mod by_frames;
#[cfg(test)]
mod tests;

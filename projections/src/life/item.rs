//! The life of an item of a fan-out: started → completed | failed.

use ktsu_ledger::event::ItemEvent;

use super::refusal::{Allowed, Rule, holds};
use super::task::{AgentTask, TaskPhase};
use super::tasks::Tasks;

/// An item's table.
///
/// # Errors
/// The rule that the frame breaks.
pub(crate) fn check(tasks: &Tasks, event: &ItemEvent, failing: bool) -> Allowed {
    let task = tasks.get(Some(event.item()));
    let finished = task.is_some_and(|task| matches!(task.phase, TaskPhase::Finished { .. }));
    let current = |attempt: u32| task.is_some_and(|task| task.attempt == attempt);
    match event {
        ItemEvent::Started(started) => {
            holds(Rule::Failing, !failing)?;
            let next = started.item as usize == tasks.list.len();
            let known = tasks.items.is_some_and(|items| started.item < items);
            holds(Rule::ItemOrder, next && known)
        }
        ItemEvent::Completed(done) => {
            holds(Rule::Failing, !failing)?;
            holds(Rule::AtRest, finished)?;
            holds(Rule::Attempt, current(done.attempt))?;
            holds(Rule::Output, task.is_some_and(is_valid))
        }
        // What was never sent out has no end of its agent before it.
        ItemEvent::Failed(failed) => {
            let waits = task.is_some_and(|task| task.phase == TaskPhase::Waiting);
            holds(Rule::AtRest, finished || waits)?;
            holds(Rule::Attempt, current(failed.attempt))
        }
    }
}

/// Returns `true` if the output of a task was not refused, and whatever its commands run has ended.
fn is_valid(task: &AgentTask) -> bool {
    task.checked != Some(false) && task.has_invoked_all()
}

//! The last stretch of a run's task, while the engine drains: nothing new starts, and what becomes of
//! the effects in flight is recorded. No frame says so, and the next start continues the run.

use tokio::sync::watch;

use super::RunTask;
use crate::drain::AwaitedEffects;
use crate::token::TaskName;
use ktsu_projections::run::TaskId;
use ktsu_workflow::effects::tasks_due;

impl RunTask {
    /// Takes messages until the engine stops, and says in the run's progress when no effect is in
    /// flight any more. The task stays, so that runtimes elsewhere keep theirs.
    pub(super) async fn drain(mut self, awaited: AwaitedEffects, mut stop: watch::Receiver<bool>) {
        loop {
            self.begin_effects();
            // Before the mailbox is read: the answer of a webhook that has ended is in it.
            let answered = !self.has_effects_in_flight(awaited);
            if let Err(broken) = self.take_waiting() {
                return self.give_up(&broken.to_string());
            }
            if self.has_ended() {
                return;
            }
            self.send();
            let last = self.state.next_seq().saturating_sub(1);
            let drained = answered
                && self.mailbox.is_empty()
                && self.durable.borrow().durable >= Some(last)
                && !self.has_effects_in_flight(awaited);
            if drained {
                self.progress
                    .send_if_modified(|progress| !std::mem::replace(&mut progress.drained, true));
            }
            tokio::select! {
                Some(message) = self.mailbox.recv() => {
                    if let Err(broken) = self.take_message(*message) {
                        return self.give_up(&broken.to_string());
                    }
                }
                changed = self.durable.changed() => {
                    if changed.is_err() || self.durable.borrow().failed.is_some() {
                        return;
                    }
                }
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Returns `true` if a call of a model or a tool has no answer yet, or a webhook that is to be
    /// waited for.
    fn has_effects_in_flight(&self, awaited: AwaitedEffects) -> bool {
        let mut webhooks = self.webhooks.iter();
        let sends = awaited == AwaitedEffects::CallsAndWebhooks
            && webhooks.any(|webhook| !webhook.is_finished());
        sends || tasks_due(&self.state).any(|task| self.has_calls_in_flight(task))
    }

    /// Returns `true` if a runtime has a task and waits for the answer to a call. A task that has
    /// not begun here waits for nothing.
    fn has_calls_in_flight(&self, at: TaskId) -> bool {
        let Some(task) = self.state.task(at.step, at.item) else {
            return false;
        };
        let step = self.state.step_id(at.step);
        let (Some(scope), Some(step)) = (self.state.scope_of(at.step), step) else {
            return false;
        };
        let name = TaskName::new(self.state.stream().name(), &scope.path, step, at.item);
        task.awaits_answer() && self.shared.supervisor.is_watched(&name, task.attempt)
    }
}

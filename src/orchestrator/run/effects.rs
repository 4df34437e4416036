//! The start of the effects of a run, and the end of the watch on its tasks.

use ktsu_ledger::Event;

use super::RunTask;
use crate::effects;
use crate::token::TaskName;
use ktsu_workflow::effects::{Effect, EffectKind, effects_due_in, may_begin, task_is_due};
use ktsu_workflow::turn::Turn;

impl RunTask {
    /// No longer watches the tasks of a turn that no runtime has any more.
    pub(super) fn forget_tasks(&self, turn: &Turn) {
        for sealed in &turn.sealed {
            let frame = &sealed.frame;
            let Event::Agent(event) = &frame.event else {
                continue;
            };
            let (step, item) = (event.step(), event.item());
            if !task_is_due(&self.state, &frame.scope, step, item) {
                let run = self.state.stream().name();
                let name = TaskName::new(run, &frame.scope, step, item);
                self.shared.supervisor.forget(&name);
            }
        }
    }

    /// Begins every effect that is due and whose announcement is durable.
    pub(super) fn begin_effects(&mut self) {
        let durable = self.durable.borrow_and_update().durable;
        self.observer.durable(durable, self.state.stream().name());
        let durable = durable.unwrap_or_default();
        if durable <= self.effects_begun_up_to || !self.may_begin_effects(durable) {
            return;
        }
        let mut due = effects_due_in(&self.state, self.effects_begun_up_to + 1..=durable);
        self.effects_begun_up_to = durable;
        // Tasks of an earlier process were seen to when the run was recovered.
        due.retain(|effect| {
            !matches!(effect.kind, EffectKind::Task(_)) || effect.announced > self.inherited
        });
        due.retain(|effect| !self.begun_early.contains(&effect.announced));
        self.begun_early = self.begun_early.split_off(&(durable + 1));
        self.start_effects(&due);
    }

    /// Begins the effects of a turn that may begin before it is durable.
    pub(super) fn begin_effects_early(&mut self, first: u64) {
        let durable = self.durable.borrow().durable.unwrap_or_default();
        if !self.may_begin_effects(durable) {
            return;
        }
        let mut due = effects_due_in(&self.state, first..);
        due.retain(|effect| effects::may_start_early(&self.shared, &self.state, effect));
        self.begun_early
            .extend(due.iter().map(|effect| effect.announced));
        self.start_effects(&due);
    }

    fn may_begin_effects(&self, durable: u64) -> bool {
        may_begin(&self.state, durable) && !self.shared.runs.is_draining()
    }

    fn start_effects(&mut self, due: &[Effect]) {
        if due.is_empty() {
            return;
        }
        let started = effects::start(
            &self.shared,
            &self.state,
            &self.definition,
            &self.memo,
            (due, self.observed.time(&self.shared.clock)),
            &self.sender,
        );
        self.webhooks.retain(|webhook| !webhook.is_finished());
        self.webhooks.extend(started);
    }
}

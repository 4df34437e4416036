//! Applies frames about agent steps to the state: tasks, items, outputs, costs.

use std::collections::BTreeMap;

use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::{AgentPlan, StepWork};
use ktsu_ledger::event::{
    AgentEvent, ItemEvent, ItemFailed, Reference, StepCompleted, WorkerEvent,
};

use super::{
    AnnouncedEffect, ItemEnd, RunState, StepKey, StepStatus, StoredOutput, TaskAction, TaskId, Todo,
};
use crate::life::command_order::CommandOrder;
use crate::life::task::{AgentTask, Hint, TaskPhase, output_without_reserved_fields};

/// The text in place of the output of an item that failed. A workflow that it ran says so first:
/// its own words are those of another step.
fn item_error(failed: &ItemFailed) -> String {
    match failed.code.as_str() {
        code @ "invoke_failed" => format!("{code}: {}", failed.message),
        _ => failed.message.clone(),
    }
}

impl RunState {
    /// A task.
    pub fn task(&self, at: StepKey, item: Option<u32>) -> Option<&AgentTask> {
        self.step(at)?.tasks.as_ref()?.get(item)
    }

    /// The tasks that a runtime has, or will have again: of its own, or once people have decided.
    pub(super) fn under_way(&self) -> Vec<TaskId> {
        let waits = |task: &AgentTask| {
            matches!(
                task.phase,
                TaskPhase::Lost
                    | TaskPhase::Suspended
                    | TaskPhase::Resuming
                    | TaskPhase::ForcedToFail(_)
            )
        };
        self.tasks_that(|task| task.is_live() || waits(task))
    }

    fn tasks_that(&self, holds: impl Fn(&AgentTask) -> bool) -> Vec<TaskId> {
        let mut found = Vec::new();
        for (scope, state) in (0u32..).zip(&self.scopes) {
            for (at, step) in (0u32..).zip(&state.steps) {
                let Some(tasks) = &step.tasks else { continue };
                if step.status != StepStatus::Running {
                    continue;
                }
                let step = StepKey::of(scope, at);
                let live = (0u32..).zip(&tasks.list).filter(|(_, task)| holds(task));
                found.extend(live.map(|(index, _)| TaskId {
                    step,
                    item: tasks.item(index),
                }));
            }
        }
        for (at, tasks) in self.open_asks() {
            let live = tasks.list.iter().any(&holds);
            found.extend(live.then_some(TaskId::step(at)));
        }
        found
    }

    /// The plan of an agent step.
    pub fn agent_plan(&self, at: StepKey) -> Option<&AgentPlan> {
        match self.work(at)? {
            StepWork::Agent(plan) => Some(plan),
            StepWork::Transform(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => None,
        }
    }

    pub(super) fn task_mut(&mut self, at: StepKey, item: Option<u32>) -> Option<&mut AgentTask> {
        self.step_mut(at)?.tasks.as_mut()?.get_mut(item)
    }

    pub(super) fn apply_agent(&mut self, frame: &Frame, at: StepKey, event: &AgentEvent) {
        let shape = self.agent_plan(at).and_then(|plan| {
            let threshold = plan.confidence_threshold_millionths;
            Some((self.outline.agent(&plan.file)?, threshold))
        });
        let reflects = match (event, shape) {
            (AgentEvent::Decided(decided), Some((agent, threshold))) if agent.reflects => {
                decided.draft.as_ref().is_some_and(|draft| {
                    let draft = draft.to_value();
                    crate::life::reserved::reflects(&draft, agent.declares_confidence, threshold)
                })
            }
            _ => false,
        };
        let mut stateful = false;
        if let AgentEvent::ToolCalled(called) = event {
            let servers = self.servers(at).iter();
            let mut named = servers.filter(|server| server.name == called.server);
            stateful = named.any(|server| server.stateful);
        }
        let rules = self.rules();
        let Some(task) = self.task_mut(at, event.item()) else {
            return;
        };
        if let AgentEvent::Finished(finished) = event {
            task.order = CommandOrder::of_outcome(&finished.outcome, rules);
        }
        let open = task.open_call.clone();
        let hint = Hint { reflects, stateful };
        task.apply(frame.seq, frame.at, event, hint);
        let after = task.open_call.clone();
        self.spend.take(event, open.as_ref(), after.as_ref());
        let place = TaskId {
            step: at,
            item: event.item(),
        };
        self.follow_call(frame, place, event, open);
        self.reclassify_task(at, event.item());
    }

    pub(super) fn apply_worker(&mut self, frame: &Frame, at: StepKey, event: &WorkerEvent) {
        let Some(task) = self.task_mut(at, event.item()) else {
            return;
        };
        task.apply_worker(frame.seq, event);
        if matches!(event, WorkerEvent::Dispatched(_)) {
            let item = event.item();
            let at = TaskId { step: at, item };
            self.announce(frame.seq, AnnouncedEffect::Task(at));
        }
        if let (WorkerEvent::Dispatched(sent), None, Some(step)) =
            (event, event.item(), self.step_mut(at))
        {
            step.attempt = sent.attempt;
        }
        self.reclassify_task(at, event.item());
    }

    pub(super) fn apply_item(&mut self, frame: &Frame, at: StepKey, event: &ItemEvent) {
        let each = self.agent_plan(at).and_then(|plan| plan.for_each.clone());
        if let ItemEvent::Failed(failed) = event {
            self.end_failed_item(at, failed.item);
        }
        let failing = self.failing.is_some();
        let results = self.created.results.as_ref();
        let results = results.filter(|_| matches!(event, ItemEvent::Started(_)));
        let record = results.map(|results| Box::new(results.task(event.step(), event.item())));
        let Some(tasks) = self.step_mut(at).and_then(|step| step.tasks.as_mut()) else {
            return;
        };
        let over = failing || each.is_some_and(|each| tasks.too_many_failed(&each));
        match event {
            ItemEvent::Started(started) => {
                let mut task = AgentTask::waiting(started.input.clone(), frame.seq, tasks.before);
                task.recorded_results = record;
                tasks.list.push(task);
            }
            ItemEvent::Completed(done) => {
                match &done.skipped {
                    Some(_) => tasks.skipped += 1,
                    None => tasks.succeeded += 1,
                }
                if let Some(task) = tasks.get_mut(Some(done.item)) {
                    let end = match (&done.skipped, &task.phase) {
                        (Some(why), _) => ItemEnd::Skipped(why.clone()),
                        (None, TaskPhase::Finished { outcome, .. }) => ItemEnd::Output(
                            output_without_reserved_fields(outcome).unwrap_or_default(),
                        ),
                        (None, _) => ItemEnd::Output(ktsu_ledger::CanonicalJson::null()),
                    };
                    task.settle(frame.seq, end);
                }
            }
            ItemEvent::Failed(failed) => {
                tasks.failed += 1;
                // Once the fan-out or the run fails, items fail only by being stopped.
                if over || tasks.fatal.is_some() {
                    tasks.stopped += 1;
                } else {
                    let first = tasks.first_failed.unwrap_or(failed.item);
                    tasks.first_failed = Some(first.min(failed.item));
                    let task = tasks.get(Some(failed.item));
                    if task.is_some_and(|task| task.fails_run) {
                        tasks.fatal = Some(failed.item);
                        tasks.fatal_code = Some(failed.code.clone());
                    }
                }
                if let Some(task) = tasks.get_mut(Some(failed.item)) {
                    task.settle(frame.seq, ItemEnd::Failed(item_error(failed)));
                }
            }
        }
        self.reclassify_task(at, Some(event.item()));
    }

    /// The output of an agent step: its task's, or the results of its items.
    pub(super) fn agents_output(
        &self,
        frame: &Frame,
        at: StepKey,
        done: &StepCompleted,
    ) -> Option<StoredOutput> {
        let step = self.step(at)?;
        let tasks = step.tasks.as_ref()?;
        if tasks.items.is_some() {
            let place = Reference {
                frame: frame.seq,
                path: "/output".to_owned(),
            };
            let json = tasks.results();
            let overlaid = BTreeMap::new();
            return Some(StoredOutput {
                json,
                location: place,
                overlaid,
            });
        }
        let place = done.output_from.clone()?;
        let TaskPhase::Finished { outcome, .. } = &tasks.get(None)?.phase else {
            return None;
        };
        let json = output_without_reserved_fields(outcome)?;
        let overlaid = BTreeMap::new();
        Some(StoredOutput {
            json,
            location: place,
            overlaid,
        })
    }

    pub(super) fn reclassify_task(&mut self, at: StepKey, item: Option<u32>) {
        self.end_dispatch(TaskId { step: at, item });
        if let Some(tasks) = self.step_mut(at).and_then(|step| step.tasks.as_mut()) {
            let before = tasks.suspended.len();
            tasks.reclassify(item);
            let after = tasks.suspended.len();
            self.suspended = (self.suspended + after).saturating_sub(before);
        }
        self.update_todo(at);
    }

    /// Puts an agent step where it belongs among the things to decide.
    pub(super) fn update_todo(&mut self, at: StepKey) {
        let due = self.agent_plan(at).and_then(|plan| {
            let held = self.step(at)?;
            let running = held.status == StepStatus::Running;
            let due = held.tasks.as_ref().filter(|_| running)?.next_action(plan);
            // What a responder makes of a reply is due with everything else that responders do.
            due.filter(|due| !(at.is_of_responder() && matches!(due, TaskAction::Settle(_))))
        });
        self.todo.remove(&Todo::Effect(at));
        self.todo.remove(&Todo::Step(at));
        match due {
            Some(due) if due.is_effect() => self.todo.insert(Todo::Effect(at)),
            Some(_) => self.todo.insert(Todo::Step(at)),
            None => false,
        };
    }
}

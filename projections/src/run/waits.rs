//! Runs that wait for people: which calls are pending, and whether anything else is in progress
//! meanwhile (seed 000, invariant 34; decision E1).

use ktsu_ledger::event::plan::ServerPlan;

use super::{AgentTask, Phase, RunState, RunStatus, Step, StepKey, StepStatus, TaskId, TaskPhase};
use crate::life::call::RequestedCall;

/// A call a person is asked about.
#[derive(Debug, Clone, Copy)]
pub struct PendingDecision<'a> {
    /// The task that made it.
    pub at: TaskId,
    /// The task.
    pub task: &'a AgentTask,
    /// The `approval.requested` or `tool.in_doubt`.
    pub request: u64,
    /// The call.
    pub call: &'a RequestedCall,
}

impl RunState {
    /// The calls people are asked about, in the order they were asked.
    pub fn pending_decisions(&self) -> Vec<PendingDecision<'_>> {
        if self.suspended == 0 {
            return Vec::new();
        }
        let mut found: Vec<PendingDecision<'_>> =
            self.suspended_tasks().flat_map(of_task).collect();
        found.sort_by_key(|asked| asked.request);
        found
    }

    /// Returns `true` if any task waits for people.
    pub fn has_suspended(&self) -> bool {
        self.suspended > 0
    }

    /// Moves what every pending wait counts from: the clock went forward without that time having passed.
    pub(super) fn postpone(&mut self, by_ms: u64) {
        if by_ms == 0 {
            return;
        }
        self.deadline_from = self.deadline_from.plus_millis(by_ms);
        if let Some(responding) = &mut self.responding {
            responding.postpone(by_ms);
        }
        for held in &mut self.scopes {
            for step in &mut held.steps {
                if let Phase::Backoff { since, .. } = &mut step.phase {
                    *since = since.plus_millis(by_ms);
                }
                for task in step.tasks.iter_mut().flat_map(|tasks| &mut tasks.list) {
                    if let Some(calls) = &mut task.calls {
                        calls.postpone(by_ms);
                    }
                    if let Some(review) = &mut task.review {
                        review.postpone(by_ms);
                    }
                    if let Some(suspension) = &mut task.suspension {
                        suspension.postpone(by_ms);
                    }
                }
            }
        }
    }

    /// The tool servers of an agent step.
    pub fn servers(&self, at: StepKey) -> &[ServerPlan] {
        let shape = self.agent_plan(at);
        let shape = shape.and_then(|plan| self.outline.agent(&plan.file));
        shape.map_or(&[], |shape| &shape.servers)
    }

    /// Returns `true` if a step can continue only after a person has acted.
    pub fn awaits_people(&self, step: &Step) -> bool {
        step.status == StepStatus::Running
            && step.tasks.as_ref().is_some_and(|tasks| {
                let moves =
                    |task: &AgentTask| !(task.phase == TaskPhase::Settled || task.awaits_people());
                !tasks.suspended.is_empty() && !tasks.list.iter().any(moves)
            })
    }

    /// Returns `true` if nothing but people can move a scope: neither a step of its own, nor one of
    /// a child, nor, of the whole run, a responder.
    pub fn waits_only_for_people(&self, scope: u32) -> bool {
        !(scope == 0 && self.is_moved_by_responders())
            && (0u32..).zip(&self.scopes).all(|(at, held)| {
                held.status != RunStatus::Running
                    || !self.is_within(at, scope)
                    || held.steps.iter().all(|step| self.is_idle(step))
            })
    }

    /// Returns `true` if responders have something to react to, wait for a reply, or for a timer.
    /// What they run is in scopes.
    fn is_moved_by_responders(&self) -> bool {
        self.responding().is_some_and(|responding| {
            !responding.is_idle() || responding.next_timer().is_some() || self.has_open_asks()
        })
    }

    fn is_within(&self, mut scope: u32, outer: u32) -> bool {
        while scope != outer {
            match self.scope(scope).and_then(|held| held.parent) {
                Some(parent) => scope = parent.scope(),
                None => return false,
            }
        }
        true
    }

    /// Returns `true` if nothing but people can move the run. What responders run is in scopes like
    /// any child; what they ask is in none.
    pub(super) fn waits_for_people(&self) -> bool {
        self.suspended > 0
            && self.has_nothing_to_decide()
            && self.retries.is_empty()
            && !self.has_open_asks()
            && self.scopes.iter().all(|scope| {
                scope.status != RunStatus::Running
                    || scope.steps.iter().all(|step| self.is_idle(step))
            })
    }

    /// Returns `true` if nothing is due. A run that loads worlds does not end while a workflow that
    /// a responder runs waits for people, though all of its own steps are settled.
    fn has_nothing_to_decide(&self) -> bool {
        match self.responding() {
            Some(responding) => self.todo_before_end().is_none() && responding.is_idle(),
            None => self.todo.is_empty(),
        }
    }

    /// Returns `true` if a step does not move by itself. One that holds a child moves as that does.
    fn is_idle(&self, step: &Step) -> bool {
        step.status != StepStatus::Running
            || matches!(step.phase, Phase::Child { .. })
            || self.awaits_people(step)
            || step.awaits_invoked()
    }

    pub(super) fn suspended_tasks(&self) -> impl Iterator<Item = (TaskId, &AgentTask)> {
        let scopes = (0u32..).zip(&self.scopes);
        let steps = scopes.flat_map(|(scope, held)| {
            let keys = (0u32..).map(move |step| StepKey::of(scope, step));
            keys.zip(&held.steps)
        });
        let running = steps.filter(|(_, step)| step.status == StepStatus::Running);
        running.flat_map(|(key, step)| {
            let tasks = step.tasks.as_deref();
            tasks.into_iter().flat_map(move |tasks| {
                let waiting = tasks.suspended.iter();
                waiting.filter_map(move |index| {
                    let item = tasks.item(*index);
                    Some((TaskId { step: key, item }, tasks.list.get(*index as usize)?))
                })
            })
        })
    }

    /// Counts the tasks that wait for people anew, after steps were begun again. One task's coming
    /// and going is counted where it is filed.
    pub(super) fn count_suspended(&mut self) {
        self.suspended = self.suspended_tasks().count();
    }
}

fn of_task((at, task): (TaskId, &AgentTask)) -> impl Iterator<Item = PendingDecision<'_>> {
    let calls = task.calls.iter().flat_map(|calls| &calls.list);
    calls.filter_map(move |call| {
        Some(PendingDecision {
            at,
            task,
            request: call.open_request()?,
            call,
        })
    })
}

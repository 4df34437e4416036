//! The questions that the responders of a run ask models, and the workflows that they run, as its
//! state keeps them: each as if it were a step of the run itself, so that runtimes, supervision and
//! inline children treat it like any other work.
//!
//! ```text
//! worker.dispatched of `@NAME.KEY` ──▶ agent.finished ──┐
//! run.started in the scope `@NAME.KEY` ──▶ run.completed ┴─▶ its responder reacts
//! ```
//!
//! When one begins, and what its end means, is known to [`Responding`]; here is what happens between
//! the two.

use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::event::plan::world::{AskPlan, ResponderPlan, ResponderWork};
use ktsu_ledger::event::plan::{AgentPlan, StepWork};
use ktsu_ledger::event::{
    RunEvent, RunStarted, TaskKind, WorkerDispatched, WorldEvent, is_address,
};
use ktsu_ledger::{CanonicalJson, Event, Frame};

use super::transition::{TransitionError, TransitionTarget};
use super::{RunState, RunStatus};
use super::{Scope, Step, StepKey, StepStatus};
use crate::life::refusal::{Rule, holds};
use crate::life::reports::AcceptedReport;
use crate::life::task::AgentTask;
use crate::life::tasks::{TaskAction, Tasks};
use crate::world::steps::member;
use crate::world::{ResponderTaskPhase, Responding, WorldTask};

/// A question that a responder asked or a workflow that it ran, once it has begun.
#[derive(Debug, Clone)]
pub(super) struct ResponderTask {
    /// `@NAME.KEY`.
    address: String,
    pub(super) step: Step,
    pub(super) work: StepWork,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub(super) struct ResponderTasks {
    begun: u32,
    /// The reports that were taken of questions that have ended, with the attempt: a runtime may not
    /// have heard that they were.
    ended: HashMap<String, (u32, Vec<AcceptedReport>)>,
    by_key: BTreeMap<StepKey, ResponderTask>,
    by_address: HashMap<String, StepKey>,
}

impl ResponderTasks {
    pub(super) fn get_mut(&mut self, at: StepKey) -> Option<&mut ResponderTask> {
        self.by_key.get_mut(&at)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (StepKey, &ResponderTask)> {
        self.by_key.iter().map(|(at, task)| (*at, task))
    }

    fn add(&mut self, address: &str, step: Step, work: StepWork) -> StepKey {
        let at = StepKey::Responder { task: self.begun };
        self.begun += 1;
        let task = ResponderTask {
            address: address.to_owned(),
            step,
            work,
        };
        self.by_key.insert(at, task);
        self.by_address.insert(address.to_owned(), at);
        at
    }

    fn remove(&mut self, at: StepKey) -> Option<ResponderTask> {
        let task = self.by_key.remove(&at)?;
        if self.by_address.get(&task.address) == Some(&at) {
            self.by_address.remove(&task.address);
        }
        if let Some(asked) = task
            .step
            .tasks
            .as_ref()
            .and_then(|tasks| tasks.list.first())
        {
            let reports = (asked.attempt, asked.reports.clone());
            self.ended.insert(task.address.clone(), reports);
        }
        Some(task)
    }
}

impl RunState {
    /// The name of a step, or of what a responder asked or ran, in frames.
    pub fn step_id(&self, at: StepKey) -> Option<&str> {
        match at {
            StepKey::Of { scope, step } => Some(&self.scope(scope)?.shape.step(step)?.id),
            StepKey::Responder { .. } => Some(&self.responder_task(at)?.address),
            StepKey::Gone => None,
        }
    }

    /// The questions of responders to models that have neither ended nor been lost for good.
    pub fn open_asks(&self) -> impl Iterator<Item = (StepKey, &Tasks)> {
        let open = self.responder_tasks.iter();
        open.filter_map(|(at, task)| Some((at, task.step.tasks.as_deref()?)))
    }

    /// A report that was taken of the last attempt of a question that has ended.
    pub fn ended_report(&self, address: &str, attempt: u32, n: u32) -> Option<&AcceptedReport> {
        let (last, reports) = self.responder_tasks.ended.get(address)?;
        let mut reports = reports.iter().filter(|_| *last == attempt);
        reports.find(|seen| seen.report.n == n)
    }

    /// Returns `true` if something that a responder asked or ran has begun and not ended.
    pub(super) fn has_open_responder_tasks(&self) -> bool {
        let ran = |scope: &Scope| {
            let open = !scope.abandoned && scope.ended.is_none();
            open && scope.parent.is_some_and(StepKey::is_of_responder)
        };
        self.has_open_asks() || self.scopes.iter().any(ran)
    }

    /// Returns `true` if a question that was sent out has not ended.
    pub(super) fn has_open_asks(&self) -> bool {
        let mut open = self.open_asks();
        open.any(|(_, tasks)| tasks.list.iter().any(AgentTask::is_unfinished))
    }

    /// The address of the first thing that responders asked or ran and that came to nothing. `of`: an
    /// address, or the name of a responder; otherwise any.
    pub fn to_ask_again(&self, of: Option<&str>) -> Option<&str> {
        let mut tasks = self.responding()?.tasks();
        let wanted = |name: &str, task: &WorldTask| match is_address(name) {
            true => *task.context.address == *name,
            false => *task.context.responder == *name,
        };
        let task = tasks.find(|task| {
            task.phase == ResponderTaskPhase::SetAside && of.is_none_or(|name| wanted(name, task))
        })?;
        Some(&task.context.address)
    }

    /// Returns `true` if a run that has ended continues with what a responder asked or ran: it came
    /// to nothing, and so did whatever failed the run.
    pub fn may_ask_again(&self, address: &str) -> bool {
        let root = self.scope(0).map_or(RunStatus::Pending, |root| root.status);
        let ended = match root {
            RunStatus::Complete => true,
            RunStatus::Failed => self.failed_by_responder_task(),
            RunStatus::Pending | RunStatus::Running | RunStatus::Waiting | RunStatus::Cancelled => {
                false
            }
        };
        ended && self.to_ask_again(Some(address)).is_some()
    }

    /// Returns `true` if what failed the run is something that a responder asked or ran: it begins
    /// again.
    pub fn failed_by_responder_task(&self) -> bool {
        let Some(failing) = self.failing() else {
            return false;
        };
        let mut at = failing.scope;
        while let Some(parent) = self.scope(at).and_then(|scope| scope.parent) {
            if parent.scope() == 0 {
                return parent.is_of_responder();
            }
            at = parent.scope();
        }
        let by = |task: &WorldTask| task.set_aside_by == Some(failing.seq);
        let mut tasks = self.responding().into_iter().flat_map(Responding::tasks);
        failing.step.is_none() && tasks.any(by)
    }

    /// The action that is due for what a responder asked, from its plan.
    pub fn ask_action(&self, at: StepKey) -> Option<TaskAction> {
        let plan = self.agent_plan(at)?;
        self.step(at)?.tasks.as_deref()?.next_action(plan)
    }

    pub(super) fn responder_task(&self, at: StepKey) -> Option<&ResponderTask> {
        self.responder_tasks.by_key.get(&at)
    }

    /// The key of what a responder asked or ran, by its address.
    pub(super) fn responder_task_at(&self, address: &str) -> Option<StepKey> {
        self.responder_tasks.by_address.get(address).copied()
    }

    /// Returns `true` if a dispatch is the first one of what a responder asks.
    pub(super) fn begins_ask(&self, sent: &WorkerDispatched) -> bool {
        is_address(&sent.step) && self.responder_task_at(&sent.step).is_none()
    }

    /// The first dispatch of what a responder asks.
    pub(super) fn check_ask(
        &self,
        frame: &Frame,
        sent: &WorkerDispatched,
    ) -> Result<TransitionTarget, TransitionError> {
        let attempt = self.check_begins(frame, &sent.step, TaskKind::Ask)?;
        let own = frame.scope.is_empty() && sent.item.is_none();
        let allowed = holds(Rule::Attempt, own && sent.attempt == attempt);
        self.require(allowed, frame, &sent.step, "waiting")?;
        Ok(TransitionTarget::ResponderTask)
    }

    /// The beginning of what a responder has a workflow do.
    pub(super) fn check_responder_run(
        &self,
        frame: &Frame,
        plan: Option<&str>,
    ) -> Result<TransitionTarget, TransitionError> {
        self.check_begins(frame, &frame.scope, TaskKind::Run)?;
        let responder = self.responder_of(&frame.scope);
        let child = responder.and_then(|responder| responder.work.child());
        let names_it = child.is_some_and(|child| plan == Some(&child.workflow));
        let allowed = holds(Rule::Child, names_it);
        self.require(allowed, frame, &frame.scope, "waiting")?;
        Ok(TransitionTarget::ResponderTask)
    }

    /// Checks that something that a responder wants waits to begin; gives the number of its next
    /// attempt.
    fn check_begins(
        &self,
        frame: &Frame,
        address: &str,
        kind: TaskKind,
    ) -> Result<u32, TransitionError> {
        let responding = self.responding().ok_or(TransitionError::NoWorlds)?;
        let task = responding.task(address);
        let task = task.filter(|task| task.context.kind == kind);
        let task = task.ok_or_else(|| TransitionError::Step(address.to_owned()))?;
        let status = self.scope(0).map_or(RunStatus::Pending, |root| root.status);
        let open = status == RunStatus::Running && !self.is_parked() && self.failing().is_none();
        let waits = task.phase == ResponderTaskPhase::Waiting;
        let allowed = holds(Rule::TaskOrder, open && waits);
        self.require(allowed, frame, address, task.phase.as_str())?;
        Ok(task.attempts + 1)
    }

    /// The responder of a task, by the address of the task.
    pub(super) fn responder_of(&self, address: &str) -> Option<&ResponderPlan> {
        let task = self.responding()?.task(address)?;
        let mut worlds = self.outline.worlds().values();
        worlds.find_map(|world| {
            let mut all = world.all_responders();
            all.find(|one| *one.name == *task.context.responder)
        })
    }

    /// Begins a question of a responder, which is sent out for the first time.
    pub(super) fn begin_ask(&mut self, frame: &Frame, sent: &WorkerDispatched) -> Option<StepKey> {
        let before = sent.attempt.saturating_sub(1);
        let ResponderWork::Ask(ask) = &self.responder_of(&sent.step)?.work else {
            return None;
        };
        let work = StepWork::Agent(agent_plan(ask));
        let step = Step {
            status: StepStatus::Running,
            attempt: sent.attempt,
            started: Some(frame.seq),
            tasks: Some(Box::new(Tasks::begin(None, frame.seq, before))),
            ..Step::pending(0)
        };
        Some(self.responder_tasks.add(&sent.step, step, work))
    }

    /// Begins a workflow that a responder runs: an inline child of its own.
    pub(super) fn begin_responder_run(
        &mut self,
        frame: &Frame,
        started: &RunStarted,
    ) -> Option<StepKey> {
        let child = self.responder_of(&frame.scope)?.work.child()?.clone();
        let step = Step {
            status: StepStatus::Running,
            attempt: 1,
            input: started.input.clone(),
            started: Some(frame.seq),
            ..Step::pending(0)
        };
        let work = StepWork::Workflow(child);
        Some(self.responder_tasks.add(&frame.scope, step, work))
    }

    /// A responder has reacted to the end of what it asked, or nobody waits for that any more. What
    /// a workflow did for one stays: its params are those of an inline child.
    pub(super) fn end_ask(&mut self, address: &str) {
        let Some(at) = self.responder_task_at(address) else {
            return;
        };
        let is_ask = self
            .responder_task(at)
            .is_some_and(|task| task.step.tasks.is_some());
        if is_ask && let Some(task) = self.responder_tasks.remove(at) {
            self.spend.close_all(&task.step);
            self.end_announced(&task.step);
            self.todo.remove(&super::Todo::Step(at));
            self.todo.remove(&super::Todo::Effect(at));
        }
    }

    /// Restarts what responders ask or run, from the world as of its trigger: the definition
    /// changed, or a person has a run continue.
    pub(super) fn restart_responder_tasks(&mut self, frame: &Frame) {
        let all: Vec<(StepKey, String)> = self
            .responder_tasks
            .iter()
            .map(|(at, task)| (at, task.address.clone()))
            .collect();
        for (at, address) in all {
            // A reply that is recorded stays one.
            let task = self.responding().and_then(|all| all.task(&address));
            if !task.is_some_and(|task| matches!(task.phase, ResponderTaskPhase::Ended { .. })) {
                self.end_ask(&address);
            }
            let children = (0u32..).zip(&self.scopes);
            let open = children.filter(|(_, child)| {
                child.parent == Some(at) && child.status != RunStatus::Complete
            });
            for child in open.map(|(child, _)| child).collect::<Vec<_>>() {
                self.abandon(frame, child);
            }
        }
        if let Some(responding) = &mut self.responding {
            responding.restart_tasks();
        }
    }

    /// Takes what a frame says of what a responder asked or ran, behind [`Responding::apply`].
    ///
    /// [`Responding::apply`]: crate::world::Responding::apply
    pub(super) fn apply_to_responder_tasks(&mut self, frame: &Frame) {
        if let Event::World(WorldEvent::Completed(done)) = &frame.event {
            self.end_ask(&done.address);
        } else if let Event::World(WorldEvent::Failed(failed)) = &frame.event
            && let Some(address) = &failed.address
        {
            self.end_ask(address);
        } else if let Some(end) = frame.event.finished()
            && is_address(&end.step)
        {
            let task = self.responding().and_then(|all| all.task(&end.step));
            if task.is_some_and(|task| task.phase == ResponderTaskPhase::SetAside) {
                self.end_ask(&end.step);
            }
        } else if let Event::Run(RunEvent::Completed(_)) = &frame.event
            && is_address(&frame.scope)
        {
            self.end_responder_run(frame);
        }
    }

    /// Ends a workflow that a responder ran, with its output.
    fn end_responder_run(&mut self, frame: &Frame) {
        let scope = self.scope_at(&frame.scope).and_then(|at| self.scope(at));
        let ended = scope.and_then(|scope| scope.ended.as_ref());
        let output = ended.and_then(|ended| ended.output.as_ref());
        let output = output.map_or_else(CanonicalJson::null, |held| held.json.clone());
        let outcome = member("output", &output);
        if let Some(responding) = &mut self.responding {
            responding.end_task(frame, &frame.scope, outcome);
        }
    }
}

/// A responder's question as an agent's plan: one without a file, params or items. An identical
/// question of the run is answered by an earlier reply.
fn agent_plan(ask: &AskPlan) -> AgentPlan {
    AgentPlan {
        agent: String::new(),
        cache: true,
        confidence_threshold_millionths: None,
        file: String::new(),
        for_each: None,
        group: Some(ask.group.clone()),
        max_tokens: ask.max_tokens,
        on_resume: false,
        may_invoke: BTreeMap::new(),
        params: None,
        resume: None,
    }
}

//! Applies frames about suspensions to the state, and says which are pending.

use std::sync::Arc;

use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::SuspendPolicy;
use ktsu_ledger::event::{CommandKind, CommandsDiscarded, StepCommand, StepEvent, SuspendResumed};

use super::{AgentTask, RunState, StepKey, StepStatus, TaskId, TaskPhase};
use crate::life::suspension::{PendingSuspension, Resumption, Suspension, SuspensionDue};

/// A suspension that waits for its data.
#[derive(Debug, Clone, Copy)]
pub struct AskedSuspension<'a> {
    /// The step.
    pub step: StepKey,
    /// The task that asked for it.
    pub task: &'a AgentTask,
    /// The suspension.
    pub suspension: &'a PendingSuspension,
}

impl RunState {
    /// The suspensions that wait for data, in the order they were asked for.
    pub fn pending_suspensions(&self) -> Vec<AskedSuspension<'_>> {
        if !self.has_suspended() {
            return Vec::new();
        }
        let asked = |(at, task): (TaskId, _)| {
            let task: &AgentTask = task;
            let suspension = task.suspension.as_ref()?.pending()?;
            Some(AskedSuspension {
                step: at.step,
                task,
                suspension,
            })
        };
        let mut found: Vec<AskedSuspension<'_>> =
            self.suspended_tasks().filter_map(asked).collect();
        found.sort_by_key(|asked| asked.suspension.request);
        found
    }

    /// The policy for the data that a step waits for: who may give them, and until when; nothing
    /// where its agent may not suspend it.
    pub fn suspend_policy(&self, at: StepKey) -> Option<SuspendPolicy> {
        let plan = self.agent_plan(at)?;
        let declared = self.outline.agent(&plan.file)?.suspend.as_ref()?;
        Some(declared.narrowed(plan.resume.as_ref()))
    }

    /// The values that a step is given that runs again after a suspension.
    pub fn resumption(&self, at: StepKey) -> Option<&Resumption> {
        self.step(at)?.resumption.as_deref()
    }

    /// The step by whose definition another runs: the one declared `on: resume` that it was resumed to.
    /// Nothing where the definition of the run no longer has it.
    pub fn resume_step(&self, at: StepKey) -> Option<u32> {
        let name = self.resumption(at)?.resume_step.as_deref()?;
        let (shape, step) = (&self.scope_of(at)?.shape, at.position()?);
        let other = shape.position(name)?;
        shape.may_resume_to(step, other).then_some(other)
    }

    /// The position of the step by whose definition another runs: its own, or that of the one that it
    /// was resumed to.
    pub fn acting_position(&self, at: StepKey) -> Option<u32> {
        self.resume_step(at).or(at.position())
    }

    /// Returns `true` if a step begins by the definition that a frame names.
    pub(super) fn may_start_as(&self, at: StepKey, named: Option<&str>) -> bool {
        let other = self.resume_step(at);
        let plan = other.and_then(|other| self.scope_of(at)?.shape.step(other));
        plan.map(|plan| plan.id.as_str()) == named
    }

    /// Returns `true` if a step waits for data.
    pub fn awaits_data(&self, at: StepKey) -> bool {
        self.suspension_of(at, None)
            .is_some_and(|one| one.due() == SuspensionDue::Wait)
    }

    /// Returns `true` if a step begins again because its data are there.
    pub(super) fn may_begin_again(&self, at: StepKey) -> bool {
        self.failing().is_none()
            && self
                .suspension_of(at, None)
                .is_some_and(|one| one.due() == SuspensionDue::BeginAgain)
    }

    /// Keeps the values that a step is given where references find them.
    pub(super) fn keep_resumption(&mut self, at: StepKey, given: &Resumption) {
        let task = self.task(at, None);
        if let Some(TaskPhase::Finished { seq, outcome }) = task.map(|task| &task.phase)
            && *seq == given.finished
        {
            let commands = outcome.pointer("/commands").unwrap_or_default();
            self.commanded.insert(*seq, Arc::new(commands));
        }
        self.overlays.insert(given.resumed, given.data.clone());
    }

    /// The values that a step is given that is about to begin again: the data that it waited for.
    /// It keeps those of an earlier attempt as long as nothing begins again that it needs, so that
    /// no one is asked twice.
    pub(super) fn next_resumption(&self, at: StepKey) -> Option<Resumption> {
        let given = self.task(at, None).and_then(AgentTask::resumption);
        if given.is_some() {
            return given;
        }
        let (held, step) = (self.scope_of(at)?, at.position()?);
        let resetting = |need: &u32| at.scope() == 0 && self.resetting.contains(need);
        let settled = |at: &u32| {
            let status = held.steps.get(*at as usize).map(|step| step.status);
            !matches!(
                status,
                None | Some(StepStatus::Pending | StepStatus::Running)
            )
        };
        let needs = &held.shape.step(step)?.needs;
        let same = needs.iter().all(|need| settled(need) && !resetting(need));
        same.then(|| {
            held.steps
                .get(step as usize)?
                .resumption
                .as_deref()
                .cloned()
        })?
    }

    /// The suspension of a step that runs, in one of its attempts.
    fn suspension_of(&self, at: StepKey, attempt: Option<u32>) -> Option<&Suspension> {
        let held = self.step(at)?;
        (held.status == StepStatus::Running).then_some(())?;
        let task = self.task(at, None)?;
        let same = attempt.is_none_or(|attempt| attempt == task.attempt);
        task.suspension.as_deref().filter(|_| same)
    }

    /// Returns `true` if a frame about a suspension may follow, and for any other frame.
    pub(super) fn suspension_may(&self, at: StepKey, event: &StepEvent) -> bool {
        if let StepEvent::SuspendRequested(event) = event {
            let task = self.task(at, None);
            let suspension = self.suspension_of(at, Some(event.attempt));
            let policy = self.suspend_policy(at);
            task.is_some_and(AgentTask::has_all_notes)
                && suspension.is_some_and(|one| one.may_ask(event, policy.as_ref()))
        } else if let StepEvent::Commanded(event) = event {
            event.kind != CommandKind::Suspend
                || (self.may_wait_for_people(at, event) && self.suspend_policy(at).is_some())
        } else if let StepEvent::Started(event) = event {
            self.may_start_as(at, event.resume_step.as_deref())
        } else {
            true
        }
    }

    /// Returns `true` if a command may have its step wait for people. Neither an item of a fan-out
    /// nor what a responder asks does, and a recompute asks no one.
    pub(super) fn may_wait_for_people(&self, at: StepKey, command: &StepCommand) -> bool {
        !self.is_fan_out_item(at, command.item)
            && !at.is_of_responder()
            && command.suppressed == self.created().results.is_some()
    }

    /// Returns `true` if the other commands of an outcome are discarded because it suspends its
    /// step.
    pub(super) fn suspension_may_discard(&self, at: StepKey, event: &CommandsDiscarded) -> bool {
        self.suspension_of(at, Some(event.attempt))
            .is_some_and(|one| one.may_discard(event))
    }

    pub(super) fn may_resume_step(&self, at: StepKey, event: &SuspendResumed) -> bool {
        let suspension = self.suspension_of(at, Some(event.attempt));
        let is_live = !self.is_parked() && self.failing().is_none();
        is_live && suspension.is_some_and(|one| one.may_resume(event))
    }

    /// A suspension is commanded. In a recompute it is not carried out.
    pub(super) fn request_suspension(&mut self, frame: &Frame, at: StepKey, command: &StepCommand) {
        if command.kind != CommandKind::Suspend || command.suppressed {
            return;
        }
        if let Some(task) = self.task_mut(at, command.item) {
            let siblings = task.order.siblings();
            let suspension = Suspension::new(frame.seq, command.index, siblings);
            task.suspension = Some(Box::new(suspension));
        }
    }

    pub(super) fn change_suspension(
        &mut self,
        frame: &Frame,
        at: StepKey,
        change: impl FnOnce(&mut Suspension),
    ) {
        let Some(task) = self.task_mut(at, None) else {
            return;
        };
        task.last = frame.seq;
        if let Some(suspension) = &mut task.suspension {
            change(suspension);
        }
        self.reclassify_task(at, None);
    }

    /// A branch begins before the data: they are asked for again (decision F1).
    pub(super) fn ask_for_data_again(&mut self) {
        let asked = self.pending_suspensions().into_iter();
        let asked: Vec<StepKey> = asked.map(|asked| asked.step).collect();
        for at in asked {
            if let Some(task) = self.task_mut(at, None)
                && let Some(suspension) = &mut task.suspension
            {
                suspension.ask_again();
            }
            self.reclassify_task(at, None);
        }
    }
}

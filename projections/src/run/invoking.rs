//! The beginning and the end of the children that the commands of a task run, and what they mean
//! for the task.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::Frame;
use ktsu_ledger::event::{Reference, RunStarted, StepCommand, StepInput};
use serde_json::Value;

use super::Scope;
use super::transition::{TransitionError, TransitionTarget};
use super::{FailedItem, RunState, RunStatus, StepKey, StepStatus, TaskPhase};
use crate::life::invoked::{
    InvokeDue, InvokedAs, InvokedChild, InvokedChildren, InvokedPath, gives,
};
use crate::life::refusal::{Rule, holds};

/// The first decision rules under which a workflow that an item runs fails the item.
const ITEM_RULES: u32 = 6;

impl RunState {
    /// The item of a fan-out that a failure in a scope ends, and not the run: the nearest one whose
    /// commands run a workflow around it. Under earlier rules the run ends.
    pub(super) fn item_around(&self, scope: u32, fatal: bool) -> Option<FailedItem> {
        if self.rules() < ITEM_RULES {
            return None;
        }
        let mut at = scope;
        loop {
            let held = self.scope(at)?;
            let parent = held.parent?;
            if let Some(item) = held.invoked.as_ref().and_then(|invoked| invoked.item) {
                return Some(FailedItem {
                    step: parent,
                    item,
                    fatal,
                });
            }
            at = parent.scope();
        }
    }

    /// The end of an item, if that is what a failure ends.
    pub(super) fn end_failed_item(&mut self, at: StepKey, item: u32) {
        let within = self.failing.as_ref().and_then(|one| one.within.as_ref());
        let same = |one: &&FailedItem| (one.step, one.item) == (at, item);
        let Some(fatal) = within.filter(same).map(|one| one.fatal) else {
            return;
        };
        self.failing = None;
        if let Some(task) = self.task_mut(at, Some(item)) {
            task.fails_run |= fatal;
        }
    }

    /// The scopes that the commands of a step run, in the order of items, commands and inputs.
    pub fn invoked_children(&self, at: StepKey) -> impl Iterator<Item = &Scope> {
        let scopes = self.invoked_scopes(at);
        scopes.filter_map(|scope| self.scope(scope))
    }

    /// Their positions among the scopes.
    pub fn invoked_scopes(&self, at: StepKey) -> impl Iterator<Item = u32> {
        let tasks = self.step(at).and_then(|step| step.tasks.as_deref());
        let tasks = tasks.into_iter().flat_map(|tasks| &tasks.list);
        let children = tasks.filter_map(|task| task.invoked.as_deref());
        children.flat_map(InvokedChildren::scopes)
    }

    /// The beginning of a workflow that a command runs.
    pub(super) fn check_invoked_start(
        &self,
        frame: &Frame,
        started: &RunStarted,
        path: &InvokedPath,
    ) -> Result<TransitionTarget, TransitionError> {
        let unknown = || TransitionError::Scope(frame.scope.clone());
        let scope = self.scope_at(&path.scope).ok_or_else(unknown)?;
        let holder = self.scope(scope).ok_or_else(unknown)?;
        let step = holder.shape.position(&path.step).ok_or_else(unknown)?;
        let at = StepKey::of(scope, step);
        let state = self.step(at).ok_or_else(unknown)?;
        let plan = self.agent_plan(at).ok_or_else(unknown)?;
        let task = state.tasks.as_ref().and_then(|tasks| tasks.get(path.item));
        let is_due = task.is_some_and(|task| {
            matches!(task.phase, TaskPhase::Finished { .. })
                && task.invoke_due() == Some(InvokeDue::Start)
        });
        let invoked = task.and_then(|task| task.invoked.as_deref());
        let declared = plan.may_invoke.get(&path.name);
        let names_it =
            declared.is_some_and(|one| started.plan.as_ref() == Some(&one.child.workflow));
        let is_next = invoked.is_some_and(|invoked| {
            let current = invoked.current();
            current.is_some_and(|command| command.target == path.name)
                && invoked.next_index() == path.index
                && gives(started, invoked)
        });
        let due = holder.status == RunStatus::Running
            && state.status == StepStatus::Running
            && self.failing().is_none()
            && is_due
            && names_it
            && is_next;
        let allowed = holds(Rule::Child, due);
        self.require(allowed, frame, &path.step, state.status.as_str())?;
        Ok(TransitionTarget::Opens(at))
    }

    /// A command that runs workflows is recorded.
    pub(super) fn request_invoke(&mut self, frame: &Frame, at: StepKey, command: &StepCommand) {
        let target = command.target.as_ref().filter(|_| !command.suppressed);
        let plan = target.and_then(|target| {
            let plan = self.agent_plan(at)?;
            plan.may_invoke.get(target).cloned()
        });
        let Some((plan, task)) = plan.zip(self.task_mut(at, command.item)) else {
            return;
        };
        if task.invoked.is_none()
            && let TaskPhase::Finished { seq, outcome } = &task.phase
        {
            let commands = Arc::new(outcome.pointer("/commands").unwrap_or_default());
            let finished = *seq;
            task.invoked = Some(Box::new(InvokedChildren {
                outcome: Arc::clone(&commands),
                requests: task.order.first(),
                finished,
                commands: Vec::new(),
                children: Vec::new(),
                completed: 0,
                under_way: 0,
            }));
            self.commanded.insert(finished, commands);
        }
        let task = self.task_mut(at, command.item);
        if let Some(invoked) = task.and_then(|task| task.invoked.as_deref_mut()) {
            invoked.request(frame.seq, command, &plan);
        }
    }

    /// A workflow that a command runs has begun, as a scope that is the last of all.
    pub(super) fn begin_invoked(&mut self, at: StepKey, child: u32, started: &RunStarted) {
        let Some(path) = self
            .scope(child)
            .and_then(|scope| InvokedPath::parse(&scope.path))
        else {
            return;
        };
        if let Some(task) = self.task_mut(at, path.item)
            && let Some(invoked) = &mut task.invoked
        {
            invoked.under_way += 1;
            invoked.children.push(InvokedChild {
                scope: child,
                ended: None,
            });
        }
        if let Some(scope) = self.scopes.get_mut(child as usize) {
            scope.invoked = Some(Box::new(InvokedAs {
                item: path.item,
                name: path.name,
                index: path.index,
                input: started.input.clone(),
            }));
        }
        self.reclassify_task(at, path.item);
    }

    /// A workflow that a command ran has ended well.
    pub(super) fn end_invoked(&mut self, frame: &Frame, at: StepKey, child: &InvokedAs) {
        if let Some(task) = self.task_mut(at, child.item)
            && let Some(invoked) = &mut task.invoked
        {
            invoked.under_way = invoked.under_way.saturating_sub(1);
            if let Some(ended) = invoked.children.get_mut(child.index as usize) {
                ended.ended = Some(frame.seq);
            }
        }
        self.reclassify_task(at, child.item);
    }

    /// The value at a place in the commands of an outcome.
    pub(super) fn commanded_value(&self, reference: &Reference) -> Option<Value> {
        let path = reference.path.strip_prefix("/outcome/commands")?;
        self.commanded.get(&reference.frame)?.pointer(path).cloned()
    }

    /// The params of a scope as they were recorded, and in which frame.
    pub(super) fn given(&self, scope: u32) -> Option<(&BTreeMap<String, StepInput>, Option<u64>)> {
        let held = self.scope(scope)?;
        if let Some(invoked) = &held.invoked {
            return Some((&invoked.input, held.started));
        }
        let step = self.step(held.parent?)?;
        Some((&step.input, step.started))
    }
}

//! The workflows that the commands of a task run: inline children of its step.
//!
//! ```text
//! command.requested … ─▶ run.started of `STEP/NAME.0`, `STEP/NAME.1` … ─▶ run.completed of each
//!     ─▶ command.completed ─▶ the next command, or the end of the step
//! ```
//!
//! Commands run one after another, in their order; the children of one begin in the order of their
//! inputs, as many at once as its step allows. A child is numbered among all of its task, across
//! commands, so its path is `STEP/NAME.N`, and `STEP.ITEM/NAME.N` for an item of a fan-out. No step
//! has such an id.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::{AgentPlan, InvokePlan};
use ktsu_ledger::event::{
    CommandCompleted, CommandKind, Reference, RunStarted, StepCommand, StepInput,
};
use serde_json::Value;

use super::scope::Scope;
use super::transition::{TransitionError, TransitionTarget};
use super::{AgentTask, RunState, RunStatus, Step, StepStatus, TaskPhase};
use crate::step_name::{StepName, path_in};

/// As what a scope runs that a command began.
#[derive(Debug, Clone)]
pub struct InvokedAs {
    /// The item of the fan-out that commanded it.
    pub item: Option<u32>,
    /// The name that its step has for its workflow.
    pub name: String,
    /// Its number among the children of its task.
    pub index: u32,
    /// Its params, as its `run.started` has them.
    pub input: BTreeMap<String, StepInput>,
}

/// What the commands of one task run.
#[derive(Debug, Clone)]
pub struct InvokedChildren {
    /// The commands of the outcome, all of them.
    outcome: Arc<Value>,
    /// Where that is.
    finished: u64,
    commands: Vec<InvokeCommand>,
    children: Vec<InvokedChild>,
    /// How many commands are completed.
    completed: usize,
    /// Children that have begun and not ended.
    under_way: u32,
}

/// A command that runs workflows.
#[derive(Debug, Clone)]
pub struct InvokeCommand {
    /// The `command.requested`.
    pub seq: u64,
    /// Its position among the commands of the outcome.
    pub index: u32,
    /// The name that its step has for the workflow.
    pub target: String,
    kind: CommandKind,
    /// The number of its first child.
    first: usize,
    /// How many children it has.
    count: usize,
    concurrency: u32,
}

/// A child that has begun.
#[derive(Debug, Clone, Copy)]
struct InvokedChild {
    scope: u32,
    ended: Option<u64>,
}

/// What is due for a task whose outcome runs workflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvokeDue {
    /// Commands of the outcome have no frames yet.
    Request,
    /// The next child is to begin.
    Start,
    /// Every child of the command has ended.
    Complete,
    /// Children have to end first.
    Wait,
    /// Every command is completed.
    End,
}

impl InvokedChildren {
    /// What is due, where so many commands have frames.
    pub fn due(&self, requested: u32) -> InvokeDue {
        if (requested as usize) < self.outcome.as_array().map_or(0, Vec::len) {
            return InvokeDue::Request;
        }
        let Some(command) = self.current() else {
            return InvokeDue::End;
        };
        let begun = self.children.len() - command.first;
        if begun < command.count {
            match self.under_way < command.concurrency {
                true => InvokeDue::Start,
                false => InvokeDue::Wait,
            }
        } else if self.under_way == 0 {
            InvokeDue::Complete
        } else {
            InvokeDue::Wait
        }
    }

    /// The first command that is not completed.
    pub fn current(&self) -> Option<&InvokeCommand> {
        self.commands.get(self.completed)
    }

    /// Whether the current command is the last of them.
    pub fn is_last(&self) -> bool {
        self.completed + 1 == self.commands.len()
    }

    /// The number of the next child.
    pub fn next_index(&self) -> u32 {
        u32::try_from(self.children.len()).unwrap_or(u32::MAX)
    }

    /// The input of the next child, and where it stands.
    pub fn next_input(&self) -> Option<(&Value, Reference)> {
        let command = self.current()?;
        let pointer = match command.kind {
            CommandKind::Fanout => {
                let at = self.children.len() - command.first;
                format!("/{}/inputs/{at}", command.index)
            }
            CommandKind::Invoke => format!("/{}/input", command.index),
            CommandKind::Emit => return None,
        };
        let value = self.outcome.pointer(&pointer)?;
        let place = Reference {
            frame: self.finished,
            path: format!("/outcome/commands{pointer}"),
        };
        Some((value, place))
    }

    /// The ends of the children of the current command, in the order of their inputs.
    pub fn ends(&self) -> Vec<u64> {
        let first = self.current().map_or(0, |command| command.first);
        let children = self.children.iter().skip(first);
        children.filter_map(|child| child.ended).collect()
    }

    /// The scopes of all children that have begun, in their order.
    pub fn scopes(&self) -> impl Iterator<Item = u32> + '_ {
        self.children.iter().map(|child| child.scope)
    }

    fn request(&mut self, seq: u64, command: &StepCommand, plan: &InvokePlan) {
        let inputs = self.outcome.pointer(&format!("/{}/inputs", command.index));
        let count = match command.kind {
            CommandKind::Fanout => inputs.and_then(Value::as_array).map_or(0, Vec::len),
            CommandKind::Invoke | CommandKind::Emit => 1,
        };
        let before = self.commands.last();
        self.commands.push(InvokeCommand {
            seq,
            index: command.index,
            target: command.target.clone().unwrap_or_default(),
            kind: command.kind,
            first: before.map_or(0, |before| before.first + before.count),
            count,
            concurrency: plan.concurrency.max(1),
        });
    }

    fn has_begun(&self) -> bool {
        self.completed > 0 || !self.children.is_empty()
    }
}

/// `TASK/NAME.N`, where a child is that a command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvokedPath {
    /// The scope of the step.
    pub scope: String,
    /// The step.
    pub step: String,
    /// The item of a fan-out.
    pub item: Option<u32>,
    /// The name that the step has for the workflow.
    pub name: String,
    /// The child's number among those of the task.
    pub index: u32,
}

impl InvokedPath {
    /// Reads the path of a scope, if it is one of these.
    pub fn parse(path: &str) -> Option<Self> {
        let (task, last) = path.rsplit_once('/')?;
        let (name, index) = last.split_once('.').filter(|(name, _)| !name.is_empty())?;
        let digits = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
        let index: u32 = index.parse().ok().filter(|_| digits)?;
        let task = StepName::parse(task);
        let (scope, step) = task.path.rsplit_once('/').unwrap_or(("", &task.path));
        Some(Self {
            scope: scope.to_owned(),
            step: step.to_owned(),
            item: task.item,
            name: name.to_owned(),
            index,
        })
    }
}

impl std::fmt::Display for InvokedPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let task = crate::lineage::item_name(&self.step, self.item);
        let task = path_in(&self.scope, &task);
        write!(f, "{task}/{}.{}", self.name, self.index)
    }
}

impl AgentTask {
    /// What is due for what its commands run, if they run anything.
    pub fn invoke_due(&self) -> Option<InvokeDue> {
        Some(self.invoked.as_ref()?.due(self.commands))
    }

    /// Whether it goes on once a workflow has ended that it runs.
    pub fn awaits_invoked(&self) -> bool {
        let finished = matches!(self.phase, TaskPhase::Finished { .. });
        finished && self.invoke_due() == Some(InvokeDue::Wait)
    }

    /// Whether whatever its commands run has ended.
    pub(super) fn has_invoked_all(&self) -> bool {
        self.invoke_due().is_none_or(|due| due == InvokeDue::End)
    }

    /// Whether the next of its commands may have a frame: none has run anything.
    pub(super) fn may_command(&self) -> bool {
        self.invoked
            .as_ref()
            .is_none_or(|invoked| !invoked.has_begun())
    }

    /// Whether a command is completed.
    pub(super) fn may_complete(&self, done: &CommandCompleted) -> bool {
        let current = self.invoked.as_ref().filter(|_| {
            let finished = matches!(self.phase, TaskPhase::Finished { .. });
            finished && self.invoke_due() == Some(InvokeDue::Complete)
        });
        current.is_some_and(|invoked| {
            let same = |one: &InvokeCommand| one.seq == done.request && one.index == done.index;
            done.attempt == self.attempt
                && invoked.current().is_some_and(same)
                && invoked.ends() == done.children
        })
    }

    pub(super) fn complete_command(&mut self) {
        if let Some(invoked) = &mut self.invoked {
            invoked.completed += 1;
        }
    }
}

/// Whether a step of this plan may have a command: what is to run is declared.
pub(super) fn declares(plan: Option<&AgentPlan>, command: &StepCommand) -> bool {
    let Some(target) = &command.target else {
        return !command.kind.invokes();
    };
    let declared = plan.is_some_and(|plan| plan.may_invoke.contains_key(target));
    command.kind.invokes() && command.topic.is_none() && (declared || command.suppressed)
}

impl Step {
    /// Whether it moves only as the workflows do that its commands run.
    pub(crate) fn awaits_invoked(&self) -> bool {
        let Some(tasks) = self.tasks.as_deref() else {
            return false;
        };
        let stands = |task: &AgentTask| {
            let still = matches!(task.phase, TaskPhase::Settled | TaskPhase::Suspended);
            still || task.awaits_invoked()
        };
        self.status == StepStatus::Running
            && tasks.list.iter().any(AgentTask::awaits_invoked)
            && tasks.list.iter().all(stands)
    }
}

impl RunState {
    /// The scopes that the commands of a step run, in the order of items, commands and inputs.
    pub fn invoked_children(&self, scope: u32, step: u32) -> impl Iterator<Item = &Scope> {
        let scopes = self.invoked_scopes(scope, step);
        scopes.filter_map(|scope| self.scope(scope))
    }

    /// Their positions among the scopes.
    pub(crate) fn invoked_scopes(&self, scope: u32, step: u32) -> impl Iterator<Item = u32> {
        let tasks = self
            .step(scope, step)
            .and_then(|step| step.tasks.as_deref());
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
        let state = self.step(scope, step).ok_or_else(unknown)?;
        let plan = self.agent_plan(scope, step).ok_or_else(unknown)?;
        let task = state.tasks.as_ref().and_then(|tasks| tasks.get(path.item));
        let due = task.is_some_and(|task| {
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
        let allowed = holder.status == RunStatus::Running
            && state.status == StepStatus::Running
            && self.failing().is_none()
            && due
            && names_it
            && is_next;
        self.require(allowed, frame, &path.step, state.status.as_str())?;
        Ok(TransitionTarget::Opens { scope, step })
    }

    /// A command that runs workflows is recorded.
    pub(super) fn request_invoke(&mut self, frame: &Frame, at: (u32, u32), command: &StepCommand) {
        let target = command.target.as_ref().filter(|_| !command.suppressed);
        let plan = target.and_then(|target| {
            let plan = self.agent_plan(at.0, at.1)?;
            plan.may_invoke.get(target).cloned()
        });
        let Some((plan, task)) = plan.zip(self.task_mut(at.0, at.1, command.item)) else {
            return;
        };
        if task.invoked.is_none()
            && let TaskPhase::Finished { seq, outcome } = &task.phase
        {
            let commands = Arc::new(outcome.pointer("/commands").unwrap_or_default());
            let finished = *seq;
            task.invoked = Some(Box::new(InvokedChildren {
                outcome: Arc::clone(&commands),
                finished,
                commands: Vec::new(),
                children: Vec::new(),
                completed: 0,
                under_way: 0,
            }));
            self.commanded.insert(finished, commands);
        }
        let task = self.task_mut(at.0, at.1, command.item);
        if let Some(invoked) = task.and_then(|task| task.invoked.as_deref_mut()) {
            invoked.request(frame.seq, command, &plan);
        }
    }

    /// A workflow that a command runs has begun, as a scope that is the last of all.
    pub(super) fn begin_invoked(&mut self, at: (u32, u32), child: u32, started: &RunStarted) {
        let Some(path) = self
            .scope(child)
            .and_then(|scope| InvokedPath::parse(&scope.path))
        else {
            return;
        };
        if let Some(task) = self.task_mut(at.0, at.1, path.item)
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
        self.reclassify_task(at.0, at.1, path.item);
    }

    /// A workflow that a command ran has ended well.
    pub(super) fn end_invoked(&mut self, frame: &Frame, at: (u32, u32), child: &InvokedAs) {
        if let Some(task) = self.task_mut(at.0, at.1, child.item)
            && let Some(invoked) = &mut task.invoked
        {
            invoked.under_way = invoked.under_way.saturating_sub(1);
            if let Some(ended) = invoked.children.get_mut(child.index as usize) {
                ended.ended = Some(frame.seq);
            }
        }
        self.reclassify_task(at.0, at.1, child.item);
    }

    /// What stands in the commands of an outcome.
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
        let (parent, step) = held.parent?;
        let step = self.step(parent, step)?;
        Some((&step.input, step.started))
    }
}

/// Whether a child gets the next input: each param by its place there, unless it was computed, and
/// none is left out.
fn gives(started: &RunStarted, invoked: &InvokedChildren) -> bool {
    let Some((Value::Object(members), place)) = invoked.next_input() else {
        return false;
    };
    let key = |name: &str| format!("/params/{}", super::escape(name));
    let named = |(at, given): (&String, &StepInput)| match given {
        StepInput::Ref(reference) => {
            let rest = at.strip_prefix("/params").unwrap_or_default();
            reference.frame == place.frame && reference.path == format!("{}{rest}", place.path)
        }
        StepInput::Value { .. } => true,
        StepInput::Template(_) => false,
    };
    started.input.iter().all(named)
        && members
            .keys()
            .all(|name| started.input.contains_key(&key(name)))
}

#[cfg(test)]
mod tests {
    use super::InvokedPath;

    #[test]
    fn the_path_of_an_invoked_child_is_told_from_that_of_a_step() {
        for (text, scope, step, item) in [
            ("a/verify.0", "", "a", None),
            ("call/a/verify.12", "call", "a", None),
            ("f.3/verify.0", "", "f", Some(3)),
            ("a/verify.0/b/again.1", "a/verify.0", "b", None),
            ("@who.1/a/verify.0", "@who.1", "a", None),
        ] {
            let path = InvokedPath::parse(text).unwrap();
            assert_eq!((path.scope.as_str(), path.step.as_str()), (scope, step));
            assert_eq!(path.item, item, "{text}");
            assert_eq!(path.to_string(), text);
        }
        for text in [
            "a", "a.0", "call/a", "a/.0", "a/b.", "a/b.x", "@who.1", "a/b.+1",
        ] {
            assert_eq!(InvokedPath::parse(text), None, "{text}");
        }
    }
}

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

use ktsu_ledger::event::plan::{AgentPlan, InvokePlan};
use ktsu_ledger::event::{CommandKind, Reference, RunStarted, StepCommand, StepInput};
use serde_json::Value;

use crate::pointer::escape;
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

/// The workflows that the commands of one task run.
#[derive(Debug, Clone)]
pub struct InvokedChildren {
    /// The commands of the outcome, all of them.
    pub(crate) outcome: Arc<Value>,
    /// The frame that has the outcome.
    pub(crate) finished: u64,
    /// Number of commands that have frames before the first child begins.
    pub(crate) requests: u32,
    pub(crate) commands: Vec<InvokeCommand>,
    pub(crate) children: Vec<InvokedChild>,
    /// Number of completed commands.
    pub(crate) completed: usize,
    /// Children that have begun and not ended.
    pub(crate) under_way: u32,
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
    /// Number of its children.
    count: usize,
    concurrency: u32,
}

/// A child that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InvokedChild {
    pub(crate) scope: u32,
    pub(crate) ended: Option<u64>,
}

/// The action that is due for a task whose outcome runs workflows.
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
    /// The action that is due where so many commands have frames.
    pub fn due(&self, requested: u32) -> InvokeDue {
        if requested < self.requests {
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

    /// Returns `true` if the current command is the last of them.
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
            CommandKind::Emit | CommandKind::Review | CommandKind::Suspend => return None,
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

    pub(crate) fn request(&mut self, seq: u64, command: &StepCommand, plan: &InvokePlan) {
        let inputs = self.outcome.pointer(&format!("/{}/inputs", command.index));
        let count = match command.kind {
            CommandKind::Fanout => inputs.and_then(Value::as_array).map_or(0, Vec::len),
            CommandKind::Invoke
            | CommandKind::Emit
            | CommandKind::Review
            | CommandKind::Suspend => 1,
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

    pub(crate) fn has_begun(&self) -> bool {
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

/// Returns `true` if a step of this plan may have a command: the workflow that it runs, if any, is
/// declared.
pub(crate) fn declares(plan: Option<&AgentPlan>, command: &StepCommand) -> bool {
    let Some(target) = &command.target else {
        return !command.kind.invokes();
    };
    let declared = plan.is_some_and(|plan| plan.may_invoke.contains_key(target));
    command.kind.invokes() && command.topic.is_none() && (declared || command.suppressed)
}

/// Returns `true` if a child gets the next input: each param by its place there, unless it was
/// computed, and none is left out.
pub(crate) fn gives(started: &RunStarted, invoked: &InvokedChildren) -> bool {
    let Some((Value::Object(members), place)) = invoked.next_input() else {
        return false;
    };
    let key = |name: &str| format!("/params/{}", escape(name));
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
    fn the_path_of_an_invoked_child_is_distinguished_from_that_of_a_step() {
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

//! The check that the workflows that commands run are those that an outcome asked for, that the
//! definition declares and that began in the order of their inputs.

use ktsu_ledger::event::plan::AgentPlan;
use ktsu_ledger::event::{CommandCompleted, CommandKind, RunStarted, StepCommand, StepInput};
use ktsu_projections::life::invoked::InvokedPath;
use serde_json::Value;

/// The commands of one outcome that run workflows, and how far they are.
#[derive(Default)]
pub(super) struct CommandedRuns {
    commands: Vec<CommandedRun>,
    /// The frame with which each child ended well, of those that have begun.
    children: Vec<Option<u64>>,
    /// The number of commands that are completed, and of the children that those have.
    completed: usize,
    before: usize,
}

struct CommandedRun {
    seq: u64,
    index: u32,
    target: String,
    kind: CommandKind,
    count: usize,
}

impl CommandedRuns {
    /// Takes a command. Tells whether the definition declares what it runs.
    pub(super) fn request(
        &mut self,
        seq: u64,
        command: &StepCommand,
        outcome: &Value,
        plan: Option<&AgentPlan>,
    ) -> bool {
        if !command.kind.invokes() || command.suppressed {
            return true;
        }
        let inputs = outcome.pointer(&format!("/commands/{}/inputs", command.index));
        let target = command.target.clone().unwrap_or_default();
        let declared = plan.is_some_and(|plan| plan.may_invoke.contains_key(&target));
        self.commands.push(CommandedRun {
            seq,
            index: command.index,
            target,
            kind: command.kind,
            count: match command.kind {
                CommandKind::Fanout => inputs.and_then(Value::as_array).map_or(0, Vec::len),
                CommandKind::Invoke
                | CommandKind::Emit
                | CommandKind::Review
                | CommandKind::Suspend => 1,
            },
        });
        declared
    }

    /// Takes the beginning of a child. Tells whether it is the next one, with the next input.
    pub(super) fn begin(
        &mut self,
        path: &InvokedPath,
        started: &RunStarted,
        (finished, outcome): (u64, &Value),
        plan: Option<&AgentPlan>,
    ) -> bool {
        let at = self.children.len();
        self.children.push(None);
        let Some(command) = self.commands.get(self.completed) else {
            return false;
        };
        let within = at.wrapping_sub(self.before);
        let place = match command.kind {
            CommandKind::Fanout => format!("/commands/{}/inputs/{within}", command.index),
            CommandKind::Invoke
            | CommandKind::Emit
            | CommandKind::Review
            | CommandKind::Suspend => {
                format!("/commands/{}/input", command.index)
            }
        };
        let declared = plan.and_then(|plan| plan.may_invoke.get(&path.name));
        let names_it = declared.map(|one| &one.child.workflow) == started.plan.as_ref();
        let given = outcome.pointer(&place).and_then(Value::as_object);
        let is_there = |(name, input): (&String, &StepInput)| match input {
            StepInput::Ref(reference) => {
                let rest = name.strip_prefix("/params").unwrap_or_default();
                reference.frame == finished && reference.path == format!("/outcome{place}{rest}")
            }
            StepInput::Value { .. } => true,
            StepInput::Template(_) => false,
        };
        let all = given.is_some_and(|given| {
            given.keys().all(|name| {
                let name = name.replace('~', "~0").replace('/', "~1");
                started.input.contains_key(&format!("/params/{name}"))
            })
        });
        let next = command.target == path.name && path.index as usize == at;
        next && within < command.count
            && names_it
            && declared.is_some()
            && all
            && started.input.iter().all(is_there)
    }

    /// Takes the end of a child.
    pub(super) fn end(&mut self, index: u32, seq: u64) {
        if let Some(child) = self.children.get_mut(index as usize) {
            *child = Some(seq);
        }
    }

    /// Takes the end of a command. Tells whether all of its children ended before.
    pub(super) fn complete(&mut self, done: &CommandCompleted) -> bool {
        let Some(command) = self.commands.get(self.completed) else {
            return false;
        };
        let own = self.children.get(self.before..).unwrap_or_default();
        let ends: Option<Vec<u64>> = own.iter().copied().collect();
        let right = own.len() == command.count
            && ends.as_ref() == Some(&done.children)
            && (command.seq, command.index) == (done.request, done.index);
        self.completed += 1;
        self.before += command.count;
        right
    }

    /// Returns `true` if a child has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.completed > 0 || !self.children.is_empty()
    }

    /// Returns `true` if every command is completed.
    pub(super) fn is_done(&self) -> bool {
        self.completed == self.commands.len()
    }
}

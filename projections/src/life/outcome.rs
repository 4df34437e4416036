//! The actions that are due for the outcome of a task that has finished: its review, its
//! suspension, its commands and notes, in their order.

use ktsu_ledger::event::{CommandCompleted, StepCommand};

use super::command_order::CommandPhase;
use super::invoked::{InvokeCommand, InvokeDue, InvokedChildren};
use super::suspension::{Resumption, SuspensionDue};
use super::task::{AgentTask, TaskPhase};

impl AgentTask {
    /// The action that is due for the workflows that its commands run, if they run any.
    pub fn invoke_due(&self) -> Option<InvokeDue> {
        Some(self.invoked.as_ref()?.due(self.commands))
    }

    /// Returns `true` if it continues once a workflow that it runs has ended.
    pub fn awaits_invoked(&self) -> bool {
        let finished = matches!(self.phase, TaskPhase::Finished { .. });
        finished && self.invoke_due() == Some(InvokeDue::Wait)
    }

    /// Returns `true` if whatever its commands run has ended.
    pub(crate) fn has_invoked_all(&self) -> bool {
        self.invoke_due().is_none_or(|due| due == InvokeDue::End)
    }

    /// Returns `true` if the next of its events may have a note: before every command, or, where
    /// commands have phases, once all that runs has ended, or before its step waits for data.
    pub(crate) fn may_note(&self) -> bool {
        match self.order.is_phased() {
            true => match self.suspension_due() {
                Some(due) => due == SuspensionDue::Ask,
                None => self.commands == self.order.first() && self.may_end(),
            },
            false => self.commands == 0,
        }
    }

    /// Returns `true` if a command is the next one, and its phase has come.
    pub(crate) fn may_command(&self, command: &StepCommand) -> bool {
        let phase = CommandPhase::of_kind(command.kind);
        if self.order.get(self.commands) != Some((phase, command.index))
            || !self.has_passed_review()
            || self.suspension.is_some()
        {
            return false;
        }
        match self.commands < self.order.first() {
            true => {
                let begun = |invoked: &InvokedChildren| invoked.has_begun();
                !self.invoked.as_deref().is_some_and(begun)
            }
            false => self.may_end(),
        }
    }

    /// Returns `true` if only its notes and emitted messages are left before the end of its step:
    /// it does not suspend that, people have approved it where it asks for that, and whatever its
    /// commands run has ended.
    pub(crate) fn may_end(&self) -> bool {
        self.suspension.is_none() && self.has_passed_review() && self.has_invoked_all()
    }

    /// Returns `true` if a frame may complete the current command.
    pub(crate) fn may_complete(&self, done: &CommandCompleted) -> bool {
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

    pub(crate) fn complete_command(&mut self) {
        if let Some(invoked) = &mut self.invoked {
            invoked.completed += 1;
        }
    }

    /// The action that is due for the suspension that its outcome asks for, if it does.
    pub fn suspension_due(&self) -> Option<SuspensionDue> {
        Some(self.suspension.as_ref()?.due())
    }

    /// The step that its outcome names as the one that it is to be resumed to.
    pub fn resume_step(&self) -> Option<String> {
        let TaskPhase::Finished { outcome, .. } = &self.phase else {
            return None;
        };
        self.suspension.as_ref()?.resume_step(outcome)
    }

    /// The checkpoint and the data that the next attempt of its step is given.
    pub(crate) fn resumption(&self) -> Option<Resumption> {
        let TaskPhase::Finished { seq, outcome } = &self.phase else {
            return None;
        };
        self.suspension.as_ref()?.resumption(*seq, outcome)
    }

    /// Returns `true` if each event of its outcome has its note.
    pub(crate) fn has_all_notes(&self) -> bool {
        let TaskPhase::Finished { outcome, .. } = &self.phase else {
            return false;
        };
        let events = outcome.pointer("/events").unwrap_or_default();
        events.as_array().map_or(0, Vec::len) == self.notes as usize
    }
}

//! Recovery of a run that an earlier process left: after a restart, or because of a message.

use super::{Message, RunTask};
use crate::effects;
use crate::human_commands::HumanCommand;
use ktsu_workflow::admit;
use ktsu_workflow::admit::report;
use ktsu_workflow::effects::tasks_due;
use ktsu_workflow::timers;
use ktsu_workflow::turn::InvariantViolation;

impl RunTask {
    /// Takes a message for a run that had no task. The run is recovered first, unless the message
    /// holds or ends it: then nothing of it is to begin before.
    pub(super) fn recover_with(&mut self, message: Message) -> Result<(), InvariantViolation> {
        if matches!(&message, Message::Command { command, .. } if command.is_steering()) {
            self.take_message(message)?;
            return self.recover();
        }
        let goes_on = !self.is_at_rest() && self.state.paused().is_none();
        let last = self.state.next_seq().saturating_sub(1);
        self.recover()?;
        match message {
            // An interrupted run continues without a new command.
            Message::Command {
                command:
                    HumanCommand::Resume {
                        from: None,
                        raise: None,
                        ..
                    },
                expected,
                reply,
            } if goes_on && expected.is_none_or(|expected| expected == last) => {
                self.reply_unchanged(reply);
                Ok(())
            }
            message => {
                if matches!(
                    &message,
                    Message::Command {
                        command: HumanCommand::Decide(_),
                        ..
                    }
                ) {
                    self.fire_due_timers()?;
                }
                self.take_message(message)
            }
        }
    }

    /// Continues what an earlier process left. Tasks of a runtime within that process are lost with
    /// it; a remote runtime gets time to name the tasks it has (decision W3). All other effects due
    /// start as usual.
    pub(super) fn recover(&mut self) -> Result<(), InvariantViolation> {
        let clock = self.observed.time(&self.shared.clock);
        let (run, paused) = (self.state.stream().name(), self.state.paused().is_some());
        self.shared.supervisor.set_paused(run, paused);
        let losses = match self.shared.peers.runtime_is_local() {
            true => report::losses(&self.state),
            false => Vec::new(),
        };
        if !self.shared.peers.runtime_is_local() {
            for task in tasks_due(&self.state) {
                effects::watch(&self.shared, &self.state, task, &self.sender);
            }
        }
        let more = !losses.is_empty();
        for input in admit::restart(&self.definition, &self.state, clock, more) {
            self.handle_message(input)?;
        }
        for (scope, lost) in losses {
            self.worker_lost(&scope, lost)?;
        }
        Ok(())
    }

    /// Fires timers that expired before the message arrived: a late approval decision finds the
    /// approval expired, and the run continues accordingly.
    pub(super) fn fire_due_timers(&mut self) -> Result<(), InvariantViolation> {
        if self.shared.runs.is_draining() {
            return Ok(());
        }
        let now = self.now();
        while let Some(input) = timers::due(&self.state, now) {
            self.handle_message_at(input, now)?;
        }
        Ok(())
    }
}

//! Handling of messages: answers, reports and commands, each judged and taken as an input.

use ktsu_ledger::event::WorkerLost;
use ktsu_projections::run::Spend;
use ktsu_projections::run::steer::Stop;

use super::{Held, Message, RunTask, Taken};
use crate::people::{CommandError, CommandReceipt, HumanCommand, Reply};
use crate::tools;
use ktsu_workflow::admit;
use ktsu_workflow::admit::approval::NotDecided;
use ktsu_workflow::admit::person::NotSaid;
use ktsu_workflow::admit::report::{self, Reported};
use ktsu_workflow::admit::{approval, person, steer};
use ktsu_workflow::timers;
use ktsu_workflow::turn::Broken;

impl RunTask {
    pub(super) fn take_message(&mut self, message: Message) -> Result<(), Broken> {
        self.observe_clock()?;
        let before = self.spend_if_held();
        let paused = self.state.paused().is_some();
        match message {
            Message::Answer(answer) => {
                if let Some(input) = admit::answer(&self.state, answer) {
                    self.take(input)?;
                }
            }
            Message::Report {
                scope,
                events,
                reply,
            } => self.reported(Held {
                scope,
                events,
                reply,
            })?,
            Message::Command {
                command,
                expected,
                reply,
            } => {
                let said = self.take_command(command, expected)?;
                // Whoever spoke may be gone; it is recorded all the same.
                let last = self.state.next_seq().saturating_sub(1);
                let _ = reply.send((last, self.durable.clone(), said));
            }
            Message::BuiltinCall {
                server,
                task,
                attempt,
                key,
                reply,
            } => {
                let found =
                    tools::find(&self.definition, &self.state, server, &task, attempt, &key);
                // Whoever asked may be gone.
                let _ = reply.send(found);
            }
            Message::Lost { scope, lost } => self.lost(&scope, lost)?,
            Message::Compared(compared) => {
                if let Some(input) = admit::compared(&self.state, compared) {
                    self.take(input)?;
                }
            }
        }
        let pauses = self.state.paused().is_some();
        if paused != pauses {
            let run = self.state.stream().name();
            self.shared.supervisor.stands_still(run, pauses);
        }
        if self.state.stopped() == Some(Stop::Cancel) {
            self.webhooks.drain(..).for_each(|webhook| webhook.abort());
        }
        if paused && !pauses {
            return self.ask_again();
        }
        self.release_held_reports(before)
    }

    pub(super) fn lost(&mut self, scope: &str, lost: WorkerLost) -> Result<(), Broken> {
        match report::lost(&self.state, scope, lost) {
            Some(input) => self.take(input),
            None => Ok(()),
        }
    }

    fn take_command(
        &mut self,
        mut command: HumanCommand,
        expected: Option<u64>,
    ) -> Result<Result<CommandReceipt, CommandError>, Broken> {
        let seq = self.state.next_seq();
        let actual = seq.saturating_sub(1);
        if let Some(expected) = expected.filter(|expected| *expected != actual) {
            return Ok(Err(CommandError::Stale { expected, actual }));
        }
        command.redact(&self.shared.secrets.redactor_for(&self.definition));
        let sets_going = command.sets_going();
        let now = self.now();
        let input = match command {
            HumanCommand::Overlay(overlay) => {
                person::overlay(&self.definition, &self.state, overlay)
            }
            HumanCommand::Resume { from, by, reason } => {
                person::resume(&self.state, from, by, reason, now)
            }
            HumanCommand::Steer {
                own_only: true, by, ..
            } if by.id != self.state.proposer().id => Err(NotSaid::NotYours),
            HumanCommand::Steer {
                steer, by, reason, ..
            } => steer::steer(&self.state, steer, by, reason),
            HumanCommand::Decide(decide) => {
                match approval::decide(&self.state, decide, self.state.own_time(now)) {
                    Ok(input) => Ok(input),
                    Err(refused) => {
                        // Whoever is told that the time is over finds it recorded.
                        if matches!(refused, NotDecided::Expired { .. }) {
                            self.fire_due_timers()?;
                        }
                        return Ok(Err(refused.into()));
                    }
                }
            }
        };
        match input {
            Err(refused) => Ok(Err(refused.into())),
            Ok(input) => {
                // A word that changes nothing is refused as one, whatever is at hand.
                let lacks = sets_going.then(|| self.shared.can_run(&self.definition));
                if let Some(Err(lacks)) = lacks {
                    return Ok(Err(lacks));
                }
                self.take_at(input, now)?;
                Ok(Ok(CommandReceipt {
                    seq,
                    last: self.state.next_seq().saturating_sub(1),
                    status: self.state.status(),
                }))
            }
        }
    }

    /// Answers somebody whose word was not needed.
    pub(super) fn reply_unchanged(&self, reply: Reply) {
        let last = self.state.next_seq().saturating_sub(1);
        let said = CommandReceipt {
            seq: last,
            last,
            status: self.state.status(),
        };
        // Whoever asked may be gone.
        let _ = reply.send((last, self.durable.clone(), Ok(said)));
    }

    /// Whoever reported is told at once what is recorded; that it is durable is waited for there.
    fn reported(&mut self, said: Held) -> Result<(), Broken> {
        let premature = report::claims_timeout(&said.events) && self.judge_deadline()?;
        let taken = match report::report(&self.state, &said.scope, said.events) {
            Reported::Taken(_) if premature => Taken::Stale,
            Reported::Taken(drafts) => Taken::New(self.take_report(drafts)?),
            Reported::Held(events) => {
                self.held.push_back(Held { events, ..said });
                return Ok(());
            }
            Reported::Repeated { first, last } => Taken::Again { first, last },
            Reported::Stale => Taken::Stale,
            Reported::Malformed(words) => Taken::Malformed(words),
        };
        // Whoever asked may be gone; it will ask again.
        let _ = said.reply.send(taken);
        Ok(())
    }

    /// Whether the run has time left. If it has not, its own timer says so before anybody else does:
    /// a run that ran out of time ends alike, whoever noticed first.
    fn judge_deadline(&mut self) -> Result<bool, Broken> {
        let now = self.now();
        if timers::is_overdue(&self.state, now)
            && let Some(input) = timers::due(&self.state, now)
        {
            self.take_at(input, now)?;
        }
        Ok(report::has_time(&self.state, now))
    }

    /// What the run has spent, if reports wait for that to change.
    pub(super) fn spend_if_held(&self) -> Option<Spend> {
        (!self.held.is_empty()).then(|| self.state.spend().clone())
    }

    /// Judges held reports again, if something changed about the budget that they wait for.
    pub(super) fn release_held_reports(&mut self, before: Option<Spend>) -> Result<(), Broken> {
        let same = before.is_none_or(|before| before == *self.state.spend());
        if same && self.state.failing().is_none() {
            return Ok(());
        }
        self.ask_again()
    }

    fn ask_again(&mut self) -> Result<(), Broken> {
        for _ in 0..self.held.len() {
            if let Some(held) = self.held.pop_front()
                && !held.reply.is_closed()
            {
                self.reported(held)?;
            }
        }
        Ok(())
    }
}

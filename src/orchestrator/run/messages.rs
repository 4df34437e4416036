//! Handling of messages: answers, reports and commands are validated and taken as inputs.

use ktsu_ledger::event::{ContinueReason, WorkerLost};
use ktsu_ledger::{Draft, Timestamp};
use ktsu_projections::run::Spend;
use ktsu_projections::run::steer::{StopKind, is_agent_request};

use super::{Message, ReportMessage, ReportOutcome, RunTask, TurnEnd};
use crate::blocking;
use crate::human_commands::{CommandError, CommandReceipt, CommandReply, HumanCommand};
use crate::reports;
use crate::tools;
use ktsu_workflow::admit;
use ktsu_workflow::admit::approval::ApprovalDecisionError;
use ktsu_workflow::admit::intervention::InterventionError;
use ktsu_workflow::admit::post::{self, PostAdmission, PostCommand};
use ktsu_workflow::admit::report::{self, ReportAdmission};
use ktsu_workflow::admit::review::ReviewDecisionError;
use ktsu_workflow::admit::suspend::StepResumptionError;
use ktsu_workflow::admit::{approval, budget, intervention, review, steer, suspend};
use ktsu_workflow::timers;
use ktsu_workflow::turn::{self, InvariantViolation};

impl RunTask {
    /// Goes on where the first turn ended early, before any other input. That bound is smaller than the
    /// one that the run records, and whoever decides the run again knows the recorded one alone.
    pub(super) fn continue_first_turn(&mut self) -> Result<(), InvariantViolation> {
        if self.last_turn != TurnEnd::UnrecordedBound {
            return Ok(());
        }
        let input = turn::continuation(&self.state, ContinueReason::Bound);
        self.handle_message(input)
    }

    pub(super) fn take_message(&mut self, message: Message) -> Result<(), InvariantViolation> {
        self.continue_first_turn()?;
        self.observe_clock()?;
        let before = self.spend_if_held();
        let paused = self.state.paused().is_some();
        match message {
            Message::Answer(answer) => {
                if let Some(input) = admit::answer(&self.state, answer) {
                    self.handle_message(input)?;
                }
            }
            Message::Report(report) => self.report_received(report)?,
            Message::Command {
                command,
                expected,
                reply,
            } => {
                let outcome = self.take_command(command, expected)?;
                // The caller may be gone; the result is recorded all the same.
                let last = self.state.next_seq().saturating_sub(1);
                let _ = reply.send((last, self.durable.clone(), outcome));
            }
            Message::BuiltinCall { caller, key, reply } => {
                let found = tools::find(&self.definition, &self.state, &caller, &key);
                // The caller may be gone.
                let _ = reply.send(found);
            }
            Message::ResumeSteps { task, reply } => {
                // The caller may be gone.
                let _ = reply.send(tools::resume_steps(&self.state, &task));
            }
            // The next start finds what a draining engine has lost.
            Message::Lost { .. } if self.shared.runs.is_draining() => {}
            Message::Lost { scope, lost } => self.worker_lost(&scope, lost)?,
            Message::Compared(compared) => {
                if let Some(input) = admit::compared(&self.state, compared) {
                    self.handle_message(input)?;
                }
            }
        }
        let pauses = self.state.paused().is_some();
        if paused != pauses {
            let run = self.state.stream().name();
            self.shared.supervisor.set_paused(run, pauses);
        }
        if self.state.stopped() == Some(StopKind::Cancel) {
            self.webhooks.drain(..).for_each(|webhook| webhook.abort());
        }
        if paused && !pauses {
            return self.repeat_held_report();
        }
        self.release_held_reports(before)
    }

    pub(super) fn worker_lost(
        &mut self,
        scope: &str,
        lost: WorkerLost,
    ) -> Result<(), InvariantViolation> {
        match report::lost(&self.state, scope, lost) {
            Some(input) => self.handle_message(input),
            None => Ok(()),
        }
    }

    fn take_command(
        &mut self,
        mut command: HumanCommand,
        expected: Option<u64>,
    ) -> Result<Result<CommandReceipt, CommandError>, InvariantViolation> {
        let seq = self.state.next_seq();
        let actual = seq.saturating_sub(1);
        if let Some(expected) = expected.filter(|expected| *expected != actual) {
            return Ok(Err(CommandError::Stale { expected, actual }));
        }
        let redactor = self.shared.secrets.redactor_for(&self.definition);
        if command.names_secret(&redactor) {
            return Ok(Err(CommandError::SecretInName));
        }
        command.redact(&redactor);
        let sets_going = command.may_wake_run();
        let now = self.now();
        let one = |input: Draft| vec![input];
        let input = match command {
            HumanCommand::Post(command) => return self.take_post(command, now),
            HumanCommand::Overlay(overlay) => {
                let (definition, state) = (&self.definition, &self.state);
                blocking::block_if(definition.checks_may_grow(), || {
                    intervention::overlay_of_run(definition, state, overlay)
                })
            }
            HumanCommand::Resume {
                raise: Some(raise),
                by,
                reason,
                ..
            } => budget::raise(&self.state, raise, by, reason, now),
            HumanCommand::Resume {
                from, by, reason, ..
            } => intervention::resume(&self.state, from, by, reason, now).map(one),
            HumanCommand::Steer {
                own_only: true, by, ..
            } if by.id != self.state.proposer().id => Err(InterventionError::NotYours),
            HumanCommand::Steer {
                steer, by, reason, ..
            } => steer::steer(&self.state, steer, by, reason).map(one),
            HumanCommand::Decide(decide) => {
                match approval::decide(&self.state, decide, self.state.effective_time(now)) {
                    Ok(input) => Ok(one(input)),
                    Err(refused) => {
                        // Expiry is recorded before the caller learns of it.
                        if matches!(refused, ApprovalDecisionError::Expired { .. }) {
                            self.fire_due_timers()?;
                        }
                        return Ok(Err(refused.into()));
                    }
                }
            }
            HumanCommand::Review(said) => {
                let (definition, state) = (&self.definition, &self.state);
                let now = state.effective_time(now);
                let decided = blocking::block_if(definition.checks_may_grow(), || {
                    review::decide(definition, state, said, now)
                });
                match decided {
                    Ok(input) => Ok(one(input)),
                    Err(refused) => {
                        // That the time is over is recorded before the caller learns of it.
                        if matches!(refused, ReviewDecisionError::Expired { .. }) {
                            self.fire_due_timers()?;
                        }
                        return Ok(Err(refused.into()));
                    }
                }
            }
            HumanCommand::ResumeStep(given) => {
                let (definition, state) = (&self.definition, &self.state);
                let now = state.effective_time(now);
                let resumed = blocking::block_if(definition.checks_may_grow(), || {
                    suspend::resume(definition, state, given, now)
                });
                match resumed {
                    Ok(input) => Ok(one(input)),
                    Err(refused) => {
                        if matches!(refused, StepResumptionError::Expired { .. }) {
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
                // A command that changes nothing is refused as such, whatever is missing here.
                let sets_going = sets_going || input.len() > 1;
                let lacks = sets_going.then(|| self.shared.can_run(&self.definition));
                if let Some(Err(lacks)) = lacks {
                    return Ok(Err(lacks));
                }
                let turn = self.decide(input, now)?;
                self.submit_turn(turn);
                Ok(Ok(CommandReceipt {
                    seq,
                    last: self.state.next_seq().saturating_sub(1),
                    status: self.state.status(),
                    post: None,
                }))
            }
        }
    }

    /// All events of a post are one input, and with what follows from it one append.
    fn take_post(
        &mut self,
        command: PostCommand,
        now: Timestamp,
    ) -> Result<Result<CommandReceipt, CommandError>, InvariantViolation> {
        let (definition, state) = (&self.definition, &self.state);
        let posted = blocking::block_if(definition.checks_may_grow(), || {
            post::post(definition, state, command)
        });
        let (seq, n) = match posted {
            Err(refused) => return Ok(Err(refused.into())),
            Ok(PostAdmission::Repeated { n, first }) => (first, n),
            Ok(PostAdmission::New { n, drafts }) => {
                if let Err(lacks) = self.shared.can_run(&self.definition) {
                    return Ok(Err(lacks));
                }
                let first = self.state.next_seq();
                let turn = self.decide(drafts, now)?;
                self.submit_turn(turn);
                (first, n)
            }
        };
        Ok(Ok(CommandReceipt {
            seq,
            last: self.state.next_seq().saturating_sub(1),
            status: self.state.status(),
            post: Some(n),
        }))
    }

    /// Replies to a command that was not needed.
    pub(super) fn reply_unchanged(&self, reply: CommandReply) {
        let last = self.state.next_seq().saturating_sub(1);
        let receipt = CommandReceipt {
            seq: last,
            last,
            status: self.state.status(),
            post: None,
        };
        // The caller may be gone.
        let _ = reply.send((last, self.durable.clone(), Ok(receipt)));
    }

    /// The runtime receives the recorded frames at once; the wait for durability happens there.
    fn report_received(&mut self, message: ReportMessage) -> Result<(), InvariantViolation> {
        let next_is_due = reports::next_is_due(&message);
        let premature = report::claims_timeout(&message.events) && self.judge_deadline()?;
        // Nothing starts while the engine drains: the runtime is answered by the next start.
        let starts = message.events.iter().any(is_agent_request);
        let waits = self.shared.runs.is_draining() && reports::awaits_decision(&message.events);
        let held = (starts && self.shared.runs.is_draining()).then(|| message.events.clone());
        let taken = match report::report(
            &self.state,
            &message.scope,
            message.events,
            &self.shared.peers.prices,
        ) {
            ReportAdmission::Accepted(_) if premature => ReportOutcome::Stale,
            ReportAdmission::Accepted(drafts) => {
                if let Some(events) = held {
                    self.held.push_back(ReportMessage { events, ..message });
                    return Ok(());
                }
                self.report_is_due = next_is_due;
                self.take_report(drafts, message.origin)?
            }
            ReportAdmission::Deferred(events) => {
                self.held.push_back(ReportMessage { events, ..message });
                return Ok(());
            }
            ReportAdmission::Repeated { first, last } => ReportOutcome::Again { first, last },
            ReportAdmission::Stale => ReportOutcome::Stale,
            ReportAdmission::Malformed(words) => ReportOutcome::Malformed(words),
        };
        if waits
            && matches!(
                taken,
                ReportOutcome::New { .. } | ReportOutcome::Again { .. }
            )
        {
            self.unanswered.push(message.reply);
            return Ok(());
        }
        // The runtime may be gone; it will retry.
        let _ = message.reply.send(taken);
        Ok(())
    }

    /// Returns `true` if the run has time left. If not, its own timer fires first, so that a run
    /// out of time ends alike whatever noticed it.
    fn judge_deadline(&mut self) -> Result<bool, InvariantViolation> {
        let now = self.now();
        if timers::is_overdue(&self.state, now)
            && let Some(input) = timers::due(&self.state, now)
        {
            self.handle_message_at(input, now)?;
        }
        Ok(report::has_time(&self.state, now))
    }

    /// The values that held reports wait for to change, if there are any: what the run has spent,
    /// and the requests in progress.
    pub(super) fn spend_if_held(&self) -> Option<(Spend, u64)> {
        let asked = self.state.replies().generation();
        (!self.held.is_empty()).then(|| (self.state.spend().clone(), asked))
    }

    /// Validates held reports again after a change to the budget they wait for, or after the end of a
    /// request that may be identical to theirs.
    pub(super) fn release_held_reports(
        &mut self,
        before: Option<(Spend, u64)>,
    ) -> Result<(), InvariantViolation> {
        let same = before.is_none_or(|(spend, asked)| {
            spend == *self.state.spend() && asked == self.state.replies().generation()
        });
        if same && self.state.failing().is_none() {
            return Ok(());
        }
        self.repeat_held_report()
    }

    fn repeat_held_report(&mut self) -> Result<(), InvariantViolation> {
        for _ in 0..self.held.len() {
            if let Some(held) = self.held.pop_front()
                && !held.reply.is_closed()
            {
                self.report_received(held)?;
            }
        }
        Ok(())
    }
}

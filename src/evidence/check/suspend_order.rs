//! The check that a step whose outcome asks for data waits for them, has no output, and begins
//! again with them: what is discarded, which notes come first, and what the next attempt is given.
//!
//! Who may give data, which, and until when, is checked by the claim about approvals.

use ktsu_ledger::event::plan::AgentPlan;
use ktsu_ledger::event::{
    CommandKind, ItemEvent, PersonEvent, RunEvent, SkipReason, StepCommand, StepEvent, StepFailed,
    StepInput, StepStarted, TimerKind, is_address,
};
use ktsu_ledger::{Actor, CanonicalJson, Cause, Event, Frame};
use ktsu_projections::life::suspension::{Resumption, Suspension, SuspensionDue, SuspensionState};
use ktsu_workflow::reserved;
use serde_json::Value;

use super::ClaimFailure;
use super::history::may_resume_to;
use super::outputs::OutputVerifier;

/// The code of steps whose data did not come.
const TIMED_OUT: &str = "suspend_timed_out";

impl OutputVerifier<'_> {
    /// Takes a frame as far as it is about suspensions, or about what steps are given after them.
    pub(super) fn suspension(&mut self, frame: &Frame) -> Result<(), ClaimFailure> {
        match &frame.event {
            Event::Step(event) => self.suspension_step(frame, event),
            Event::Item(ItemEvent::Started(started)) => {
                self.takes_no_data(frame, started.input.values())
            }
            Event::Person(PersonEvent::SuspendResumed(given)) => {
                self.resumed.resume(frame.seq, &frame.scope, &given.step);
                let right = self.with_suspension(frame, |one| {
                    let right = one.may_resume(given);
                    if right {
                        one.resume(frame.seq, given);
                    }
                    right
                });
                self.blame(frame, !right, "its step does not wait for data")
            }
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::Suspend => {
                let right = self.with_suspension(frame, |one| {
                    let right = one.pending().is_some();
                    one.time_out(frame.seq);
                    right
                });
                self.blame(frame, !right, "its step does not wait for data")
            }
            Event::Run(RunEvent::Resumed(_)) => {
                self.resumed.begin_again(frame.seq);
                Ok(())
            }
            Event::Run(RunEvent::Started(started)) => {
                if !frame.scope.is_empty() && !self.resumed.is_empty() {
                    self.begin_child(&frame.scope);
                }
                self.takes_no_data(frame, started.input.values())
            }
            Event::Run(RunEvent::Completed(_)) => {
                let steps = self.steps.iter();
                let mut own = steps.filter(|((scope, _), _)| *scope == frame.scope);
                let waits = own.any(|(_, step)| step.is_suspended());
                self.blame(frame, waits, "one of its steps waits for data")
            }
            _ => Ok(()),
        }
    }

    fn suspension_step(&mut self, frame: &Frame, event: &StepEvent) -> Result<(), ClaimFailure> {
        match event {
            StepEvent::Started(started) => self.begins_with(frame, started),
            StepEvent::Commanded(command) if command.kind == CommandKind::Suspend => {
                self.command_suspension(frame, command)
            }
            StepEvent::SuspendRequested(event) => {
                let asked = self.step(frame).asked.get(&None);
                let left = asked.is_some_and(|asked| !asked.has_all_notes());
                let words = "some of the events that its agent gave have no frame";
                self.blame(frame, left, words)?;
                let right = self.with_suspension(frame, |one| {
                    let right = one.may_ask(event, Some(&event.policy));
                    one.ask(frame.seq, frame.at, event);
                    right
                });
                self.blame(frame, !right, "no command asks for data now")
            }
            StepEvent::Completed(_) => {
                let waits = self.step(frame).is_suspended();
                self.blame(
                    frame,
                    waits,
                    "its outcome asks for data, and does not count",
                )
            }
            StepEvent::Skipped(skipped) => {
                let step = self.step(frame);
                step.ended = true;
                let asked = skipped.reason == SkipReason::AgentSkipped;
                let waits = asked && step.is_suspended();
                self.blame(
                    frame,
                    waits,
                    "its outcome asks for data, and does not count",
                )
            }
            StepEvent::Failed(failed) => self.fail_suspended(frame, failed),
            _ => Ok(()),
        }
    }

    /// Changes the suspension of the step that a frame is about; false if there is none.
    pub(super) fn with_suspension(
        &mut self,
        frame: &Frame,
        change: impl FnOnce(&mut Suspension) -> bool,
    ) -> bool {
        let asked = self.step(frame).asked.get_mut(&None);
        asked
            .and_then(|asked| asked.suspension.as_mut())
            .is_some_and(change)
    }

    fn command_suspension(
        &mut self,
        frame: &Frame,
        command: &StepCommand,
    ) -> Result<(), ClaimFailure> {
        let plan = self.agent_plan(&frame.scope, &command.step);
        let declared = plan.as_ref().is_some_and(|plan| self.may_suspend(plan));
        let first = frame.scope.split('/').next().unwrap_or_default();
        // A recompute, which asks no one, has its tasks in fan-outs.
        let whole = command.item.is_none() || command.suppressed;
        let waits = whole && !is_address(first) && !is_address(&command.step);
        let words = "its agent does not declare that it suspends its step, or must not";
        self.blame(frame, !(declared && waits), words)?;
        let threshold = plan.and_then(|plan| plan.confidence_threshold_millionths);
        let asked = self.step(frame).asked.entry(command.item).or_default();
        let outcome = &asked.outcome;
        let ends = |output: &Value| {
            output.is_object() && reserved::evaluate(output, threshold).end.is_some()
        };
        let output = outcome.get("output").is_some_and(ends);
        let failed = outcome.get("error").is_some_and(|error| !error.is_null());
        let other = outcome.pointer(&format!("/commands/{}/resumeStep", command.index));
        let other = other.and_then(Value::as_str).map(str::to_owned);
        let words = "a reserved field or an error of the outcome ends its step first";
        self.blame(frame, output || failed, words)?;
        let all = self.plan.as_ref();
        let (scope, step) = (frame.scope.as_str(), command.step.as_str());
        let may = |other| all.is_some_and(|all| may_resume_to(all, scope, step, other));
        let words = "its step cannot be resumed to the one that it names";
        self.blame(frame, !other.as_deref().is_none_or(may), words)?;
        if !command.suppressed {
            let asked = self.step(frame).asked.entry(command.item).or_default();
            asked.suspend(frame.seq, command.index);
            self.resumed.suspend();
        }
        Ok(())
    }

    fn may_suspend(&self, plan: &AgentPlan) -> bool {
        let all = self.plan.as_ref();
        let agent = all.and_then(|all| all.agents.get(&plan.file));
        let commands = agent.and_then(|agent| agent.commands.as_ref());
        commands.is_some_and(|commands| commands.suspend.is_some())
    }

    /// A step begins again, or is about to: once its data are there, or where it has ended and a person
    /// wants it.
    pub(super) fn begins_again(
        &mut self,
        frame: &Frame,
        event: &StepEvent,
    ) -> Result<(), ClaimFailure> {
        let resets = matches!(event, StepEvent::Reset(_));
        let step = self.step(frame);
        let (ended, reset) = (step.ended, step.reset);
        let attempt = step.asked.get(&None).map(|asked| asked.attempt);
        let given = step.asked.get(&None).and_then(|asked| {
            let state = &asked.suspension.as_ref()?.state;
            let SuspensionState::Resumed { seq, .. } = state else {
                return Some(None);
            };
            Some(Some((*seq, asked.resumption()?)))
        });
        let right = match &given {
            None => true,
            Some(_) if ended => resets,
            Some(None) => false,
            Some(Some((seq, _))) => resets && frame.cause == [Cause::Here(*seq)],
        };
        let words = "it begins again without the data that its step waits for";
        self.blame(frame, !right, words)?;
        let twice = resets && !ended && reset.is_some_and(|seq| self.resumed.is_since(seq));
        self.blame(frame, twice, "it has not begun since")?;
        if let (StepEvent::Reset(reset), Some(Some(_)), false) = (event, &given, ended) {
            let other = frame.actor != Actor::Orchestrator;
            self.blame(frame, other, "it was appended by another actor")?;
            let other = Some(reset.attempt) != attempt;
            self.blame(frame, other, "it is of another attempt")?;
        }
        if resets && !self.resumed.is_empty() {
            // What ended a step discarded the data that it had not begun again with.
            let given = given.flatten().filter(|_| !ended);
            let given: Option<Resumption> = given.map(|(_, given)| given);
            let at = (frame.scope.as_str(), event.step());
            self.resumed.reset(frame.seq, at, given, self.plan.as_ref());
        }
        Ok(())
    }

    fn begins_with(&mut self, frame: &Frame, started: &StepStarted) -> Result<(), ClaimFailure> {
        let at = (frame.scope.as_str(), started.step.as_str());
        let plan = self.plan.as_ref();
        let may = |other: &str| plan.is_some_and(|plan| may_resume_to(plan, at.0, at.1, other));
        let wrong = self.resumed.start(at, started.resume_step.as_deref(), may);
        let wrong = wrong.or_else(|| self.resumed.judge(Some(at), started.input.values()));
        let wrong = wrong.or_else(|| {
            let agent = self.agent_plan(&frame.scope, &started.step)?;
            self.resumed.judge_mentions(at, &agent, &started.input)
        });
        match wrong {
            Some(words) => self.blame(frame, true, words),
            None => Ok(()),
        }
    }

    fn takes_no_data<'i>(
        &self,
        frame: &Frame,
        inputs: impl Iterator<Item = &'i StepInput>,
    ) -> Result<(), ClaimFailure> {
        match self.resumed.judge(None, inputs) {
            Some(words) => self.blame(frame, true, words),
            None => Ok(()),
        }
    }

    /// A step fails because its data did not come only where they did not.
    fn fail_suspended(&mut self, frame: &Frame, failed: &StepFailed) -> Result<(), ClaimFailure> {
        let is_agent = self.agent_plan(&frame.scope, &failed.step).is_some();
        let step = self.step(frame);
        step.ended = true;
        let asked = step.asked.get(&None);
        // A runtime may end a task with any code.
        let given = asked.and_then(|asked| asked.outcome.pointer("/error/code"));
        let given = given.and_then(Value::as_str) == Some(TIMED_OUT);
        let due = asked.and_then(|asked| asked.suspension.as_ref().map(Suspension::due));
        let right = due == Some(SuspensionDue::Fail) || given;
        let claims = is_agent && failed.code == TIMED_OUT;
        let words = "the time to give its data was not over";
        self.blame(frame, claims && !right, words)
    }
}

impl super::step_outputs::AskedBeside {
    /// The checkpoint and the data that the next attempt is given, once the data are there.
    fn resumption(&self) -> Option<Resumption> {
        let outcome = CanonicalJson::from_value(&self.outcome).ok()?;
        self.suspension
            .as_ref()?
            .resumption(self.finished, &outcome)
    }
}

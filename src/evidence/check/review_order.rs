//! The check that an outcome that asks for a review counts only once people have approved it: what
//! is deferred, carried out and discarded, with which failure the step of a refused one ends, and
//! which values hold where people replaced some.
//!
//! Who may decide, and until when, is checked by the claim about approvals.

use ktsu_ledger::event::plan::AgentPlan;
use ktsu_ledger::event::{
    CommandKind, ItemEvent, PersonEvent, Reference, RunEvent, RunFailed, StepCommand,
    StepCompleted, StepEvent, StepFailed, StepInput, TimerKind, is_address,
};
use ktsu_ledger::{Actor, Event, Frame};
use ktsu_projections::life::review::{Review, ReviewDue, ReviewRefusal, ReviewState};
use serde_json::Value;

use super::ClaimFailure;
use super::outputs::OutputVerifier;

impl OutputVerifier<'_> {
    /// Takes a frame as far as it is about reviews, or about values that people may have replaced.
    pub(super) fn review(&mut self, frame: &Frame) -> Result<(), ClaimFailure> {
        self.review_origin(frame)?;
        match &frame.event {
            Event::Step(event) => self.review_step(frame, event),
            Event::Item(ItemEvent::Started(started)) => self.takes(frame, started.input.values()),
            Event::Person(PersonEvent::OverlaySet(set)) => {
                self.reviewed.replace(&frame.scope, &set.step, &set.field);
                Ok(())
            }
            Event::Person(PersonEvent::ReviewDecided(decided)) => {
                let step = (frame.scope.as_str(), decided.step.as_str());
                self.reviewed.decide(frame.seq, step);
                let right = self.with_review(frame, |review| {
                    let open = review.pending();
                    let right = open.is_some_and(|open| open.request == decided.request);
                    if right {
                        review.decide(frame.seq, decided);
                    }
                    right
                });
                self.blame(frame, !right, "no review of its step waits for it")
            }
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::Review => {
                let right = self.with_review(frame, |review| {
                    let right = review.pending().is_some();
                    review.time_out(frame.seq);
                    right
                });
                self.blame(frame, !right, "no review of its step waits for it")
            }
            Event::Run(RunEvent::Started(started)) => {
                if !frame.scope.is_empty() && !self.reviewed.is_empty() {
                    self.begin_child(&frame.scope);
                }
                // A responder takes the object of a step, which is what people left of its output.
                match is_address(&frame.scope) && !frame.scope.contains('/') {
                    true => Ok(()),
                    false => self.takes(frame, started.input.values()),
                }
            }
            Event::Run(RunEvent::Completed(done)) => {
                let steps = self.steps.iter();
                let mut own = steps.filter(|((scope, _), _)| *scope == frame.scope);
                let refused = own.any(|(_, step)| step.is_refused());
                let words = "people refused the outcome of one of its steps";
                self.blame(frame, refused, words)?;
                self.takes_from(frame, done.output_from.as_ref())
            }
            Event::Run(RunEvent::Failed(failed)) => self.fails(frame, failed),
            _ => Ok(()),
        }
    }

    /// Checks that a frame about a review, a suspension or a command is of the attempt that ended,
    /// and the engine's where no person decides.
    fn review_origin(&mut self, frame: &Frame) -> Result<(), ClaimFailure> {
        let attempt = match &frame.event {
            Event::Step(StepEvent::Noted(event)) => Some((event.item, event.attempt)),
            Event::Step(StepEvent::Commanded(event)) => Some((event.item, event.attempt)),
            Event::Step(StepEvent::CommandCompleted(event)) => Some((event.item, event.attempt)),
            Event::Step(StepEvent::CommandsDeferred(event)) => Some((None, event.attempt)),
            Event::Step(StepEvent::CommandsDiscarded(event)) => Some((None, event.attempt)),
            Event::Step(StepEvent::ReviewRequested(event)) => Some((None, event.attempt)),
            Event::Step(StepEvent::SuspendRequested(event)) => Some((None, event.attempt)),
            Event::Person(PersonEvent::ReviewDecided(event)) => Some((None, event.attempt)),
            Event::Person(PersonEvent::SuspendResumed(event)) => Some((None, event.attempt)),
            Event::Run(RunEvent::TimerFired(event)) if event.timer.is_for_people() => None,
            _ => return Ok(()),
        };
        let decides = matches!(frame.event, Event::Person(_));
        let other = !decides && frame.actor != Actor::Orchestrator;
        self.blame(frame, other, "it was appended by another actor")?;
        let Some((item, attempt)) = attempt else {
            return Ok(());
        };
        let asked = self.step(frame).asked.get(&item);
        let other = asked.is_none_or(|asked| asked.attempt != attempt);
        self.blame(frame, other, "it is of another attempt")
    }

    fn review_step(&mut self, frame: &Frame, event: &StepEvent) -> Result<(), ClaimFailure> {
        match event {
            StepEvent::Started(started) => {
                self.reviewed.begin_step(&frame.scope, event.step());
                self.takes(frame, started.input.values())
            }
            StepEvent::Reset(_) => {
                self.reviewed.begin_step(&frame.scope, event.step());
                Ok(())
            }
            StepEvent::Commanded(command) if command.kind == CommandKind::Review => {
                self.command_review(frame, command)
            }
            StepEvent::CommandsDeferred(event) => {
                let right = self.with_review(frame, |review| {
                    let right = review.may_defer(event);
                    review.defer();
                    right
                });
                let words = "it does not defer the other commands of an outcome under review";
                self.blame(frame, !right, words)
            }
            StepEvent::ReviewRequested(event) => {
                let right = self.with_review(frame, |review| {
                    let right = review.may_ask(event, Some(&event.policy));
                    review.ask(frame.seq, frame.at, event);
                    right
                });
                self.blame(frame, !right, "no command asks for it now")
            }
            StepEvent::CommandsDiscarded(event) => {
                let right = self.with_review(frame, |review| {
                    let right = review.may_discard(event);
                    review.discard();
                    right
                });
                let right = right
                    | self.with_suspension(frame, |one| {
                        let right = one.may_discard(event);
                        one.discard();
                        right
                    });
                let words = "it does not discard the other commands of an outcome";
                self.blame(frame, !right, words)
            }
            StepEvent::Completed(done) => self.complete_reviewed(frame, done),
            StepEvent::Failed(failed) => self.fail_reviewed(frame, failed),
            _ => Ok(()),
        }
    }

    /// Changes the review of the step that a frame is about; false if there is none.
    fn with_review(&mut self, frame: &Frame, change: impl FnOnce(&mut Review) -> bool) -> bool {
        let asked = self.step(frame).asked.get_mut(&None);
        asked
            .and_then(|asked| asked.review.as_mut())
            .is_some_and(change)
    }

    fn command_review(&mut self, frame: &Frame, command: &StepCommand) -> Result<(), ClaimFailure> {
        let plan = self.agent_plan(&frame.scope, &command.step);
        let declared = plan.is_some_and(|plan| self.declares_review(&plan));
        let first = frame.scope.split('/').next().unwrap_or_default();
        // A recompute, which asks no one, has its tasks in fan-outs.
        let whole = command.item.is_none() || command.suppressed;
        let waits = whole && !is_address(first) && !is_address(&command.step);
        let words = "its agent does not declare that it asks for reviews, or must not";
        self.blame(frame, !(declared && waits), words)?;
        if command.suppressed {
            return Ok(());
        }
        let asked = self.step(frame).asked.entry(command.item).or_default();
        asked.ask_for_review(frame.seq);
        let finished = asked.finished;
        self.reviewed.ask(finished);
        Ok(())
    }

    fn declares_review(&self, plan: &AgentPlan) -> bool {
        let agent = self
            .plan
            .as_ref()
            .and_then(|all| all.agents.get(&plan.file));
        let commands = agent.and_then(|agent| agent.commands.as_ref());
        commands.is_some_and(|commands| commands.review.is_some())
    }

    fn complete_reviewed(
        &mut self,
        frame: &Frame,
        done: &StepCompleted,
    ) -> Result<(), ClaimFailure> {
        let asked = self.step(frame).asked.get(&None);
        let Some((asked, review)) = asked.and_then(|asked| Some((asked, asked.review.as_ref()?)))
        else {
            return Ok(());
        };
        let approved = review.due() == ReviewDue::CarryOut;
        let overlay: Vec<(String, u64)> = review
            .overlay()
            .map(|(field, replaced)| (field.clone(), replaced.seq))
            .collect();
        let ends = (asked.finished, frame.seq);
        let words = "people have not approved its outcome";
        self.blame(frame, !approved, words)?;
        let step = (frame.scope.as_str(), done.step.as_str());
        self.reviewed.complete(step, ends, overlay.into_iter());
        Ok(())
    }

    /// A step fails as its review says, if it fails because of one.
    fn fail_reviewed(&mut self, frame: &Frame, failed: &StepFailed) -> Result<(), ClaimFailure> {
        let is_agent = self.agent_plan(&frame.scope, &failed.step).is_some();
        let step = self.step(frame);
        step.failed = Some(failed.code.clone());
        let asked = step.asked.get(&None);
        // A runtime may end a task with any code.
        let given = asked.and_then(|asked| asked.outcome.pointer("/error/code"));
        let given = given.and_then(Value::as_str) == Some(failed.code.as_str());
        let review = asked.and_then(|asked| asked.review.as_ref());
        let code = review.and_then(refusal_code);
        let due = review.map(Review::due) == Some(ReviewDue::Refuse);
        let claims = failed.code == REJECTED || failed.code == TIMED_OUT;
        let right = code == Some(failed.code.as_str()) && due;
        let words = "people have not refused its outcome so";
        self.blame(frame, is_agent && claims && !given && !right, words)
    }

    /// A run fails with the code of the step that it names.
    fn fails(&self, frame: &Frame, failed: &RunFailed) -> Result<(), ClaimFailure> {
        let path = failed.step.as_deref().unwrap_or_default();
        let path = format!("{}/{path}", frame.scope);
        let (scope, step) = path.rsplit_once('/').unwrap_or_default();
        let at = (scope.trim_start_matches('/').to_owned(), step.to_owned());
        let Some(step) = self.steps.get(&at).filter(|step| step.is_asked()) else {
            return Ok(());
        };
        let other = step.failed.as_ref() != Some(&failed.code);
        self.blame(frame, other, "the step that it names has not failed so")
    }

    /// A child begins anew: what happened within is of no consequence.
    pub(super) fn begin_child(&mut self, scope: &str) {
        let within = format!("{scope}/");
        self.steps
            .retain(|(at, _), _| at != scope && !at.starts_with(&within));
        self.reviewed.begin(scope);
        self.resumed.begin(scope);
    }

    fn takes<'i>(
        &self,
        frame: &Frame,
        inputs: impl Iterator<Item = &'i StepInput>,
    ) -> Result<(), ClaimFailure> {
        match self.reviewed.judge(inputs) {
            Some(words) => self.blame(frame, true, words),
            None => Ok(()),
        }
    }

    fn takes_from(&self, frame: &Frame, place: Option<&Reference>) -> Result<(), ClaimFailure> {
        match place.and_then(|place| self.reviewed.judge_place(place)) {
            Some(words) => self.blame(frame, true, words),
            None => Ok(()),
        }
    }
}

/// The codes of steps whose outcome was refused.
const REJECTED: &str = "review_rejected";
const TIMED_OUT: &str = "review_timed_out";

/// The code with which the step of a refused outcome fails.
fn refusal_code(review: &Review) -> Option<&'static str> {
    match &review.state {
        ReviewState::Refused(refusal @ ReviewRefusal::TimedOut { .. }) if !refusal.rejects() => {
            Some(TIMED_OUT)
        }
        ReviewState::Refused(_) => Some(REJECTED),
        ReviewState::Due | ReviewState::Pending(_) | ReviewState::Approved { .. } => None,
    }
}

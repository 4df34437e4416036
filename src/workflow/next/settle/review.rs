//! Reviews: an outcome that asks for one counts once people have approved it (seed 004; decision P3).

use ktsu_codes::ErrorCode;
use ktsu_ledger::Event;
use ktsu_ledger::event::plan::AgentPlan;
use ktsu_ledger::event::{CommandsDeferred, CommandsDiscarded, ReviewRequested, StepEvent};
use ktsu_projections::life::review::{Review, ReviewDue, ReviewRefusal, ReviewState};
use ktsu_projections::run::AgentTask;
use serde_json::Value;

use super::super::{StepContext, StepDecision, WorkOutcome};
use super::TaskVerdict;
use crate::outcome::{OutcomeExtras, OutcomeRefusal, refused};

impl StepDecision<'_> {
    /// Adds the frames by which people are asked about an outcome whose command for it is the frame
    /// before: the other commands are deferred, then the review is requested.
    pub(super) fn ask_for_review(&mut self, task: &AgentTask, command: u64) -> Option<()> {
        let siblings = task.order.siblings();
        let cause = match siblings.is_empty() {
            true => command,
            false => self.defer(task, command, siblings),
        };
        self.request_review(task, command, cause)
    }

    /// Adds what is due for the review of an outcome, unless it counts.
    pub(super) fn advance_review(&mut self, task: &AgentTask, finished: u64) -> Option<()> {
        let review = task.review.as_deref()?;
        match review.due() {
            ReviewDue::Defer => self.ask_for_review(task, review.command)?,
            ReviewDue::Ask => self.request_review(task, review.command, task.last)?,
            ReviewDue::Discard => {
                let cause = self.discard(task, review)?;
                self.refuse(task, review, finished, cause)?;
            }
            ReviewDue::Refuse => self.refuse(task, review, finished, task.last)?,
            ReviewDue::Wait | ReviewDue::CarryOut => {}
        }
        Some(())
    }

    /// Adds the commands of an approved outcome that run workflows. Gives the frame that the end of
    /// the step follows from, if there are none.
    pub(super) fn carry_out_reviewed(
        &mut self,
        task: &AgentTask,
        finished: u64,
        extras: &OutcomeExtras,
    ) -> Option<u64> {
        let order = &task.order;
        let places: Vec<u32> = order.places(task.commands, order.first()).collect();
        let cause = self.command(None, task, finished, (extras, &places), task.last);
        let runs = order.first() > order.before_review();
        (!runs).then_some(cause)
    }

    fn defer(&mut self, task: &AgentTask, command: u64, indexes: Vec<u32>) -> u64 {
        let event = StepEvent::CommandsDeferred(CommandsDeferred {
            attempt: task.attempt,
            indexes,
            request: command,
            step: self.step.id.clone(),
        });
        self.unit.push(Event::Step(event), vec![command])
    }

    fn request_review(&mut self, task: &AgentTask, command: u64, cause: u64) -> Option<()> {
        let policy = self.state.review_policy(self.key())?.clone();
        let event = StepEvent::ReviewRequested(ReviewRequested {
            attempt: task.attempt,
            command,
            policy,
            step: self.step.id.clone(),
        });
        self.unit.push(Event::Step(event), vec![cause]);
        Some(())
    }

    fn discard(&mut self, task: &AgentTask, review: &Review) -> Option<u64> {
        let ReviewState::Refused(refusal) = &review.state else {
            return None;
        };
        let event = StepEvent::CommandsDiscarded(CommandsDiscarded {
            attempt: task.attempt,
            decision: refusal.seq(),
            indexes: review.siblings.clone(),
            step: self.step.id.clone(),
        });
        Some(self.unit.push(Event::Step(event), vec![refusal.seq()]))
    }

    /// Fails the step: its output is kept with the failure, and no other step sees it.
    fn refuse(
        &mut self,
        task: &AgentTask,
        review: &Review,
        finished: u64,
        cause: u64,
    ) -> Option<()> {
        let ReviewState::Refused(refusal) = &review.state else {
            return None;
        };
        let (code, message) = words(refusal);
        let verdict = TaskVerdict::Fail {
            failed: WorkOutcome::failed(code.as_str(), message),
            raw: Some("/outcome/output"),
        };
        self.conclude(None, task, finished, verdict, cause);
        Some(())
    }
}

/// The error code and the message of a step that fails because its outcome was refused.
fn words(refusal: &ReviewRefusal) -> (ErrorCode, String) {
    match refusal {
        ReviewRefusal::Rejected { by, reason, .. } => {
            let reason = reason.iter().map(|reason| format!(": {reason}"));
            let reason: String = reason.collect();
            (
                ErrorCode::ReviewRejected,
                format!("rejected by {by}{reason}"),
            )
        }
        ReviewRefusal::TimedOut { after_ms, .. } if refusal.rejects() => {
            let words = format!(
                "rejected, as there was no decision within {}",
                time(*after_ms)
            );
            (ErrorCode::ReviewRejected, words)
        }
        ReviewRefusal::TimedOut { after_ms, .. } => {
            let words = format!(
                "there was no decision on the review within {}",
                time(*after_ms)
            );
            (ErrorCode::ReviewTimedOut, words)
        }
    }
}

/// A time in the largest unit that it is a whole number of, as files spell it.
pub(super) fn time(ms: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let whole = UNITS
        .iter()
        .find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit));
    whole.map_or_else(
        || format!("{ms}ms"),
        |(unit, name)| format!("{}{name}", ms / unit),
    )
}

impl StepContext<'_> {
    /// Checks that an outcome may ask for a review: its agent declares it, and it is no item of a
    /// fan-out.
    pub(super) fn judge_review(
        &self,
        plan: &AgentPlan,
        item: Option<u32>,
        outcome: &Value,
    ) -> Result<(), OutcomeRefusal> {
        let refuse = |words: &str| Err(refused(outcome, "command_not_permitted", words.to_owned()));
        let agent = self.definition.agents.get(&plan.file);
        let commands = agent.and_then(|agent| agent.file.commands.as_ref());
        let is_item = self.state.is_fan_out_item(self.key(), item);
        match commands.and_then(|all| all.review.as_ref()) {
            _ if is_item => refuse("an item of a fan-out cannot ask for a review"),
            None => refuse("the agent does not declare that it asks for reviews"),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn a_time_is_said_in_the_largest_unit_that_fits() {
        for (ms, words) in [
            (0, "0ms"),
            (1500, "1500ms"),
            (2000, "2s"),
            (90_000, "90s"),
            (120_000, "2m"),
            (7_200_000, "2h"),
            (604_800_000, "168h"),
        ] {
            assert_eq!(time(ms), words);
        }
    }
}

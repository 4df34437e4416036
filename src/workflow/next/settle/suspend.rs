//! Suspensions: a step that waits for data, and runs again with them (seed 004; decisions P3, W5).

use ktsu_codes::ErrorCode;
use ktsu_ledger::event::plan::{AgentPlan, StepPlan};
use ktsu_ledger::event::{CommandsDiscarded, StepEvent, StepReset, SuspendRequested};
use ktsu_ledger::{CanonicalJson, Event};
use ktsu_projections::life::suspension::{SuspensionDue, SuspensionState};
use ktsu_projections::run::AgentTask;
use serde_json::Value;

use super::super::{StepContext, StepDecision, WorkOutcome};
use super::TaskVerdict;
use super::review::time;
use crate::outcome::{self, OutcomeExtras, OutcomeRefusal, refused};

impl StepDecision<'_> {
    /// Adds the frames by which a step waits for data; its command for it is the frame before. The
    /// other commands are discarded, the events get their notes, then the data are asked for.
    pub(super) fn suspend(
        &mut self,
        task: &AgentTask,
        finished: u64,
        extras: &OutcomeExtras,
        command: u64,
    ) -> Option<()> {
        let siblings = task.order.siblings();
        let cause = match siblings.is_empty() {
            true => command,
            false => self.discard_all(task, command, siblings),
        };
        self.ask_for_data(task, finished, extras, (command, cause))
    }

    /// Adds what is due for the suspension of a step.
    pub(super) fn advance_suspension(
        &mut self,
        task: &AgentTask,
        finished: u64,
        outcome: &CanonicalJson,
    ) -> Option<()> {
        let suspension = task.suspension.as_deref()?;
        let extras = outcome::recorded_extras(&outcome.to_value(), self.rules());
        let command = suspension.command;
        match suspension.due() {
            SuspensionDue::Discard => self.suspend(task, finished, &extras, command)?,
            SuspensionDue::Ask => {
                self.ask_for_data(task, finished, &extras, (command, task.last))?;
            }
            SuspensionDue::Wait => {}
            SuspensionDue::BeginAgain => {
                let event = StepEvent::Reset(StepReset {
                    attempt: self.scope.steps.get(self.position as usize)?.attempt,
                    step: self.step.id.clone(),
                });
                self.unit.push(Event::Step(event), vec![task.last]);
            }
            SuspensionDue::Fail => {
                let SuspensionState::TimedOut { after_ms, .. } = &suspension.state else {
                    return None;
                };
                let words = format!("the data did not come within {}", time(*after_ms));
                let verdict = TaskVerdict::Fail {
                    failed: WorkOutcome::failed(ErrorCode::SuspendTimedOut.as_str(), words),
                    raw: None,
                };
                self.conclude(None, task, finished, verdict, task.last);
            }
        }
        Some(())
    }

    fn discard_all(&mut self, task: &AgentTask, command: u64, indexes: Vec<u32>) -> u64 {
        let event = StepEvent::CommandsDiscarded(CommandsDiscarded {
            attempt: task.attempt,
            decision: command,
            indexes,
            step: self.step.id.clone(),
        });
        self.unit.push(Event::Step(event), vec![command])
    }

    fn ask_for_data(
        &mut self,
        task: &AgentTask,
        finished: u64,
        extras: &OutcomeExtras,
        (command, cause): (u64, u64),
    ) -> Option<()> {
        let policy = self.state.suspend_policy(self.key())?;
        let cause = self.note(None, task, finished, extras, cause);
        let event = StepEvent::SuspendRequested(SuspendRequested {
            attempt: task.attempt,
            command,
            policy,
            step: self.step.id.clone(),
        });
        self.unit.push(Event::Step(event), vec![cause]);
        Some(())
    }
}

impl StepContext<'_> {
    /// Checks that an outcome may suspend its step: its agent declares it, and it is no item of a
    /// fan-out.
    pub(super) fn judge_suspend(
        &self,
        plan: &AgentPlan,
        item: Option<u32>,
        outcome: &Value,
        resume_step: Option<&str>,
    ) -> Result<(), OutcomeRefusal> {
        let refuse = |code: &str, words: &str| Err(refused(outcome, code, words.to_owned()));
        let agent = self.definition.agents.get(&plan.file);
        let commands = agent.and_then(|agent| agent.file.commands.as_ref());
        let is_item = self.state.is_fan_out_item(self.key(), item);
        match commands.and_then(|all| all.suspend.as_ref()) {
            _ if is_item => refuse(
                "command_not_permitted",
                "an item of a fan-out cannot suspend its step",
            ),
            None => refuse(
                "command_not_permitted",
                "the agent does not declare that it suspends its step",
            ),
            Some(_) => {
                let refused = resume_step.and_then(|name| self.resume_step_refusal(name));
                refused.map_or(Ok(()), |(code, words)| refuse(code, &words))
            }
        }
    }

    /// The reason why a suspended step may not be resumed to another.
    fn resume_step_refusal(&self, name: &str) -> Option<(&'static str, String)> {
        let shape = &self.scope.shape;
        let steps = &shape.plan.steps;
        // No definition of a run that was recorded before has such a step.
        if !steps.iter().any(StepPlan::is_on_resume) {
            let words = "another step cannot resume this one: leave resumeStep out, and the step runs again";
            return Some(("command_not_supported", words.to_owned()));
        }
        let other = shape.position(name);
        let plan = other.and_then(|other| shape.step(other));
        let Some((other, plan)) = other.zip(plan.filter(|plan| plan.is_on_resume())) else {
            let words = format!("resumeStep {name:?} is not a step declared on: resume");
            return Some(("command_not_permitted", words));
        };
        if shape.may_resume_to(self.position, other) {
            return None;
        }
        let own = shape.step(self.position)?;
        let more = plan.needs_beyond(own);
        let more: Vec<&str> = more
            .filter_map(|need| Some(shape.step(need)?.id.as_str()))
            .collect();
        let more = more.join(", ");
        let words = format!(
            "resumeStep {name:?} needs {more}, which the step {:?} does not need",
            own.id
        );
        Some(("command_not_permitted", words))
    }
}

//! The check that the data that a step waited for were given as its definition allows: of the form
//! that it declares, in time, once, and in the name of the person who gave them (decision P3).
//!
//! What the data mean for the step is checked by the claim about outputs.

use ktsu_ledger::event::plan::{StepWork, SuspendPolicy};
use ktsu_ledger::event::{
    CommandKind, PersonEvent, RunEvent, StepCommand, StepEvent, SuspendRequested, SuspendResumed,
    TimerKind,
};
use ktsu_ledger::{Actor, Event, Frame};
use ktsu_projections::life::suspension::Suspension;
use ktsu_workflow::airlock::{self, Schema};
use ktsu_workflow::rules::DecisionRules;

use super::ClaimFailure;
use super::agent_timeline::{AgentTimeline, ClaimKind};
use super::history::work;

impl<'a> AgentTimeline<'a> {
    /// Takes a frame as far as it is about suspensions.
    pub(super) fn take_suspension(&mut self, frame: &'a Frame) -> Result<(), ClaimFailure> {
        match &frame.event {
            Event::Step(StepEvent::Commanded(command)) if command.kind == CommandKind::Suspend => {
                self.command_suspension(frame, command);
            }
            Event::Step(StepEvent::SuspendRequested(asked)) => self.ask_for_data(frame, asked)?,
            Event::Person(PersonEvent::SuspendResumed(given)) => self.give_data(frame, given),
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::Suspend => {
                self.end_suspension(frame, fired.step.as_deref().unwrap_or_default());
            }
            _ => {}
        }
        Ok(())
    }

    fn command_suspension(&mut self, frame: &'a Frame, command: &'a StepCommand) {
        if !command.suppressed && command.item.is_none() {
            let at = (frame.scope.as_str(), command.step.as_str());
            let suspension = Suspension::new(frame.seq, command.index, Vec::new());
            self.suspensions.insert(at, suspension);
        }
    }

    /// The policy by which people may give a step its data, as its definition has it.
    fn suspend_policy(
        &mut self,
        frame: &Frame,
        step: &str,
    ) -> Result<Option<SuspendPolicy>, ClaimFailure> {
        let plan = self.plan(frame)?;
        let Some(StepWork::Agent(agent)) = work(&plan, &frame.scope, self.acting(frame, step))
        else {
            return Ok(None);
        };
        let file = plan.agents.get(&agent.file);
        let declared = file.and_then(|file| file.commands.as_ref()?.suspend.as_ref());
        Ok(declared.map(|declared| declared.narrowed(agent.resume.as_ref())))
    }

    fn ask_for_data(
        &mut self,
        frame: &'a Frame,
        asked: &'a SuspendRequested,
    ) -> Result<(), ClaimFailure> {
        let policy = self.suspend_policy(frame, &asked.step)?;
        let other = policy.as_ref() != Some(&asked.policy);
        let words = "its definition says otherwise who gives the data, or which";
        self.fail_if(ClaimKind::Approvals, frame, other, words);
        let suspension = self.suspensions.get_mut(&(&*frame.scope, &*asked.step));
        let right = suspension.is_some_and(|suspension| {
            let right = suspension.may_ask(asked, Some(&asked.policy));
            suspension.ask(frame.seq, frame.at, asked);
            right
        });
        let words = "no command asks for data now";
        self.fail_if(ClaimKind::Approvals, frame, !right, words);
        Ok(())
    }

    fn give_data(&mut self, frame: &'a Frame, given: &'a SuspendResumed) {
        let by = given.by.id.as_str();
        self.decided.insert(frame.id());
        if given.by.auth == "none" {
            self.unauthenticated.get_or_insert_with(|| frame.id());
        }
        let other = frame.actor != Actor::Principal(by.to_owned());
        let words = "whoever gave the data is not the one who appended them";
        self.fail_if(ClaimKind::Approvals, frame, other, words);
        let now = self.time(frame);
        let suspension = self.suspensions.get_mut(&(&*frame.scope, &*given.step));
        let open = suspension.filter(|one| one.may_resume(given));
        let Some((suspension, pending)) =
            open.and_then(|one| one.pending().cloned().map(|pending| (one, pending)))
        else {
            let words = "its step does not wait for data";
            self.fail_if(ClaimKind::Approvals, frame, true, words);
            return;
        };
        suspension.resume(frame.seq, given);
        let late = pending.deadline() <= now;
        let words = "it came when the time to give data was over";
        self.fail_if(ClaimKind::Approvals, frame, late, words);
        let words = "the data are not what its step allows";
        self.fail_if(
            ClaimKind::Approvals,
            frame,
            !allows(&pending.policy, given),
            words,
        );
    }

    fn end_suspension(&mut self, frame: &'a Frame, step: &'a str) {
        let now = self.time(frame);
        let suspension = self.suspensions.get_mut(&(&*frame.scope, step));
        let over = suspension.is_some_and(|suspension| {
            let pending = suspension.pending();
            let over = pending.is_some_and(|pending| pending.deadline() <= now);
            suspension.time_out(frame.seq);
            over
        });
        self.fail_if(ClaimKind::Approvals, frame, !over, "no wait was over");
    }
}

/// Returns `true` if a policy allows these data. Steps wait for data only under rules that bound
/// the check.
fn allows(policy: &SuspendPolicy, given: &SuspendResumed) -> bool {
    let Some(schema) = &policy.schema else {
        return true;
    };
    Schema::compile_output(schema).is_ok_and(|schema| {
        airlock::check(&schema, &given.data.to_value(), DecisionRules::NEWEST).is_empty()
    })
}

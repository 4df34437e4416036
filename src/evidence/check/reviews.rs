//! The check that people who may decide on an outcome did: under the policy of its definition, in
//! time, each once, and in their own name (decision P3).
//!
//! What a decision means for the commands and the step is checked by the claim about outputs.

use ktsu_ledger::event::plan::{ReviewPolicy, StepWork};
use ktsu_ledger::event::{
    CommandKind, PersonEvent, ReviewDecided, ReviewDecision, ReviewRequested, RunEvent,
    StepCommand, StepEvent, TimerKind,
};
use ktsu_ledger::{Actor, Event, Frame};
use ktsu_projections::life::reserved::is_reserved;
use ktsu_projections::life::review::Review;

use super::ClaimFailure;
use super::agent_timeline::{AgentTimeline, ClaimKind};
use super::history::work;

impl<'a> AgentTimeline<'a> {
    /// Takes a frame as far as it is about reviews.
    pub(super) fn take_review(&mut self, frame: &'a Frame) -> Result<(), ClaimFailure> {
        match &frame.event {
            Event::Step(StepEvent::Commanded(command)) if command.kind == CommandKind::Review => {
                self.command_review(frame, command);
            }
            Event::Step(StepEvent::ReviewRequested(asked)) => self.ask_for_review(frame, asked)?,
            Event::Person(PersonEvent::ReviewDecided(decided)) => {
                self.decide_review(frame, decided);
            }
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::Review => {
                self.end_review(frame, fired.step.as_deref().unwrap_or_default());
            }
            _ => {}
        }
        Ok(())
    }

    fn command_review(&mut self, frame: &'a Frame, command: &'a StepCommand) {
        if !command.suppressed && command.item.is_none() {
            let review = Review::new(frame.seq, Vec::new());
            let at = (frame.scope.as_str(), command.step.as_str());
            self.reviews.insert(at, review);
        }
    }

    fn ask_for_review(
        &mut self,
        frame: &'a Frame,
        asked: &'a ReviewRequested,
    ) -> Result<(), ClaimFailure> {
        let plan = self.plan(frame)?;
        let agent = match work(&plan, &frame.scope, self.acting(frame, &asked.step)) {
            Some(StepWork::Agent(agent)) => plan.agents.get(&agent.file),
            _ => None,
        };
        let commands = agent.and_then(|agent| agent.commands.as_ref());
        let policy: Option<&ReviewPolicy> = commands.and_then(|all| all.review.as_ref());
        let other = policy != Some(&asked.policy);
        let words = "its definition says otherwise who decides on the outcome";
        self.fail_if(ClaimKind::Approvals, frame, other, words);
        let review = self.reviews.get_mut(&(&*frame.scope, &*asked.step));
        let right = review.is_some_and(|review| {
            let right = review.may_ask(asked, Some(&asked.policy));
            review.ask(frame.seq, frame.at, asked);
            right
        });
        let words = "no command asks for it now";
        self.fail_if(ClaimKind::Approvals, frame, !right, words);
        Ok(())
    }

    fn decide_review(&mut self, frame: &'a Frame, decided: &'a ReviewDecided) {
        let by = decided.by.id.as_str();
        self.decided.insert(frame.id());
        if decided.by.auth == "none" {
            self.unauthenticated.get_or_insert_with(|| frame.id());
        }
        let other = frame.actor != Actor::Principal(by.to_owned());
        let words = "the person who decided is not the one who appended it";
        self.fail_if(ClaimKind::Approvals, frame, other, words);
        let (proposer, now) = (self.proposer, self.time(frame));
        let review = self.reviews.get_mut(&(&*frame.scope, &*decided.step));
        let pending = review.as_deref().and_then(Review::pending);
        let Some(pending) = pending.filter(|one| one.request == decided.request) else {
            let words = "it answers no review that is open";
            self.fail_if(ClaimKind::Approvals, frame, true, words);
            return;
        };
        let approves = decided.decision == ReviewDecision::Approved;
        let late = pending.deadline() <= now;
        let own = pending.policy.not_by_proposer && by == proposer;
        let twice = pending.approved_by.iter().any(|one| one == by);
        let other = approves && pending.conflict(&decided.overlay).is_some();
        if let Some(review) = review {
            review.decide(frame.seq, decided);
        }
        // A large overlay is in a blob, which has been put back.
        let replaces = !decided.overlay.is_empty();
        let reserved = decided.overlay.keys().any(|field| is_reserved(field));
        for (wrong, words) in [
            (late, "it came when the time to decide was over"),
            (
                approves && own,
                "the person who started the run may not approve the outcome",
            ),
            (approves && twice, "one person counts once"),
            (other, "another person replaced the field otherwise"),
            (!approves && replaces, "a rejection replaces nothing"),
            (reserved, "it replaces a reserved field"),
        ] {
            self.fail_if(ClaimKind::Approvals, frame, wrong, words);
        }
    }

    fn end_review(&mut self, frame: &'a Frame, step: &'a str) {
        let now = self.time(frame);
        let review = self.reviews.get_mut(&(&*frame.scope, step));
        let over = review.is_some_and(|review| {
            let pending = review.pending();
            let over = pending.is_some_and(|pending| pending.deadline() <= now);
            review.time_out(frame.seq);
            over
        });
        self.fail_if(ClaimKind::Approvals, frame, !over, "no wait was over");
    }
}

//! The records of what steps ask people, as far as reviews and suspensions are alike: what a question
//! rests on, how long it waits, and when it ends.

use std::collections::HashMap;

use ktsu_ledger::event::{AgentEvent, RunEvent, StepEvent, TimerKind};
use ktsu_ledger::{CanonicalJson, Event, Frame, Timestamp};

use crate::approvals::ApprovalStatus;
use crate::step_name::scoped_run;

/// A record of something that a step asks people.
pub(crate) trait AskedRecord {
    /// The timer that ends its wait.
    const TIMER: TimerKind;

    /// The run with the path of an inline child behind it, and the step.
    fn place(&self) -> (&str, &str);
    /// How far it is.
    fn status(&self) -> ApprovalStatus;
    /// Since when its run is paused.
    fn paused_at(&mut self) -> &mut Option<Timestamp>;
    /// Until when an answer is waited for.
    fn expires_at(&mut self) -> &mut Timestamp;
    /// It ends.
    fn end(&mut self, status: ApprovalStatus, at: Timestamp);

    /// It ends, if it is pending.
    fn close(&mut self, status: ApprovalStatus, at: Timestamp) {
        if self.status() == ApprovalStatus::Pending {
            *self.paused_at() = None;
            self.end(status, at);
        }
    }
}

/// The records of a run, and what the next one rests on.
#[derive(Debug)]
pub(crate) struct AskedRecords<R> {
    /// In the order they were asked.
    pub(crate) records: Vec<R>,
    /// Who started the run.
    pub(crate) proposer: String,
    /// The last outcome of each step, by scope and id.
    outcomes: HashMap<(String, String), CanonicalJson>,
    /// The commands that ask, by the frame that records them: their place in the outcome.
    commands: HashMap<u64, u32>,
}

impl<R> Default for AskedRecords<R> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            proposer: String::new(),
            outcomes: HashMap::new(),
            commands: HashMap::new(),
        }
    }
}

impl<R: AskedRecord> AskedRecords<R> {
    /// The last outcome of the step of a frame's scope.
    pub(crate) fn outcome(&self, frame: &Frame, step: &str) -> Option<&CanonicalJson> {
        self.outcomes.get(&(frame.scope.clone(), step.to_owned()))
    }

    /// The place of a command in its outcome, by the frame that records it.
    pub(crate) fn index(&self, command: u64) -> Option<u32> {
        self.commands.get(&command).copied()
    }

    /// Takes a frame, but for those that ask and answer.
    pub(crate) fn apply(&mut self, frame: &Frame) {
        if let Some(created) = frame.event.created() {
            self.proposer.clone_from(&created.principal.id);
        }
        match &frame.event {
            Event::Agent(AgentEvent::Finished(end)) if end.item.is_none() => {
                let key = (frame.scope.clone(), end.step.clone());
                self.outcomes.insert(key, end.outcome.clone());
            }
            Event::Step(StepEvent::Commanded(command)) => {
                self.commands.insert(frame.seq, command.index);
            }
            Event::Step(
                StepEvent::Completed(_)
                | StepEvent::Failed(_)
                | StepEvent::Skipped(_)
                | StepEvent::Reset(_),
            ) => {
                let step = frame.event.task().map(|(step, _)| step.to_owned());
                self.close(frame, step.as_deref(), ApprovalStatus::Void);
            }
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer == R::TIMER => {
                self.close(frame, fired.step.as_deref(), ApprovalStatus::Timeout);
            }
            Event::Run(RunEvent::Branched(branch)) => {
                self.proposer.clone_from(&branch.by.id);
                self.close(frame, None, ApprovalStatus::Void);
            }
            Event::Run(RunEvent::ClockJumped(jumped)) => self.postpone(jumped.forward_ms),
            Event::Run(RunEvent::Paused(_)) => self.pause(Some(frame.at)),
            Event::Run(RunEvent::Resumed(resumed)) => {
                self.pause(None);
                self.postpone(resumed.paused_ms);
            }
            Event::Run(_)
            | Event::Recompute(_)
            | Event::Step(_)
            | Event::Item(_)
            | Event::Agent(_)
            | Event::Worker(_)
            | Event::Webhook(_)
            | Event::Person(_)
            | Event::World(_)
            | Event::Kv(_)
            | Event::Delivery(_)
            | Event::Eval(_)
            | Event::Store(_)
            | Event::Foreign { .. } => {}
        }
    }

    /// Ends what is pending: of a step of the frame's scope, or all.
    fn close(&mut self, frame: &Frame, step: Option<&str>, status: ApprovalStatus) {
        let run = scoped_run(frame.stream.name(), &frame.scope);
        for record in &mut self.records {
            let (own_run, own_step) = record.place();
            let is_of = |step: &str| own_step == step && same_scope(own_run, &run);
            if step.is_none_or(is_of) {
                record.close(status, frame.at);
            }
        }
    }

    fn pending(&mut self) -> impl Iterator<Item = &mut R> {
        let records = self.records.iter_mut();
        records.filter(|record| record.status() == ApprovalStatus::Pending)
    }

    /// Notes since when the run is paused, if it is.
    fn pause(&mut self, at: Option<Timestamp>) {
        self.pending().for_each(|record| *record.paused_at() = at);
    }

    fn postpone(&mut self, by_ms: Option<u64>) {
        for record in self.pending() {
            let until = record.expires_at();
            *until = until.plus_millis(by_ms.unwrap_or_default());
        }
    }
}

/// Whether two places are the same within a run, whichever of its branches they name.
fn same_scope(one: &str, other: &str) -> bool {
    let scope = |run: &str| run.split_once('/').map(|(_, scope)| scope.to_owned());
    scope(one) == scope(other)
}

//! The changes that a frame makes, in the words of the domain.
//!
//! ```text
//! frame ──▶ RunState::check     whether it may follow
//!       └─▶ changes(frame)      what it changes ──▶ records, times, prompts, counts
//! ```
//!
//! Whether a frame may follow depends on the state; what it changes does not. So a consumer that
//! decides nothing needs no state, can read ledgers that may be damaged, and costs recovery nothing
//! (ADR 0023). This file names the events of lives for them.

use std::collections::BTreeMap;

use ktsu_ledger::event::{
    AgentEvent, AgentFinished, ApprovalRequested, BranchCreated, Decision, DoubtReason, ItemEvent,
    PersonEvent, Principal, RecomputeEvent, ReviewDecision, ReviewRequested, RunCreated, RunEvent,
    StepCommand, StepEvent, SuspendRequested, TimerKind, ToolInDoubt, WorkerEvent,
};
use ktsu_ledger::{CanonicalJson, Event, Frame};

use crate::lineage::item_name;
use crate::run::steer::StopKind;
use crate::run::{RunStatus, StepStatus};

/// A change; the scope, the number and the moment are those of its frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change<'f> {
    /// A run or a recompute begins.
    Created(&'f RunCreated),
    /// A branch begins: what was in progress has not happened in it (decision F1).
    Forked(&'f BranchCreated),
    /// A scope is at a status of its own accord: the run itself, or an inline child.
    ScopeMoved(RunStatus),
    /// A person stops the run.
    Stopped(StopKind, &'f Principal),
    /// A person pauses the run.
    Paused(&'f Principal),
    /// A person resumes the run.
    Resumed(&'f Principal),
    /// Every pending deadline is later by so many milliseconds.
    DeadlinesMoved(u64, DeadlineShift),
    /// A step is at a status; `Pending` where it begins again.
    StepMoved(&'f str, StepStatus),
    /// An item of a fan-out is at a status.
    ItemMoved(Task<'f>, StepStatus),
    /// A runtime has a task, in this attempt.
    Dispatched(Task<'f>, u32),
    /// The agent of a task has ended.
    Finished(Task<'f>, &'f AgentFinished),
    /// An outcome's command is recorded.
    Commanded(&'f StepCommand),
    /// People are asked; the frame is the request.
    Asked(Task<'f>, PersonQuestion<'f>),
    /// One of them answers a request.
    Answered(Task<'f>, PersonAnswer<'f>),
    /// Their time is over: that of a request about a call, or of what a step asks.
    Expired(Task<'f>, Expiry),
}

/// The reason why deadlines move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineShift {
    /// The clock went forward: that time did not pass.
    Clock,
    /// The run was paused.
    Pause,
}

/// A step, or an item of a fan-out, by its name in the scope of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task<'f> {
    /// The step, or the address of what a responder asks.
    pub step: &'f str,
    /// The item.
    pub item: Option<u32>,
}

/// A question that people are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersonQuestion<'f> {
    /// Permission to make a call.
    Call(&'f ApprovalRequested),
    /// The fate of a call that may have been made.
    Doubt(&'f ToolInDoubt),
    /// The approval of an outcome, without which it does not count.
    Outcome(&'f ReviewRequested),
    /// The data that a step waits for.
    Data(&'f SuspendRequested),
}

/// The kind of a [`PersonQuestion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuestionKind {
    /// Permission to make a call.
    Approval,
    /// The fate of a call that may have been made.
    InDoubt,
    /// The approval of an outcome, without which it does not count.
    Review,
    /// The data that a step waits for.
    Suspension,
}

/// A person's answer to a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PersonAnswer<'f> {
    /// The frame that asks.
    pub request: u64,
    /// The person who answered.
    pub by: &'f Principal,
    /// The reason, in their words, where one was given.
    pub reason: Option<&'f String>,
    /// The content of the answer.
    pub given: Given<'f>,
}

/// The content of a [`PersonAnswer`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Given<'f> {
    /// A decision about a call; of one that happened, what it gave.
    Decision(Decision, Option<&'f String>),
    /// A decision about an outcome, and the fields of its output that the person replaced.
    Review(ReviewDecision, &'f BTreeMap<String, CanonicalJson>),
    /// Data.
    Data(&'f CanonicalJson),
}

/// Whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// A request about a call.
    Request(u64),
    /// The question of a step about its outcome, or its request for data.
    Question(QuestionKind),
}

impl PersonQuestion<'_> {
    /// Its kind.
    pub fn kind(&self) -> QuestionKind {
        match self {
            Self::Call(_) => QuestionKind::Approval,
            Self::Doubt(_) => QuestionKind::InDoubt,
            Self::Outcome(_) => QuestionKind::Review,
            Self::Data(_) => QuestionKind::Suspension,
        }
    }
}

impl<'f> Change<'f> {
    /// In whose name everything happens from here on, where that changes.
    pub fn proposer(&self) -> Option<&'f Principal> {
        if let Self::Created(created) = self {
            return Some(&created.principal);
        }
        if let Self::Forked(branch) = self {
            return Some(&branch.by);
        }
        None
    }

    /// Returns `true` if it is about the whole run and whatever is pending in it.
    pub fn is_about_run(&self) -> bool {
        matches!(
            self,
            Self::Forked(_) | Self::Paused(_) | Self::Resumed(_) | Self::DeadlinesMoved(..)
        )
    }

    /// Returns `true` if people are asked or answer with it, or the time that they had is over.
    pub fn is_for_people(&self) -> bool {
        matches!(
            self,
            Self::Asked(..) | Self::Answered(..) | Self::Expired(..)
        )
    }

    /// Returns `true` if a wait for people may end with it.
    pub fn ends_wait(&self) -> bool {
        matches!(
            self,
            Self::Answered(..) | Self::Expired(..) | Self::Paused(_) | Self::Stopped(..)
        )
    }
}

/// The changes that a frame makes, in order; none where only its content counts.
pub fn changes(frame: &Frame) -> impl Iterator<Item = Change<'_>> {
    let mut moved = None;
    if let Event::Run(RunEvent::Resumed(resumed)) = &frame.event {
        let paused_ms = resumed.paused_ms;
        moved = paused_ms.map(|ms| Change::DeadlinesMoved(ms, DeadlineShift::Pause));
    }
    change(&frame.event).into_iter().chain(moved)
}

/// The status at which a frame ends its run, if it does of its own accord.
pub fn run_end(frame: &Frame) -> Option<RunStatus> {
    let mut own = changes(frame).filter(|_| frame.scope.is_empty());
    own.find_map(|change| {
        let Change::ScopeMoved(status) = change else {
            return None;
        };
        status.is_terminal().then_some(status)
    })
}

fn change(event: &Event) -> Option<Change<'_>> {
    match event {
        Event::Run(event) => of_run(event),
        Event::Recompute(RecomputeEvent::Created(created)) => Some(Change::Created(created)),
        Event::Step(event) => of_step(event),
        Event::Item(event) => {
            let status = match event {
                ItemEvent::Started(_) => StepStatus::Running,
                ItemEvent::Completed(_) => StepStatus::Complete,
                ItemEvent::Failed(_) => StepStatus::Failed,
            };
            let item = Some(event.item());
            let step = event.step();
            Some(Change::ItemMoved(Task { step, item }, status))
        }
        Event::Agent(event) => of_agent(event),
        Event::Worker(WorkerEvent::Dispatched(sent)) => {
            let task = Task::of(&sent.step, sent.item);
            Some(Change::Dispatched(task, sent.attempt))
        }
        Event::Person(event) => of_person(event),
        Event::Recompute(RecomputeEvent::Compared(_))
        | Event::Worker(WorkerEvent::Lost(_))
        | Event::Webhook(_)
        | Event::World(_)
        | Event::Kv(_)
        | Event::Delivery(_)
        | Event::Eval(_)
        | Event::Store(_)
        | Event::Foreign { .. } => None,
    }
}

fn of_run(event: &RunEvent) -> Option<Change<'_>> {
    Some(match event {
        RunEvent::Created(created) => Change::Created(created),
        RunEvent::Branched(branch) => Change::Forked(branch),
        RunEvent::Started(_) => Change::ScopeMoved(RunStatus::Running),
        RunEvent::Completed(_) => Change::ScopeMoved(RunStatus::Complete),
        RunEvent::Failed(_) => Change::ScopeMoved(RunStatus::Failed),
        RunEvent::Paused(word) => Change::Paused(&word.by),
        RunEvent::Resumed(resumed) => Change::Resumed(&resumed.by),
        RunEvent::Cancelled(word) => Change::Stopped(StopKind::Cancel, &word.by),
        RunEvent::Terminated(word) => Change::Stopped(StopKind::Terminate, &word.by),
        RunEvent::ClockJumped(jumped) => {
            Change::DeadlinesMoved(jumped.forward_ms?, DeadlineShift::Clock)
        }
        RunEvent::TimerFired(fired) => {
            let kind = match fired.timer {
                TimerKind::Review => QuestionKind::Review,
                TimerKind::Suspend => QuestionKind::Suspension,
                TimerKind::After
                | TimerKind::Retry
                | TimerKind::RunTimeout
                | TimerKind::WorldBudget => return None,
            };
            let task = Task::of(fired.step.as_deref()?, None);
            Change::Expired(task, Expiry::Question(kind))
        }
        RunEvent::Continued(_) => return None,
    })
}

fn of_step(event: &StepEvent) -> Option<Change<'_>> {
    let step = event.step();
    let whole = Task::of(step, None);
    Some(match event {
        StepEvent::Started(_) => Change::StepMoved(step, StepStatus::Running),
        StepEvent::Completed(_) => Change::StepMoved(step, StepStatus::Complete),
        StepEvent::Failed(_) => Change::StepMoved(step, StepStatus::Failed),
        StepEvent::Skipped(_) => Change::StepMoved(step, StepStatus::Skipped),
        StepEvent::Reset(_) => Change::StepMoved(step, StepStatus::Pending),
        StepEvent::Commanded(command) => Change::Commanded(command),
        StepEvent::ReviewRequested(asked) => Change::Asked(whole, PersonQuestion::Outcome(asked)),
        StepEvent::SuspendRequested(asked) => Change::Asked(whole, PersonQuestion::Data(asked)),
        StepEvent::ReservedEvaluated(_)
        | StepEvent::OutputChecked(_)
        | StepEvent::Noted(_)
        | StepEvent::CommandCompleted(_)
        | StepEvent::CommandsDeferred(_)
        | StepEvent::CommandsDiscarded(_) => return None,
    })
}

fn of_agent(event: &AgentEvent) -> Option<Change<'_>> {
    let task = Task::of(event.step(), event.item());
    Some(match event {
        AgentEvent::ApprovalRequested(asked) => Change::Asked(task, PersonQuestion::Call(asked)),
        AgentEvent::ToolInDoubt(doubt) if doubt.reason == DoubtReason::TaskEnded => return None,
        AgentEvent::ToolInDoubt(doubt) => Change::Asked(task, PersonQuestion::Doubt(doubt)),
        AgentEvent::ApprovalDecided(decided) => {
            let answer = PersonAnswer {
                request: decided.request,
                by: &decided.by,
                reason: decided.reason.as_ref(),
                given: Given::Decision(decided.decision, decided.result.as_ref()),
            };
            Change::Answered(task, answer)
        }
        AgentEvent::ApprovalExpired(expired) => {
            Change::Expired(task, Expiry::Request(expired.request))
        }
        AgentEvent::Finished(finished) => Change::Finished(task, finished),
        AgentEvent::Request(_)
        | AgentEvent::Response(_)
        | AgentEvent::Decided(_)
        | AgentEvent::ReflectStarted(_)
        | AgentEvent::BudgetExhausted(_)
        | AgentEvent::ToolCalled(_)
        | AgentEvent::ToolReturned(_) => return None,
    })
}

fn of_person(event: &PersonEvent) -> Option<Change<'_>> {
    let task = Task::of(event.step(), None);
    let answer = match event {
        PersonEvent::OverlaySet(_) => return None,
        PersonEvent::ReviewDecided(decided) => PersonAnswer {
            request: decided.request,
            by: &decided.by,
            reason: decided.reason.as_ref(),
            given: Given::Review(decided.decision, &decided.overlay),
        },
        PersonEvent::SuspendResumed(resumed) => PersonAnswer {
            request: resumed.request,
            by: &resumed.by,
            reason: resumed.reason.as_ref(),
            given: Given::Data(&resumed.data),
        },
    };
    Some(Change::Answered(task, answer))
}

impl<'f> Task<'f> {
    fn of(step: &'f str, item: Option<u32>) -> Self {
        Self { step, item }
    }

    /// `STEP`, or `STEP.INDEX` (decision H1).
    pub fn name(self) -> String {
        item_name(self.step, self.item)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ktsu_ledger::event::{RunCommand, RunCompleted, RunResumed, StepReset};
    use ktsu_ledger::frame::Link;
    use ktsu_ledger::{Actor, Draft, Hash, Timestamp};

    use super::*;

    fn frame(scope: &str, event: Event) -> Frame {
        let link = Link {
            stream: "run:r".parse().unwrap(),
            seq: 7,
            prev: Hash::ZERO,
        };
        let draft = Draft {
            scope: scope.to_owned(),
            actor: Actor::Orchestrator,
            cause: Vec::new(),
            event,
        };
        draft.seal(link, Timestamp::from_micros(0)).unwrap().frame
    }

    fn by() -> Principal {
        Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        }
    }

    #[test]
    fn a_resumption_moves_deadlines_by_the_length_of_the_pause() {
        let resumed = |paused_ms| RunResumed {
            by: by(),
            from: None,
            paused_ms,
            reason: None,
        };
        let after = frame("", Event::Run(RunEvent::Resumed(resumed(Some(5)))));
        let moved = Change::DeadlinesMoved(5, DeadlineShift::Pause);
        let all: Vec<_> = changes(&after).collect();
        assert_eq!(all, [Change::Resumed(&by()), moved]);
        let parked = frame("", Event::Run(RunEvent::Resumed(resumed(None))));
        assert_eq!(changes(&parked).count(), 1);
    }

    #[test]
    fn only_the_run_itself_ends_the_run() {
        let completed = || Event::Run(RunEvent::Completed(RunCompleted::default()));
        assert_eq!(run_end(&frame("", completed())), Some(RunStatus::Complete));
        assert_eq!(run_end(&frame("child", completed())), None);
        let word = RunCommand {
            by: by(),
            reason: None,
        };
        let stopped = frame("", Event::Run(RunEvent::Cancelled(word)));
        assert_eq!(run_end(&stopped), None, "its steps end first");
        assert!(changes(&stopped).all(|change| change.ends_wait()));
    }

    #[test]
    fn a_step_that_is_reset_is_pending() {
        let reset = StepReset {
            attempt: 1,
            step: "a".to_owned(),
        };
        let reset = frame("", Event::Step(StepEvent::Reset(reset)));
        let all: Vec<_> = changes(&reset).collect();
        assert_eq!(all, [Change::StepMoved("a", StepStatus::Pending)]);
    }
}

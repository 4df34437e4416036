//! Pausing and ending whole runs (decision P1).
//!
//! While a run is paused, nothing starts. Effects in progress may end, and their results are
//! recorded; what follows from them waits. The time of the run stops at `run.paused`.

use ktsu_ledger::event::{
    AgentEvent, ItemEvent, RunCommand, RunEvent, StepEvent, WebhookEvent, WorkerEvent, WorldEvent,
};
use ktsu_ledger::{Event, Frame, Timestamp};

use super::{RunFailure, RunState, RunStatus};

/// A person's word about a run that holds now: that it is paused, or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeringRecord {
    /// The frame.
    pub seq: u64,
    /// Time of the frame.
    pub at: Timestamp,
    /// The person, and the reason.
    pub word: RunCommand,
}

impl SteeringRecord {
    fn of(frame: &Frame, word: &RunCommand) -> Self {
        Self {
            seq: frame.seq,
            at: frame.at,
            word: word.clone(),
        }
    }
}

/// The kind of a run's end by a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopKind {
    /// `run.cancelled`: whoever works for it is told.
    Cancel,
    /// `run.terminated`: nobody is told.
    Terminate,
}

impl StopKind {
    /// The code of the run's end.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Terminate => "terminated",
        }
    }

    /// The end in words, with who said it and why.
    pub fn words(self, word: &RunCommand) -> String {
        let (code, by) = (self.code(), &word.by.id);
        match &word.reason {
            Some(reason) => format!("{code} by {by}: {reason}"),
            None => format!("{code} by {by}"),
        }
    }
}

impl RunState {
    /// The word that paused the run, if it is paused.
    pub fn paused(&self) -> Option<&SteeringRecord> {
        self.paused.as_deref()
    }

    /// The kind of the end by which a person ended the run, or is ending it.
    pub fn stopped(&self) -> Option<StopKind> {
        self.stopped.as_deref().map(|(how, _)| *how)
    }

    /// The word by which a person ended the run, or is ending it.
    pub fn stopped_by(&self) -> Option<&SteeringRecord> {
        self.stopped.as_deref().map(|(_, spoken)| spoken)
    }

    /// Returns `true` if a person may pause the run: it has not ended and is not being ended, and
    /// is neither parked nor paused.
    pub fn may_pause(&self) -> bool {
        self.may_stop() && !self.is_parked() && self.paused.is_none()
    }

    /// Returns `true` if a person may end the run: it has not ended, and is not being ended.
    pub fn may_stop(&self) -> bool {
        !self.status().is_terminal() && self.stopped.is_none()
    }

    pub(super) fn pause(&mut self, frame: &Frame, word: &RunCommand) {
        self.paused = Some(Box::new(SteeringRecord::of(frame, word)));
    }

    pub(super) fn stop(&mut self, frame: &Frame, how: StopKind, word: &RunCommand) {
        self.stopped = Some(Box::new((how, SteeringRecord::of(frame, word))));
        (self.paused, self.parked) = (None, false);
        self.fail(RunFailure {
            seq: frame.seq,
            scope: 0,
            step: None,
            code: how.code().to_owned(),
            message: how.words(word),
            within: None,
        });
    }

    /// A run that a person ends has ended once all of its steps have, and what its responders asked or
    /// ran.
    pub(super) fn end_if_stopped(&mut self, frame: &Frame) {
        let root = self.scopes.first().filter(|root| root.ended.is_none());
        let settled = root.is_some_and(|root| root.unsettled == 0);
        if self.stopped.is_some() && settled && !self.has_open_responder_tasks() {
            self.todo.clear();
            self.end_scope(frame, 0, RunStatus::Cancelled, None);
        }
    }

    /// The time of a run at some moment: while it is paused, that of the pause.
    pub fn effective_time(&self, at: Timestamp) -> Timestamp {
        self.paused().map_or(at, |pause| pause.at)
    }
}

/// Returns `true` if something begins with a frame that a paused run does not begin.
pub fn starts_work(event: &Event) -> bool {
    if let Event::Agent(event) = event {
        return is_agent_request(event);
    }
    matches!(
        event,
        Event::Run(RunEvent::Started(_) | RunEvent::TimerFired(_))
            | Event::Step(StepEvent::Started(_))
            | Event::Item(ItemEvent::Started(_))
            | Event::Worker(WorkerEvent::Dispatched(_))
            | Event::Webhook(WebhookEvent::Sent(_))
            | Event::World(WorldEvent::Fired(_))
    )
}

/// Returns `true` if an agent wants something of the world: a model, a tool, a person.
pub fn is_agent_request(event: &AgentEvent) -> bool {
    matches!(
        event,
        AgentEvent::Request(_) | AgentEvent::ToolCalled(_) | AgentEvent::ApprovalRequested(_)
    )
}

//! What a frame means for pending calls: where one becomes pending, and where some may no longer
//! be.

use ktsu_ledger::event::{AgentEvent, DoubtReason, PersonEvent, RunEvent, StepEvent};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::approvals::approval_id;
use ktsu_projections::lineage::item_name;
use ktsu_projections::person_requests::PersonRequest;
use ktsu_projections::reviews::review_id;
use ktsu_projections::suspensions::suspend_id;

/// See the module documentation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApprovalEvent {
    /// A call begins to wait.
    Requested {
        /// Its record.
        id: String,
        /// Where.
        place: TaskRef,
    },
    /// What waited there may wait no more.
    Moved(Settled),
}

/// A task of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TaskRef {
    /// The path of an inline child; empty for the run itself.
    pub(super) scope: String,
    step: String,
    item: Option<u32>,
}

/// What may wait no more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// This call, by the frame that asks.
    Call(u64),
    /// Every call of a task, or of all tasks of a step.
    Task(TaskRef),
}

impl ApprovalEvent {
    /// What a frame says, if it says something about calls that wait.
    pub(super) fn from_frame(frame: &Frame) -> Option<Self> {
        let settled = match &frame.event {
            Event::Agent(AgentEvent::ToolInDoubt(doubt))
                if doubt.reason == DoubtReason::TaskEnded =>
            {
                return None;
            }
            Event::Agent(AgentEvent::ApprovalRequested(_) | AgentEvent::ToolInDoubt(_)) => {
                let id = approval_id(&frame.stream, frame.seq);
                let place = TaskRef::of_frame(frame)?;
                return Some(Self::Requested { id, place });
            }
            Event::Step(StepEvent::ReviewRequested(_)) => {
                let id = review_id(&frame.stream, frame.seq);
                let place = TaskRef::of_frame(frame)?;
                return Some(Self::Requested { id, place });
            }
            Event::Step(StepEvent::SuspendRequested(_)) => {
                let id = suspend_id(&frame.stream, frame.seq);
                let place = TaskRef::of_frame(frame)?;
                return Some(Self::Requested { id, place });
            }
            Event::Person(PersonEvent::ReviewDecided(decided)) => Settled::Call(decided.request),
            Event::Person(PersonEvent::SuspendResumed(resumed)) => Settled::Call(resumed.request),
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer.is_for_people() => {
                Settled::Task(TaskRef::of_frame(frame)?)
            }
            Event::Agent(AgentEvent::ApprovalDecided(decided)) => Settled::Call(decided.request),
            Event::Agent(AgentEvent::ApprovalExpired(expired)) => Settled::Call(expired.request),
            Event::Agent(AgentEvent::Finished(_))
            | Event::Step(StepEvent::Reset(_) | StepEvent::Failed(_)) => {
                Settled::Task(TaskRef::of_frame(frame)?)
            }
            _ => return None,
        };
        Some(Self::Moved(settled))
    }
}

impl TaskRef {
    fn of_frame(frame: &Frame) -> Option<Self> {
        let (step, item) = frame.event.task()?;
        Some(Self {
            scope: frame.scope.clone(),
            step: step.to_owned(),
            item,
        })
    }

    /// Where a record belongs.
    pub(super) fn of(record: &PersonRequest) -> Self {
        let (step, item) = match record.step_id().split_once('.') {
            Some((step, item)) => (step, item.parse().ok()),
            None => (record.step_id(), None),
        };
        Self {
            scope: record.scope().to_owned(),
            step: step.to_owned(),
            item,
        }
    }

    /// The step; for an item `STEP.INDEX`.
    pub(super) fn task(&self) -> String {
        item_name(&self.step, self.item)
    }
}

impl Settled {
    /// Whether it is about a record.
    pub(super) fn holds(&self, record: &PersonRequest) -> bool {
        match self {
            Self::Call(request) => record.request() == *request,
            Self::Task(place) => {
                let there = TaskRef::of(record);
                let of_item = place.item.is_none() || place.item == there.item;
                there.scope == place.scope && there.step == place.step && of_item
            }
        }
    }
}

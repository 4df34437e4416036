//! The meaning of a frame for pending calls: where one becomes pending, and where some may no
//! longer be.

use ktsu_ledger::Frame;
use ktsu_projections::approvals::approval_id;
use ktsu_projections::life::{Change, Expiry, QuestionKind, Task, changes};
use ktsu_projections::lineage::item_name;
use ktsu_projections::person_requests::PersonRequest;
use ktsu_projections::reviews::review_id;
use ktsu_projections::run::StepStatus;
use ktsu_projections::suspensions::suspend_id;

/// See the module documentation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApprovalEvent {
    /// A call begins to wait.
    Requested {
        /// Its record.
        id: String,
        /// The task that asks.
        place: TaskRef,
    },
    /// Calls there may wait no more.
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

/// The calls that may wait no more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// This call, by the frame that asks.
    Call(u64),
    /// Every call of a task, or of all tasks of a step.
    Task(TaskRef),
}

impl ApprovalEvent {
    /// The event that a frame means, if it says something about calls that wait.
    pub(super) fn from_frame(frame: &Frame) -> Option<Self> {
        changes(frame).find_map(|change| Self::of(frame, change))
    }

    fn of(frame: &Frame, change: Change<'_>) -> Option<Self> {
        let place = |task| TaskRef::of_task(frame, task);
        let settled = match change {
            Change::Asked(task, question) => {
                let (stream, seq) = (&frame.stream, frame.seq);
                let id = match question.kind() {
                    QuestionKind::Approval | QuestionKind::InDoubt => approval_id(stream, seq),
                    QuestionKind::Review => review_id(stream, seq),
                    QuestionKind::Suspension => suspend_id(stream, seq),
                };
                let place = place(task);
                return Some(Self::Requested { id, place });
            }
            Change::Answered(_, answer) => Settled::Call(answer.request),
            Change::Expired(_, Expiry::Request(request)) => Settled::Call(request),
            Change::Expired(task, Expiry::Question(_)) | Change::Finished(task, _) => {
                Settled::Task(place(task))
            }
            Change::StepMoved(step, StepStatus::Pending | StepStatus::Failed) => {
                Settled::Task(place(Task { step, item: None }))
            }
            _ => return None,
        };
        Some(Self::Moved(settled))
    }
}

impl TaskRef {
    fn of_task(frame: &Frame, task: Task<'_>) -> Self {
        Self {
            scope: frame.scope.clone(),
            step: task.step.to_owned(),
            item: task.item,
        }
    }

    /// The task that a record belongs to.
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
    /// Returns `true` if it is about a record.
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

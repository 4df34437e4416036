//! What a frame means for pending calls: where one becomes pending, and where some may no longer
//! be.

use ktsu_ledger::StreamId;
use ktsu_projections::approvals::{ApprovalRecord, approval_id};
use ktsu_projections::lineage::item_name;
use serde_json::Value;

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
    /// Reads a frame, as it is sent to whoever follows a run.
    pub(super) fn from_frame(frame: &Value) -> Option<Self> {
        let data = &frame["data"];
        let request = || data["request"].as_u64().map(Settled::Call).map(Self::Moved);
        match frame["type"].as_str()? {
            "approval.requested" => Self::requested(frame),
            "tool.in_doubt" if data["reason"] != "task_ended" => Self::requested(frame),
            "approval.decided" | "approval.expired" => request(),
            "agent.finished" | "step.reset" => {
                Some(Self::Moved(Settled::Task(TaskRef::of_frame(frame)?)))
            }
            _ => None,
        }
    }

    fn requested(frame: &Value) -> Option<Self> {
        let stream: StreamId = frame["stream"].as_str()?.parse().ok()?;
        Some(Self::Requested {
            id: approval_id(&stream, frame["seq"].as_u64()?),
            place: TaskRef::of_frame(frame)?,
        })
    }
}

impl TaskRef {
    fn of_frame(frame: &Value) -> Option<Self> {
        let item = frame["data"]["item"].as_u64();
        Some(Self {
            scope: frame["scope"].as_str()?.to_owned(),
            step: frame["data"]["step"].as_str()?.to_owned(),
            item: item.map(u32::try_from).transpose().ok()?,
        })
    }

    /// Where a record belongs.
    pub(super) fn of(record: &ApprovalRecord) -> Self {
        let scope = record.run_id.split_once('/');
        let (step, item) = match record.step_id.split_once('.') {
            Some((step, item)) => (step, item.parse().ok()),
            None => (record.step_id.as_str(), None),
        };
        Self {
            scope: scope.map_or("", |(_, scope)| scope).to_owned(),
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
    pub(super) fn holds(&self, record: &ApprovalRecord) -> bool {
        match self {
            Self::Call(request) => record.request == *request,
            Self::Task(place) => {
                let there = TaskRef::of(record);
                let of_item = place.item.is_none() || place.item == there.item;
                there.scope == place.scope && there.step == place.step && of_item
            }
        }
    }
}

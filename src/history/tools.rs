//! The tool calls of a run in words: people's decisions about each, and its result.

use ktsu_ledger::Frame;
use ktsu_projections::approvals::{ApprovalRecord, ApprovalStatus};
use ktsu_projections::calls::{CallHistory, ToolCallRecord};
use ktsu_projections::life::call::CallState;
use ktsu_projections::lineage;
use serde_json::Value;

/// A call that a model asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallTrace {
    /// The inline child, or empty.
    pub scope: String,
    /// The step; for an item `STEP.INDEX`.
    pub step: String,
    /// `SERVER.TOOL`; the model's name for the tool where no server was asked.
    pub tool: String,
    /// The reply that asks for it.
    pub response: u64,
    /// The arguments.
    pub arguments: Value,
    /// The decisions of people, in order: `approved by ann`.
    pub people: Vec<String>,
    /// The outcome, in words.
    pub outcome: String,
    /// True if the model got an error, or nothing.
    pub failed: bool,
    /// The `tool.returned`.
    pub returned: Option<u64>,
}

/// The calls of a run and of its inline children, in the order of the first frames about them.
pub fn uses(frames: &[Frame]) -> Vec<ToolCallTrace> {
    let history = CallHistory::fold(frames);
    let calls = history.calls().iter();
    calls.map(|call| ToolCallTrace::of(call, frames)).collect()
}

impl ToolCallTrace {
    /// A call of a run with these frames, from its record.
    pub(crate) fn of(record: &ToolCallRecord, frames: &[Frame]) -> Self {
        let (outcome, failed) = outcome(record, frames);
        let returned = match record.call.state {
            CallState::Returned { seq } => Some(seq),
            _ => None,
        };
        Self {
            scope: record.scope.clone(),
            step: record.step.clone(),
            tool: match &record.target {
                Some((server, tool)) => format!("{server}.{tool}"),
                None => record.call.name.clone(),
            },
            response: record.key.0,
            arguments: record.call.arguments.to_value(),
            people: record.approvals.iter().flat_map(decisions).collect(),
            outcome,
            failed,
            returned,
        }
    }

    /// All of it: `desk.put, approved by ann: a result after 3 ms`.
    pub fn summary(&self) -> String {
        let mut words = vec![self.tool.as_str()];
        words.extend(self.people.iter().map(String::as_str));
        format!("{}: {}", words.join(", "), self.outcome)
    }
}

/// The decisions of people about a call, when they were asked.
fn decisions(record: &ApprovalRecord) -> Vec<String> {
    let votes = record.votes.iter();
    let mut words: Vec<_> = votes
        .map(|vote| format!("{} by {}", vote.decision, vote.by))
        .collect();
    if record.status == ApprovalStatus::Timeout {
        words.push("no decision in time".to_owned());
    }
    words
}

/// The outcome of a call, and whether the model got an error or nothing.
fn outcome(record: &ToolCallRecord, frames: &[Frame]) -> (String, bool) {
    let detail = |seq: u64| {
        let frame = usize::try_from(seq).ok().and_then(|at| frames.get(at));
        frame.map_or_else(String::new, lineage::detail)
    };
    let last = record.approvals.last();
    let approved =
        |asked: &ApprovalRecord| asked.votes.iter().any(|vote| vote.decision == "approved");
    let words = match (&record.call.state, record.doubt) {
        (CallState::Returned { seq }, _) => return (detail(*seq), record.is_error),
        (CallState::Sent(_), _) if record.ended => {
            return ("no answer: its step ended".to_owned(), true);
        }
        (CallState::Sent(_), _) => "no answer yet",
        (
            CallState::InDoubt { .. }
            | CallState::Confirmed { .. }
            | CallState::Unresolved
            | CallState::Rejected,
            Some(doubt),
        ) => return (format!("in doubt: {}", detail(doubt)), true),
        _ if record.ended => return ("not called: its step ended".to_owned(), true),
        _ if last.is_some_and(approved) => "not called yet",
        _ => "waits for people",
    };
    (words.to_owned(), record.doubt.is_some())
}

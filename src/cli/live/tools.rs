//! Tool calls in the live view: the call, its result, and its approval.

use ktsu_ledger::event::{AgentEvent, ToolReturned};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::calls::CallHistory;
use serde::Serialize;
use serde_json::json;

use super::super::text;

/// The note on a frame about a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToolNote {
    /// The activity of the step from now on.
    pub(super) doing: String,
    /// The event, in a line.
    pub(super) line: String,
    /// True if a terminal gets a line for it, too.
    pub(super) matters: bool,
    /// True if a call was sent.
    pub(super) is_call: bool,
}

/// Applies a frame to the calls so far. Returns nothing if it is not about a call.
pub(super) fn note(calls: &mut CallHistory, frame: &Frame) -> Option<ToolNote> {
    let target = calls.apply(frame).and_then(|call| call.target.as_ref());
    // A call that was never sent has no server.
    let name = match target {
        Some((server, tool)) => text::line(&format!("{server}.{tool}")).into_owned(),
        None => "a tool".to_owned(),
    };
    calls.forget_ended();
    let Event::Agent(event) = &frame.event else {
        return None;
    };
    let (doing, line) = match event {
        AgentEvent::ToolCalled(_) => {
            let doing = format!("calls {name}");
            (doing.clone(), doing)
        }
        AgentEvent::ApprovalRequested(_) => {
            let line = format!("asks people about {name}");
            ("waits for people".to_owned(), line)
        }
        AgentEvent::ToolInDoubt(_) => {
            let line = format!("does not know what became of {name}");
            ("waits for people".to_owned(), line)
        }
        AgentEvent::ApprovalExpired(_) => (String::new(), format!("no decision on {name} in time")),
        AgentEvent::ApprovalDecided(decided) => {
            let (decision, by) = (decided.decision.as_str(), text::line(&decided.by.id));
            (String::new(), format!("{name} {decision} by {by}"))
        }
        AgentEvent::ToolReturned(answer) => (String::new(), returned(&name, answer)),
        _ => return None,
    };
    let is_call = matches!(event, AgentEvent::ToolCalled(_));
    Some(ToolNote {
        doing,
        line,
        matters: !is_call && !matches!(event, AgentEvent::ToolReturned(_)),
        is_call,
    })
}

fn returned(name: &str, answer: &ToolReturned) -> String {
    let took = text::duration(answer.duration_ms);
    match (answer.not_sent, answer.is_error) {
        (Some(why), _) => format!("did not call {name}: {}", word(&why)),
        (None, true) => format!("{name} gave an error {took}"),
        (None, false) => format!("{name} gave a result {took}"),
    }
}

/// The persisted word of a reason.
pub(super) fn word(reason: &impl Serialize) -> String {
    json!(reason).as_str().unwrap_or_default().to_owned()
}

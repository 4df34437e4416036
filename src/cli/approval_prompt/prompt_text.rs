//! The text of the prompt, and parsing of typed answers.

use ktsu_projections::approvals::{ApprovalKind, ApprovalRecord};
use serde_json::{Value, json};

use super::text;

/// Parses an answer; `None` if it is not one.
pub(super) fn decision(line: &str, record: &ApprovalRecord) -> Option<Value> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let mut body = match (word.to_ascii_lowercase().as_str(), record.kind) {
        ("y" | "yes" | "approve", _) => json!({"decision": "approved"}),
        ("n" | "no" | "reject", _) => json!({"decision": "rejected"}),
        ("h" | "happened", ApprovalKind::InDoubt) => {
            json!({"decision": "happened", "result": rest})
        }
        _ => return None,
    };
    if !rest.is_empty() && body["decision"] != "happened" {
        body["reason"] = Value::from(rest);
    }
    body["approval_id"] = Value::from(record.approval_id.as_str());
    body["digest"] = Value::from(record.digest.as_str());
    Some(body)
}

/// The question.
pub(super) fn question(record: &ApprovalRecord) -> String {
    let lines = ktsu_history::argument_lines(&record.arguments);
    let arguments = match lines.as_slice() {
        [one] => format!(" {}", text::line(one)),
        many => many
            .iter()
            .map(|one| format!("\n    {}", text::line(one)))
            .collect(),
    };
    let call = format!("{} of {}", record.tool_name, record.server);
    let (step, call) = (text::line(&record.step_id), text::line(&call));
    let call = format!("{call}{arguments}");
    match record.kind {
        ApprovalKind::Approval => format!("  {step} asks for {call}"),
        ApprovalKind::InDoubt => format!("  {step} does not know whether this happened: {call}"),
    }
}

/// The possible answers.
pub(super) fn answers(kind: ApprovalKind) -> &'static str {
    match kind {
        ApprovalKind::Approval => "  approve? y, n, or n WHY: ",
        ApprovalKind::InDoubt => {
            "  y sends it again, n ends the step, h RESULT says what it gave: "
        }
    }
}

//! The text of the prompt, and parsing of typed answers.

use ktsu_projections::approvals::{ApprovalKind, ApprovalRecord};
use ktsu_projections::person_requests::PersonRequest;
use serde_json::{Value, json};

use super::super::request_text::shown_lines;
use super::text;

/// Parses an answer; `None` if it is not one.
pub(super) fn decision(line: &str, record: &PersonRequest) -> Option<Value> {
    if let PersonRequest::Suspension(waits) = record {
        let data: Value = serde_json::from_str(line).ok()?;
        return Some(json!({"data": data, "suspend_id": waits.suspend_id}));
    }
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let may_have_happened = matches!(record,
        PersonRequest::Approval(call) if call.kind == ApprovalKind::InDoubt);
    let mut body = match word.to_ascii_lowercase().as_str() {
        "y" | "yes" | "approve" => json!({"decision": "approved"}),
        "n" | "no" | "reject" => json!({"decision": "rejected"}),
        "h" | "happened" if may_have_happened => json!({"decision": "happened", "result": rest}),
        _ => return None,
    };
    if !rest.is_empty() && body["decision"] != "happened" {
        body["reason"] = Value::from(rest);
    }
    match record {
        PersonRequest::Review(review) => body["review_id"] = Value::from(review.review_id.as_str()),
        PersonRequest::Approval(call) => {
            body["approval_id"] = Value::from(call.approval_id.as_str());
            body["digest"] = Value::from(call.digest.as_str());
        }
        PersonRequest::Suspension(_) => return None,
    }
    Some(body)
}

/// The question.
pub(super) fn question(record: &PersonRequest) -> String {
    let step = text::line(record.step_id());
    let lines = shown_lines(record);
    let indented = |lines: &[String]| -> String {
        let lines = lines.iter();
        lines
            .map(|one| format!("\n    {}", text::line(one)))
            .collect()
    };
    match record {
        PersonRequest::Suspension(_) => format!("  {step} waits for data{}", indented(&lines)),
        PersonRequest::Review(_) => {
            format!(
                "  {step} asks for a review of its output{}",
                indented(&lines)
            )
        }
        PersonRequest::Approval(call) => {
            let shown = match lines.as_slice() {
                [one] => format!(" {}", text::line(one)),
                many => indented(many),
            };
            call_question(call, &step, &shown)
        }
    }
}

fn call_question(record: &ApprovalRecord, step: &str, shown: &str) -> String {
    let call = format!("{} of {}", record.tool_name, record.server);
    let call = format!("{}{shown}", text::line(&call));
    match record.kind {
        ApprovalKind::Approval => format!("  {step} asks for {call}"),
        ApprovalKind::InDoubt => format!("  {step} does not know whether this happened: {call}"),
    }
}

/// The line for an answer from a file: `judge: approved by scripted`.
pub(super) fn answered(record: &PersonRequest, by: &str) -> String {
    let (step, by) = (text::line(record.step_id()), text::line(by));
    match record.votes().last() {
        Some(vote) => format!("  {step}: {} by {by}", vote.decision),
        None => format!("  {step}: answered by {by}"),
    }
}

/// The possible answers.
pub(super) fn answers(record: &PersonRequest) -> &'static str {
    match record {
        PersonRequest::Approval(call) if call.kind == ApprovalKind::InDoubt => {
            "  y sends it again, n ends the step, h RESULT says what it gave: "
        }
        PersonRequest::Suspension(_) => "  the data, as JSON: ",
        PersonRequest::Review(_) | PersonRequest::Approval(_) => "  approve? y, n, or n WHY: ",
    }
}

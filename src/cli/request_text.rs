//! Texts about what people are asked.

use ktsu_projections::person_requests::PersonRequest;
use ktsu_projections::suspensions::SuspensionRecord;
use serde_json::{Value, json};

use super::text;

/// That more people have to approve.
pub(super) fn votes_text(record: &PersonRequest, votes: usize) -> String {
    let (about, of) = (text::line(record.about()), record.quorum());
    format!("{about}: {votes} of {of} have approved")
}

/// The matter that people decide on, in lines.
pub(super) fn shown_lines(record: &PersonRequest) -> Vec<String> {
    let review = match record {
        PersonRequest::Approval(approval) => {
            return ktsu_history::argument_lines(&approval.arguments);
        }
        PersonRequest::Suspension(suspension) => return suspension_lines(suspension),
        PersonRequest::Review(review) => review,
    };
    let mut lines = vec![format!("reason: {}", review.reason)];
    let mut add = |name: &str, value: &Value| {
        let shown = ktsu_history::argument_lines(value);
        match shown.as_slice() {
            [one] => lines.push(format!("{name}: {one}")),
            many => {
                lines.push(format!("{name}:"));
                lines.extend(many.iter().map(|line| format!("  {line}")));
            }
        }
    };
    if !review.payload.is_null() {
        add("payload", &review.payload);
    }
    add("output", &review.output);
    for vote in review.votes.iter().filter(|vote| !vote.overlay.is_empty()) {
        add(&format!("replaced by {}", vote.by), &json!(vote.overlay));
    }
    for command in &review.deferred {
        let text = |name: &str| command[name].as_str().unwrap_or_default();
        let about = format!("then {} {}{}", text("type"), text("topic"), text("step"));
        let given = ["payload", "input", "inputs"];
        let given = given.iter().find_map(|name| command.get(*name));
        add(&about, given.unwrap_or(&Value::Null));
    }
    lines
}

/// The description of what a step waits for, in lines.
fn suspension_lines(record: &SuspensionRecord) -> Vec<String> {
    let mut lines = vec![format!("reason: {}", record.reason)];
    lines.extend(
        record
            .resume_step
            .iter()
            .map(|step| format!("then: step {step}")),
    );
    for (name, value) in [
        ("checkpoint", &record.checkpoint),
        ("schema", &record.schema),
        ("data", &record.data),
    ] {
        if !value.is_null() {
            lines.push(format!("{name}: {value}"));
        }
    }
    lines
}

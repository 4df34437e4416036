//! Prints the full content of frames about webhooks: what was sent and what was answered.

use ktsu_ledger::Frame;
use ktsu_ledger::event::{WebhookAnswer, WebhookEvent, WebhookSent};
use serde_json::Value;

use super::{block, fields};
use crate::{json, text};
use ktsu_history::webhooks::{WebhookRequest, request};

/// Prints one.
pub(super) fn print(frames: &[Frame], (seq, event): (u64, &WebhookEvent), all: &str) {
    match event {
        WebhookEvent::Sent(event) => {
            if let Some(request) = request(frames, seq) {
                sent(event, &request, all);
            }
        }
        WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer) => answered(answer, all),
        WebhookEvent::Dead(_) => {}
    }
}

fn sent(event: &WebhookSent, request: &WebhookRequest, all: &str) {
    let url = request.url.as_deref().unwrap_or_default();
    let mut rows = vec![
        ("request", format!("{} {url}", request.method)),
        ("headers", request.headers.join(", ")),
        ("delivery", event.delivery_id.clone()),
        ("sending", event.sending.to_string()),
        ("body_hash", event.body_hash.clone()),
    ];
    let bytes = request.body_bytes.map(|bytes| format!("{bytes} bytes"));
    rows.extend(bytes.map(|bytes| ("length", bytes)));
    let problem = request.problem.clone();
    rows.extend(problem.map(|problem| ("problem", problem)));
    fields(&rows);
    if let Some(body) = &request.body {
        block("body", &json::pretty(body.as_str()), all);
    }
}

fn answered(answer: &WebhookAnswer, all: &str) {
    let mut rows = vec![("sending", answer.sending.to_string())];
    rows.extend(answer.status.map(|status| ("status", status.to_string())));
    rows.extend(answer.code.clone().map(|code| ("code", code)));
    rows.push(("time", text::duration(answer.duration_ms)));
    fields(&rows);
    let title = match answer.truncated {
        true => "answer (truncated)",
        false => "answer",
    };
    match answer.response.to_value() {
        Value::Null => {}
        Value::String(words) => block(title, &words, all),
        other => block(title, &json::pretty(&other.to_string()), all),
    }
}

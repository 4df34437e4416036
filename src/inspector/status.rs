//! Statuses as pages show them: each with a word, a colour and a shape.

use ktsu_history::skeleton::{CallSpan, CallSpanStatus};
use maud::{Markup, html};

/// The class of the style sheet that a status of a run, a step or an item has, and its sign.
fn class_and_sign(status: &str) -> (&'static str, &'static str) {
    match status {
        "complete" | "passed" => ("ok", "✓"),
        "failed" => ("bad", "✕"),
        "running" => ("run", "▸"),
        "waiting" | "pending_approval" => ("wait", "◆"),
        "skipped" => ("skip", "–"),
        "cancelled" | "stopped" => ("stop", "■"),
        "pending" => ("none", "○"),
        "suspended" => ("wait", "◆"),
        "replaced" => ("stop", "■"),
        _ => ("odd", "?"),
    }
}

/// The class that a status has in a drawing.
pub(crate) fn class(status: &str) -> &'static str {
    class_and_sign(status).0
}

/// The sign of a status, which differs where colours do not.
pub(crate) fn sign(status: &str) -> &'static str {
    class_and_sign(status).1
}

/// A status in words.
pub(crate) fn words(status: &str) -> String {
    match status {
        "pending_approval" => "waits for people".to_owned(),
        "error" => "no verdict".to_owned(),
        other => other.replace('_', " "),
    }
}

/// A status, as a word in its colour behind its sign.
pub(crate) fn badge(status: &str) -> Markup {
    let (class, sign) = class_and_sign(status);
    html! {
        span class={ "status " (class) } {
            span class="sign" aria-hidden="true" { (sign) }
            (crate::text::Verbatim(words(status)))
        }
    }
}

/// The class that a call has in a drawing.
pub(crate) fn class_of_call(call: &CallSpan) -> &'static str {
    let asks = call.kind.is_for_people();
    match call.status {
        CallSpanStatus::Open if asks => "wait",
        CallSpanStatus::Open => "run",
        CallSpanStatus::Failed => "bad",
        CallSpanStatus::Unanswered => "none",
        CallSpanStatus::Complete | CallSpanStatus::Cached if asks => "asked",
        CallSpanStatus::Complete => "call",
        CallSpanStatus::Cached => "cached",
    }
}

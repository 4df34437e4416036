//! Prints the full content of frames about tool calls and approvals: arguments, results, requests
//! and decisions.

use ktsu_ledger::event::plan::ApprovalPolicy;
use ktsu_ledger::event::{
    AgentEvent, ApprovalDecided, ApprovalRequested, DoubtReason, Reference, ToolCalled,
    ToolReturned, UnsentReason,
};
use ktsu_ledger::{Event, Frame};
use serde_json::Value;

use super::{block, fields};
use crate::{json, text};

/// `tool.called`.
pub(super) fn called(frames: &[Frame], called: &ToolCalled, all: &str) {
    let mut rows = vec![
        ("server", called.server.clone()),
        ("tool", called.tool.clone()),
        ("digest", called.digest.clone()),
        ("key", called.idempotency_key.clone()),
    ];
    rows.extend(called.approval.map(|seq| ("approval", frame(seq))));
    rows.extend(called.again.map(|seq| ("sent before", frame(seq))));
    fields(&rows);
    arguments(frames, &called.arguments, all);
}

/// `tool.returned`.
pub(super) fn returned(frames: &[Frame], returned: &ToolReturned, all: &str) {
    let mut rows = Vec::new();
    if let Some(name) = name(frames, returned) {
        rows.push(("tool", name));
    }
    if let Some(at) = &returned.recorded {
        rows.push((
            "recorded",
            format!("{} of {}, {}#{}", at.tool, at.server, at.stream, at.seq),
        ));
    }
    rows.push(match returned.not_sent {
        Some(why) => ("not sent", not_sent(why).to_owned()),
        None => ("time", text::duration(returned.duration_ms)),
    });
    fields(&rows);
    let title = if returned.is_error { "error" } else { "result" };
    let content = returned.content.to_value();
    for one in content.as_array().map(Vec::as_slice).unwrap_or_default() {
        match one["text"].as_str() {
            Some(words) => block(title, words, all),
            None => block(title, &json::pretty(&one.to_string()), all),
        }
    }
    if let Some(structured) = &returned.structured {
        block("structured", &json::pretty(structured.as_str()), all);
    }
}

/// `tool.in_doubt`.
pub(super) fn in_doubt(frames: &[Frame], about: u64, reason: DoubtReason, all: &str) {
    let why = match reason {
        DoubtReason::NoAnswer => "it was sent, and no answer arrived",
        DoubtReason::WorkerLost => "the runtime that sent it was lost",
        DoubtReason::TaskEnded => "its task ended before an answer arrived",
    };
    fields(&[("call", frame(about)), ("why", why.to_owned())]);
    if let Some(Event::Agent(AgentEvent::ToolCalled(called))) = at(frames, about) {
        arguments(frames, &called.arguments, all);
    }
}

/// `approval.requested`.
pub(super) fn requested(frames: &[Frame], request: &ApprovalRequested, all: &str) {
    fields(&[
        ("server", request.server.clone()),
        ("tool", request.tool.clone()),
        ("digest", request.digest.clone()),
        ("requires", policy(&request.policy)),
    ]);
    arguments(frames, &request.arguments, all);
}

/// `approval.decided`.
pub(super) fn decided(decided: &ApprovalDecided, all: &str) {
    fields(&[
        ("decision", decided.decision.as_str().to_owned()),
        (
            "by",
            format!("{} (auth: {})", decided.by.id, decided.by.auth),
        ),
        ("request", frame(decided.request)),
        ("digest", decided.digest.clone()),
    ]);
    if let Some(reason) = &decided.reason {
        block("reason", reason, all);
    }
    if let Some(result) = &decided.result {
        block("result", result, all);
    }
}

/// `approval.expired`.
pub(super) fn expired(request: u64) {
    fields(&[("request", frame(request))]);
}

fn policy(policy: &ApprovalPolicy) -> String {
    let mut words = text::count(policy.quorum, "approval");
    if policy.not_by_proposer {
        words.push_str(", not by the person who started the run");
    }
    if let Some(timeout) = &policy.timeout {
        words.push_str(&format!(", within {}", text::duration(timeout.ms)));
    }
    words
}

/// The reason why a call was not sent, in a few words.
fn not_sent(why: UnsentReason) -> &'static str {
    match why {
        UnsentReason::UnknownTool => "no server offers it",
        UnsentReason::InvalidArguments => "its arguments do not fit its schema",
        UnsentReason::SecretInArguments => "its arguments hold a secret",
        UnsentReason::Rejected => "it was not approved",
        UnsentReason::InDoubt => "it may already have happened",
        UnsentReason::SuppressedInBranch => {
            "branches and recomputes make no calls with side effects"
        }
    }
}

fn arguments(frames: &[Frame], place: &Reference, all: &str) {
    let data = at(frames, place.frame).map(Event::data);
    if let Some(value) = data.as_ref().and_then(|data| data.pointer(&place.path)) {
        block("arguments", &json::pretty(&value.to_string()), all);
    }
}

/// The name that the model has for the tool.
fn name(frames: &[Frame], returned: &ToolReturned) -> Option<String> {
    let Some(Event::Agent(AgentEvent::Response(answer))) = at(frames, returned.response) else {
        return None;
    };
    let calls = answer.tool_calls.as_ref()?.to_value();
    let name = calls.get(returned.call as usize)?.get("name");
    name.and_then(Value::as_str).map(str::to_owned)
}

fn at(frames: &[Frame], seq: u64) -> Option<&Event> {
    let frame = frames.get(usize::try_from(seq).ok()?)?;
    Some(&frame.event)
}

fn frame(seq: u64) -> String {
    format!("frame {seq}")
}

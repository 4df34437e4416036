//! Prints the full content of frames about agents and webhooks: requests, replies, drafts,
//! outcomes.

mod tools;
mod webhooks;

use ktsu_ledger::event::{AgentEvent, CallAttempt, LlmRequest, LlmResponse, Purpose};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use serde_json::Value;

use super::output::{BOLD, DIM, line, line_dim, painted, symbols};
use super::{agents, json, text};

/// More lines of one text are not shown at once.
const LINES: usize = 40;
/// Nor more characters of one line.
const WIDTH: usize = 400;

/// Prints the content of a frame, if it is one whose content is more than a few words. `all` is
/// what to type to see everything.
pub(super) fn print(frames: &[Frame], frame: &Frame, all: &str) {
    if let Event::Webhook(event) = &frame.event {
        return webhooks::print(frames, (frame.seq, event), all);
    }
    let Event::Agent(event) = &frame.event else {
        return;
    };
    match event {
        AgentEvent::Request(request) => {
            fields(&request_fields(request));
            messages(frames, request, all);
        }
        AgentEvent::Response(answer) => {
            let request = find(frames, answer.request);
            fields(&answer_fields(request, answer));
            if let Some(request) = request {
                messages(frames, request, all);
            }
            reply(repeated(frames, answer).unwrap_or(answer), all);
        }
        AgentEvent::Decided(decided) => {
            if let Some(draft) = &decided.draft {
                block("draft", &json::pretty(draft.as_str()), all);
            }
        }
        AgentEvent::Finished(finished) => {
            fields(&[("reason", finished.reason.as_str().to_owned())]);
            block("outcome", &json::pretty(finished.outcome.as_str()), all);
        }
        AgentEvent::ToolCalled(called) => tools::called(frames, called, all),
        AgentEvent::ToolReturned(returned) => tools::returned(frames, returned, all),
        AgentEvent::ToolInDoubt(doubt) => {
            tools::in_doubt(frames, doubt.called, doubt.reason, all);
        }
        AgentEvent::ApprovalRequested(approval) => tools::requested(frames, approval, all),
        AgentEvent::ApprovalDecided(decided) => tools::decided(decided, all),
        AgentEvent::ApprovalExpired(expired) => tools::expired(expired.request),
        AgentEvent::ReflectStarted(_) | AgentEvent::BudgetExhausted(_) => {}
    }
}

/// The reply that a response repeats: its text is recorded there.
fn repeated<'f>(frames: &'f [Frame], answer: &LlmResponse) -> Option<&'f LlmResponse> {
    let seq = usize::try_from(answer.repeats?).ok()?;
    match &frames.get(seq)?.event {
        Event::Agent(AgentEvent::Response(first)) => Some(first),
        _ => None,
    }
}

fn find(frames: &[Frame], seq: u64) -> Option<&LlmRequest> {
    match &frames.get(usize::try_from(seq).ok()?)?.event {
        Event::Agent(AgentEvent::Request(request)) => Some(request),
        _ => None,
    }
}

fn request_fields(request: &LlmRequest) -> Vec<(&'static str, String)> {
    let purpose = match request.purpose {
        Purpose::Turn => "",
        Purpose::Repair => ", to repair the draft",
        Purpose::Reflect => ", to reflect",
    };
    vec![
        ("group", format!("{}{purpose}", request.group)),
        ("max_tokens", request.max_tokens.to_string()),
        ("input_hash", request.digest.clone()),
    ]
}

fn answer_fields(
    request: Option<&LlmRequest>,
    answer: &LlmResponse,
) -> Vec<(&'static str, String)> {
    let mut fields = vec![("model", format!("{}/{}", answer.provider, answer.model))];
    fields.extend(request.map(|request| ("group", request.group.clone())));
    let prices = match answer.prices.as_str() {
        _ if answer.unpriced => ", price unknown".to_owned(),
        "" => String::new(),
        version => format!(", prices {version}"),
    };
    let cached = if answer.cached {
        ", from the cache"
    } else {
        ""
    };
    fields.extend([
        (
            "used",
            agents::tokens((answer.tokens_in, answer.tokens_out)),
        ),
        (
            "cost",
            format!("{}{prices}", text::cost(answer.cost_micro_usd)),
        ),
        (
            "time",
            format!("{}{cached}", text::duration(answer.duration_ms)),
        ),
        ("input_hash", answer.input_hash.clone()),
        ("output_hash", answer.output_hash.clone()),
    ]);
    if let (Some(seq), Some(saved)) = (answer.repeats, &answer.saved) {
        let tokens = agents::tokens((saved.tokens_in, saved.tokens_out));
        let words = format!("{tokens}, {}", text::cost(saved.cost_micro_usd));
        fields.push(("repeats", format!("the reply of frame {seq}")));
        fields.push(("saved", words));
    }
    fields.extend(answer.attempts.iter().map(attempt));
    fields
}

/// One attempt at a model, as a labelled line.
fn attempt(one: &CallAttempt) -> (&'static str, String) {
    let words = format!(
        "{} {}, {}, {}, {}",
        one.model,
        one.status,
        agents::tokens((one.usage.tokens_in, one.usage.tokens_out)),
        text::cost(one.usage.cost_micro_usd),
        text::duration(one.duration_ms),
    );
    ("attempt", words)
}

fn fields(fields: &[(&str, String)]) {
    line("");
    for (name, value) in fields {
        line(&format!(
            "{} {}",
            painted(DIM, &format!("{name:<11}")),
            text::short(value, WIDTH)
        ));
    }
}

/// The messages of a request, starting with those of the requests it is based on.
fn messages(frames: &[Frame], request: &LlmRequest, all: &str) {
    let mut chain = vec![request];
    let mut base = request.base;
    // A base is always an earlier frame, but a damaged record may contradict that.
    while let Some(seq) = base.filter(|_| chain.len() <= frames.len()) {
        let Some(before) = find(frames, seq) else {
            break;
        };
        chain.push(before);
        base = before.base;
    }
    for request in chain.into_iter().rev() {
        let messages = request.messages.to_value();
        for message in messages.as_array().map(Vec::as_slice).unwrap_or_default() {
            let role = message["role"].as_str().unwrap_or("message");
            match &message["content"] {
                Value::Null if message["frame"].is_u64() => {
                    block(role, &format!("as in frame {}", message["frame"]), all);
                }
                Value::String(content) => block(role, content, all),
                other => block(role, &json::pretty(&other.to_string()), all),
            }
        }
    }
}

fn reply(answer: &LlmResponse, all: &str) {
    if let Some(error) = &answer.error {
        let again = if error.retryable { ", retryable" } else { "" };
        let words = format!("{}: {}{again}", error.code, error.message);
        return block("no reply", &words, all);
    }
    match answer.content.as_ref().map(CanonicalJson::to_value) {
        None => {}
        Some(Value::String(words)) => block("reply", &words, all),
        Some(other) => block("reply", &json::pretty(&other.to_string()), all),
    }
    if let Some(calls) = &answer.tool_calls {
        block("tool calls", &json::pretty(calls.as_str()), all);
    }
}

fn block(title: &str, words: &str, all: &str) {
    line("");
    line(&painted(BOLD, &text::short(title, 40)));
    let total = words.lines().count();
    let mut cut = total > LINES;
    for one in words.lines().take(LINES) {
        let tabs_kept = one.replace('\t', "    ");
        let short = text::short(&tabs_kept, WIDTH);
        cut |= tabs_kept.chars().count() > WIDTH;
        if !line(&format!("  {short}")) {
            return;
        }
    }
    if cut {
        let words = match total.saturating_sub(LINES) {
            0 => "long lines are cut".to_owned(),
            left => text::count(left, "more line"),
        };
        line_dim(&format!(
            "  {} {words}; in full: {all}",
            symbols().ellipsis()
        ));
    }
}

//! A run as one page, and what all pages share: no scripts, nothing loaded, everything from data escaped.

use std::fmt::{self, Display, Write};

use ktsu_ledger::event::{AgentEvent, CallAttempt, LlmResponse, WebhookEvent};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::Lineage;
use ktsu_projections::envelope::{ShownStatus, UsageView};
use ktsu_projections::lineage::{dollars, item_name};
use ktsu_projections::run::StepStatus;
use ktsu_projections::step_name::path_in;
use maud::{Markup, PreEscaped, Render, html};

use crate::argument_lines;
use crate::frame_page::MAX_BYTES;
use crate::steps::{ItemTimeline, RunTimeline, StepTimeline};
use crate::tools::ToolCallTrace;
use crate::webhooks::{self, WebhookRequest};

/// The most frames in the table; `ktsu frames` has all.
const MAX_FRAMES: usize = 5000;
/// The most characters of one text.
const MAX_TEXT: usize = 64 * 1024;

const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1b1b;--dim:#666;--line:#ddd}\
@media(prefers-color-scheme:dark){:root{--bg:#161616;--fg:#e6e6e6;--dim:#999;--line:#333}}\
body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;max-width:70rem;\
margin:2rem auto;padding:0 1rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid \
var(--line);padding:.5rem}table{border-collapse:collapse;width:100%}td,th{text-align:left;\
border-bottom:1px solid var(--line);padding:.2rem .5rem;vertical-align:top}\
details{margin:.2rem 0 .2rem 1rem}.dim{color:var(--dim)}.failed{color:#c33}\
.drawing{overflow:auto;border:1px solid var(--line)}svg{font-size:13px}svg text{fill:var(--fg)}\
svg text.dim{fill:var(--dim)}rect,path.line{fill:none;stroke:var(--dim)}\
marker path{fill:var(--dim)}.label{text-anchor:middle}";

/// The page of a run: `frames` are all of its frames, `envelope` its envelope as JSON.
pub fn page(
    run: &RunTimeline,
    frames: &[Frame],
    tool_calls: &[ToolCallTrace],
    envelope: &str,
) -> String {
    let title = format!("{} {}", run.workflow, run.run_id);
    let body = html! {
        (summary(run))
        h2 { "Steps" }
        (steps(run))
        h2 { "Model calls" }
        @for frame in frames { (model_call(frames, frame)) }
        (tools(frames, tool_calls))
        (webhooks(frames))
        h2 { "Envelope" }
        (details("as JSON", envelope))
        (frame_table(frames))
    };
    document(&title, &body)
}

/// A whole page under a title.
pub(super) fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(CONTENT_SECURITY_POLICY);
                meta name="viewport" content="width=device-width";
                title { (HtmlText(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (HtmlText(title)) }
                (body)
            }
        }
        "\n"
    };
    page.into_string()
}

/// Text from data: escaped, cut at a bound, and with U+FFFD for control characters and for marks
/// that turn the direction of what follows.
pub struct HtmlText<T>(pub T);

impl<T: Display> Render for HtmlText<T> {
    fn render_to(&self, page: &mut String) {
        let room = MAX_TEXT;
        if write!(TextFilter { page, room }, "{}", self.0).is_err() {
            page.push_str(" … (cut)");
        }
    }
}

struct TextFilter<'a> {
    page: &'a mut String,
    /// The number of characters that may still be written.
    room: usize,
}

impl Write for TextFilter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.room = self.room.checked_sub(1).ok_or(fmt::Error)?;
            match c {
                // Maud leaves it as it is.
                '\'' => self.page.push_str("&#39;"),
                '\n' | '\t' => self.page.push(c),
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.page.push('\u{fffd}'),
                c if c.is_control() => self.page.push('\u{fffd}'),
                c => c.render_to(self.page),
            }
        }
        Ok(())
    }
}

/// A row of a table.
pub fn row(cells: &[&dyn Display]) -> Markup {
    html! { tr { @for cell in cells { td { (HtmlText(cell)) } } } }
}

fn block(text: impl Display) -> Markup {
    html! { pre { (HtmlText(text)) } }
}

pub(super) fn details(summary: impl Display, text: impl Display) -> Markup {
    html! { details { summary { (HtmlText(summary)) } (block(text)) } }
}

fn status_class(failed: bool) -> &'static str {
    if failed { "failed" } else { "dim" }
}

fn summary(run: &RunTimeline) -> Markup {
    let totals = &run.totals;
    html! {
        table {
            (row(&[&"status", &run.status]))
            (row(&[&"workflow", &format_args!("{} {}", run.workflow, run.version)]))
            @if let Some(pause) = &run.steered.paused { (row(&[&"paused", pause])) }
            @if let Some(error) = &run.error {
                (row(&[&"error", &format_args!("{}: {}", error.code, error.message)]))
            }
            (row(&[&"time", &times(totals)]))
            @if totals.cost_micro_usd > 0 { (row(&[&"cost", &dollars(totals.cost_micro_usd)])) }
            @if totals.llm_calls > 0 {
                (row(&[&"models", &format_args!(
                    "{}, {} tokens in, {} out",
                    counted(totals.llm_calls, "call"), totals.tokens_in, totals.tokens_out
                )]))
            }
        }
    }
}

fn steps(run: &RunTimeline) -> Markup {
    html! { @for step in &run.steps { (step_details(step)) } }
}

fn step_details(step: &StepTimeline) -> Markup {
    let used = &step.metrics;
    let (time, cost) = (times(used), cost(used.cost_micro_usd));
    html! {
        details {
            summary {
                (HtmlText(&step.id)) " "
                span class=(status_class(step.status == ShownStatus::Own(StepStatus::Failed))) {
                    (HtmlText(format_args!("{} {}, {time}{cost}", step.kind, step.status)))
                }
            }
            @if let Some(error) = &step.error {
                (block(format_args!("{}: {}", error.code, error.message)))
            }
            @if let Some(reason) = &step.skip_reason { (block(reason)) }
            table {
                @for call in &step.calls { (row(&[&call.frame, &call.kind, &call.detail])) }
            }
            @for item in &step.items { (item_details(item)) }
            @if let Some(child) = &step.child { (steps(child)) }
            @for invoked in &step.invoked { (steps(invoked)) }
        }
    }
}

fn item_details(item: &ItemTimeline) -> Markup {
    html! {
        details {
            summary { (HtmlText(format_args!("{} {}, {}", item.id, item.status, times(&item.metrics)))) }
            @if let Some(error) = &item.error {
                (block(format_args!("{}: {}", error.code, error.message)))
            }
        }
    }
}

fn model_call(frames: &[Frame], frame: &Frame) -> Markup {
    match &frame.event {
        Event::Agent(AgentEvent::Request(request)) => {
            let step = item_name(&request.step, request.item);
            let summary = format_args!("frame {}: {step} asks {}", frame.seq, request.group);
            details(summary, request.messages.as_str())
        }
        Event::Agent(AgentEvent::Response(answer)) => {
            let step = item_name(&answer.step, answer.item);
            let (took, cost) = (answer.duration_ms, cost(answer.cost_micro_usd));
            let summary = match &answer.error {
                None => format!(
                    "frame {}: {step} is answered by {}/{}, {took} ms{cost}",
                    frame.seq, answer.provider, answer.model
                ),
                Some(error) => format!(
                    "frame {}: {step} gets no reply from {} after {took} ms{cost}: {}",
                    frame.seq,
                    called(frames, answer),
                    error.code
                ),
            };
            let error = answer.error.as_ref().map(|error| error.message.as_str());
            let repeated = answer.repeats.and_then(|seq| usize::try_from(seq).ok());
            let repeated = repeated.and_then(|at| frames.get(at)?.event.response());
            let reply = repeated.unwrap_or(answer).content.as_ref();
            let reply = reply.map(|reply| reply.as_str());
            let reply = reply.or(error).unwrap_or_default();
            details(summary, attempts(&answer.attempts) + reply)
        }
        _ => Markup::default(),
    }
}

/// The models that gave no reply, each by its provider and its name; where none was called, the group.
fn called(frames: &[Frame], answer: &LlmResponse) -> String {
    let mut names: Vec<String> = answer
        .attempts
        .iter()
        .map(|one| one.model.clone())
        .collect();
    if names.is_empty() && !answer.model.is_empty() {
        names.push(format!("{}/{}", answer.provider, answer.model));
    }
    names.dedup();
    if !names.is_empty() {
        return names.join(" and ");
    }
    let request = usize::try_from(answer.request).ok();
    match request.and_then(|at| Some(&frames.get(at)?.event)) {
        Some(Event::Agent(AgentEvent::Request(request))) => format!("the group {}", request.group),
        Some(_) | None => "a model".to_owned(),
    }
}

/// `, $0.000270`; nothing of what cost nothing.
fn cost(micro_usd: u64) -> String {
    match micro_usd {
        0 => String::new(),
        micro_usd => format!(", {}", dollars(micro_usd)),
    }
}

/// `1 call`, `2 calls`.
fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// The requests sent to endpoints, and their answers.
fn webhooks(frames: &[Frame]) -> Markup {
    let requests = webhooks::requests(frames, |_| true, MAX_BYTES);
    if requests.is_empty() {
        return Markup::default();
    }
    html! {
        h2 { "Webhooks" }
        @for frame in frames {
            @if let Event::Webhook(event) = &frame.event {
                (webhook(frame.seq, event, requests.get(&frame.seq)))
            }
        }
    }
}

fn webhook(seq: u64, event: &WebhookEvent, request: Option<&WebhookRequest>) -> Markup {
    match (event, request) {
        (WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer), _) => {
            let outcome = match (answer.status, &answer.code) {
                (Some(status), _) => format!("status {status}"),
                (None, code) => code.clone().unwrap_or_default(),
            };
            let summary = format_args!("frame {seq}: {} is answered, {outcome}", answer.step);
            details(summary, answer.response.as_str())
        }
        (_, Some(request)) => {
            let (step, method) = (event.step(), &request.method);
            let url = request.url.as_deref().unwrap_or_default();
            let summary = format_args!("frame {seq}: {step} sends {method} {url}");
            details(summary, request_text(request))
        }
        (_, None) => Markup::default(),
    }
}

/// Tool calls: their arguments, what people decided, and their results.
fn tools(frames: &[Frame], calls: &[ToolCallTrace]) -> Markup {
    html! {
        @if !calls.is_empty() { h2 { "Tool calls" } }
        @for call in calls {
            details {
                summary {
                    (HtmlText(format_args!(
                        "frame {}: {} asks for {} ",
                        call.response, path_in(&call.scope, &call.step), call.tool
                    )))
                    span class=(status_class(call.failed)) { (HtmlText(&call.outcome)) }
                }
                table { @for decision in &call.people { (row(&[&"people", decision])) } }
                (block(argument_lines(&call.arguments).join("\n")))
                @if let Some(content) = content(frames, call) { (block(content)) }
            }
        }
    }
}

fn frame_table(frames: &[Frame]) -> Markup {
    let lineage = Lineage::from_frames(frames);
    let more = lineage.nodes().len().saturating_sub(MAX_FRAMES);
    html! {
        h2 { "Frames" }
        details {
            summary { "every recorded fact" }
            table {
                @for node in lineage.nodes().iter().take(MAX_FRAMES) {
                    @let causes: Vec<String> = node.cause.iter().map(u64::to_string).collect();
                    @let step = node.step.as_deref().unwrap_or_default();
                    (row(&[
                        &node.seq, &node.kind, &node.scope, &step, &causes.join(", "), &node.detail,
                    ]))
                }
            }
            @if more > 0 { (HtmlText(format_args!("and {more} more"))) }
        }
    }
}

/// The attempts of a model call, a line each.
fn attempts(all: &[CallAttempt]) -> String {
    let lines = all.iter().map(|one| {
        format!(
            "{} {}: {}+{} tokens{}, {} ms\n",
            one.model,
            one.status,
            one.usage.tokens_in,
            one.usage.tokens_out,
            cost(one.usage.cost_micro_usd),
            one.duration_ms
        )
    });
    lines.collect()
}

/// The headers and the body of a request.
fn request_text(request: &WebhookRequest) -> String {
    let mut text = request.headers.join(", ");
    if let Some(problem) = &request.problem {
        text.push_str(&format!("\n{problem}"));
    }
    match (&request.body, request.body_bytes) {
        (Some(body), _) => text.push_str(&format!("\n\n{}", body.as_str())),
        (None, Some(bytes)) => text.push_str(&format!("\n\n{bytes} bytes, left out")),
        (None, None) => {}
    }
    text
}

/// The result of a call, as the model got it.
fn content(frames: &[Frame], one: &ToolCallTrace) -> Option<String> {
    let seq = usize::try_from(one.returned?).ok()?;
    let returned = frames.get(seq)?.event.tool_result()?;
    Some(returned.content.as_str().to_owned())
}

/// The time at work, and the time in which only people could move it.
fn times(used: &UsageView) -> String {
    match used.waited_ms {
        0 => format!("{} ms", used.duration_ms),
        waited => format!("{} ms, waited {waited} ms", used.duration_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_a_reply_names_the_models_that_were_called() {
        let attempt = |model: &str| {
            serde_json::json!({"duration_ms": 7, "model": model, "status": "timeout",
                "usage": {"cost_micro_usd": 0, "tokens_in": 0, "tokens_out": 0}})
        };
        let answer = |attempts: &[&str]| {
            let attempts: Vec<_> = attempts.iter().map(|model| attempt(model)).collect();
            serde_json::from_value::<LlmResponse>(serde_json::json!({
                "attempt": 1, "attempts": attempts, "cost_micro_usd": 0, "duration_ms": 15,
                "error": {"code": "provider_unreachable", "message": "no answer", "retryable": false},
                "input_hash": "", "model": "", "output_hash": "", "provider": "", "request": 0,
                "report": {"digest": "", "n": 1}, "step": "s", "tokens_in": 0, "tokens_out": 0,
            }))
            .unwrap()
        };
        let both = answer(&["desk/large", "desk/large", "spare/small"]);
        assert_eq!(called(&[], &both), "desk/large and spare/small");
        assert_eq!(called(&[], &answer(&[])), "a model");
    }

    #[test]
    fn what_cost_nothing_has_no_cost_and_one_call_is_one() {
        assert_eq!((cost(0).as_str(), cost(270).as_str()), ("", ", $0.000270"));
        assert_eq!(counted(1, "call"), "1 call");
        assert_eq!(counted(0, "call"), "0 calls");
    }

    #[test]
    fn text_from_data_stays_text() {
        let text = HtmlText("<script>alert('x')</script>\u{202e}\u{1b}[2J&\"\n").render();
        let expected =
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;\u{fffd}\u{fffd}[2J&amp;&quot;\n";
        assert_eq!(text.0, expected);
    }

    #[test]
    fn a_long_text_is_cut() {
        let (whole, longer) = ("é".repeat(MAX_TEXT), "é".repeat(MAX_TEXT + 1));
        assert_eq!(HtmlText(&whole).render().0, whole);
        assert_eq!(HtmlText(&longer).render().0, whole + " … (cut)");
    }
}

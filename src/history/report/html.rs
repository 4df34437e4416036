//! A run as one page: no scripts, nothing loaded, everything from data escaped.

use ktsu_ledger::event::{AgentEvent, CallAttempt, WebhookEvent};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::Lineage;
use ktsu_projections::envelope::UsageView;
use ktsu_projections::lineage::dollars;

use crate::frame_page::MAX_BYTES;
use crate::steps::{ItemTimeline, RunTimeline, StepTimeline};
use crate::tools::ToolCallTrace;
use crate::webhooks::{self, WebhookRequest};

/// The most frames in the table; `ktsu frames` has all.
const MAX_FRAMES: usize = 5000;
/// The most characters of one text.
const MAX_TEXT: usize = 64 * 1024;

const STYLE: &str = ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1b1b;--dim:#666;--line:#ddd}\
@media(prefers-color-scheme:dark){:root{--bg:#161616;--fg:#e6e6e6;--dim:#999;--line:#333}}\
body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;max-width:70rem;\
margin:2rem auto;padding:0 1rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid \
var(--line);padding:.5rem}table{border-collapse:collapse;width:100%}td,th{text-align:left;\
border-bottom:1px solid var(--line);padding:.2rem .5rem;vertical-align:top}\
details{margin:.2rem 0 .2rem 1rem}.dim{color:var(--dim)}.failed{color:#c33}";

/// The page of a run: `frames` are all of its frames, `envelope` its envelope as JSON.
pub fn page(
    told: &RunTimeline,
    frames: &[Frame],
    uses: &[ToolCallTrace],
    envelope: &str,
) -> String {
    let title = format!("{} {}", told.workflow, told.run_id);
    let mut page = HtmlReport::default();
    page.raw("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.raw(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">",
    );
    page.raw("<meta name=\"viewport\" content=\"width=device-width\"><title>");
    page.text(&title);
    page.raw(&format!("</title><style>{STYLE}</style></head><body><h1>"));
    page.text(&title);
    page.raw("</h1>");
    page.summary(told);
    page.raw("<h2>Steps</h2>");
    page.steps(told);
    page.calls(frames);
    page.tools(frames, uses);
    page.webhooks(frames);
    page.raw("<h2>Envelope</h2><details><summary>as JSON</summary>");
    page.block(envelope);
    page.raw("</details>");
    page.frames(frames);
    page.raw("</body></html>\n");
    page.0
}

/// Text from data, as it may stand on a page.
pub fn escaped(text: &str) -> String {
    let mut page = HtmlReport::default();
    page.text(text);
    page.0
}

#[derive(Default)]
struct HtmlReport(String);

impl HtmlReport {
    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// Text from data: escaped, and without characters that steer.
    fn text(&mut self, text: &str) {
        for c in text.chars().take(MAX_TEXT) {
            match c {
                '&' => self.raw("&amp;"),
                '<' => self.raw("&lt;"),
                '>' => self.raw("&gt;"),
                '"' => self.raw("&quot;"),
                '\'' => self.raw("&#39;"),
                '\n' | '\t' => self.0.push(c),
                c if c.is_control() => self.0.push('\u{fffd}'),
                // Marks that turn the direction of what follows.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        if text.chars().nth(MAX_TEXT).is_some() {
            self.raw(" … (cut)");
        }
    }

    fn block(&mut self, text: &str) {
        self.raw("<pre>");
        self.text(text);
        self.raw("</pre>");
    }

    fn row<'t>(&mut self, cells: impl IntoIterator<Item = &'t str>) {
        self.raw("<tr>");
        for cell in cells {
            self.raw("<td>");
            self.text(cell);
            self.raw("</td>");
        }
        self.raw("</tr>");
    }

    fn summary(&mut self, told: &RunTimeline) {
        self.raw("<table>");
        self.row(["status", &told.status]);
        self.row(["workflow", &format!("{} {}", told.workflow, told.version)]);
        if let Some(word) = &told.steered.paused {
            self.row(["paused", &word.to_string()]);
        }
        if let Some(error) = &told.error {
            self.row(["error", &format!("{}: {}", error.code, error.message)]);
        }
        let totals = &told.totals;
        self.row(["time", &times(totals)]);
        self.row(["cost", &dollars(totals.cost_micro_usd)]);
        let calls = format!(
            "{} calls, {} tokens in, {} out",
            totals.llm_calls, totals.tokens_in, totals.tokens_out
        );
        self.row(["models", &calls]);
        self.raw("</table>");
    }

    fn steps(&mut self, told: &RunTimeline) {
        for step in &told.steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: &StepTimeline) {
        let class = if step.status == "failed" {
            "failed"
        } else {
            "dim"
        };
        self.raw("<details><summary>");
        self.text(&step.id);
        self.raw(&format!(" <span class=\"{class}\">"));
        self.text(&format!("{} {}", step.kind, step.status));
        let used = &step.metrics;
        self.text(&format!(
            ", {}, {}",
            times(used),
            dollars(used.cost_micro_usd)
        ));
        self.raw("</span></summary>");
        if let Some(error) = &step.error {
            self.block(&format!("{}: {}", error.code, error.message));
        }
        if let Some(reason) = &step.skip_reason {
            self.block(reason);
        }
        self.raw("<table>");
        for call in &step.calls {
            self.row([call.frame.to_string().as_str(), &call.kind, &call.detail]);
        }
        self.raw("</table>");
        step.items.iter().for_each(|item| self.item(item));
        if let Some(child) = &step.child {
            self.steps(child);
        }
        self.raw("</details>");
    }

    fn item(&mut self, item: &ItemTimeline) {
        self.raw("<details><summary>");
        self.text(&format!(
            "{} {}, {}",
            item.id,
            item.status,
            times(&item.metrics)
        ));
        self.raw("</summary>");
        if let Some(error) = &item.error {
            self.block(&format!("{}: {}", error.code, error.message));
        }
        self.raw("</details>");
    }

    fn calls(&mut self, frames: &[Frame]) {
        self.raw("<h2>Model calls</h2>");
        for frame in frames {
            match &frame.event {
                Event::Agent(AgentEvent::Request(request)) => {
                    let step = ktsu_projections::lineage::item_name(&request.step, request.item);
                    let words = format!("frame {}: {step} asks {}", frame.seq, request.group);
                    self.call(&words, request.messages.as_str());
                }
                Event::Agent(AgentEvent::Response(answer)) => {
                    let step = ktsu_projections::lineage::item_name(&answer.step, answer.item);
                    let words = format!(
                        "frame {}: {step} is answered by {}/{}, {} ms, {}",
                        frame.seq,
                        answer.provider,
                        answer.model,
                        answer.duration_ms,
                        dollars(answer.cost_micro_usd)
                    );
                    let error = answer.error.as_ref().map(|error| error.message.clone());
                    let reply = answer
                        .content
                        .as_ref()
                        .map(|reply| reply.as_str().to_owned());
                    let reply = reply.or(error).unwrap_or_default();
                    self.call(&words, &(attempts(&answer.attempts) + &reply));
                }
                _ => {}
            }
        }
    }

    /// What was sent to endpoints, and what they answered.
    fn webhooks(&mut self, frames: &[Frame]) {
        let requests = webhooks::requests(frames, |_| true, MAX_BYTES);
        if requests.is_empty() {
            return;
        }
        self.raw("<h2>Webhooks</h2>");
        for frame in frames {
            let Event::Webhook(event) = &frame.event else {
                continue;
            };
            match (event, requests.get(&frame.seq)) {
                (WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer), _) => {
                    let what = match (answer.status, &answer.code) {
                        (Some(status), _) => format!("status {status}"),
                        (None, code) => code.clone().unwrap_or_default(),
                    };
                    let words = format!("frame {}: {} is answered, {what}", frame.seq, answer.step);
                    self.call(&words, answer.response.as_str());
                }
                (_, Some(request)) => {
                    let step = event.step();
                    let url = request.url.as_deref().unwrap_or_default();
                    let method = &request.method;
                    let words = format!("frame {}: {step} sends {method} {url}", frame.seq);
                    self.call(&words, &request_text(request));
                }
                (_, None) => {}
            }
        }
    }

    /// Calls of tools: what they were given, what people said to them, what they gave.
    fn tools(&mut self, frames: &[Frame], uses: &[ToolCallTrace]) {
        if uses.is_empty() {
            return;
        }
        self.raw("<h2>Tool calls</h2>");
        for one in uses {
            let step = match one.scope.as_str() {
                "" => one.step.clone(),
                scope => format!("{scope}/{}", one.step),
            };
            let class = if one.failed { "failed" } else { "dim" };
            self.raw("<details><summary>");
            self.text(&format!(
                "frame {}: {step} asks for {} ",
                one.response, one.tool
            ));
            self.raw(&format!("<span class=\"{class}\">"));
            self.text(&one.outcome);
            self.raw("</span></summary><table>");
            for said in &one.people {
                self.row(["people", said]);
            }
            self.raw("</table>");
            self.block(&one.arguments.to_string());
            if let Some(content) = content(frames, one) {
                self.block(&content);
            }
            self.raw("</details>");
        }
    }

    fn call(&mut self, words: &str, content: &str) {
        self.raw("<details><summary>");
        self.text(words);
        self.raw("</summary>");
        self.block(content);
        self.raw("</details>");
    }

    fn frames(&mut self, frames: &[Frame]) {
        self.raw("<h2>Frames</h2><details><summary>every recorded fact</summary><table>");
        let lineage = Lineage::from_frames(frames);
        for node in lineage.nodes().iter().take(MAX_FRAMES) {
            let causes: Vec<String> = node.cause.iter().map(u64::to_string).collect();
            self.row([
                node.seq.to_string().as_str(),
                &node.kind,
                &node.scope,
                node.step.as_deref().unwrap_or_default(),
                &causes.join(", "),
                &node.detail,
            ]);
        }
        self.raw("</table>");
        let more = lineage.nodes().len().saturating_sub(MAX_FRAMES);
        if more > 0 {
            self.text(&format!("and {more} more"));
        }
        self.raw("</details>");
    }
}

/// The models that were asked, a line each.
fn attempts(all: &[CallAttempt]) -> String {
    let lines = all.iter().map(|one| {
        format!(
            "{} {}: {}+{} tokens, {}, {} ms\n",
            one.model,
            one.status,
            one.usage.tokens_in,
            one.usage.tokens_out,
            dollars(one.usage.cost_micro_usd),
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

/// What the model was told that it gave.
fn content(frames: &[Frame], one: &ToolCallTrace) -> Option<String> {
    match event(frames, one.returned?)? {
        Event::Agent(AgentEvent::ToolReturned(returned)) => {
            Some(returned.content.as_str().to_owned())
        }
        _ => None,
    }
}

fn event(frames: &[Frame], seq: u64) -> Option<&Event> {
    let frame = frames.get(usize::try_from(seq).ok()?)?;
    Some(&frame.event)
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
    use super::HtmlReport;

    #[test]
    fn text_from_data_stays_text() {
        let mut page = HtmlReport::default();
        page.text("<script>alert('x')</script>\u{202e}\u{1b}[2J");
        assert!(!page.0.contains('<') && !page.0.contains('\u{1b}'));
        assert!(!page.0.contains('\u{202e}'), "{}", page.0);
    }
}

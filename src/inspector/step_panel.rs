//! The panel of a step: what it gave and from where, what it was given, what was said, checked and decided,
//! and what it called.

use ktsu_history::payload::{Payload, PayloadType};
use ktsu_history::provenance::field_path;
use ktsu_history::skeleton::{CallSpan, RunSkeleton, StepSpan};
use ktsu_history::step_record::{
    AirLockCheck, InputSource, ReservedVerdict, StepInputView, StepRecord, WebhookSending,
};
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::Verdict;
use ktsu_projections::approvals::ApprovalStatus;
use ktsu_projections::envelope::{ErrorView, ItemView, StepView};
use ktsu_projections::person_requests::PersonRequest;
use ktsu_projections::step_name::scoped_run;
use maud::{Markup, html};

use crate::conversation::conversation;
use crate::frame::{PagePlace, own_frame_link, query, root_of, segment};
use crate::status::{badge, class_of_call};
use crate::text::{Verbatim, beginning};
use crate::units::{cost, counted, duration, moment, size};
use crate::value::{ValueView, value};

/// The most characters of a value beside something else.
const MAX_IN_PANEL: usize = 2_000;
/// The most characters of a value on the page of its step.
const MAX_ON_PAGE: usize = 16 * 1024;
/// The most rows of a list.
const MAX_ROWS: usize = 200;

/// The content of a step, of which the skeleton has the times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownStep {
    /// Its output, as JSON.
    pub output: Option<String>,
    /// The fields of its output that a person replaced.
    pub overlay: Vec<String>,
    /// Its output as it was computed, where a person replaced fields of it, as JSON.
    pub computed: Option<String>,
    /// Its output that was refused, as JSON.
    pub raw_output: Option<String>,
    /// The error with which it failed, in words.
    pub error: Option<String>,
    /// The reason why it was skipped.
    pub skip_reason: Option<String>,
    /// What its frames say of it.
    pub record: StepRecord,
    /// The reason why values of frames are not shown.
    pub closed: Option<String>,
}

impl ShownStep {
    /// The content of a step of an envelope.
    pub fn of_step(step: StepView, record: StepRecord) -> Self {
        Self {
            output: text(step.output),
            overlay: step.overlay.into_keys().collect(),
            computed: text(step.computed),
            raw_output: text(step.raw_output),
            error: step.error.as_ref().map(error_in_words),
            skip_reason: step.skip_reason,
            record,
            closed: None,
        }
    }

    /// The content of an item of an envelope.
    pub fn of_item(item: ItemView, record: StepRecord) -> Self {
        Self {
            output: text(item.output),
            raw_output: text(item.raw_output),
            error: item.error.as_ref().map(error_in_words),
            skip_reason: item.skip_reason,
            record,
            ..Self::default()
        }
    }

    /// The same without the values of frames, for the reason that is given.
    #[must_use]
    pub fn closed(mut self, why: String) -> Self {
        self.record = self.record.without_payloads();
        self.closed = Some(why);
        self
    }
}

fn text(value: Option<CanonicalJson>) -> Option<String> {
    value.map(|value| value.as_str().to_owned())
}

/// An error, in words.
pub fn error_in_words(error: &ErrorView) -> String {
    format!("{}: {}", error.code, error.message)
}

/// A step that is shown on a page of its run.
pub(crate) struct StepPanel<'p> {
    /// The place of the page.
    place: PagePlace,
    /// The run.
    run: &'p RunSkeleton,
    /// The path of the step or the item: `call/inner`, `classify.8`.
    path: &'p str,
    /// What it gave.
    content: &'p ShownStep,
    /// The address of the page without a selection; none on the page of the step, and in a file.
    close: Option<String>,
    /// True if the conversation is whole.
    is_whole: bool,
    /// How values are shown.
    view: ValueView<'p>,
}

/// The address of the page of a step, below `/inspector/`, by its path from the run.
pub(crate) fn step_link(run_id: &str, path: &str) -> String {
    let (scope, step) = path.rsplit_once('/').unwrap_or(("", path));
    let run = scoped_run(root_of(run_id), scope);
    format!("runs/{}/steps/{}", segment(&run), segment(step))
}

impl<'p> StepPanel<'p> {
    /// Beside another view of the run, with the address of that view without a selection.
    pub(crate) fn beside(
        place: PagePlace,
        run: &'p RunSkeleton,
        path: &'p str,
        content: &'p ShownStep,
        close: Option<String>,
    ) -> Self {
        let mut panel = Self::whole(place, run, path, content, "");
        panel.shorten();
        panel.close = close;
        panel
    }

    /// Shows less of values and of the conversation.
    pub(crate) fn shorten(&mut self) {
        self.view.most = MAX_IN_PANEL;
        self.is_whole = false;
    }

    /// On a page of its own, where the value `all` is shown whole.
    pub(crate) fn whole(
        place: PagePlace,
        run: &'p RunSkeleton,
        path: &'p str,
        content: &'p ShownStep,
        all: &'p str,
    ) -> Self {
        Self {
            place,
            run,
            path,
            content,
            close: None,
            is_whole: true,
            view: ValueView {
                place,
                run_id: &run.run_id,
                page: place.page(&step_link(&run.run_id, path)),
                all,
                most: MAX_ON_PAGE,
            },
        }
    }

    fn is_page(&self) -> bool {
        self.close.is_none()
    }

    /// What the skeleton says of it, unless it is among items that are summed up.
    pub(crate) fn span(&self) -> Option<&'p StepSpan> {
        find_span(&self.run.steps, self.path)
    }
}

/// The panel of a step.
pub(crate) fn step_panel(shown: &StepPanel<'_>) -> Markup {
    let StepPanel { path, content, .. } = *shown;
    let span = shown.span();
    let record = &content.record;
    html! {
        @if !shown.is_page() {
            h2 {
                a href=[&shown.view.page] { (Verbatim(path)) } " "
                @if let Some(step) = span { (badge(step.status.as_str())) }
            }
        }
        @if let Some(step) = span { (about(shown, step)) }
        @for request in record.requests.iter().take(MAX_ROWS) { (decision(shown, request)) }
        @if let Some(error) = &content.error { h3 { "Error" } p class="error" { (Verbatim(error)) } }
        @if let Some(reason) = &content.skip_reason { h3 { "Why it was skipped" } p { (Verbatim(reason)) } }
        (outputs(shown))
        (reasons(shown, span))
        @if let Some(closed) = &content.closed { p class="dim" { (Verbatim(closed)) } }
        (inputs(shown, &record.inputs))
        (conversation(&shown.view, &record.tasks, shown.is_whole))
        @for sending in record.sendings.iter().take(MAX_ROWS) { (sending_of(shown, sending)) }
        (air_lock(shown, record))
        @if let Some(step) = span { (calls(shown, step)) }
        @if let Some(step) = span { (inside(shown, step)) }
        @if let Some(close) = &shown.close {
            p class="pages" {
                a class="button" href=[&shown.view.page] { "All of it" }
                a href=(close) { "Close" }
            }
        }
    }
}

/// The output with the origin of each field, beside what it was before.
fn outputs(shown: &StepPanel<'_>) -> Markup {
    let content = shown.content;
    let raw = content.record.raw.as_ref();
    // An output that was refused is in the envelope, too, which more people may read.
    let raw = raw.filter(|raw| match content.raw_output {
        Some(_) => raw.json.is_some(),
        None => !content.record.stripped.is_empty(),
    });
    html! {
        @if let Some(output) = &content.output {
            h3 { "Output, and where each value came from" }
            (fields(shown, output))
            @if !content.overlay.is_empty() {
                p class="dim" { "Replaced by a person: " (Verbatim(content.overlay.join(", "))) }
            }
            @if let Some(computed) = &content.computed {
                h3 { "As it was computed" }
                (shown.view.of_envelope(&format!("step.{}.computed", shown.path), computed))
            }
        }
        @match (&content.raw_output, raw) {
            (refused, Some(raw)) => {
                details class="raw" open[refused.is_some()] {
                    summary { "Output of the agent, " @if refused.is_some() { "refused" } @else { "with reserved fields" } }
                    (shown.view.placed(raw))
                }
                @if !content.record.stripped.is_empty() {
                    p class="dim" { "Not part of the output: " (Verbatim(content.record.stripped.join(", "))) }
                }
            }
            (Some(refused), None) => {
                h3 { "Output of the agent, refused" }
                (shown.view.of_envelope(&format!("step.{}.raw_output", shown.path), refused))
            }
            (None, None) => {}
        }
    }
}

/// The fields of an output, each with a link to where it came from.
fn fields(shown: &StepPanel<'_>, output: &str) -> Markup {
    let fields = Payload::of(output);
    let entries = match fields.kind() {
        PayloadType::Object => fields.entries(),
        _ => Vec::new(),
    };
    let left_out = entries.len().saturating_sub(MAX_ROWS);
    let whole = format!("step.{}.output", shown.path);
    html! {
        @if entries.is_empty() {
            (shown.view.of_envelope(&whole, output))
        } @else {
            table class="fields" {
                tbody {
                    @for (name, field) in entries.iter().take(MAX_ROWS) {
                        @let path = field_path(&whole, name);
                        tr {
                            th scope="row" { (Verbatim(name)) }
                            td { (shown.view.of_envelope(&path, field.json())) }
                            @if let Some(why) = why(shown, "of", &path) { td class="number" { a href=(why) { "why" } } }
                        }
                    }
                }
            }
            @if left_out > 0 {
                p class="cut" { "and " (counted(left_out as u64, "field")) " more" }
                (shown.view.of_envelope(&whole, output))
            }
        }
    }
}

fn why(shown: &StepPanel<'_>, name: &str, asked: &str) -> Option<String> {
    let run = segment(root_of(&shown.run.run_id));
    let query = query(&[(name, asked)]);
    shown.place.page(&format!("runs/{run}/why{query}"))
}

/// Links to where the output came from, and to why there is none.
fn reasons(shown: &StepPanel<'_>, span: Option<&StepSpan>) -> Markup {
    let StepPanel { path, content, .. } = *shown;
    let status = span.map_or("", |step| step.status.as_str());
    let words = match status {
        _ if content.skip_reason.is_some() => Some("Why it did not run"),
        "skipped" | "pending" => Some("Why it did not run"),
        "" | "complete" => None,
        _ => Some("Why it is not complete"),
    };
    html! {
        @if let Some(why) = why(shown, "of", &format!("step.{path}")).filter(|_| content.output.is_some()) {
            p { a href=(why) { "Where the output came from" } }
        }
        @if let Some((words, why)) = words.zip(why(shown, "not", path)) { p { a href=(why) { (words) } } }
    }
}

/// What a step was given, each with its origin.
fn inputs(shown: &StepPanel<'_>, inputs: &[StepInputView]) -> Markup {
    let left_out = inputs.len().saturating_sub(MAX_ROWS);
    html! {
        @if !inputs.is_empty() {
            h3 { "Input, and where each value came from" }
            table class="fields" {
                tbody {
                    @for input in inputs.iter().take(MAX_ROWS) {
                        tr {
                            th scope="row" { (Verbatim(&input.name)) }
                            td {
                                @if let Some(given) = &input.value { (shown.view.placed(given)) }
                                p class="origin" { (source(shown, &input.source)) }
                            }
                        }
                    }
                }
            }
            @if left_out > 0 { p class="cut" { "and " (left_out) " more; the frame that began it has them" } }
        }
    }
}

fn source(shown: &StepPanel<'_>, source: &InputSource) -> Markup {
    html! {
        @match source {
            InputSource::Place { frame: seq, words, of } => {
                @match of {
                    Some(of) => a href=[why(shown, "of", of)] { (Verbatim(words)) },
                    None => (Verbatim(beginning(words, MAX_ROWS).0)),
                }
                " · frame " (frame(shown, *seq))
            }
            InputSource::Computed(from) => {
                "computed"
                @if !from.is_empty() { " from frame" @if from.len() > 1 { "s" } }
                @for seq in from.iter().take(12) { " " (frame(shown, *seq)) }
                @if from.len() > 12 { " and " (from.len() - 12) " more" }
            }
            InputSource::Template(template) => { "with a secret: " code { (Verbatim(beginning(template, MAX_ROWS).0)) } }
        }
    }
}

/// A request of a webhook, and its response.
fn sending_of(shown: &StepPanel<'_>, sending: &WebhookSending) -> Markup {
    let request = &sending.request;
    html! {
        article class="turn user" {
            header {
                span class="role" { (request.method) " " span class="id" { (Verbatim(request.url.as_deref().unwrap_or_default())) } }
                span class="meta" {
                    @if let Some(bytes) = request.body_bytes { (size(bytes)) " · " }
                    "frame " (frame(shown, sending.frame))
                }
            }
            p class="dim" { (request.headers.join(", ")) }
            @if let Some(problem) = &request.problem { p class="error" { (Verbatim(problem)) } }
            @if let Some(body) = &request.body { div class="value" { (value(body.as_str())) } }
        }
        @if let Some((seq, words)) = &sending.end {
            article class="turn tool" {
                header { span class="role" { (Verbatim(words)) } span class="meta" { "frame " (frame(shown, *seq)) } }
                @if let Some(response) = &sending.response { (shown.view.placed(response)) }
            }
        }
    }
}

/// What people were asked, and how they decided.
fn decision(shown: &StepPanel<'_>, request: &PersonRequest) -> Markup {
    let asked = request.created_at();
    html! {
        @for vote in request.votes() {
            p class="decision" {
                (Verbatim(&vote.decision)) " by " span class="by" { (Verbatim(&vote.by)) }
                " after " (duration(vote.at.millis_since(asked)))
                @if let Some(reason) = &vote.reason { ": “" (Verbatim(reason)) "”" }
                " " span class="dim" { "(" (Verbatim(request.about())) ", frame " (frame(shown, vote.frame)) ")" }
            }
        }
        @match request.status() {
            ApprovalStatus::Pending => p class="decision" {
                a href=[shown.place.page("inbox")] { "waits for people" } " since " (moment(asked))
                span class="dim" { " (" (Verbatim(request.about())) ", frame " (frame(shown, request.request())) ")" }
            },
            ApprovalStatus::Timeout => p class="decision" { "no decision in time " span class="dim" { "(" (Verbatim(request.about())) ")" } },
            _ => {}
        }
    }
}

/// What was checked of the output.
fn air_lock(shown: &StepPanel<'_>, record: &StepRecord) -> Markup {
    let last = record.checks.last();
    html! {
        @if last.is_some() || !record.reserved.is_empty() {
            h3 { "Air-lock" }
            @if let Some(check) = last { (checked(shown, check)) }
            @if !record.reserved.is_empty() {
                table class="fields" {
                    tbody { @for field in record.reserved.iter().take(MAX_ROWS) { (reserved(shown, field, record.threshold_millionths)) } }
                }
            }
        }
    }
}

fn checked(shown: &StepPanel<'_>, check: &AirLockCheck) -> Markup {
    html! {
        p {
            @match (check.is_valid, check.repairs) {
                (true, 0) => "The output matches its schema",
                (true, repairs) => { "The output matches its schema after " (counted(repairs as u64, "repair")) },
                (false, 0) => "The output does not match its schema",
                (false, repairs) => { "The output does not match its schema, after " (counted(repairs as u64, "repair")) },
            }
            " " span class="dim" { "frame " (frame(shown, check.frame)) }
        }
        @if !check.violations.is_empty() {
            table class="fields" {
                tbody {
                    @for (path, message) in check.violations.iter().take(MAX_ROWS) {
                        tr { th scope="row" { code { (Verbatim(path)) } } td class="error" { (Verbatim(message)) } }
                    }
                }
            }
        }
    }
}

fn reserved(shown: &StepPanel<'_>, field: &ReservedVerdict, threshold: Option<u32>) -> Markup {
    let (words, class) = match field.verdict {
        Verdict::Pass => ("passes", "dim"),
        Verdict::Noted => ("noted", "dim"),
        Verdict::Skip => ("skips the step", "error"),
        Verdict::Fail => ("fails the step", "error"),
        Verdict::FailRun => ("fails the run", "error"),
    };
    let threshold = threshold.filter(|_| field.is_confidence());
    let sign = match field.verdict {
        Verdict::Pass | Verdict::Noted => "≥",
        Verdict::Skip | Verdict::Fail | Verdict::FailRun => "<",
    };
    html! {
        tr {
            th scope="row" { code { (Verbatim(&field.field)) } }
            td {
                code { (Verbatim(beginning(&field.value, MAX_IN_PANEL).0)) }
                @if let Some(threshold) = threshold { " " (sign) " " (f64::from(threshold) / 1_000_000.0) }
                " " span class=(class) { (words) }
            }
            td class="number dim" { "frame " (frame(shown, field.frame)) }
        }
    }
}

/// What a step is, and where it comes in the run.
fn about(shown: &StepPanel<'_>, step: &StepSpan) -> Markup {
    html! {
        p class="dim" {
            (Verbatim(&step.kind))
            @if let Some(seq) = step.frame { ", from frame " (frame(shown, seq)) " on" }
            @if step.attempt > 1 { ", attempt " (step.attempt) }
            @if !step.after.is_empty() { ", after " (Verbatim(step.after.join(", "))) }
        }
    }
}

/// A link to a frame of the run.
fn frame(shown: &StepPanel<'_>, seq: u64) -> Markup {
    html! { a href=[own_frame_link(shown.place, &shown.run.run_id, seq)] { (seq) } }
}

/// The items and the children of a step; in a file, they follow it.
fn inside(shown: &StepPanel<'_>, step: &StepSpan) -> Markup {
    let run = &shown.run.run_id;
    let is_page = shown.is_page() && !shown.place.is_file();
    html! {
        @if is_page && !(step.items.is_empty() && step.folded.is_none()) {
            h3 { "Items" }
            p class="items" {
                @for item in step.items.iter().take(MAX_ROWS) {
                    span {
                        a href=(shown.place.link(&step_link(run, &item.path))) { (Verbatim(&item.path)) } " "
                        (badge(item.status.as_str()))
                    } " "
                }
            }
            @let left_out = step.items.len().saturating_sub(MAX_ROWS) as u64 + step.folded.as_ref().map_or(0, |folded| folded.count);
            @if left_out > 0 {
                p class="cut" {
                    (counted(left_out, "item")) " more: "
                    a href=(shown.place.link(&format!("runs/{}?items=all", segment(run)))) { "all on the time line" }
                }
            }
        }
        @if is_page && !step.children.is_empty() {
            h3 { "Runs inside it" }
            @for child in step.children.iter().take(MAX_ROWS) {
                p {
                    a href=(shown.place.link(&format!("runs/{}", segment(&child.run_id)))) { (Verbatim(&child.run_id)) } " "
                    (Verbatim(&child.workflow)) " " (badge(child.status.as_str()))
                }
            }
            @if step.children.len() > MAX_ROWS { p class="cut" { "and " (step.children.len() - MAX_ROWS) " more" } }
        }
    }
}

/// Those of the latest attempt, and of each one before.
fn calls(shown: &StepPanel<'_>, step: &StepSpan) -> Markup {
    html! {
        @if !step.calls.is_empty() {
            h3 { "Calls, and questions to people" }
            (call_table(shown, &step.calls, step.earlier_calls))
        }
        @for (number, attempt) in step.numbered_attempts().filter(|(_, attempt)| !attempt.calls.is_empty()) {
            h3 { "Calls of attempt " (number) ", from frame " (frame(shown, attempt.frame)) " on" }
            (call_table(shown, &attempt.calls, attempt.earlier_calls))
        }
    }
}

fn call_table(shown: &StepPanel<'_>, calls: &[CallSpan], earlier: usize) -> Markup {
    html! {
        @if earlier > 0 { p class="dim" { (counted(earlier as u64, "earlier one")) " left out" } }
        table class="calls" {
            tbody {
                @for call in calls {
                    tr {
                        td { span class={ "dot " (class_of_call(call)) } aria-hidden="true" {} (call.kind.as_words()) }
                        td class="id" { (Verbatim(&call.name)) }
                        td class="number" {
                            @match call.until_ms {
                                Some(until) => (duration(until.saturating_sub(call.from_ms))),
                                None => "open",
                            }
                        }
                        td class="number" { (cost(call.cost_micro_usd)) }
                        td class="number dim" {
                            "frame " (frame(shown, call.frame))
                            @if let Some(result) = call.result { "–" (frame(shown, result)) }
                        }
                    }
                }
            }
        }
    }
}

/// A step or an item, unless it is among those that are summed up.
pub(crate) fn find_span<'s>(steps: &'s [StepSpan], path: &str) -> Option<&'s StepSpan> {
    for step in steps {
        if step.path == path {
            return Some(step);
        }
        let in_children = step
            .children
            .iter()
            .find_map(|child| find_span(&child.steps, path));
        if let Some(found) = find_span(&step.items, path).or(in_children) {
            return Some(found);
        }
    }
    None
}

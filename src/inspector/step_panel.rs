//! The panel of a step: what it gave, why it failed or was skipped, and what it called.

use ktsu_history::skeleton::{RunSkeleton, StepSpan};
use maud::{Markup, html};

use crate::frame::{PagePlace, frame_link, query, root_of, segment};
use crate::status::{badge, class_of_call};
use crate::text::Verbatim;
use crate::units::{cost, counted, duration};
use crate::value::value;

/// The content of a step, of which the skeleton has the times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownStep {
    /// Its output, as JSON.
    pub output: Option<String>,
    /// Its output before reserved fields were taken out of it, as JSON.
    pub raw_output: Option<String>,
    /// The error with which it failed, in words.
    pub error: Option<String>,
    /// The reason why it was skipped.
    pub skip_reason: Option<String>,
}

/// A step that is selected on a page of its run.
pub(crate) struct StepPanel<'p> {
    /// The place of the page.
    pub(crate) place: PagePlace,
    /// The run.
    pub(crate) run: &'p RunSkeleton,
    /// The path of the step or the item: `call/inner`, `classify.8`.
    pub(crate) path: &'p str,
    /// What it gave.
    pub(crate) content: &'p ShownStep,
    /// The address of the page without a selection.
    pub(crate) close: String,
}

/// The panel of a step.
pub(crate) fn step_panel(shown: &StepPanel<'_>) -> Markup {
    let StepPanel { path, content, .. } = *shown;
    let span = find(&shown.run.steps, path);
    html! {
        h2 {
            (Verbatim(path)) " "
            @if let Some(step) = span { (badge(step.status.as_str())) }
        }
        @if let Some(step) = span { (about(shown, step)) }
        @if let Some(error) = &content.error { h3 { "Error" } p class="error" { (Verbatim(error)) } }
        @if let Some(reason) = &content.skip_reason { h3 { "Why it was skipped" } p { (Verbatim(reason)) } }
        @if let Some(output) = &content.output { h3 { "Output" } (value(output)) }
        (reasons(shown, span))
        @if let Some(raw) = &content.raw_output { h3 { "Output of the agent" } (value(raw)) }
        @if let Some(step) = span.filter(|step| !step.calls.is_empty()) {
            (calls(shown, step))
        }
        p { a href=(shown.close) { "Close" } }
    }
}

/// Links to where the output came from, and to why there is none.
fn reasons(shown: &StepPanel<'_>, span: Option<&StepSpan>) -> Markup {
    let StepPanel { path, content, .. } = *shown;
    let run = segment(root_of(&shown.run.run_id));
    let to = |name: &str, value: &str| {
        let query = query(&[(name, value)]);
        shown.place.link(&format!("runs/{run}/why{query}"))
    };
    let status = span.map_or("", |step| step.status.as_str());
    let words = match status {
        _ if content.skip_reason.is_some() => Some("Why it did not run"),
        "skipped" | "pending" => Some("Why it did not run"),
        "" | "complete" => None,
        _ => Some("Why it is not complete"),
    };
    html! {
        @if content.output.is_some() {
            p { a href=(to("of", &format!("step.{path}"))) { "Where the output came from" } }
        }
        @if let Some(words) = words { p { a href=(to("not", path)) { (words) } } }
    }
}

/// What a step is, and where it comes in the run.
fn about(shown: &StepPanel<'_>, step: &StepSpan) -> Markup {
    html! {
        p class="dim" {
            (Verbatim(&step.kind))
            @if step.attempt > 1 { ", attempt " (step.attempt) }
            @if let Some(seq) = step.frame { ", from frame " (frame(shown, seq)) " on" }
            @if !step.after.is_empty() { ", after " (Verbatim(step.after.join(", "))) }
        }
    }
}

/// A link to a frame of the run.
fn frame(shown: &StepPanel<'_>, seq: u64) -> Markup {
    html! { a href=(frame_link(shown.place, root_of(&shown.run.run_id), seq)) { (seq) } }
}

fn calls(shown: &StepPanel<'_>, step: &StepSpan) -> Markup {
    let earlier = step.earlier_calls;
    html! {
        h3 { "Calls, and questions to people" }
        @if earlier > 0 { p class="dim" { (counted(earlier as u64, "earlier one")) " left out" } }
        table class="calls" {
            tbody {
                @for call in &step.calls {
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
fn find<'s>(steps: &'s [StepSpan], path: &str) -> Option<&'s StepSpan> {
    for step in steps {
        if step.path == path {
            return Some(step);
        }
        let in_children = step
            .children
            .iter()
            .find_map(|child| find(&child.steps, path));
        if let Some(found) = find(&step.items, path).or(in_children) {
            return Some(found);
        }
    }
    None
}

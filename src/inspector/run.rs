//! The page of a run: what it is, how it ended, its time line, and the step that is selected.

use ktsu_history::skeleton::{RunSkeleton, StepSpan};
use maud::{Markup, html};

use crate::decide::{Permissions, run_forms};
use crate::frame::{
    PagePlace, RunTab, Section, SignedIn, frame_link, page, query, root_of, run_tabs, segment,
};
use crate::status::{badge, class_of_call};
use crate::text::{Verbatim, beginning};
use crate::timeline::{TimelineBar, TimelineDrawing, TimelineRow, TimelineView, layout};
use crate::units::{cost, counted, duration, moment};

/// The most characters of a value on the page; the API has all of it.
const MAX_VALUE: usize = 16 * 1024;
/// From this share of idle time on, in percent, it is offered to compress it.
const OFFER_IDLE: f64 = 50.0;

/// What a page of a run shows.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// What it may do.
    pub may: Permissions,
    /// The run.
    pub run: RunSkeleton,
    /// How its time line is looked at.
    pub view: TimelineView,
    /// The error with which it failed, in words.
    pub error: Option<String>,
    /// Its output, as JSON.
    pub output: Option<String>,
    /// The step that is selected.
    pub step: Option<ShownStep>,
}

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

const PLACE: PagePlace = PagePlace::BELOW;

/// The page of a run.
pub fn run_page(shown: &RunPage) -> String {
    let run = &shown.run;
    let drawing = layout(run, &shown.view);
    let body = html! {
        (head(shown))
        div class="columns" {
            section aria-label="Time line" { (timeline(shown, &drawing)) }
            aside aria-label="Details" {
                @match (&shown.view.selected, &shown.step) {
                    (Some(path), Some(content)) => (step_panel(shown, path, content)),
                    (Some(path), None) => {
                        p class="error" { "The run has no step " (Verbatim(path)) "." }
                        (run_panel(shown))
                    }
                    (None, _) => (run_panel(shown)),
                }
            }
        }
    };
    page(
        PLACE,
        Section::Runs,
        &format!("{} {}", run.workflow, run.run_id),
        &shown.by,
        &body,
    )
}

fn head(shown: &RunPage) -> Markup {
    let run = &shown.run;
    let totals = &run.totals;
    html! {
        div class="head" {
            p class="crumbs" {
                a href=(PLACE.link("runs")) { "Runs" } " / "
                a href=(PLACE.link(&format!("runs{}", query(&[("workflow", &run.workflow)])))) {
                    (Verbatim(&run.workflow))
                }
                " " (Verbatim(&run.version))
            }
            h1 { span class="id" { (Verbatim(&run.run_id)) } " " (badge(run.status.as_str())) }
            (run_tabs(PLACE, &run.run_id, RunTab::Overview))
            dl class="facts" {
                div {
                    dt { (duration(run.last_ms)) }
                    dd {
                        @if totals.waited_ms > 0 { (duration(totals.waited_ms)) " of it waiting for people" }
                        @else { "from the first frame to the last" }
                    }
                }
                div {
                    dt { @if totals.cost_micro_usd > 0 { (cost(totals.cost_micro_usd)) } @else { "no cost" } }
                    dd {
                        (counted(totals.llm_calls, "model call")) ", "
                        (totals.tokens_in) " + " (totals.tokens_out) " tokens"
                    }
                }
                div { dt { (Verbatim(&run.principal)) } dd { (moment(run.created_at)) } }
                div { dt { (counted(run.frames, "frame")) } dd { (counted(totals.tool_calls, "tool call")) } }
                @if run.waiting > 0 {
                    div {
                        dt { a href=(PLACE.link("inbox")) { (counted(run.waiting as u64, "question")) } }
                        dd { "waiting for people" }
                    }
                }
                @if let Some(branch) = &run.branch {
                    div {
                        dt { "a branch" }
                        dd {
                            "of " a href=(segment(&branch.parent_run_id)) { (Verbatim(&branch.parent_run_id)) }
                            " at frame " (branch.fork_position)
                        }
                    }
                }
            }
            @if shown.may.operate { (run_forms(PLACE, run)) }
            @if let Some(paused) = &run.paused { p class="note" { "Paused " (Verbatim(paused)) } }
            @if let Some(cancelled) = &run.cancelled { p class="note" { "Stopped " (Verbatim(cancelled)) } }
            @if let Some(error) = &shown.error { p class="note error" { (Verbatim(error)) } }
        }
    }
}

/// The address of the same page with another view.
fn link(shown: &RunPage, view: &TimelineView) -> String {
    let idle = if view.compress { "compress" } else { "" };
    let step = view.selected.as_deref().unwrap_or_default();
    let items = if view.all_items { "all" } else { "" };
    let query = query(&[("step", step), ("items", items), ("idle", idle)]);
    format!("{}{query}", segment(&shown.run.run_id))
}

fn timeline(shown: &RunPage, drawing: &TimelineDrawing) -> Markup {
    html! {
        (idle(shown, drawing))
        table class="timeline" {
            thead {
                tr {
                    th scope="col" { "Step" }
                    th scope="col" { (axis(drawing)) }
                    th scope="col" class="number" { "Time" }
                    th scope="col" class="number" { "Cost" }
                }
            }
            tbody { @for row in &drawing.rows { (timeline_row(shown, drawing, row)) } }
        }
        @if drawing.left_out > 0 {
            p class="dim" { "and " (counted(drawing.left_out as u64, "row")) " more" }
        }
    }
}

/// The offer to compress idle time, or to show it.
fn idle(shown: &RunPage, drawing: &TimelineDrawing) -> Markup {
    let other = TimelineView {
        compress: !shown.view.compress,
        ..shown.view.clone()
    };
    html! {
        @if shown.view.compress || drawing.idle_percent >= OFFER_IDLE {
            p class="bar" {
                span class="dim" { (format!("{:.1} % idle", drawing.idle_percent)) } " "
                a class="button" href=(link(shown, &other)) {
                    @if shown.view.compress { "Show idle time" } @else { "Compress idle time" }
                }
            }
        }
    }
}

/// The axis: words at their places, which are parts of the width, so that nothing is stretched.
fn axis(drawing: &TimelineDrawing) -> Markup {
    let at = |x: u32| format!("{}.{}%", x / 10, x % 10);
    html! {
        svg class="axis" role="img" {
            title { "Time since the run was created" }
            @for (x, word) in &drawing.ticks { text x=(at(*x)) y="14" { (word) } }
            @for (x, _, word) in &drawing.gaps { text class="gap" x=(at(*x)) y="14" { "// " (word) } }
        }
    }
}

fn timeline_row(shown: &RunPage, drawing: &TimelineDrawing, row: &TimelineRow) -> Markup {
    html! {
        tr class=[row.is_selected.then_some("selected")] {
            th scope="row" class={ "name " (indent(row.depth)) } {
                @if let Some(path) = &row.path {
                    @let view = TimelineView { selected: Some(path.clone()), ..shown.view.clone() };
                    a href=(link(shown, &view)) aria-current=[row.is_selected.then_some("true")] {
                        (Verbatim(&row.name))
                    }
                } @else if row.bar.is_some() && !shown.view.all_items {
                    @let view = TimelineView { all_items: true, ..shown.view.clone() };
                    a href=(link(shown, &view)) { (Verbatim(&row.name)) }
                } @else { span { (Verbatim(&row.name)) } }
                " " span class="kind" { (Verbatim(&row.kind)) }
                @if let Some(status) = row.status.as_deref().filter(|status| *status != "complete") {
                    " " (badge(status))
                }
                @if let Some(note) = &row.note { " " span class="dim" { (Verbatim(beginning(note, 60).0)) } }
            }
            td class="track" { (track(drawing, row)) }
            td class="number" { (row.took_ms.map(duration).unwrap_or_default()) }
            td class="number" { (cost(row.cost_micro_usd)) }
        }
    }
}

/// The class of a row by its place in the tree.
fn indent(depth: usize) -> &'static str {
    match depth {
        0 => "depth-0",
        1 => "depth-1",
        2 => "depth-2",
        3 => "depth-3",
        _ => "deeper",
    }
}

fn track(drawing: &TimelineDrawing, row: &TimelineRow) -> Markup {
    let bars = row.bar.iter().chain(&row.calls);
    let words: Vec<&str> = bars.map(|bar| bar.words.as_str()).take(20).collect();
    html! {
        svg viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" {
            title { (Verbatim(words.join("; "))) }
            @for (x, width, _) in &drawing.gaps {
                rect class="gap" x=(x) y="0" width=(width) height="24" {}
            }
            @if let Some(bar) = &row.bar { (rect(bar, 6, 12)) }
            @for call in &row.calls { (rect(call, 8, 8)) }
        }
    }
}

fn rect(bar: &TimelineBar, y: u32, height: u32) -> Markup {
    html! { rect class=(bar.class) x=(bar.x) y=(y) width=(bar.width) height=(height) {} }
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

fn run_panel(shown: &RunPage) -> Markup {
    html! {
        h2 { "Output" }
        @match &shown.output {
            Some(output) => (value(output)),
            None => p class="dim" { "The run has no output." },
        }
        p class="dim" { "Select a step to see what it gave and what it called." }
    }
}

fn step_panel(shown: &RunPage, path: &str, content: &ShownStep) -> Markup {
    let none = TimelineView {
        selected: None,
        ..shown.view.clone()
    };
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
        (reasons(shown, path, span, content))
        @if let Some(raw) = &content.raw_output { h3 { "Output of the agent" } (value(raw)) }
        @if let Some(step) = span.filter(|step| !step.calls.is_empty()) {
            (calls(shown, step))
        }
        p { a href=(link(shown, &none)) { "Close" } }
    }
}

/// Links to where the output came from, and to why there is none.
fn reasons(shown: &RunPage, path: &str, span: Option<&StepSpan>, content: &ShownStep) -> Markup {
    let run = segment(root_of(&shown.run.run_id));
    let to = |name: &str, value: &str| {
        let query = query(&[(name, value)]);
        PLACE.link(&format!("runs/{run}/why{query}"))
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
fn about(shown: &RunPage, step: &StepSpan) -> Markup {
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
fn frame(shown: &RunPage, seq: u64) -> Markup {
    html! { a href=(frame_link(PLACE, root_of(&shown.run.run_id), seq)) { (seq) } }
}

fn calls(shown: &RunPage, step: &StepSpan) -> Markup {
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

/// A value, as JSON. What is left out of a long one is said.
pub(crate) fn value(json: &str) -> Markup {
    let (shown, left_out) = beginning(json, MAX_VALUE);
    html! {
        pre tabindex="0" { (Verbatim(shown)) }
        @if left_out > 0 {
            p class="dim" { (counted(left_out as u64, "character")) " more; the API has all of it" }
        }
    }
}

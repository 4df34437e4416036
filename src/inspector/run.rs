//! The page of a run: what it is, how it ended, its time line, and the step that is selected.

use ktsu_history::family::RunFamily;
use ktsu_history::frame_window::FrameWanted;
use ktsu_history::skeleton::RunSkeleton;
use ktsu_history::step_summaries::StepSummaries;
use maud::{Markup, html};

use crate::branches::branches;
use crate::decide::{Permissions, run_forms};
use crate::diff::diff_link;
use crate::frame::{
    PagePlace, RunTab, Section, SignedIn, anchor, own_frame_link, page, query, root_of, run_tabs,
    segment,
};
use crate::frame_table::frames_link;
use crate::status::badge;
use crate::step_panel::{ShownStep, StepPanel, find_span, step_panel};
use crate::text::{Verbatim, beginning};
use crate::time_range::TimeRange;
use crate::timeline::{
    TimelineBar, TimelineDrawing, TimelineRow, TimelineTick, TimelineView, layout,
};
use crate::units::{cost, counted, duration, moment};
use crate::value::value;

/// From this share of idle time on, in percent, it is offered to compress it.
pub(crate) const OFFER_IDLE: f64 = 50.0;

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
    /// Its branches, and what it is one of.
    pub family: RunFamily,
    /// True if a person has to say that it continues.
    pub is_parked: bool,
    /// What the authors of its steps wrote about them.
    pub summaries: StepSummaries,
    /// The step that is selected.
    pub step: Option<ShownStep>,
    /// Its workflow in the kit that the engine serves.
    pub kit: Option<RunKit>,
}

/// The workflow of a run in the kit that an engine serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunKit {
    /// True if the definition of the run is the one that the kit has now.
    pub is_current: bool,
}

const PLACE: PagePlace = PagePlace::BELOW;

/// The page of a run.
pub fn run_page(shown: &RunPage) -> String {
    let run = &shown.run;
    let drawing = layout(run, &shown.view);
    let body = html! {
        div data-live=(root_of(&run.run_id)) data-part="head" { (head(PLACE, shown)) }
        div class="columns" {
            section data-part="timeline" aria-label="Time line" { (timeline(PLACE, shown, &drawing)) }
            aside data-part="details" aria-label="Details" {
                @match (&shown.view.selected, &shown.step) {
                    (Some(path), Some(content)) => (step_panel(&panel(shown, path, content))),
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

/// What a run is, and how it ended: its workflow with the version, its id, its status.
pub(crate) fn heading(
    place: PagePlace,
    run_id: &str,
    (workflow, version): (&str, &str),
    status: &str,
) -> Markup {
    html! {
        p class="crumbs" {
            @if let Some(runs) = place.page("runs") { a href=(runs) { "Runs" } " / " }
            a href=[place.page(&format!("runs{}", query(&[("workflow", workflow)])))] { (Verbatim(workflow)) }
            " " (Verbatim(version))
        }
        h1 { span class="id" { (Verbatim(run_id)) } " " (badge(status)) }
    }
}

/// What a run is, how it ended, and what it cost.
pub(crate) fn head(place: PagePlace, shown: &RunPage) -> Markup {
    let run = &shown.run;
    let totals = &run.totals;
    html! {
        div class="head" {
            (heading(place, &run.run_id, (&run.workflow, &run.version), run.status.as_str()))
            @if !place.is_file() { (run_tabs(place, &run.run_id, RunTab::Overview, run.loads_worlds)) }
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
                div {
                    dt { (Verbatim(&run.principal)) }
                    // That of a branch is one of the run it was forked from.
                    dd { @if run.branch.is_some() { "first frame " } (moment(run.created_at)) }
                }
                div { dt { (counted(run.frames, "frame")) } dd { (counted(totals.tool_calls, "tool call")) } }
                @if let Some(kit) = shown.kit {
                    div {
                        dt { a href=[place.page(&format!("kit/{}", segment(&run.workflow)))] { "Definition" } }
                        dd { @if kit.is_current { "as it is now" } @else { "since changed" } }
                    }
                }
                @if run.waiting > 0 {
                    div {
                        dt { a href=[place.page("inbox")] { (counted(run.waiting as u64, "question")) } }
                        dd { "waiting for people" }
                    }
                }
                @if let Some(branch) = &run.branch {
                    div {
                        dt { "a branch" }
                        dd {
                            "of " a href=[place.page(&format!("runs/{}", segment(&branch.parent_run_id)))] {
                                (Verbatim(&branch.parent_run_id))
                            }
                            " at frame " (branch.fork_position)
                            @if !place.is_file() {
                                "; "
                                a href=(diff_link(place, &branch.parent_run_id, &run.run_id)) {
                                    "Compare with the run it was forked from"
                                }
                            }
                        }
                    }
                }
            }
            @if shown.may.operate { (run_forms(place, run, shown.is_parked)) }
            @if shown.is_parked && run.paused.is_none() { p class="note" { "It waits to be resumed." } }
            @if let Some(paused) = &run.paused { p class="note" { "Paused " (Verbatim(paused)) } }
            @if let Some(cancelled) = &run.cancelled { p class="note" { "Stopped " (Verbatim(cancelled)) } }
            @if let Some(error) = &shown.error { p class="note error" { (Verbatim(error)) } }
        }
    }
}

/// The address of the same page with another view; in a file, of the part about the step that is selected.
fn link(place: PagePlace, shown: &RunPage, view: &TimelineView) -> Option<String> {
    if place.is_file() {
        let step = view.selected.as_deref()?;
        return Some(format!("#{}", anchor("step", step)));
    }
    let idle = if view.compress { "compress" } else { "" };
    let step = view.selected.as_deref().unwrap_or_default();
    let items = if view.all_items { "all" } else { "" };
    let number = |ms: Option<u64>| ms.map(|ms| ms.to_string()).unwrap_or_default();
    let from = number(view.range.map(TimeRange::begin_ms));
    let until = number(view.range.map(TimeRange::until_ms));
    let query = query(&[
        ("step", step),
        ("items", items),
        ("idle", idle),
        ("from", &from),
        ("until", &until),
    ]);
    Some(format!("{}{query}", segment(&shown.run.run_id)))
}

/// The time line, a row for each step.
pub(crate) fn timeline(place: PagePlace, shown: &RunPage, drawing: &TimelineDrawing) -> Markup {
    if shown.run.steps.is_empty() {
        return html! { p class="empty" { "The workflow has no steps of its own." } };
    }
    html! {
        @if !place.is_file() { (time_bar(shown, drawing)) }
        table class="timeline" {
            thead {
                tr {
                    th scope="col" { "Step" }
                    th scope="col" { (axis(place, shown, drawing)) }
                    th scope="col" class="number" { "Time" }
                    th scope="col" class="number" { "Cost" }
                }
            }
            tbody { @for row in &drawing.rows { (timeline_row(place, shown, drawing, row)) } }
        }
        @if drawing.left_out > 0 {
            p class="dim" { "and " (counted(drawing.left_out as u64, "row")) " more" }
        }
        @if shown.summaries.is_cut {
            p class="dim" { "Further summaries of steps are left out: they take too long to render." }
        }
        @if drawing.outside > 0 {
            p class="above dim" { (counted(drawing.outside as u64, "step")) " outside of this time" }
        }
    }
}

/// What else the time line can show: with idle time compressed, or another part of the time.
fn time_bar(shown: &RunPage, drawing: &TimelineDrawing) -> Markup {
    let view = &shown.view;
    let other = TimelineView {
        compress: !view.compress,
        ..view.clone()
    };
    let offers_idle = view.compress || drawing.idle_percent >= OFFER_IDLE;
    let end_ms = shown.run.last_ms;
    let zoomed = |range| {
        let view = TimelineView {
            range,
            ..view.clone()
        };
        link(PLACE, shown, &view)
    };
    let step = selected_time(shown).filter(|range| view.range != Some(*range));
    html! {
        @if offers_idle || view.range.is_some() || step.is_some() {
            p class="bar" {
                @if let Some(range) = view.range {
                    span class="number" { (duration(range.begin_ms())) " to " (duration(range.until_ms())) }
                    " " span class="dim" { "of " (duration(end_ms)) } " "
                    @if let Some(earlier) = range.earlier() { a class="button" href=[zoomed(Some(earlier))] { "‹ Earlier" } " " }
                    @if let Some(later) = range.later(end_ms) { a class="button" href=[zoomed(Some(later))] { "Later ›" } " " }
                    @if let Some(wider) = range.wider(end_ms) { a class="button" href=[zoomed(Some(wider))] { "Wider" } " " }
                    a class="button" href=[zoomed(None)] { "The whole run" } " "
                }
                @if let Some(range) = step { a class="button" href=[zoomed(Some(range))] { "Only this step's time" } " " }
                @if offers_idle {
                    span class="dim" { (format!("{:.1} % idle", drawing.idle_percent)) } " "
                    a class="button" href=[link(PLACE, shown, &other)] {
                        @if view.compress { "Show idle time" } @else { "Compress idle time" }
                    }
                }
            }
        }
    }
}

/// The time of the step that is selected, if the run had more than that.
fn selected_time(shown: &RunPage) -> Option<TimeRange> {
    let step = find_span(&shown.run.steps, shown.view.selected.as_deref()?)?;
    let end_ms = shown.run.last_ms;
    let range = TimeRange::around(step.from_ms?, step.until_ms.unwrap_or(end_ms));
    (range.begin_ms() > 0 || range.until_ms() < end_ms).then_some(range)
}

/// The axis: words at their places, which are parts of the width, so that nothing is stretched. Each leads to the time
/// from there to the next one; with a script, one selects any part of it.
fn axis(place: PagePlace, shown: &RunPage, drawing: &TimelineDrawing) -> Markup {
    let at = |x: u32| format!("{}.{}%", x / 10, x % 10);
    let points = drawing.scale.iter().map(|(ms, x)| format!("{ms}:{x}"));
    let points = points.collect::<Vec<_>>().join(" ");
    let to = |tick: &TimelineTick| {
        let range = tick.range?;
        let view = TimelineView {
            range: Some(range),
            ..shown.view.clone()
        };
        link(place, shown, &view).filter(|_| !place.is_file())
    };
    html! {
        svg class="axis" role="group" aria-label="Time since the run was created" data-scale=[(!place.is_file()).then_some(points)] {
            @for tick in &drawing.ticks {
                @match to(tick) {
                    Some(to) => a href=(to) aria-label={ "Only from " (tick.word) " on" } { text x=(at(tick.x)) y="14" { (tick.word) } },
                    None => text x=(at(tick.x)) y="14" { (tick.word) },
                }
            }
            @for (x, _, word) in &drawing.gaps { text class="gap" x=(at(*x)) y="14" { "// " (word) } }
        }
    }
}

fn timeline_row(
    place: PagePlace,
    shown: &RunPage,
    drawing: &TimelineDrawing,
    row: &TimelineRow,
) -> Markup {
    html! {
        tr class=[row_class(row)] {
            th scope="row" class={ "name " (indent(row.depth)) } {
                @if let Some(path) = &row.path {
                    @let view = TimelineView { selected: Some(path.clone()), ..shown.view.clone() };
                    a href=[link(place, shown, &view)] aria-current=[row.is_selected.then_some("true")] {
                        (Verbatim(&row.name))
                    }
                } @else if let Some(seq) = row.attempt {
                    a href=[own_frame_link(place, &shown.run.run_id, seq)] { (Verbatim(&row.name)) }
                } @else if let Some(step) = &row.summed {
                    a href=[more_items(place, shown, step)] { (Verbatim(&row.name)) }
                } @else { span { (Verbatim(&row.name)) } }
                " " span class="kind" { (Verbatim(&row.kind)) }
                @if let Some(status) = row.status.as_deref().filter(|status| *status != "complete") {
                    " " (badge(status))
                }
                @if let Some(note) = &row.note { " " span class="dim" { (Verbatim(beginning(note, 60).0)) } }
            }
            td class="track" {
                (track(drawing, row))
                @let summary = row.path.as_ref().and_then(|path| shown.summaries.words.get(path));
                @if let (Some(summary), Some(bar)) = (summary, &row.bar) { (words_at(bar, summary)) }
            }
            td class="number" { (row.took_ms.map(duration).unwrap_or_default()) }
            td class="number" { (cost(row.cost_micro_usd)) }
        }
    }
}

/// The address of the items that a row sums up: the same page with more of them, else the frames about their step.
fn more_items(place: PagePlace, shown: &RunPage, step: &str) -> Option<String> {
    if !shown.view.all_items {
        let view = TimelineView {
            all_items: true,
            ..shown.view.clone()
        };
        return link(place, shown, &view);
    }
    let wanted = FrameWanted {
        step: step.to_owned(),
        ..FrameWanted::default()
    };
    (!place.is_file()).then(|| frames_link(place, &shown.run.run_id, &wanted))
}

fn row_class(row: &TimelineRow) -> Option<&'static str> {
    match (row.is_selected, row.attempt) {
        (true, _) => Some("selected"),
        (false, Some(_)) => Some("attempt"),
        (false, None) => None,
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
        @let is_empty = words.is_empty();
        svg viewBox="0 0 1000 24" preserveAspectRatio="none" role=[(!is_empty).then_some("img")]
            aria-hidden=[is_empty.then_some("true")] {
            @if !is_empty { title { (Verbatim(words.join("; "))) } }
            @for (x, width, _) in &drawing.gaps {
                rect class="gap" x=(x) y="0" width=(width) height="24" {}
            }
            @if let Some(bar) = &row.bar { (rect(bar, 6, 12)) }
            @for call in &row.calls { (rect(call, 8, 8)) }
        }
    }
}

/// The place on the axis from which on words go to the left.
const LAST_BEGIN: u32 = 600;

/// Words below a bar, at its place.
fn words_at(bar: &TimelineBar, words: &str) -> Markup {
    let is_late = bar.x > LAST_BEGIN;
    let at = if is_late { bar.x + bar.width } else { bar.x };
    let at = at.min(1000);
    html! {
        svg class="words" {
            text x={ (at / 10) "." (at % 10) "%" } y="12" text-anchor=[is_late.then_some("end")] {
                title { (Verbatim(words)) }
                (Verbatim(words))
            }
        }
    }
}

fn rect(bar: &TimelineBar, y: u32, height: u32) -> Markup {
    html! { rect class=(bar.class) x=(bar.x) y=(y) width=(bar.width) height=(height) {} }
}

/// The panel of the step that is selected; it closes to the same view without a selection.
fn panel<'p>(shown: &'p RunPage, path: &'p str, content: &'p ShownStep) -> StepPanel<'p> {
    let none = TimelineView {
        selected: None,
        ..shown.view.clone()
    };
    StepPanel::beside(PLACE, &shown.run, path, content, link(PLACE, shown, &none))
}

fn run_panel(shown: &RunPage) -> Markup {
    html! {
        (output(shown))
        p class="dim" { "Select a step to see what it gave and what it called." }
        (branches(PLACE, &shown.run.run_id, &shown.family))
        h3 { "Evidence" }
        p class="dim" {
            @if shown.may.export {
                a href=(PLACE.link(&format!("../runs/{}/evidence", segment(root_of(&shown.run.run_id))))) download="" {
                    "Download the archive"
                }
                " of the run with its branches. "
            }
            a href=(PLACE.link("evidence")) { "What is signed" } ", and how to verify it. "
            a href=(PLACE.link(&format!("evals{}", query(&[("run", root_of(&shown.run.run_id))])))) { "Verdicts of checks" }
            " on the run"
        }
    }
}

/// What the run gave.
pub(crate) fn output(shown: &RunPage) -> Markup {
    html! {
        h2 { "Output" }
        @match &shown.output {
            Some(output) => (value(output)),
            None => p class="dim" { "The run has no output." },
        }
    }
}

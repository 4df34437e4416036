//! The page of all runs.

use ktsu_history::run_list::RunStatistics;
use ktsu_projections::index::RunRow;
use maud::{Markup, html};

use crate::frame::{PagePlace, Section, SignedIn, page, segment};
use crate::runs_plot::plot;
use crate::runs_view::RunsView;
use crate::status::badge;
use crate::text::Verbatim;
use crate::units::{cost, counted, duration, moment};

/// A page of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct RunsPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// How it is looked at.
    pub view: RunsView,
    /// What the form says that is not understood.
    pub problem: Option<String>,
    /// The statuses that may be asked for.
    pub statuses: Vec<String>,
    /// The conditions that may be asked for, and what they mean.
    pub flags: Vec<(&'static str, &'static str)>,
    /// The runs, newest first.
    pub rows: Vec<RunRow>,
    /// Figures of the newest runs that are asked for.
    pub statistics: RunStatistics,
    /// Where the next page begins.
    pub next: Option<String>,
    /// True if this is not the first page.
    pub is_later: bool,
}

const PLACE: PagePlace = PagePlace::TOP;

/// The page of all runs.
pub fn runs_page(runs: &RunsPage) -> String {
    let view = &runs.view;
    let subject = (!runs.is_later).then_some("runs");
    let body = html! {
        div data-live=[subject] {
            div class="head" {
                h1 { "Runs" }
                (filter(runs))
                @if let Some(problem) = &runs.problem { p class="alert" { (Verbatim(problem)) } }
            }
            div data-part="runs" {
                @if runs.statistics.all.runs > 0 { section class="over-time" aria-label="Over time" { (plot(&runs.statistics, view)) } }
                @if runs.rows.is_empty() { (empty(runs)) } @else { (table(&runs.rows)) }
                nav class="pages" aria-label="More runs" {
                    @if runs.is_later { a class="button" href=(view.link(None)) { "Newest" } }
                    @if let Some(next) = &runs.next { a class="button" href=(view.link(Some(next))) { "Older" } }
                }
            }
        }
    };
    page(PLACE, Section::Runs, "Runs", &runs.by, &body)
}

fn filter(runs: &RunsPage) -> Markup {
    let view = &runs.view;
    let field = |label: &str, name: &str, value: &str, example: &str| {
        html! {
            label { (label) " " input type="text" name=(name) value=(value) placeholder=(example); }
        }
    };
    html! {
        form method="get" action="runs" class="filter" role="search" {
            label {
                "Search "
                input type="search" name="text" value=(view.text) placeholder="id, workflow, error, principal";
            }
            (field("Workflow", "workflow", &view.workflow, ""))
            label {
                "Status "
                select name="status" {
                    option value="" selected[view.status.is_empty()] { "any" }
                    @for status in &runs.statuses {
                        option value=(status) selected[view.status == *status] { (status) }
                    }
                }
            }
            details class="more" open[view.is_narrow()] {
                summary class="button" { "More" }
                div class="filter" {
                    (field("By", "principal", &view.principal, "principal"))
                    (field("Since", "since", &view.since, "2026-11-20"))
                    (field("Before", "until", &view.until, "2026-11-21T10:00"))
                    (field("Cost from $", "min_cost", &view.min_cost, "0.01"))
                    label {
                        "Only "
                        select name="flag" {
                            option value="" selected[view.flag.is_empty()] { "any" }
                            @for (name, words) in &runs.flags {
                                option value=(name) selected[view.flag == *name] { (words) }
                            }
                        }
                    }
                }
            }
            button type="submit" { "Show" }
            @if *view != RunsView::default() { a href="runs" { "All runs" } }
        }
    }
}

fn empty(runs: &RunsPage) -> Markup {
    html! {
        div class="empty" {
            @if runs.next.is_some() {
                p { "None of the runs that were looked at is like this; older ones may be." }
            } @else if runs.view != RunsView::default() {
                p { "No run is like this." }
                p { a href="runs" { "Show all runs" } }
            } @else {
                p { "No run is recorded yet." }
                p { "Start one: " code { "ktsu invoke WORKFLOW" } }
            }
        }
    }
}

fn table(rows: &[RunRow]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Runs" {
            table class="runs" {
                thead {
                    tr {
                        th scope="col" { "Status" }
                        th scope="col" { "Run" }
                        th scope="col" { "Workflow" }
                        th scope="col" { "Started" }
                        th scope="col" { "By" }
                        th scope="col" class="number" { "Time" }
                        th scope="col" class="number" { "Cost" }
                        th scope="col" { "Remarks" }
                    }
                }
                tbody { @for row in rows { (run_row(row)) } }
            }
        }
    }
}

fn run_row(row: &RunRow) -> Markup {
    let took = row
        .ended_at
        .map(|ended| duration(ended.millis_since(row.created_at)));
    html! {
        tr {
            td { (badge(&row.status)) }
            td class="id" {
                a href={ "runs/" (segment(&row.run_id)) } { (Verbatim(&row.run_id)) }
            }
            td { (Verbatim(&row.workflow)) " " span class="dim" { (Verbatim(&row.version)) } }
            td class="id" { (moment(row.created_at)) }
            td { (Verbatim(row.principal.as_deref().unwrap_or_default())) }
            td class="number" { (took.unwrap_or_default()) }
            td class="number" { (cost(row.cost_micro_usd.unwrap_or_default())) }
            td {
                @if row.approvals > 0 {
                    a href="inbox" { (counted(u64::from(row.approvals), "question")) } " "
                }
                @if let Some(error) = &row.error { span class="error" { (Verbatim(error)) } " " }
                @if let Some(parent) = &row.parent_run_id {
                    "branch of "
                    a href={ "runs/" (segment(parent)) } { (Verbatim(parent)) }
                    @if let Some(at) = row.fork_position { " at frame " (at) }
                }
                @if row.paused_at.is_some() { span class="dim" { "paused" } }
            }
        }
    }
}

//! The page of all runs.

use ktsu_projections::index::RunRow;
use maud::{Markup, html};

use crate::frame::{PagePlace, Section, SignedIn, page, query, segment};
use crate::status::badge;
use crate::text::Verbatim;
use crate::units::{duration, moment};

/// How the list is looked at: the query of its address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunsView {
    /// Of this workflow only.
    pub workflow: String,
    /// With this status only.
    pub status: String,
}

/// A page of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunsPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// How it is looked at.
    pub view: RunsView,
    /// The statuses that may be asked for.
    pub statuses: Vec<String>,
    /// The runs, newest first.
    pub rows: Vec<RunRow>,
    /// Where the next page begins.
    pub next: Option<String>,
    /// True if this is not the first page.
    pub is_later: bool,
}

const PLACE: PagePlace = PagePlace::TOP;

/// The page of all runs.
pub fn runs_page(runs: &RunsPage) -> String {
    let view = &runs.view;
    let pairs = [
        ("workflow", view.workflow.as_str()),
        ("status", view.status.as_str()),
    ];
    let body = html! {
        div class="head" {
            h1 { "Runs" }
            (filter(runs))
        }
        @if runs.rows.is_empty() { (empty(runs)) } @else { (table(&runs.rows)) }
        nav class="pages" aria-label="More runs" {
            @if runs.is_later { a class="button" href={ "runs" (query(&pairs)) } { "Newest" } }
            @if let Some(next) = &runs.next {
                @let pairs = [pairs[0], pairs[1], ("cursor", next)];
                a class="button" href={ "runs" (query(&pairs)) } { "Older" }
            }
        }
    };
    page(PLACE, Section::Runs, "Runs", &runs.by, &body)
}

fn filter(runs: &RunsPage) -> Markup {
    html! {
        form method="get" action="runs" class="filter" role="search" {
            label { "Workflow " input type="text" name="workflow" value=(runs.view.workflow); }
            label {
                "Status "
                select name="status" {
                    option value="" selected[runs.view.status.is_empty()] { "any" }
                    @for status in &runs.statuses {
                        option value=(status) selected[runs.view.status == *status] { (status) }
                    }
                }
            }
            button type="submit" { "Show" }
        }
    }
}

fn empty(runs: &RunsPage) -> Markup {
    let is_filtered = runs.view != RunsView::default();
    html! {
        div class="empty" {
            @if is_filtered {
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
                        th scope="col" class="number" { "Time" }
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
            td class="number" { (took.unwrap_or_default()) }
            td {
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

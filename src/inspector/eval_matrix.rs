//! The table of an eval: a row for each scenario, a column for each check.

use ktsu_history::eval_sheet::{CheckCell, EvalSheet};
use ktsu_history::evals::ScenarioReport;
use maud::{Markup, html};

use crate::eval_view::{EvalPage, EvalView, link, scenario_name};
use crate::status::{badge, class, sign, words};
use crate::text::{Verbatim, beginning};
use crate::units::{counted, score};

/// The most rows of the table.
const MAX_ROWS: usize = 100;
/// The most columns; a scenario that is selected has all checks.
const MAX_COLUMNS: usize = 24;
/// The most characters of the name of a scenario.
const MAX_NAME: usize = 120;

/// The table, with what leads to its other rows.
pub(crate) fn matrix(shown: &EvalPage) -> Markup {
    let (sheet, view) = (&shown.sheet, &shown.view);
    let scenarios = sheet.report.scenarios.iter().enumerate();
    let rows: Vec<(usize, &ScenarioReport)> = scenarios
        .filter(|(_, one)| !view.failed_only || !matches!(one.status(), "passed" | "running"))
        .collect();
    let first = view.from.min(rows.len().saturating_sub(1)) / MAX_ROWS * MAX_ROWS;
    let later = first.saturating_add(MAX_ROWS);
    let left_out = sheet.checks.len().saturating_sub(MAX_COLUMNS);
    let at = |from: usize| EvalView {
        from,
        ..view.clone()
    };
    html! {
        (filter(shown))
        @if rows.is_empty() { p class="empty" {
            @if view.failed_only { "Every scenario passed." } @else { "No scenario has been judged yet." }
        } }
        @else {
            div class="scroll" tabindex="0" role="region" aria-label="Scenarios and checks" {
                table class="entries matrix" {
                    thead {
                        tr {
                            th scope="col" { "Scenario" }
                            th scope="col" { "Verdict" }
                            th scope="col" class="number" { "Score" }
                            @for check in sheet.checks.iter().take(MAX_COLUMNS) {
                                th scope="col" class="check" {
                                    (Verbatim(&check.name))
                                    @if check.gate { " " span class="dim" { "gate" } }
                                }
                            }
                            @if left_out > 0 { th scope="col" class="dim" { "and " (counted(left_out as u64, "check")) } }
                        }
                    }
                    tbody {
                        @for (place, scenario) in rows.iter().skip(first).take(MAX_ROWS) { (row(shown, *place, scenario)) }
                    }
                }
            }
        }
        nav class="pages" aria-label="More scenarios" {
            @if first > 0 { a class="button" href=(link(shown, &at(first.saturating_sub(MAX_ROWS)))) { "Earlier" } }
            @if later < rows.len() {
                a class="button" href=(link(shown, &at(later))) { "Later" }
                span class="dim" { (first + 1) " to " (later) " of " (counted(rows.len() as u64, "scenario")) }
            }
        }
    }
}

/// The choice between all scenarios and those that did not pass.
fn filter(shown: &EvalPage) -> Markup {
    let (report, view) = (&shown.sheet.report, &shown.view);
    let other = EvalView {
        failed_only: !view.failed_only,
        from: 0,
        ..view.clone()
    };
    html! {
        @if report.scenarios.len() > 1 && (report.failed + report.errors > 0 || view.failed_only) {
            p class="above" {
                @if view.failed_only { a href=(link(shown, &other)) { "All scenarios" } }
                @else { a href=(link(shown, &other)) { "Only those that did not pass" } }
            }
        }
    }
}

fn row(shown: &EvalPage, place: usize, scenario: &ScenarioReport) -> Markup {
    let selected = shown.view.selected(&shown.sheet.report);
    let is_selected = selected.is_some_and(|(selected, _)| selected == place);
    let to = link(
        shown,
        &EvalView {
            scenario: Some(place),
            replica: 0,
            ..shown.view.clone()
        },
    );
    let (name, left_out) = beginning(scenario_name(&shown.sheet, place), MAX_NAME);
    html! {
        tr class=[is_selected.then_some("selected")] {
            th scope="row" class="named" {
                a href=(to) aria-current=[is_selected.then_some("true")] { (Verbatim(name)) }
                @if left_out > 0 { span class="dim" { "… and " (counted(left_out as u64, "character")) } }
            }
            td { (badge(scenario.status())) @if scenario.is_flaky() { " " span class="dim" { "flaky" } } }
            td class="number" { @if let Some(number) = scenario.composite() { (score(number)) } }
            @for column in 0..shown.sheet.checks.len().min(MAX_COLUMNS) {
                td class="check" { @if let Some(cell) = EvalSheet::cell(scenario, column) { (cell_mark(cell)) } }
            }
            @if shown.sheet.checks.len() > MAX_COLUMNS { td {} }
        }
    }
}

/// A result as a sign in its colour; with how many of the replicas, or the score where it is neither 0 nor 1.
fn cell_mark(cell: CheckCell) -> Markup {
    let status = cell.status().as_str();
    html! {
        span class={ "mark " (class(status)) } role="img" aria-label=(cell_words(cell)) {
            span class="sign" { (sign(status)) }
            @if cell.all() > 1 { " " (cell.passed) "/" (cell.all()) }
            @else if !matches!(score(cell.score).as_str(), "0" | "1") { " " (score(cell.score)) }
        }
    }
}

/// A result in words.
pub(crate) fn cell_words(cell: CheckCell) -> String {
    match cell.all() {
        0 | 1 => words(cell.status().as_str()),
        all => format!("{} of {all} passed", cell.passed),
    }
}

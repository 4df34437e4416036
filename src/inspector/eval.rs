//! The page of an eval: its verdict, what became different since the eval of the same spec before it, a table of
//! scenarios and checks, and the findings about a scenario.

use ktsu_history::evals::EvalReport;
use maud::{Markup, html};

use crate::eval_links::{eval_link, spec_link, started, totals};
use crate::eval_matrix::{cell_words, matrix};
use crate::eval_panel::panel;
use crate::eval_plot::score_plot;
use crate::eval_view::{EvalPage, EvalView, PLACE, link, scenario_name};
use crate::frame::{Section, page};
use crate::status::{badge, words};
use crate::text::Verbatim;
use crate::units::{cost, counted, score};

/// The most differences that are listed.
const MAX_CHANGES: usize = 30;

/// The page of an eval.
pub fn eval_page(shown: &EvalPage) -> String {
    let report = &shown.sheet.report;
    let selected = shown.view.selected(report);
    let body = html! {
        (head(shown))
        div class="columns" {
            section aria-label="Scenarios and checks" {
                (since(shown))
                (matrix(shown))
            }
            aside class=[selected.is_some().then_some("kept")] aria-label="Findings" {
                @match (selected, shown.view.scenario) {
                    (Some((place, scenario)), _) => (panel(shown, place, scenario)),
                    (None, Some(place)) => p class="error" { "The eval has no scenario " (place) "." },
                    (None, None) => p class="dim" { "Select a scenario to see what its checks found." },
                }
            }
        }
    };
    let title = format!("{} {}", report.spec.file, words(&report.status));
    page(PLACE, Section::Evals, &title, &shown.by, &body)
}

fn head(shown: &EvalPage) -> Markup {
    let report = &shown.sheet.report;
    let evals: Vec<&EvalReport> = shown.of_spec.iter().collect();
    html! {
        div class="head" {
            p class="crumbs" {
                a href=(PLACE.link("evals")) { "Evals" } " / "
                a href=(spec_link(PLACE, &report.spec.file)) { (Verbatim(&report.spec.file)) }
            }
            h1 { span class="id" { (Verbatim(&report.eval_id)) } " " (badge(&report.status)) }
            dl class="facts" {
                @if let Some(number) = report.score() {
                    div { dt { (score(number)) } dd { "mean score" } }
                }
                div {
                    dt { (totals(report)) }
                    dd {
                        (counted(report.scenarios.len() as u64, "scenario"))
                        @if let Some(replicas) = &report.replicas {
                            ": " (replicas.passed) " of " (counted(u64::from(replicas.all()), "run")) " passed"
                        }
                    }
                }
                div { dt { (started(report)) } dd { "by " (Verbatim(&report.by)) ", " (Verbatim(&report.engine)) } }
                @if let Some(judges) = &report.judges {
                    div {
                        dt { (counted(judges.llm_calls, "judgement")) " of models" }
                        dd { @if judges.cost_micro_usd > 0 { (cost(judges.cost_micro_usd)) } @else { "no cost" } }
                    }
                }
            }
            @if report.sandbox.is_some() { p class="note" { "Programs of its checks ran without a sandbox." } }
            @if report.status == "running" {
                p class="note" { "It has not ended. If no process runs it any more: " code { "ktsu eval resume " (Verbatim(&report.eval_id)) " --kit DIR" } }
            }
        }
        @if evals.len() > 1 {
            section class="over-time" aria-label="Scores of the spec over time" { (score_plot(PLACE, &evals, &report.eval_id)) }
        }
    }
}

/// The results that differ from the eval of the same spec before.
fn since(shown: &EvalPage) -> Markup {
    let Some((earlier, changes)) = &shown.since else {
        return html! {};
    };
    let report = &shown.sheet.report;
    let left_out = changes.len().saturating_sub(MAX_CHANGES);
    html! {
        section class="since" aria-label="What became different" {
            p class="above" {
                @if changes.is_empty() { "No check has another result than in " }
                @else { (counted(changes.len() as u64, "check")) " with another result than in " }
                a class="id" href=(eval_link(PLACE, earlier)) { (Verbatim(earlier)) }
                " before it"
            }
            @if !changes.is_empty() {
                ul class="plain above" {
                    @for change in changes.iter().take(MAX_CHANGES) {
                        @let view = EvalView { scenario: Some(change.scenario), replica: 0, ..shown.view.clone() };
                        li {
                            (badge(change.before.status().as_str())) " → " (badge(change.after.status().as_str())) " "
                            a href=(link(shown, &view)) { (Verbatim(&change.check)) }
                            @if report.scenarios.len() > 1 { " of " (Verbatim(scenario_name(&shown.sheet, change.scenario))) }
                            @if change.after.all() > 1 { span class="dim" { " " (cell_words(change.before)) " before, now " (cell_words(change.after)) } }
                        }
                    }
                    @if left_out > 0 { li class="dim" { "and " (left_out) " more" } }
                }
            }
        }
    }
}

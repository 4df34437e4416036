//! The page of all evals: the verdicts, and the scores of each spec over time.

use ktsu_history::eval_list::EvalList;
use ktsu_history::evals::{EvalReport, ScenarioReport};
use ktsu_ledger::StreamId;
use maud::{Markup, html};

use crate::eval_links::{eval_link, spec_link, started, totals};
use crate::eval_plot::score_plot;
use crate::frame::{PagePlace, Section, SignedIn, page, query, segment};
use crate::status::badge;
use crate::text::Verbatim;
use crate::units::{counted, score};

/// The most specs whose scores are drawn over time.
const MAX_SPECS: usize = 12;

/// What the page of evals shows.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalsPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// How it is looked at.
    pub view: EvalsView,
    /// The evals, newest first.
    pub list: EvalList,
}

/// How evals are looked at: the query of the page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvalsView {
    /// Only those of a spec with this file name; all if it is empty.
    pub file: String,
    /// Only those of this run; all if it is empty.
    pub run: String,
    /// Only those that began before this one; all if it is empty.
    pub before: String,
}

const PLACE: PagePlace = PagePlace::TOP;

/// The page of all evals.
pub fn evals_page(shown: &EvalsPage) -> String {
    let view = &shown.view;
    let is_narrow = !view.file.is_empty() || !view.run.is_empty();
    let body = html! {
        div class="head" {
            h1 { "Evals" }
            p class="dim" {
                "Verdicts of checks on finished runs, newest first."
                @if !view.file.is_empty() { " Of the spec " span class="id" { (Verbatim(&view.file)) } "." }
                @if !view.run.is_empty() { " Of the run " a class="id" href={ "runs/" (segment(&view.run)) } { (Verbatim(&view.run)) } "." }
                @if is_narrow { " " a href="evals" { "All evals" } }
            }
        }
        @if shown.list.evals.is_empty() { (empty(shown, is_narrow)) }
        @else {
            (over_time(shown))
            (table(&shown.list))
        }
        nav class="pages" aria-label="More evals" {
            @if !view.before.is_empty() { a class="button" href=(link(view, None)) { "Newest" } }
            @if let Some(next) = &shown.list.next { a class="button" href=(link(view, Some(next))) { "Older" } }
        }
    };
    page(PLACE, Section::Evals, "Evals", &shown.by, &body)
}

fn link(view: &EvalsView, before: Option<&StreamId>) -> String {
    let before = before.map_or("", StreamId::name);
    let query = query(&[("spec", &view.file), ("run", &view.run), ("before", before)]);
    format!("evals{query}")
}

fn empty(shown: &EvalsPage, is_narrow: bool) -> Markup {
    html! {
        div class="empty" {
            @if shown.list.next.is_some() {
                p { "None of the evals that were looked at is like this; older ones may be." }
            } @else if is_narrow {
                p { "No eval is like this." }
                p { a href="evals" { "Show all evals" } }
            } @else {
                p { "No verdict is recorded yet." }
                p { "Check a finished run: " code { "ktsu check RUN --spec FILE" } }
                p { "Run a suite: " code { "ktsu eval run FILE --kit DIR" } }
            }
        }
    }
}

/// The scores of each spec over time, those first that were judged last.
fn over_time(shown: &EvalsPage) -> Markup {
    let evals: Vec<&EvalReport> = shown.list.evals.iter().flatten().collect();
    let mut files: Vec<&str> = Vec::new();
    for eval in &evals {
        if !files.contains(&eval.spec.file.as_str()) {
            files.push(&eval.spec.file);
        }
    }
    let left_out = files.len().saturating_sub(MAX_SPECS);
    html! {
        section class="specs" aria-label="Scores over time" {
            @for file in files.iter().take(MAX_SPECS) {
                @let of_file: Vec<&EvalReport> = evals.iter().copied().filter(|eval| eval.spec.file == *file).collect();
                @if let Some(newest) = of_file.first() {
                    div class="spec" {
                        h2 {
                            a href=(spec_link(PLACE, file)) { (Verbatim(file)) }
                            " " (badge(&newest.status))
                            @if let Some(number) = newest.score() { " " span class="number" { (score(number)) } }
                        }
                        (score_plot(PLACE, &of_file, ""))
                    }
                }
            }
        }
        @if left_out > 0 { p class="above dim" { (counted(left_out as u64, "other spec")) " in the list below" } }
    }
}

fn table(list: &EvalList) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Evals" {
            table class="runs" {
                thead {
                    tr {
                        th scope="col" { "Verdict" }
                        th scope="col" { "Eval" }
                        th scope="col" { "Spec" }
                        th scope="col" class="number" { "Score" }
                        th scope="col" { "Scenarios" }
                        th scope="col" { "Run" }
                        th scope="col" { "By" }
                        th scope="col" { "Started" }
                    }
                }
                tbody {
                    @for eval in &list.evals {
                        @match eval {
                            Ok(report) => (row(report)),
                            Err(stream) => {
                                tr {
                                    td { (badge("unreadable")) }
                                    td class="id" { (Verbatim(stream.name())) }
                                    td colspan="6" { "its frames do not make an eval: " code { "ktsu verify" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn row(report: &EvalReport) -> Markup {
    let mut runs = report.scenarios.iter().flat_map(ScenarioReport::runs);
    let only = runs.next().filter(|_| runs.next().is_none());
    html! {
        tr {
            td { (badge(&report.status)) }
            td class="id" { a href=(eval_link(PLACE, &report.eval_id)) { (Verbatim(&report.eval_id)) } }
            td { a href=(spec_link(PLACE, &report.spec.file)) { (Verbatim(&report.spec.file)) } }
            td class="number" { @if let Some(number) = report.score() { (score(number)) } }
            td { (totals(report)) }
            td class="id" {
                @match only {
                    Some(run) => a href={ "runs/" (segment(&run.run_id)) } { (Verbatim(&run.run_id)) },
                    None => span class="dim" { (counted(report.scenarios.iter().map(|one| one.runs().len() as u64).sum(), "run")) },
                }
            }
            td { (Verbatim(&report.by)) }
            td class="id" { (started(report)) }
        }
    }
}

//! The addresses of evals, and what their lists say of each.

use ktsu_history::evals::EvalReport;
use ktsu_ledger::Timestamp;
use maud::{Markup, html};

use crate::frame::{PagePlace, query, segment};
use crate::units::moment;

/// The address of the evals of a spec.
pub(crate) fn spec_link(place: PagePlace, file: &str) -> String {
    place.link(&format!("evals{}", query(&[("spec", file)])))
}

/// The address of an eval.
pub(crate) fn eval_link(place: PagePlace, eval: &str) -> String {
    place.link(&format!("evals/{}", segment(eval)))
}

/// The time at which an eval began.
pub(crate) fn started(report: &EvalReport) -> String {
    let at = report.at.parse::<Timestamp>();
    at.map(moment).unwrap_or_default()
}

/// `7 of 9 passed, 1 failed, 1 could not be judged, 2 flaky`.
pub(crate) fn totals(report: &EvalReport) -> Markup {
    let all = report.passed + report.failed + report.errors;
    html! {
        (report.passed) " of " (all) " passed"
        @if report.failed > 0 { ", " span class="error" { (report.failed) " failed" } }
        @if report.errors > 0 { ", " (report.errors) " without a verdict" }
        @if report.flaky > 0 { ", " (report.flaky) " flaky" }
    }
}

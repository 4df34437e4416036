//! What the checks of a scenario found, beside the table of its eval.

use ktsu_history::eval_sheet::{CheckColumn, rests_on_run};
use ktsu_history::evals::{RunVerdict, ScenarioReport};
use ktsu_ledger::event::CheckResult;
use maud::{Markup, html};

use crate::eval_view::{EvalPage, EvalView, PLACE, link, scenario_name};
use crate::frame::{frame_link, segment};
use crate::status::badge;
use crate::text::{Verbatim, beginning};
use crate::units::{counted, duration, score};

/// The most frames that are listed of what a check looked at.
const MAX_FRAMES: usize = 12;
/// The most frames whose content is said in words, of all checks of a run together.
const MAX_FRAMES_IN_WORDS: usize = 100;
/// The most checks that are shown with their findings.
const MAX_CHECKS: usize = 200;
/// The most characters of a reason.
const MAX_REASON: usize = 4_000;
/// The most characters of what a frame says.
const MAX_WORDS: usize = 160;
/// The most replicas that are listed.
const MAX_REPLICAS: usize = 100;

/// The numbers of the frames whose content is said in words beside the findings about a run: those of checks that did not
/// pass come first.
pub fn frames_to_say(run: &RunVerdict) -> Vec<u64> {
    let results = run.results.iter().filter(|result| rests_on_run(result));
    let (passed, others): (Vec<&CheckResult>, Vec<&CheckResult>) =
        results.partition(|result| result.passed);
    let results = others.into_iter().chain(passed);
    let frames = results.flat_map(|one| one.looked_at.frames.iter().take(MAX_FRAMES).copied());
    let mut frames: Vec<u64> = frames.take(MAX_FRAMES_IN_WORDS).collect();
    frames.sort_unstable();
    frames.dedup();
    frames
}

/// The findings about a scenario.
pub(crate) fn panel(shown: &EvalPage, place: usize, scenario: &ScenarioReport) -> Markup {
    let run = shown.view.run(scenario);
    html! {
        h2 { (Verbatim(scenario_name(&shown.sheet, place))) " " (badge(scenario.status())) }
        @if let ScenarioReport::Replicas(_) = scenario { (replicas(shown, place, scenario)) }
        @match run {
            Some(run) => (findings(shown, run)),
            None => p class="error" { "The scenario has no replica " (shown.view.replica) "." },
        }
    }
}

/// The replicas of a scenario, of which one is shown.
fn replicas(shown: &EvalPage, place: usize, scenario: &ScenarioReport) -> Markup {
    let runs = scenario.runs();
    let passed = runs.iter().filter(|run| run.passed).count();
    let left_out = runs.len().saturating_sub(MAX_REPLICAS);
    let to = |replica: usize| {
        let view = EvalView {
            scenario: Some(place),
            replica,
            ..shown.view.clone()
        };
        link(shown, &view)
    };
    html! {
        p class="dim" {
            (passed) " of " (counted(runs.len() as u64, "replica")) " passed"
            @if scenario.is_flaky() { ", flaky" }
        }
        nav class="replicas" aria-label="Replicas" {
            @for (replica, run) in runs.iter().enumerate().take(MAX_REPLICAS) {
                a href=(to(replica)) aria-current=[(replica == shown.view.replica).then_some("true")] {
                    (replica) " " (badge(&run.status))
                }
            }
            @if left_out > 0 { span class="dim" { "and " (left_out) " more" } }
        }
    }
}

fn findings(shown: &EvalPage, run: &RunVerdict) -> Markup {
    let left_out = run.results.len().saturating_sub(MAX_CHECKS);
    html! {
        p {
            "Run " a class="id" href=(PLACE.link(&format!("runs/{}", segment(&run.run_id)))) { (Verbatim(&run.run_id)) }
            span class="dim" { ", judged by its first " (counted(run.frames, "frame")) }
        }
        @if let Some(composite) = run.composite {
            p {
                "Score " span class="number" { (score(composite)) }
                @if let Some(threshold) = run.pass_threshold {
                    span class="dim" { @if run.passed { ", reaches " } @else { "; it passes from " } (score(threshold)) }
                }
            }
        }
        @if let Some(error) = &run.error { p class="error" { "No check was made: " (Verbatim(unchecked(error))) } }
        @if !run.abandoned.is_empty() {
            p class="dim" { (counted(run.abandoned.len() as u64, "earlier run")) " of it interrupted and not judged" }
        }
        @for (place, result) in run.results.iter().enumerate().take(MAX_CHECKS) {
            (finding(shown, run, shown.sheet.checks.get(place), result))
        }
        @if left_out > 0 { p class="dim" { (counted(left_out as u64, "other check")) ": " code { "ktsu evals " (Verbatim(&shown.sheet.report.eval_id)) } } }
    }
}

/// The reason why no check was made, in words.
fn unchecked(error: &str) -> &str {
    match error {
        "waiting" => "the run waited for a person",
        "timeout" => "the run took too long",
        "not_kept" => "what the run left is not kept",
        other => other,
    }
}

fn finding(
    shown: &EvalPage,
    run: &RunVerdict,
    column: Option<&CheckColumn>,
    result: &CheckResult,
) -> Markup {
    let (reason, left_out) = beginning(&result.reason, MAX_REASON);
    html! {
        section class="finding" aria-label={ "Check " (Verbatim(&result.name)) } {
            h3 { (badge(result.status.as_str())) " " span class="id" { (Verbatim(&result.name)) } }
            @if let Some(description) = column.and_then(|column| column.description.as_deref()) { p { (Verbatim(description)) } }
            p class="meta" {
                (Verbatim(&result.check)) ", weight " (score(result.weight))
                @if result.gate { ", gate" }
                @if !result.passed || score(result.score) != "1" { ", score " (score(result.score)) }
                @if result.duration_ms > 0 { ", " (duration(result.duration_ms)) }
            }
            @if reason.contains('\n') { pre { (Verbatim(reason)) } }
            @else { p class=[(!result.passed).then_some("error")] { (Verbatim(reason)) } }
            @if left_out > 0 { p class="cut" { "… and " (counted(left_out as u64, "character")) } }
            (looked_at(shown, run, result))
        }
    }
}

/// The frames that a result rests on.
fn looked_at(shown: &EvalPage, run: &RunVerdict, result: &CheckResult) -> Markup {
    let at = &result.looked_at;
    let listed = at.frames.iter().take(MAX_FRAMES);
    let left_out = at.count.saturating_sub(listed.len() as u64);
    html! {
        @if at.frames.is_empty() {}
        @else if !rests_on_run(result) {
            p class="meta" {
                "Its questions and replies are frames of the eval: "
                code { "ktsu frames " (Verbatim(&shown.sheet.report.eval_id)) }
            }
        } @else {
            ul class="plain trace" aria-label="Frames that it rests on" {
                @for seq in listed {
                    @let node = shown.frames.iter().find(|node| node.seq == *seq);
                    li {
                        a class="number" href=(frame_link(PLACE, &run.run_id, *seq)) { (seq) }
                        @if let Some(node) = node {
                            " " span class="id" { (Verbatim(&node.kind)) } " "
                            @if let Some(step) = &node.step { (Verbatim(step)) " " }
                            span class="dim" { (Verbatim(beginning(&node.detail, MAX_WORDS).0)) }
                        }
                    }
                }
                @if left_out > 0 { li class="dim" { "and " (counted(left_out, "frame")) } }
            }
        }
    }
}

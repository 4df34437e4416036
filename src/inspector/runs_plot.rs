//! The plot above the list of runs: how many there were over time, and how they went.

use ktsu_history::run_list::{RunFigures, RunStatistics};
use ktsu_ledger::Timestamp;
use maud::{Markup, html};

use crate::runs_view::RunsView;
use crate::text::Verbatim;
use crate::units::{cost, counted, duration, moment};

/// The width of an interval in units of the drawing, with the space behind it.
const WIDTH: u64 = 10;
/// The height of the drawing.
const HEIGHT: u64 = 44;

/// A bar of the plot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlotBar {
    /// `ok`, `bad` or `run`.
    pub(crate) class: &'static str,
    /// Its place and size.
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) height: u64,
}

/// The bars of one interval, from below: what completed, what failed, what is neither.
pub(crate) fn bars(place: u64, figures: &RunFigures, most: u64) -> Vec<PlotBar> {
    let other = figures
        .runs
        .saturating_sub(figures.complete + figures.failed);
    let parts = [
        ("ok", figures.complete),
        ("bad", figures.failed),
        ("run", other),
    ];
    let mut y = HEIGHT;
    let mut bars = Vec::new();
    for (class, count) in parts {
        if count == 0 {
            continue;
        }
        // What there is, is seen: also one failure among a thousand.
        let height = (count * (HEIGHT - 6) / most.max(1)).max(2);
        y = y.saturating_sub(height);
        bars.push(PlotBar {
            class,
            x: place * WIDTH,
            y,
            height,
        });
    }
    bars
}

/// The plot, and its figures in words.
pub(crate) fn plot(statistics: &RunStatistics, view: &RunsView) -> Markup {
    let all = &statistics.all;
    let intervals = &statistics.intervals;
    let most = intervals.iter().map(|one| one.runs).max().unwrap_or(0);
    let since = statistics.since.parse::<Timestamp>().unwrap_or_default();
    let at = |place: u64| since.plus_millis(statistics.interval_ms.saturating_mul(place));
    let width = WIDTH * intervals.len() as u64;
    html! {
        div class="plot" {
            svg viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" aria-label="Runs over time" role="group" {
                @for (place, figures) in (0u64..).zip(intervals) {
                    @if figures.runs > 0 {
                        @let narrowed = RunsView {
                            since: at(place).to_string(),
                            until: at(place + 1).to_string(),
                            ..view.clone()
                        };
                        a href=(narrowed.link(None)) aria-label=(label(at(place), figures)) {
                            title { (label(at(place), figures)) }
                            rect class="hit" x=(place * WIDTH) y="0" width=(WIDTH - 1) height=(HEIGHT) {}
                            @for bar in bars(place, figures, most) {
                                rect class=(bar.class) x=(bar.x) y=(bar.y) width=(WIDTH - 2) height=(bar.height) {}
                            }
                        }
                    }
                }
            }
            p class="ends dim" {
                span { (moment(since)) }
                span { "each bar " (duration(statistics.interval_ms)) }
                span { (moment(at(intervals.len() as u64))) }
            }
        }
        dl class="facts figures" {
            div {
                dt { @if !statistics.is_whole { "the newest " } (counted(all.runs, "run")) }
                dd { (all.complete) " complete" @if all.open > 0 { ", " (all.open) " open" } }
            }
            div {
                dt class=[(all.failed > 0).then_some("error")] { (all.failed) " failed" }
                dd { @if all.runs > 0 { (all.failed * 100 / all.runs) " %" } }
            }
            @if let (Some(half), Some(most)) = (all.p50_ms, all.p95_ms) {
                div { dt { (duration(half)) } dd { "median; 95 % within " (duration(most)) } }
            }
            @if all.cost_micro_usd > 0 { div { dt { (cost(all.cost_micro_usd)) } dd { "of runs that ended" } } }
        }
    }
}

fn label(at: Timestamp, figures: &RunFigures) -> Verbatim<String> {
    let failed = match figures.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    Verbatim(format!(
        "{}: {}{failed}",
        moment(at),
        counted(figures.runs, "run")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_among_a_thousand_runs_is_seen() {
        let figures = RunFigures {
            runs: 1_000,
            complete: 999,
            failed: 1,
            ..RunFigures::default()
        };
        let bars = bars(3, &figures, 1_000);
        let shown: Vec<_> = bars.iter().map(|bar| (bar.class, bar.height)).collect();
        assert_eq!(shown, [("ok", 37), ("bad", 2)]);
        assert!(
            bars.iter()
                .all(|bar| bar.x == 30 && bar.y + bar.height <= HEIGHT)
        );
    }
}

//! The page of a step or an item: everything that is recorded of it.

use ktsu_history::skeleton::RunSkeleton;
use maud::html;

use crate::frame::{PagePlace, RunTab, Section, SignedIn, page, query, root_of, run_tabs, segment};
use crate::status::badge;
use crate::step_panel::{ShownStep, StepPanel, step_panel};
use crate::text::Verbatim;
use crate::units::{cost, counted, duration};

/// What a page of a step shows.
#[derive(Debug, Clone, PartialEq)]
pub struct StepPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The run.
    pub run: RunSkeleton,
    /// The path of the step or the item from the run: `call/inner`, `classify.8`.
    pub path: String,
    /// What it gave.
    pub content: ShownStep,
    /// The name of the value that is shown whole; empty for none.
    pub all: String,
}

const PLACE: PagePlace = PagePlace::STEP;

/// The page of a step.
pub fn step_page(shown: &StepPage) -> String {
    let run = &shown.run;
    let panel = StepPanel::whole(PLACE, run, &shown.path, &shown.content, &shown.all);
    let span = panel.span();
    let at = PLACE.link(&format!("runs/{}", segment(&run.run_id)));
    let body = html! {
        div class="head" data-live=(root_of(&run.run_id)) data-part="head" {
            p class="crumbs" {
                a href=(PLACE.link("runs")) { "Runs" } " / "
                a href=(at) { (Verbatim(&run.workflow)) " " span class="id" { (Verbatim(&run.run_id)) } }
            }
            h1 { (Verbatim(&shown.path)) " " @if let Some(step) = span { (badge(step.status.as_str())) } }
            (run_tabs(PLACE, &run.run_id, RunTab::Step, run.loads_worlds))
            dl class="facts" {
                @if let Some(step) = span {
                    div { dt { (step.took_until(run.last_ms).map_or_else(|| "–".to_owned(), duration)) } dd { "time" } }
                    @if step.metrics.llm_calls > 0 {
                        div {
                            dt { @if step.metrics.cost_micro_usd > 0 { (cost(step.metrics.cost_micro_usd)) } @else { "no cost" } }
                            dd {
                                (counted(step.metrics.llm_calls, "model call")) ", "
                                (step.metrics.tokens_in) " + " (step.metrics.tokens_out) " tokens"
                            }
                        }
                    }
                }
                div {
                    dt { a href={ (at) (query(&[("step", &shown.path)])) } { "Time line" } }
                    dd { "with this step selected" }
                }
                div {
                    dt { a href={ (at) "/frames" (query(&[("step", &shown.path)])) } { "Frames" } }
                    dd { "about it" }
                }
            }
        }
        section class="step" data-part="step" aria-label="Step" { (step_panel(&panel)) }
    };
    page(
        PLACE,
        Section::Runs,
        &format!("{} of {}", shown.path, run.run_id),
        &shown.by,
        &body,
    )
}

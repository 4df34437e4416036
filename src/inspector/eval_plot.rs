//! The scores of the evals of one spec over time.

use ktsu_history::evals::EvalReport;
use maud::{Markup, html};

use crate::eval_links::{eval_link, started};
use crate::frame::PagePlace;
use crate::status::{class, words};
use crate::text::Verbatim;
use crate::units::score;

/// The width of a bar in units of the drawing, with the space behind it.
const WIDTH: u64 = 10;
/// The height of the drawing.
const HEIGHT: f64 = 44.0;
/// The fewest bars that a drawing has room for, so that few do not fill it.
const FEWEST: u64 = 20;

/// A bar for each eval, the oldest first: as high as its score, in the colour of its verdict. `evals` are newest first.
pub(crate) fn score_plot(place: PagePlace, evals: &[&EvalReport], current: &str) -> Markup {
    let width = WIDTH * FEWEST.max(evals.len() as u64);
    html! {
        div class="plot scores" {
            svg viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="group" aria-label="Scores over time" {
                @for (at, eval) in (0u64..).zip(evals.iter().rev()) {
                    @let is_current = eval.eval_id == current;
                    @let height = bar_height(eval);
                    a href=(eval_link(place, &eval.eval_id)) aria-label=(label(eval)) aria-current=[is_current.then_some("true")] {
                        title { (label(eval)) }
                        rect class="hit" x=(at * WIDTH) y="0" width=(WIDTH - 1) height=(HEIGHT) {}
                        rect class=(class(&eval.status)) x=(at * WIDTH) y=(HEIGHT - height) width=(WIDTH - 2) height=(height) {}
                    }
                }
            }
        }
    }
}

/// The height of the bar of an eval; even that of a score of 0 is seen.
fn bar_height(eval: &EvalReport) -> f64 {
    let score = eval.score().map_or(0.0, |score| score.get());
    (score.clamp(0.0, 1.0) * (HEIGHT - 4.0)).round().max(2.0)
}

fn label(eval: &EvalReport) -> Verbatim<String> {
    let number = eval.score().map_or_else(String::new, score);
    Verbatim(format!(
        "{}: {} {number}",
        started(eval),
        words(&eval.status)
    ))
}

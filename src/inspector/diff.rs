//! The page of two runs, side by side.

use ktsu_history::diff::ComparedSpans;
use ktsu_history::skeleton::{RunSkeleton, StepSpan};
use ktsu_projections::diff::ComparedFrame;
use maud::{Markup, html};

use crate::change_sides::{ChangeSide, change_sides};
use crate::compare::{AlignedRuns, AlignedStep, Difference, align};
use crate::estimate::fork_outcome;
use crate::frame::{PagePlace, Section, SignedIn, frame_link, page, query, root_of, segment};
use crate::status::badge;
use crate::text::Verbatim;
use crate::units::{cost, counted, duration};
use crate::word_diff::WordBudget;

/// The most differences on the page.
const MAX_DIFFERENCES: usize = 200;
/// The most differences of one step on the page.
const MAX_OF_STEP: usize = 25;
/// The most steps that differ, and the most that are equal, on the page.
const MAX_STEPS: usize = 200;
/// The most frames that are linked one by one.
const MAX_FRAMES: usize = 8;

/// What a page of two runs shows.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The first run, as it is asked for.
    pub a: String,
    /// The second.
    pub b: String,
    /// Both, compared, if both are given.
    pub compared: Option<Box<ComparedSpans>>,
}

const PLACE: PagePlace = PagePlace::TOP;

/// The page of two runs.
pub fn diff_page(shown: &DiffPage) -> String {
    let body = html! {
        div class="head" {
            p class="crumbs" { a href="runs" { "Runs" } " / compare" }
            h1 { "Two runs side by side" }
            (form(shown))
        }
        @if let Some(compared) = &shown.compared { (comparison(compared)) }
    };
    page(PLACE, Section::Runs, "Compare", &shown.by, &body)
}

fn form(shown: &DiffPage) -> Markup {
    html! {
        form method="get" action="diff" class="filter" {
            label { "A " input type="text" name="a" required value=(Verbatim(&shown.a)) size="38" spellcheck="false"; }
            label { "B " input type="text" name="b" required value=(Verbatim(&shown.b)) size="38" spellcheck="false"; }
            button type="submit" { "Compare" }
            @if shown.compared.is_some() {
                a class="button" href=(diff_link(PLACE, &shown.b, &shown.a)) { "Swap" }
            }
        }
    }
}

/// The address of the comparison of two runs.
pub(crate) fn diff_link(place: PagePlace, a: &str, b: &str) -> String {
    place.link(&format!("diff{}", query(&[("a", a), ("b", b)])))
}

fn comparison(compared: &ComparedSpans) -> Markup {
    let aligned = align(compared);
    let mut drawing = DiffDrawing {
        compared,
        budget: WordBudget::of_page(),
        left: MAX_DIFFERENCES,
    };
    let (a, b) = (&compared.a, &compared.b);
    let world = &compared.comparison.world;
    html! {
        (totals(compared))
        (drawing.part("Params", &aligned.params))
        (drawing.part("Run", &aligned.whole))
        @if let Some(world) = world.as_ref().filter(|_| !compared.comparison.world_changes.is_empty()) {
            section class="part" { h2 { "World" } p { (Verbatim(world)) } }
        }
        (steps(&mut drawing, &aligned))
        p class="part dim" {
            @if drawing.left == 0 { "At most " (MAX_DIFFERENCES) " differences are shown. " }
            a href={ "../" (diff_link(PLACE, &a.run_id, &b.run_id)) } { "Everything that differs, as JSON" }
        }
    }
}

/// What both used, and where they part.
fn totals(compared: &ComparedSpans) -> Markup {
    let diff = &compared.comparison.diff;
    let (a, b, used) = (&compared.a, &compared.b, &diff.used);
    let counts = [
        (
            "Model calls",
            used.a.llm_calls,
            used.b.llm_calls,
            used.difference.llm_calls,
        ),
        (
            "Tokens sent",
            used.a.tokens_in,
            used.b.tokens_in,
            used.difference.tokens_in,
        ),
        (
            "Tokens received",
            used.a.tokens_out,
            used.b.tokens_out,
            used.difference.tokens_out,
        ),
    ];
    let (time_a, time_b) = (a.totals.duration_ms, b.totals.duration_ms);
    let amount = |micro_usd: i64| match micro_usd {
        0 => "$0".to_owned(),
        micro_usd => cost(micro_usd.unsigned_abs()),
    };
    html! {
        section class="part" {
            div class="scroll" tabindex="0" role="region" aria-label="Both runs" {
                table class="sides" {
                    thead {
                        tr {
                            td {}
                            th scope="col" { "A " (run_link(a)) }
                            th scope="col" { "B " (run_link(b)) }
                            th scope="col" { "B − A" }
                        }
                    }
                    tbody {
                        tr {
                            th scope="row" { "Status" }
                            td { (badge(a.status.as_str())) }
                            td { (badge(b.status.as_str())) }
                            td {}
                        }
                        tr {
                            th scope="row" { "Cost" }
                            td class="id" { (amount(used.a.cost_micro_usd)) }
                            td class="id" { (amount(used.b.cost_micro_usd)) }
                            td class="id" { (signed(used.difference.cost_micro_usd, amount)) }
                        }
                        @for (name, of_a, of_b, difference) in counts {
                            tr {
                                th scope="row" { (name) }
                                td class="id" { (of_a) }
                                td class="id" { (of_b) }
                                td class="id" { (signed(difference, |count| count.unsigned_abs().to_string())) }
                            }
                        }
                        tr {
                            th scope="row" { "Time at work" }
                            td class="id" { (duration(time_a)) }
                            td class="id" { (duration(time_b)) }
                            td class="id" {
                                (signed(i64::try_from(time_b).unwrap_or(i64::MAX).saturating_sub_unsigned(time_a),
                                    |ms| duration(ms.unsigned_abs())))
                            }
                        }
                    }
                }
            }
            @match diff.shared {
                0 => p class="dim" { "They share no frame." },
                1 => p { "Both share frame 0." },
                shared => p {
                    "Both share frames "
                    a href=(frame_link(PLACE, root_of(&a.run_id), 0)) { "0" } "–"
                    a href=(frame_link(PLACE, root_of(&a.run_id), shared - 1)) { (shared - 1) } "."
                },
            }
            @if let Some(outcome) = &compared.outcome { (fork_outcome(outcome)) }
            @match &diff.first {
                _ if diff.is_empty() => p class="note" { "Nothing differs." },
                Some(first) => p {
                    "The first difference is at frame " (first.seq) ": "
                    (first_frame("A", &a.run_id, first.seq, first.a.as_ref())) "; "
                    (first_frame("B", &b.run_id, first.seq, first.b.as_ref())) "."
                },
                None => {},
            }
        }
    }
}

fn run_link(run: &RunSkeleton) -> Markup {
    html! {
        a class="id" href={ "runs/" (segment(&run.run_id)) } { (Verbatim(&run.run_id)) }
        " " span class="dim" { (Verbatim(&run.workflow)) " " (Verbatim(&run.version)) }
        @if let Some(branch) = &run.branch {
            " " span class="dim" { "branch of " (Verbatim(&branch.parent_run_id)) }
        }
    }
}

fn first_frame(side: &str, run: &str, seq: u64, frame: Option<&ComparedFrame>) -> Markup {
    html! {
        (side) " has "
        @match frame {
            Some(frame) => a href=(frame_link(PLACE, root_of(run), seq)) { (Verbatim(&frame.key)) },
            None => "nothing there that could be compared",
        }
    }
}

/// A difference of amounts: `+3`, `−3`, `0`.
fn signed(difference: i64, amount: impl Fn(i64) -> String) -> String {
    let sign = match difference {
        0 => "",
        1.. => "+",
        ..0 => "−",
    };
    format!("{sign}{}", amount(difference))
}

fn steps(drawing: &mut DiffDrawing<'_>, aligned: &AlignedRuns<'_>) -> Markup {
    html! {
        section class="part" {
            h2 { "Steps" }
            @if aligned.changed.is_empty() { p class="dim" { "No step differs." } }
            @for step in aligned.changed.iter().take(MAX_STEPS) { (drawing.step(step)) }
            (left_out(aligned.changed.len()))
            @if !aligned.equal.is_empty() {
                details class="compared" {
                    summary { (counted(aligned.equal.len() as u64, "step")) " that "
                        @if aligned.equal.len() == 1 { "is" } @else { "are" } " equal" }
                    div class="scroll" {
                        table class="sides" {
                            tbody {
                                @for step in aligned.equal.iter().take(MAX_STEPS) {
                                    tr {
                                        th scope="row" { (Verbatim(&step.path)) }
                                        td { @if let Some(step) = step.a { a href=(drawing.link(true, step)) { (DiffDrawing::side(Some(step))) } } }
                                        td { @if let Some(step) = step.b { a href=(drawing.link(false, step)) { (DiffDrawing::side(Some(step))) } } }
                                    }
                                }
                            }
                        }
                    }
                    (left_out(aligned.equal.len()))
                }
            }
        }
    }
}

/// How many of so many steps are not on the page.
fn left_out(steps: usize) -> Markup {
    html! {
        @if steps > MAX_STEPS { p class="dim" { "and " (counted((steps - MAX_STEPS) as u64, "step")) " more" } }
    }
}

/// Draws differences as long as there is room for them.
struct DiffDrawing<'c> {
    compared: &'c ComparedSpans,
    budget: WordBudget,
    left: usize,
}

impl DiffDrawing<'_> {
    fn part(&mut self, title: &str, differences: &[Difference<'_>]) -> Markup {
        html! {
            @if !differences.is_empty() {
                section class="part" { h2 { (title) } (self.table(differences)) }
            }
        }
    }

    fn step(&mut self, step: &AlignedStep<'_>) -> Markup {
        let (a, b) = (&self.compared.a.run_id, &self.compared.b.run_id);
        let only = [("A", a, &step.only_a), ("B", b, &step.only_b)];
        html! {
            details class="compared" open {
                summary {
                    span class="id" { (Verbatim(&step.path)) }
                    span class="side" { "A " (Self::side(step.a)) }
                    span class="side" { "B " (Self::side(step.b)) }
                }
                p class="dim" {
                    @if let Some(a) = step.a { a href=(self.link(true, a)) { "The step in A" } " " }
                    @if let Some(b) = step.b { a href=(self.link(false, b)) { "The step in B" } }
                }
                @for (side, run, frames) in only {
                    @if !frames.is_empty() {
                        p class="dim" {
                            "Only in " (side) ": " (counted(frames.len() as u64, "frame")) ": "
                            @for seq in frames.iter().take(MAX_FRAMES) {
                                a class="number" href=(frame_link(PLACE, root_of(run), *seq)) { (seq) } " "
                            }
                            @if frames.len() > MAX_FRAMES { "and " (frames.len() - MAX_FRAMES) " more" }
                        }
                    }
                }
                (self.table(&step.differences))
            }
        }
    }

    /// The link to a step in one of the runs.
    fn link(&self, is_a: bool, step: &StepSpan) -> String {
        let run = match is_a {
            true => &self.compared.a,
            false => &self.compared.b,
        };
        let root = segment(root_of(&run.run_id));
        format!("runs/{root}{}", query(&[("step", &step.path)]))
    }

    /// A step in one of the runs: its status, its cost and its time.
    fn side(step: Option<&StepSpan>) -> Markup {
        html! {
            @match step {
                None => span class="dim" { "not there" },
                Some(step) => {
                    (badge(step.status.as_str()))
                    @let cost = cost(step.metrics.cost_micro_usd);
                    @if let Some(took) = step.took_ms() { " " span class="number" { (duration(took)) } }
                    @if !cost.is_empty() { " " span class="number" { (cost) } }
                    @if step.metrics.llm_calls > 0 {
                        " " span class="dim" { (counted(step.metrics.llm_calls, "call")) }
                    }
                }
            }
        }
    }

    fn table(&mut self, differences: &[Difference<'_>]) -> Markup {
        let room = differences.len().min(MAX_OF_STEP).min(self.left);
        self.left -= room;
        let more = differences.len() - room;
        html! {
            @for difference in differences.iter().take(room) { (self.difference(difference)) }
            @if more > 0 { p class="dim" { "and " (counted(more as u64, "difference")) " more" } }
        }
    }

    fn difference(&mut self, difference: &Difference<'_>) -> Markup {
        let change = difference.change;
        let runs = (
            root_of(&self.compared.a.run_id),
            root_of(&self.compared.b.run_id),
        );
        html! {
            h3 {
                (Verbatim(&difference.name))
                @if let Some((a, b)) = difference.frames {
                    " · frame " a href=(frame_link(PLACE, runs.0, a)) { (a) }
                    " and " a href=(frame_link(PLACE, runs.1, b)) { (b) }
                }
            }
            (change_sides(change, SIDES, &mut self.budget))
        }
    }
}

/// The runs that are compared.
const SIDES: [ChangeSide<'static>; 2] = [
    ChangeSide {
        is_before: true,
        label: "In A",
        without: "not in A",
        more: "open its step, or everything as JSON below",
    },
    ChangeSide {
        is_before: false,
        label: "In B",
        without: "not in B",
        more: "open its step, or everything as JSON below",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_its_sign() {
        assert_eq!(signed(-3, |n| n.unsigned_abs().to_string()), "−3");
    }
}

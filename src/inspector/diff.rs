//! The page of two runs, side by side.

use ktsu_history::diff::ComparedSpans;
use ktsu_history::skeleton::{RunSkeleton, StepSpan};
use ktsu_projections::diff::ComparedFrame;
use maud::{Markup, html};
use serde_json::Value;

use crate::compare::{AlignedRuns, AlignedStep, Difference, align};
use crate::estimate::fork_outcome;
use crate::frame::{PagePlace, Section, SignedIn, frame_link, page, query, root_of, segment};
use crate::status::badge;
use crate::text::{Verbatim, beginning};
use crate::units::{cost, counted, duration};
use crate::word_diff::{WordBudget, WordHunk, word_diff};

/// The most differences on the page.
const MAX_DIFFERENCES: usize = 200;
/// The most differences of one step on the page.
const MAX_OF_STEP: usize = 25;
/// The most frames that are linked one by one.
const MAX_FRAMES: usize = 8;
/// The most characters of a side of a difference.
const MAX_SIDE: usize = 16 * 1024;
/// The characters of what both have that are shown before and behind a change.
const CONTEXT: usize = 160;

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
            @for step in &aligned.changed { (drawing.step(step)) }
            @if !aligned.equal.is_empty() {
                details class="compared" {
                    summary { (counted(aligned.equal.len() as u64, "step")) " that "
                        @if aligned.equal.len() == 1 { "is" } @else { "are" } " equal" }
                    div class="scroll" {
                        table class="sides" {
                            tbody {
                                @for step in &aligned.equal {
                                    tr {
                                        th scope="row" { (Verbatim(&step.path)) }
                                        td { @if let Some(step) = step.a { a href=(drawing.link(true, step)) { (DiffDrawing::side(Some(step))) } } }
                                        td { @if let Some(step) = step.b { a href=(drawing.link(false, step)) { (DiffDrawing::side(Some(step))) } } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
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
                    @let took = step.from_ms.zip(step.until_ms).map(|(from, until)| until.saturating_sub(from));
                    @let cost = cost(step.metrics.cost_micro_usd);
                    @if let Some(took) = took { " " span class="number" { (duration(took)) } }
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
        let both_text = matches!(
            (&change.before, &change.after),
            (Some(Value::String(_)), Some(Value::String(_)))
        );
        let text = |value: &Option<Value>| {
            value.as_ref().map(|value| match value {
                Value::String(text) if both_text => text.clone(),
                other => serde_json::to_string_pretty(other).unwrap_or_default(),
            })
        };
        let (before, after) = (text(&change.before), text(&change.after));
        let words = before.as_ref().zip(after.as_ref());
        let words = words.map(|(before, after)| word_diff(before, after, &mut self.budget));
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
            div class="pair" {
                @match &words {
                    Some(words) => {
                        (hunks(&words.hunks, true))
                        (hunks(&words.hunks, false))
                    }
                    None => {
                        (whole(before.as_deref(), true))
                        (whole(after.as_deref(), false))
                    }
                }
            }
            @if words.is_some_and(|words| !words.is_by_words) {
                p class="dim" { "Too long, or too different, to be compared by words." }
            }
        }
    }
}

/// One side of texts that both runs have.
fn hunks(hunks: &[WordHunk<'_>], is_a: bool) -> Markup {
    let (label, last) = (
        if is_a { "In A" } else { "In B" },
        hunks.len().saturating_sub(1),
    );
    let mut room = MAX_SIDE;
    let mut left_out = 0;
    let mut cut = |text: &'_ str| {
        let (shown, rest) = beginning(text, room);
        left_out += rest;
        room -= shown.chars().count();
        shown.len()
    };
    let parts: Vec<Markup> = hunks.iter().enumerate().map(|(at, hunk)| {
        let own = if is_a { hunk.removed } else { hunk.added };
        let (head, folded, tail) = folded(hunk.equal, at > 0, at < last || !own.is_empty());
        let head = head.get(..cut(head)).unwrap_or_default();
        let tail = tail.get(..cut(tail)).unwrap_or_default();
        let own = own.get(..cut(own)).unwrap_or_default();
        html! {
            (Verbatim(head))
            @if folded > 0 { span class="fold" { " … " (counted(folded as u64, "equal word")) " … " } }
            (Verbatim(tail))
            @match (own.is_empty(), is_a) {
                (true, _) => {},
                (false, true) => del { (Verbatim(own)) },
                (false, false) => ins { (Verbatim(own)) },
            }
        }
    }).collect();
    html! {
        div class="side" {
            pre tabindex="0" aria-label=(label) { @for part in &parts { (part) } }
            (rest(left_out))
        }
    }
}

/// What both have: its beginning behind a change, its end before one, and the number of words between.
fn folded(equal: &str, is_behind: bool, is_before: bool) -> (&str, usize, &str) {
    let kept = CONTEXT * (usize::from(is_behind) + usize::from(is_before)).max(1);
    if equal.len() <= kept * 2 {
        return (equal, 0, "");
    }
    let mut start = match is_behind || !is_before {
        true => CONTEXT,
        false => 0,
    };
    let mut end = match is_before {
        true => equal.len() - CONTEXT,
        false => equal.len(),
    };
    while !equal.is_char_boundary(start) {
        start -= 1;
    }
    while !equal.is_char_boundary(end) {
        end += 1;
    }
    let part = |range: std::ops::Range<usize>| equal.get(range).unwrap_or_default();
    let words = part(start..end).split_whitespace().count();
    (part(0..start), words.max(1), part(end..equal.len()))
}

/// One side of a value that only one of the runs has.
fn whole(text: Option<&str>, is_a: bool) -> Markup {
    html! {
        div class="side" {
            @match text {
                None => p class="dim" { @if is_a { "not in A" } @else { "not in B" } },
                Some(text) => {
                    @let (shown, left_out) = beginning(text, MAX_SIDE);
                    pre tabindex="0" aria-label=(if is_a { "In A" } else { "In B" }) {
                        @if is_a { del { (Verbatim(shown)) } } @else { ins { (Verbatim(shown)) } }
                    }
                    (rest(left_out))
                }
            }
        }
    }
}

/// What is left out of a long side.
fn rest(left_out: usize) -> Markup {
    html! {
        @if left_out > 0 {
            p class="dim" { (counted(left_out as u64, "character")) " more: open its step, or everything as JSON below" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_both_have_only_the_ends_beside_changes_are_shown() {
        let long = "wörd ".repeat(1_000);
        let (head, words, tail) = folded(&long, true, true);
        assert!(head.len() <= CONTEXT && tail.len() <= CONTEXT + 1 && words > 900);
        assert!(long.starts_with(head) && long.ends_with(tail));
        let (head, words, tail) = folded(&long, false, true);
        assert!(head.is_empty() && !tail.is_empty() && words > 900);
        let (head, words, tail) = folded(&long, true, false);
        assert!(!head.is_empty() && tail.is_empty() && words > 900);
        assert_eq!(folded("short", true, true), ("short", 0, ""));
    }

    #[test]
    fn a_side_shows_its_own_words_and_says_what_it_leaves_out() {
        let long = "x".repeat(MAX_SIDE + 5);
        let hunk = [WordHunk {
            equal: "<a> ",
            removed: "old",
            added: &long,
        }];
        let a = hunks(&hunk, true).into_string();
        assert!(a.contains("&lt;a&gt; <del>old</del>"), "{a}");
        let b = hunks(&hunk, false).into_string();
        assert!(b.contains("9 characters more"), "{b}");
        assert_eq!(signed(-3, |n| n.unsigned_abs().to_string()), "−3");
    }
}

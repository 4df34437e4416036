//! The page of where a value came from, and of why a step did not run.

use ktsu_history::answer_rows::{AnswerRow, origin_rows, values_of, verb_of};
use ktsu_history::provenance::{Hop, ProvenanceAnswer, ValueOrigin};
use ktsu_history::why_not::{Reason, WhyNot};
use maud::{Markup, html};

use crate::frame::{
    PagePlace, RunTab, Section, SignedIn, own_frame_link, page, query, root_of, run_tabs, segment,
};
use crate::text::{Verbatim, beginning};
use crate::units::counted;

/// The most rows of each list; the API has all.
const MAX_ROWS: usize = 100;
/// The most characters of the value that is asked about.
const MAX_VALUE: usize = 4_000;
/// The most characters of a value or of words in a row.
const MAX_WORDS: usize = 400;

/// What a page of reasons shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The run, the branch, or the inline child as `R/call`.
    pub run_id: String,
    /// True if it has a world.
    pub has_world: bool,
    /// The path of the value; empty if none is asked about.
    pub of: String,
    /// The step that did not run; empty if none is asked about.
    pub not: String,
    /// The answer, if something is asked.
    pub answer: Option<WhyAnswer>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyAnswer {
    /// Where a value came from.
    Origin(ProvenanceAnswer),
    /// Why a step is in its state, or why a responder did not react.
    WhyNot(WhyNot),
    /// The run has nothing of this name.
    NotFound {
        /// What is not there.
        words: String,
        /// What was probably meant.
        near: Option<String>,
        /// What is there instead.
        there: Vec<String>,
    },
    /// The answer takes too much work.
    TooLarge {
        /// Why there is none.
        words: String,
        /// What to type instead.
        hint: String,
    },
}

const PLACE: PagePlace = PagePlace::WITHIN;

/// Where reasons are shown: the place of the page, and the run.
#[derive(Clone, Copy)]
pub(crate) struct WhyPlace<'p> {
    /// The place of the page.
    pub(crate) place: PagePlace,
    /// The run, the branch, or the inline child as `R/call`.
    pub(crate) run_id: &'p str,
}

impl WhyPage {
    fn place(&self) -> WhyPlace<'_> {
        WhyPlace {
            place: PLACE,
            run_id: &self.run_id,
        }
    }
}

/// The page of reasons.
pub fn why_page(shown: &WhyPage) -> String {
    let body = html! {
        div class="head" {
            p class="crumbs" {
                a href=(PLACE.link("runs")) { "Runs" } " / "
                a href=(PLACE.link(&format!("runs/{}", segment(&shown.run_id)))) { (Verbatim(&shown.run_id)) }
            }
            h1 { "Why" }
            (run_tabs(PLACE, &shown.run_id, RunTab::Why, shown.has_world))
            (forms(shown))
        }
        section class="answer" aria-label="Answer" {
            @match &shown.answer {
                None => p class="dim" {
                    "Ask where a value came from, by its path in the envelope, such as "
                    code { "step.triage.priority" } " or " code { "output" }
                    "; or why a step did not run or is not complete, by its name."
                },
                Some(WhyAnswer::Origin(answer)) => (origin(shown.place(), answer)),
                Some(WhyAnswer::WhyNot(why)) => (why_not(shown.place(), why)),
                Some(WhyAnswer::NotFound { words, near, there }) => (not_found(shown, words, near.as_deref(), there)),
                Some(WhyAnswer::TooLarge { words, hint }) => {
                    p class="error" { (Verbatim(words)) }
                    p { (Verbatim(hint)) }
                }
            }
        }
    };
    page(
        PLACE,
        Section::Runs,
        &format!("Why, {}", shown.run_id),
        &shown.by,
        &body,
    )
}

fn forms(shown: &WhyPage) -> Markup {
    html! {
        form method="get" action="why" class="filter" {
            label { "Where did this value come from? " input type="text" name="of" required value=(Verbatim(&shown.of)); }
            button type="submit" { "Ask" }
        }
        form method="get" action="why" class="filter" {
            label { "Why did this step not run? " input type="text" name="not" required value=(Verbatim(&shown.not)); }
            button type="submit" { "Ask" }
        }
    }
}

/// Where a value came from.
pub(crate) fn origin(shown: WhyPlace<'_>, answer: &ProvenanceAnswer) -> Markup {
    let value = answer.value.to_string();
    let (value, left_out) = beginning(&value, MAX_VALUE);
    html! {
        h2 { (Verbatim(&answer.path)) }
        pre tabindex="0" { (Verbatim(value)) }
        @if left_out > 0 {
            p class="dim" { (counted(left_out as u64, "character")) " more; the API has all of it" }
        }
        @for part in parts(origin_rows(answer, MAX_ROWS)) {
            @if let Some(heading) = &part.heading { h3 { (heading) } }
            @if !part.rows.is_empty() {
                table class="why" {
                    thead { (columns()) }
                    tbody { @for row in &part.rows { (answer_row(shown, row)) } }
                }
            }
            @for words in &part.notes { p class="dim" { (words) "; the API has all of them" } }
        }
    }
}

fn columns() -> Markup {
    html! {
        tr {
            th scope="col" class="number" { "Frame" }
            th scope="col" { "What" }
            th scope="col" { "How, or its value" }
        }
    }
}

/// A heading, the rows below it, and what is left out of them.
#[derive(Default)]
struct AnswerPart<'a> {
    heading: Option<String>,
    rows: Vec<AnswerRow<'a>>,
    notes: Vec<String>,
}

fn parts(rows: Vec<AnswerRow<'_>>) -> Vec<AnswerPart<'_>> {
    let mut parts: Vec<AnswerPart<'_>> = Vec::new();
    for row in rows {
        let words = row.words();
        if matches!(row, AnswerRow::Heading(_) | AnswerRow::KeptGoing(_)) || parts.is_empty() {
            parts.push(AnswerPart::default());
        }
        let Some(part) = parts.last_mut() else {
            continue;
        };
        match row {
            AnswerRow::Heading(_) => part.heading = Some(words),
            AnswerRow::More(_) | AnswerRow::KeptGoing(_) => part.notes.push(words),
            AnswerRow::Hop(_) | AnswerRow::Place(_) | AnswerRow::Alike(_) => part.rows.push(row),
        }
    }
    parts
}

fn answer_row(shown: WhyPlace<'_>, row: &AnswerRow<'_>) -> Markup {
    html! {
        @match row {
            AnswerRow::Hop(one) => (hop(shown, one)),
            AnswerRow::Place(one) => (place(shown, one)),
            _ => tr { td {} td colspan="2" class="dim" { (row.words()) } },
        }
    }
}

/// A step between the value and its origins: its frame, its step, and what it did in the words of the definition.
fn hop(shown: WhyPlace<'_>, hop: &Hop) -> Markup {
    let (words, left_out) = beginning(&hop.text, MAX_WORDS);
    html! {
        tr {
            td class="number" { @if let Some(seq) = hop.frame { (frame(shown, seq)) } }
            td {
                @match &hop.responder {
                    Some(responder) => (Verbatim(responder)),
                    None => (step(shown, &hop.step)),
                }
            }
            td {
                span class="dim" { (hop.how) } " "
                @if let Some(object) = &hop.object { (Verbatim(object)) ": " }
                (Verbatim(words)) (cut(left_out))
            }
        }
    }
}

/// A recorded value: its frame, its name, and itself.
fn place(shown: WhyPlace<'_>, one: &ValueOrigin) -> Markup {
    let value = one.value.to_string();
    let (value, left_out) = beginning(&value, MAX_WORDS);
    html! {
        tr {
            td class="number" { (frame(shown, one.frame)) }
            td { (Verbatim(&one.name)) }
            td {
                span class="dim" { "=" } " " code { (Verbatim(value)) } (cut(left_out))
                @if let Some(reply) = one.reply {
                    span class="dim" { " (reply: frame " (frame(shown, reply)) ")" }
                }
            }
        }
    }
}

fn cut(left_out: usize) -> Markup {
    html! {
        @if left_out > 0 { span class="dim" { "… and " (counted(left_out as u64, "character")) } }
    }
}

fn why_not(shown: WhyPlace<'_>, why: &WhyNot) -> Markup {
    html! {
        h2 { (step(shown, &why.step)) " " (verb_of(why)) (Verbatim(&why.status)) }
        (reasons(shown, why))
    }
}

/// Why a step is in its state.
pub(crate) fn reasons(shown: WhyPlace<'_>, why: &WhyNot) -> Markup {
    html! {
        table class="why" {
            thead {
                tr {
                    th scope="col" class="number" { "Frame" }
                    th scope="col" { "What" }
                    th scope="col" { "Reason, or a value that decided it" }
                }
            }
            tbody { @for reason in &why.because { (reason_rows(shown, reason)) } }
        }
    }
}

fn reason_rows(shown: WhyPlace<'_>, reason: &Reason) -> Markup {
    html! {
        tr {
            td class="number" { @if let Some(seq) = reason.frame { (frame(shown, seq)) } }
            td { (step(shown, &reason.step)) }
            td { (Verbatim(&reason.text)) }
        }
        @for value in values_of(reason, MAX_ROWS) { (place(shown, value)) }
    }
}

/// A link to a frame of the run.
fn frame(shown: WhyPlace<'_>, seq: u64) -> Markup {
    html! { a href=[own_frame_link(shown.place, shown.run_id, seq)] { (seq) } }
}

/// A link to a step of the run; nothing for the run itself.
fn step(shown: WhyPlace<'_>, path: &str) -> Markup {
    let to = format!(
        "runs/{}{}",
        segment(root_of(shown.run_id)),
        query(&[("step", path)])
    );
    html! {
        @if !path.is_empty() { a href=[shown.place.page(&to)] { (Verbatim(path)) } }
    }
}

/// What is not there, and links to what is.
fn not_found(shown: &WhyPage, words: &str, near: Option<&str>, there: &[String]) -> Markup {
    let asks = |name: &str| match shown.not.is_empty() {
        true => query(&[("of", name)]),
        false => query(&[("not", name)]),
    };
    html! {
        p class="error" { (Verbatim(words)) }
        @if let Some(near) = near { p { (Verbatim(near)) } }
        @if !there.is_empty() {
            p {
                "The run has"
                @for name in there {
                    " " a href={ "why" (asks(name)) } { (Verbatim(beginning(name, 80).0)) }
                }
            }
        }
    }
}

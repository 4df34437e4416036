//! The form that makes a branch of a run, and the page that shows it again, as it was sent, with what is wrong
//! or what it will ask.

use ktsu_history::fork_estimate::{ForkBound, ForkEstimate};
use ktsu_history::recorded_prompts::{AgentPrompts, RecordedPrompts};
use maud::{Markup, html};

use crate::decide::{action, reason_field};
use crate::estimate::{bound, fork_estimate};
use crate::frame::{PagePlace, Section, SignedIn, frame_link, page, segment};
use crate::text::{TypedText, Verbatim, is_plain};
use crate::units::counted;

/// The most steps of an agent that are named.
const MAX_NAMED: usize = 4;
/// The most faults that are listed.
const MAX_FAULTS: usize = 20;
/// The fewest and the most lines that a field of a prompt shows at once.
const FIELD_LINES: (usize, usize) = (2, 18);
/// About as many characters of a prompt are on a line of a field.
const LINE_CHARACTERS: usize = 52;

/// What a form of a fork begins with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForkOffer {
    /// What a fork after the frame would ask again.
    pub estimate: Option<ForkEstimate>,
    /// The prompts at the frame.
    pub prompts: RecordedPrompts,
}

/// A form of a fork as it was sent, which is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkDraft {
    /// The place of the page that shows it.
    pub place: PagePlace,
    /// Its fields, by name.
    pub fields: Vec<(String, String)>,
    /// The answer to it.
    pub verdict: ForkVerdict,
}

/// The answer to a form of a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkVerdict {
    /// It cannot be made.
    Refused {
        /// Why.
        detail: String,
        /// What to do.
        hint: String,
        /// What is wrong at single places: the place, and what.
        faults: Vec<(String, String)>,
    },
    /// It could be made.
    Possible {
        /// What it would ask.
        bound: Option<ForkBound>,
        /// The prompts that differ.
        prompts: Vec<EditedPromptView>,
    },
}

/// A prompt that a fork changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedPromptView {
    /// The file of the agent.
    pub agent: String,
    /// `system`, `user` or `reflect`.
    pub prompt: String,
    /// The steps that ask with it, as far as is known.
    pub steps: Vec<String>,
}

/// A page of a form that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The run.
    pub run_id: String,
    /// The last frame that the branch shares.
    pub last: u64,
    /// What the form begins with.
    pub offer: ForkOffer,
    /// The form.
    pub draft: ForkDraft,
}

/// The page of a form that was sent, with the answer to it.
pub fn fork_page(shown: &ForkPage) -> String {
    let place = shown.draft.place;
    let form = ForkForm {
        place,
        run_id: &shown.run_id,
        last: shown.last,
        offer: &shown.offer,
        draft: Some(&shown.draft),
    };
    let frame = frame_link(place, &shown.run_id, shown.last);
    let body = html! {
        div class="head" {
            p class="crumbs" {
                a href=(place.link("runs")) { "Runs" } " / "
                a href=(place.link(&format!("runs/{}", segment(&shown.run_id)))) { (Verbatim(&shown.run_id)) } " / "
                a href=(frame) { "Frame " (shown.last) }
            }
            h1 { "Fork after frame " (shown.last) }
        }
        div class="answer" { (form.markup()) }
    };
    page(place, Section::Runs, "Fork", &shown.by, &body)
}

/// The answer to a form alone, for a page that has the form.
pub fn verdict_page(place: PagePlace, verdict: &ForkVerdict) -> String {
    page(
        place,
        Section::Runs,
        "Fork",
        &SignedIn::unknown(),
        &verdict_part(Some(verdict)),
    )
}

/// The form beside an opened frame, which makes a branch that shares the frames up to it.
pub(crate) fn fork_form(place: PagePlace, run_id: &str, last: u64, offer: &ForkOffer) -> Markup {
    let form = ForkForm {
        place,
        run_id,
        last,
        offer,
        draft: None,
    };
    html! {
        details class="action" {
            summary class="button" { "Fork after this frame…" }
            (form.markup())
        }
    }
}

struct ForkForm<'f> {
    place: PagePlace,
    run_id: &'f str,
    last: u64,
    offer: &'f ForkOffer,
    draft: Option<&'f ForkDraft>,
}

impl<'f> ForkForm<'f> {
    /// What was typed into a field.
    fn typed(&self, name: &str) -> Option<&'f str> {
        let mut fields = self.draft?.fields.iter();
        let found = fields.find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }

    fn markup(&self) -> Markup {
        let run = segment(self.run_id);
        let sends = self.typed("effects") == Some("execute");
        let reason = self.typed("reason").unwrap_or_default();
        html! {
            form class="decide" method="post" data-checks="" action=(action(self.place, &format!("/runs/{run}/fork"))) {
                input type="hidden" name="_back" value={ "runs/" (run) "/frames?frame=" (self.last) };
                input type="hidden" name="_next" value="runs/{run_id}";
                input type="hidden" name="at_frame:json" value=(self.last);
                (self.prompts())
                label for="set" {
                    "Values to change, as JSON by path: " code { "{\"params.NAME\": 1, \"step.ID.output.FIELD\": 2}" }
                }
                textarea id="set" name="set:json" rows="3" spellcheck="false" { "\n" (TypedText(self.typed("set:json").unwrap_or_default())) }
                label for="effects" { "Webhooks and messages of the branch" }
                select id="effects" name="effects" {
                    option value="suppress" { "are not sent" }
                    option value="execute" selected[sends] { "are sent" }
                }
                label class="choice" {
                    input type="checkbox" name="go:json" value="true" checked[self.typed("go:json").is_some()];
                    " Continue at once"
                }
                (reason_field("reason-fork", reason))
                @if let Some(estimate) = &self.offer.estimate { (fork_estimate(estimate)) }
                (verdict_part(self.draft.map(|draft| &draft.verdict)))
                span class="buttons" {
                    button class="primary" { "Make the branch" }
                    button name="dry_run:json" value="true" { "Check" }
                }
            }
        }
    }

    fn prompts(&self) -> Markup {
        let prompts = &self.offer.prompts;
        html! {
            @if !prompts.agents.is_empty() {
                p class="dim" { "Prompts to change" }
                @for (at, agent) in prompts.agents.iter().enumerate() { (self.agent(at, agent)) }
                @if prompts.left_out > 0 {
                    p class="dim" {
                        (counted(prompts.left_out as u64, "agent")) " more: " code { "ktsu fork RUN --prompt STEP.system=@FILE" }
                    }
                }
            }
        }
    }

    fn agent(&self, at: usize, agent: &AgentPrompts) -> Markup {
        let typed = |prompt: &str| self.typed(&field_name(agent, prompt));
        let is_edited =
            |(prompt, text): &(&str, String)| typed(prompt).is_some_and(|typed| typed != text);
        let lines = agent.texts.iter().map(|(_, text)| text.lines().count());
        let lines: usize = lines.sum();
        html! {
            details class="prompts" open[agent.texts.iter().any(is_edited)] {
                summary {
                    span class="id" { (Verbatim(&agent.file)) }
                    span class="dim" {
                        " " (steps(&agent.steps)) @if !agent.steps.is_empty() { "; " } (counted(lines as u64, "line"))
                        @if !agent.is_asked && self.offer.estimate.is_some() { "; not known to be asked after this frame" }
                    }
                }
                @for (prompt, text) in &agent.texts {
                    @let id = format!("prompt-{at}-{}", prompt);
                    label for=(id) { "prompt." (prompt) }
                    @if is_plain(text) {
                        textarea id=(id) name=(Verbatim(field_name(agent, prompt))) rows=(rows(text)) spellcheck="false" {
                            // The first line break of a field is none of its text.
                            "\n"
                            @match typed(prompt) {
                                Some(typed) => (TypedText(typed)),
                                None => (Verbatim(text)),
                            }
                        }
                    } @else {
                        p class="dim" id=(id) {
                            "It has characters that a form does not keep; " code { "ktsu fork RUN --prompt" } " replaces it."
                        }
                    }
                }
            }
        }
    }
}

/// The name of the field of a prompt: a JSON pointer into the body of the request.
fn field_name(agent: &AgentPrompts, prompt: &str) -> String {
    let file = agent.file.replace('~', "~0").replace('/', "~1");
    format!("/prompts/{file}/{}", prompt)
}

fn rows(text: &str) -> usize {
    let (least, most) = FIELD_LINES;
    let wrapped = |line: &str| line.chars().count() / LINE_CHARACTERS + 1;
    text.lines().map(wrapped).sum::<usize>().clamp(least, most)
}

/// The first of some steps.
fn steps(steps: &[String]) -> Markup {
    html! {
        @for (at, step) in steps.iter().take(MAX_NAMED).enumerate() {
            @if at > 0 { ", " }
            (Verbatim(step))
        }
        @if steps.len() > MAX_NAMED { " and " (steps.len() - MAX_NAMED) " more" }
    }
}

/// The place of the answer to the form, which a script puts there as a person types.
fn verdict_part(verdict: Option<&ForkVerdict>) -> Markup {
    html! {
        div class="verdict" data-verdict="" role="status" {
            @match verdict {
                None => {}
                Some(ForkVerdict::Refused { detail, hint, faults }) => (refused(detail, hint, faults)),
                Some(ForkVerdict::Possible { bound, prompts }) => (possible(bound.as_ref(), prompts)),
            }
        }
    }
}

fn refused(detail: &str, hint: &str, faults: &[(String, String)]) -> Markup {
    html! {
        p class="error" { strong { "Not like this: " } (Verbatim(detail)) }
        @if !hint.is_empty() { p { (Verbatim(hint)) } }
        // One fault is in the first line already.
        @if faults.len() > 1 {
            ul {
                @for (place, what) in faults.iter().take(MAX_FAULTS) {
                    li { span class="id" { (Verbatim(place)) } " " (Verbatim(what)) }
                }
            }
        }
    }
}

fn possible(of: Option<&ForkBound>, prompts: &[EditedPromptView]) -> Markup {
    html! {
        p {
            @match of {
                Some(of) => { strong { "The branch can be made: " } (bound(of)) },
                None => strong { "The branch can be made." },
            }
        }
        @for edited in prompts {
            p {
                "Changed: prompt." (Verbatim(&edited.prompt)) " of " span class="id" { (Verbatim(&edited.agent)) }
                @if edited.steps.is_empty() { ", which no step is known to ask after this frame. Fork after an earlier one." }
                @else { ", asked by " (steps(&edited.steps)) "." }
            }
        }
    }
}

//! What a fork would ask again, beside its form, and what a branch did ask, beside what was expected.

use ktsu_history::fork_estimate::{AmountBound, ForkBound, ForkEstimate, ForkUsage};
use ktsu_history::fork_outcome::ForkOutcome;
use ktsu_projections::lineage::dollars;
use maud::{Markup, html};

use crate::text::Verbatim;
use crate::units::counted;

/// The most unknown parts that are named.
const MAX_UNKNOWN: usize = 6;

/// The estimate of a fork, before it is sent.
pub(crate) fn fork_estimate(estimate: &ForkEstimate) -> Markup {
    html! {
        div class="estimate" {
            @match estimate.prompts == estimate.unchanged {
                true => p { "Without changes, or with other prompts: " (bound(&estimate.unchanged)) },
                false => {
                    p { "Without changes: " (bound(&estimate.unchanged)) }
                    p { "With other prompts: " (bound(&estimate.prompts)) }
                }
            }
            @if estimate.changed != estimate.prompts { p { "With other values: " (bound(&estimate.changed)) } }
            p class="dim" { "In this run, what came after the frame took " (usage(&estimate.recorded)) "." }
        }
    }
}

/// What a branch asked, and whether it lies within the bound of before.
pub(crate) fn fork_outcome(outcome: &ForkOutcome) -> Markup {
    html! {
        p {
            "The branch took " (usage(&outcome.used)) " since the fork. "
            @if outcome.is_within { "That is within what was expected: " }
            @else { "That is not within what was expected: " }
            (bound(&outcome.bound))
        }
    }
}

/// In words: how many calls, and what is not known.
pub(crate) fn bound(bound: &ForkBound) -> Markup {
    html! {
        @if bound.llm_calls.at_most == Some(0) { "no model is asked again." }
        @else {
            strong { (range(bound.llm_calls)) " model calls" }
            @match bound.steps.len() {
                0 => {},
                count => { " in " (counted(count as u64, "step")) },
            }
            "."
            @if !bound.unknown.is_empty() {
                span class="dim" {
                    " Not known: "
                    @for (at, part) in bound.unknown.iter().take(MAX_UNKNOWN).enumerate() {
                        @if at > 0 { "; " }
                        @if let Some(step) = &part.step { span class="id" { (Verbatim(step)) } ": " }
                        (part.why.as_words())
                    }
                    @if bound.unknown.len() > MAX_UNKNOWN { "; and " (bound.unknown.len() - MAX_UNKNOWN) " more" }
                    "."
                }
            }
        }
    }
}

/// `3`, `3 to 7`, `at least 3`.
fn range(amount: AmountBound) -> String {
    match (amount.at_least, amount.at_most) {
        (least, Some(most)) if least == most => least.to_string(),
        (least, Some(most)) => format!("{least} to {most}"),
        (0, None) => "any number of".to_owned(),
        (least, None) => format!("at least {least}"),
    }
}

fn usage(used: &ForkUsage) -> String {
    let calls = counted(used.llm_calls, "model call");
    match used.tokens {
        0 => calls,
        tokens => format!("{calls}, {tokens} tokens, {}", dollars(used.cost_micro_usd)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_said_as_far_as_it_is_known() {
        for (at_least, at_most, shown) in [
            (3, Some(3), "3"),
            (3, Some(7), "3 to 7"),
            (3, None, "at least 3"),
            (0, None, "any number of"),
        ] {
            assert_eq!(range(AmountBound { at_least, at_most }), shown);
        }
    }
}

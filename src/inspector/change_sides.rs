//! A value that changed, with both of its sides beside each other.

use ktsu_projections::value_diff::ValueDifference;
use maud::{Markup, html};
use serde_json::Value;

use crate::text::{Verbatim, beginning};
use crate::units::counted;
use crate::word_diff::{WordBudget, WordHunk, word_diff};

/// The most characters of a side of a difference.
const MAX_SIDE: usize = 16 * 1024;

/// The characters of what both have that are shown before and behind a change.
const CONTEXT: usize = 160;

/// A side of a change.
pub(crate) struct ChangeSide<'s> {
    /// True of the value before.
    pub(crate) is_before: bool,
    /// Its name.
    pub(crate) label: &'s str,
    /// What is said where it has no value.
    pub(crate) without: &'s str,
    /// Where all of a long value is.
    pub(crate) more: &'s str,
}

/// Both sides of a change, by words where both have a value.
pub(crate) fn change_sides(
    change: &ValueDifference,
    [a, b]: [ChangeSide<'_>; 2],
    budget: &mut WordBudget,
) -> Markup {
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
    let words = words.map(|(before, after)| word_diff(before, after, budget));
    html! {
        div class="pair" {
            @match &words {
                Some(words) => {
                    (hunks(&words.hunks, &a))
                    (hunks(&words.hunks, &b))
                }
                None => {
                    (whole(before.as_deref(), &a))
                    (whole(after.as_deref(), &b))
                }
            }
        }
        @if words.is_some_and(|words| !words.is_by_words) {
            p class="dim" { "Too long, or too different, to be compared by words." }
        }
    }
}

/// One side of texts that both have.
fn hunks(hunks: &[WordHunk<'_>], side: &ChangeSide<'_>) -> Markup {
    let (is_a, last) = (side.is_before, hunks.len().saturating_sub(1));
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
            pre tabindex="0" aria-label=(side.label) { @for part in &parts { (part) } }
            (rest(left_out, side))
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

/// One side of a value that only one of both has.
fn whole(text: Option<&str>, side: &ChangeSide<'_>) -> Markup {
    html! {
        div class="side" {
            @match text {
                None => p class="dim" { (side.without) },
                Some(text) => {
                    @let (shown, left_out) = beginning(text, MAX_SIDE);
                    pre tabindex="0" aria-label=(side.label) {
                        @if side.is_before { del { (Verbatim(shown)) } } @else { ins { (Verbatim(shown)) } }
                    }
                    (rest(left_out, side))
                }
            }
        }
    }
}

/// What is left out of a long side.
fn rest(left_out: usize, side: &ChangeSide<'_>) -> Markup {
    html! {
        @if left_out > 0 {
            p class="dim" { (counted(left_out as u64, "character")) " more: " (side.more) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: [ChangeSide<'static>; 2] = [
        ChangeSide {
            is_before: true,
            label: "Before",
            without: "not before",
            more: "below",
        },
        ChangeSide {
            is_before: false,
            label: "Now",
            without: "not now",
            more: "below",
        },
    ];

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
        let a = hunks(&hunk, &SIDES[0]).into_string();
        assert!(a.contains("&lt;a&gt; <del>old</del>"), "{a}");
        let b = hunks(&hunk, &SIDES[1]).into_string();
        assert!(b.contains("9 characters more"), "{b}");
    }
}

//! What comes next: the pure core of the engine.
//!
//! Nothing here reads a clock, a file, a socket or the environment. Text becomes a checked form
//! once ([`expression`], [`template`], [`transform`], [`airlock`], [`params`]), the forms of one
//! plan are held together by a [`definition`], and `graph` orders its steps.
//!
//! ```text
//! plan (text) --definition::compile--> Definition --(names)--> values for frames
//! ```

pub mod admit;
pub mod airlock;
pub mod defaults;
pub mod definition;
pub mod effects;
pub mod expression;
pub mod graph;
pub mod next;
pub mod params;
pub mod recompute;
pub mod rehearse;
pub mod replay;
pub mod reserved;
pub mod rules;
pub mod template;
pub mod timers;
pub mod transform;
pub mod turn;
pub mod types;

pub use effects::effects_due;

#[cfg(test)]
mod agent_tests;
#[cfg(test)]
mod cases;
#[cfg(test)]
pub(crate) mod driven_tests;
#[cfg(test)]
pub(crate) mod plans_tests;

/// The candidate a misspelt word probably means.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().min(word.len()) / 3 + 1)
        // Of two that are as far, the one that differs in case alone.
        .min_by_key(|(distance, candidate)| {
            (*distance, !candidate.eq_ignore_ascii_case(word), *candidate)
        })
        .map(|(_, candidate)| candidate)
}

/// Edits between two words; long words are cut, hints are for slips of the finger.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

//! The answers to "where did this value come from?" and "why not?" as rows of words: what the
//! command line prints and what the pages of the inspector show.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_codes::nearest;
use ktsu_projections::step_name::StepName;

use super::provenance::{
    Decider, DeciderRole, FieldNotFoundError, Hop, ProvenanceAnswer, ValueOrigin,
};
use super::why_not::{Reason, WhyNot};

/// A row of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerRow<'a> {
    /// What the rows below are.
    Heading(&'static str),
    /// A step between the value and its origins.
    Hop(&'a Hop),
    /// A recorded value.
    Place(&'a ValueOrigin),
    /// The number of values that differ from the one above only in an index.
    Alike(usize),
    /// The number of rows that are left out.
    More(usize),
    /// The number of values that could have ended the run earlier.
    KeptGoing(usize),
}

impl AnswerRow<'_> {
    /// The words of a row that is not about one frame; empty for the others.
    pub fn words(&self) -> String {
        match self {
            Self::Heading(words) => (*words).to_owned(),
            Self::Alike(count) => format!("and {count} more like it"),
            Self::More(count) => format!("and {count} more"),
            Self::KeptGoing(count) => {
                format!("{count} other places could have ended the run earlier")
            }
            Self::Hop(_) | Self::Place(_) => String::new(),
        }
    }
}

/// The rows of where a value came from, at most so many in each list.
pub fn origin_rows(answer: &ProvenanceAnswer, most: usize) -> Vec<AnswerRow<'_>> {
    let mut rows = Vec::new();
    if !answer.chain.is_empty() {
        rows.push(AnswerRow::Heading("computed by"));
    }
    rows.extend(answer.chain.iter().take(most).map(AnswerRow::Hop));
    rows.extend(more(answer.chain.len(), most));
    rows.push(AnswerRow::Heading(match answer.origins.as_slice() {
        [] => "computed from nothing recorded: it is in the definition, or a status",
        _ => "computed from",
    }));
    rows.extend(answer.origins.iter().take(most).map(AnswerRow::Place));
    rows.extend(more(answer.origins.len(), most));
    let chose = |one: &&Decider| one.why == DeciderRole::Chose;
    let count = answer.deciders.iter().filter(chose).count();
    let chosen = plainest(answer.deciders.iter().filter(chose).map(|one| &one.place));
    if !chosen.is_empty() {
        rows.push(AnswerRow::Heading("depends on, without containing"));
    }
    let chosen = group_alike(chosen);
    for (one, count) in chosen.iter().take(most) {
        rows.push(AnswerRow::Place(one));
        rows.extend((*count > 1).then(|| AnswerRow::Alike(count - 1)));
    }
    rows.extend(more(chosen.len(), most));
    let kept = answer.deciders.len() - count;
    rows.extend((kept > 0).then_some(AnswerRow::KeptGoing(kept)));
    rows
}

/// The verb between a step or a responder and its status: empty, `was` or `is`.
pub fn verb_of(why: &WhyNot) -> &'static str {
    match why.status.as_str() {
        "reacted" | "did not react" => "",
        "never triggered" => "was ",
        _ => "is ",
    }
}

/// The recorded values that decided a reason, at most so many.
pub fn values_of(reason: &Reason, most: usize) -> Vec<&ValueOrigin> {
    let mut values = plainest(reason.values.iter());
    values.truncate(most);
    values
}

/// A hint with the step that was probably meant.
pub fn similar_step(error: &FieldNotFoundError, step: &str) -> Option<String> {
    let path = StepName::parse(step).path;
    let (scope, id) = path.rsplit_once('/').unwrap_or(("", &path));
    let near = nearest(id, error.there.iter().map(String::as_str))?;
    Some(match scope {
        "" => format!("did you mean {near}?"),
        scope => format!("did you mean {scope}/{near}?"),
    })
}

fn more<'a>(count: usize, most: usize) -> Option<AnswerRow<'a>> {
    let left_out = count.saturating_sub(most);
    (left_out > 0).then_some(AnswerRow::More(left_out))
}

/// The places without those that only hold others of them.
fn plainest<'a>(all: impl Iterator<Item = &'a ValueOrigin>) -> Vec<&'a ValueOrigin> {
    let all: Vec<&ValueOrigin> = all.collect();
    let known: BTreeSet<(u64, &str)> = all.iter().map(|one| (one.frame, one.at.as_str())).collect();
    let holds_another = |one: &ValueOrigin| {
        let below = format!("{}/", one.at);
        let mut after = known.range((one.frame, below.as_str())..);
        after
            .next()
            .is_some_and(|(frame, at)| *frame == one.frame && at.starts_with(&below))
    };
    all.into_iter().filter(|one| !holds_another(one)).collect()
}

/// Groups places that differ only in an index, with their number; the latest first, since people
/// look for what decided last.
fn group_alike(all: Vec<&ValueOrigin>) -> Vec<(&ValueOrigin, usize)> {
    let pattern = |one: &ValueOrigin| {
        let parts = one.name.split(['.', ' ', ':']);
        let parts = parts.map(|part| match part.parse::<u64>() {
            Ok(_) => "*",
            Err(_) => part,
        });
        parts.collect::<Vec<_>>().join(" ")
    };
    let mut groups: BTreeMap<String, Vec<&ValueOrigin>> = BTreeMap::new();
    for one in all {
        groups.entry(pattern(one)).or_default().push(one);
    }
    let mut found = Vec::with_capacity(groups.len());
    for group in groups.into_values() {
        let latest = group.iter().max_by_key(|one| one.frame);
        found.extend(latest.map(|latest| (*latest, group.len())));
    }
    found
        .sort_by(|(left, _), (right, _)| (right.frame, &left.name).cmp(&(left.frame, &right.name)));
    found
}

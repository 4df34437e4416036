//! The words that the author of a step wrote for people who look at a run.

use std::collections::HashMap;

use ktsu_projections::run::{RunState, StepKey};

use super::names::{Memo, ScopedNames};
use crate::expression::{EvaluationError, Evaluator, Root, Tracker};
use crate::rules::DecisionRules;
use crate::template::{Template, text_of};

/// The most characters of a summary.
pub const MAX_SUMMARY: usize = 200;

/// The summaries of steps and items, with the values that a run has now; none where the author wrote none,
/// or where it cannot be rendered. All together may take as much work as one template of a decision: once one
/// takes more than is left, the list ends.
pub fn step_summaries(state: &RunState, wanted: &[(StepKey, Option<u32>)]) -> Vec<Option<String>> {
    let memo = Memo::default();
    let mut templates: HashMap<StepKey, Option<Template>> = HashMap::new();
    let mut tracker = Tracker::default();
    let mut evaluator = Evaluator::new(&mut tracker);
    let rules = DecisionRules::of(state);
    let mut summaries = Vec::with_capacity(wanted.len());
    for (step, item) in wanted {
        let template = templates.entry(*step);
        let template = template.or_insert_with(|| written(state, *step)).as_ref();
        let Some(template) = template.filter(|one| is_of_items(one) == item.is_some()) else {
            summaries.push(None);
            continue;
        };
        let names = ScopedNames::new(state, step.scope(), &memo).of_step(step.position());
        let names = match item {
            Some(item) => names.with_item(*item),
            None => names,
        };
        let is_secret = |name: &str| names.is_secret(name);
        let rendered = template.render_within(&names, &is_secret, rules, &mut evaluator);
        if rendered.as_ref().is_err_and(EvaluationError::is_about_size) {
            break;
        }
        let words = rendered
            .ok()
            .map(|made| in_a_line(&text_of(&made.value, rules)));
        summaries.push(words.filter(|words| !words.is_empty()));
    }
    summaries
}

/// The summary of a step as its author wrote it.
fn written(state: &RunState, at: StepKey) -> Option<Template> {
    let step = state.scope(at.scope())?.shape.step(at.position()?)?;
    Template::text(step.summary.as_deref()?).ok()
}

/// Returns `true` if each item has a summary of its own.
fn is_of_items(template: &Template) -> bool {
    let roots = template.roots();
    roots.contains(&Root::Item) || roots.contains(&Root::ItemIndex)
}

/// A text on one line, not too long.
fn in_a_line(text: &str) -> String {
    let mut line = String::new();
    let mut left = MAX_SUMMARY;
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
            left = left.saturating_sub(1);
        }
        let end = word.char_indices().nth(left).map(|(end, _)| end);
        line.push_str(word.get(..end.unwrap_or(word.len())).unwrap_or_default());
        match end {
            None => left = left.saturating_sub(word.chars().count()),
            Some(_) => {
                line.push('…');
                break;
            }
        }
    }
    line
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;

//! The actions of responders, as rows below the steps of a run.

use std::collections::BTreeMap;

use super::envelope::mark;
use super::output::{DIM, painted, symbols};
use super::step_row::{StepRow, branch};
use super::{agents, text};
use ktsu_history::world_timeline::{WorldEntry, WorldTimeline};

/// The deepest indentation of rows; a chain of reactions may be longer.
const MAX_INDENT: usize = 12;
/// The most responders that did not react in a row.
const MAX_PASSED: usize = 4;

/// The rows of a tree, each below what it follows from.
pub(super) fn rows(world: &WorldTimeline) -> Vec<StepRow> {
    let mut below: BTreeMap<Option<u64>, Vec<&WorldEntry>> = BTreeMap::new();
    for entry in &world.tree {
        below.entry(entry.parent).or_default().push(entry);
    }
    let mut rows = Vec::new();
    let mut open = Vec::new();
    push_open(&mut open, below.remove(&None), "", 0);
    while let Some((entry, last, lines, depth)) = open.pop() {
        let (here, inside) = match depth < MAX_INDENT {
            true => branch(&lines, last),
            false => (lines.clone(), lines.clone()),
        };
        rows.push(row(entry, here));
        push_open(
            &mut open,
            below.remove(&Some(entry.frame)),
            &inside,
            depth + 1,
        );
    }
    rows
}

/// Puts entries on a stack, the first one on top.
fn push_open<'w>(
    open: &mut Vec<(&'w WorldEntry, bool, String, usize)>,
    entries: Option<Vec<&'w WorldEntry>>,
    lines: &str,
    depth: usize,
) {
    let entries = entries.unwrap_or_default();
    let count = entries.len();
    let numbered = entries.into_iter().enumerate().rev();
    open.extend(numbered.map(|(at, entry)| (entry, at + 1 == count, lines.to_owned(), depth)));
}

fn row(entry: &WorldEntry, lines: String) -> StepRow {
    let start = format!("+{}", text::duration(entry.after_ms));
    let wrong = !entry.failed.is_empty();
    let mut note = agents::joined([note(entry), entry.failed.join("; ")]);
    if entry.left_out > 0 {
        let ellipsis = symbols().ellipsis();
        note = agents::joined([note, format!("{ellipsis} {} more below it", entry.left_out)]);
    }
    let Some(task) = &entry.task else {
        return StepRow {
            lines,
            mark: painted(DIM, symbols().dot()),
            name: text::line(entry.about.as_deref().unwrap_or(&entry.kind)).into_owned(),
            kind: text::line(&entry.kind).into_owned(),
            start,
            note,
            wrong,
            ..StepRow::default()
        };
    };
    let tokens = (task.tokens_in, task.tokens_out);
    StepRow {
        lines,
        mark: mark(task.status),
        name: text::line(&entry.actor).into_owned(),
        kind: task.kind.to_owned(),
        start,
        time: text::duration(task.duration_ms),
        cost: match task.cost_micro_usd {
            0 => String::new(),
            cost => text::cost(cost),
        },
        note: agents::joined([agents::calls(task.llm_calls, tokens, (0, 0, 0)), note]),
        wrong: wrong || task.status == "failed",
    }
}

fn note(entry: &WorldEntry) -> String {
    let actor = match entry.task.is_some() {
        true => String::new(),
        false => entry.actor.clone(),
    };
    let more = entry.passed.len().saturating_sub(MAX_PASSED);
    let passed = entry.passed.iter().take(MAX_PASSED).cloned();
    let passed = passed.collect::<Vec<_>>().join(", ");
    let passed = match (passed.as_str(), more) {
        ("", _) => String::new(),
        (passed, 0) => format!("not {passed}"),
        (passed, more) => format!("not {passed} and {more} more"),
    };
    agents::joined([actor, passed])
}

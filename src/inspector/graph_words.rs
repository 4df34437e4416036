//! What is written in the boxes of a graph, and about how wide it is.

use ktsu_history::skeleton::StepSpan;
use ktsu_projections::envelope::ShownStatus;
use ktsu_projections::run::StepStatus;

use crate::status::words;
use crate::text::beginning;
use crate::units::{cost, counted, duration};

/// The id of a step, by its path.
pub(crate) fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(crate) fn is_plain(step: &StepSpan) -> bool {
    step.status == ShownStatus::Own(StepStatus::Complete)
}

pub(crate) fn all_of(count: u64, complete: u64) -> String {
    match complete {
        0 => "none of them complete".to_owned(),
        complete if complete == count => "all complete".to_owned(),
        complete => format!("{complete} of them complete"),
    }
}

/// What is written in the box of a step: its name, its kind and status, what it took, and its items or
/// why it was skipped.
pub(crate) fn lines_of(step: &StepSpan) -> Vec<String> {
    let status = step.status.as_str();
    let mut kind = kind_of(step);
    if status != "complete" {
        kind = match kind.is_empty() {
            true => words(status),
            false => format!("{kind}, {}", words(status)),
        };
    }
    let mut lines = vec![last_part(&step.path).to_owned(), kind];
    let took = [took(step), cost(step.metrics.cost_micro_usd)];
    let took: Vec<String> = took.into_iter().filter(|one| !one.is_empty()).collect();
    lines.extend((!took.is_empty()).then(|| took.join(" · ")));
    lines.extend(items_in_words(step));
    lines.extend(step.error.clone().or_else(|| step.skip_reason.clone()));
    lines
}

fn took(step: &StepSpan) -> String {
    // What was skipped or stopped before it began took no time.
    let took = step.took_ms();
    took.filter(|ms| *ms > 0 || is_plain(step))
        .map(duration)
        .unwrap_or_default()
}

/// The kind of a step, with the number of its items or the workflow that it runs.
fn kind_of(step: &StepSpan) -> String {
    let items = items_of(step);
    match (step.kind.as_str(), step.children.as_slice()) {
        ("item", _) => String::new(),
        ("workflow", [child]) => format!("workflow {}", child.workflow),
        (kind, _) if items > 0 => format!("{kind}, {}", counted(items, "item")),
        (kind, _) => kind.to_owned(),
    }
}

fn items_of(step: &StepSpan) -> u64 {
    step.items.len() as u64 + step.folded.map_or(0, |folded| folded.count)
}

/// `26 complete, 1 failed, 1 skipped` of a fan-out.
fn items_in_words(step: &StepSpan) -> Option<String> {
    let counts = step.counts?;
    let ended = [counts.succeeded, counts.failed, counts.skipped];
    let at_work = items_of(step).saturating_sub(ended.iter().map(|one| u64::from(*one)).sum());
    let parts = [
        (u64::from(counts.succeeded), "complete"),
        (u64::from(counts.failed), "failed"),
        (u64::from(counts.skipped), "skipped"),
        (at_work, "not ended"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    match parts.is_empty() {
        true => Some("no items".to_owned()),
        false => Some(parts.join(", ")),
    }
}

/// A step in a sentence, for those who do not see the drawing.
pub(crate) fn in_words(step: &StepSpan) -> String {
    let mut all = lines_of(step);
    if is_plain(step) {
        all.insert(2.min(all.len()), "complete".to_owned());
    }
    if step.calls.len() > 1 {
        all.push(counted(step.calls.len() as u64, "call"));
    }
    if !step.needs.is_empty() {
        all.push(format!("after {}", step.needs.join(", ")));
    }
    all.retain(|one| !one.is_empty());
    all.join(", ")
}

/// The beginning of a line that has room in a box, and whether that is all.
pub(crate) fn that_fits(line: &str, room: u32) -> (&str, bool) {
    if text_width(line) <= room {
        return (line, true);
    }
    let mut width = text_width("…");
    let fitting = line.chars().take_while(|c| {
        width += char_width(*c);
        width <= room
    });
    (beginning(line, fitting.count()).0, false)
}

/// About as wide as a text is, and not narrower in the fonts at hand.
pub(crate) fn text_width(text: &str) -> u32 {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> u32 {
    match c {
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | '.' | ',' | ' ' => 5,
        'm' | 'w' | 'M' | 'W' => 11,
        c if c.is_ascii() => 8,
        _ => 13,
    }
}

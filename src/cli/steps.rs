//! The steps of a run as a tree, with what they called and the children they ran.

use super::envelope::mark;
use super::output::{BAD, BOLD, DIM, line, painted};
use super::text;
use crate::history::steps::{Step, Told};

/// The most columns the tree takes.
const NAMES: usize = 48;

/// A row: a branch of the tree, and what stands beside it.
struct Row {
    /// How far the name is from the edge, as lines of the tree.
    lines: String,
    mark: String,
    name: String,
    kind: String,
    start: String,
    time: String,
    cost: String,
    note: String,
    wrong: bool,
}

/// Prints a run.
pub(super) fn print(told: &Told) {
    line(&format!(
        "{} {} {} {}",
        mark(&told.status),
        painted(
            BOLD,
            &text::line(&format!("{} {}", told.workflow, told.version))
        ),
        told.status,
        painted(DIM, &text::line(&told.run_id))
    ));
    let mut rows = Vec::new();
    steps(&told.steps, "", &mut rows);
    let name = |row: &Row| row.lines.chars().count() + row.name.chars().count() + 2;
    let names = rows.iter().map(name).max().unwrap_or(0).clamp(4, NAMES);
    let wide = |of: fn(&Row) -> &String, least: usize| {
        let cells = rows.iter().map(|row| of(row).chars().count());
        cells.max().unwrap_or(0).max(least)
    };
    let kinds = wide(|row| &row.kind, 4);
    let starts = wide(|row| &row.start, 5);
    let times = wide(|row| &row.time, 4);
    let costs = wide(|row| &row.cost, 4);
    line(&painted(
        DIM,
        &format!(
            "{:<names$}  {:<kinds$}  {:>starts$}  {:>times$}  {:>costs$}  NOTE",
            "STEP", "TYPE", "START", "TIME", "COST"
        ),
    ));
    for row in &rows {
        let room = names.saturating_sub(row.lines.chars().count() + 2);
        let shown = text::short(&row.name, room);
        let note = text::short(&row.note, 160);
        let note = match row.wrong {
            true => painted(BAD, &note),
            false => painted(DIM, &note),
        };
        let words = format!(
            "{}{} {shown:<room$}  {:<kinds$}  {:>starts$}  {:>times$}  {:>costs$}  {note}",
            painted(DIM, &row.lines),
            row.mark,
            row.kind,
            row.start,
            row.time,
            row.cost,
        );
        if !line(words.trim_end()) {
            return;
        }
    }
    let totals = &told.totals;
    line(&painted(
        DIM,
        &format!(
            "{} steps in {}, {}",
            rows.iter().filter(|row| !row.kind.is_empty()).count(),
            text::duration(totals.duration_ms),
            text::cost(totals.cost_micro_usd)
        ),
    ));
    if let Some(error) = &told.error {
        let place = error.step.as_deref().map(|step| format!(" in step {step}"));
        let words = format!("{}: {}", error.code, error.message);
        line(&format!(
            "{}{}: {}",
            painted(BAD, "error"),
            text::line(&place.unwrap_or_default()),
            text::short(&words, 1000)
        ));
    }
}

/// Children are as deep as workflows are nested, which the kit bounds.
fn steps(all: &[Step], lines: &str, rows: &mut Vec<Row>) {
    for (position, step) in all.iter().enumerate() {
        let last = position + 1 == all.len();
        let (here, below) = if last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        rows.push(step_row(step, format!("{lines}{here}")));
        let below = format!("{lines}{below}");
        let children = step.child.as_ref().map_or(&[][..], |child| &child.steps);
        for (position, call) in step.calls.iter().enumerate() {
            let last = position + 1 == step.calls.len() && children.is_empty();
            rows.push(Row {
                lines: format!("{below}{}", if last { "└─ " } else { "├─ " }),
                mark: painted(DIM, "·"),
                name: text::line(&call.kind).into_owned(),
                kind: String::new(),
                start: format!("+{}", text::duration(call.after_ms)),
                time: String::new(),
                cost: String::new(),
                note: call.detail.clone(),
                wrong: false,
            });
        }
        steps(children, &below, rows);
    }
}

fn step_row(step: &Step, lines: String) -> Row {
    let cost = step.metrics.cost_micro_usd;
    let ended = !matches!(step.status.as_str(), "pending" | "running");
    let mut note = match (&step.error, &step.skip_reason) {
        (Some(error), _) => format!("{}: {}", error.code, error.message),
        (None, Some(reason)) => format!("skipped: {reason}"),
        (None, None) if step.status == "complete" => String::new(),
        (None, None) => step.status.clone(),
    };
    if !step.after.is_empty() {
        let after = format!("after {}", step.after.join(", "));
        note = if note.is_empty() {
            after
        } else {
            format!("{note} ({after})")
        };
    }
    if step.attempt > 1 {
        note = format!("attempt {} {note}", step.attempt);
    }
    Row {
        lines,
        mark: mark(&step.status),
        name: text::line(&step.id).into_owned(),
        kind: step.kind.clone(),
        start: step
            .after_ms
            .map_or_else(|| "-".to_owned(), |ms| format!("+{}", text::duration(ms))),
        time: if ended && step.skip_reason.is_none() {
            text::duration(step.metrics.duration_ms)
        } else {
            "-".to_owned()
        },
        cost: match cost {
            0 => "-".to_owned(),
            cost => text::cost(cost),
        },
        wrong: step.error.is_some(),
        note,
    }
}

//! The result of a recompute as text, JSON, or Markdown for a pull request.

use std::process::ExitCode;

use clap::ValueEnum;
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::{ComparedTask, Sameness, ValueChange, Violation};
use serde_json::Value;

use super::output::{BAD, BOLD, DIM, GOOD, WARN, line, painted, print_json, symbols, words};
use super::{Failure, text};
use ktsu_baseline::RepeatedRun;
use ktsu_codes::{EXIT_COULD_NOT_RUN, EXIT_VERDICT};
use ktsu_history::recompute::RecomputeReport;
use ktsu_schema::message_at;
use ktsu_workflow::recompute::RecomputedWorld;

/// How to print it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// For pull requests
    Markdown,
}

/// The most characters of one value in a line.
const VALUE: usize = 160;
/// The most objects, or names, of a kind that are shown; `--json` has all of them.
const MAX_SHOWN: usize = 50;
/// The indentation of a continued line.
const HANG: usize = 6;

/// Prints a verdict.
pub(super) fn print(verdict: &RecomputeReport, shape: OutputFormat) -> Result<(), Failure> {
    match shape {
        OutputFormat::Json => drop(print_json(verdict)?),
        OutputFormat::Text => {
            for task in &verdict.tasks {
                print_named(&name_of(task), task);
            }
            if let Some(world) = &verdict.world {
                line(&painted(BOLD, "world"));
                for one in world_lines(world) {
                    words(&format!("  {one}"), HANG);
                }
            }
            line(&format!(
                "{} {}",
                painted(DIM, "verdict"),
                status_text(&verdict.status)
            ));
        }
        OutputFormat::Markdown => {
            let of = verdict.run_id.as_deref().unwrap_or_default();
            line(&format!(
                "## Recompute of `{}`: {}\n",
                text::line(of),
                verdict.status
            ));
            for task in &verdict.tasks {
                for one in markdown(&name_of(task), task) {
                    line(&one);
                }
            }
            if let Some(world) = &verdict.world {
                line("### World\n");
                for one in fenced(world_lines(world)) {
                    line(&one);
                }
            }
        }
    }
    Ok(())
}

/// 0 clean, 1 a verdict against, 2 could not run.
pub(super) fn exit_code(status: &str, allow_not_comparable: bool) -> ExitCode {
    match status {
        "clean" => ExitCode::SUCCESS,
        "not_comparable" if allow_not_comparable => ExitCode::SUCCESS,
        "not_comparable" | "value_changed" | "schema_violation" => ExitCode::from(EXIT_VERDICT),
        _ => ExitCode::from(EXIT_COULD_NOT_RUN),
    }
}

/// A status in its colour.
pub(super) fn status_text(status: &str) -> String {
    let style = match status {
        "clean" | "pass" => GOOD,
        "not_comparable" | "value_changed" => WARN,
        _ => BAD,
    };
    painted(style, &text::line(status))
}

/// The step, and the item of it.
fn name_of(task: &ComparedTask) -> String {
    let step = text::line(&task.step);
    match task.item {
        Some(item) => format!("{step}.{item}"),
        None => step.into_owned(),
    }
}

/// Prints a task with its details under a name.
pub(super) fn print_named(name: &str, task: &ComparedTask) {
    let name = painted(BOLD, name);
    line(&format!("{name}  {}", status_text(task.status.as_str())));
    details(task, "  ");
}

/// Prints what a second run on the same replies gave.
pub(super) fn print_repeated(repeated: &RepeatedRun) {
    line(&format!("  twice: {}", repeated.words()));
    for change in &repeated.diff {
        words(&format!("    {}", change_text(change)), HANG);
    }
}

fn details(task: &ComparedTask, indent: &str) {
    if let Some(reason) = &task.reason {
        words(&format!("{indent}{}", text::line(reason)), HANG);
    }
    if task.retryable == Some(true) {
        line(&format!("{indent}retryable: another attempt may succeed"));
    }
    for violation in &task.violations {
        words(&format!("{indent}! {}", violation_text(violation)), HANG);
    }
    for change in &task.diff {
        words(&format!("{indent}{}", change_text(change)), HANG);
    }
    if task.status == Sameness::SchemaViolation && task.diff.is_empty() {
        line(&format!("{indent}(no changes)"));
    }
}

/// A task as Markdown, a line each.
pub(super) fn markdown(name: &str, task: &ComparedTask) -> Vec<String> {
    let mut lines = vec![format!("### `{name}`: {}\n", task.status.as_str())];
    lines.extend(
        task.reason
            .iter()
            .map(|reason| format!("{}\n", text::line(reason))),
    );
    if task.retryable == Some(true) {
        lines.push("Retryable: another attempt may succeed.\n".to_owned());
    }
    let mut changes: Vec<String> = task
        .violations
        .iter()
        .map(|one| format!("! {}", violation_text(one)))
        .collect();
    changes.extend(task.diff.iter().map(change_text));
    if !changes.is_empty() {
        lines.extend(fenced(changes));
    }
    lines
}

/// Lines that Markdown shows as they are.
fn fenced(shown: Vec<String>) -> Vec<String> {
    // A fence must be longer than any in what it holds.
    let longest = shown.iter().map(|one| longest_run(one)).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let mut lines = vec![format!("{fence}diff")];
    lines.extend(shown);
    lines.push(format!("{fence}\n"));
    lines
}

fn longest_run(text: &str) -> usize {
    text.split(|one| one != '`')
        .map(str::len)
        .max()
        .unwrap_or(0)
}

fn violation_text(violation: &Violation) -> String {
    let what = message_at(&violation.message, &violation.path);
    let words = format!("{what} ({})", violation.rule);
    text::short(&words, VALUE)
}

/// `+ path: v`, `- path: v`, `  path: a → b`.
fn change_text(change: &ValueChange) -> String {
    let text = |value: &Option<CanonicalJson>| value.as_ref().map(|one| one.as_str().to_owned());
    change_line(&change.path, text(&change.before), text(&change.after))
}

fn change_line(path: &str, before: Option<String>, after: Option<String>) -> String {
    let path = if path.is_empty() { "/" } else { path };
    let path = text::short(path, VALUE);
    let value = |value: String| text::short(&value, VALUE);
    match (before, after) {
        (None, Some(after)) => format!("+ {path}: {}", value(after)),
        (Some(before), None) => format!("- {path}: {}", value(before)),
        (Some(before), Some(after)) => format!(
            "  {path}: {} {} {}",
            value(before),
            symbols().arrow(),
            value(after)
        ),
        (None, None) => format!("  {path}"),
    }
}

/// The differences in the world of a run, a line each.
fn world_lines(world: &RecomputedWorld) -> Vec<String> {
    if let Some(reason) = &world.reason {
        return vec![format!("not compared: {}", text::line(reason))];
    }
    let diff = &world.diff;
    let mut lines = vec![diff.ids().to_string()];
    for (sign, ids) in [
        ("+", &diff.added_objects),
        ("-", &diff.removed_objects),
        ("+", &diff.added_relations),
        ("-", &diff.removed_relations),
    ] {
        let shown = ids.iter().take(MAX_SHOWN);
        lines.extend(shown.map(|id| format!("{sign} {}", text::line(id))));
        lines.extend(more(ids.len()));
    }
    for entries in [&diff.patched_objects, &diff.patched_relations] {
        for one in entries.iter().take(MAX_SHOWN) {
            lines.push(format!("~ {}", text::line(&one.id)));
            lines.extend(one.changes.iter().map(|change| {
                let json = |value: &Option<Value>| value.as_ref().map(Value::to_string);
                let change = change_line(&change.path, json(&change.before), json(&change.after));
                format!("  {change}")
            }));
        }
        lines.extend(more(entries.len()));
    }
    if let Some(status) = &world.status {
        let (before, after) = (text::line(&status.before), text::line(&status.after));
        let error = status.error.as_deref().map(text::line);
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        lines.push(format!("the run would be {after}, not {before}{error}"));
    }
    for (what, names) in [
        ("would ask", &world.would_ask),
        ("would ask otherwise", &world.would_ask_otherwise),
        ("would not ask", &world.would_not_ask),
        ("would not use", &world.unused),
        ("not recomputed", &world.not_recomputed),
        ("new reply not applied", &world.not_applied),
    ] {
        let shown = names.iter().take(MAX_SHOWN);
        lines.extend(shown.map(|name| format!("{what} {}", text::line(name))));
        lines.extend(more(names.len()));
    }
    lines
}

fn more(count: usize) -> Option<String> {
    let left = count.checked_sub(MAX_SHOWN).filter(|left| *left > 0)?;
    Some(format!(
        "{} {left} more; all with --json",
        symbols().ellipsis()
    ))
}

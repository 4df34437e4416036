//! Prints an envelope for people: each step, what its world holds, and the output.

mod world;

use std::process::ExitCode;

use serde::Deserialize as _;
use serde_json::Value;

use super::layout::Column;
use super::output::{
    BAD, BOLD, DIM, GOOD, WARN, line, line_dim, painted, sheet, symbols, words as print_words,
};
use super::table::{FailureReason, Rows};
use super::{Failure, agents, json, text};
use ktsu_history::steering::SteeringView;

/// More lines of an output are not shown at once.
const MAX_LINES: usize = 60;
/// More items that failed, were skipped or flagged are not shown at once.
const MAX_NOTABLE_ITEMS: usize = 10;
/// Nor more characters of one line.
const MAX_LINE_CHARS: usize = 400;

/// The parts of it to show.
#[derive(Debug, Clone, Copy)]
pub(super) struct EnvelopeView<'a> {
    /// The steps, unless they have just been seen.
    pub(super) steps: bool,
    /// The text to type to see everything.
    pub(super) all: &'a str,
}

/// Prints an envelope.
pub(super) fn print(envelope: &str, shown: EnvelopeView<'_>) -> Result<(), Failure> {
    let value = parse(envelope)?;
    headline(&value);
    steered(&value);
    if let Some(error) = value["error"].as_object() {
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let place = match text("step") {
            "" => String::new(),
            step => format!(" in step {}", text::line(step)),
        };
        let words = format!("{}: {}", text("code"), text("message"));
        let words = text::line(&words);
        print_words(&format!("{}{place}: {words}", painted(BAD, "error")), 2);
    }
    world::warnings(&value);
    let has_steps = value["steps"]
        .as_array()
        .is_some_and(|steps| !steps.is_empty());
    // A world that runs by itself has no steps, and an empty table says nothing.
    if shown.steps && (has_steps || value["world"].is_null()) {
        line("");
        steps(&value);
    }
    world::summary(&value);
    if !value["output"].is_null() {
        line("");
        line(&painted(BOLD, "output"));
        output(&value["output"].to_string(), shown.all);
    }
    Ok(())
}

/// The exit code of the command: 0 for a run that completed, 1 for one that did not.
pub(super) fn verdict(envelope: &str) -> Result<ExitCode, Failure> {
    let value = parse(envelope)?;
    match value["status"].as_str().unwrap_or_default() {
        "complete" => Ok(ExitCode::SUCCESS),
        "failed" | "cancelled" => Ok(ExitCode::from(ktsu_codes::EXIT_VERDICT)),
        status => Err(Failure::could_not_run(format!(
            "the run has not ended; it is {status}"
        ))),
    }
}

/// Returns `true` if the run waits.
pub(super) fn is_waiting(envelope: &str) -> bool {
    parse(envelope).is_ok_and(|value| value["status"] == "waiting")
}

fn parse(envelope: &str) -> Result<Value, Failure> {
    serde_json::from_str(envelope)
        .map_err(|_| Failure::could_not_run("the response is not an envelope"))
}

/// Prints that a run is paused, since when, by whom and why. Cancellation appears in the run's
/// error.
fn steered(value: &Value) {
    if let Ok(word) = SteeringView::deserialize(&value["paused"]) {
        paused(&word);
    }
}

/// `paused since 2026-11-22 14:00:00Z by olga: why`.
pub(super) fn paused(word: &SteeringView) {
    let words = word.to_string();
    print_words(
        &format!("{} {}", painted(WARN, "paused"), text::line(&words)),
        2,
    );
}

fn headline(value: &Value) {
    let text = |name: &str| text::line(value[name].as_str().unwrap_or_default()).into_owned();
    let took = text::duration(value["totals"]["duration_ms"].as_u64().unwrap_or_default());
    let cost = value["totals"]["cost_micro_usd"]
        .as_u64()
        .unwrap_or_default();
    let cost = match cost {
        0 => String::new(),
        cost => format!(", {}", text::cost(cost)),
    };
    let totals = &value["totals"];
    let asked = match calls(totals).as_str() {
        "" => String::new(),
        words => format!(", {words}"),
    };
    let status = text("status");
    let waited = match totals["waited_ms"].as_u64() {
        Some(ms) => format!(", {}", text::waited(ms)),
        None => String::new(),
    };
    let words = format!(
        "{} {} {} {}",
        mark(&status),
        painted(BOLD, &format!("{} {}", text("workflow"), text("version"))),
        status,
        painted(DIM, &format!("in {took}{waited}{cost}{asked}"))
    );
    for one in sheet().beside(&words, &painted(DIM, &text("run_id"))) {
        line(&one);
    }
}

/// A status as one character.
pub(super) fn mark(status: &str) -> String {
    let symbols = symbols();
    match status {
        "complete" => painted(GOOD, symbols.good()),
        "failed" => painted(BAD, symbols.bad()),
        "skipped" | "cancelled" => painted(DIM, symbols.skipped()),
        "pending" => painted(DIM, symbols.dot()),
        _ => painted(WARN, symbols.going()),
    }
}

/// The model calls in words; empty if there were none.
fn calls(metrics: &Value) -> String {
    let number = |name: &str| metrics[name].as_u64().unwrap_or_default();
    match number("llm_calls") {
        0 => String::new(),
        calls => agents::calls(
            calls,
            (number("tokens_in"), number("tokens_out")),
            (
                number("reflect_calls"),
                number("repair_calls"),
                number("cached_calls"),
            ),
        ),
    }
}

fn steps(value: &Value) {
    let steps = value["steps"].as_array().map(Vec::as_slice);
    let steps = steps.unwrap_or_default();
    let cost_of = |step: &Value| step["metrics"]["cost_micro_usd"].as_u64();
    let has_cost = steps.iter().any(|step| cost_of(step).unwrap_or(0) > 0);
    let mut head = vec![
        Column::name("STEP"),
        Column::whole("TYPE").spare(4),
        Column::whole("STATUS"),
        Column::whole("TIME").right().spare(2),
        Column::text("NOTE").spare(1),
    ];
    if has_cost {
        head.insert(4, Column::whole("COST").right().spare(3));
    }
    let mut rows = Rows::new(&head);
    for step in steps {
        let mut row = row(step);
        if has_cost {
            let cost = match cost_of(step).unwrap_or(0) {
                0 => "-".to_owned(),
                cost => text::cost(cost),
            };
            row.insert(4, cost);
        }
        rows.push(row);
    }
    let failed = steps.iter().enumerate();
    let failed = failed.filter(|(_, step)| !step["error"].is_null());
    let failed = failed.map(|(row, step)| FailureReason {
        row,
        name: text::line(step["id"].as_str().unwrap_or_default()).into_owned(),
        words: ended(step),
    });
    rows.print_with(&failed.collect::<Vec<_>>());
    for step in steps {
        notable_items(step);
    }
}

fn row(step: &Value) -> Vec<String> {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    let attempt = match step["attempt"].as_u64().unwrap_or_default() {
        0 | 1 => String::new(),
        attempt => format!("attempt {attempt}"),
    };
    let took = match (text("started_at"), text("ended_at")) {
        ("", _) | (_, "") => "-".to_owned(),
        _ => text::duration(step["metrics"]["duration_ms"].as_u64().unwrap_or_default()),
    };
    let counts = step["counts"].as_object().map(|counts| {
        let number = |name: &str| counts.get(name).and_then(Value::as_u64);
        let number = |name: &str| number(name).unwrap_or_default();
        agents::items(number("succeeded"), number("failed"), number("skipped"))
    });
    let calls = match text("type") {
        "agent" => calls(&step["metrics"]),
        _ => String::new(),
    };
    let note = agents::joined([
        attempt,
        ended(step),
        counts.unwrap_or_default(),
        agent_notes(step),
        calls,
        text::waited(step["metrics"]["waited_ms"].as_u64().unwrap_or_default()),
    ]);
    vec![
        text::line(text("id")).into_owned(),
        text::line(text("type")).into_owned(),
        text::line(text("status")).into_owned(),
        took,
        note,
    ]
}

/// The reason why a step or an item is not complete.
fn ended(one: &Value) -> String {
    let text = |name: &str| one[name].as_str().unwrap_or_default();
    let error = &one["error"];
    if error.is_null() {
        return text::line(text("skip_reason")).into_owned();
    }
    let part = |name: &str| error[name].as_str().unwrap_or_default();
    let words = format!("{}: {}", part("code"), part("message"));
    let raw = match one["raw_output"].is_null() {
        true => "",
        false => " (output: raw_output with --json)",
    };
    format!("{}{raw}", text::line(&words))
}

/// The remarks that an agent reported next to its output: confidence, flags, reflection.
fn agent_notes(one: &Value) -> String {
    let flags = one["flags"].as_array().map(Vec::as_slice);
    let reflected = one["counts"].is_null() && one["reflected"] == true;
    let confidence = match &one["confidence"] {
        Value::Null => String::new(),
        confidence => format!("confidence {}", text::line(&confidence.to_string())),
    };
    agents::joined([
        if reflected { "reflected" } else { "" }.to_owned(),
        confidence,
        agents::flags(flags.unwrap_or_default().iter().filter_map(Value::as_str)),
    ])
}

/// The items of a fan-out that a person wants to see: failed ones, skipped ones, flagged ones.
fn notable_items(step: &Value) {
    let items = step["items"].as_array().map(Vec::as_slice);
    let items = items.unwrap_or_default().iter();
    let odd: Vec<&Value> = items
        .filter(|item| {
            let is_odd = matches!(item["status"].as_str(), Some("failed" | "skipped"));
            is_odd || item["flags"].is_array()
        })
        .collect();
    for item in odd.iter().take(MAX_NOTABLE_ITEMS) {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        let words = format!(
            "  {} {} {}",
            mark(text("status")),
            text::line(text("id")),
            painted(DIM, &agents::joined([ended(item), agent_notes(item)]))
        );
        print_words(&words, 4);
    }
    if odd.len() > MAX_NOTABLE_ITEMS {
        let more = odd.len() - MAX_NOTABLE_ITEMS;
        line_dim(&format!("  {} {more} more", symbols().ellipsis()));
    }
}

fn output(output: &str, all: &str) {
    let shown = json::pretty(output);
    let total = shown.lines().count();
    let (mut kept, mut cut) = (0, false);
    for one in shown.lines().take(MAX_LINES) {
        let short = text::short(one, MAX_LINE_CHARS);
        cut |= short.len() != one.len();
        kept += 1;
        if !line(&short) {
            return;
        }
    }
    if kept < total || cut {
        let more = match total - kept {
            0 => "long lines are cut".to_owned(),
            left => text::count(left, "more line"),
        };
        line_dim(&format!("{} {more}; in full: {all}", symbols().ellipsis()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn note(step: &Value) -> String {
        row(step).pop().unwrap()
    }

    #[test]
    fn a_step_of_an_agent_shows_what_it_said_and_used() {
        let step = json!({"id": "think", "type": "agent", "status": "complete", "attempt": 2,
            "reflected": true, "confidence": 0.8, "flags": ["odd"],
            "metrics": {"llm_calls": 3, "reflect_calls": 1, "tokens_in": 100, "tokens_out": 10}});
        assert_eq!(
            note(&step),
            "attempt 2, reflected, confidence 0.8, flags: odd, \
             3 calls, 1 reflection, 100+10 tokens"
        );
    }

    #[test]
    fn a_failed_step_says_where_the_output_is_that_was_refused() {
        let step = json!({"id": "think", "type": "agent", "status": "failed", "reflected": false,
            "error": {"code": "schema_violation", "message": "at /n"}, "raw_output": {"n": 1},
            "metrics": {}});
        assert_eq!(
            note(&step),
            "schema_violation: at /n (output: raw_output with --json)"
        );
    }

    #[test]
    fn a_fan_out_shows_how_its_items_ended() {
        let step = json!({"id": "each", "type": "agent", "status": "complete", "reflected": true,
            "counts": {"succeeded": 3, "failed": 1, "skipped": 2}, "metrics": {"llm_calls": 4}});
        assert_eq!(
            note(&step),
            "6 items, 1 failed, 2 skipped, 4 calls, 0+0 tokens"
        );
    }

    #[test]
    fn nothing_in_a_row_steers_the_terminal() {
        let evil = "\u{1b}[2J\n";
        let step = json!({"id": evil, "type": "agent", "status": "failed", "flags": [evil],
            "confidence": evil, "skip_reason": evil,
            "error": {"code": evil, "message": evil}, "metrics": {}});
        for cell in row(&step) {
            assert!(!cell.contains(text::is_control), "{cell:?}");
        }
    }
}

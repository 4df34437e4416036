//! An envelope for people: how it went, step by step, and what came out.

use std::process::ExitCode;

use serde_json::Value;

use super::output::{BAD, BOLD, DIM, GOOD, ODD, line, painted};
use super::table::Rows;
use super::{Failure, json, text};

/// More lines of an output are not shown at once.
const LINES: usize = 60;
/// Nor more characters of one line.
const WIDTH: usize = 400;

/// What to show of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a> {
    /// The steps, unless they have just been seen.
    pub(super) steps: bool,
    /// What to type to see everything.
    pub(super) all: &'a str,
}

/// Prints an envelope; text that is none is a failure.
pub(super) fn print(envelope: &str, shown: Shown<'_>) -> Result<(), Failure> {
    let value = parse(envelope)?;
    line(&headline(&value));
    if let Some(error) = value["error"].as_object() {
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let place = match text("step") {
            "" => String::new(),
            step => format!(" in step {}", text::line(step)),
        };
        let words = format!("{}: {}", text("code"), text("message"));
        line(&format!(
            "{}{place}: {}",
            painted(BAD, "error"),
            text::short(&words, 1000)
        ));
    }
    if shown.steps {
        line("");
        steps(&value);
    }
    if !value["output"].is_null() {
        line("");
        line(&painted(BOLD, "output"));
        output(&value["output"].to_string(), shown.all);
    }
    Ok(())
}

/// How the command ends: 0 for a run that completed, 1 for one that did not.
pub(super) fn verdict(envelope: &str) -> Result<ExitCode, Failure> {
    let value = parse(envelope)?;
    match value["status"].as_str().unwrap_or_default() {
        "complete" => Ok(ExitCode::SUCCESS),
        "failed" | "cancelled" => Ok(ExitCode::from(crate::error::EXIT_VERDICT)),
        status => Err(Failure::could_not_run(format!(
            "the run has not ended; it is {status}"
        ))),
    }
}

fn parse(envelope: &str) -> Result<Value, Failure> {
    serde_json::from_str(envelope)
        .map_err(|_| Failure::could_not_run("the answer is not an envelope"))
}

fn headline(value: &Value) -> String {
    let text = |name: &str| text::line(value[name].as_str().unwrap_or_default()).into_owned();
    let took = text::duration(value["totals"]["duration_ms"].as_u64().unwrap_or_default());
    let cost = value["totals"]["cost_micro_usd"]
        .as_u64()
        .unwrap_or_default();
    let cost = match cost {
        0 => String::new(),
        cost => format!(", {}", text::cost(cost)),
    };
    let status = text("status");
    format!(
        "{} {} {} {}",
        mark(&status),
        painted(BOLD, &format!("{} {}", text("workflow"), text("version"))),
        status,
        painted(DIM, &format!("in {took}{cost}  {}", text("run_id")))
    )
}

/// A status as one character.
pub(super) fn mark(status: &str) -> String {
    match status {
        "complete" => painted(GOOD, "✓"),
        "failed" => painted(BAD, "✗"),
        "skipped" | "cancelled" => painted(DIM, "–"),
        "pending" => painted(DIM, "·"),
        _ => painted(ODD, "▸"),
    }
}

fn steps(value: &Value) {
    let mut rows = Rows::new(&["STEP", "TYPE", "STATUS", "TIME", "NOTE"], &[3]);
    let steps = value["steps"].as_array().map(Vec::as_slice);
    for step in steps.unwrap_or_default() {
        let text = |name: &str| step[name].as_str().unwrap_or_default();
        let note = match step["error"].as_object() {
            Some(_) => {
                let error = &step["error"];
                let part = |name: &str| error[name].as_str().unwrap_or_default();
                format!("{}: {}", part("code"), part("message"))
            }
            None => text("skip_reason").to_owned(),
        };
        let attempt = step["attempt"].as_u64().unwrap_or_default();
        let note = match attempt {
            0 | 1 => note,
            _ => format!("attempt {attempt} {note}"),
        };
        let took = match (text("started_at"), text("ended_at")) {
            ("", _) | (_, "") => "-".to_owned(),
            _ => text::duration(step["metrics"]["duration_ms"].as_u64().unwrap_or_default()),
        };
        rows.push(vec![
            text::line(text("id")).into_owned(),
            text("type").to_owned(),
            text("status").to_owned(),
            took,
            text::short(&note, 80),
        ]);
    }
    rows.print();
}

fn output(output: &str, all: &str) {
    let shown = json::pretty(output);
    let total = shown.lines().count();
    let (mut kept, mut cut) = (0, false);
    for one in shown.lines().take(LINES) {
        let short = text::short(one, WIDTH);
        cut |= short.len() != one.len();
        kept += 1;
        if !line(&short) {
            return;
        }
    }
    if kept < total || cut {
        let more = match total - kept {
            0 => "long lines are cut".to_owned(),
            left => format!("{left} more lines"),
        };
        line(&painted(DIM, &format!("… {more}; all of it: {all}")));
    }
}

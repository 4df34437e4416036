//! `ktsu diff`: two runs, side by side.

use std::process::ExitCode;

use ktsu_ledger::StreamId;
use ktsu_projections::diff::{ComparedFrame, Diff, FrameChange, UnmatchedFrame, UsageTotals};
use ktsu_projections::value_diff::ValueDifference;
use serde_json::{Value, json};

use super::layout::{columns, fold, padded};
use super::output::{
    BAD, BOLD, DIM, GOOD, exit_code, line, line_dim, painted, print_json, sheet, symbols, width,
    words,
};
use super::reading::open;
use super::{Common, Failure, text};
use ktsu_history::diff::{self, DiffError, RunComparison};
use ktsu_opening::find::find_run;

/// What `diff` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A run or a branch: its id, or a unique prefix or suffix of it; RUN/STEP for an inline child
    a: String,
    /// The run or branch to compare it with
    b: String,
    /// Prints everything that differs: also the outputs of steps, the frames, digests and references
    #[arg(long)]
    all: bool,
}

/// From this width on, both sides are printed next to each other.
const WIDE: usize = 100;
/// The most frames of a kind that are shown; `--json` has all of them.
const MAX_SHOWN: usize = 20;

/// Compares two runs.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (reader, _) = open(common)?;
    let a = find_run(&reader, &arguments.a)?;
    let b = find_run(&reader, &arguments.b)?;
    let compared = diff::compare_runs(&reader, &a, &b).map_err(not_compared)?;
    let diff = &compared.diff;
    if common.json {
        let mut body = json!({"a": name(&a), "b": name(&b), "same": diff.is_empty()});
        if let (Value::Object(body), Ok(Value::Object(rest))) =
            (&mut body, serde_json::to_value(&compared))
        {
            body.extend(rest);
        }
        print_json(&body)?;
    } else {
        let page = DiffPage { width: width() };
        page.print(&name(&a), &name(&b), diff);
        page.world(&compared);
        match arguments.all {
            true => page.rest(diff),
            false => more(diff),
        }
    }
    Ok(exit_code(diff.is_empty()))
}

fn name((stream, scope): &(StreamId, String)) -> String {
    match scope.as_str() {
        "" => stream.name().to_owned(),
        scope => format!("{}/{scope}", stream.name()),
    }
}

/// A part of the envelopes, with a heading of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Output,
    Status,
    Params,
    Rest,
}

impl Part {
    fn of(change: &ValueDifference) -> Self {
        match change.path.split('/').nth(1) {
            Some("output") => Self::Output,
            Some("status" | "error") => Self::Status,
            Some("params") => Self::Params,
            _ => Self::Rest,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Output => "Output",
            Self::Status => "Status",
            Self::Params => "Params",
            Self::Rest => "Rest of the envelope",
        }
    }
}

/// The type of frames that hold the words of a model.
const REPLY: &str = "llm.response";

/// The words of a reply, if they differ.
fn words_of(frame: &FrameChange) -> Option<(&FrameChange, &ValueDifference)> {
    let mut changes = frame.changes.iter();
    let words = changes.find(|change| change.path == "/content")?;
    (frame.key.kind == REPLY).then_some((frame, words))
}

/// Prints how to see what was left out.
fn more(diff: &Diff) {
    if !diff.is_empty() {
        line("");
        line_dim("  everything that differs: the same command with --all");
    }
}

/// The page that a comparison is printed on.
struct DiffPage {
    width: usize,
}

impl DiffPage {
    fn print(&self, a: &str, b: &str, diff: &Diff) {
        let (one, other) = (text::line(a), text::line(b));
        // Ids are never folded.
        match self.column() >= columns(&one).max(columns(&other)) {
            true => self.row("", &one, &other),
            false => below(&one, &other),
        }
        let shared = match diff.shared {
            0 => "no frame in common".to_owned(),
            shared => format!("{} in common", text::count(shared, "frame")),
        };
        if diff.is_empty() {
            line(&format!("{}: {shared}", painted(GOOD, "no difference")));
        } else {
            line(&format!("{}: {shared}", painted(BAD, "different")));
        }
        self.envelope(diff, Part::Output);
        self.envelope(diff, Part::Status);
        self.steps(diff);
        self.used(diff);
        self.replies(diff);
        self.envelope(diff, Part::Params);
    }

    /// Prints what the page does not open with.
    fn rest(&self, diff: &Diff) {
        self.envelope(diff, Part::Rest);
        if let Some(first) = &diff.first {
            heading(&format!("First divergence, frame {}", first.seq));
            self.row("", &frame(first.a.as_ref()), &frame(first.b.as_ref()));
        }
        self.frames(diff);
    }

    /// The words of model calls that both runs made.
    fn replies(&self, diff: &Diff) {
        let replies: Vec<(&FrameChange, &ValueDifference)> =
            diff.changed.iter().filter_map(words_of).collect();
        if replies.is_empty() {
            return;
        }
        heading("Replies");
        for (frame, words) in replies.iter().take(MAX_SHOWN) {
            let key = frame.key.to_string();
            let place = key.strip_prefix(REPLY).unwrap_or(&key);
            let said = |value: &Option<Value>| match value {
                Some(Value::String(words)) => text::short(words, 2000),
                other => value_text(other.as_ref()),
            };
            let place = text::line(place.trim_start());
            self.row(&place, &said(&words.before), &said(&words.after));
        }
        print_more(replies.len());
    }

    fn steps(&self, diff: &Diff) {
        if diff.steps.is_empty() {
            return;
        }
        heading("Steps");
        let status = |status: &Option<String>| status.clone().unwrap_or_else(|| "-".to_owned());
        for step in &diff.steps {
            self.row(&text::line(&step.step), &status(&step.a), &status(&step.b));
        }
    }

    fn world(&self, compared: &RunComparison) {
        let Some(world) = &compared.world else {
            return;
        };
        heading("World");
        line(&format!("  {world}"));
        for (sign, ids) in [
            ("+", &world.added_objects),
            ("-", &world.removed_objects),
            ("+", &world.added_relations),
            ("-", &world.removed_relations),
        ] {
            for id in ids.iter().take(MAX_SHOWN) {
                words(&format!("  {sign} {}", text::line(id)), 4);
            }
            print_more(ids.len());
        }
        for one in compared.world_changes.iter().take(MAX_SHOWN) {
            words(&format!("  ~ {}", text::line(&one.id)), 4);
            one.changes.iter().for_each(|change| self.change(change));
        }
        print_more(compared.world_changes.len());
    }

    /// A part of the envelopes.
    fn envelope(&self, diff: &Diff, part: Part) {
        let mut changes = diff
            .envelope
            .iter()
            .filter(|one| part == Part::of(one))
            .peekable();
        if changes.peek().is_some() {
            heading(part.title());
            changes.for_each(|change| self.change(change));
        }
    }

    fn change(&self, change: &ValueDifference) {
        self.row(
            &text::line(&change.path),
            &value_text(change.before.as_ref()),
            &value_text(change.after.as_ref()),
        );
    }

    fn frames(&self, diff: &Diff) {
        for (title, frames) in [
            ("Frames only in the first", &diff.only_a),
            ("Frames only in the second", &diff.only_b),
        ] {
            if frames.is_empty() {
                continue;
            }
            heading(title);
            for one in frames.iter().take(MAX_SHOWN) {
                words(&format!("  {}", frame_line(one)), 4);
            }
            print_more(frames.len());
        }
        if diff.changed.is_empty() {
            return;
        }
        heading("Frames that differ");
        for one in diff.changed.iter().take(MAX_SHOWN) {
            words(&format!("  {}", changed_line(one)), 4);
            one.changes.iter().for_each(|change| self.change(change));
        }
        print_more(diff.changed.len());
    }

    fn used(&self, diff: &Diff) {
        let used = &diff.used;
        if used.a == UsageTotals::default() && used.b == UsageTotals::default() {
            return;
        }
        heading("Usage");
        self.row("", &amounts(&used.a), &amounts(&used.b));
        let difference = format!("  difference: {}", amounts(&used.difference));
        words(&painted(DIM, &difference), 4);
    }

    /// The width of a side, in columns.
    fn column(&self) -> usize {
        self.width.saturating_sub(8) / 3
    }

    /// A path and its value on both sides, next to each other if they fit.
    fn row(&self, place: &str, a: &str, b: &str) {
        if self.width < WIDE {
            if !place.is_empty() {
                words(&format!("  {place}"), 4);
            }
            return below(a, b);
        }
        let column = self.column();
        let places = fold(place, column);
        let (left, right) = (fold(a, column), fold(b, column));
        for at in 0..places.len().max(left.len()).max(right.len()) {
            let cell = |lines: &[String]| {
                let text = lines.get(at).map(String::as_str).unwrap_or_default();
                padded(text, column, false)
            };
            let (place, a, b) = (cell(&places), cell(&left), cell(&right));
            line(&format!(
                "  {place} {bar} {a} {bar} {b}",
                bar = painted(DIM, symbols().bar())
            ));
        }
    }
}

/// One side below the other.
fn below(a: &str, b: &str) {
    side(&painted(BAD, "A"), a);
    side(&painted(GOOD, "B"), b);
}

/// A side, folded at the end of a terminal.
fn side(mark: &str, text: &str) {
    let room = sheet()
        .width
        .map_or(usize::MAX, |width| width.saturating_sub(6));
    for (at, one) in fold(text, room.max(1)).iter().enumerate() {
        match at {
            0 => line(&format!("    {mark} {one}")),
            _ => line(&format!("      {one}")),
        };
    }
}

fn heading(title: &str) {
    line("");
    line(&painted(BOLD, title));
}

fn print_more(count: usize) {
    if count > MAX_SHOWN {
        let words = format!(
            "  {} {} more; all with --json",
            symbols().ellipsis(),
            count - MAX_SHOWN
        );
        line_dim(&words);
    }
}

fn value_text(value: Option<&Value>) -> String {
    match value {
        None => "(nothing)".to_owned(),
        Some(value) => text::short(&value.to_string(), 2000),
    }
}

fn frame(shown: Option<&ComparedFrame>) -> String {
    match shown {
        None => "(no such frame)".to_owned(),
        Some(shown) => {
            let data = text::short(&shown.data.to_string(), 400);
            format!("{} {data}", text::line(&shown.key.to_string()))
        }
    }
}

fn frame_line(frame: &UnmatchedFrame) -> String {
    let key = frame.key.to_string();
    format!("{:>5}  {}", frame.seq, text::line(&key))
}

fn changed_line(changed: &FrameChange) -> String {
    let key = changed.key.to_string();
    let numbers = match changed.a == changed.b {
        true => changed.a.to_string(),
        false => format!("{} and {}", changed.a, changed.b),
    };
    format!("{numbers}  {}", text::line(&key))
}

fn amounts(amounts: &UsageTotals) -> String {
    let micros = amounts.cost_micro_usd;
    let sign = if micros < 0 { "-" } else { "" };
    format!(
        "{sign}{}, {}, {} tokens in, {} out",
        text::cost(micros.unsigned_abs()),
        text::count(amounts.llm_calls, "model call"),
        amounts.tokens_in,
        amounts.tokens_out
    )
}

/// The failure of runs that were not compared.
fn not_compared(failed: DiffError) -> Failure {
    match failed {
        DiffError::Store(error) => error.into(),
        DiffError::NotCompared(other) => Failure::could_not_run(other.to_string())
            .hint("to see the children of a run: ktsu trace RUN"),
    }
}

//! The time line of a run: rows of steps, items and children with their calls, laid out.
//!
//! [`layout`] is a pure function of the skeleton and the view. Places are in thousandths of the width.

use std::collections::BTreeSet;

use ktsu_history::skeleton::{AttemptSpan, CallSpan, ChildSpan, RunSkeleton, StepSpan};

use crate::scale::{TimeScale, idle_percent};
use crate::status::{class, class_of_call};
use crate::time_range::TimeRange;
use crate::units::{counted, duration};

/// The most rows of a drawing.
const MAX_ROWS: usize = 2_000;
/// The number of marks on the axis of an even scale.
const TICKS: u64 = 5;
/// The room of a word on the axis.
const TICK_ROOM: u32 = 90;
/// The last place at which a word has room.
const LAST_TICK: u32 = 1000 - TICK_ROOM;

/// How a time line is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimelineView {
    /// True if long idle times take little room.
    pub compress: bool,
    /// True if every item has a row of its own.
    pub all_items: bool,
    /// The step that is selected, by its path.
    pub selected: Option<String>,
    /// The part of the time that is shown; all of it if absent.
    pub range: Option<TimeRange>,
}

/// A time line, laid out.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineDrawing {
    /// The part of the time that is shown.
    pub range: TimeRange,
    /// Where parts of the scale begin and end: in milliseconds, and as places.
    pub scale: Vec<(u64, u32)>,
    /// The marks of the axis.
    pub ticks: Vec<TimelineTick>,
    /// The times that are compressed: place, width, and how long each is.
    pub gaps: Vec<(u32, u32, String)>,
    /// The rows, from the top.
    pub rows: Vec<TimelineRow>,
    /// The rows that are left out.
    pub left_out: usize,
    /// The steps and items that were not at work in the part of the time that is shown, and have no row.
    pub outside: usize,
    /// The share of the time in which nothing was at work, in percent.
    pub idle_percent: f64,
}

/// A mark of the axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineTick {
    /// Its place.
    pub x: u32,
    /// Its time, in words.
    pub word: String,
    /// The time from this mark to the next one.
    pub range: Option<TimeRange>,
}

/// A row of a time line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelineRow {
    /// Its place in the tree.
    pub depth: usize,
    /// The path of the step or the item; none of an earlier attempt, nor of a row that sums up others.
    pub path: Option<String>,
    /// Its name.
    pub name: String,
    /// Its kind, in words.
    pub kind: String,
    /// The status of a step or an item.
    pub status: Option<String>,
    /// The reason of a failure or a skip.
    pub note: Option<String>,
    /// The bar: place, width and class.
    pub bar: Option<TimelineBar>,
    /// The calls on it.
    pub calls: Vec<TimelineBar>,
    /// How long it took, in milliseconds.
    pub took_ms: Option<u64>,
    /// Its cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// True if it is selected.
    pub is_selected: bool,
    /// Of an earlier attempt: the frame of its beginning.
    pub attempt: Option<u64>,
    /// Of a row that sums up items: the path of their step.
    pub summed: Option<String>,
}

/// A bar, or a call on one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineBar {
    /// Its place.
    pub x: u32,
    /// Its width, at least one thousandth.
    pub width: u32,
    /// The class of the style sheet.
    pub class: &'static str,
    /// In words.
    pub words: String,
}

/// Lays out the time line of a run.
pub fn layout(run: &RunSkeleton, view: &TimelineView) -> TimelineDrawing {
    let end_ms = run.last_ms;
    let range = view.range.unwrap_or_else(|| TimeRange::whole(end_ms));
    let mut busy = Vec::new();
    times_of_work(&run.steps, end_ms, &mut busy);
    let scale = match view.compress {
        true => TimeScale::compressed(range, &busy),
        false => TimeScale::even(range),
    };
    let gaps = scale.gaps.iter().map(|(from, until)| {
        let (x, width) = place(&scale, *from, *until);
        (x, width, duration(until - from))
    });
    let gaps = gaps.collect();
    let ticks = ticks(&scale, range);
    let points = scale.points().map(|(ms, x)| (ms, thousandths(x)));
    let points = points.collect();
    let mut rows = TimelineRows {
        scale,
        end_ms,
        range: view.range,
        selected: view.selected.as_deref(),
        rows: Vec::new(),
        left_out: 0,
        outside: 0,
    };
    rows.steps(&run.steps, 0);
    TimelineDrawing {
        range,
        scale: points,
        ticks,
        gaps,
        rows: rows.rows,
        left_out: rows.left_out,
        outside: rows.outside,
        idle_percent: match end_ms {
            0 => 0.0,
            _ => idle_percent(range, &busy),
        },
    }
}

/// The times in which something was at work: calls that leave the process, and the beginnings and ends
/// of steps. What waits for people is no work.
fn times_of_work(steps: &[StepSpan], end_ms: u64, busy: &mut Vec<(u64, u64)>) {
    for step in steps {
        let is_leaf = step.children.is_empty() && step.items.is_empty() && step.folded.is_none();
        for attempt in &step.attempts {
            let (from, until) = (attempt.from_ms, attempt.until_ms);
            if attempt.calls.is_empty() && is_leaf {
                busy.push((from, until));
            }
            busy.extend([(from, from), (until, until)]);
            calls_at_work(&attempt.calls, end_ms, busy);
        }
        let Some(from) = step.latest_from_ms() else {
            continue;
        };
        let until = step.until_ms.unwrap_or(end_ms);
        if step.calls.is_empty() && is_leaf {
            busy.push((from, until));
        }
        busy.extend([(from, from), (until, until)]);
        calls_at_work(&step.calls, end_ms, busy);
        if let Some(folded) = &step.folded {
            busy.push((folded.from_ms, folded.until_ms.unwrap_or(end_ms)));
        }
        times_of_work(&step.items, end_ms, busy);
        for child in &step.children {
            times_of_work(&child.steps, end_ms, busy);
        }
    }
}

fn calls_at_work(calls: &[CallSpan], end_ms: u64, busy: &mut Vec<(u64, u64)>) {
    let calls = calls.iter().filter(|call| !call.kind.is_for_people());
    busy.extend(calls.map(|call| (call.from_ms, call.until_ms.unwrap_or(end_ms))));
}

/// The marks of the axis: round times of an even scale; of a compressed one, where work begins again.
fn ticks(scale: &TimeScale, range: TimeRange) -> Vec<TimelineTick> {
    let (begin_ms, end_ms) = (range.begin_ms(), range.until_ms());
    let mut moments = BTreeSet::from([begin_ms]);
    if scale.gaps.is_empty() {
        let apart = round_time(range.length() / TICKS).max(1);
        let first = begin_ms / apart + 1;
        let round = (0..TICKS).map(|n| first.saturating_add(n).saturating_mul(apart));
        moments.extend(round.filter(|ms| *ms < end_ms));
    } else {
        let ends = scale.gaps.iter().map(|(_, until)| *until);
        moments.extend(ends.filter(|until| *until < end_ms));
    }
    // The last ones have no room for their words, nor have those beside the first one or a compressed gap.
    let gaps: Vec<u32> = scale
        .gaps
        .iter()
        .map(|(from, _)| thousandths(scale.at(*from)))
        .collect();
    let has_room = |x: u32| {
        (TICK_ROOM..=LAST_TICK).contains(&x)
            && gaps
                .iter()
                .all(|gap| *gap > x.saturating_add(TICK_ROOM) || *gap < x.saturating_sub(TICK_ROOM))
    };
    let marks = moments.into_iter();
    let marks = marks.map(|ms| (thousandths(scale.at(ms)), ms));
    let marks: Vec<(u32, u64)> = marks
        .filter(|(x, ms)| *ms == begin_ms || has_room(*x))
        .collect();
    let nexts = marks.iter().skip(1).map(|(_, ms)| *ms).chain([end_ms]);
    // Within a short part late in a run, times differ by less than their words have.
    let words = marks
        .iter()
        .map(|(_, ms)| duration(*ms))
        .collect::<BTreeSet<_>>();
    let is_close = words.len() < marks.len();
    let ticks = marks.iter().zip(nexts).map(|((x, ms), next)| TimelineTick {
        x: *x,
        word: match ms - begin_ms {
            after @ 1.. if is_close => format!("+{}", duration(after)),
            _ => duration(*ms),
        },
        range: TimeRange::new(*ms, next).filter(|part| *part != range),
    });
    ticks.collect()
}

/// A round number of milliseconds, not below another.
fn round_time(ms: u64) -> u64 {
    const ROUND: [u64; 22] = [
        1,
        2,
        5,
        10,
        20,
        50,
        100,
        200,
        500,
        1_000,
        2_000,
        5_000,
        10_000,
        30_000,
        60_000,
        300_000,
        600_000,
        1_800_000,
        3_600_000,
        21_600_000,
        86_400_000,
        604_800_000,
    ];
    ROUND.into_iter().find(|round| *round >= ms).unwrap_or(ms)
}

fn thousandths(x: f64) -> u32 {
    // From 0 to 1000.
    (x.clamp(0.0, 1.0) * 1000.0).round() as u32
}

fn place(scale: &TimeScale, from_ms: u64, until_ms: u64) -> (u32, u32) {
    let from = thousandths(scale.at(from_ms)).min(999);
    let until = thousandths(scale.at(until_ms));
    (from, until.saturating_sub(from).max(1))
}

struct TimelineRows<'v> {
    scale: TimeScale,
    end_ms: u64,
    /// The part of the time outside of which nothing has a row.
    range: Option<TimeRange>,
    selected: Option<&'v str>,
    rows: Vec<TimelineRow>,
    left_out: usize,
    outside: usize,
}

impl TimelineRows<'_> {
    /// Children are as deep as their workflows are nested, which the kit bounds.
    fn steps(&mut self, steps: &[StepSpan], depth: usize) {
        for step in steps {
            if self.is_outside(step) {
                self.outside += 1;
                continue;
            }
            let row = self.row(step, depth);
            self.add(row);
            self.attempts(step, depth + 1);
            self.steps(&step.items, depth + 1);
            self.folded(step, depth + 1);
            for child in &step.children {
                self.child(step, child, depth + 1);
            }
        }
    }

    /// Returns `true` for what was not at work in the part of the time that is shown, and is not selected.
    fn is_outside(&self, step: &StepSpan) -> bool {
        let Some(range) = self.range else {
            return false;
        };
        let until_ms = step.until_ms.unwrap_or(self.end_ms);
        let is_there = step
            .from_ms
            .is_some_and(|from_ms| !range.leaves_out(from_ms, until_ms));
        let mut attempts = step.attempts.iter();
        let was_there = attempts.any(|one| !range.leaves_out(one.from_ms, one.until_ms));
        !is_there && !was_there && self.selected != Some(step.path.as_str())
    }

    /// Attempts before the latest one, which has the row of its step.
    fn attempts(&mut self, step: &StepSpan, depth: usize) {
        if step.earlier_attempts > 0 {
            let words = counted(step.earlier_attempts, "attempt");
            self.add(TimelineRow {
                depth,
                name: format!("{words} before"),
                ..TimelineRow::default()
            });
        }
        for (number, attempt) in step.numbered_attempts() {
            if let Some(place) = self.place(attempt.from_ms, attempt.until_ms) {
                let row = self.attempt((number, attempt), depth, place);
                self.add(row);
            }
        }
    }

    fn attempt(
        &self,
        (number, attempt): (u64, &AttemptSpan),
        depth: usize,
        (x, width): (u32, u32),
    ) -> TimelineRow {
        let status = attempt.status.as_str();
        let calls = attempt.calls.iter().filter_map(|call| self.call(call));
        TimelineRow {
            depth,
            name: format!("attempt {number}"),
            status: Some(status.to_owned()),
            note: attempt.error.clone(),
            bar: Some(TimelineBar {
                x,
                width,
                class: class(status),
                words: times(attempt.from_ms, Some(attempt.until_ms)),
            }),
            calls: calls.collect(),
            took_ms: Some(attempt.until_ms.saturating_sub(attempt.from_ms)),
            attempt: Some(attempt.frame),
            ..TimelineRow::default()
        }
    }

    /// A child has the row of its step; where a step has several, each has one of its own.
    fn child(&mut self, step: &StepSpan, child: &ChildSpan, depth: usize) {
        if step.children.len() == 1 {
            return self.steps(&child.steps, depth);
        }
        self.add(TimelineRow {
            depth,
            name: child.workflow.clone(),
            kind: "workflow".to_owned(),
            status: Some(child.status.as_str().to_owned()),
            ..TimelineRow::default()
        });
        self.steps(&child.steps, depth + 1);
    }

    fn folded(&mut self, step: &StepSpan, depth: usize) {
        let Some(folded) = &step.folded else { return };
        let until_ms = folded.until_ms.unwrap_or(self.end_ms);
        let Some((x, width)) = self.place(folded.from_ms, until_ms) else {
            return;
        };
        let all = match folded.complete == folded.count {
            true => "all complete".to_owned(),
            false => format!("{} of them complete", folded.complete),
        };
        self.add(TimelineRow {
            depth,
            name: format!("{} more, {all}", folded.count),
            bar: Some(TimelineBar {
                x,
                width,
                class: "folded",
                words: counted(folded.count, "item"),
            }),
            took_ms: folded
                .until_ms
                .map(|until| until.saturating_sub(folded.from_ms)),
            cost_micro_usd: folded.cost_micro_usd,
            summed: Some(step.path.clone()),
            ..TimelineRow::default()
        });
    }

    fn add(&mut self, row: TimelineRow) {
        match self.rows.len() < MAX_ROWS {
            true => self.rows.push(row),
            false => self.left_out += 1,
        }
    }

    fn row(&self, step: &StepSpan, depth: usize) -> TimelineRow {
        let until_ms = step.until_ms.unwrap_or(self.end_ms);
        let name = step.path.rsplit('/').next().unwrap_or(&step.path);
        TimelineRow {
            depth,
            path: Some(step.path.clone()),
            name: name.to_owned(),
            kind: kind(step),
            status: Some(step.status.as_str().to_owned()),
            note: step.error.clone().or_else(|| step.skip_reason.clone()),
            bar: step.latest_from_ms().and_then(|from_ms| {
                let (x, width) = self.place(from_ms, until_ms)?;
                Some(TimelineBar {
                    x,
                    width,
                    class: class(step.status.as_str()),
                    words: times(from_ms, step.until_ms),
                })
            }),
            calls: step
                .calls
                .iter()
                .filter_map(|call| self.call(call))
                .collect(),
            took_ms: step.took_ms(),
            cost_micro_usd: step.metrics.cost_micro_usd,
            is_selected: self.selected == Some(step.path.as_str()),
            attempt: None,
            summed: None,
        }
    }

    /// The place of what took a time; none outside of the part that is shown.
    fn place(&self, from_ms: u64, until_ms: u64) -> Option<(u32, u32)> {
        let is_outside = self
            .range
            .is_some_and(|range| range.leaves_out(from_ms, until_ms));
        (!is_outside).then(|| place(&self.scale, from_ms, until_ms))
    }

    fn call(&self, call: &CallSpan) -> Option<TimelineBar> {
        let until_ms = call.until_ms.unwrap_or(self.end_ms);
        let (x, width) = self.place(call.from_ms, until_ms)?;
        let (kind, name) = (call.kind.as_words(), &call.name);
        let words = format!("{kind} {name}, {}", times(call.from_ms, call.until_ms));
        Some(TimelineBar {
            x,
            width,
            class: class_of_call(call),
            words,
        })
    }
}

/// The kind of a step in words, with the number of its items.
fn kind(step: &StepSpan) -> String {
    let folded = step.folded.map_or(0, |folded| folded.count);
    let items = step.items.len() as u64 + folded;
    match (step.kind.as_str(), items) {
        ("item", _) => String::new(),
        (kind, 0) => kind.to_owned(),
        (kind, items) => format!("{kind}, {}", counted(items, "item")),
    }
}

/// `72 ms, from 131 ms on`.
fn times(from_ms: u64, until_ms: Option<u64>) -> String {
    let from = duration(from_ms);
    match until_ms {
        Some(until_ms) => format!(
            "{}, from {from} on",
            duration(until_ms.saturating_sub(from_ms))
        ),
        None => format!("not ended, from {from} on"),
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;

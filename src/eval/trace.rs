//! Checks of the frames.

use ktsu_projections::lineage::dollars;
use ktsu_workflow::expression::Expression;
use serde_json::Value;

use crate::bench::{Bench, CheckError};
use crate::filter::{FrameFilter, is_tool};
use crate::frames::FrameView;
use crate::glob::Glob;
use crate::results::{CheckFinding, frames_looked_at, value_looked_at};
use crate::spec::{CountRange, ToolPattern, ToolUse, TraceCheck};

/// The type of the frames that send a call.
const TOOL_CALLED: &str = "tool.called";

type Found = Result<CheckFinding, CheckError>;

/// Checks that the frames are as required.
pub(crate) fn find(check: &TraceCheck, envelope: &Value, bench: &mut Bench<'_, '_>) -> Found {
    match check {
        TraceCheck::Count(filter, range) => count(filter, range, bench),
        TraceCheck::None(filter) => none(filter, bench),
        TraceCheck::Before(filter, other) => order(filter, other, true, bench),
        TraceCheck::After(filter, other) => order(filter, other, false, bench),
        TraceCheck::All(filter, expression) => all(filter, expression, bench),
        TraceCheck::ApprovedTools(pattern) => approved(pattern, bench),
        TraceCheck::ToolsUsed(tools) => tools_used(tools, bench),
        TraceCheck::Cost(range) => cost(range, bench),
        TraceCheck::ModelCalls(range) => model_calls(range, bench),
        TraceCheck::Duration(most_ms) => duration(*most_ms, envelope),
    }
}

/// Checks that no frame matches.
pub(crate) fn none(filter: &FrameFilter, bench: &mut Bench<'_, '_>) -> Found {
    let matches = bench.matches(filter)?;
    let reason = match matches.first() {
        Some(first) => format!("{}, expected none: {}", frames(&matches), named(first)),
        None => "no frame matches".to_owned(),
    };
    let looked_at = frames_looked_at(&matches);
    Ok(CheckFinding::of(matches.is_empty(), reason, looked_at))
}

fn count(filter: &FrameFilter, range: &CountRange, bench: &mut Bench<'_, '_>) -> Found {
    let matches = bench.matches(filter)?;
    let wanted = range.words(|bound| bound.to_string());
    let holds = range.has(matches.len() as u64);
    let reason = format!("{}, expected {wanted}", frames(&matches));
    Ok(CheckFinding::of(holds, reason, frames_looked_at(&matches)))
}

/// Checks that every match of one filter comes before the first match of another, or after the
/// last.
fn order(
    filter: &FrameFilter,
    other: &FrameFilter,
    before: bool,
    bench: &mut Bench<'_, '_>,
) -> Found {
    let matches = bench.matches(filter)?;
    let others = bench.matches(other)?;
    let (border, word) = match before {
        true => (others.first(), "before"),
        false => (others.last(), "after"),
    };
    let is_wrong = |frame: &&&FrameView| {
        border.is_some_and(|border| match before {
            true => frame.seq >= border.seq,
            false => frame.seq <= border.seq,
        })
    };
    let wrong = matches.iter().find(is_wrong);
    let reason = match (wrong, border) {
        (Some(wrong), Some(border)) => {
            format!("{} is not {word} {}", named(wrong), named(border))
        }
        (_, Some(border)) => format!("{}, all {word} {}", frames(&matches), named(border)),
        (_, None) => format!("{}, and none to be {word}", frames(&matches)),
    };
    let holds = wrong.is_none();
    let mut looked_at: Vec<&FrameView> = matches.iter().chain(&others).copied().collect();
    looked_at.sort_by_key(|frame| frame.seq);
    looked_at.dedup_by_key(|frame| frame.seq);
    Ok(CheckFinding::of(
        holds,
        reason,
        frames_looked_at(&looked_at),
    ))
}

fn all(filter: &FrameFilter, expression: &Expression, bench: &mut Bench<'_, '_>) -> Found {
    let matches = bench.matches(filter)?;
    let mut wrong = None;
    for frame in &matches {
        if !bench.holds(expression, frame)? {
            wrong = Some(frame);
            break;
        }
    }
    let source = expression.source();
    let reason = match wrong {
        Some(frame) => format!("{source} is not true of {}", named(frame)),
        None => format!("{}, and {source} is true of all", frames(&matches)),
    };
    let holds = wrong.is_none();
    Ok(CheckFinding::of(holds, reason, frames_looked_at(&matches)))
}

fn approved(pattern: &ToolPattern, bench: &mut Bench<'_, '_>) -> Found {
    let calls = called(bench, std::slice::from_ref(&pattern.0))?;
    let wrong = calls.iter().find(|call| !call.approved);
    let reason = match wrong {
        Some(call) => format!("{} was not approved before it was sent", tool_call(call)),
        None => format!(
            "{}, each approved before it was sent",
            calls_in_words(calls.len())
        ),
    };
    let holds = wrong.is_none();
    Ok(CheckFinding::of(holds, reason, frames_looked_at(&calls)))
}

fn tools_used(tools: &ToolUse, bench: &mut Bench<'_, '_>) -> Found {
    let calls = called(bench, &[])?;
    let globs = tools.all_of.iter().chain(&tools.none_of);
    let globs = globs.chain(tools.only.iter().flatten());
    let cost: u64 = globs.map(Glob::cost).sum();
    bench.spend(cost.saturating_mul(calls.len() as u64), "frames")?;
    let missed = missed_tools(tools, &calls);
    let reason = missed.clone();
    let reason = reason.unwrap_or_else(|| format!("{}, as expected", calls_in_words(calls.len())));
    let looked_at = frames_looked_at(&calls);
    Ok(CheckFinding::of(missed.is_none(), reason, looked_at))
}

/// The first rule that calls break, in words.
fn missed_tools(tools: &ToolUse, calls: &[&FrameView]) -> Option<String> {
    let covered = |globs: &[Glob], call: &FrameView| globs.iter().any(|glob| is_tool(glob, call));
    if let Some(only) = &tools.only
        && let Some(call) = calls.iter().find(|call| !covered(only, call))
    {
        return Some(format!(
            "{} is not one of the allowed tools",
            tool_call(call)
        ));
    }
    if let Some(call) = calls.iter().find(|call| covered(&tools.none_of, call)) {
        return Some(format!("{} is one of the forbidden tools", tool_call(call)));
    }
    let unused = |glob: &&Glob| !calls.iter().any(|call| is_tool(glob, call));
    let unused = tools.all_of.iter().find(unused)?;
    Some(format!("{} was never called", unused.as_str()))
}

fn cost(range: &CountRange, bench: &mut Bench<'_, '_>) -> Found {
    bench.spend(bench.frames.len() as u64, "frames")?;
    let costs = bench.frames.iter().map(|frame| frame.cost_micro_usd);
    let cost = costs.fold(0_u64, u64::saturating_add);
    let reason = format!(
        "the run cost {}, expected {}",
        dollars(cost),
        range.words(dollars)
    );
    let counted = bench.frames.iter().filter(|frame| frame.cost_micro_usd > 0);
    let looked_at = frames_looked_at(&counted.collect::<Vec<_>>());
    Ok(CheckFinding::of(range.has(cost), reason, looked_at))
}

fn model_calls(range: &CountRange, bench: &mut Bench<'_, '_>) -> Found {
    bench.spend(bench.frames.len() as u64, "frames")?;
    let calls = bench.frames.iter().map(|frame| frame.model_calls);
    let calls = calls.fold(0_u64, u64::saturating_add);
    let wanted = range.words(|bound| bound.to_string());
    let words = match calls {
        1 => "1 model call".to_owned(),
        calls => format!("{calls} model calls"),
    };
    let reason = format!("{words}, expected {wanted}");
    let counted = bench.frames.iter().filter(|frame| frame.model_calls > 0);
    let looked_at = frames_looked_at(&counted.collect::<Vec<_>>());
    Ok(CheckFinding::of(range.has(calls), reason, looked_at))
}

/// Checks that the run was at work for at most this long, as its envelope has it.
fn duration(most_ms: u64, envelope: &Value) -> Found {
    let spent = envelope.pointer("/totals/duration_ms").cloned();
    let spent = spent.unwrap_or_default();
    let Some(spent_ms) = spent.as_u64() else {
        return Err(CheckError::new(
            "the envelope does not say how long the run took",
        ));
    };
    let reason = format!("the run was at work for {spent_ms} ms, expected at most {most_ms} ms");
    let looked_at = value_looked_at(&spent);
    Ok(CheckFinding::of(spent_ms <= most_ms, reason, looked_at))
}

/// The frames that send a call of these tools; of any, if no globs are given.
fn called<'r>(bench: &mut Bench<'r, '_>, globs: &[Glob]) -> Result<Vec<&'r FrameView>, CheckError> {
    let frames = bench.frames;
    let cost = 1 + globs.iter().map(Glob::cost).sum::<u64>();
    bench.spend(cost.saturating_mul(frames.len() as u64), "frames")?;
    let calls = frames.iter().filter(|frame| {
        let is_meant = globs.is_empty() || globs.iter().any(|glob| is_tool(glob, frame));
        frame.kind == TOOL_CALLED && is_meant
    });
    Ok(calls.collect())
}

fn frames(matches: &[&FrameView]) -> String {
    match matches.len() {
        1 => "1 frame matches".to_owned(),
        count => format!("{count} frames match"),
    }
}

fn calls_in_words(calls: usize) -> String {
    match calls {
        1 => "1 call".to_owned(),
        calls => format!("{calls} calls"),
    }
}

fn named(frame: &FrameView) -> String {
    format!("frame {} ({})", frame.seq, frame.kind)
}

fn tool_call(frame: &FrameView) -> String {
    let tool = frame.tool.as_deref().unwrap_or_default();
    format!("the call of {tool} in frame {}", frame.seq)
}

//! `ktsu trace`: causes and effects in a run.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ktsu_ledger::store::Reader;
use ktsu_ledger::{Frame, StreamId};
use ktsu_projections::Lineage;
use ktsu_projections::lineage::LineageNode;
use ktsu_projections::step_name::path_in;
use serde_json::json;

use super::layout::columns;
use super::output::{BOLD, DIM, WARN, line, painted, print_json, row, sheet, symbols};
use super::reading::open;
use super::{Common, Failure, content, json as shape, origin, text};
use ktsu_history::frame_page::{self, FrameSelection, PageLimit, is_within};
use ktsu_history::trace::{self, TraceFilter};
use ktsu_history::{self as history, report, steps, webhooks};
use ktsu_opening::files::unwritable;
use ktsu_opening::find::{find_record, no_such_child};

/// What `trace` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run: its id, or a unique prefix or suffix of it; RUN/STEP for an inline child
    run: String,
    /// A frame, as 17 or run:ID#17: shows everything it follows from, back to the root
    frame: Option<String>,
    /// Shows the tree of single frames instead of steps
    #[arg(long, conflicts_with = "frame")]
    frames: bool,
    /// Shows where a value of the envelope came from: `params.x`, `output.x`,
    /// `step.triage.priority`, `step.fan.results[3].label` or `call/inner.field`; in a world
    /// `OBJECT.FIELD`, where OBJECT is an id, the beginning of one, or TYPE[2]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["frame", "frames"])]
    of: Option<String>,
    /// Explains why a step or an item did not run, did not complete, or is not done: triage,
    /// call/inner, classify.8; or why a responder of a world did not react
    #[arg(long, value_name = "STEP", conflicts_with_all = ["frame", "frames", "of"])]
    why_not: Option<String>,
    /// With --why-not RESPONDER: only what happened to this object or relation: an id, the beginning
    /// of one, or TYPE[2]
    #[arg(long = "for", value_name = "OBJECT", requires = "why_not")]
    object: Option<String>,
    /// With FRAME: shows everything that follows from it instead
    #[arg(long)]
    descendants: bool,
    /// Only frames about this step or item, or inside it: triage, call/inner, classify.8
    #[arg(long, value_name = "ID")]
    step: Option<String>,
    /// Only frames whose type begins with this, such as llm. or step.failed; may be repeated
    #[arg(long = "type", value_name = "TYPE")]
    kinds: Vec<String>,
    /// Only frames that record a failure
    #[arg(long)]
    failed: bool,
    /// Only frames from this number on
    #[arg(long, value_name = "SEQ")]
    since: Option<u64>,
    /// Only frames up to this number
    #[arg(long, value_name = "SEQ")]
    until: Option<u64>,
    /// Prints the steps as a Mermaid flowchart
    #[arg(long, conflicts_with_all = ["frame", "frames", "of", "why_not", "json", "html"])]
    mermaid: bool,
    /// Writes the page of the run as one file, which loads nothing and runs nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frame", "frames", "of", "why_not"])]
    html: Option<PathBuf>,
}

impl Arguments {
    /// Returns `true` if it asks for what only runs have.
    fn asks_of_steps(&self) -> bool {
        let of = [&self.of, &self.why_not, &self.step];
        of.iter().any(|given| given.is_some()) || self.mermaid || self.html.is_some()
    }

    fn frame_filter(&self) -> TraceFilter {
        TraceFilter {
            step: self.step.clone(),
            kinds: self.kinds.clone(),
            since: self.since,
            until: self.until,
            failed: self.failed,
        }
    }
}

/// Prints a trace.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (reader, place) = open(common)?;
    // `run:…#17` names both.
    let (run, inner) = match arguments.run.split_once('#') {
        Some((run, frame)) => (run, Some(frame)),
        None => (arguments.run.as_str(), None),
    };
    let (stream, scope) = find_record(&reader, run)?;
    let frames = history::frames(&reader, &stream)?;
    let is_eval = stream.is_eval();
    if is_eval && arguments.asks_of_steps() {
        let words = format!("{} is an eval, which has no steps", stream.name());
        let hint = format!("ktsu trace {}", stream.name());
        return Err(Failure::could_not_run(words).hint(hint));
    }
    if let Some(path) = &arguments.of {
        let answer = origin::field_origin(&frames, &scope, path)?;
        if common.json {
            return print_json(&answer);
        }
        origin::print(&answer);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(step) = &arguments.why_not {
        let why = origin::why_not(&frames, &scope, step, arguments.object.as_deref())?;
        if common.json {
            return print_json(&why);
        }
        origin::print_why(&why);
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.mermaid || arguments.html.is_some() {
        return write_report(&stream, &frames, &scope, arguments.html.as_deref());
    }
    let wanted = arguments.frame_filter();
    if let Some(step) = arguments.step.as_deref() {
        is_known(&frames, step)?;
    }
    match arguments.frame.as_deref().or(inner) {
        Some(frame) => {
            let seq = number(&stream, &frames, frame)?;
            let selection = FrameSelection {
                expand: true,
                ..FrameSelection::default()
            };
            let page = frame_page::page(&reader, &stream, &selection, seq, PageLimit::frames(1))?;
            let whole = page.frames.first().filter(|(found, _)| *found == seq);
            let whole = whole.map(|(_, text)| text.as_str());
            let ways = match arguments.descendants {
                true => trace::descendants(&frames, seq),
                false => trace::ancestors(&frames, seq),
            };
            let mut ways = ways.ok_or_else(|| no_such_frame(&stream, &frames, seq))?;
            trace::mark_missing_causes(&reader, &mut ways)?;
            let ways = ways
                .into_iter()
                .filter(|node| wanted.matches(node))
                .collect();
            chain(common, &stream, &frames, seq, ways, whole, &place.flag)
        }
        None if arguments.descendants => Err(Failure::could_not_run("--descendants needs a frame")
            .hint("ktsu trace RUN FRAME --descendants")),
        None if arguments.frames || is_eval || !wanted.is_all() => {
            tree(common, &reader, (&stream, &frames), &scope, &wanted)
        }
        None => print_steps(common, &stream, &frames, &scope),
    }
}

/// Refuses a step or an item that the run does not have.
fn is_known(frames: &[Frame], step: &str) -> Result<(), Failure> {
    let only = TraceFilter {
        step: Some(step.to_owned()),
        ..TraceFilter::default()
    };
    match Lineage::from_frames(frames)
        .nodes()
        .iter()
        .any(|node| only.matches(node))
    {
        true => Ok(()),
        false => origin::why_not(frames, "", step, None).map(drop),
    }
}

/// A diagram on standard output, or a page in a file.
fn write_report(
    stream: &StreamId,
    frames: &[Frame],
    scope: &str,
    file: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let fold = |error| Failure::from(history::RunReadError::from(error));
    let Some(file) = file else {
        let timeline = steps::timeline(frames, scope).map_err(fold)?;
        let timeline = timeline.ok_or_else(|| no_such_child(stream, scope))?;
        let uses = history::tools::uses(frames);
        line(report::flowchart(&timeline, &uses).trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    let folded = history::fold(frames).map_err(fold)?;
    let page = ktsu_inspector::run_file(&folded, frames, scope);
    let page = page.ok_or_else(|| no_such_child(stream, scope))?;
    let made = std::fs::File::create_new(file);
    let written = made.and_then(|mut made| made.write_all(page.as_bytes()));
    written.map_err(|error| {
        let failure = unwritable(file, &error);
        match error.kind() {
            ErrorKind::AlreadyExists => failure.hint("choose another name"),
            _ => failure,
        }
    })?;
    line(&format!(
        "wrote {}",
        text::line(&file.display().to_string())
    ));
    Ok(ExitCode::SUCCESS)
}

fn number(stream: &StreamId, frames: &[Frame], frame: &str) -> Result<u64, Failure> {
    let (named, number) = frame.rsplit_once('#').unwrap_or(("", frame));
    let named = named.strip_prefix("run:").unwrap_or(named);
    if !named.is_empty() && !stream.name().contains(named) {
        let words = format!("{frame} is not a frame of {}", stream.name());
        return Err(Failure::could_not_run(words));
    }
    number.parse().map_err(|_| {
        let near = nearest_frames(stream, frames);
        Failure::could_not_run(format!("{frame} is not a frame number")).hint(near)
    })
}

fn print_steps(
    common: &Common,
    stream: &StreamId,
    frames: &[Frame],
    scope: &str,
) -> Result<ExitCode, Failure> {
    let timeline = steps::timeline(frames, scope);
    let timeline = timeline.map_err(|error| Failure::from(history::RunReadError::from(error)))?;
    let timeline = timeline.ok_or_else(|| no_such_child(stream, scope))?;
    if common.json {
        return print_json(&timeline);
    }
    super::steps::print(&timeline);
    Ok(ExitCode::SUCCESS)
}

fn chain(
    common: &Common,
    stream: &StreamId,
    frames: &[Frame],
    seq: u64,
    chain: Vec<LineageNode>,
    whole: Option<&str>,
    flag: &str,
) -> Result<ExitCode, Failure> {
    if common.json {
        let mut body = json!({"run_id": stream.name(), "chain": chain});
        if let Some(request) = webhooks::request(frames, seq) {
            body["request"] = json!(request);
        }
        let mut body = body.to_string();
        if let Some(whole) = whole {
            // As stored, so that numbers keep their text.
            body.pop();
            body.push_str(&format!(r#","frame":{whole}}}"#));
        }
        line(&shape::pretty(&body));
        return Ok(ExitCode::SUCCESS);
    }
    for node in &chain {
        let causes = node.cause.iter().map(u64::to_string);
        let causes = causes.chain(node.foreign.iter().cloned());
        let causes = causes.map(|cause| match node.missing.contains(&cause) {
            true => format!("{cause} (missing)"),
            false => cause,
        });
        let causes = match causes.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => format!("root, by {}", node.actor),
            causes => format!("<- {causes}"),
        };
        if !hop(node, &text::line(&causes)) {
            break;
        }
    }
    let frame = usize::try_from(seq).ok().and_then(|seq| frames.get(seq));
    if let Some(frame) = frame {
        let all = format!("ktsu trace {} {seq} --json{flag}", stream.name());
        content::print(frames, frame, &all);
    }
    Ok(ExitCode::SUCCESS)
}

/// A frame of a chain, and what it follows from: ids of frames elsewhere, too, so never cut.
fn hop(node: &LineageNode, causes: &str) -> bool {
    let places = if sheet().is_narrow() { 14 } else { 24 };
    let words = format!(
        "{:>5}  {} {:<places$}",
        node.seq,
        painted(BOLD, &format!("{:<20}", text::line(&node.kind))),
        text::line(&place_of(node)),
    );
    let detail = text::line(&node.detail);
    let whole = columns(&words) + 1 + columns(causes);
    if sheet().width.is_some_and(|width| whole > width) {
        let below = format!("       {}", painted(DIM, causes));
        return row(words.trim_end()) && line(&below);
    }
    let causes = painted(DIM, &format!("{causes:<12}"));
    row(format!("{words} {causes} {detail}").trim_end())
}

fn no_such_frame(stream: &StreamId, frames: &[Frame], seq: u64) -> Failure {
    let words = format!("{} has no frame {seq}", stream.name());
    Failure::could_not_run(words).hint(nearest_frames(stream, frames))
}

/// The frames that come nearest to one that is not there: numbers leave none out, so the last.
fn nearest_frames(stream: &StreamId, frames: &[Frame]) -> String {
    let last = frames.iter().rev().take(3).rev();
    let last = last.map(|frame| format!("{} ({})", frame.seq, frame.event.kind()));
    let last = last.collect::<Vec<_>>().join(", ");
    let name = stream.name();
    format!("the nearest are {last}; ktsu frames {name} lists all")
}

/// The tree of frames. Of several effects, the one with the most descendants continues below its
/// cause and the others are indented, so that a long chain stays straight.
fn tree(
    common: &Common,
    reader: &dyn Reader,
    (stream, frames): (&StreamId, &[Frame]),
    scope: &str,
    wanted: &TraceFilter,
) -> Result<ExitCode, Failure> {
    let mut lineage = Lineage::from_frames(frames);
    trace::mark_missing_causes(reader, lineage.nodes_mut())?;
    let inside = |node: &&LineageNode| is_within(&node.scope, scope) && wanted.matches(*node);
    let nodes: Vec<&LineageNode> = lineage.nodes().iter().filter(inside).collect();
    if nodes.is_empty() && wanted.is_all() {
        return Err(no_such_child(stream, scope));
    }
    if common.json {
        let body = json!({"run_id": stream.name(), "frames": nodes});
        return print_json(&body);
    }
    // From the last frame to the first: what follows from a frame comes after it.
    let mut below: BTreeMap<u64, Vec<Subtree<'_>>> = BTreeMap::new();
    let mut open = Vec::new();
    for node in nodes.iter().rev() {
        let effects = below.get(&node.seq).map_or(&[][..], Vec::as_slice);
        let size = 1 + effects.iter().map(|one| one.size).sum::<usize>();
        let causes = node.cause.iter().filter_map(|seq| lineage.node(*seq));
        let cause = causes.filter(inside).map(|cause| cause.seq).max();
        match cause {
            Some(cause) => below.entry(cause).or_default().push(Subtree { node, size }),
            None => open.push((*node, 0)),
        }
    }
    while let Some((node, depth)) = open.pop() {
        let indent = format!("{} ", symbols().bar()).repeat(depth.min(20));
        if !row(node_text(node, &indent).trim_end()) {
            break;
        }
        let mut effects = below.remove(&node.seq).unwrap_or_default();
        effects.sort_by_key(|one| (std::cmp::Reverse(one.size), one.node.seq));
        let mut effects = effects.into_iter();
        open.extend(effects.next().map(|one| (one.node, depth)));
        let mut others: Vec<&LineageNode> = effects.map(|one| one.node).collect();
        others.sort_by_key(|node| std::cmp::Reverse(node.seq));
        open.extend(others.into_iter().map(|node| (node, depth + 1)));
    }
    Ok(ExitCode::SUCCESS)
}

/// A frame and the size of its subtree.
struct Subtree<'a> {
    node: &'a LineageNode,
    size: usize,
}

fn node_text(node: &LineageNode, indent: &str) -> String {
    let width = 24usize.saturating_sub(indent.chars().count());
    let missing = match node.missing.as_slice() {
        [] => String::new(),
        causes => format!(
            "  {}: {}",
            painted(WARN, "its cause is missing"),
            causes.join(", ")
        ),
    };
    let places = if sheet().is_narrow() { 14 } else { 20 };
    format!(
        "{:>5}  {}{} {:<places$} {}{missing}",
        node.seq,
        painted(DIM, indent),
        painted(BOLD, &format!("{:<width$}", text::line(&node.kind))),
        text::line(&place_of(node)),
        text::line(&node.detail)
    )
}

/// The place of a frame: `step`, `child/step`, or `child/` for what concerns a child as a whole.
fn place_of(node: &LineageNode) -> String {
    path_in(&node.scope, node.step.as_deref().unwrap_or_default())
}

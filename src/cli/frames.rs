//! `ktsu frames`: every recorded fact of a run, one line each.

use std::process::ExitCode;
use std::time::Duration;

use ktsu_ledger::branch::Ancestry;
use ktsu_ledger::event::StepEvent;
use ktsu_ledger::store::Reader;
use ktsu_ledger::{Event, Frame, Ledger, StreamId};
use ktsu_projections::Lineage;
use ktsu_projections::step_name::path_in;

use super::output::{BOLD, DIM, line, note, painted, row, sheet};
use super::reading::open;
use super::{Common, Failure, json, text};
use ktsu_eval::FrameFilter;
use ktsu_history::checked_run::{self, CheckedRunError};
use ktsu_history::frame_page::{self, FramePage, FrameSelection, PageLimit};
use ktsu_history::frame_types::FrameTypes;
use ktsu_opening::find::find_record;

/// The time between two polls of a followed ledger while no frames arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What `frames` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run: its id, or a unique prefix or suffix of it; RUN/STEP for an inline child
    run: String,
    /// The number of the first frame
    #[arg(long, default_value_t = 0, value_name = "N")]
    from: u64,
    /// The maximum number of frames
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Only the frames of responders that a budget of events counts: objects, relations, questions
    #[arg(long)]
    world: bool,
    /// Only frames of this type, such as review.decided; may be repeated
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only frames that match: KEY=GLOB, where KEY is type, scope, step, item, tool, server, model,
    /// status, actor or expr; may be repeated, and all have to match
    #[arg(long = "where", value_name = "KEY=GLOB", conflicts_with = "follow")]
    filter: Vec<String>,
    /// Continues until the run has ended
    #[arg(long)]
    follow: bool,
    /// Inserts values that are stored as blobs into their frames
    #[arg(long)]
    expand: bool,
}

/// Prints frames.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let types = FrameTypes::of(arguments.types.iter().map(String::as_str));
    let types = types.map_err(|error| {
        let failure = Failure::could_not_run(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    let (reader, place) = open(common)?;
    let (stream, scope) = find_record(&reader, &arguments.run)?;
    let only = (!arguments.filter.is_empty()).then(|| {
        let filter = filter(&arguments.filter)?;
        checked_run::matching(&reader, &stream, &filter).map_err(|error| match error {
            CheckedRunError::Read(error) => error.into(),
            error => Failure::of(error),
        })
    });
    let selection = FrameSelection {
        only: only.transpose()?,
        scope,
        world: arguments.world,
        types,
        expand: arguments.expand,
    };
    let mut from = arguments.from;
    let mut left = arguments.limit.unwrap_or(usize::MAX);
    while left > 0 {
        // Checked before reading, so that frames appended meanwhile are read in the next round.
        let ended = !arguments.follow || has_ended(&reader, &stream)?;
        let limit = left.min(frame_page::MAX_FRAMES);
        let bound = PageLimit::frames(limit);
        let page = frame_page::page(&reader, &stream, &selection, from, bound)?;
        left -= page.frames.len();
        from = page.after;
        let all = if common.json || arguments.expand {
            page.frames
                .iter()
                .all(|(_, frame)| line(&json::compact(frame)))
        } else {
            frame_text(&reader, &stream, &page)?
        };
        if !all {
            break;
        }
        if page.next.is_none() {
            if ended {
                break;
            }
            if page.frames.is_empty() && Ledger::open(&place.ledger).owner()?.is_none() {
                note("no engine owns the ledger: the run resumes at the next start");
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn filter(words: &[String]) -> Result<FrameFilter, Failure> {
    FrameFilter::from_words(words).map_err(|error| {
        let failure = Failure::could_not_run(format!("--where: {error}"));
        match error.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })
}

fn has_ended(reader: &dyn Reader, stream: &StreamId) -> Result<bool, Failure> {
    Ok(!reader.row(stream)?.is_some_and(|row| row.open))
}

/// Prints one line per frame; false once the reader of standard output is gone.
fn frame_text(reader: &dyn Reader, stream: &StreamId, page: &FramePage) -> Result<bool, Failure> {
    let path = Ancestry::of(reader, stream)?;
    let mut wanted = page.frames.iter().map(|(seq, _)| *seq).peekable();
    while let Some(first) = wanted.peek().copied() {
        for record in path.read(reader, first, 1000)? {
            if wanted.next_if_eq(&record.seq).is_none() {
                continue;
            }
            let frame = record.decode_bare();
            let frame = frame.map_err(|error| {
                Failure::could_not_run(format!("{stream}#{}: {error}", record.seq))
                    .hint("to see what is damaged: ktsu verify")
            })?;
            if !row(&in_one_line(reader, &path, &frame)?) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn in_one_line(reader: &dyn Reader, path: &Ancestry, frame: &Frame) -> Result<String, Failure> {
    let outcome = match &frame.event {
        // These name commands of an outcome by their places.
        Event::Step(StepEvent::CommandsDeferred(_) | StepEvent::CommandsDiscarded(_)) => {
            frame_page::end_of_task(reader, path, frame)?
        }
        _ => None,
    };
    let lineage = Lineage::from_frames(outcome.iter().chain([frame]));
    let node = lineage.nodes().last();
    let step = node
        .and_then(|node| node.step.as_deref())
        .unwrap_or_default();
    let place = path_in(&frame.scope, step);
    let at = frame.at.to_string();
    let detail = node.map_or("", |node| node.detail.as_str());
    let kind = painted(BOLD, &format!("{:<20}", text::line(frame.event.kind())));
    let (place, detail) = (text::line(&place), text::line(detail));
    let words = match sheet().is_narrow() {
        true => format!("{:>5}  {kind} {place:<14} {detail}", frame.seq),
        false => {
            let time = painted(DIM, at.get(11..23).unwrap_or_default());
            format!("{:>5}  {time}  {kind} {place:<24} {detail}", frame.seq)
        }
    };
    Ok(words.trim_end().to_owned())
}

//! Finds a run by what a person types: a whole id, or a unique prefix or suffix of one.

use ktsu_ledger::StreamId;
use ktsu_ledger::id::{BRANCH, RECOMPUTE};
use ktsu_ledger::store::{Filter, Reader, RemovedStream, StoreError};

use super::approvals::each_row;
use super::evals::EVAL;
use super::frame_page::{self, FrameSelection, PageLimit};

/// The result of a search for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunMatch {
    /// One run, and the scope below it that was asked for (`R/call` asks for `call`).
    One(StreamId, String),
    /// None.
    None,
    /// It was removed: see the frame that records it.
    Removed(Box<RemovedStream>),
    /// Several: some of them, and how many there are.
    Many(Vec<String>, usize),
}

/// `run_… was removed on 2026-11-23 by retention; it was complete, with 12 frames`.
pub fn removal_in_words(removed: &RemovedStream) -> String {
    let RemovedStream { at, event, .. } = removed;
    let at = at.to_string();
    let day = at.get(..10).unwrap_or(&at);
    let frames = match event.frames {
        1 => "1 frame".to_owned(),
        frames => format!("{frames} frames"),
    };
    let (name, reason, status) = (event.stream.name(), &event.reason, &event.status);
    format!("{name} was removed on {day} by {reason}; it was {status}, with {frames}")
}

/// A hint for a run that was removed.
pub const REMOVED_HINT: &str =
    "an archive that was exported before still verifies: ktsu evidence verify FILE";

/// The fewest characters of an id that are worth a search.
const MIN_ID_CHARS: usize = 3;
/// The most candidates that are named.
const MAX_CANDIDATES: usize = 5;

/// Finds an eval by its id, or by a unique beginning or end of it.
///
/// # Errors
/// [`StoreError`].
pub fn eval(reader: &dyn Reader, asked: &str) -> Result<RunMatch, StoreError> {
    let bare = asked.strip_prefix("eval:").unwrap_or(asked);
    if let Ok(stream) = format!("eval:{bare}").parse::<StreamId>()
        && let Some(found) = exactly(reader, stream)?
    {
        return Ok(found);
    }
    if bare.len() < MIN_ID_CHARS {
        return Ok(RunMatch::None);
    }
    let mut matches = ktsu_run_index::evals(reader)?;
    matches.retain(|stream| is_like(stream.name(), &[EVAL], bare));
    Ok(among(&matches))
}

/// The stream of this name, if it is there, or was.
fn exactly(reader: &dyn Reader, stream: StreamId) -> Result<Option<RunMatch>, StoreError> {
    if reader.tail(&stream)?.is_some() {
        return Ok(Some(RunMatch::One(stream, String::new())));
    }
    let removed = reader.removed(&stream)?;
    Ok(removed.map(|removed| RunMatch::Removed(Box::new(removed))))
}

/// Returns `true` if a name begins or ends like this, with or without the prefix of its kind.
fn is_like(name: &str, kinds: &[&str], asked: &str) -> bool {
    let bare = kinds.iter().find_map(|kind| name.strip_prefix(kind));
    let bare = bare.unwrap_or(name);
    name.starts_with(asked) || bare.starts_with(asked) || name.ends_with(asked)
}

/// The one among streams that match, if it is one.
fn among(matches: &[StreamId]) -> RunMatch {
    match matches {
        [] => RunMatch::None,
        [one] => RunMatch::One(one.clone(), String::new()),
        many => {
            let named = many.iter().take(MAX_CANDIDATES);
            let named = named.map(|stream| stream.name().to_owned());
            RunMatch::Many(named.collect(), many.len())
        }
    }
}

/// Finds a run; `asked` may end in the path of an inline child.
///
/// # Errors
/// [`StoreError`].
pub fn run(reader: &dyn Reader, asked: &str) -> Result<RunMatch, StoreError> {
    let (id, scope) = asked.split_once('/').unwrap_or((asked, ""));
    match find_root(reader, id)? {
        RunMatch::One(stream, _) if has_scope(reader, &stream, scope)? => {
            Ok(RunMatch::One(stream, scope.to_owned()))
        }
        RunMatch::One(..) => Ok(RunMatch::None),
        other => Ok(other),
    }
}

/// Returns `true` if a run has an inline child at a path: all its frames are in that scope.
fn has_scope(reader: &dyn Reader, stream: &StreamId, scope: &str) -> Result<bool, StoreError> {
    if scope.is_empty() {
        return Ok(true);
    }
    let selection = FrameSelection {
        scope: scope.to_owned(),
        ..FrameSelection::default()
    };
    let page = frame_page::page(reader, stream, &selection, 0, PageLimit::frames(1))?;
    Ok(!page.frames.is_empty())
}

fn find_root(reader: &dyn Reader, id: &str) -> Result<RunMatch, StoreError> {
    if let Ok(stream) = StreamId::run(id)
        && let Some(found) = exactly(reader, stream)?
    {
        return Ok(found);
    }
    if id.len() < MIN_ID_CHARS {
        return Ok(RunMatch::None);
    }
    let mut matches = Vec::new();
    each_row(reader, &Filter::default(), None, usize::MAX, |row| {
        if is_like(row.stream.name(), &["run_", BRANCH, RECOMPUTE], id) {
            matches.push(row.stream.clone());
        }
        Ok(())
    })?;
    Ok(among(&matches))
}

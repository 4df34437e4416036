//! A finished run, as checks see it.

use std::collections::BTreeSet;

use ktsu_eval::{FrameFilter, FrameFold, FrameView, FrameViewError};
use ktsu_ledger::branch::Ancestry;
use ktsu_ledger::store::{MAX_PAGE, Reader, StoreError};
use ktsu_ledger::{Frame, Hash, Record, StreamId};
use ktsu_workflow::expression::EvaluationError;
use serde_json::Value;

use super::{RunReadError, envelope_and_frames};

/// A run that has ended, with everything that a check may look at.
#[derive(Debug, Clone)]
pub struct CheckedRun {
    /// The envelope, as `ktsu runs get --json` shows it.
    pub envelope: Value,
    /// All of its frames, in order.
    pub frames: Vec<FrameView>,
    /// The hash of its last frame.
    pub head: Hash,
}

/// The reason why a run cannot be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckedRunError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] RunReadError),
    /// There is no such run.
    #[error("there is no such run")]
    Missing,
    /// It has this status, and is not finished.
    #[error("the run is {0}: only a finished run can be checked")]
    Unfinished(&'static str),
    /// A frame of it is not JSON.
    #[error(transparent)]
    Frame(#[from] FrameViewError),
    /// The expression of a filter has no value for this frame.
    #[error("frame {0}: {1}")]
    Filter(u64, EvaluationError),
}

impl From<StoreError> for CheckedRunError {
    fn from(error: StoreError) -> Self {
        Self::Read(error.into())
    }
}

impl CheckedRun {
    /// Reads a run, or as many of its first frames: a run may be resumed after it had ended.
    ///
    /// # Errors
    /// [`CheckedRunError`].
    pub fn read(
        reader: &dyn Reader,
        stream: &StreamId,
        first: Option<u64>,
    ) -> Result<Self, CheckedRunError> {
        let found = envelope_and_frames(reader, stream)?;
        let (mut fold, mut frames) = found.ok_or(CheckedRunError::Missing)?;
        let first = first.and_then(|first| usize::try_from(first).ok());
        if let Some(first) = first.filter(|first| *first < frames.len()) {
            frames.truncate(first);
            fold = super::fold(&frames).map_err(RunReadError::from)?;
        }
        let status = fold.state().status();
        if !status.is_terminal() {
            return Err(CheckedRunError::Unfinished(status.as_str()));
        }
        let envelope = fold.envelope("").ok_or(CheckedRunError::Missing)?;
        let last = frames.last().ok_or(CheckedRunError::Missing)?;
        Ok(Self {
            envelope: serde_json::to_value(&envelope).unwrap_or_default(),
            head: last.hash,
            frames: views(reader, stream, &frames)?,
        })
    }
}

/// The numbers of the frames of a run that a filter matches.
///
/// # Errors
/// [`CheckedRunError`]; [`CheckedRunError::Filter`] where an expression has no value.
pub fn matching(
    reader: &dyn Reader,
    stream: &StreamId,
    filter: &FrameFilter,
) -> Result<BTreeSet<u64>, CheckedRunError> {
    let frames = super::frames(reader, stream)?;
    let mut matching = BTreeSet::new();
    for view in views(reader, stream, &frames)? {
        let matches = filter.matches(&view);
        let no_value = |error| CheckedRunError::Filter(view.seq, error);
        if matches.map_err(no_value)? {
            matching.insert(view.seq);
        }
    }
    Ok(matching)
}

fn views(
    reader: &dyn Reader,
    stream: &StreamId,
    frames: &[Frame],
) -> Result<Vec<FrameView>, CheckedRunError> {
    let records = records(reader, stream, frames)?;
    Ok(FrameFold::views(records.iter().zip(frames))?)
}

/// The stored form of frames, those of a branch's parents among them.
fn records(
    reader: &dyn Reader,
    stream: &StreamId,
    frames: &[Frame],
) -> Result<Vec<Record>, StoreError> {
    let path = Ancestry::of(reader, stream)?;
    let mut records: Vec<Record> = Vec::with_capacity(frames.len());
    while records.len() < frames.len() {
        let page = path.read(reader, records.len() as u64, MAX_PAGE)?;
        if page.is_empty() {
            break;
        }
        records.extend(page);
    }
    // Frames may have been appended since.
    records.truncate(frames.len());
    Ok(records)
}

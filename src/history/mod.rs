//! Offline answers: what the ledger says, asked later. Nothing here can touch the world.

pub mod find;
mod readers;
pub mod shown;
pub mod steps;
pub mod trace;
pub mod verify;

pub use readers::Readers;

use std::collections::HashMap;

use ktsu_ledger::frame::FrameError;
use ktsu_ledger::store::{Reader, StoreError, read_all};
use ktsu_ledger::{Frame, Hash, Json, Record, StreamId};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::run::FoldError;

/// Why a recorded run cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its frames do not fold.
    #[error("{0}; `ktsu verify` says more")]
    Fold(#[from] FoldError),
}

/// All frames of a stream, blobs put back.
///
/// # Errors
/// [`StoreError`], also for a frame that cannot be read.
pub fn frames(reader: &dyn Reader, stream: &StreamId) -> Result<Vec<Frame>, StoreError> {
    let mut blobs = Blobs::new(reader);
    let records = read_all(reader, stream, 0)?;
    records
        .iter()
        .map(|record| blobs.decode(stream, record))
        .collect()
}

/// The fold behind the envelopes of a run; none if there is no such run.
///
/// # Errors
/// [`Unreadable`].
pub fn envelope(
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<Option<EnvelopeFold>, Unreadable> {
    let frames = frames(reader, stream)?;
    if frames.is_empty() {
        return Ok(None);
    }
    Ok(Some(EnvelopeFold::of(&frames)?))
}

/// Puts blobs back into frames, reading each blob once.
pub struct Blobs<'a> {
    reader: &'a dyn Reader,
    seen: HashMap<Hash, Json>,
}

impl<'a> Blobs<'a> {
    /// Blobs as a reader has them.
    pub fn new(reader: &'a dyn Reader) -> Self {
        Self {
            reader,
            seen: HashMap::new(),
        }
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn decode(&mut self, stream: &StreamId, record: &Record) -> Result<Frame, StoreError> {
        let decoded = record.decode(&mut |hash| {
            if let Some(text) = self.seen.get(hash) {
                return Ok(Some(text.clone()));
            }
            let text = self.reader.blob_get(hash)?;
            if let Some(text) = &text {
                self.seen.insert(*hash, text.clone());
            }
            Ok::<_, Failed>(text)
        });
        decoded.map_err(|failed| match failed {
            Failed::Store(error) => error,
            Failed::Frame(error) => {
                StoreError::Damaged(format!("{stream}#{}: {error}", record.seq))
            }
        })
    }
}

enum Failed {
    Store(StoreError),
    Frame(FrameError),
}

impl From<FrameError> for Failed {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

//! The frames of a stream as projections see them: in order, blobs put back.
//!
//! Forks will be resolved here too: a reader asks for a stream and never learns which of its frames
//! an ancestor holds.

use std::collections::HashMap;

use crate::canonical::Json;
use crate::frame::{Frame, FrameError, Record};
use crate::hash::Hash;
use crate::id::StreamId;
use crate::store::{Reader, StoreError, read_all};

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

//! The interface that verification and repair need of a backend beyond the port.

use super::{MAX_PAGE, Reader, StoreError};
use crate::event::{Event, RunRemoved, StoreEvent};
use crate::frame::Record;
use crate::id::StreamId;
use crate::time::Timestamp;

/// Verification: everything that is stored, in order of appending, unchanged.
pub trait Audit: Reader {
    /// Frames of all streams in the order they were appended, from a position on. Nothing about them
    /// is checked. A scan from 0 also shows what a damaged ledger keeps at no position, if not more
    /// than one page of it.
    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError>;

    /// Blobs in the order they were put, from a position on, as [`Audit::scan_frames`].
    fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError>;

    /// The problems that the container finds in itself.
    fn inspect(&self) -> Inspection;

    /// The numbers and positions of the frames of a stream, in order, from a number on; at most
    /// [`MAX_PAGE`].
    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError>;

    /// The frames of `store` that removed a stream, in order, from a number on.
    fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// The frame of `store` that removed a stream, if it was removed.
    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError>;

    /// Index rows that differ from what was put, or belong to no stream: the problem of each, and
    /// its stream. Reads every row.
    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns `true` if every stream of a kind (`run`) has its index row; a backend may compare
    /// their numbers. Rows are derived, so missing ones can be rebuilt.
    fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        let mut after: Option<StreamId> = None;
        loop {
            let page = self.streams(after.as_ref(), MAX_PAGE)?;
            let Some(last) = page.last() else {
                return Ok(true);
            };
            after = Some(last.clone());
            for stream in page.iter().filter(|stream| stream.kind() == kind) {
                if self.row(stream)?.is_none() {
                    return Ok(false);
                }
            }
        }
    }
}

/// [`Audit`] of a reader that may not have it.
impl dyn Reader + '_ {
    /// The audit of this reader.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if its backend has none.
    pub fn auditor(&self) -> Result<&dyn Audit, StoreError> {
        let missing = || StoreError::failed("scan the ledger", "its store does not support that");
        self.audit().ok_or_else(missing)
    }

    /// See [`Audit::scan_frames`].
    ///
    /// # Errors
    /// Those of the reader, and that its backend cannot be scanned.
    pub fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        self.auditor()?.scan_frames(from, limit)
    }

    /// The position of the last frame in the order of appending, 0 in an empty ledger; found by
    /// halving.
    ///
    /// # Errors
    /// As [`Audit::scan_frames`].
    pub fn last_position(&self) -> Result<u64, StoreError> {
        let audit = self.auditor()?;
        let exists = |from: u64| Ok::<_, StoreError>(!audit.scan_frames(from, 1)?.is_empty());
        let (mut some, mut none) = (0, 1);
        while exists(none)? {
            some = none;
            none = none.saturating_mul(2);
        }
        while none - some > 1 {
            let middle = some + (none - some) / 2;
            match exists(middle)? {
                true => some = middle,
                false => none = middle,
            }
        }
        Ok(some)
    }

    /// See [`Audit::scan_blobs`].
    ///
    /// # Errors
    /// As [`Audit::scan_frames`].
    pub fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        self.auditor()?.scan_blobs(from, limit)
    }

    /// The removal of a stream; `None` of one that was not removed.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn removed(&self, stream: &StreamId) -> Result<Option<RemovedStream>, StoreError> {
        let Some(audit) = self.audit() else {
            return Ok(None);
        };
        let Some(record) = audit.removal(stream)? else {
            return Ok(None);
        };
        let frame = record.decode_bare();
        let frame = frame.map_err(|error| StoreError::Damaged(error.to_string()))?;
        let Event::Store(StoreEvent::RunRemoved(event)) = frame.event else {
            return Ok(None);
        };
        Ok(Some(RemovedStream {
            at: frame.at,
            seq: frame.seq,
            event,
        }))
    }

    /// See [`Audit::wrong_rows`]; none if the backend does not support it.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.audit().map_or(Ok(Vec::new()), Audit::wrong_rows)
    }

    /// See [`Audit::is_indexed`]; a backend without support keeps its index complete itself.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        self.audit()
            .map_or(Ok(true), |audit| audit.is_indexed(kind))
    }
}

/// A stream that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedStream {
    /// The time of the removal.
    pub at: Timestamp,
    /// The number of the frame of `store` that records it.
    pub seq: u64,
    /// The content of that frame, without its blobs.
    pub event: RunRemoved,
}

/// A frame as verification sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFrame {
    /// Its place in the order of appending, from 1; 0 if it has none.
    pub position: u64,
    /// The place where the backend keeps it, if that is no position.
    pub misplaced: Option<String>,
    /// The name of its stream; `None` if it is missing.
    pub stream: Option<String>,
    /// Its number; `None` if the stored value is not a frame number.
    pub seq: Option<u64>,
    /// The hash it is stored with.
    pub hash: Vec<u8>,
    /// The stored bytes.
    pub body: Vec<u8>,
    /// True if a look-up by stream and number gives this frame.
    pub is_found: bool,
}

/// A blob as verification sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBlob {
    /// Its place in the order of putting, from 1; 0 if it has none.
    pub position: u64,
    /// The place where the backend keeps it, if that is no position.
    pub misplaced: Option<String>,
    /// The hash it is stored with.
    pub hash: Vec<u8>,
    /// The stored bytes.
    pub body: Vec<u8>,
}

/// The state of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Problems found.
    pub problems: Vec<String>,
    /// Streams that are marked as removed, with the number of frames each had.
    pub removed: Vec<(String, u64)>,
    /// The epoch it is in, where it has one.
    pub epoch: Option<u64>,
    /// The first refusal of the system to read or write: one of the problems, and no damage.
    pub failed: Option<StoreError>,
}

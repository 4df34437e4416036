//! What verification and repair ask of a backend, beside what the port gives.

use super::{MAX_PAGE, Reader, StoreError};
use crate::id::StreamId;

/// Verification: everything that is stored, in the order of appending, as it is stored.
pub trait Audit: Reader {
    /// Frames of all streams in the order they were appended, from a position on. Nothing about them
    /// is checked. A scan from 0 also shows what a damaged ledger keeps at no position, if not more
    /// than one page of it.
    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError>;

    /// Blobs in the order they were put, from a position on, as [`Audit::scan_frames`].
    fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError>;

    /// What the container finds wrong with itself.
    fn inspect(&self) -> Inspection;

    /// Index rows that are not what was put, or belong to no stream: what is wrong with each, and
    /// the stream it is kept under. Reads every row.
    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        Ok(Vec::new())
    }

    /// Whether every stream of a kind (`run`) has its index row, going by how many there are. Rows
    /// are derived, so whoever finds that they are not all there makes them again.
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

    /// See [`Audit::scan_blobs`].
    ///
    /// # Errors
    /// As [`Audit::scan_frames`].
    pub fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        self.auditor()?.scan_blobs(from, limit)
    }

    /// See [`Audit::wrong_rows`]; a backend that cannot tell has none.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.audit().map_or(Ok(Vec::new()), Audit::wrong_rows)
    }

    /// See [`Audit::is_indexed`]; a backend that cannot tell keeps its index whole by itself.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        self.audit()
            .map_or(Ok(true), |audit| audit.is_indexed(kind))
    }
}

/// A frame as verification sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFrame {
    /// Its place in the order of appending, from 1; 0 if it has none.
    pub position: u64,
    /// Where the backend keeps it, if that is no position.
    pub misplaced: Option<String>,
    /// The name of its stream; `None` if there is none.
    pub stream: Option<String>,
    /// Its number; `None` if what is stored is no number of a frame.
    pub seq: Option<u64>,
    /// The hash it is stored with.
    pub hash: Vec<u8>,
    /// The stored bytes.
    pub body: Vec<u8>,
    /// Whether a look-up by stream and number gives this frame.
    pub is_found: bool,
}

/// A blob as verification sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBlob {
    /// Its place in the order of putting, from 1; 0 if it has none.
    pub position: u64,
    /// Where the backend keeps it, if that is no position.
    pub misplaced: Option<String>,
    /// The hash it is stored with.
    pub hash: Vec<u8>,
    /// The stored bytes.
    pub body: Vec<u8>,
}

/// What a container says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// What is wrong.
    pub problems: Vec<String>,
    /// Streams that are said to have been removed, with the number of frames each had.
    pub removed: Vec<(String, u64)>,
    /// The epoch it is in, where it has one.
    pub epoch: Option<u64>,
}

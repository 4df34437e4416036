//! The storage port: what a ledger needs of a backend.
//!
//! A store keeps streams of frames, the blobs they reference, and index rows. It is synchronous and
//! has one writer, which runs on the appender's own thread; any number of readers may be active
//! elsewhere. It knows nothing of runs: the meaning of frames is defined in `projections`.
//!
//! [`Reader`] and [`Store`] are what every backend implements: ten methods. Optional parts are
//! separate: [`Audit`] for verification, [`Maintenance`] for upkeep. A backend says whether it has
//! them ([`Reader::audit`], [`Store::maintenance`]).
//!
//! ```text
//! Draft ─seal▶ Sealed ─Entry::from_sealed▶ Entry ─Appender::submit▶ Store::append
//!                                                                     │ check (precondition)
//!                                            Refused ◀────────────────┤ one entry alone
//!                                            StoreError ◀─────────────┘ final for the appender
//! ```

mod audit;
pub mod columns;
mod entry;
mod error;
mod holder;
mod index;
pub mod lease;
mod maintenance;
mod memory;
mod owner_watch;
pub mod precondition;
pub(crate) mod sqlite;
mod status;

use std::fmt;

pub use audit::{Audit, Inspection, RawBlob, RawFrame, RemovedStream};
pub use entry::{Entry, EntryError};
pub use error::{AppendRefusal, StoreError};
pub use holder::{Holder, ParseHolderError};
pub use index::{Cursor, Filter, IndexRow, Page, ParseCursorError};
pub use lease::Lease;
pub use maintenance::{Backlog, Maintenance, StandIn, WalCheckpoint};
pub use memory::MemoryStore;
pub use owner_watch::{OwnerState, OwnerWatch};
pub use sqlite::{
    FORMAT, MirrorChange, OpenMirrorError, SIDE_FILES, SqliteMirror, SqliteReader, SqliteStore,
    stored_bytes,
};
pub use status::{LedgerOwner, LedgerStatus, OwnerSight, Replica};

use crate::canonical::CanonicalJson;
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::StreamId;

/// The maximum number of frames, rows or blobs that one call returns, whatever its limit.
pub const MAX_PAGE: usize = 10_000;
/// A call that reads frames or blobs returns no further one after this many bytes.
pub const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// The end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// The number of its last frame.
    pub seq: u64,
    /// That frame's hash.
    pub hash: Hash,
}

/// Raised by every owner of a ledger; what comes from an earlier one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reading. Every call is one short transaction: none holds a writer up.
pub trait Reader: Send {
    /// Frames of a stream in order, starting with `from`; each matches its hash, otherwise
    /// [`StoreError::Damaged`]. May return fewer than `limit` although there are more
    /// ([`MAX_PAGE`], [`PAGE_BYTES`]): only an empty result means the end. See [`read_all`].
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// The end of a stream; `None` if there is no such stream.
    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError>;

    /// The names of streams in their own order, after a name.
    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError>;

    /// A blob; [`StoreError::Damaged`] if its text does not match its hash.
    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError>;

    /// Index rows, newest first.
    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError>;

    /// The index row of a stream.
    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError>;

    /// The index row that has an idempotency key.
    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError>;

    /// Called when data that was read turns out to be damaged. Backends may ignore it; a view that
    /// watches for damage does not.
    fn found_damage(&self, why: &str) {
        let _ = why;
    }

    /// The interface for verification and repair, where the backend has one.
    fn audit(&self) -> Option<&dyn Audit> {
        None
    }
}

impl Reader for Box<dyn Reader> {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.as_ref().read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.as_ref().tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.as_ref().streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.as_ref().blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.as_ref().list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.as_ref().row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.as_ref().by_key(key)
    }

    fn found_damage(&self, why: &str) {
        self.as_ref().found_damage(why);
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.as_ref().audit()
    }
}

/// Writing. One owner at a time, fenced by the epoch.
pub trait Store: Reader {
    /// Makes the caller the owner: raises the stored epoch, durably.
    fn acquire(&mut self) -> Result<Epoch, StoreError>;

    /// Appends entries in order, each completely or not at all, and returns once they are durable:
    /// the last number of each, or why that one was refused.
    ///
    /// An error is final: nothing is known to be stored, and the store must not be used further.
    /// After [`StoreError::Unknown`] the caller reads back, and may append missing entries again.
    /// Once a later append has returned, nothing that was sent before it may still be stored.
    fn append(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
    ) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError>;

    /// Another view of the same ledger, for another thread.
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;

    /// The upkeep of ownership, where it lasts only while it is renewed.
    fn lease(&mut self) -> Option<&mut dyn Lease> {
        None
    }

    /// The upkeep that the backend needs, where it needs any.
    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        None
    }
}

/// Reads a stream to its end, page by page.
///
/// # Errors
/// Those of the reader.
pub fn read_all(
    reader: &dyn Reader,
    stream: &StreamId,
    from: u64,
) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    let mut next = from;
    loop {
        let page = reader.read(stream, next, MAX_PAGE)?;
        let Some(last) = page.last() else {
            return Ok(records);
        };
        next = last.seq.saturating_add(1);
        records.extend(page);
    }
}

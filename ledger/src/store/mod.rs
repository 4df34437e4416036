//! The port: what a ledger needs of whatever keeps it.
//!
//! A store keeps streams of frames, the blobs they name, and index rows. It is synchronous and
//! has one writer, which runs on the appender's own thread; any number of readers look at it from
//! elsewhere. It knows nothing of runs: what a frame means is said in `projections`.
//!
//! ```text
//! Draft ─seal▶ Sealed ─Entry::from_sealed▶ Entry ─Appender::submit▶ Store::append
//!                                                                     │ judge (door)
//!                                            Refused ◀────────────────┤ one entry alone
//!                                            StoreError ◀─────────────┘ final for the appender
//! ```

mod door;
mod entry;
mod error;
mod index;
mod memory;
mod sqlite;

use std::fmt;

pub use entry::{Entry, EntryError};
pub use error::{Refused, StoreError};
pub use index::{Cursor, Filter, IndexRow, NotACursor, Page};
pub use memory::MemoryStore;
pub use sqlite::{FORMAT, SqliteReader, SqliteStore};

pub(crate) use sqlite::{Paths, copy_database, file_epoch, fresh_file};

use crate::canonical::Json;
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::StreamId;

/// The most frames, rows or blobs one call returns, whatever its limit.
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
    /// Frames of a stream in order, `from` included, each of them what its hash says or
    /// [`StoreError::Damaged`]. May give fewer than `limit` although there
    /// are more ([`MAX_PAGE`], [`PAGE_BYTES`]): only an empty answer means the end. See
    /// [`read_all`].
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// How a stream ends; `None` if there is no such stream.
    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError>;

    /// The names of streams in their own order, after a name.
    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError>;

    /// A blob. One whose text is not what its hash says is [`StoreError::Damaged`].
    fn blob_get(&self, hash: &Hash) -> Result<Option<Json>, StoreError>;

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

    /// Index rows that are not what was put, or belong to no stream: what is wrong with each, and
    /// the stream it is kept under. Reads every row.
    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        Ok(Vec::new())
    }

    /// For verification: frames of all streams in the order they were appended, `from` included.
    /// Nothing about them is checked, their positions neither: `i64::MIN` leaves out nothing.
    fn scan_frames(&self, from: i64, limit: usize) -> Result<Vec<RawFrame>, StoreError>;

    /// For verification: blobs in the order they were put, `from` included, as
    /// [`Reader::scan_frames`].
    fn scan_blobs(&self, from: i64, limit: usize) -> Result<Vec<RawBlob>, StoreError>;

    /// For verification: what the container finds wrong with itself.
    fn inspect(&self) -> Inspection;

    /// Told by whoever finds that what was read is not what was appended.
    fn found_damage(&self, why: &str) {
        let _ = why;
    }
}

/// Writing. One owner at a time, fenced by the epoch.
pub trait Store: Reader {
    /// Makes the caller the owner: raises the stored epoch, durably.
    fn acquire(&mut self) -> Result<Epoch, StoreError>;

    /// Appends entries in order, each whole or not at all, and is durable when it returns. Gives
    /// the last number of each, or why that one was refused; an error means that nothing is
    /// known to be stored.
    fn append(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
    ) -> Result<Vec<Result<u64, Refused>>, StoreError>;

    /// Another view of the same ledger, for another thread.
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;

    /// Deletes every index row.
    fn clear_index(&mut self, epoch: Epoch) -> Result<(), StoreError>;

    /// Puts index rows, replacing those of the same streams.
    fn put_rows(&mut self, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError>;

    /// Bytes that are durable in the log but not yet moved to their place.
    fn backlog(&self) -> u64;

    /// Moves what is durable to its place, as far as readers let it; never waits for one.
    fn checkpoint(&mut self, kind: Checkpoint) -> Result<Backlog, StoreError>;

    /// From now on closing does not move the log to its place either: nothing more is written.
    fn leave_log(&mut self) {}
}

/// How far a checkpoint goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// Moves what it can.
    Passive,
    /// Moves everything and gives the log's space back, unless somebody reads.
    Truncate,
}

/// What a checkpoint left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes not yet moved, because somebody reads an older state.
    pub left: u64,
    /// Bytes the log takes on the disk.
    pub log: u64,
}

/// A frame as verification sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawFrame {
    /// Its place in the order of appending, from 1 in a sound ledger.
    pub position: i64,
    /// The name of its stream; `None` if there is none.
    pub stream: Option<String>,
    /// The number column.
    pub seq: i64,
    /// The hash column.
    pub hash: Vec<u8>,
    /// The stored bytes.
    pub body: Vec<u8>,
    /// The position that a look-up by stream and number gives.
    pub found_at: Option<i64>,
}

/// A blob as verification sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBlob {
    /// Its place in the order of putting, from 1 in a sound ledger.
    pub position: i64,
    /// The hash column.
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
    pub removed: Vec<(String, i64)>,
    /// The epoch it is in, where it has one.
    pub epoch: Option<u64>,
}

/// Reads a stream to its end, page by page.
///
/// # Errors
/// Whatever the reader fails with.
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

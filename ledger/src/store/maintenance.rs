//! Maintenance that some backends need beyond the port.

use super::{Epoch, IndexRow, Store, StoreError};
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::StreamId;

/// Upkeep, by the owner.
pub trait Maintenance {
    /// Bytes that are durable in the log but not yet moved to their place.
    fn backlog(&self) -> u64;

    /// Moves durable data from the log to its final place, as far as readers allow; never waits for
    /// one.
    fn checkpoint(&mut self, kind: WalCheckpoint) -> Result<Backlog, StoreError>;

    /// From now on closing does not move the log to its place either: nothing more is written.
    fn abandon(&mut self);

    /// Deletes every index row.
    fn clear_index(&mut self, epoch: Epoch) -> Result<(), StoreError>;

    /// Puts index rows, replacing those of the same streams.
    fn put_rows(&mut self, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError>;

    /// Returns `true` if it takes stand-ins.
    fn takes_stand_ins(&self) -> bool {
        false
    }

    /// Puts stand-ins at the next positions, unchecked.
    fn put_stand_ins(&mut self, _epoch: Epoch, _of: &[StandIn]) -> Result<(), StoreError> {
        let why = "its store does not support that";
        Err(StoreError::failed("put a stand-in", why))
    }
}

/// A frame without a body in the place of one that was removed from the ledger that is being copied,
/// until the copy comes to its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    /// The removed stream.
    pub stream: StreamId,
    /// The number of the frame, and of the last frame of a stream the hash.
    pub record: Record,
}

impl StandIn {
    /// In the place of a frame.
    pub(crate) fn new(stream: &StreamId, seq: u64, hash: Option<Hash>) -> Self {
        Self {
            stream: stream.clone(),
            record: Record {
                seq,
                hash: hash.unwrap_or(Hash::ZERO),
                body: String::new(),
            },
        }
    }
}

/// [`Maintenance`] of a store that may not need it.
impl dyn Store + '_ {
    /// See [`Maintenance::abandon`].
    pub fn abandon(&mut self) {
        if let Some(maintenance) = self.maintenance() {
            maintenance.abandon();
        }
    }

    /// See [`Maintenance::clear_index`].
    ///
    /// # Errors
    /// Those of the store, and that its index cannot be changed separately from its frames.
    pub fn clear_index(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        self.index()?.clear_index(epoch)
    }

    /// See [`Maintenance::put_rows`].
    ///
    /// # Errors
    /// As `clear_index`.
    pub fn put_rows(&mut self, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError> {
        self.index()?.put_rows(epoch, rows)
    }

    fn index(&mut self) -> Result<&mut dyn Maintenance, StoreError> {
        let missing = || StoreError::failed("write the index", "its store does not support that");
        self.maintenance().ok_or_else(missing)
    }
}

/// The extent of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalCheckpoint {
    /// Moves what it can.
    Incremental,
    /// Moves everything and truncates the log, unless a reader is active.
    Full,
}

/// The state of the log after a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes not yet moved, because a reader uses an older state.
    pub left: u64,
    /// Bytes the log takes on the disk.
    pub log: u64,
}

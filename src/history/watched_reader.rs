//! A reader for tests.

use ktsu_ledger::store::{Cursor, Filter, IndexRow, MemoryStore, Page, Reader, StoreError, Tail};
use ktsu_ledger::{CanonicalJson, Hash, Record, StreamId};

/// A store whose reader asks a test first.
pub(crate) struct WatchedReader<'s> {
    pub(crate) store: &'s MemoryStore,
    /// Gives the number of frames that are read, of those that are wanted from one on.
    pub(crate) before_read: &'s (dyn Fn(u64, usize) -> Result<usize, StoreError> + Sync),
    /// Is shown the hash of each blob.
    pub(crate) before_blob: &'s (dyn Fn(&Hash) + Sync),
}

impl Reader for WatchedReader<'_> {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let limit = (self.before_read)(from, limit)?;
        self.store.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.store.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.store.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        (self.before_blob)(hash);
        self.store.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.store.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.store.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.store.by_key(key)
    }
}

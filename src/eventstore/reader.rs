//! Reading: from the local copy, once it has what the ledger has.

use std::sync::Arc;

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    Audit, Cursor, Filter, Inspection, Page, RawBlob, RawFrame, SqliteReader, Tail,
};
use ktsu_ledger::{Hash, IndexRow, Reader, Record, StoreError, StreamId};

use crate::shared::SharedLedger;

/// A view of a ledger, for one thread.
pub(crate) struct CopyReader {
    shared: Arc<SharedLedger>,
    view: SqliteReader,
}

impl CopyReader {
    pub(crate) fn new(shared: &Arc<SharedLedger>) -> Result<Self, StoreError> {
        Ok(Self {
            shared: Arc::clone(shared),
            view: shared.view()?,
        })
    }

    /// The local copy, up to date.
    pub(crate) fn now(&self) -> Result<&SqliteReader, StoreError> {
        self.shared.refresh()?;
        Ok(&self.view)
    }

    /// The local copy, as it is.
    pub(crate) fn view(&self) -> &SqliteReader {
        &self.view
    }
}

impl Reader for CopyReader {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.now()?.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.now()?.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.now()?.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.now()?.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.now()?.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.now()?.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.now()?.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

impl Audit for CopyReader {
    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        self.now()?.scan_frames(from, limit)
    }

    fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        self.now()?.scan_blobs(from, limit)
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        self.now()?.positions(stream, from, limit)
    }

    fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.now()?.removals(from, limit)
    }

    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        self.now()?.removal(stream)
    }

    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.now()?.wrong_rows()
    }

    fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        self.now()?.is_indexed(kind)
    }

    /// What is wrong with a local copy is wrong with no ledger.
    fn inspect(&self) -> Inspection {
        let failed = self.now().err();
        let Inspection { removed, epoch, .. } = self.view.inspect();
        Inspection {
            problems: failed.iter().map(ToString::to_string).collect(),
            removed,
            epoch,
            failed,
        }
    }
}

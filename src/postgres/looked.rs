//! What a writer knows of a ledger before it appends, and the ledger as the checks of an entry see it.

use std::collections::{HashMap, HashSet};

use ktsu_ledger::store::precondition::StoreView;
use ktsu_ledger::store::{Entry, StoreError, Tail};
use ktsu_ledger::{Hash, Reader as _, Record, StreamId};

use crate::queries::{PostgresQueries, StoredStream};

/// What was found out before some entries are appended, and what those before have changed.
#[derive(Default)]
pub(crate) struct Looked {
    /// Streams that the ledger does not have.
    pub(crate) absent: HashSet<StreamId>,
    /// The tails of streams that this call has appended to.
    pub(crate) pending: HashMap<StreamId, StoredStream>,
    /// The keys of streams.
    pub(crate) keys: HashMap<StreamId, String>,
    /// Those of the blobs that the entries name and do not bring which the ledger has.
    pub(crate) blobs: HashSet<Hash>,
    /// Entries that are accepted and not stored yet.
    pub(crate) group: Vec<Entry>,
}

/// The ledger as the checks of an entry see it.
pub(crate) struct View<'a> {
    pub(crate) ledger: &'a PostgresQueries,
    pub(crate) tails: &'a HashMap<StreamId, StoredStream>,
    pub(crate) looked: &'a Looked,
}

impl View<'_> {
    pub(crate) fn stored(&self, stream: &StreamId) -> Result<Option<StoredStream>, StoreError> {
        if let Some(known) = self.tails.get(stream) {
            return Ok(Some(*known));
        }
        if self.looked.absent.contains(stream) {
            return Ok(None);
        }
        let found = self.ledger.stream_rows(std::slice::from_ref(stream))?;
        Ok(found.first().map(|(_, row)| *row))
    }

    fn current(&self, stream: &StreamId) -> Result<Option<StoredStream>, StoreError> {
        match self.looked.pending.get(stream) {
            Some(known) => Ok(Some(*known)),
            None => self.stored(stream),
        }
    }
}

impl StoreView for View<'_> {
    fn tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        Ok(self.current(stream)?.and_then(|known| known.tail))
    }

    fn durable_tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        Ok(self.stored(stream)?.and_then(|known| known.tail))
    }

    fn has_blob(&mut self, hash: &Hash) -> Result<bool, StoreError> {
        let mut blobs = self.looked.group.iter().flat_map(Entry::blobs);
        Ok(self.looked.blobs.contains(hash) || blobs.any(|blob| blob.hash == *hash))
    }

    fn read(
        &mut self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let stored = self.ledger.read(stream, from, limit)?;
        if !stored.is_empty() {
            return Ok(stored);
        }
        let group = self.looked.group.iter();
        let records = group
            .filter(|entry| entry.stream() == stream)
            .flat_map(Entry::records);
        let records = records.filter(|record| record.seq >= from);
        Ok(records.take(limit).cloned().collect())
    }

    fn removed_end(&mut self, stream: &StreamId) -> Result<Option<u64>, StoreError> {
        // A stream without frames was removed: asked only of those, so that an append costs nothing.
        match self.current(stream)? {
            Some(known) if known.tail.is_none() => self.ledger.removed_end(stream),
            Some(_) | None => Ok(None),
        }
    }

    fn bodies_after(&mut self, position: u64) -> Result<Vec<String>, StoreError> {
        let mut bodies = self.ledger.bodies_after(position)?;
        let group = self.looked.group.iter().flat_map(Entry::records);
        bodies.extend(group.map(|record| record.body.clone()));
        Ok(bodies)
    }

    fn owner_of(&mut self, key: &str) -> Result<Option<StreamId>, StoreError> {
        let mut keys = self.looked.keys.iter();
        let owner = keys.find(|(_, own)| *own == key);
        Ok(owner.map(|(stream, _)| stream.clone()))
    }
}

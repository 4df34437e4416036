//! A run that is removed while it is read: its row was there, and its frames are gone with it.

use std::cell::{Cell, RefCell};

use ktsu_history as history;
use ktsu_ledger::store::{Cursor, Filter, IndexRow, MemoryStore, Page, Reader, StoreError, Tail};
use ktsu_ledger::{CanonicalJson, Hash, Record, StreamId};

/// A store without frames, whose only row is there for the first so many looks.
struct Removing {
    store: MemoryStore,
    row: IndexRow,
    looks: Cell<usize>,
    damage: RefCell<Vec<String>>,
}

impl Removing {
    fn after(looks: usize) -> Self {
        Self {
            store: MemoryStore::new(),
            row: IndexRow {
                stream: stream(),
                workflow: "w".to_owned(),
                status: "complete".to_owned(),
                open: false,
                created_us: 0,
                key: None,
                row: CanonicalJson::default(),
            },
            looks: Cell::new(looks),
            damage: RefCell::default(),
        }
    }
}

fn stream() -> StreamId {
    StreamId::run("run_01a21780cd05718abb667879cbf81eb8").unwrap()
}

impl Reader for Removing {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.store.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.store.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.store.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
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

    fn row(&self, _: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        let left = self.looks.get();
        self.looks.set(left.saturating_sub(1));
        Ok((left > 0).then(|| self.row.clone()))
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.store.by_key(key)
    }

    fn found_damage(&self, why: &str) {
        self.damage.borrow_mut().push(why.to_owned());
    }
}

#[test]
fn a_run_that_is_removed_between_two_reads_is_gone_and_not_damaged() {
    let reader = Removing::after(1);
    assert!(history::frames(&reader, &stream()).unwrap().is_empty());
    assert_eq!(reader.damage.take(), [""; 0]);
    let reader = Removing::after(1);
    let read = history::envelope_and_frames(&reader, &stream());
    assert!(read.unwrap().is_none());
    assert_eq!(reader.damage.take(), [""; 0]);
}

#[test]
fn frames_that_are_missing_while_their_row_stays_are_damage() {
    let reader = Removing::after(usize::MAX);
    assert!(history::frames(&reader, &stream()).is_err());
    assert_eq!(reader.damage.take().len(), 1);
    let reader = Removing::after(usize::MAX);
    assert!(history::envelope_and_frames(&reader, &stream()).is_err());
    assert!(!reader.damage.take().is_empty());
}

//! A reader whose lists are right whether or not the index is.
//!
//! Rows are derived: anybody may delete them, and a start makes them again. Whoever only looks may
//! not write, so it makes them in memory. What is asked of a whole index is not made anew.

use std::cell::{Cell, RefCell};

use ktsu_ledger::canonical::Json;
use ktsu_ledger::store::{
    Cursor, Filter, IndexRow, Inspection, MemoryStore, Page, RawBlob, RawFrame, Reader, Store as _,
    StoreError, Tail,
};
use ktsu_ledger::{Hash, Record, StreamId};

use crate::rows;

/// See the module documentation.
#[derive(Debug)]
pub struct Listed<R> {
    reader: R,
    /// Whether the index was looked at.
    looked: Cell<bool>,
    /// What stands for it, where it is not whole.
    made: RefCell<Option<MemoryStore>>,
}

impl<R: Reader> Listed<R> {
    /// A reader around another one.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            looked: Cell::new(false),
            made: RefCell::default(),
        }
    }

    /// Asks the index, or what stands for it.
    fn ask<T>(
        &self,
        question: impl Fn(&dyn Reader) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !self.looked.replace(true) && !rows::are_whole(&self.reader).unwrap_or(false) {
            self.make()?;
        }
        if let Some(made) = &*self.made.borrow() {
            return question(made);
        }
        match question(&self.reader) {
            Err(StoreError::Damaged(_)) => {}
            other => return other,
        }
        question(&self.make()?)
    }

    fn make(&self) -> Result<MemoryStore, StoreError> {
        let mut made = MemoryStore::new();
        let epoch = made.acquire()?;
        let mut after = None;
        loop {
            let (runs, last) = rows::runs(&self.reader, after.as_ref())?;
            for run in &runs {
                let one = rows::make(&self.reader, run)?;
                rows::put(&mut made, epoch, &[one.row])?;
            }
            if last.is_none() {
                *self.made.borrow_mut() = Some(made.clone());
                return Ok(made);
            }
            after = last;
        }
    }
}

impl<R: Reader> Reader for Listed<R> {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.reader.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.reader.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.reader.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<Json>, StoreError> {
        self.reader.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.ask(|reader| reader.list(filter, cursor, limit))
    }

    /// Made of the frames as they are now, where there is none: whoever follows a run asks often.
    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        match self.reader.row(stream) {
            Ok(None) | Err(StoreError::Damaged(_)) => {}
            other => return other,
        }
        if !rows::is_run(stream) || self.reader.tail(stream)?.is_none() {
            return Ok(None);
        }
        rows::make(&self.reader, stream).map(|made| Some(made.row))
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.ask(|reader| reader.by_key(key))
    }

    fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        self.reader.is_indexed(kind)
    }

    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.reader.wrong_rows()
    }

    fn scan_frames(&self, from: i64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        self.reader.scan_frames(from, limit)
    }

    fn scan_blobs(&self, from: i64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        self.reader.scan_blobs(from, limit)
    }

    fn inspect(&self) -> Inspection {
        self.reader.inspect()
    }
}

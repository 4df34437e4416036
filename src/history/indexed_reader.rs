//! A reader whose lists are right even if the index is not.
//!
//! Rows are derived: anybody may delete them, and a start rebuilds them. A process that only reads
//! may not write, so it rebuilds them in memory. If a ledger is known to be damaged, every row is
//! derived from the frames, since a stored row may describe frames that can no longer be read; runs
//! are then searched for in all tables that may name them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    Audit, Cursor, Filter, IndexRow, MAX_PAGE, MemoryStore, Page, Reader, Store as _, StoreError,
    Tail,
};
use ktsu_ledger::{Hash, Record, StreamId};

use ktsu_damage::{self as damage, Damage};
use ktsu_run_index::{self as rows, ListedRun};

/// See the module documentation.
#[derive(Debug)]
pub struct IndexedReader<R> {
    reader: R,
    /// True if the index was looked at.
    index_checked: Cell<bool>,
    /// True if damage is looked for before the first list.
    searches: bool,
    damage: Damage,
    /// The replacement of the index, where it is not whole.
    rebuilt: RefCell<Option<MemoryStore>>,
}

impl<R: Reader> IndexedReader<R> {
    /// A reader around another one.
    pub fn new(reader: R) -> Self {
        Self::with_damage(reader, Damage::default())
    }

    /// A reader of a file that looks for damage before its first list, where that takes no time.
    pub fn searching_damage(reader: R, ledger: &Path) -> Self {
        Self {
            searches: damage::is_searched(ledger),
            ..Self::new(reader)
        }
    }

    /// A reader that follows what becomes known.
    pub fn with_damage(reader: R, damage: Damage) -> Self {
        Self {
            reader,
            index_checked: Cell::new(false),
            searches: false,
            damage,
            rebuilt: RefCell::default(),
        }
    }

    /// Asks the index, or what stands for it.
    fn query_index<T>(
        &self,
        question: impl Fn(&dyn Reader) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(made) = self.rebuilt_if_needed()? {
            return question(&made);
        }
        match question(&self.reader) {
            Err(StoreError::Damaged(_) | StoreError::WrongRow(_)) => {}
            other => return other,
        }
        question(&self.make()?)
    }

    /// The replacement of the index, if one is needed.
    fn rebuilt_if_needed(&self) -> Result<Option<MemoryStore>, StoreError> {
        if let Some(made) = &*self.rebuilt.borrow() {
            return Ok(Some(made.clone()));
        }
        let first = !self.index_checked.replace(true);
        if first
            && self.searches
            && let Some(why) = damage::find_damage(&self.reader)?
        {
            self.damage.report(&why);
        }
        let is_damaged = self.damage.reason().is_some();
        match is_damaged || first && !rows::is_index_complete(&self.reader).unwrap_or(false) {
            true => self.make().map(Some),
            false => Ok(None),
        }
    }

    fn make(&self) -> Result<MemoryStore, StoreError> {
        let mut made = MemoryStore::new();
        let epoch = made.acquire()?;
        for (run, last) in self.runs()? {
            let row = self.row_of(&run, last)?;
            rows::put_rows(&mut made, epoch, &[row])?;
        }
        *self.rebuilt.borrow_mut() = Some(made.clone());
        Ok(made)
    }

    /// The row of a run that has frames up to a number somewhere.
    fn row_of(&self, run: &StreamId, last: Option<u64>) -> Result<IndexRow, StoreError> {
        let listed = ListedRun::read(&self.reader, run).ok().flatten();
        let made = rows::derive_row(&self.reader, run)?.row;
        if self.damage.reason().is_none() {
            return Ok(made);
        }
        let is_ahead = listed.is_some_and(|one| one.is_ahead_of(&self.reader, &made.status));
        let tail = self.reader.tail(run).ok().flatten();
        let is_cut = last.is_some() && tail.map(|tail| tail.seq) < last;
        match is_ahead || is_cut {
            true => Ok(rows::unreadable_row(&self.reader, run)),
            false => Ok(made),
        }
    }

    /// Every run that has a name anywhere; and its last frame, where they were read one by one.
    fn runs(&self) -> Result<LastFrames, StoreError> {
        let mut found = LastFrames::new();
        let named = self.collect_from_streams(&mut found);
        match named {
            Ok(()) if self.damage.reason().is_none() => return Ok(found),
            Ok(()) | Err(StoreError::Damaged(_)) => {}
            Err(other) => return Err(other),
        }
        let before = named.is_ok();
        // What one tree of the file has lost another may still know.
        let rest = [
            self.collect_from_rows(&mut found),
            self.collect_from_frames(&mut found),
        ];
        let readable = before || rest.iter().any(Result::is_ok) || !found.is_empty();
        let failed = rest.into_iter().find_map(Result::err);
        match failed {
            Some(error) if !readable => Err(error),
            Some(_) | None => Ok(found),
        }
    }

    fn collect_from_streams(&self, found: &mut LastFrames) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let (runs, last) = rows::runs_after(&self.reader, after.as_ref())?;
            found.extend(runs.into_iter().map(|run| (run, None)));
            if last.is_none() {
                return Ok(());
            }
            after = last;
        }
    }

    fn collect_from_rows(&self, found: &mut LastFrames) -> Result<(), StoreError> {
        let mut cursor = None;
        loop {
            let page = self
                .reader
                .list(&Filter::default(), cursor.as_ref(), MAX_PAGE)?;
            for row in page.rows {
                found.entry(row.stream).or_default();
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    fn collect_from_frames(&self, found: &mut LastFrames) -> Result<(), StoreError> {
        let mut from = 1;
        loop {
            let reader: &dyn Reader = &self.reader;
            let page = reader.scan_frames(from, MAX_PAGE)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            from = last.position.saturating_add(1);
            for frame in &page {
                let stream = frame.stream.as_deref().and_then(|name| name.parse().ok());
                let (Some(stream), Some(seq)) = (stream, frame.seq) else {
                    continue;
                };
                if rows::is_run(&stream) {
                    let last = found.entry(stream).or_default();
                    *last = (*last).max(Some(seq));
                }
            }
        }
    }
}

/// Runs, and the number of the last frame of each, as far as it is known.
type LastFrames = BTreeMap<StreamId, Option<u64>>;

impl<R: Reader> Reader for IndexedReader<R> {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.reader.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.reader.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.reader.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.reader.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.query_index(|reader| reader.list(filter, cursor, limit))
    }

    /// Made of the frames as they are now, where there is none: whoever follows a run asks often.
    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        if self.damage.reason().is_some()
            && let Some(made) = self.rebuilt_if_needed()?
            && let Some(made) = made.row(stream)?
            && made.status == rows::UNREADABLE
        {
            return Ok(Some(made));
        }
        match self.reader.row(stream) {
            Ok(None) | Err(StoreError::Damaged(_) | StoreError::WrongRow(_)) => {}
            other => return other,
        }
        if !rows::is_run(stream) || self.reader.tail(stream)?.is_none() {
            return Ok(None);
        }
        rows::derive_row(&self.reader, stream).map(|made| Some(made.row))
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.query_index(|reader| reader.by_key(key))
    }

    fn found_damage(&self, why: &str) {
        self.reader.found_damage(why);
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.reader.audit()
    }
}

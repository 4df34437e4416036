//! A run that goes on while it is read. Reads are not one transaction: frames and rows may be
//! appended between any two of them, and whoever reads must not take that for damage.

use std::cell::{Cell, RefCell};

use ktsu_history as history;
use ktsu_history::frame_page::{self, FrameSelection, PageLimit};
use ktsu_ledger::store::{Cursor, Filter, IndexRow, Page, Reader, StoreError, Tail};
use ktsu_ledger::{CanonicalJson, Hash, Record, StreamId};
use ktsu_projections::RunState;

use crate::golden::folder;
use crate::support::ledgers::{Recorded, row};

/// A run that grows while it is read.
struct Growing<'a> {
    run: &'a Recorded,
    /// The row after each frame.
    rows: &'a [IndexRow],
    /// How many frames are there at first.
    first: usize,
    /// At which call frames are appended, and how many.
    appends: [(usize, usize); 2],
    calls: Cell<usize>,
    damage: RefCell<Vec<String>>,
}

impl Growing<'_> {
    /// How many frames this call finds.
    fn visible(&self) -> usize {
        let call = self.calls.get();
        self.calls.set(call + 1);
        let due = self.appends.iter().filter(|(at, _)| *at <= call);
        let appended: usize = due.map(|(_, frames)| frames).sum();
        (self.first + appended).min(self.run.records.len())
    }
}

impl Reader for Growing<'_> {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        if *stream != self.run.stream {
            return Ok(Vec::new());
        }
        let frames = self.run.records[..self.visible()].iter();
        let after = frames.filter(|record| record.seq >= from);
        Ok(after.take(limit).cloned().collect())
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        let last = self.run.records[..self.visible()].last();
        let last = last.filter(|_| *stream == self.run.stream);
        Ok(last.map(|record| Tail {
            seq: record.seq,
            hash: record.hash,
        }))
    }

    fn streams(&self, _: Option<&StreamId>, _: usize) -> Result<Vec<StreamId>, StoreError> {
        Ok(vec![self.run.stream.clone()])
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        let found = self.run.blobs.iter().find(|blob| blob.hash == *hash);
        Ok(found.map(|blob| blob.text.clone()))
    }

    fn list(&self, _: &Filter, _: Option<&Cursor>, _: usize) -> Result<Page, StoreError> {
        Ok(Page::default())
    }

    fn row(&self, _: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        Ok(self.rows[..self.visible()].last().cloned())
    }

    fn by_key(&self, _: &str) -> Result<Option<IndexRow>, StoreError> {
        Ok(None)
    }

    fn found_damage(&self, why: &str) {
        self.damage.borrow_mut().push(why.to_owned());
    }
}

/// Every moment for two appends during a read.
fn schedules() -> impl Iterator<Item = [(usize, usize); 2]> {
    const CALLS: usize = 12;
    let moments = (1..CALLS).flat_map(|one| (one + 1..=CALLS).map(move |other| (one, other)));
    moments.flat_map(|(one, other)| [1, 2].map(|frames| [(one, frames), (other, 2)]))
}

#[test]
fn a_run_that_continues_while_it_is_read_is_never_taken_for_damaged() {
    // It waits for an approval and goes on: its row is twice the same, with another between.
    let run = Recorded::load(&folder().join("v2-tool-rejected"));
    let frames = run.frames();
    let state = |to: usize| RunState::fold(&frames[..to]).unwrap();
    let rows: Vec<IndexRow> = (1..=frames.len()).map(|to| row(&state(to))).collect();
    let returns = |three: &[IndexRow]| three[0] == three[2] && three[0] != three[1];
    assert!(rows.windows(3).any(returns), "{rows:#?}");
    for first in 1..frames.len() {
        for appends in schedules() {
            let growing = || Growing {
                run: &run,
                rows: &rows,
                first,
                appends,
                calls: Cell::default(),
                damage: RefCell::default(),
            };
            let place = format!("{first} frames, then {appends:?}");
            let reader = growing();
            history::envelope(&reader, &run.stream)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(reader.damage.take(), [""; 0], "{place}");
            let reader = growing();
            let (all, bound) = (FrameSelection::default(), PageLimit::frames(1000));
            let page = frame_page::page(&reader, &run.stream, &all, 0, bound)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(page.frames.len() >= first, "{place}");
            assert_eq!(reader.damage.take(), [""; 0], "{place}");
        }
    }
}

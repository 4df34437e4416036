//! The appender: groups, order, refusals, and the end at the first error.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use ktsu_ledger::appender::{AppendError, Appender, Options};
use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::disk_space::DiskSpace;
use ktsu_ledger::store::{
    AppendRefusal, Audit, Backlog, Cursor, Entry, Filter, IndexRow, Maintenance, MemoryStore, Page,
    SqliteStore, Tail, WalCheckpoint, read_all,
};
use ktsu_ledger::{Epoch, Hash, Reader, Record, Store, StoreError, StreamId};
use support::{completed, ended, entry, payload, run};

/// A store that can be held, counts its transactions, and fails when told to.
struct Staged {
    inner: MemoryStore,
    stage: Arc<Stage>,
}

#[derive(Default)]
struct Stage {
    /// While true, an append waits.
    held: Mutex<bool>,
    released: Condvar,
    appends: AtomicU64,
    /// The append that fails, counted from 1.
    fails_at: AtomicU64,
    fails_at_checkpoint: AtomicBool,
    panics: AtomicBool,
    groups: Mutex<Vec<usize>>,
}

impl Stage {
    fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.released.notify_all();
    }
}

impl Store for Staged {
    fn acquire(&mut self) -> Result<Epoch, StoreError> {
        self.inner.acquire()
    }

    fn append(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
    ) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError> {
        let mut held = self.stage.held.lock().unwrap();
        while *held {
            held = self.stage.released.wait(held).unwrap();
        }
        let number = self.stage.appends.fetch_add(1, Ordering::SeqCst) + 1;
        self.stage.groups.lock().unwrap().push(entries.len());
        assert!(!self.stage.panics.load(Ordering::SeqCst), "told to");
        if number == self.stage.fails_at.load(Ordering::SeqCst) {
            return Err(StoreError::Failed {
                doing: "sync",
                why: "input/output error".to_owned(),
            });
        }
        self.inner.append(epoch, entries)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.inner.reader()
    }

    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        Some(self)
    }
}

impl Maintenance for Staged {
    fn clear_index(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        self.inner.clear_index(epoch)
    }

    fn put_rows(&mut self, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError> {
        self.inner.put_rows(epoch, rows)
    }

    fn backlog(&self) -> u64 {
        // Every commit asks for a checkpoint.
        u64::MAX
    }

    fn checkpoint(&mut self, kind: WalCheckpoint) -> Result<Backlog, StoreError> {
        if self.stage.fails_at_checkpoint.load(Ordering::SeqCst) {
            return Err(StoreError::Damaged("told to".to_owned()));
        }
        self.inner.checkpoint(kind)
    }

    fn abandon(&mut self) {}
}

impl Reader for Staged {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.inner.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.inner.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.inner.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.inner.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.inner.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.inner.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.inner.audit()
    }
}

fn staged() -> (Box<dyn Store>, MemoryStore, Arc<Stage>) {
    let inner = MemoryStore::new();
    let stage = Arc::new(Stage::default());
    let store = Staged {
        inner: inner.clone(),
        stage: Arc::clone(&stage),
    };
    (Box::new(store), inner, stage)
}

/// Submits entries and gives their outcomes in the order they are told.
fn submit_all(appender: &Appender, entries: Vec<Entry>) -> mpsc::Receiver<(usize, Outcome)> {
    let (tell, told) = mpsc::channel();
    for (place, entry) in entries.into_iter().enumerate() {
        let tell = tell.clone();
        let done = move |outcome| tell.send((place, outcome)).unwrap();
        appender.submit(entry, Box::new(done));
    }
    told
}

type Outcome = Result<ktsu_ledger::appender::Committed, AppendError>;

/// Ten streams of one frame each.
fn ten() -> Vec<Entry> {
    (0..10)
        .map(|place| entry(&run(&format!("r{place}")), None, vec![ended()]))
        .collect()
}

#[test]
fn what_waits_goes_as_one_transaction_and_is_answered_in_order() {
    let (store, _, stage) = staged();
    stage.hold(true);
    let (appender, thread) = Appender::start(store, Options::default()).unwrap();
    let told = submit_all(&appender, ten());
    // The first may have gone alone; the others waited together.
    stage.hold(false);
    let places: Vec<usize> = told
        .iter()
        .map(|(place, outcome)| {
            outcome.unwrap();
            place
        })
        .collect();
    assert_eq!(places, (0..10).collect::<Vec<_>>());
    assert!(appender.counters().commits <= 2);
    assert_eq!(appender.counters().frames, 10);
    thread.shutdown().unwrap();
}

/// Who hears that an entry is durable may stop everything: what follows must know of it by then.
#[test]
fn what_was_appended_is_handed_on_before_its_caller_is_answered() {
    let (store, _, _) = staged();
    let order = Arc::new(Mutex::new(Vec::new()));
    let handed = Arc::clone(&order);
    let options = Options {
        on_commit: Some(Box::new(move |commit| {
            handed
                .lock()
                .unwrap()
                .push(("handed on", commit.entries.len()));
        })),
        ..Options::default()
    };
    let (appender, thread) = Appender::start(store, options).unwrap();
    let told = Arc::clone(&order);
    let first = ten().remove(0);
    appender.submit(
        first,
        Box::new(move |_| told.lock().unwrap().push(("told", 1))),
    );
    drop(appender);
    thread.shutdown().unwrap();
    assert_eq!(*order.lock().unwrap(), [("handed on", 1), ("told", 1)]);
}

#[test]
fn a_conflict_rejects_its_entry_alone() {
    let (store, inner, stage) = staged();
    stage.hold(true);
    let (appender, thread) = Appender::start(store, Options::default()).unwrap();
    let first = entry(&run("a"), None, vec![ended()]);
    let after = Some((first.tail().seq, first.tail().hash));
    let second = entry(&run("a"), after, vec![ended()]);
    let other = entry(&run("b"), None, vec![ended()]);
    let told = submit_all(&appender, vec![first.clone(), first, other, second]);
    stage.hold(false);
    let outcomes: Vec<Outcome> = told.iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes[0].as_ref().unwrap().last, 0);
    let conflict = AppendRefusal::Conflict {
        stream: run("a"),
        expected: None,
        actual: Some(0),
    };
    assert_eq!(outcomes[1], Err(AppendError::Refused(conflict)));
    assert!(outcomes[2].is_ok());
    assert_eq!(outcomes[3].as_ref().unwrap().last, 1);
    assert_eq!(appender.counters().refused, 1);
    thread.shutdown().unwrap();
    assert_eq!(read_all(&inner, &run("a"), 0).unwrap().len(), 2);
}

#[test]
fn the_first_error_is_final_for_every_k() {
    for k in 1..=10 {
        let (store, inner, stage) = staged();
        stage.fails_at.store(k, Ordering::SeqCst);
        let fatal = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&fatal);
        let options = Options {
            on_fatal: Some(Box::new(move |reason| {
                heard.lock().unwrap().push(reason.to_string())
            })),
            // One entry a transaction.
            transaction_bytes: 1,
            ..Options::default()
        };
        let (appender, thread) = Appender::start(store, options).unwrap();
        let told = submit_all(&appender, ten());
        let outcomes: Vec<(usize, Outcome)> = told.iter().collect();
        for (place, outcome) in &outcomes {
            assert_eq!(outcome.is_ok(), (*place as u64) < k - 1, "{place} of {k}");
        }
        assert_eq!(
            stage.appends.load(Ordering::SeqCst),
            k,
            "nothing after the error"
        );
        let late = appender.append(entry(&run("late"), None, vec![ended()]));
        let reason = appender.failed().unwrap();
        assert_eq!(
            late,
            Err(AppendError::Stopped {
                reason: reason.clone()
            })
        );
        assert_eq!(*fatal.lock().unwrap(), vec![reason]);
        assert!(thread.shutdown().is_err());
        assert_eq!(inner.streams(None, 100).unwrap().len() as u64, k - 1);
    }
}

#[test]
fn a_checkpoint_that_fails_and_a_panic_are_final_too() {
    let (store, _, stage) = staged();
    stage.fails_at_checkpoint.store(true, Ordering::SeqCst);
    let (appender, thread) = Appender::start(store, Options::default()).unwrap();
    // Durable, although the checkpoint behind it fails.
    assert!(appender.append(ten().remove(0)).is_ok());
    while appender.failed().is_none() {
        std::thread::yield_now();
    }
    assert!(thread.shutdown().is_err());

    let (store, _, stage) = staged();
    stage.panics.store(true, Ordering::SeqCst);
    let (appender, thread) = Appender::start(store, Options::default()).unwrap();
    let outcome = appender.append(ten().remove(0));
    assert!(matches!(outcome, Err(AppendError::Stopped { .. })));
    assert!(thread.shutdown().is_err());
}

#[test]
fn shutdown_drains_and_later_entries_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = Box::new(SqliteStore::open(&path).unwrap());
    let (appender, thread) = Appender::start(store, Options::default()).unwrap();
    let told = submit_all(&appender, ten());
    thread.shutdown().unwrap();
    assert_eq!(
        told.iter().filter(|(_, outcome)| outcome.is_ok()).count(),
        10
    );
    let late = appender.append(entry(&run("late"), None, vec![ended()]));
    assert!(matches!(late, Err(AppendError::Stopped { .. })));
    assert!(!folder.path().join("ledger.db-wal").exists());
    assert_eq!(
        SqliteStore::open(&path)
            .unwrap()
            .streams(None, 100)
            .unwrap()
            .len(),
        10
    );
}

#[test]
fn a_full_queue_holds_the_caller_up() {
    let (store, _, stage) = staged();
    stage.hold(true);
    let options = Options {
        queue_bytes: 3_000,
        ..Options::default()
    };
    let (appender, thread) = Appender::start(store, options).unwrap();
    let submitted = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&submitted);
    let handle = appender.clone();
    let caller = std::thread::spawn(move || {
        for place in 0..20 {
            let draft = completed("a", payload(1_000, place));
            let entry = entry(&run(&format!("r{place}")), None, vec![draft]);
            handle.submit(entry, Box::new(|outcome| assert!(outcome.is_ok())));
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(submitted.load(Ordering::SeqCst) < 6);
    stage.hold(false);
    caller.join().unwrap();
    thread.shutdown().unwrap();
    assert_eq!(appender.counters().frames, 20);
}

#[test]
fn an_older_owner_can_append_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let open = || Box::new(SqliteStore::open(&path).unwrap());
    let (older, older_thread) = Appender::start(open(), Options::default()).unwrap();
    older.append(entry(&run("a"), None, vec![ended()])).unwrap();
    let (newer, newer_thread) = Appender::start(open(), Options::default()).unwrap();
    assert!(newer.epoch() > older.epoch());
    let fenced = older.append(entry(&run("b"), None, vec![ended()]));
    assert!(
        matches!(fenced, Err(AppendError::Stopped { .. })),
        "{fenced:?}"
    );
    assert!(older.failed().unwrap().contains("newer owner"));
    newer.append(entry(&run("c"), None, vec![ended()])).unwrap();
    assert!(older_thread.shutdown().is_err());
    newer.append(entry(&run("d"), None, vec![ended()])).unwrap();
    newer_thread.shutdown().unwrap();
    let names = SqliteStore::open(&path)
        .unwrap()
        .streams(None, 100)
        .unwrap();
    assert_eq!(names, vec![run("a"), run("c"), run("d")]);
}

#[test]
fn a_reader_never_holds_the_appender_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = Box::new(SqliteStore::open(&path).unwrap());
    let options = Options {
        checkpoint_bytes: 64 * 1024,
        log_warning_bytes: 256 * 1024,
        ..Options::default()
    };
    let (appender, thread) = Appender::start(store, options).unwrap();
    appender
        .append(entry(&run("first"), None, vec![ended()]))
        .unwrap();
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM frames;")
        .unwrap();
    for place in 0..20 {
        let draft = completed("a", payload(30_000, place));
        appender
            .append(entry(&run(&format!("r{place}")), None, vec![draft]))
            .unwrap();
    }
    let counters = appender.counters();
    assert!(counters.log_is_large, "{counters:?}");
    let count: i64 = reader
        .query_row("SELECT count(*) FROM frames", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1, "the reader sees what it began with");
    reader.execute_batch("COMMIT").unwrap();
    thread.shutdown().unwrap();
}

#[test]
fn a_disk_that_is_nearly_full_is_a_state() {
    let options = Options {
        disk_space: DiskSpace::by(64, || Some(63)),
        ..Options::default()
    };
    let (appender, thread) = Appender::start(Box::new(MemoryStore::new()), options).unwrap();
    assert!(appender.low_on_disk());
    // What is under way goes on.
    appender.append(ten().remove(0)).unwrap();
    thread.shutdown().unwrap();
    let here = DiskSpace::beside(std::path::Path::new("ledger.db"), u64::MAX);
    assert!(here.is_low());
    assert!(!DiskSpace::beside(std::path::Path::new("ledger.db"), 1).is_low());
}

/// An answer that is a second old is too old for a disk that fills up between two commits.
#[test]
fn room_is_looked_at_before_every_commit() {
    let free = Arc::new(AtomicU64::new(1_000));
    let told = Arc::clone(&free);
    let options = Options {
        disk_space: DiskSpace::by(64, move || Some(told.load(Ordering::SeqCst))),
        ..Options::default()
    };
    let (appender, thread) = Appender::start(Box::new(MemoryStore::new()), options).unwrap();
    assert!(!appender.low_on_disk());
    free.store(63, Ordering::SeqCst);
    appender.append(ten().remove(0)).unwrap();
    assert!(appender.low_on_disk());
    free.store(1_000, Ordering::SeqCst);
    appender.append(ten().remove(1)).unwrap();
    assert!(!appender.low_on_disk());
    thread.shutdown().unwrap();
}

/// Told to stop, it appends nothing and leaves the log where it is.
#[test]
fn an_appender_that_is_asked_to_stop_writes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = Box::new(SqliteStore::open(&path).unwrap());
    let (appender, thread) = Appender::start(store, Options::default()).unwrap();
    appender
        .append(entry(&run("a"), None, vec![ended()]))
        .unwrap();
    let files = || {
        let read = |ending: &str| std::fs::read(folder.path().join(ending)).unwrap();
        (read("ledger.db"), read("ledger.db-wal"))
    };
    let before = files();
    appender.stop("told to");
    let late = appender.append(entry(&run("b"), None, vec![ended()]));
    let stopped = AppendError::Stopped {
        reason: "told to".to_owned(),
    };
    assert_eq!(late, Err(stopped.clone()));
    assert_eq!(thread.shutdown(), Err(stopped));
    assert_eq!(files(), before, "neither appended nor moved");
}

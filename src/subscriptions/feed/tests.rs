//! How often the ledger is read for those who follow it.

use std::sync::atomic::AtomicUsize;

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    Audit, Cursor, Filter, IndexRow, Inspection, MemoryStore, Page, RawBlob, RawFrame, Reader,
    Store as _, Tail,
};
use ktsu_ledger::{Actor, Draft, Entry, Epoch, Event, Hash, Link, Record, StreamId, Timestamp};

use super::*;

/// A ledger in memory that counts how often it is scanned.
#[derive(Clone, Default)]
struct Counted {
    store: MemoryStore,
    scans: Arc<AtomicUsize>,
}

impl Reader for Counted {
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

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.store.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.store.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

impl Audit for Counted {
    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        self.scans.fetch_add(1, Ordering::SeqCst);
        self.store.scan_frames(from, limit)
    }

    fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        self.store.scan_blobs(from, limit)
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        self.store.positions(stream, from, limit)
    }

    fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.store.removals(from, limit)
    }

    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        self.store.removal(stream)
    }

    fn inspect(&self) -> Inspection {
        self.store.inspect()
    }
}

/// A ledger with a feed on it, and the end of its one run.
struct Lab {
    counted: Counted,
    feed: EventFeed,
    epoch: Epoch,
    tail: Option<Tail>,
}

impl Lab {
    fn new() -> Self {
        let mut counted = Counted::default();
        let epoch = counted.store.acquire().unwrap();
        let reading = counted.clone();
        let readers = ReaderPool::new(move || Ok(Box::new(reading.clone())));
        let feed = EventFeed::new(readers);
        Self {
            counted,
            feed,
            epoch,
            tail: None,
        }
    }

    /// Appends frames of some bytes, and tells the feed.
    fn append(&mut self, count: usize, bytes: usize) {
        for _ in 0..count {
            let draft = Draft {
                scope: String::new(),
                actor: Actor::Orchestrator,
                cause: Vec::new(),
                event: Event::Foreign {
                    kind: "x.kit.fact".to_owned(),
                    data: CanonicalJson::string(&"x".repeat(bytes)),
                },
            };
            let link = Link {
                stream: StreamId::run("run_a").unwrap(),
                seq: self.tail.map_or(0, |tail| tail.seq + 1),
                prev: self.tail.map_or(Hash::ZERO, |tail| tail.hash),
            };
            let sealed = draft.seal(link, Timestamp::from_micros(1)).unwrap();
            let (entry, _) = Entry::from_sealed(vec![sealed]).unwrap();
            self.tail = Some(entry.tail());
            let appended = self.counted.store.append(self.epoch, &[entry]).unwrap();
            assert!(appended.iter().all(Result::is_ok));
        }
        self.feed.note_commit();
    }

    fn scans(&self) -> usize {
        self.counted.scans.swap(0, Ordering::SeqCst)
    }

    /// All positions from one on.
    async fn read_to_end(&self, from: u64) -> Vec<u64> {
        let (mut from, mut found) = (from, Vec::new());
        loop {
            let page = self.feed.page(from, |_| true).await.unwrap();
            found.extend(page.frames.iter().map(|frame| frame.position));
            from = page.next;
            if page.is_end {
                return found;
            }
        }
    }
}

#[tokio::test]
async fn a_hundred_followers_that_are_up_to_date_cost_one_reading() {
    let mut lab = Lab::new();
    lab.append(10, 10);
    assert_eq!(lab.read_to_end(1).await, (1..=10).collect::<Vec<_>>());
    lab.scans();
    for round in 1..=5 {
        lab.append(2, 10);
        let end = 10 + 2 * round;
        for _ in 0..100 {
            assert_eq!(lab.read_to_end(end - 1).await, [end - 1, end]);
        }
        assert_eq!(lab.scans(), 2, "the new frames, and that there are no more");
    }
}

#[tokio::test]
async fn a_follower_that_is_far_behind_gets_every_frame_and_disturbs_no_one() {
    let mut lab = Lab::new();
    // More than is shared.
    lab.append(400, 20_000);
    let all: Vec<u64> = (1..=400).collect();
    assert_eq!(lab.read_to_end(390).await, all[389..]);
    assert_eq!(lab.read_to_end(1).await, all);
    lab.scans();
    assert_eq!(lab.read_to_end(390).await, all[389..], "still there");
    assert_eq!(lab.scans(), 0);
    let shared = lab.feed.0.newest.lock();
    assert!(shared.bytes <= MAX_SHARED_BYTES && shared.frames.len() < 400);
}

#[tokio::test]
async fn a_position_beyond_the_end_waits_for_its_frames_and_keeps_nothing() {
    let mut lab = Lab::new();
    lab.append(3, 10);
    assert_eq!(lab.read_to_end(50).await, [] as [u64; 0]);
    assert_eq!(lab.read_to_end(1).await, [1, 2, 3]);
    lab.append(60, 10);
    assert_eq!(lab.read_to_end(50).await, (50..=63).collect::<Vec<_>>());
    assert_eq!(lab.read_to_end(1).await, (1..=63).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_page_has_a_bounded_number_of_bytes() {
    let mut lab = Lab::new();
    lab.append(30, 10_000);
    let page = lab.feed.page(1, |_| true).await.unwrap();
    assert!((1..10).contains(&page.frames.len()));
    assert_eq!(page.next, page.frames.last().unwrap().position + 1);
    // A frame that is larger than a page comes alone.
    lab.append(1, 60_000);
    let page = lab.feed.page(31, |_| true).await.unwrap();
    assert_eq!(page.frames.len(), 1);
}

/// What is appended between a look and the wait is not slept through.
#[tokio::test]
async fn a_commit_between_the_last_look_and_the_wait_wakes() {
    let mut lab = Lab::new();
    let mut waiter = lab.feed.subscribe();
    for round in 1..=20 {
        assert!(waiter.is_open());
        assert!(lab.read_to_end(round).await.is_empty());
        lab.append(1, 10);
        timeout(Duration::from_secs(60), waiter.changed())
            .await
            .unwrap();
    }
    lab.feed.close();
    timeout(Duration::from_secs(60), waiter.changed())
        .await
        .unwrap();
    assert!(!waiter.is_open());
}

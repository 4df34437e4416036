//! A ledger on another machine, to test with: it answers late, out of order across streams, and
//! sometimes it is not known what became of what it was sent.
//!
//! Its client is asynchronous. A runtime on a thread of its own drives it; the port's calls send it
//! a request and wait, so they may be made from anywhere, an asynchronous task included (see
//! `docs/adr/0012-a-store-may-be-far-away.md`).
//!
//! ```text
//! Store, Reader ──request──▶ the client's thread ─ ─latency─ ─▶ the machine (a MemoryStore)
//!        ▲─────────────answer────────┘◀─ ─ ─ ─ lost, or late ─ ─ ─ ─┘
//! ```

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::time::Duration;

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    AppendRefusal, Audit, Cursor, Entry, Filter, IndexRow, MemoryStore, Page, Tail,
};
use ktsu_ledger::{Backend, Epoch, Hash, Reader, Record, Store, StoreError, StreamId};
use tokio::runtime::{Builder, Runtime};

/// What becomes of one append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Stored and answered.
    Answered,
    /// Stored; the answer is lost.
    ReplyLost,
    /// Lost on the way there.
    RequestLost,
    /// The entries of some streams are stored, in another order than they were given.
    Partly,
    /// Nothing is known of it, and it is stored later: perhaps before anybody looks, perhaps after.
    Late,
    /// An error, and nothing stored.
    Fails,
}

const UNKNOWN: [Fate; 4] = [Fate::ReplyLost, Fate::RequestLost, Fate::Partly, Fate::Late];

/// The machine, and the way to it. A clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Remote(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kept: MemoryStore,
    /// What the next appends come to; after that chance decides, or nothing happens to them.
    script: Mutex<VecDeque<Fate>>,
    is_lossy: AtomicBool,
    chance: AtomicU64,
    /// Appends that were sent, and the number of the last one that was answered.
    sent: AtomicU64,
    unknown: AtomicU64,
    answered: Mutex<u64>,
    /// While an outcome is unknown, reads of the writer may be lost, too.
    is_unsettled: AtomicBool,
    /// Appends wait while this is held.
    gate: Mutex<()>,
}

/// Drives every client of a test.
static CLIENT: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("client");
    builder.enable_time().build().unwrap()
});

/// Has the client do something, and waits for it.
fn ask<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let (give, taken) = mpsc::sync_channel(1);
    CLIENT.spawn(async move { give.send(work.await) });
    taken.recv().unwrap()
}

impl Remote {
    /// Late, but nothing is lost.
    pub(crate) fn new() -> Self {
        Self::over(MemoryStore::new())
    }

    /// What becomes of an append is left to chance.
    pub(crate) fn lossy(seed: u64) -> Self {
        Self::lossy_over(MemoryStore::new(), seed)
    }

    /// As [`Remote::lossy`], with what is stored already.
    pub(crate) fn lossy_over(kept: MemoryStore, seed: u64) -> Self {
        let remote = Self::over(kept);
        remote.0.is_lossy.store(true, Ordering::SeqCst);
        remote.0.chance.store(seed | 1, Ordering::SeqCst);
        remote
    }

    /// The same machine, whatever is stored on it already.
    pub(crate) fn over(kept: MemoryStore) -> Self {
        Self(Arc::new(Inner {
            kept,
            script: Mutex::default(),
            is_lossy: AtomicBool::new(false),
            chance: AtomicU64::new(0x9e37_79b9_7f4a_7c15),
            sent: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            answered: Mutex::new(0),
            is_unsettled: AtomicBool::new(false),
            gate: Mutex::new(()),
        }))
    }

    /// What becomes of the next appends.
    pub(crate) fn script(&self, fates: &[Fate]) {
        self.0.script.lock().unwrap().extend(fates);
    }

    /// Holds appends up until the guard is dropped.
    pub(crate) fn hold(&self) -> std::sync::MutexGuard<'_, ()> {
        self.0.gate.lock().unwrap()
    }

    /// What is stored, seen without any delay.
    pub(crate) fn kept(&self) -> MemoryStore {
        self.0.kept.clone()
    }

    /// How many appends were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::SeqCst)
    }

    /// How many of them had an outcome that was not known.
    pub(crate) fn unknown(&self) -> u64 {
        self.0.unknown.load(Ordering::SeqCst)
    }

    fn fate(&self) -> Fate {
        let scripted = self.0.script.lock().unwrap().pop_front();
        scripted.unwrap_or_else(|| {
            let dice = self.dice(8);
            let unknown = usize::try_from(dice).ok().and_then(|at| UNKNOWN.get(at));
            match unknown.filter(|_| self.0.is_lossy.load(Ordering::SeqCst)) {
                Some(unknown) => *unknown,
                None => Fate::Answered,
            }
        })
    }

    /// A number below some other.
    fn dice(&self, sides: u64) -> u64 {
        let next = |mut state: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^ (state << 17)
        };
        let update = |state| Some(next(state));
        let order = Ordering::SeqCst;
        let before = self.0.chance.fetch_update(order, order, update).unwrap();
        (next(before) >> 11) % sides
    }

    /// As long as a message takes, which is now and then much longer.
    async fn latency(&self) {
        match self.dice(8) {
            0 => tokio::time::sleep(Duration::from_millis(1)).await,
            yields => {
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Sends the entries of each stream by itself; gives the streams in the order they arrive in.
    async fn upload(&self, entries: Vec<Entry>) -> Vec<Vec<Entry>> {
        let mut streams: Vec<Vec<Entry>> = Vec::new();
        for entry in entries {
            match streams
                .iter_mut()
                .find(|it| it[0].stream() == entry.stream())
            {
                Some(stream) => stream.push(entry),
                None => streams.push(vec![entry]),
            }
        }
        let (arrive, mut arrived) = tokio::sync::mpsc::unbounded_channel();
        for stream in streams {
            let (remote, arrive) = (self.clone(), arrive.clone());
            tokio::spawn(async move {
                remote.latency().await;
                arrive.send(stream)
            });
        }
        drop(arrive);
        let mut order = Vec::new();
        while let Some(stream) = arrived.recv().await {
            order.push(stream);
        }
        order
    }

    /// Stores what arrived, unless a later append was answered: what was sent before it is settled.
    fn store(&self, number: u64, epoch: Epoch, entries: &[Entry]) -> Answer {
        let answered = self.0.answered.lock().unwrap();
        match *answered < number {
            true => self.0.kept.clone().append(epoch, entries),
            false => Err(unknown("it came too late")),
        }
    }

    async fn append(self, epoch: Epoch, entries: Vec<Entry>) -> Answer {
        let number = self.0.sent.fetch_add(1, Ordering::SeqCst) + 1;
        let fate = self.fate();
        let is_unknown = u64::from(UNKNOWN.contains(&fate));
        self.0.unknown.fetch_add(is_unknown, Ordering::SeqCst);
        self.0.is_unsettled.store(true, Ordering::SeqCst);
        match fate {
            Fate::Answered => {
                drop(self.upload(entries.clone()).await);
                let answer = self.store(number, epoch, &entries);
                *self.0.answered.lock().unwrap() = number;
                self.0.is_unsettled.store(false, Ordering::SeqCst);
                self.latency().await;
                answer
            }
            Fate::ReplyLost => {
                drop(self.upload(entries.clone()).await);
                let answer = self.store(number, epoch, &entries);
                drop(answer);
                Err(unknown("the reply was lost"))
            }
            Fate::RequestLost => Err(unknown("the request was lost")),
            Fate::Partly => {
                let streams = self.upload(entries).await;
                let some = streams.len().div_ceil(2);
                for stream in streams.iter().take(some) {
                    drop(self.store(number, epoch, stream));
                }
                Err(unknown("the connection was closed"))
            }
            Fate::Late => {
                tokio::spawn(async move {
                    let streams = self.upload(entries).await;
                    for stream in &streams {
                        self.latency().await;
                        drop(self.store(number, epoch, stream));
                    }
                });
                Err(unknown("there was no reply in time"))
            }
            Fate::Fails => Err(StoreError::Failed {
                doing: "append",
                why: "the machine has no space left".to_owned(),
            }),
        }
    }
}

type Answer = Result<Vec<Result<u64, AppendRefusal>>, StoreError>;

fn unknown(why: &str) -> StoreError {
    StoreError::Unknown(why.to_owned())
}

impl Backend for Remote {
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(LateReader(self.clone())))
    }

    fn store(&self) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(LateStore(LateReader(self.clone()))))
    }
}

/// A view of the ledger.
struct LateReader(Remote);

impl LateReader {
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&MemoryStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let remote = self.0.clone();
        ask(async move {
            remote.latency().await;
            let answer = question(&remote.0.kept);
            remote.latency().await;
            answer
        })
    }
}

impl Reader for LateReader {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let stream = stream.clone();
        self.ask(move |kept| kept.read(&stream, from, limit))
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        let stream = stream.clone();
        self.ask(move |kept| kept.tail(&stream))
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        let after = after.cloned();
        self.ask(move |kept| kept.streams(after.as_ref(), limit))
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        let hash = *hash;
        self.ask(move |kept| kept.blob_get(&hash))
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let (filter, cursor) = (filter.clone(), cursor.cloned());
        self.ask(move |kept| kept.list(&filter, cursor.as_ref(), limit))
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        let stream = stream.clone();
        self.ask(move |kept| kept.row(&stream))
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        let key = key.to_owned();
        self.ask(move |kept| kept.by_key(&key))
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.0.0.kept.audit()
    }
}

/// The owner's end. It has no checkpoints, and its index needs no repair.
struct LateStore(LateReader);

impl LateStore {
    fn remote(&self) -> &Remote {
        &self.0.0
    }
}

impl Store for LateStore {
    fn acquire(&mut self) -> Result<Epoch, StoreError> {
        self.0.ask(|kept| kept.clone().acquire())
    }

    fn append(&mut self, epoch: Epoch, entries: &[Entry]) -> Answer {
        drop(self.remote().hold());
        ask(self.remote().clone().append(epoch, entries.to_vec()))
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Backend::reader(self.remote())
    }
}

impl Reader for LateStore {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let remote = self.remote();
        let may_be_lost = remote.0.is_lossy.load(Ordering::SeqCst)
            && remote.0.is_unsettled.load(Ordering::SeqCst);
        if may_be_lost && remote.dice(16) == 0 {
            return Err(unknown("the reply to a read was lost"));
        }
        self.0.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.0.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.0.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.0.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.0.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.0.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.0.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.0.audit()
    }
}

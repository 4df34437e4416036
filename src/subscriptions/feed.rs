//! The newest frames of all runs, read once for everybody who follows them.
//!
//! A follower has a position and nothing else: what it has not seen is in the ledger, so nobody
//! who is slow makes a queue grow, and the appender waits for nobody. Followers that are up to date
//! share the frames that were read last; one that is behind reads for itself.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ktsu_history::emitted;
use ktsu_history::event_page::{self, AppendedFrame, AppendedPage};
use ktsu_history::held_back::is_held_back;
use ktsu_ledger::StreamId;
use ktsu_ledger::store::StoreError;
use ktsu_readers::ReaderPool;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// The most bytes of frames that followers share.
const MAX_SHARED_BYTES: usize = 4 * 1024 * 1024;
/// Number of frames that are read at a time.
const READ_FRAMES: usize = 256;
/// Of how many streams it is remembered whether their frames are held back.
const MAX_STREAMS: usize = 4096;
/// The most bytes of frames a follower is given at a time, except where one frame has more.
const MAX_PAGE_BYTES: usize = 64 * 1024;
/// The time for which commits are left to gather, so that not every append wakes every follower.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);
/// The time between two reads where another process appends.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Frames of all runs as they become durable. Cheap to clone.
#[derive(Clone)]
pub struct EventFeed(Arc<FeedState>);

struct FeedState {
    readers: ReaderPool,
    /// Number of transactions that were made durable.
    commits: AtomicU64,
    /// Wakes the task that tells the followers.
    committed: Arc<Notify>,
    signal: watch::Sender<FeedSignal>,
    newest: Mutex<NewestFrames>,
    /// Of which streams frames are held back, and of which not: their first frames say so.
    held_back: Mutex<HashMap<StreamId, bool>>,
    /// Held while the newest frames are read, so that they are read once.
    reading: tokio::sync::Mutex<()>,
}

/// The signal that followers get.
#[derive(Debug, Clone, Copy, Default)]
struct FeedSignal {
    /// Changes whenever there may be more.
    round: u64,
    closed: bool,
}

/// The receiver with which a follower waits. See [`EventFeed::subscribe`].
pub struct FeedWaiter(watch::Receiver<FeedSignal>);

/// Some of the wanted frames.
#[derive(Debug, Default)]
pub struct FeedPage {
    /// In the order of appending.
    pub frames: Vec<Arc<AppendedFrame>>,
    /// The position at which to continue.
    pub next: u64,
    /// True if there was nothing to look at from the position on.
    pub is_end: bool,
}

impl EventFeed {
    /// Follows a ledger of this process, which calls [`EventFeed::note_commit`]. Must be called
    /// within a runtime.
    pub fn new(readers: ReaderPool) -> Self {
        Self::start(readers, None)
    }

    /// Follows a ledger that another process appends to, by looking now and then.
    pub fn polling(readers: ReaderPool) -> Self {
        Self::start(readers, Some(POLL_INTERVAL))
    }

    fn start(readers: ReaderPool, poll: Option<Duration>) -> Self {
        let state = Arc::new(FeedState {
            readers,
            commits: AtomicU64::new(0),
            committed: Arc::default(),
            signal: watch::Sender::default(),
            newest: Mutex::default(),
            held_back: Mutex::default(),
            reading: tokio::sync::Mutex::new(()),
        });
        let committed = Arc::clone(&state.committed);
        tokio::spawn(wake_followers(Arc::downgrade(&state), committed, poll));
        Self(state)
    }

    /// A transaction is durable. Called on the appender's thread: a few instructions where nobody
    /// follows, one wake-up where anybody does.
    pub fn note_commit(&self) {
        self.0.commits.fetch_add(1, Ordering::SeqCst);
        if self.0.signal.receiver_count() > 0 {
            self.0.committed.notify_one();
        }
    }

    /// A handle to wait with. To be made before the first page is read: what is appended after that
    /// read is then noticed.
    pub fn subscribe(&self) -> FeedWaiter {
        FeedWaiter(self.0.signal.subscribe())
    }

    /// Ends all waiting: followers read what is durable and leave.
    pub fn close(&self) {
        self.0.signal.send_modify(|signal| signal.closed = true);
        self.0.committed.notify_one();
    }

    /// The position of the last frame.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn last_position(&self) -> Result<u64, StoreError> {
        let last = |reader: &dyn ktsu_ledger::store::Reader| reader.last_position();
        self.0.readers.with(last).await
    }

    /// The wanted frames from a position on: as many as fit a page.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn page(
        &self,
        from: u64,
        wanted: impl Fn(&AppendedFrame) -> bool,
    ) -> Result<FeedPage, StoreError> {
        let from = from.max(1);
        if let Some(page) = self.shared(from, &wanted) {
            return Ok(page);
        }
        if self.0.newest.lock().is_past(from) {
            let read = self.read(from).await?;
            return Ok(page_of(
                read.frames.into_iter().map(Arc::new),
                read.next,
                read.is_end,
                &wanted,
            ));
        }
        let _turn = self.0.reading.lock().await;
        if let Some(page) = self.shared(from, &wanted) {
            return Ok(page);
        }
        let commits = self.0.commits.load(Ordering::SeqCst);
        let read = self.read(from).await?;
        let (next, is_end) = (read.next, read.is_end);
        let frames: Vec<_> = read.frames.into_iter().map(Arc::new).collect();
        let mut newest = self.0.newest.lock();
        newest.take(from, next, is_end.then_some(commits), &frames);
        drop(newest);
        Ok(page_of(frames.into_iter(), next, is_end, &wanted))
    }

    /// Returns `true` if no subscriber gets the frames of a stream.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn is_held_back(&self, stream: &StreamId) -> Result<bool, StoreError> {
        let known = self.0.held_back.lock().get(stream).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let asked = stream.clone();
        let read = self
            .0
            .readers
            .with(move |reader| is_held_back(reader, &asked));
        let found = read.await?;
        let mut held_back = self.0.held_back.lock();
        if held_back.len() >= MAX_STREAMS {
            held_back.clear();
        }
        held_back.insert(stream.clone(), found);
        Ok(found)
    }

    /// The message of a frame about its topic: JSON.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn told(&self, frame: &Arc<AppendedFrame>) -> Result<String, StoreError> {
        let frame = Arc::clone(frame);
        let told = move |reader: &dyn ktsu_ledger::store::Reader| emitted::told(reader, &frame);
        self.0.readers.with(told).await
    }

    async fn read(&self, from: u64) -> Result<AppendedPage, StoreError> {
        let readers = &self.0.readers;
        readers
            .with(move |reader| event_page::page(reader, from, READ_FRAMES))
            .await
    }

    /// The page of shared frames from a position on, if they say anything about it.
    fn shared(&self, from: u64, wanted: &impl Fn(&AppendedFrame) -> bool) -> Option<FeedPage> {
        let newest = self.0.newest.lock();
        if (newest.start..newest.next).contains(&from) {
            let start = newest.frames.partition_point(|frame| frame.position < from);
            let frames = newest.frames.range(start..).cloned();
            return Some(page_of(frames, newest.next, false, wanted));
        }
        let commits = self.0.commits.load(Ordering::SeqCst);
        let is_end = from == newest.next && newest.end_at == Some(commits);
        is_end.then(|| FeedPage {
            frames: Vec::new(),
            next: from,
            is_end,
        })
    }
}

impl FeedWaiter {
    /// Declares what was appended so far as seen; false once the feed is closed.
    pub fn is_open(&mut self) -> bool {
        !self.0.borrow_and_update().closed
    }

    /// Waits until there may be more, or the feed is closed.
    pub async fn changed(&mut self) {
        // Whoever follows holds the feed, so its sender is not gone.
        let _ = self.0.changed().await;
    }
}

/// The frames that were read last, without a gap.
#[derive(Default)]
struct NewestFrames {
    /// The first position they cover.
    start: u64,
    /// The position after the last one they cover.
    next: u64,
    frames: VecDeque<Arc<AppendedFrame>>,
    bytes: usize,
    /// Number of commits there had been when nothing was found at `next`.
    end_at: Option<u64>,
}

impl NewestFrames {
    /// Returns `true` if a position is before the frames that are kept.
    fn is_past(&self, from: u64) -> bool {
        from < self.start
    }

    /// Takes what was read at a position: behind what is kept, or instead of it where there is a
    /// gap. Of a position that nothing was found at beyond the end nothing is kept.
    fn take(&mut self, from: u64, next: u64, end_at: Option<u64>, read: &[Arc<AppendedFrame>]) {
        if from != self.next {
            if end_at.is_some() {
                return;
            }
            *self = Self {
                start: from,
                ..Self::default()
            };
        }
        self.next = next;
        self.end_at = end_at;
        for frame in read {
            self.bytes += frame.bytes();
            self.frames.push_back(Arc::clone(frame));
        }
        while self.bytes > MAX_SHARED_BYTES
            && let Some(oldest) = self.frames.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.start = oldest.position + 1;
        }
    }
}

/// The wanted ones of some frames, as many as fit a page.
fn page_of(
    frames: impl Iterator<Item = Arc<AppendedFrame>>,
    next: u64,
    is_end: bool,
    wanted: &impl Fn(&AppendedFrame) -> bool,
) -> FeedPage {
    let mut page = FeedPage {
        next,
        is_end,
        frames: Vec::new(),
    };
    let mut bytes = 0;
    for frame in frames.filter(|frame| wanted(frame)) {
        bytes += frame.bytes();
        if bytes > MAX_PAGE_BYTES && !page.frames.is_empty() {
            page.next = frame.position;
            return page;
        }
        page.frames.push(frame);
    }
    page
}

/// Wakes the followers after commits, or now and then where another process appends. Ends with the
/// feed.
async fn wake_followers(state: Weak<FeedState>, committed: Arc<Notify>, poll: Option<Duration>) {
    loop {
        match poll {
            None => committed.notified().await,
            Some(interval) => drop(timeout(interval, committed.notified()).await),
        }
        let Some(feed) = state.upgrade() else { return };
        if poll.is_some() {
            feed.commits.fetch_add(1, Ordering::SeqCst);
        }
        feed.signal.send_modify(|signal| signal.round += 1);
        if feed.signal.borrow().closed {
            return;
        }
        drop(feed);
        tokio::time::sleep(BATCH_INTERVAL).await;
    }
}

impl Drop for FeedState {
    fn drop(&mut self) {
        self.committed.notify_one();
    }
}

#[cfg(test)]
mod tests;

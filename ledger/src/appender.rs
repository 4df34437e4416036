//! The one thread that owns the store, and the handle others reach it by.
//!
//! Whoever has an entry puts it into a bounded queue. The thread takes what is waiting, up to a
//! mebibyte, as one transaction, and tells each entry's outcome once that is durable, in the order
//! the entries came. It knows nothing of what it appends.
//!
//! ```text
//! submit ──▶ queue (bytes bounded) ──▶ group ──▶ Store::append ──▶ done, in order
//!                                                   │   │ unknown ──▶ settle: read back ──▶ done
//!                                                   │ error: final
//!                                                   └──▶ every entry, now and later: Stopped
//! ```
//!
//! **Invariant:** the first error of the store is the last thing it is asked. An fsync that failed
//! once may succeed when repeated although the bytes are gone; only a new start, which reads the
//! disk again, can tell what is there. An outcome that is not known ([`StoreError::Unknown`]) is no
//! such error: until it is settled nothing is acknowledged and nothing else is appended.

mod queue;
mod settle;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::disk_space::DiskSpace;
use crate::hash::Hash;
use crate::store::{AppendRefusal, Entry, Epoch, Store, StoreError};
use queue::Queue;

/// Told the outcome of one entry, on the appender's thread: it must be quick. Where the appender
/// has already stopped, it is told on the caller's.
pub type AppendCallback = Box<dyn FnOnce(Result<Committed, AppendError>) + Send>;

/// Given what a transaction made durable, on the appender's thread: it must be quick.
pub type OnCommit = Box<dyn FnMut(Commit) + Send>;

/// What a transaction made durable.
#[derive(Debug)]
pub struct Commit {
    /// Its entries.
    pub entries: Vec<Entry>,
    /// Whether they are in the order of their frames' positions: where the outcome had to be read
    /// back, only the ledger itself knows that order.
    pub is_ordered: bool,
}

/// Told how long each transaction took, on the appender's thread: it must be quick.
pub type OnWritten = Box<dyn FnMut(Duration) + Send>;

/// Called with the reason when the store has failed.
pub type OnFatal = Box<dyn FnOnce(&StoreError) + Send>;

/// An entry that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The number of its first frame.
    pub first: u64,
    /// The number of its last frame.
    pub last: u64,
    /// That frame's hash.
    pub hash: Hash,
}

/// Why an entry is not known to be durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The store refused it; nothing of it is stored.
    #[error(transparent)]
    Refused(#[from] AppendRefusal),
    /// The appender has stopped. What this entry held may be on the disk or not.
    #[error("the ledger takes nothing any more: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
}

/// How an appender works.
pub struct Options {
    /// The most bytes waiting; who has more waits too. Enough for several transactions, little
    /// enough that a stall of the disk does not eat the memory.
    pub queue_bytes: usize,
    /// The most bytes of one transaction; a larger entry goes alone. Beyond this a larger one
    /// gains nothing and only delays the first of its entries.
    pub transaction_bytes: usize,
    /// How much may wait in the log before it is moved to its place.
    pub checkpoint_bytes: u64,
    /// A log that takes this much on the disk is worth a warning: a reader holds it up.
    pub log_warning_bytes: u64,
    /// How long an outcome may stay unknown before that is an error. Less than a lease on the ledger
    /// lasts, where there is one.
    pub unknown_timeout: Duration,
    /// Watches the disk.
    pub disk_space: DiskSpace,
    /// Given what was appended, before its callers are told.
    pub on_commit: Option<OnCommit>,
    /// Told how long it took, before anything else hears of it.
    pub on_written: Option<OnWritten>,
    /// Called once, with the reason, when the store has failed.
    pub on_fatal: Option<OnFatal>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queue_bytes: 16 * 1024 * 1024,
            transaction_bytes: 1024 * 1024,
            checkpoint_bytes: 4 * 1024 * 1024,
            log_warning_bytes: 256 * 1024 * 1024,
            unknown_timeout: Duration::from_secs(4),
            disk_space: DiskSpace::unlimited(),
            on_commit: None,
            on_written: None,
            on_fatal: None,
        }
    }
}

/// Below this many free bytes new runs are refused, unless told otherwise.
pub const MIN_FREE_BYTES: u64 = 64 * 1024 * 1024;

/// A handle; any number of threads may hold one.
#[derive(Clone)]
pub struct Appender {
    shared: Arc<Shared>,
}

/// What the handles and the thread have in common.
struct Shared {
    queue: Queue,
    epoch: Epoch,
    disk_space: DiskSpace,
    counts: AppendCounts,
}

#[derive(Default)]
struct AppendCounts {
    commits: AtomicU64,
    entries: AtomicU64,
    frames: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
    settled: AtomicU64,
    checkpoints: AtomicU64,
    checkpoint_us: AtomicU64,
    longest_checkpoint_us: AtomicU64,
    log_bytes: AtomicU64,
    log_warning_bytes: AtomicU64,
}

/// What an appender has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions made durable.
    pub commits: u64,
    /// Entries in them.
    pub entries: u64,
    /// Frames in them.
    pub frames: u64,
    /// Bytes of bodies and blobs in them, roughly.
    pub bytes: u64,
    /// Entries refused.
    pub refused: u64,
    /// Transactions whose outcome was not known and had to be read back.
    pub settled: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// How long appending stood still for them, in microseconds.
    pub checkpoint_us: u64,
    /// The longest one, in microseconds.
    pub longest_checkpoint_us: u64,
    /// What the log takes on the disk, as of the last checkpoint.
    pub log_bytes: u64,
    /// Whether that is worth a warning: a reader has been holding it up.
    pub log_is_large: bool,
}

/// The thread; whoever holds this ends it.
pub struct AppenderThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Appender {
    /// Takes the store over: acquires its epoch and starts the thread that owns it from then on.
    ///
    /// # Errors
    /// What acquiring fails with.
    pub fn start(
        mut store: Box<dyn Store>,
        options: Options,
    ) -> Result<(Self, AppenderThread), StoreError> {
        let epoch = store.acquire()?;
        let shared = Arc::new(Shared {
            queue: Queue::new(options.queue_bytes),
            epoch,
            disk_space: options.disk_space,
            counts: AppendCounts {
                log_warning_bytes: AtomicU64::new(options.log_warning_bytes),
                ..AppendCounts::default()
            },
        });
        let worker = worker::AppendWorker {
            store,
            shared: Arc::clone(&shared),
            transaction_bytes: options.transaction_bytes,
            checkpoint_bytes: options.checkpoint_bytes,
            unknown_timeout: options.unknown_timeout,
            on_commit: options.on_commit,
            on_written: options.on_written,
            on_fatal: options.on_fatal,
        };
        let thread = std::thread::Builder::new()
            .name("appender".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| StoreError::failed("start the appender", error))?;
        let handle = Self {
            shared: Arc::clone(&shared),
        };
        let thread = Some(thread);
        Ok((handle, AppenderThread { shared, thread }))
    }

    /// Hands an entry over, and returns once it is in the queue; blocks while that is full.
    pub fn submit(&self, entry: Entry, done: AppendCallback) {
        if let Err((done, reason)) = self.shared.queue.push(entry, done) {
            done(Err(AppendError::Stopped { reason }));
        }
    }

    /// Hands an entry over and waits until it is durable.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn append(&self, entry: Entry) -> Result<Committed, AppendError> {
        let (tell, told) = mpsc::sync_channel(1);
        self.submit(
            entry,
            Box::new(move |outcome| {
                // The receiver waits below; it cannot be gone.
                let sent = tell.send(outcome);
                drop(sent);
            }),
        );
        told.recv().unwrap_or_else(|_| {
            Err(AppendError::Stopped {
                reason: self.failed().unwrap_or_default(),
            })
        })
    }

    /// A handle on an appender that takes nothing, and never did.
    pub fn stopped(reason: &str) -> Self {
        let queue = Queue::new(0);
        drop(queue.fail(reason));
        let shared = Shared {
            queue,
            epoch: Epoch(0),
            disk_space: DiskSpace::unlimited(),
            counts: AppendCounts::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Stops for ever: nothing more is written, not even what waits to be moved to its place. What
    /// is being appended right now is still told as it turns out.
    pub fn stop(&self, reason: &str) {
        for done in self.shared.queue.fail(reason) {
            let reason = reason.to_owned();
            worker::quietly(|| done(Err(AppendError::Stopped { reason })));
        }
    }

    /// The epoch this appender writes in.
    pub fn epoch(&self) -> Epoch {
        self.shared.epoch
    }

    /// Why nothing is taken any more, if so.
    pub fn failed(&self) -> Option<String> {
        self.shared.queue.stopped()
    }

    /// Whether the disk is nearly full: what is under way may go on, nothing new should begin.
    pub fn low_on_disk(&self) -> bool {
        self.shared.disk_space.is_low()
    }

    /// How many bytes the disk has left, if that can be told.
    pub fn free_disk(&self) -> Option<u64> {
        self.shared.disk_space.free()
    }

    /// What waits to be appended: entries, and their bytes.
    pub fn queued(&self) -> (usize, usize) {
        self.shared.queue.waiting()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let counts = &self.shared.counts;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            commits: of(&counts.commits),
            entries: of(&counts.entries),
            frames: of(&counts.frames),
            bytes: of(&counts.bytes),
            refused: of(&counts.refused),
            settled: of(&counts.settled),
            checkpoints: of(&counts.checkpoints),
            checkpoint_us: of(&counts.checkpoint_us),
            longest_checkpoint_us: of(&counts.longest_checkpoint_us),
            log_bytes: of(&counts.log_bytes),
            log_is_large: of(&counts.log_bytes) >= of(&counts.log_warning_bytes),
        }
    }
}

impl AppenderThread {
    /// Ends the appender: what is queued is appended, the log is moved to its place, the store is
    /// closed. Entries that come later are told so.
    ///
    /// # Errors
    /// [`AppendError::Stopped`] if the store had failed, or fails now.
    pub fn shutdown(mut self) -> Result<(), AppendError> {
        self.finish();
        match self.shared.queue.failure() {
            Some(reason) => Err(AppendError::Stopped { reason }),
            None => Ok(()),
        }
    }

    fn finish(&mut self) {
        self.shared.queue.close();
        if let Some(thread) = self.thread.take() {
            // The thread catches its own panics and tells them as the reason it stopped.
            let joined = thread.join();
            drop(joined);
        }
    }
}

impl Drop for AppenderThread {
    fn drop(&mut self) {
        self.finish();
    }
}

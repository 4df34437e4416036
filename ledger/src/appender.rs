//! The thread that owns the store, and the handle to it.
//!
//! Callers put entries into a bounded queue. The thread appends what is waiting, up to a mebibyte,
//! as one transaction, and reports the outcome of each entry once it is durable, in order of
//! arrival. It knows nothing of the content.
//!
//! ```text
//! submit ──▶ queue (bytes bounded) ──▶ group ──▶ Store::append ──▶ done, in order
//!                                                   │   │ unknown ──▶ settle: read back ──▶ done
//!                                                   │ error: final
//!                                                   └──▶ every entry, now and later: Stopped
//! ```
//!
//! **Invariant:** nothing is asked of the store after its first error. A failed fsync may succeed
//! when repeated although the data is lost; only a new start, which reads the disk again, can find
//! out. An unknown outcome ([`StoreError::Unknown`]) is not such an error: until it is settled,
//! nothing is acknowledged and nothing else is appended.

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
use crate::store::lease::{BootTime, Tenure};
use crate::store::{AppendRefusal, Entry, Epoch, Store, StoreError};
use queue::Queue;

/// Called with the outcome of one entry on the appender's thread, so it must be quick; on the
/// caller's thread if the appender has already stopped.
pub type AppendCallback = Box<dyn FnOnce(Result<Committed, AppendError>) + Send>;

/// Given what a transaction made durable, on the appender's thread: it must be quick.
pub type OnCommit = Box<dyn FnMut(Commit) + Send>;

/// The entries that a transaction made durable.
#[derive(Debug)]
pub struct Commit {
    /// Its entries.
    pub entries: Vec<Entry>,
    /// True if they are in the order of their frames' positions: where the outcome had to be read
    /// back, only the ledger itself knows that order.
    pub is_ordered: bool,
}

/// Called with the duration of each transaction on the appender's thread, so it must be quick.
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

/// The reason why an entry is not known to be durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The store refused it; nothing of it is stored.
    #[error(transparent)]
    Refused(#[from] AppendRefusal),
    /// The appender has stopped. What this entry held may be on the disk or not.
    #[error("the ledger accepts no more entries: {reason}")]
    Stopped {
        /// The reason.
        reason: String,
    },
}

/// The settings of an appender.
pub struct Options {
    /// The most bytes waiting; who has more waits too. Enough for several transactions, little
    /// enough that a stall of the disk does not eat the memory.
    pub queue_bytes: usize,
    /// The maximum size of a transaction; a larger entry is appended alone. Larger transactions
    /// gain nothing and only delay their first entries.
    pub transaction_bytes: usize,
    /// The most bytes that may wait in the log before they are moved to their place.
    pub checkpoint_bytes: u64,
    /// A log that takes this much on the disk is worth a warning: a reader holds it up.
    pub log_warning_bytes: u64,
    /// The time for which an outcome may stay unknown before that is an error. Less than a lease on
    /// the ledger lasts, where there is one.
    pub unknown_timeout: Duration,
    /// Watches the disk.
    pub disk_space: DiskSpace,
    /// Called with what was appended, before the callers are notified.
    pub on_commit: Option<OnCommit>,
    /// Called with the duration of each transaction, before anything else.
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

/// The default limit of free space below which new runs are refused.
pub const MIN_FREE_BYTES: u64 = 64 * 1024 * 1024;

/// A handle; any number of threads may hold one.
#[derive(Clone)]
pub struct Appender {
    shared: Arc<Shared>,
}

/// The state that the handles and the thread share.
struct Shared {
    queue: Queue,
    epoch: Epoch,
    disk_space: DiskSpace,
    /// How long the ownership lasts, where it has to be renewed.
    tenure: Option<Arc<Tenure>>,
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

/// Counts of what an appender has done so far.
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
    /// The time spent on checkpoints, in microseconds.
    pub checkpoint_us: u64,
    /// The longest one, in microseconds.
    pub longest_checkpoint_us: u64,
    /// The space that the log takes on the disk, in bytes, as of the last checkpoint.
    pub log_bytes: u64,
    /// True if that is worth a warning: a reader has been holding it up.
    pub log_is_large: bool,
}

/// The appender's thread; its holder shuts it down.
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
        let sent = BootTime::now();
        let epoch = store.acquire()?;
        let tenure = store.lease().map(|lease| {
            let tenure = Arc::new(Tenure::default());
            tenure.renew(sent);
            lease.set_tenure(Arc::clone(&tenure));
            tenure
        });
        let shared = Arc::new(Shared {
            queue: Queue::new(options.queue_bytes),
            epoch,
            disk_space: options.disk_space,
            tenure,
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
            tenure: None,
            counts: AppendCounts::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Stops permanently: nothing more is written, not even a checkpoint. The outcome of an append
    /// in progress is still reported.
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

    /// Returns `true` while no other process can have become the owner of the ledger: asked before
    /// anything leaves that the ledger cannot refuse.
    pub fn is_owner(&self) -> bool {
        let tenure = self.shared.tenure.as_ref();
        tenure.is_none_or(|tenure| tenure.is_held_at(BootTime::now()))
    }

    /// The reason why no more entries are accepted, if none are.
    pub fn failed(&self) -> Option<String> {
        self.shared.queue.stopped()
    }

    /// Returns `true` if the disk is nearly full: active runs may continue, new ones should not
    /// start.
    pub fn low_on_disk(&self) -> bool {
        self.shared.disk_space.is_low()
    }

    /// The free disk space in bytes, if known.
    pub fn free_disk(&self) -> Option<u64> {
        self.shared.disk_space.free()
    }

    /// The number of entries that wait to be appended, and of their bytes.
    pub fn queued(&self) -> (usize, usize) {
        self.shared.queue.waiting()
    }

    /// Counters since the start.
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
    /// Shuts the appender down: queued entries are appended, the log is checkpointed, the store is
    /// closed. Later entries are refused.
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
            // The thread catches its own panics and reports them as the reason it stopped.
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

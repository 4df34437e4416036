//! Disk space reserved for a start on a full disk.
//!
//! An owner cannot even open a ledger without some space: the log, its index and the first frame of
//! the new owner need it. So an owner keeps a file of [`RESERVE_BYTES`] next to the ledger while
//! there is space. A start on a full disk removes it, uses the freed space, reserves again what it
//! did not need, and writes nothing further until there is space. A start that gives up does the
//! same, so that the next one finds a reserve, even if a smaller one.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::files::Paths;
use crate::disk_space::free_bytes;

/// The space that is set aside, in bytes: for a log that waits to be moved to its place (4 MiB),
/// and a start.
pub const RESERVE_BYTES: u64 = 8 * 1024 * 1024;

/// The space left free for small needs when reserving on a full disk.
const SMALL_BYTES: u64 = 256 * 1024;

/// Returns `true` if the disk that holds a ledger has too little left for a start without a reserve
/// to be certain.
pub fn is_disk_full(ledger: &Path) -> bool {
    free_bytes(&Paths::of(ledger).db).is_some_and(|free| free < RESERVE_BYTES)
}

/// The reserve of one ledger.
#[derive(Debug, Clone)]
pub struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// The reserve of a ledger, whether it exists or not.
    pub fn beside(ledger: &Path) -> Self {
        Self {
            path: Paths::of(ledger).reserve,
        }
    }

    /// Releases the reserve if the disk has less free space than that, and returns whether it has.
    /// Unknown free space counts as sufficient.
    pub fn release_if_full(&self) -> bool {
        let full = free_bytes(&self.path).is_some_and(|free| free < RESERVE_BYTES);
        if full {
            // If there is none, it was used before.
            let removed = fs::remove_file(&self.path);
            drop(removed);
        }
        full
    }

    /// Sets the space aside, unless it is, or that would leave less than `left` bytes. Failing is
    /// no error: then the next start has no reserve.
    pub fn keep(&self, left: u64) {
        let whole = |found: fs::Metadata| found.len() == RESERVE_BYTES;
        let needed = left.saturating_add(RESERVE_BYTES);
        let fits = free_bytes(&self.path).is_some_and(|free| free >= needed);
        if fs::metadata(&self.path).is_ok_and(whole) || !fits {
            return;
        }
        self.make_or_leave(RESERVE_BYTES);
    }

    /// Reserves again what is left of a released reserve, unless there is one. Failure is not an
    /// error.
    pub fn put_back(&self) {
        let free = free_bytes(&self.path).unwrap_or(0);
        let bytes = RESERVE_BYTES.min(free.saturating_sub(SMALL_BYTES));
        if bytes > 0 && !self.path.exists() {
            self.make_or_leave(bytes);
        }
    }

    fn make_or_leave(&self, bytes: u64) {
        if self.make(bytes).is_err() {
            let removed = fs::remove_file(&self.path);
            drop(removed);
        }
    }

    fn make(&self, bytes: u64) -> std::io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&self.path)?;
        if fallocate(&file, FallocateFlags::empty(), 0, bytes).is_ok() {
            return Ok(());
        }
        // A file system that cannot set space aside without writing it.
        let zeros = std::io::repeat(0).take(bytes);
        std::io::copy(&mut { zeros }, &mut file).map(drop)
    }
}

//! Space set aside for the day the disk is full.
//!
//! A ledger cannot even be opened by an owner without some space: the log, its index and the first
//! frame of the new owner need it. So an owner keeps a file of [`RESERVE_BYTES`] beside the ledger
//! while there is room. A start that finds the disk full removes it, comes up on what that gives
//! back, and writes nothing further until there is room again.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::room::free_bytes;
use crate::store::Paths;

/// How much is set aside: a log that waits to be moved to its place (4 MiB), and a start.
pub const RESERVE_BYTES: u64 = 8 * 1024 * 1024;

/// The reserve of one ledger.
#[derive(Debug, Clone)]
pub struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// Beside a ledger, whether or not it is there.
    pub fn beside(ledger: &Path) -> Self {
        Self {
            path: Paths::of(ledger).reserve,
        }
    }

    /// Whether the disk has less left than the reserve would take; then the reserve is given back.
    /// A disk that does not tell counts as not full.
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
        if self.make().is_err() {
            let removed = fs::remove_file(&self.path);
            drop(removed);
        }
    }

    fn make(&self) -> std::io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&self.path)?;
        if fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_ok() {
            return Ok(());
        }
        // A file system that cannot set space aside without writing it.
        let zeros = [0; 64 * 1024];
        let mut left = RESERVE_BYTES;
        while left > 0 {
            file.write_all(&zeros)?;
            left = left.saturating_sub(zeros.len() as u64);
        }
        Ok(())
    }
}

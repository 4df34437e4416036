//! Checks whether the files of a ledger in use are still where they were opened.
//!
//! A file that is moved, removed or replaced stays open and accepts every commit, but can no longer
//! be found by its name, or not with its log: acknowledged data would be lost.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::files::Paths;
use crate::store::StoreError;

/// Identifies a file independently of its name: device and inode.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The files of a ledger, as they were when it was opened.
#[derive(Debug)]
pub(super) struct OpenedFiles {
    database: Option<Identity>,
    /// Known once there is one; it stays as long as the ledger is open.
    log: Option<Identity>,
}

impl OpenedFiles {
    pub(super) fn of(paths: &Paths) -> Self {
        Self {
            database: identity(&paths.db),
            log: identity(&paths.wal),
        }
    }

    /// Called before every commit, which takes a thousand times as long.
    pub(super) fn check(&mut self, paths: &Paths) -> Result<(), StoreError> {
        let log = identity(&paths.wal);
        self.log = self.log.or(log);
        for (opened, now, path) in [
            (self.database, identity(&paths.db), &paths.db),
            (self.log, log, &paths.wal),
        ] {
            if opened != now {
                return Err(StoreError::Damaged(format!(
                    "{} was moved, removed or replaced while it was in use: put the ledger and its \
                     log (-wal) back where they were, then start again",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}

//! Whether the files of a ledger in use are where they were opened.
//!
//! A file that is moved, removed or replaced stays open, and takes every commit. Nobody finds it by
//! its name afterwards, or not with its log: what was acknowledged would be lost.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::files::Paths;
use crate::store::StoreError;

/// A file, whatever it is called: its device and its number there.
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

    /// Asked before every commit, which waits for the disk a thousand times as long.
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

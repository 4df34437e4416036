//! Copies of a ledger, and restoring one.
//!
//! A backup is one file without a log, in `journal_mode = DELETE`, which any SQLite tool opens. It
//! is taken from a ledger in use without stopping its owner, and contains one consistent state of
//! it.

use std::path::{Path, PathBuf};

use super::copy::copy_database;
use super::files::{Paths, fresh_file};
use super::lock::{self, LockError};
use super::verification::verify_file;
use crate::store::StoreError;
use crate::verify::{ProgressOnly, VerifyOptions, VerifyProgress, VerifyReport};

/// The reason why a backup was not taken, or not brought back. Nothing is left at the target then.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is something at the target already.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// The target ledger is owned by a process.
    #[error("{} is owned by process {pid}", path.display())]
    Owned {
        /// The ledger.
        path: PathBuf,
        /// Its owner.
        pid: u32,
    },
    /// The copy does not verify.
    #[error("problems found: {}; the first: {}", .0.problems.len(), first(.0))]
    Unsound(Box<VerifyReport>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn first(report: &VerifyReport) -> String {
    let problem = report.problems.first();
    problem.map_or_else(String::new, |problem| {
        let stream = problem.stream.as_deref().unwrap_or("the file");
        match problem.seq {
            Some(seq) => format!("{stream}#{seq}: {}", problem.message),
            None => format!("{stream}: {}", problem.message),
        }
    })
}

/// Copies a ledger, which may be in use, into a new file. Optionally verifies every frame of the
/// copy.
///
/// # Errors
/// [`BackupError`].
pub fn backup(
    ledger: &Path,
    to: &Path,
    verified: bool,
) -> Result<Option<VerifyReport>, BackupError> {
    copy(ledger, to)?;
    if !verified {
        return Ok(None);
    }
    match verified_file(to) {
        Ok(report) if report.is_sound() => Ok(Some(report)),
        Ok(report) => {
            discard(to);
            Err(BackupError::Unsound(Box::new(report)))
        }
        Err(error) => {
            discard(to);
            Err(error.into())
        }
    }
}

/// Verifies a backup.
///
/// # Errors
/// [`BackupError`]; [`BackupError::Unsound`] if it has problems.
pub fn check(backup: &Path) -> Result<VerifyReport, BackupError> {
    let report = verified_file(backup)?;
    match report.is_sound() {
        true => Ok(report),
        false => Err(BackupError::Unsound(Box::new(report))),
    }
}

/// Makes a ledger out of a backup, which is verified first. The next owner continues it in a
/// higher epoch.
///
/// # Errors
/// [`BackupError`]; a target that exists or is owned is never touched.
pub fn restore(backup: &Path, ledger: &Path) -> Result<VerifyReport, BackupError> {
    let report = check(backup)?;
    // Locked while the file is created, so that no process takes an incomplete ledger.
    let owned = lock::try_own_name(ledger).map_err(|error| match error {
        LockError::Held(holder) => BackupError::Owned {
            path: ledger.to_owned(),
            pid: holder.map_or(0, |holder| holder.pid),
        },
        LockError::Io { source, .. } => StoreError::failed("lock the ledger", source).into(),
        other @ (LockError::HeldElsewhere(_)
        | LockError::SecondName { .. }
        | LockError::Emptied { .. }
        | LockError::LogMissing { .. }
        | LockError::NotMade(_)) => StoreError::failed("lock the ledger", other).into(),
    })?;
    copy(backup, ledger)?;
    drop(owned);
    Ok(report)
}

fn verified_file(path: &Path) -> Result<VerifyReport, StoreError> {
    let mut unheard = |_: VerifyProgress| {};
    verify_file(
        path,
        &VerifyOptions::default(),
        &mut ProgressOnly(&mut unheard),
    )
}

fn copy(from: &Path, to: &Path) -> Result<(), BackupError> {
    Paths::of(from).must_be_file()?;
    let target = Paths::of(to);
    // A log without its ledger would be replayed into the copy.
    for path in [&target.db, &target.wal] {
        // An owner may leave an empty log behind.
        let is_log = |found: &std::fs::Metadata| *path == target.wal && found.len() == 0;
        match path.symlink_metadata() {
            Ok(found) if is_log(&found) => discard(path),
            Ok(_) => return Err(BackupError::Exists(path.clone())),
            Err(_) => {}
        }
    }
    drop(fresh_file(&target.db)?);
    copy_database(from, &target.db).map_err(|error| {
        discard(&target.db);
        error.into()
    })
}

/// Takes away what this call made.
fn discard(path: &Path) {
    let removed = std::fs::remove_file(path);
    drop(removed);
}

//! Copying a ledger that may be in use, page by page.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::files::{Paths, failed};
use super::reader::SqliteReader;
use crate::store::StoreError;

/// Copies the ledger at one path into the empty file at another, as one file without a log.
///
/// The copy is made in one step, under one read transaction, so it is one state of the ledger. This
/// is the only reader that may take longer than a second; the owner keeps appending, and its log
/// grows meanwhile.
pub(crate) fn copy_database(from: &Path, to: &Path) -> Result<(), StoreError> {
    let source = SqliteReader::open(from)?;
    let paths = Paths::of(to);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = Connection::open_with_flags(&paths.db, flags).map_err(failed)?;
    {
        let view = source.view();
        let backup = Backup::new(&view, &mut target).map_err(failed)?;
        if backup.step(-1).map_err(failed)? != StepResult::Done {
            return Err(StoreError::failed("copy the ledger", "it is busy"));
        }
    }
    target
        .execute_batch("PRAGMA synchronous = EXTRA; PRAGMA locking_mode = NORMAL;")
        .map_err(failed)?;
    let mode: String = target
        .query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))
        .map_err(failed)?;
    if mode != "delete" {
        return Err(StoreError::failed(
            "finish the copy",
            format!("it is in {mode} mode"),
        ));
    }
    target.close().map_err(|(_, error)| failed(error))?;
    std::fs::File::open(&paths.db)
        .and_then(|file| file.sync_all())
        .map_err(|error| StoreError::failed("make the copy durable", error))
}

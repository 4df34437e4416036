//! The ledger as one SQLite file: the default.
//!
//! The owner's connection writes; others open the file read-only. WAL with `synchronous = FULL`
//! makes a commit durable before it returns. Checkpoints are triggered by the appender, so that no
//! reader can delay a commit.
//!
//! ```text
//! files          paths, opening, permissions      schema        the tables
//! queries        reading, on any connection       write         one transaction
//! reader         reading without owning           check         the container
//! file_identity  whether the files were moved     copy          page by page
//! lock           who owns the file                hard_links    further names of the file
//! reserve        space for a start on a full disk backup        copies, and restoring one
//! verification   a file in any state              removal       deleting streams
//! mirror         a copy of a ledger on a server
//! ```

pub mod backup;
mod check;
mod copy;
mod file_identity;
mod files;
pub mod hard_links;
pub mod lock;
mod mirror;
mod queries;
mod reader;
mod removal;
pub mod reserve;
mod schema;
pub(crate) mod verification;
mod write;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, MAIN_DB};

pub use mirror::{OpenMirrorError, SqliteMirror};
pub use reader::SqliteReader;
pub use schema::FORMAT;
pub use write::MirrorChange;

pub use files::{SIDE_FILES, stored_bytes};

use file_identity::OpenedFiles;
use files::{Paths, failed};
use queries::Queries;
use write::Tails;

use super::{
    AppendRefusal, Audit, Backlog, Cursor, Entry, Epoch, Filter, IndexRow, Inspection, Maintenance,
    Page, RawBlob, RawFrame, Reader, StandIn, Store, StoreError, Tail, WalCheckpoint,
};
use crate::canonical::CanonicalJson;
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::StreamId;

/// The size of one page in the log: its bytes and a header.
const LOGGED_PAGE: u64 = 4096 + 24;

/// The owner's end of a ledger file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    paths: Paths,
    tails: Tails,
    log: Arc<WalPages>,
    opened: OpenedFiles,
}

/// The write-ahead log, in pages.
#[derive(Debug, Default)]
struct WalPages {
    /// The size of the log, as SQLite reports it after each commit.
    written: AtomicU64,
    /// The part of it that was already moved to its place.
    moved: AtomicU64,
}

impl WalPages {
    fn commit(&self, pages: i32) {
        let pages = u64::try_from(pages).unwrap_or_default();
        if pages < self.written.swap(pages, Ordering::Relaxed) {
            // All was moved, so the log began again from its start.
            self.moved.store(0, Ordering::Relaxed);
        }
    }

    fn backlog_bytes(&self) -> u64 {
        let moved = self.moved.load(Ordering::Relaxed);
        let pages = self.written.load(Ordering::Relaxed).saturating_sub(moved);
        pages.saturating_mul(LOGGED_PAGE)
    }
}

impl SqliteStore {
    /// Opens a ledger for its owner, creating it if there is none. The log of a dead owner is
    /// replayed. The caller must hold the [`lock::OwnerLock`].
    ///
    /// # Errors
    /// [`StoreError::NotALedger`], [`StoreError::NewerFormat`], and errors from damage or the
    /// system.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_as(path, files::Durability::Synced)
    }

    /// As [`SqliteStore::open`], but a commit returns before it is durable. Only for the test that
    /// shows that a missing sync would be noticed; no command and no setting uses it.
    ///
    /// # Errors
    /// See [`SqliteStore::open`].
    #[doc(hidden)]
    pub fn open_without_syncs(path: &Path) -> Result<Self, StoreError> {
        Self::open_as(path, files::Durability::Lost)
    }

    fn open_as(path: &Path, durability: files::Durability) -> Result<Self, StoreError> {
        let paths = Paths::of(path);
        let mut connection = files::open_owner(&paths, durability)?;
        // The folder may have been made just now, so the path resolves better than before.
        let paths = Paths::of(path);
        let log = Arc::new(WalPages::default());
        let told = Arc::clone(&log);
        connection
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
                told.commit(pages);
                Ok(())
            }))
            .map_err(failed)?;
        Ok(Self {
            connection,
            opened: OpenedFiles::of(&paths),
            paths,
            tails: Tails::default(),
            log,
        })
    }

    /// After a failure, closing must not move the log to its place either: that would be one more
    /// thing to rest on a sync that may have lied. The next owner replays the log.
    fn unless_failed<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if done.is_err() {
            self.keep_log();
        }
        done
    }

    fn keep_log(&self) {
        let config = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        let set = self.connection.set_db_config(config, true);
        drop(set);
    }
}

impl Store for SqliteStore {
    fn acquire(&mut self) -> Result<Epoch, StoreError> {
        self.tails.forget();
        write::acquire(&self.connection)
    }

    fn append(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
    ) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError> {
        let placed = self.opened.check(&self.paths);
        let append = |()| write::append(&self.connection, &mut self.tails, epoch, entries);
        let appended = placed.and_then(append);
        self.unless_failed(appended)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        SqliteReader::live(&self.paths).map(|reader| Box::new(reader) as Box<dyn Reader>)
    }

    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        Some(self)
    }
}

impl Maintenance for SqliteStore {
    fn clear_index(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        write::clear_index(&self.connection, epoch)
    }

    fn put_rows(&mut self, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError> {
        write::put_rows(&self.connection, epoch, rows)
    }

    fn takes_stand_ins(&self) -> bool {
        true
    }

    fn put_stand_ins(&mut self, epoch: Epoch, of: &[StandIn]) -> Result<(), StoreError> {
        self.tails.forget();
        write::put_stand_ins(&self.connection, epoch, of)
    }

    fn backlog(&self) -> u64 {
        self.log.backlog_bytes()
    }

    fn checkpoint(&mut self, kind: WalCheckpoint) -> Result<Backlog, StoreError> {
        let mode = match kind {
            WalCheckpoint::Incremental => CheckpointMode::PASSIVE,
            WalCheckpoint::Full => CheckpointMode::TRUNCATE,
        };
        match self.connection.wal_checkpoint_v2(Some(MAIN_DB), mode) {
            Ok((written, moved)) => {
                let pages = |number: i32| u64::try_from(number).unwrap_or_default();
                self.log.written.store(pages(written), Ordering::Relaxed);
                self.log.moved.store(pages(moved), Ordering::Relaxed);
            }
            // A reader or a backup is active: the next checkpoint has less to do.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            Err(error) => return self.unless_failed(Err(failed(error))),
        }
        Ok(Backlog {
            left: self.backlog(),
            log: self.paths.stamp().log,
        })
    }

    fn abandon(&mut self) {
        self.keep_log();
    }
}

/// A source of connections for queries.
trait Source {
    /// Runs a query, possibly twice.
    fn ask<T>(
        &self,
        question: impl Fn(&Queries<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError>;
}

impl Source for SqliteStore {
    fn ask<T>(
        &self,
        question: impl Fn(&Queries<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        question(&Queries(&self.connection))
    }
}

impl<S: Source + Send> Reader for S {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.ask(|ledger| ledger.read(stream, from, limit))
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.ask(|ledger| ledger.tail(stream))
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.ask(|ledger| ledger.streams(after, limit))
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.ask(|ledger| ledger.blob_get(hash))
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.ask(|ledger| ledger.list(filter, cursor, limit))
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.ask(|ledger| ledger.row(stream))
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.ask(|ledger| ledger.by_key(key))
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

impl<S: Source + Send> Audit for S {
    fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        self.ask(|ledger| ledger.is_indexed(kind))
    }

    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.ask(|ledger| ledger.wrong_rows())
    }

    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        self.ask(|ledger| ledger.scan_frames(from, limit))
    }

    fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        self.ask(|ledger| ledger.scan_blobs(from, limit))
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        self.ask(|ledger| ledger.positions(stream, from, limit))
    }

    fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.ask(|ledger| ledger.removals(from, limit))
    }

    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        self.ask(|ledger| ledger.removal(stream))
    }

    fn inspect(&self) -> Inspection {
        self.ask(|ledger| Ok(check::inspect(ledger.0)))
            .unwrap_or_else(|error: StoreError| Inspection {
                problems: vec![error.to_string()],
                failed: error.is_failed().then_some(error),
                ..Inspection::default()
            })
    }
}

//! A local copy of a ledger that is kept elsewhere: a cache, to be read from and to check appends against.
//!
//! Each change is one transaction that also notes how far the original was copied. An owner of the
//! original appends within such a transaction: what is checked is what is stored, and the transaction
//! is committed once the original has it. A loss of power may bring an earlier state back, which is
//! continued from.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::{Connection, params};

use super::files::{Durability, failed};
use super::lock::{LockError, OwnerLock, try_own};
use super::queries::{Queries, StreamRow};
use super::write::{self, MirrorChange};
use super::{SqliteReader, SqliteStore};
use crate::hash::Hash;
use crate::id::StreamId;
use crate::store::columns::int;
use crate::store::{Entry, IndexRow, Maintenance as _, Reader, StoreError, Tail, WalCheckpoint};

/// The most bytes that wait in the log of a copy.
const MAX_BACKLOG: u64 = 4 * 1024 * 1024;
/// The table that notes what was copied.
const NOTE: &str = "CREATE TABLE IF NOT EXISTS mirror (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  note TEXT NOT NULL
) STRICT";

/// A local copy.
#[derive(Debug)]
pub struct SqliteMirror {
    store: SqliteStore,
    /// Given back last: closing it drops the locks that SQLite has on the same file.
    _lock: OwnerLock,
}

/// The reason why a local copy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenMirrorError {
    /// Another process uses it.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// It cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SqliteMirror {
    /// Opens the copy at a path, which is made if there is none.
    ///
    /// # Errors
    /// [`OpenMirrorError`].
    pub fn open(path: &Path) -> Result<Self, OpenMirrorError> {
        let lock = try_own(path)?;
        let store = SqliteStore::open_as(path, Durability::Cached)?;
        store.connection.execute_batch(NOTE).map_err(failed)?;
        Ok(Self { store, _lock: lock })
    }

    /// What was noted last; `None` of a new copy.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note(&self) -> Result<Option<String>, StoreError> {
        let ledger = Queries(&self.store.connection);
        let mut statement = ledger.cached("SELECT note FROM mirror")?;
        let mut rows = statement.query([]).map_err(failed)?;
        let row = rows.next().map_err(failed)?;
        row.map(|row| row.get(0).map_err(failed)).transpose()
    }

    /// Another view of the copy, for another thread.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn reader(&self) -> Result<SqliteReader, StoreError> {
        SqliteReader::live(&self.store.paths)
    }

    /// The copy as its owner sees it.
    pub fn view(&self) -> &dyn Reader {
        &self.store
    }

    /// Appends entries as a store does, whatever their epoch. `commit` is given what changes, and the
    /// note to make; where it fails, nothing changes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn append(
        &mut self,
        entries: &[Entry],
        commit: &mut dyn FnMut(&MirrorChange) -> Result<Option<String>, StoreError>,
    ) -> Result<MirrorChange, StoreError> {
        let mut pending = HashMap::new();
        let SqliteStore {
            connection, tails, ..
        } = &mut self.store;
        let done = write::transaction(connection, None, || {
            let change = write::append_to(connection, tails, &mut pending, entries)?;
            if let Some(note) = commit(&change)? {
                put_note(connection, &note)?;
            }
            Ok(change)
        });
        tails.learn(done.is_ok(), pending);
        self.tidy()?;
        done
    }

    /// Moves what was committed to its place, now and then: nothing else does.
    fn tidy(&mut self) -> Result<(), StoreError> {
        match self.store.backlog() > MAX_BACKLOG {
            true => self.store.checkpoint(WalCheckpoint::Incremental).map(drop),
            false => Ok(()),
        }
    }

    /// Takes the place of frames of a stream that no longer exist, and that a later removal deletes. The
    /// last one keeps its hash.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn skip(
        &mut self,
        stream: &StreamId,
        frames: (u64, u64),
        hash: Hash,
    ) -> Result<(), StoreError> {
        let (first, count) = frames;
        let mut pending = HashMap::new();
        let SqliteStore {
            connection, tails, ..
        } = &mut self.store;
        let done = write::transaction(connection, None, || {
            let known = Queries(connection).stream_row(stream)?.map(|row| row.id);
            let id = known.map_or_else(|| write::new_stream(connection, stream), Ok)?;
            let text = "INSERT INTO frames (stream, seq, hash, body) VALUES (?1, ?2, ?3, '')";
            let mut statement = connection.prepare_cached(text).map_err(failed)?;
            for seq in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
                let parameters = params![id, int(seq), &hash.as_bytes()[..]];
                statement.execute(parameters).map_err(failed)?;
            }
            let seq = first.saturating_add(count).saturating_sub(1);
            let tail = Some(Tail { seq, hash });
            pending.insert(stream.clone(), StreamRow { id, tail });
            Ok(())
        });
        tails.learn(done.is_ok(), pending);
        done
    }

    /// Changes index rows: deletes all of them if `clear`, and puts others. `commit` gives the note.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn change_rows(
        &mut self,
        clear: bool,
        rows: &[IndexRow],
        commit: &mut dyn FnMut() -> Result<String, StoreError>,
    ) -> Result<(), StoreError> {
        let connection = &self.store.connection;
        write::transaction(connection, None, || {
            if clear {
                write::clear_index_of(connection)?;
            }
            write::put_rows_to(connection, rows)?;
            put_note(connection, &commit()?)
        })
    }

    /// Notes how far the original was copied, and the epoch that it is in.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn put_note(&mut self, note: &str, epoch: u64) -> Result<(), StoreError> {
        let connection = &self.store.connection;
        write::transaction(connection, None, || {
            let text = "UPDATE meta SET epoch = ?1 WHERE id = 1 AND epoch < ?1";
            let raised = connection.execute(text, [int(epoch)]);
            raised.map_err(failed)?;
            put_note(connection, note)
        })
    }
}

fn put_note(connection: &Connection, note: &str) -> Result<(), StoreError> {
    let text =
        "INSERT INTO mirror (id, note) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET note = ?1";
    let mut statement = connection.prepare_cached(text).map_err(failed)?;
    statement.execute([note]).map(|_| ()).map_err(failed)
}

//! Writing: one transaction, fenced by the epoch.
//!
//! The tails of active streams are cached, so that checking an entry needs no look-up; the unique
//! index on (stream, seq) guards against errors. The cache is dropped after any failure.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rusqlite::{CachedStatement, Connection, ErrorCode, params};

use super::files::failed;
use super::queries::{Queries, StreamRow};
use super::removal;
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::StreamId;
use crate::store::columns::int;
use crate::store::precondition::{StoreView, check, unnamed_blobs};
use crate::store::{AppendRefusal, Entry, Epoch, IndexRow, StandIn, StoreError, Tail};

/// The most streams that are remembered: some 8 MB.
const MAX_CACHED_TAILS: usize = 65_536;
/// The time to wait for the write lock. Only a stale owner that finds itself fenced, or a foreign
/// tool, can hold it. Nothing was written yet, so waiting risks nothing; giving up is final.
/// Readers do not need this lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// The state of streams that the writer remembers; all of it durable.
#[derive(Debug, Default)]
pub(super) struct Tails(HashMap<StreamId, StreamRow>);

impl Tails {
    /// Drops the cache: the disk may differ.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Remembers what a transaction changed, if it was committed.
    pub(super) fn learn(&mut self, is_committed: bool, pending: HashMap<StreamId, StreamRow>) {
        match is_committed {
            true => {
                for (stream, known) in pending {
                    self.put(stream, known);
                }
            }
            false => self.forget(),
        }
    }

    fn get(
        &mut self,
        ledger: &Queries<'_>,
        stream: &StreamId,
    ) -> Result<Option<StreamRow>, StoreError> {
        if let Some(known) = self.0.get(stream) {
            return Ok(Some(*known));
        }
        let found = ledger.stream_row(stream)?;
        if let Some(known) = found {
            self.put(stream.clone(), known);
        }
        Ok(found)
    }

    fn put(&mut self, stream: StreamId, known: StreamRow) {
        if self.0.len() >= MAX_CACHED_TAILS {
            self.0.clear();
        }
        self.0.insert(stream, known);
    }
}

/// Raises the epoch.
pub(super) fn acquire(connection: &Connection) -> Result<Epoch, StoreError> {
    transaction(connection, None, || {
        let epoch: i64 = connection
            .query_row(
                "UPDATE meta SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch",
                [],
                |row| row.get(0),
            )
            .map_err(failed)?;
        let epoch = u64::try_from(epoch);
        epoch
            .map(Epoch)
            .map_err(|_| StoreError::Damaged("a negative epoch".to_owned()))
    })
}

/// Appends entries: see [`crate::store::Store::append`].
pub(super) fn append(
    connection: &Connection,
    tails: &mut Tails,
    epoch: Epoch,
    entries: &[Entry],
) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError> {
    let mut pending = HashMap::new();
    let appended = transaction(connection, Some(epoch), || {
        append_to(connection, tails, &mut pending, entries).map(|change| change.results)
    });
    tails.learn(appended.is_ok(), pending);
    appended
}

/// What an append changes.
#[derive(Debug, Default)]
pub struct MirrorChange {
    /// The last number of each entry, or why it was refused.
    pub results: Vec<Result<u64, AppendRefusal>>,
    /// The blobs that the ledger did not have.
    pub new_blobs: HashSet<Hash>,
    /// The blobs that were deleted with each stream that was removed.
    pub deleted: HashMap<StreamId, Vec<Hash>>,
}

/// Appends entries within a transaction.
pub(super) fn append_to(
    connection: &Connection,
    tails: &mut Tails,
    pending: &mut HashMap<StreamId, StreamRow>,
    entries: &[Entry],
) -> Result<MirrorChange, StoreError> {
    let mut change = MirrorChange::default();
    let mut insert = Insert::prepare(connection)?;
    for entry in entries {
        let mut view = TransactionView {
            ledger: Queries(connection),
            tails,
            pending,
        };
        if let Some(refused) = check(entry, &mut view)? {
            change.results.push(Err(refused));
            continue;
        }
        let known = view.cached_tail(entry.stream())?.map(|known| known.id);
        let id = insert.entry(known, entry, &mut change.new_blobs)?;
        let tail = entry.tail();
        let known = StreamRow {
            id,
            tail: Some(tail),
        };
        pending.insert(entry.stream().clone(), known);
        for (at, removed, removal) in entry.removals() {
            let mut view = TransactionView {
                ledger: Queries(connection),
                tails,
                pending,
            };
            let blobs = unnamed_blobs(removal, &mut view)?;
            let id = removal::delete(connection, removed, &blobs, at)?;
            let gone = StreamRow { id, tail: None };
            pending.insert(removed.stream.clone(), gone);
            change.deleted.insert(removed.stream.clone(), blobs);
        }
        change.results.push(Ok(tail.seq));
    }
    Ok(change)
}

/// Deletes every index row.
pub(super) fn clear_index(connection: &Connection, epoch: Epoch) -> Result<(), StoreError> {
    transaction(connection, Some(epoch), || clear_index_of(connection))
}

/// Deletes every index row within a transaction.
pub(super) fn clear_index_of(connection: &Connection) -> Result<(), StoreError> {
    let cleared = connection.execute("DELETE FROM index_rows", []);
    cleared.map(|_| ()).map_err(failed)
}

/// Puts index rows.
pub(super) fn put_rows(
    connection: &Connection,
    epoch: Epoch,
    rows: &[IndexRow],
) -> Result<(), StoreError> {
    transaction(connection, Some(epoch), || put_rows_to(connection, rows))
}

/// Puts index rows within a transaction.
pub(super) fn put_rows_to(connection: &Connection, rows: &[IndexRow]) -> Result<(), StoreError> {
    for row in rows {
        let owner = row
            .key
            .as_deref()
            .map(|key| Queries(connection).owner_of(key));
        let owner = owner.transpose()?.flatten();
        if owner.is_some_and(|owner| owner != row.stream) {
            return Err(StoreError::KeyTwice(row.stream.clone()));
        }
        put_row(connection, row)?;
    }
    Ok(())
}

/// Puts stand-ins.
pub(super) fn put_stand_ins(
    connection: &Connection,
    epoch: Epoch,
    of: &[StandIn],
) -> Result<(), StoreError> {
    transaction(connection, Some(epoch), || {
        let insert = Insert::prepare(connection)?;
        let [.., one] = &*INSERT_ROWS;
        for StandIn { stream, record } in of {
            let known = Queries(connection).stream_row(stream)?;
            let id = match known {
                Some(known) => known.id,
                None => new_stream(connection, stream)?,
            };
            let record = std::slice::from_ref(record);
            insert.frames(one, id, record).map_err(failed)?;
        }
        Ok(())
    })
}

/// Runs some work between BEGIN and COMMIT, in an epoch.
pub(super) fn transaction<T>(
    connection: &Connection,
    epoch: Option<Epoch>,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    begin(connection)?;
    let done = fence(connection, epoch)
        .and_then(|()| work())
        .and_then(|done| run(connection, "COMMIT").map(|()| done));
    if done.is_err() && !connection.is_autocommit() {
        // Whether this succeeds changes nothing: the caller stops, and the disk is read again.
        let rolled_back = run(connection, "ROLLBACK");
        drop(rolled_back);
    }
    done
}

fn run(connection: &Connection, text: &str) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(text).map_err(failed)?;
    statement.execute([]).map(|_| ()).map_err(failed)
}

fn begin(connection: &Connection) -> Result<(), StoreError> {
    let mut statement = connection
        .prepare_cached("BEGIN IMMEDIATE")
        .map_err(failed)?;
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match statement.execute([]) {
            Ok(_) => return Ok(()),
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && started.elapsed() < LOCK_TIMEOUT =>
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LOCK_PAUSE);
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

fn fence(connection: &Connection, epoch: Option<Epoch>) -> Result<(), StoreError> {
    let Some(Epoch(ours)) = epoch else {
        return Ok(());
    };
    let mut statement = connection
        .prepare_cached("SELECT epoch FROM meta WHERE id = 1")
        .map_err(failed)?;
    let stored: i64 = statement.query_row([], |row| row.get(0)).map_err(failed)?;
    let stored = u64::try_from(stored).unwrap_or_default();
    if stored == ours {
        Ok(())
    } else {
        Err(StoreError::Fenced { ours, stored })
    }
}

/// The numbers of frames that a statement may insert; the largest that fits what is left is used. A
/// statement costs more than a row, because the triggers make SQLite copy each page that it is
/// about to change.
const ROWS: [usize; 3] = [16, 4, 1];

/// A statement of so many rows. The stream is bound first, then the number, the hash and the body of
/// each row.
fn insert_rows(rows: usize) -> String {
    let row = |row: usize| format!("(?1, ?{}, ?{}, ?{})", 3 * row + 2, 3 * row + 3, 3 * row + 4);
    let rows: Vec<String> = (0..rows).map(row).collect();
    let rows = rows.join(", ");
    format!("INSERT INTO frames (stream, seq, hash, body) VALUES {rows}")
}

static INSERT_ROWS: LazyLock<[String; ROWS.len()]> = LazyLock::new(|| ROWS.map(insert_rows));

/// The statements of an append.
struct Insert<'a> {
    connection: &'a Connection,
    blob: CachedStatement<'a>,
}

impl<'a> Insert<'a> {
    fn prepare(connection: &'a Connection) -> Result<Self, StoreError> {
        let prepare = |text| connection.prepare_cached(text).map_err(failed);
        Ok(Self {
            connection,
            blob: prepare(
                "INSERT INTO blobs (hash, body) SELECT ?1, ?2 \
                 WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE hash = ?1)",
            )?,
        })
    }

    /// Inserts an entry that was checked; gives the number of its stream.
    fn entry(
        &mut self,
        stream: Option<i64>,
        entry: &Entry,
        new_blobs: &mut HashSet<Hash>,
    ) -> Result<i64, StoreError> {
        for blob in entry.blobs() {
            let parameters = params![&blob.hash.as_bytes()[..], blob.text.as_str()];
            if self.blob.execute(parameters).map_err(failed)? > 0 {
                new_blobs.insert(blob.hash);
            }
        }
        let stream = match stream {
            Some(stream) => stream,
            None => new_stream(self.connection, entry.stream())?,
        };
        let mut records = entry.records();
        for (rows, text) in ROWS.iter().zip(INSERT_ROWS.iter()) {
            while let Some((some, rest)) = records.split_at_checked(*rows) {
                self.frames(text, stream, some).map_err(failed)?;
                records = rest;
            }
        }
        if let Some(row) = entry.index() {
            put_row(self.connection, row)?;
        }
        Ok(stream)
    }

    fn frames(&self, text: &str, stream: i64, records: &[Record]) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(text)?;
        statement.raw_bind_parameter(1, stream)?;
        let firsts = (2..).step_by(3);
        for (first, record) in firsts.zip(records) {
            statement.raw_bind_parameter(first, int(record.seq))?;
            statement.raw_bind_parameter(first + 1, &record.hash.as_bytes()[..])?;
            statement.raw_bind_parameter(first + 2, &record.body)?;
        }
        statement.raw_execute().map(|_| ())
    }
}

pub(super) fn new_stream(connection: &Connection, stream: &StreamId) -> Result<i64, StoreError> {
    let mut statement = connection
        .prepare_cached("INSERT INTO streams (name) VALUES (?1)")
        .map_err(failed)?;
    statement.insert([stream.as_str()]).map_err(failed)
}

fn put_row(connection: &Connection, row: &IndexRow) -> Result<(), StoreError> {
    if let Some(key) = &row.key {
        // The key is free, otherwise the row would not be put; a damaged row owns nothing.
        let mut statement = connection
            .prepare_cached("DELETE FROM index_rows WHERE key = ?1 AND stream <> ?2")
            .map_err(failed)?;
        statement
            .execute(params![key, row.stream.as_str()])
            .map_err(failed)?;
    }
    let mut statement = connection
        .prepare_cached(
            "INSERT INTO index_rows (stream, workflow, status, open, created_us, key, row, digest) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (stream) DO UPDATE SET \
             workflow = ?2, status = ?3, open = ?4, created_us = ?5, key = ?6, row = ?7, digest = ?8",
        )
        .map_err(failed)?;
    statement
        .execute(params![
            row.stream.as_str(),
            row.workflow,
            row.status,
            row.open,
            int(row.created_us),
            row.key,
            row.row.as_str(),
            &row.digest().as_bytes()[..],
        ])
        .map(|_| ())
        .map_err(failed)
}

/// The state of the store within a transaction.
struct TransactionView<'a> {
    ledger: Queries<'a>,
    tails: &'a mut Tails,
    pending: &'a HashMap<StreamId, StreamRow>,
}

impl TransactionView<'_> {
    fn cached_tail(&mut self, stream: &StreamId) -> Result<Option<StreamRow>, StoreError> {
        match self.pending.get(stream) {
            Some(known) => Ok(Some(*known)),
            None => self.tails.get(&self.ledger, stream),
        }
    }
}

impl StoreView for TransactionView<'_> {
    fn tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        Ok(self.cached_tail(stream)?.and_then(|known| known.tail))
    }

    fn durable_tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        // Within the transaction SQLite would also return what this call appended.
        if self.pending.contains_key(stream) && !self.tails.0.contains_key(stream) {
            return Ok(None);
        }
        let known = self.tails.get(&self.ledger, stream)?;
        Ok(known.and_then(|known| known.tail))
    }

    fn has_blob(&mut self, hash: &Hash) -> Result<bool, StoreError> {
        self.ledger.has_blob(hash)
    }

    fn read(
        &mut self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.ledger.read(stream, from, limit)
    }

    fn removed_end(&mut self, stream: &StreamId) -> Result<Option<u64>, StoreError> {
        // A stream without frames was removed: asked only of those, so that an append costs nothing.
        match self.cached_tail(stream)? {
            Some(known) if known.tail.is_none() => self.ledger.removed_end(stream),
            Some(_) | None => Ok(None),
        }
    }

    fn bodies_after(&mut self, position: u64) -> Result<Vec<String>, StoreError> {
        self.ledger.bodies_after(position)
    }

    fn owner_of(&mut self, key: &str) -> Result<Option<StreamId>, StoreError> {
        self.ledger.owner_of(key)
    }
}

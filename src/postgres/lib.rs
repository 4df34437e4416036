//! A ledger on PostgreSQL, 14 or newer: the port of stores (`ktsu_ledger::store`) on its client.
//!
//! ```text
//! PostgresPlace ─make──▶ the tables of a new ledger          schema
//!               ─reader▶ Reader, Audit: a connection each    queries
//!               ─store─▶ Store: one statement for a group    write
//! ```
//!
//! Frames have the bytes that they have in a file, so hashes, tree and evidence are the same.

mod connection;
mod queries;
mod schema;
mod values;
mod write;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    AppendRefusal, Audit, Backlog, Cursor, Filter, Inspection, Maintenance, Page, RawBlob,
    RawFrame, Tail, WalCheckpoint,
};
use ktsu_ledger::{
    Backend, Entry, Epoch, Hash, IndexRow, Reader, Record, Store, StoreError, StreamId,
};
use tokio_postgres::Config;

use queries::PostgresQueries;
use values::{column, unsigned};
use write::Writer;

pub use schema::FORMAT;

/// The oldest server that has what is needed.
const MIN_VERSION: i32 = 140_000;
/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The triggers that keep frames as they are.
const TRIGGERS: [&str; 13] = [
    "blobs_are_not_truncated",
    "blobs_never_change",
    "blobs_stay",
    "frames_are_not_truncated",
    "frames_never_change",
    "frames_stay",
    "ledger_is_not_truncated",
    "ledger_only_rises",
    "ledger_stays",
    "removals_are_not_truncated",
    "removals_never_change",
    "streams_are_not_truncated",
    "streams_never_change",
];

/// The place of a ledger: a database, and a role of it.
#[derive(Clone)]
pub struct PostgresPlace {
    config: Config,
}

/// The text is not the address of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address such as postgres://ROLE@HOST/DATABASE")]
pub struct ParsePlaceError;

impl fmt::Debug for PostgresPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing else: an address may have a password.
        f.debug_tuple("PostgresPlace")
            .field(&self.config.get_dbname().unwrap_or_default())
            .finish()
    }
}

impl FromStr for PostgresPlace {
    type Err = ParsePlaceError;

    fn from_str(text: &str) -> Result<Self, ParsePlaceError> {
        let mut config: Config = text.parse().map_err(|_| ParsePlaceError)?;
        config
            .application_name("ktsu")
            .connect_timeout(CONNECT_TIMEOUT);
        Ok(Self { config })
    }
}

impl PostgresPlace {
    /// Makes the tables of a ledger where there are none.
    ///
    /// # Errors
    /// [`StoreError`]; also where the server is too old or does not keep texts as UTF-8.
    pub fn make(&self) -> Result<(), StoreError> {
        let doing = "make the tables of a ledger";
        let ledger = PostgresQueries::new(&self.config);
        check_server(&ledger)?;
        let found = ledger.ask("SELECT to_regclass('ledger') IS NOT NULL", &Vec::new)?;
        if found.first().map_or(Ok(false), |row| column(row, 0))? {
            return check_format(&ledger);
        }
        let connection = ledger.connection().map_err(|error| error.reading(doing))?;
        let made = connection.run(format!("BEGIN; {} COMMIT", schema::CREATE));
        made.map_err(|error| error.writing(doing))
    }
}

/// Refuses a server that cannot keep a ledger.
fn check_server(ledger: &PostgresQueries) -> Result<(), StoreError> {
    let question = "SELECT current_setting('server_version_num')::integer,
         current_setting('server_encoding'), current_setting('synchronous_commit'),
         current_setting('fsync')::boolean";
    let rows = ledger.ask(question, &Vec::new)?;
    let row = rows
        .first()
        .ok_or_else(|| values::damaged("no answer to a question"))?;
    let refused = |why: String| Err(StoreError::failed("use the server", why));
    let version: i32 = column(row, 0)?;
    if version < MIN_VERSION {
        return refused(format!(
            "it is PostgreSQL {}, and 14 or newer is needed",
            version / 10_000
        ));
    }
    let (encoding, synchronous): (&str, &str) = (column(row, 1)?, column(row, 2)?);
    if encoding != "UTF8" {
        return refused(format!("its encoding is {encoding}, and UTF8 is needed"));
    }
    if !column::<bool>(row, 3)? {
        return refused("its fsync is off, so what it acknowledged could be lost".to_owned());
    }
    if !["on", "remote_apply"].contains(&synchronous) {
        return refused(format!(
            "its synchronous_commit is {synchronous}, so what it acknowledged could be lost; \
             set it to on"
        ));
    }
    Ok(())
}

/// Refuses tables that this version does not know.
fn check_format(ledger: &PostgresQueries) -> Result<(), StoreError> {
    let rows = ledger.ask("SELECT format FROM ledger WHERE id = 1", &Vec::new)?;
    let row = rows
        .first()
        .ok_or_else(|| values::damaged("it has no owner's row"))?;
    let found: i32 = column(row, 0)?;
    match found == FORMAT {
        true => Ok(()),
        false => Err(StoreError::NewerFormat {
            found: u64::try_from(found).unwrap_or_default(),
            known: u64::try_from(FORMAT).unwrap_or_default(),
        }),
    }
}

impl Backend for PostgresPlace {
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        let ledger = PostgresQueries::new(&self.config);
        check_format(&ledger)?;
        Ok(Box::new(PostgresReader(ledger)))
    }

    fn store(&self) -> Result<Box<dyn Store>, StoreError> {
        let ledger = PostgresQueries::new(&self.config);
        check_server(&ledger)?;
        check_format(&ledger)?;
        Ok(Box::new(PostgresStore {
            place: self.clone(),
            view: PostgresReader(PostgresQueries::new(&self.config)),
            writer: Writer::new(ledger),
        }))
    }
}

/// A view of a ledger.
#[derive(Debug)]
struct PostgresReader(PostgresQueries);

/// The end of a ledger that writes.
#[derive(Debug)]
struct PostgresStore {
    place: PostgresPlace,
    view: PostgresReader,
    writer: Writer,
}

impl Reader for PostgresReader {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.0.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.0.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.0.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.0.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.0.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.0.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.0.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

impl Audit for PostgresReader {
    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        self.0.scan_frames(from, limit)
    }

    fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        self.0.scan_blobs(from, limit)
    }

    fn inspect(&self) -> Inspection {
        let mut inspection = Inspection::default();
        if let Err(error) = self.look(&mut inspection) {
            inspection.problems.push(error.to_string());
            inspection.failed = Some(error);
        }
        inspection
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        self.0.positions(stream, from, limit)
    }

    fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.0.removals(from, limit)
    }

    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        self.0.removal(stream)
    }

    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.0.wrong_rows()
    }

    fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        self.0.is_indexed(kind)
    }
}

impl PostgresReader {
    /// Looks for what the container has wrong.
    fn look(&self, inspection: &mut Inspection) -> Result<(), StoreError> {
        // One statement: an append and a removal change several of these at once.
        let question = "SELECT epoch, head, (SELECT count(*) FROM frames),
               (SELECT coalesce(max(pos), 0) FROM frames),
               (SELECT coalesce(sum(frames), 0)::bigint FROM removals) FROM ledger";
        let rows = self.0.ask(question, &Vec::new)?;
        match rows.as_slice() {
            [row] => {
                inspection.epoch = Some(unsigned(row, 0)?);
                let (head, count, last) = (unsigned(row, 1)?, unsigned(row, 2)?, unsigned(row, 3)?);
                if last > head {
                    let words = format!("it has a frame at {last}, behind its head {head}");
                    inspection.problems.push(words);
                }
                let (gone, removed) = (head.saturating_sub(count), unsigned(row, 4)?);
                if gone != removed {
                    let words = format!("{gone} frames are gone, and {removed} were removed");
                    inspection.problems.push(words);
                }
            }
            others => {
                let words = format!("it has {} owner's rows", others.len());
                inspection.problems.push(words);
            }
        }
        let question = "SELECT name, removed FROM (SELECT name,
               EXISTS (SELECT 1 FROM frames WHERE stream = streams.id) AS has_frames,
               EXISTS (SELECT 1 FROM removals WHERE stream = streams.id) AS removed
             FROM streams) AS all_streams WHERE has_frames = removed ORDER BY name";
        for row in &self.0.ask(question, &Vec::new)? {
            let (name, removed): (&str, bool) = (column(row, 0)?, column(row, 1)?);
            let what = if removed {
                "was removed and has"
            } else {
                "has no"
            };
            inspection
                .problems
                .push(format!("the stream {name:?} {what} frames"));
        }
        let question = "SELECT tgname::text FROM pg_trigger
             WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')
               AND tgrelid IN (to_regclass('ledger'), to_regclass('streams'), to_regclass('frames'),
                               to_regclass('blobs'), to_regclass('removals'))";
        let rows = self.0.ask(question, &Vec::new)?;
        let found: Vec<&str> = rows
            .iter()
            .map(|row| column(row, 0))
            .collect::<Result<_, _>>()?;
        let missing = TRIGGERS.iter().filter(|name| !found.contains(name));
        let words = missing.map(|name| format!("the trigger {name} is missing or disabled"));
        inspection.problems.extend(words);
        let question =
            "SELECT name, frames FROM removals JOIN streams ON streams.id = removals.stream
             ORDER BY name";
        for row in &self.0.ask(question, &Vec::new)? {
            let name: String = column(row, 0)?;
            inspection.removed.push((name, unsigned(row, 1)?));
        }
        Ok(())
    }
}

impl Reader for PostgresStore {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.view.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.view.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.view.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.view.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.view.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.view.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.view.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(&self.view)
    }
}

impl Store for PostgresStore {
    fn acquire(&mut self) -> Result<Epoch, StoreError> {
        self.writer.acquire()
    }

    fn append(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
    ) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError> {
        self.writer.append(epoch, entries)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.place.reader()
    }

    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        Some(self)
    }
}

impl Maintenance for PostgresStore {
    fn backlog(&self) -> u64 {
        0
    }

    fn checkpoint(&mut self, _kind: WalCheckpoint) -> Result<Backlog, StoreError> {
        Ok(Backlog::default())
    }

    fn abandon(&mut self) {}

    fn clear_index(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        self.writer.clear_index(epoch)
    }

    fn put_rows(&mut self, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError> {
        self.writer.put_rows(epoch, rows)
    }
}

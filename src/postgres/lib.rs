//! A ledger on PostgreSQL, 14 or newer: the port of stores (`ktsu_ledger::store`) on its client.
//!
//! ```text
//! PostgresPlace ─make──▶ the tables of a new ledger          schema
//!               ─reader▶ Reader, Audit: a connection each    queries
//!               ─store─▶ Store: one statement for a group    write
//! ```
//!
//! Frames have the bytes that they have in a file, so hashes, tree and evidence are the same.

mod audit;
mod connection;
mod hosts;
mod looked;
mod owner_row;
mod parameters;
mod queries;
mod query_error;
mod schema;
mod server;
mod statements;
mod status;
mod tls;
mod values;
mod write;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    AppendRefusal, Audit, Backlog, Cursor, Filter, Lease, LedgerStatus, Maintenance, OwnerSight,
    OwnerState, OwnerWatch, Page, StandIn, Tail, WalCheckpoint,
};
use ktsu_ledger::{
    Backend, Entry, Epoch, Hash, IndexRow, LedgerOwner, OwnError, Reader, Record, Store,
    StoreError, StreamId,
};

use owner_row::owner_row;
use queries::PostgresQueries;
use server::{PostgresServer, ServerDurability};
use values::column;
use write::Writer;

pub use schema::FORMAT;
pub use server::ParsePlaceError;

/// The oldest server that has what is needed.
const MIN_VERSION: i32 = 140_000;

/// The place of a ledger: a database, and a role of it.
#[derive(Clone)]
pub struct PostgresPlace {
    server: PostgresServer,
    /// On a server that writes: one that follows could show an owner that has long been replaced.
    primary: Arc<PostgresQueries>,
    watch: Arc<OwnerWatch>,
}

impl fmt::Debug for PostgresPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresPlace")
            .field(&self.to_string())
            .finish()
    }
}

impl fmt::Display for PostgresPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
}

impl FromStr for PostgresPlace {
    type Err = ParsePlaceError;

    fn from_str(text: &str) -> Result<Self, ParsePlaceError> {
        Ok(Self::of(text.parse()?))
    }
}

impl PostgresPlace {
    fn of(server: PostgresServer) -> Self {
        let primary = Arc::new(PostgresQueries::of_primary(&server));
        Self {
            server,
            primary,
            watch: Arc::default(),
        }
    }

    /// The place whose servers prove themselves by the authorities of a PEM file, if one is given.
    #[must_use]
    pub fn with_authorities(self, file: Option<PathBuf>) -> Self {
        let mut server = self.server;
        server.authorities = file;
        Self::of(server)
    }

    /// The place with a password, unless its address has one.
    #[must_use]
    pub fn with_password(self, password: Option<&str>) -> Self {
        let mut server = self.server;
        if let (None, Some(password)) = (server.config.get_password(), password) {
            server.config.password(password);
        }
        Self::of(server)
    }
}

/// Refuses a server that cannot keep a ledger.
fn check_server(ledger: &PostgresQueries) -> Result<(), StoreError> {
    let question = "SELECT current_setting('server_version_num')::integer,
         current_setting('server_encoding'), current_setting('synchronous_commit'),
         current_setting('fsync')::boolean, current_setting('transaction_isolation')";
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
    let may_lose = ledger.durability() == ServerDurability::Unsafe;
    if !may_lose && !column::<bool>(row, 3)? {
        return refused("its fsync is off, so what it acknowledged could be lost".to_owned());
    }
    let isolation: &str = column(row, 4)?;
    if isolation != "read committed" {
        return refused(format!(
            "its default_transaction_isolation is {isolation}; set it to read committed"
        ));
    }
    if !may_lose && !["on", "remote_apply"].contains(&synchronous) {
        return refused(format!(
            "its synchronous_commit is {synchronous}, so what it acknowledged could be lost; \
             set it to on, or permit that with ?durability=unsafe in the address"
        ));
    }
    Ok(())
}

/// Returns `true` if there are tables of a ledger.
fn has_tables(ledger: &PostgresQueries) -> Result<bool, StoreError> {
    let found = ledger.ask("SELECT to_regclass('ledger') IS NOT NULL", &Vec::new)?;
    found.first().map_or(Ok(false), |row| column(row, 0))
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
    fn make(&self) -> Result<bool, StoreError> {
        let doing = "make the tables of a ledger";
        let ledger = self.primary.as_ref();
        check_server(ledger)?;
        if has_tables(ledger)? {
            check_format(ledger)?;
            return Ok(false);
        }
        let connection = ledger.connection().map_err(|error| error.reading(doing))?;
        let made = connection.run(format!("BEGIN; {} COMMIT", schema::CREATE));
        match made.map_err(|error| error.reading(doing)) {
            Ok(()) => Ok(true),
            // Another process may have been faster.
            Err(error) => {
                ledger.disconnect();
                match has_tables(ledger)? {
                    true => check_format(ledger).map(|()| false),
                    false => Err(error),
                }
            }
        }
    }

    fn grant(&self, role: &str) -> Result<(), StoreError> {
        let doing = "grant rights";
        let ledger = self.primary.as_ref();
        check_format(ledger)?;
        let question = "SELECT quote_ident(rolname), quote_ident(current_schema()),
             rolsuper OR pg_has_role(rolname, tableowner, 'MEMBER')
             FROM pg_roles, pg_tables
             WHERE rolname = $1 AND schemaname = current_schema() AND tablename = 'ledger'";
        let row = ledger.ask_one(question, &|| vec![values::text(role)])?;
        let Some(row) = row else {
            let words = format!("the server has no role {role:?}: CREATE ROLE makes one");
            return Err(StoreError::failed(doing, words));
        };
        if column::<bool>(&row, 2)? {
            let words = format!("the role {role:?} owns the tables, and so may change everything");
            return Err(StoreError::failed(doing, words));
        }
        let connection = ledger.connection().map_err(|error| error.reading(doing))?;
        let granted = connection.run(schema::grants(column(&row, 0)?, column(&row, 1)?));
        granted.map_err(|error| {
            // Its transaction ends with its connection.
            ledger.disconnect();
            error.reading(doing)
        })
    }

    fn name(&self) -> String {
        self.to_string()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn snapshot(&self) -> Result<Box<dyn Reader>, StoreError> {
        let ledger = PostgresQueries::snapshot(&self.server)?;
        check_format(&ledger)?;
        Ok(Box::new(ledger))
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        let ledger = PostgresQueries::new(&self.server);
        check_format(&ledger)?;
        Ok(Box::new(ledger))
    }

    fn store(&self) -> Result<Box<dyn Store>, StoreError> {
        check_server(&self.primary)?;
        check_format(&self.primary)?;
        Ok(self.store_after(None))
    }

    fn claim(&self) -> Result<Box<dyn Store>, OwnError> {
        check_server(&self.primary)?;
        check_format(&self.primary)?;
        let free = self.watch.wait(&|| owner_row(&self.primary))?;
        Ok(self.store_after(Some(free)))
    }

    fn look(&self) -> Result<OwnerSight, StoreError> {
        Ok(self.watch.sight(&owner_row(&self.primary)?))
    }

    fn status(&self) -> Result<LedgerStatus, StoreError> {
        status::of(&PostgresQueries::new(&self.server))
    }

    fn owner(&self) -> Result<Option<LedgerOwner>, StoreError> {
        Ok(owner_row(&PostgresQueries::new(&self.server))?.owner())
    }
}

impl PostgresPlace {
    /// The end that writes; its owner comes after this state of the ledger, if one is given.
    fn store_after(&self, free: Option<OwnerState>) -> Box<dyn Store> {
        Box::new(PostgresStore {
            place: self.clone(),
            writer: Writer::new(PostgresQueries::of_owner(&self.server), free),
        })
    }
}

/// The end of a ledger that writes.
#[derive(Debug)]
struct PostgresStore {
    place: PostgresPlace,
    writer: Writer,
}

impl Reader for PostgresStore {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.writer.ledger.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.writer.ledger.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.writer.ledger.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.writer.ledger.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.writer.ledger.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.writer.ledger.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.writer.ledger.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(&self.writer.ledger)
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

    fn lease(&mut self) -> Option<&mut dyn Lease> {
        Some(&mut self.writer)
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

    fn takes_stand_ins(&self) -> bool {
        true
    }

    fn put_stand_ins(&mut self, epoch: Epoch, of: &[StandIn]) -> Result<(), StoreError> {
        self.writer.put_stand_ins(epoch, of)
    }
}

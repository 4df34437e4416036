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
mod holder;
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
use std::time::Duration;

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    AppendRefusal, Audit, Backlog, Cursor, Filter, Lease, LedgerStatus, Maintenance, Page, Tail,
    WalCheckpoint,
};
use ktsu_ledger::{
    Backend, Entry, Epoch, Hash, IndexRow, LedgerOwner, OwnError, Reader, Record, Store,
    StoreError, StreamId,
};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use owner_row::{OwnerRow, OwnerWatch};
use queries::PostgresQueries;
use server::{PostgresServer, folder_as_host, is_here};
use values::column;
use write::Writer;

pub use schema::FORMAT;

/// The oldest server that has what is needed.
const MIN_VERSION: i32 = 140_000;
/// The port of a server whose address has none.
const DEFAULT_PORT: u16 = 5432;
/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The place of a ledger: a database, and a role of it.
#[derive(Clone)]
pub struct PostgresPlace {
    server: PostgresServer,
    watch: Arc<OwnerWatch>,
}

/// The text is not the address of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address such as postgres://ROLE@HOST/DATABASE")]
pub struct ParsePlaceError;

impl fmt::Debug for PostgresPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresPlace")
            .field(&self.to_string())
            .finish()
    }
}

/// Its address without the password; of the options only those that say where the ledger is.
impl fmt::Display for PostgresPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = self.server.config.get_user().map(|role| format!("{role}@"));
        let hosts = self
            .server
            .config
            .get_hosts()
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(folder) => folder_as_host(folder),
            });
        let ports = self.server.config.get_ports();
        let hosts = hosts.enumerate().map(|(at, host)| {
            let port = ports.get(at).or(ports.first());
            let port = port.filter(|port| **port != DEFAULT_PORT);
            port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
        });
        let hosts: Vec<String> = hosts.collect();
        let database = self.server.config.get_dbname().unwrap_or_default();
        let role = role.unwrap_or_default();
        write!(f, "postgres://{role}{}/{database}", hosts.join(","))?;
        let options = self.server.config.get_options();
        let options = options.map(|options| format!("options={}", as_parameter(options)));
        let encryption = match (
            self.server.config.get_ssl_mode(),
            is_here(&self.server.config),
        ) {
            (SslMode::Disable, false) => Some("sslmode=disable".to_owned()),
            (SslMode::Require, true) => Some("sslmode=require".to_owned()),
            _ => None,
        };
        let shown: Vec<String> = options.into_iter().chain(encryption).collect();
        match shown.is_empty() {
            true => Ok(()),
            false => write!(f, "?{}", shown.join("&")),
        }
    }
}

/// A text as a parameter of an address has it.
fn as_parameter(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.,".contains(byte);
    let bytes = text.bytes().map(|byte| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

impl FromStr for PostgresPlace {
    type Err = ParsePlaceError;

    fn from_str(text: &str) -> Result<Self, ParsePlaceError> {
        let schemes = ["postgres://", "postgresql://"];
        if !schemes.iter().any(|scheme| text.starts_with(scheme)) {
            return Err(ParsePlaceError);
        }
        let mut config: Config = text.parse().map_err(|_| ParsePlaceError)?;
        config
            .application_name("ktsu")
            .tcp_user_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(CONNECT_TIMEOUT);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        Ok(Self {
            server: PostgresServer::new(config, text),
            watch: Arc::default(),
        })
    }
}

impl PostgresPlace {
    /// The place whose servers prove themselves by the authorities of a PEM file, if one is given.
    #[must_use]
    pub fn with_authorities(mut self, file: Option<PathBuf>) -> Self {
        self.server.authorities = file;
        self
    }

    /// The place with a password, unless its address has one.
    #[must_use]
    pub fn with_password(mut self, password: Option<&str>) -> Self {
        if let (None, Some(password)) = (self.server.config.get_password(), password) {
            self.server.config.password(password);
        }
        self
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
    if !column::<bool>(row, 3)? {
        return refused("its fsync is off, so what it acknowledged could be lost".to_owned());
    }
    let isolation: &str = column(row, 4)?;
    if isolation != "read committed" {
        return refused(format!(
            "its default_transaction_isolation is {isolation}; set it to read committed"
        ));
    }
    if !["on", "remote_apply"].contains(&synchronous) {
        return refused(format!(
            "its synchronous_commit is {synchronous}, so what it acknowledged could be lost; \
             set it to on"
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
        let ledger = PostgresQueries::of_primary(&self.server);
        check_server(&ledger)?;
        if has_tables(&ledger)? {
            check_format(&ledger)?;
            return Ok(false);
        }
        let connection = ledger.connection().map_err(|error| error.reading(doing))?;
        let made = connection.run(format!("BEGIN; {} COMMIT", schema::CREATE));
        match made.map_err(|error| error.reading(doing)) {
            Ok(()) => Ok(true),
            // Another process may have been faster.
            Err(error) => {
                ledger.disconnect();
                match has_tables(&ledger)? {
                    true => check_format(&ledger).map(|()| false),
                    false => Err(error),
                }
            }
        }
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
        check_server(&PostgresQueries::of_primary(&self.server))?;
        self.store_after(None)
    }

    fn claim(&self) -> Result<Box<dyn Store>, OwnError> {
        let ledger = PostgresQueries::of_primary(&self.server);
        check_server(&ledger)?;
        check_format(&ledger)?;
        let free = self.watch.wait(&ledger)?;
        Ok(self.store_after(Some(free))?)
    }

    fn is_free(&self) -> Result<bool, StoreError> {
        let (_, is_free) = self
            .watch
            .look(&PostgresQueries::of_primary(&self.server))?;
        Ok(is_free)
    }

    fn status(&self) -> Result<LedgerStatus, StoreError> {
        status::of(&PostgresQueries::new(&self.server))
    }

    fn owner(&self) -> Result<Option<LedgerOwner>, StoreError> {
        Ok(OwnerRow::of(&PostgresQueries::new(&self.server))?.owner())
    }
}

impl PostgresPlace {
    /// The end that writes; its owner comes after this state of the ledger, if one is given.
    fn store_after(&self, free: Option<OwnerRow>) -> Result<Box<dyn Store>, StoreError> {
        check_format(&PostgresQueries::of_primary(&self.server))?;
        Ok(Box::new(PostgresStore {
            place: self.clone(),
            writer: Writer::new(PostgresQueries::of_owner(&self.server), free),
        }))
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
}

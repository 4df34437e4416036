//! The files of a ledger on the disk, and opening them.
//!
//! Next to `ledger.db` are `ledger.db-wal` and `ledger.db-shm` while it is open, `ledger.db.lock`
//! with its owner, and `ledger.db.reserve`, space for a start on a full disk. Only their owner may
//! read them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::schema::{APPLICATION_ID, FORMAT, creation};
use crate::store::StoreError;
use crate::store::error::{CHANGE, USE};

/// The paths of the parts of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paths {
    /// The database, with symlinks resolved: one ledger has one lock, whatever its name.
    pub(crate) db: PathBuf,
    /// The write-ahead log.
    pub(crate) wal: PathBuf,
    /// The lock file.
    pub(crate) lock: PathBuf,
    /// Space set aside.
    pub(crate) reserve: PathBuf,
    /// The files that an owner makes once there is a ledger: its keys.
    keys: [PathBuf; 2],
}

/// No SQLite database has fewer bytes than its header. SQLite itself takes a file of one byte for an
/// empty one, and would make a database of it.
const HEADER_BYTES: u64 = 100;

impl Paths {
    /// Resolves a path, whether or not there is something at it.
    pub(crate) fn of(path: &Path) -> Self {
        let db = fs::canonicalize(path).unwrap_or_else(|_| {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let parent = fs::canonicalize(parent.unwrap_or_else(|| Path::new(".")));
            match (parent, path.file_name()) {
                (Ok(parent), Some(name)) => parent.join(name),
                _ => path.to_owned(),
            }
        });
        let beside = |ending: &str| {
            let mut name = db.clone().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        Self {
            wal: beside("-wal"),
            lock: beside(".lock"),
            reserve: beside(".reserve"),
            keys: [beside(".key"), beside(".signing-key")],
            db,
        }
    }

    /// Refuses a file that is neither empty nor long enough: SQLite takes a file of a byte for an
    /// empty one.
    pub(super) fn must_not_be_a_stub(&self) -> Result<(), StoreError> {
        match fs::metadata(&self.db).map(|found| found.len()) {
            Ok(bytes @ 1..HEADER_BYTES) => {
                Err(self.not_a_ledger(format!("it is too short for one ({bytes} bytes)")))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns an error unless there is a file, which may be empty.
    pub(crate) fn must_be_file(&self) -> Result<(), StoreError> {
        match fs::metadata(&self.db) {
            Ok(found) if found.is_file() => Ok(()),
            Ok(_) => Err(self.not_a_ledger("it is not a file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(StoreError::Missing(self.db.clone()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                let folder = self.db.parent().unwrap_or(&self.db).display();
                let words = format!("{folder} is not a folder");
                Err(StoreError::failed("look at the ledger", words))
            }
            Err(error) => Err(StoreError::failed("look at the ledger", error)),
        }
    }

    /// A file next to an empty, too short or missing database that shows there was a ledger; `None`
    /// if the database is fine or may be new. SQLite would create a new database and discard the
    /// log. Keys alone may exist before a ledger is created.
    pub(crate) fn emptied_file(&self) -> Option<PathBuf> {
        let found = fs::metadata(&self.db).ok();
        if found
            .as_ref()
            .is_some_and(|it| !it.is_file() || it.len() >= HEADER_BYTES)
        {
            return None;
        }
        if fs::metadata(&self.wal).is_ok_and(|log| log.len() > 0) {
            return Some(self.wal.clone());
        }
        let key = || self.keys.iter().find(|key| key.exists()).cloned();
        found.and_then(|_| key())
    }

    pub(super) fn not_a_ledger(&self, why: impl Into<String>) -> StoreError {
        StoreError::NotALedger {
            path: self.db.clone(),
            why: why.into(),
        }
    }

    /// The state of the files, to detect writes.
    pub(super) fn stamp(&self) -> Stamp {
        let database = fs::metadata(&self.db).ok();
        let log = fs::metadata(&self.wal).map_or(0, |log| log.len());
        Stamp {
            database: database.map(|it| (it.ino(), it.len(), it.mtime(), it.mtime_nsec())),
            log,
        }
    }
}

/// See [`Paths::stamp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    database: Option<(u64, u64, i64, i64)>,
    /// Bytes of the write-ahead log.
    pub(super) log: u64,
}

/// The suffixes of the files that SQLite keeps next to a ledger in use.
pub const SIDE_FILES: [&str; 2] = ["-wal", "-shm"];

/// The size of a ledger file in bytes, its log included.
pub fn stored_bytes(ledger: &Path) -> u64 {
    let paths = Paths::of(ledger);
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    size(&paths.db).saturating_add(size(&paths.wal))
}

/// Creates a file that must not exist yet, in a folder that is made if it must be.
pub(crate) fn fresh_file(path: &Path) -> Result<File, StoreError> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(folder)
        .map_err(|error| StoreError::failed("make the folder of the ledger", error))?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| StoreError::failed("create the file", error))?;
    // The name of a file is durable when its folder is.
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| StoreError::failed("make the folder of the ledger durable", error))?;
    Ok(file)
}

/// The moment at which a commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Once the log is synced.
    Synced,
    /// At once; after a loss of power an earlier state may be found, and a whole one.
    Cached,
    /// At once. See [`super::SqliteStore::open_without_syncs`].
    Lost,
}

/// The time for which an owner waits for others while opening; nothing was written yet.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens a ledger for its owner, creating it if there is none.
pub(super) fn open_owner(paths: &Paths, durability: Durability) -> Result<Connection, StoreError> {
    match paths.must_be_file() {
        Ok(()) => paths.must_not_be_a_stub()?,
        Err(StoreError::Missing(_)) => drop(fresh_file(&paths.db)?),
        Err(error) => return Err(error),
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&paths.db, flags).map_err(failed)?;
    // Another process may be replaying the log or holding a lock while this opens.
    busy_timeout(&connection, OPEN_TIMEOUT)?;
    if is_blank(paths, &connection)? {
        connection.execute_batch(&creation()).map_err(failed)?;
    }
    must_be_ours(paths, &connection)?;
    let synchronous = match durability {
        Durability::Synced => "FULL",
        Durability::Cached => "NORMAL",
        Durability::Lost => "OFF",
    };
    // What is deleted is overwritten: frames of removed runs do not linger in free pages.
    let pragmas = format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 0; \
         PRAGMA secure_delete = ON;"
    );
    set_up(&connection, &pragmas)?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(failed)?;
    if mode != "wal" {
        return Err(StoreError::failed(
            "use a write-ahead log",
            format!("the file system allows {mode} only"),
        ));
    }
    busy_timeout(&connection, Duration::ZERO)?;
    Ok(connection)
}

/// Opens a ledger to look at it, without any lock. `frozen`: nobody writes, so nothing is left
/// beside the file either.
pub(super) fn open_reader(paths: &Paths, frozen: bool) -> Result<Connection, StoreError> {
    paths.must_be_file()?;
    paths.must_not_be_a_stub()?;
    if fs::metadata(&paths.db).is_ok_and(|found| found.len() == 0) {
        return Err(paths.not_a_ledger("it is empty (0 bytes)"));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection =
        Connection::open_with_flags(uri(&paths.db, frozen), flags).map_err(|e| named(paths, e))?;
    busy_timeout(&connection, Duration::from_secs(1))?;
    must_be_ours(paths, &connection)?;
    set_up(&connection, "PRAGMA query_only = ON;")?;
    Ok(connection)
}

/// The epoch of the last owner that the ledger file knows of by itself, without its log.
pub(crate) fn file_epoch(ledger: &Path) -> Option<u64> {
    let connection = open_reader(&Paths::of(ledger), true).ok()?;
    let epoch = connection.query_row("SELECT epoch FROM meta", [], |row| row.get::<_, i64>(0));
    u64::try_from(epoch.ok()?).ok()
}

fn uri(path: &Path, frozen: bool) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let written = write!(uri, "%{byte:02X}");
            debug_assert!(written.is_ok(), "writing to a string cannot fail");
        }
    }
    uri.push_str(if frozen { "?immutable=1" } else { "?mode=ro" });
    uri
}

fn busy_timeout(connection: &Connection, wait: Duration) -> Result<(), StoreError> {
    connection.busy_timeout(wait).map_err(failed)
}

fn set_up(connection: &Connection, more: &str) -> Result<(), StoreError> {
    connection.set_prepared_statement_cache_capacity(64);
    // Otherwise the plan of a prepared statement may depend on what is bound to it, and SQLite
    // prepares it again whenever that changes.
    let stable = DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG;
    connection.set_db_config(stable, true).map_err(failed)?;
    connection
        .execute_batch(
            "PRAGMA trusted_schema = OFF; PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON;",
        )
        .and_then(|()| connection.execute_batch(more))
        .map_err(failed)
}

/// Returns `true` if this is a database in which nothing was ever made: an owner died before it
/// could.
fn is_blank(paths: &Paths, connection: &Connection) -> Result<bool, StoreError> {
    let objects: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| named(paths, error))?;
    Ok(objects == 0 && application_id(paths, connection)? == 0)
}

fn application_id(paths: &Paths, connection: &Connection) -> Result<i64, StoreError> {
    connection
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .map_err(|error| named(paths, error))
}

fn must_be_ours(paths: &Paths, connection: &Connection) -> Result<(), StoreError> {
    if application_id(paths, connection)? != APPLICATION_ID {
        return Err(paths.not_a_ledger("it was made by another program"));
    }
    let found: i64 = connection
        .query_row("SELECT format FROM meta WHERE id = 1", [], |row| row.get(0))
        .map_err(|error| named(paths, error))?;
    match u64::try_from(found) {
        Ok(FORMAT) => Ok(()),
        Ok(found) if found > FORMAT => Err(StoreError::NewerFormat {
            found,
            known: FORMAT,
        }),
        Ok(_) | Err(_) => Err(StoreError::Damaged(format!("format {found} never existed"))),
    }
}

/// An error of SQLite at a path that may not hold a database at all.
fn named(paths: &Paths, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => paths.not_a_ledger("it is not an SQLite database"),
        Some(_) | None => failed(error),
    }
}

/// An error of SQLite.
pub(super) fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Damaged(error.to_string())
        }
        Some(_) => refused(error),
        // Not from SQLite itself: a column that does not hold what it must.
        None => StoreError::Damaged(error.to_string()),
    }
}

/// The error of an operation that the system refused: writing is named as such.
fn refused(error: rusqlite::Error) -> StoreError {
    let write = |why: &str| StoreError::failed("write to the ledger", why);
    let extended = error.sqlite_extended_error_code();
    match (error.sqlite_error_code(), extended) {
        (Some(ErrorCode::DiskFull), _) => write("no space is left for it"),
        (Some(ErrorCode::ReadOnly), _) => StoreError::failed(CHANGE, "its file may only be read"),
        (Some(ErrorCode::SystemIoFailure), Some(code)) if WRITING.contains(&code) => {
            write("writing to its files failed")
        }
        (Some(ErrorCode::SystemIoFailure), _) => {
            StoreError::failed("read the ledger", "reading its files failed")
        }
        _ => StoreError::failed(USE, error),
    }
}

/// The codes of a system's failure to write, sync, cut, remove or enlarge a file.
const WRITING: [i32; 8] = [
    ffi::SQLITE_IOERR_WRITE,
    ffi::SQLITE_IOERR_FSYNC,
    ffi::SQLITE_IOERR_DIR_FSYNC,
    ffi::SQLITE_IOERR_TRUNCATE,
    ffi::SQLITE_IOERR_DELETE,
    ffi::SQLITE_IOERR_SHMOPEN,
    ffi::SQLITE_IOERR_SHMSIZE,
    ffi::SQLITE_IOERR_SHMMAP,
];

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_statement_is_prepared_once_whatever_is_bound_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::of(&folder.path().join("ledger.db"));
        let owner = open_owner(&paths, Durability::Synced).unwrap();
        let reader = open_reader(&paths, false).unwrap();
        for connection in [owner, reader] {
            let text = "SELECT seq FROM frames WHERE stream = ?1 ORDER BY seq DESC LIMIT ?2";
            let mut statement = connection.prepare(text).unwrap();
            for bound in 1..4 {
                assert!(!statement.exists([bound, bound]).unwrap());
            }
            assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
        }
    }
}

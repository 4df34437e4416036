//! The location of a ledger, and opening it: the only file that knows the kinds of stores.
//!
//! ```text
//! Ledger::open(place) ─reader─▶ Reader: no lock, whoever owns the ledger
//!                     ─own────▶ Owned: locked, a Store for the appender
//!                     ─verify─▶ Report
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk_space::DiskSpace;
use crate::store::sqlite::lock::{self, LockError, LockHolder, OwnerLock};
use crate::store::sqlite::reserve::Reserve;
use crate::store::sqlite::verification;
use crate::store::{
    LedgerOwner, LedgerStatus, MemoryStore, OwnerSight, Reader, SqliteReader, SqliteStore, Store,
    StoreError, stored_bytes,
};
use crate::verify::{
    ProgressOnly, VerifyObserver, VerifyOptions, VerifyProgress, VerifyReport, verify_before,
};

/// The place of a ledger.
#[derive(Debug, Clone)]
pub enum LedgerPlace {
    /// A file, made by its first owner.
    File(PathBuf),
    /// Memory: gone with the process.
    Memory,
    /// Wherever a backend of the caller keeps it.
    Backend(Arc<dyn Backend>),
}

impl fmt::Display for LedgerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Memory => f.write_str("memory"),
            Self::Backend(backend) => f.write_str(&backend.name()),
        }
    }
}

impl LedgerPlace {
    /// Its file, if it is kept in one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Memory | Self::Backend(_) => None,
        }
    }

    /// True if engines of other machines may own it, too.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::File(_) | Self::Memory => false,
            Self::Backend(backend) => backend.is_shared(),
        }
    }
}

impl From<&Path> for LedgerPlace {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl From<&PathBuf> for LedgerPlace {
    fn from(path: &PathBuf) -> Self {
        Self::File(path.clone())
    }
}

impl From<&LedgerPlace> for LedgerPlace {
    fn from(place: &LedgerPlace) -> Self {
        place.clone()
    }
}

/// A custom storage backend.
pub trait Backend: fmt::Debug + Send + Sync {
    /// A view of the ledger, for one thread.
    ///
    /// # Errors
    /// [`StoreError`].
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;

    /// Its name for people, without secrets.
    fn name(&self) -> String {
        "elsewhere".to_owned()
    }

    /// True if engines of other machines may own it, too.
    fn is_shared(&self) -> bool {
        false
    }

    /// Makes the ledger, where there is none yet; returns `true` if there was none.
    ///
    /// # Errors
    /// [`StoreError`].
    fn make(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Lets a role of the server be its owner without a right to change what was appended.
    ///
    /// # Errors
    /// [`StoreError`].
    fn grant(&self, _role: &str) -> Result<(), StoreError> {
        Err(no_roles())
    }

    /// A view of the ledger as it is now, for one thread, whatever is appended meanwhile.
    ///
    /// # Errors
    /// [`StoreError`].
    fn snapshot(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.reader()
    }

    /// The end that writes, for an appender.
    ///
    /// # Errors
    /// [`StoreError`].
    fn store(&self) -> Result<Box<dyn Store>, StoreError>;

    /// The end that writes, once no other owner is at work. Blocks for a lease at most.
    ///
    /// # Errors
    /// [`OwnError`]; [`OwnError::Held`] if another is at work.
    fn claim(&self) -> Result<Box<dyn Store>, OwnError> {
        Ok(self.store()?)
    }

    /// The ledger and its owner, for a process that waits for its turn.
    ///
    /// # Errors
    /// [`StoreError`].
    fn look(&self) -> Result<OwnerSight, StoreError> {
        let owner = self.owner()?;
        Ok(OwnerSight {
            is_free: owner.is_none(),
            position: self.reader()?.last_position()?,
            owner,
        })
    }

    /// What an operator wants to know of it.
    ///
    /// # Errors
    /// [`StoreError`].
    fn status(&self) -> Result<LedgerStatus, StoreError> {
        Ok(LedgerStatus {
            owner: self.owner()?,
            position: self.reader()?.last_position()?,
            ..LedgerStatus::default()
        })
    }

    /// The owner, if there is one that others can know of.
    ///
    /// # Errors
    /// [`StoreError`].
    fn owner(&self) -> Result<Option<LedgerOwner>, StoreError> {
        Ok(None)
    }
}

/// The error of a ledger that is not on a database server.
fn no_roles() -> StoreError {
    StoreError::failed("grant rights", "only a ledger on PostgreSQL has roles")
}

impl Backend for MemoryStore {
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(self.clone()))
    }

    fn store(&self) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(self.clone()))
    }
}

/// A ledger at a place. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ledger {
    kept: OpenedBackend,
}

#[derive(Debug, Clone)]
enum OpenedBackend {
    File(PathBuf),
    Elsewhere(Arc<dyn Backend>),
}

/// A ledger in the hands of its owner.
pub struct Owned {
    /// The end that writes.
    pub store: Box<dyn Store>,
    /// The watch on the disk.
    pub disk_space: DiskSpace,
    /// Space set aside, for a file.
    pub reserve: Option<Reserve>,
    /// For a file. To be given back last: closing it drops the locks that SQLite has on the same
    /// file.
    pub lock: Option<OwnerLock>,
}

impl From<LockHolder> for LedgerOwner {
    fn from(holder: LockHolder) -> Self {
        let name = match holder.pid {
            0 => "another process".to_owned(),
            pid => format!("process {pid}"),
        };
        Self {
            name,
            url: holder.url,
        }
    }
}

/// The reason why a ledger could not be owned.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// It is locked, or cannot be.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Another process owns it, and is at work.
    #[error("{} owns it", .0.name)]
    Held(LedgerOwner),
    /// It cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Ledger {
    /// The ledger at a place. Of a file nothing is opened yet; a ledger in memory begins here.
    pub fn open(place: impl Into<LedgerPlace>) -> Self {
        let kept = match place.into() {
            LedgerPlace::File(path) => OpenedBackend::File(path),
            LedgerPlace::Memory => OpenedBackend::Elsewhere(Arc::new(MemoryStore::new())),
            LedgerPlace::Backend(backend) => OpenedBackend::Elsewhere(backend),
        };
        Self { kept }
    }

    /// Its file, if it is kept in one.
    pub fn file(&self) -> Option<&Path> {
        match &self.kept {
            OpenedBackend::File(path) => Some(path),
            OpenedBackend::Elsewhere(_) => None,
        }
    }

    /// A view of it, for one thread. Nothing is locked.
    ///
    /// # Errors
    /// [`StoreError`], [`StoreError::Missing`] above all.
    pub fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        match &self.kept {
            OpenedBackend::File(path) => Ok(Box::new(SqliteReader::open(path)?)),
            OpenedBackend::Elsewhere(backend) => backend.reader(),
        }
    }

    /// Makes it, where there is none yet; returns `true` if there was none.
    ///
    /// # Errors
    /// [`OwnError`].
    pub fn make(&self) -> Result<bool, OwnError> {
        match &self.kept {
            OpenedBackend::File(path) if path.exists() => Ok(false),
            OpenedBackend::File(_) => self.own(0).map(|_| true),
            OpenedBackend::Elsewhere(backend) => Ok(backend.make()?),
        }
    }

    /// Lets a role of its server be its owner without a right to change what was appended.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn grant(&self, role: &str) -> Result<(), StoreError> {
        match &self.kept {
            OpenedBackend::File(_) => Err(no_roles()),
            OpenedBackend::Elsewhere(backend) => backend.grant(role),
        }
    }

    /// A view of it as it is now, for one thread, where the backend has one; otherwise a
    /// [`Ledger::reader`].
    ///
    /// # Errors
    /// As of a reader.
    pub fn snapshot(&self) -> Result<Box<dyn Reader>, StoreError> {
        match &self.kept {
            OpenedBackend::File(_) => self.reader(),
            OpenedBackend::Elsewhere(backend) => backend.snapshot(),
        }
    }

    /// The process that owns it; `None` if there is none, or it cannot be determined.
    ///
    /// # Errors
    /// [`StoreError`] of a backend that cannot be asked.
    pub fn owner(&self) -> Result<Option<LedgerOwner>, StoreError> {
        match &self.kept {
            OpenedBackend::File(path) => Ok(lock::holder(path).map(LedgerOwner::from)),
            OpenedBackend::Elsewhere(backend) => backend.owner(),
        }
    }

    /// The ledger and its owner, for a process that waits for its turn: asked again and again of the same
    /// ledger.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn look(&self) -> Result<OwnerSight, StoreError> {
        match &self.kept {
            OpenedBackend::File(_) => {
                let owner = self.owner()?;
                Ok(OwnerSight {
                    is_free: owner.is_none(),
                    position: self.reader()?.last_position()?,
                    owner,
                })
            }
            OpenedBackend::Elsewhere(backend) => backend.look(),
        }
    }

    /// What an operator wants to know of it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn status(&self) -> Result<LedgerStatus, StoreError> {
        match &self.kept {
            OpenedBackend::File(path) => Ok(LedgerStatus {
                owner: self.owner()?,
                position: self.reader()?.last_position()?,
                bytes: stored_bytes(path),
                ..LedgerStatus::default()
            }),
            OpenedBackend::Elsewhere(backend) => backend.status(),
        }
    }

    /// Takes ownership, creating the ledger if there is none. `low_water`: with fewer free bytes
    /// than this the disk counts as full.
    ///
    /// # Errors
    /// [`OwnError`].
    pub fn own(&self, low_water: u64) -> Result<Owned, OwnError> {
        match &self.kept {
            OpenedBackend::File(path) => {
                let lock = lock::try_own(path)?;
                Ok(Owned {
                    store: Box::new(SqliteStore::open(path)?),
                    disk_space: DiskSpace::beside(path, low_water),
                    reserve: Some(Reserve::beside(path)),
                    lock: Some(lock),
                })
            }
            OpenedBackend::Elsewhere(backend) => Ok(Owned {
                store: backend.claim()?,
                disk_space: DiskSpace::unlimited(),
                reserve: None,
                lock: None,
            }),
        }
    }

    /// Verifies it, without any lock, before an onlooker.
    ///
    /// # Errors
    /// Only if there is nothing to verify: no ledger, or one that may not be read. A file that is too
    /// damaged to be opened is a [`VerifyReport`].
    pub fn verify(
        &self,
        options: &VerifyOptions,
        onlooker: &mut dyn VerifyObserver,
    ) -> Result<VerifyReport, StoreError> {
        match &self.kept {
            OpenedBackend::File(path) => verification::verify_file(path, options, onlooker),
            OpenedBackend::Elsewhere(backend) => Ok(verify_before(
                backend.snapshot()?.as_ref(),
                options,
                onlooker,
            )),
        }
    }
}

/// Verifies the ledger file at a path: see [`Ledger::verify`].
///
/// # Errors
/// As there.
pub fn verify_file(
    path: &Path,
    options: &VerifyOptions,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport, StoreError> {
    Ledger::open(path).verify(options, &mut ProgressOnly(progress))
}

//! Who owns a ledger: an operating-system lock on the file beside it.
//!
//! The lock is held by the process and gone with it, however it ends; what the file says is for
//! people and for commands that want to reach the owner. It keeps two owners apart on one machine;
//! the epoch keeps them apart where it fails.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::store::Paths;
use crate::time::Timestamp;

/// Looking whether a lock is held takes it for a moment; somebody who wants it waits that out.
const PATIENCE: Duration = Duration::from_millis(300);

/// What the lock file says of the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// When it took the ledger.
    pub started_at: Timestamp,
    /// Where it listens, once it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Why the ledger could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum NotOwned {
    /// Another process owns it; what its lock file says, if that can be read.
    #[error("the ledger is owned by {}", told(.0.as_ref()))]
    Held(Option<Holder>),
    /// The lock file cannot be used.
    #[error("cannot lock {}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

fn told(holder: Option<&Holder>) -> String {
    match holder {
        Some(Holder { pid, url, .. }) => match url {
            Some(url) => format!("process {pid} at {url}"),
            None => format!("process {pid}"),
        },
        None => "another process".to_owned(),
    }
}

/// The right to write a ledger, until it is dropped.
#[derive(Debug)]
pub struct OwnerLock {
    file: File,
    path: PathBuf,
    holder: Holder,
}

/// Takes a ledger.
///
/// # Errors
/// [`NotOwned`].
pub fn try_own(ledger: &Path) -> Result<OwnerLock, NotOwned> {
    let folder = ledger.parent().filter(|it| !it.as_os_str().is_empty());
    if let Some(folder) = folder {
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .recursive(true)
            .create(folder)
            .map_err(|source| NotOwned::Io {
                path: folder.to_owned(),
                source,
            })?;
    }
    let path = Paths::of(ledger).lock;
    let io = |source| NotOwned::Io {
        path: path.clone(),
        source,
    };
    let file = open(&path).map_err(io)?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => return Err(NotOwned::Held(read(&file))),
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
    }
    let mut lock = OwnerLock {
        file,
        holder: Holder {
            pid: std::process::id(),
            started_at: now(),
            url: None,
        },
        path: path.clone(),
    };
    lock.tell().map_err(io)?;
    Ok(lock)
}

/// Who owns a ledger now; `None` if nobody does. One that cannot be looked at counts as not owned.
pub fn holder(ledger: &Path) -> Option<Holder> {
    holder_at(&Paths::of(ledger).lock)
}

/// Whether a lock file is held, and what it says; what cannot be read is filled with nothing.
pub(crate) fn holder_at(lock: &Path) -> Option<Holder> {
    let file = File::open(lock).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(read(&file).unwrap_or(Holder {
            pid: 0,
            started_at: Timestamp::default(),
            url: None,
        })),
        // Closing the file gives the lock back.
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

impl OwnerLock {
    /// Says where the owner listens.
    ///
    /// # Errors
    /// Whatever writing the lock file fails with.
    pub fn set_url(&mut self, url: &str) -> std::io::Result<()> {
        self.holder.url = Some(url.to_owned());
        self.tell()
    }

    /// What the lock file says.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn tell(&mut self) -> std::io::Result<()> {
        let mut text = serde_json::to_string(&self.holder)?;
        text.push('\n');
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // The lock goes with the file; a name left in it would only mislead people.
        let emptied = self.file.set_len(0);
        drop(emptied);
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn read(mut file: &File) -> Option<Holder> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(64 * 1024).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros());
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

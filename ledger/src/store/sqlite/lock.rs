//! Ownership of a ledger: operating-system locks on the file next to it and on the ledger file
//! itself.
//!
//! The locks are held by the process and released when it ends, however that happens; the content
//! of the lock file is for people and for commands that want to reach the owner. They keep two
//! owners apart on one machine; the epoch does so if they fail.
//!
//! The lock file is found by the name of the ledger, so it does not protect against another name of
//! the same file: that is what the second lock is for. It belongs to the open file (`flock`), so it
//! lasts while the descriptor kept here is open, whatever other descriptors of the file are closed.
//! On Linux it is independent of the record locks (`fcntl`) that SQLite takes on the same file.
//! Elsewhere, and on network file systems, the two kinds conflict and SQLite would wait for us;
//! there the number of hard links and the epoch have to suffice.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::files::{Paths, file_epoch, fresh_file};
use super::hard_links::{SecondName, second_name};
use super::reserve::Reserve;
use crate::store::StoreError;
use crate::time::Timestamp;

/// Checking whether a lock is held takes it for a moment; others wait that long.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);

/// The owner, as recorded in the lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// The process.
    pub pid: u32,
    /// The time at which it took the ledger.
    pub started_at: Timestamp,
    /// The URL at which it listens, once it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The epoch of the owner, once the ledger has a log: what is only in the log is lost with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<u64>,
}

/// The reason why the ledger could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process owns it; with the content of its lock file, if readable.
    #[error("the ledger is owned by {}", holder_text(.0.as_ref()))]
    Held(Option<LockHolder>),
    /// Another process owns the same file by another name.
    #[error("another process owns {} through another name of the file", .0.display())]
    HeldElsewhere(PathBuf),
    /// The file has a second name, whose owner would write without this one's log.
    #[error("{} cannot be owned: {found}, and frames written through one name are not visible through the other", path.display())]
    SecondName {
        /// The ledger.
        path: PathBuf,
        /// The sign of the second name.
        found: SecondName,
    },
    /// The file is empty or nearly so, but another file shows that it was a ledger.
    #[error("{} is missing or too short for a ledger, but {} next to it belongs to one that was in use", path.display(), beside.display())]
    Emptied {
        /// The ledger.
        path: PathBuf,
        /// The file that only a ledger in use has.
        beside: PathBuf,
    },
    /// The last owner did not close the ledger, and its log is gone.
    #[error("the last owner of {} did not close it, and its log {} is missing, with all frames that were only in it", path.display(), log.display())]
    LogMissing {
        /// The ledger.
        path: PathBuf,
        /// Its log.
        log: PathBuf,
        /// The lock file, which records the log.
        lock: PathBuf,
    },
    /// The ledger file cannot be made.
    #[error(transparent)]
    NotMade(StoreError),
    /// The lock file cannot be used.
    #[error("cannot lock {}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

fn holder_text(holder: Option<&LockHolder>) -> String {
    match holder {
        Some(LockHolder { pid, url, .. }) => match url {
            Some(url) => format!("process {pid} at {url}"),
            None => format!("process {pid}"),
        },
        None => "another process".to_owned(),
    }
}

/// The right to write to a ledger, until dropped.
#[derive(Debug)]
pub struct OwnerLock {
    /// The ledger itself; given back before its name is.
    _ledger: Option<File>,
    file: File,
    path: PathBuf,
    holder: LockHolder,
    full: bool,
    /// The log of the ledger, if there is to be one.
    log: Option<PathBuf>,
    /// The reserve that was released because the disk was full.
    reserve: Option<Reserve>,
    /// The file that was made for this lock, in which there may never be a ledger.
    made: Option<PathBuf>,
}

/// Takes ownership of a ledger, creating its file if there is none.
///
/// # Errors
/// [`LockError`].
pub fn try_own(ledger: &Path) -> Result<OwnerLock, LockError> {
    let (file, path) = take_name(ledger)?;
    must_be_whole(ledger)?;
    must_have_log(ledger, &file)?;
    let db = Paths::of(ledger).db;
    let is_new = std::fs::symlink_metadata(&db).is_err();
    if is_new {
        drop(fresh_file(&db).map_err(LockError::NotMade)?);
    }
    let held = take_file(&db)?;
    // Before the first byte is written: without space not even the lock file can be.
    let reserve = Reserve::beside(ledger);
    let full = reserve.release_if_full();
    let lock = OwnerLock::new(file, path, held);
    if lock.is_err() && full {
        reserve.put_back();
    }
    let mut lock = lock?;
    lock.full = full;
    lock.reserve = full.then_some(reserve);
    lock.log = Some(Paths::of(ledger).wal);
    lock.made = is_new.then_some(db);
    Ok(lock)
}

/// Takes the name of a ledger that is about to be made.
///
/// # Errors
/// [`LockError`].
pub(crate) fn try_own_name(ledger: &Path) -> Result<OwnerLock, LockError> {
    let (file, path) = take_name(ledger)?;
    OwnerLock::new(file, path, None)
}

/// Locks the lock file of a ledger.
fn take_name(ledger: &Path) -> Result<(File, PathBuf), LockError> {
    let folder = ledger.parent().filter(|it| !it.as_os_str().is_empty());
    if let Some(folder) = folder {
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .recursive(true)
            .create(folder)
            .map_err(|source| LockError::Io {
                path: folder.to_owned(),
                source,
            })?;
    }
    let path = Paths::of(ledger).lock;
    let io = |source| LockError::Io {
        path: path.clone(),
        source,
    };
    let file = open(&path).map_err(io)?;
    match lock_with_timeout(&file) {
        Ok(true) => Ok((file, path)),
        Ok(false) => Err(LockError::Held(read(&file))),
        Err(source) => Err(io(source)),
    }
}

/// Refuses a file by a second name, and one that was emptied.
fn must_be_whole(ledger: &Path) -> Result<(), LockError> {
    if let Some(found) = second_name(ledger) {
        let path = ledger.to_owned();
        return Err(LockError::SecondName { path, found });
    }
    match Paths::of(ledger).emptied_file() {
        Some(beside) => Err(LockError::Emptied {
            path: ledger.to_owned(),
            beside,
        }),
        None => Ok(()),
    }
}

/// Refuses a ledger whose lock file records a log that is missing, unless the file knows the owner
/// that had it: a program that closed the ledger for that owner, as any with SQLite does, has moved
/// the log's content into the file.
fn must_have_log(ledger: &Path, lock: &File) -> Result<(), LockError> {
    let paths = Paths::of(ledger);
    let Some(epoch) = read(lock).and_then(|last| last.log) else {
        return Ok(());
    };
    let is_gone = paths.db.exists() && !paths.wal.exists();
    // An unreadable file is refused when it is opened.
    match is_gone && file_epoch(ledger).is_some_and(|known| known < epoch) {
        true => Err(LockError::LogMissing {
            path: ledger.to_owned(),
            log: paths.wal,
            lock: paths.lock,
        }),
        false => Ok(()),
    }
}

/// The missing log of a ledger, according to its lock file: no process owns the ledger, and the
/// last owner did not close it.
pub fn missing_log(ledger: &Path) -> Option<PathBuf> {
    let file = File::open(Paths::of(ledger).lock).ok()?;
    file.try_lock_shared().ok()?;
    match must_have_log(ledger, &file) {
        Err(LockError::LogMissing { log, .. }) => Some(log),
        Err(_) | Ok(()) => None,
    }
}

/// Returns `true` if the file is owned through another name, as far as the system shows. Call it
/// before opening the file, because it closes a descriptor of it.
pub fn is_held_elsewhere(ledger: &Path) -> bool {
    let elsewhere = second_name(ledger).is_some() && holder(ledger).is_none();
    let file = || File::open(Paths::of(ledger).db).ok();
    elsewhere
        && file().is_some_and(|file| {
            let held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
            held && locks_are_apart(&file)
        })
}

/// Locks the ledger file itself, where that does not conflict with SQLite's locks.
fn take_file(db: &Path) -> Result<Option<File>, LockError> {
    // Anything but a regular file is refused when it is opened.
    if !std::fs::metadata(db).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let io = |source| LockError::Io {
        path: db.to_owned(),
        source,
    };
    let file = File::open(db).map_err(io)?;
    if !locks_are_apart(&file) {
        return Ok(None);
    }
    match lock_with_timeout(&file) {
        Ok(true) => Ok(Some(file)),
        Ok(false) => Err(LockError::HeldElsewhere(db.to_owned())),
        Err(source) => Err(io(source)),
    }
}

/// Returns `true` if `flock` and record locks of a file do not meet: on Linux, unless the file
/// system passes both on to a server as the same thing.
#[cfg(target_os = "linux")]
fn locks_are_apart(file: &File) -> bool {
    /// NFS, SMB 1 and 2, 9P, Ceph, AFS: as `statfs` names them.
    const REMOTE: [u64; 6] = [
        0x6969,
        0xff53_4d42,
        0xfe53_4d42,
        0x0102_1997,
        0x00c3_6400,
        0x5346_414f,
    ];
    let found = rustix::fs::fstatfs(file);
    found.is_ok_and(|found| !REMOTE.contains(&(found.f_type as u64 & 0xffff_ffff)))
}

#[cfg(not(target_os = "linux"))]
fn locks_are_apart(_: &File) -> bool {
    false
}

/// Locks a file, waiting a moment; false if another process has the lock.
fn lock_with_timeout(file: &File) -> std::io::Result<bool> {
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(source)) => return Err(source),
        }
    }
}

/// The current owner of a ledger; `None` if there is none or it cannot be determined.
pub fn holder(ledger: &Path) -> Option<LockHolder> {
    holder_at(&Paths::of(ledger).lock)
}

/// The owner recorded in a lock file, if the file is locked; unreadable content is empty.
pub(crate) fn holder_at(lock: &Path) -> Option<LockHolder> {
    let file = File::open(lock).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(read(&file).unwrap_or(LockHolder {
            pid: 0,
            started_at: Timestamp::default(),
            url: None,
            log: None,
        })),
        // Closing the file gives the lock back.
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

impl OwnerLock {
    fn new(file: File, path: PathBuf, ledger: Option<File>) -> Result<Self, LockError> {
        let mut lock = Self {
            _ledger: ledger,
            file,
            holder: LockHolder {
                pid: std::process::id(),
                started_at: now(),
                url: None,
                log: None,
            },
            path,
            log: None,
            full: false,
            reserve: None,
            made: None,
        };
        lock.write_holder().map_err(|source| LockError::Io {
            path: lock.path.clone(),
            source,
        })?;
        Ok(lock)
    }

    /// Returns `true` if the disk was full when the ledger was taken: the reserve was given up for
    /// the start, and there is no space for more.
    pub fn opened_on_full_disk(&self) -> bool {
        self.full
    }

    /// Records that the ledger is open in this epoch: its log is needed from now on.
    ///
    /// # Errors
    /// [`LockError::Io`].
    pub fn set_log_epoch(&mut self, epoch: u64) -> Result<(), LockError> {
        let has_log = self.log.as_ref().is_some_and(|log| log.exists());
        self.holder.log = has_log.then_some(epoch);
        self.write_holder().map_err(|source| LockError::Io {
            path: self.path.clone(),
            source,
        })
    }

    /// Records that the ledger is about to be closed, which removes its log.
    pub fn clear_log_epoch(&mut self) {
        self.holder.log = None;
        // If this fails, the next start asks for a log that is not needed.
        let told = self.write_holder();
        drop(told);
    }

    /// Records where the owner listens.
    ///
    /// # Errors
    /// A failure to write the lock file.
    pub fn set_url(&mut self, url: &str) -> std::io::Result<()> {
        self.holder.url = Some(url.to_owned());
        self.write_holder()
    }

    /// The content of the lock file.
    pub fn holder(&self) -> &LockHolder {
        &self.holder
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write_holder(&mut self) -> std::io::Result<()> {
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
        if let Some(reserve) = &self.reserve {
            reserve.put_back();
        }
        // An empty file that stays behind would look like a ledger that was emptied.
        let is_empty = |db: &&PathBuf| std::fs::metadata(db).is_ok_and(|found| found.len() == 0);
        if let Some(db) = self.made.as_ref().filter(is_empty) {
            let removed = std::fs::remove_file(db);
            drop(removed);
        }
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

fn read(mut file: &File) -> Option<LockHolder> {
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

//! What the ends of a ledger share in a process: the client, and the local copy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ktsu_ledger::StoreError;
use ktsu_ledger::store::SqliteReader;
use parking_lot::{Mutex, MutexGuard};

use crate::cache::CacheFolder;
use crate::copy::LocalCopy;
use crate::log::EventLog;

/// How old what a reader sees may be, where another process appends.
const MAX_AGE: Duration = Duration::from_millis(50);

/// A ledger as a process sees it.
pub(crate) struct SharedLedger {
    pub(crate) log: EventLog,
    pub(crate) owner_log: EventLog,
    folder: CacheFolder,
    /// Held by an owner while it appends: what it checks is what is stored.
    copy: Mutex<Option<LocalCopy>>,
    /// True while this process is the owner, and the copy has all that was appended.
    is_current: AtomicBool,
    /// When what the copy has was asked for last.
    asked: Mutex<Option<Instant>>,
}

impl SharedLedger {
    pub(crate) fn new(log: EventLog, folder: CacheFolder) -> Self {
        Self {
            owner_log: log.of_owner(),
            log,
            folder,
            copy: Mutex::new(None),
            is_current: AtomicBool::new(false),
            asked: Mutex::new(None),
        }
    }

    /// Notes whether this process is the owner and knows all that was appended.
    pub(crate) fn set_current(&self, is_current: bool) {
        self.is_current.store(is_current, Ordering::SeqCst);
    }

    /// The copy, as it is.
    pub(crate) fn copy(&self) -> Result<MutexGuard<'_, Option<LocalCopy>>, StoreError> {
        let mut copy = self.copy.lock();
        if copy.is_none() {
            *copy = Some(LocalCopy::open(&self.folder, &self.log)?);
        }
        Ok(copy)
    }

    /// Does something with the copy once it has what the ledger has.
    pub(crate) fn synced<T>(
        &self,
        log: &EventLog,
        work: impl FnOnce(&mut LocalCopy) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut guard = self.copy()?;
        let Some(copy) = guard.as_mut() else {
            return Err(StoreError::failed("open the local copy", "it is not there"));
        };
        let begin = Instant::now();
        let done = copy.sync(log);
        if matches!(done, Err(StoreError::Damaged(_))) {
            // The next attempt opens it again.
            *guard = None;
        }
        done?;
        *self.asked.lock() = Some(begin);
        work(guard.as_mut().ok_or_else(gone)?)
    }

    /// Brings the copy up to date, unless this process appends all there is, or has just asked.
    pub(crate) fn refresh(&self) -> Result<(), StoreError> {
        let asked = *self.asked.lock();
        let is_recent = asked.is_some_and(|asked| asked.elapsed() < MAX_AGE);
        match is_recent || self.is_current.load(Ordering::SeqCst) {
            true => Ok(()),
            false => self.synced(&self.log, |_| Ok(())),
        }
    }

    /// Brings the copy up to date, if there is one: of a process that waits for its turn.
    pub(crate) fn keep_warm(&self) -> Result<(), StoreError> {
        let is_open = self.copy.lock().is_some();
        match is_open {
            true => self.refresh(),
            false => Ok(()),
        }
    }

    /// A view of the copy, for one thread.
    pub(crate) fn view(&self) -> Result<SqliteReader, StoreError> {
        self.synced(&self.log, |copy| copy.mirror.reader())
    }
}

pub(crate) fn gone() -> StoreError {
    StoreError::failed("open the local copy", "it is not there")
}

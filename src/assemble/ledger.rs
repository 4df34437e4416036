//! Opens a ledger as its owner: locks it, searches it for damage if that is quick, and watches it
//! from then on.

use std::path::Path;

use ktsu_ledger::appender::{Appender, AppenderThread, MIN_FREE_BYTES, OnFatal};
use ktsu_ledger::disk_space::DiskSpace;
use ktsu_ledger::lock::{LockError, OwnerLock};
use ktsu_ledger::reserve::Reserve;
use ktsu_ledger::store::{Reader, Store, StoreError};
use ktsu_ledger::{Ledger, OwnError, Owned};

use super::{LedgerPlace, OpenEngineError};
use ktsu_damage::{self as damage, Damage, DamageReportingReader};
use ktsu_readers::ReaderPool;

/// A ledger in the hands of its owner.
pub(super) struct OpenedLedger {
    /// Space set aside, for a file.
    pub(super) reserve: Option<Reserve>,
    pub(super) damage: Damage,
    pub(super) disk_space: DiskSpace,
    /// The readers. Damage that they meet becomes known.
    pub(super) readers: ReaderPool,
    pub(super) store: Box<dyn Store>,
    /// For a file. Given back last: closing it drops the locks that SQLite has on the same file.
    pub(super) lock: Option<OwnerLock>,
}

/// Opens a ledger as its owner.
///
/// # Errors
/// [`OpenEngineError`]; [`StoreError::Damaged`] if the search has found something.
pub(super) fn open(place: &LedgerPlace) -> Result<OpenedLedger, OpenEngineError> {
    let ledger = Ledger::open(place);
    // The lock is bound first, so that it is given back last.
    let Owned {
        lock,
        mut store,
        disk_space,
        reserve,
    } = ledger
        .own(MIN_FREE_BYTES)
        .map_err(|refused| match refused {
            OwnError::Lock(LockError::Held(_)) => {
                OpenEngineError::Owned(ledger.owner().ok().flatten())
            }
            OwnError::Lock(other) => OpenEngineError::Lock(other),
            OwnError::Held(owner) => OpenEngineError::Owned(Some(owner)),
            OwnError::Store(error) => error.into(),
        })?;
    if let Err(damaged) = must_be_sound(&ledger, store.as_ref()) {
        store.abandon();
        return Err(damaged.into());
    }
    let damage = Damage::default();
    Ok(OpenedLedger {
        readers: watch_damage(ledger, &damage)?,
        store,
        disk_space,
        reserve,
        damage,
        lock,
    })
}

/// As [`open`], for a command that has to write right away.
///
/// # Errors
/// As [`open`], or that the disk is full.
pub(super) fn open_with_room(ledger: &LedgerPlace) -> Result<OpenedLedger, OpenEngineError> {
    let opened = open(ledger)?;
    match opened
        .lock
        .as_ref()
        .is_some_and(OwnerLock::opened_on_full_disk)
    {
        true => {
            let words = "the disk is full; nothing was written";
            Err(OpenEngineError::Other(words.to_owned()))
        }
        false => Ok(opened),
    }
}

/// Closes a ledger that was opened for one thing.
///
/// # Errors
/// What the writer failed with.
pub(super) fn close(lock: Option<OwnerLock>, thread: AppenderThread) -> Result<(), String> {
    let mut lock = lock;
    if let Some(lock) = &mut lock {
        lock.clear_log_epoch();
    }
    thread.shutdown().map_err(|error| error.to_string())
}

/// Looks for damage before anything is written.
fn must_be_sound(ledger: &Ledger, store: &dyn Store) -> Result<(), StoreError> {
    let Some(path) = ledger.file().filter(|path| damage::is_searched(path)) else {
        return Ok(());
    };
    match damage::find_damage(store)? {
        Some(why) => Err(StoreError::Damaged(why)),
        None => {
            damage::unmark(path);
            Ok(())
        }
    }
}

/// The function that the appender calls when the store fails: damage that it met itself becomes
/// known, too.
pub(super) fn on_fatal(damage: &Damage) -> OnFatal {
    let damage = damage.clone();
    Box::new(move |error| {
        if let StoreError::Damaged(why) = error {
            damage.report(why);
        }
    })
}

/// Ends writing once damage is known, and leaves a note for the next start.
pub(super) fn stop_when_damaged(damage: &Damage, appender: &Appender, place: &LedgerPlace) {
    let appender = appender.clone();
    let path = place.file().map(Path::to_owned);
    damage.on_damage(move |why| {
        appender.stop(&StoreError::Damaged(why.to_owned()).to_string());
        if let Some(path) = &path {
            damage::mark(path, why);
        }
    });
}

/// Readers of a ledger, for commands that only look. They never lock.
///
/// # Errors
/// [`StoreError`] if there is no ledger at the place.
pub fn readers(place: &LedgerPlace) -> Result<ReaderPool, StoreError> {
    watch_damage(Ledger::open(place), &Damage::default())
}

fn watch_damage(ledger: Ledger, damage: &Damage) -> Result<ReaderPool, StoreError> {
    let first = ledger.reader()?;
    drop(first);
    let damage = damage.clone();
    Ok(ReaderPool::new(move || {
        let opened = ledger.reader();
        if let Err(StoreError::Damaged(why)) = &opened {
            damage.report(why);
        }
        let reader: Box<dyn Reader> = Box::new(DamageReportingReader::new(opened?, damage.clone()));
        Ok(reader)
    }))
}

//! Reads a ledger without owning it: no lock, no writes, short transactions.
//!
//! A ledger with an owner is read live. One without an owner and without a log is read as an
//! immutable file, since opening it live would create files. An owner may start afterwards, so each
//! result from an immutable file counts only if the files have not changed, and is otherwise read
//! again, live.

use std::cell::{Ref, RefCell};
use std::path::Path;

use rusqlite::Connection;

use super::Source;
use super::files::{Paths, Stamp, open_reader};
use super::lock;
use super::queries::Queries;
use crate::store::StoreError;

/// A read-only view of a ledger file.
#[derive(Debug)]
pub struct SqliteReader {
    paths: Paths,
    view: RefCell<View>,
}

#[derive(Debug)]
struct View {
    connection: Connection,
    /// The state of the files, if they are read as immutable.
    frozen: Option<Stamp>,
}

impl SqliteReader {
    /// Opens a ledger for reading.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::NotALedger`], [`StoreError::NewerFormat`], and errors
    /// from damage or the system.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let paths = Paths::of(path);
        paths.must_be_file()?;
        let view = View::open(&paths)?;
        Ok(Self {
            view: RefCell::new(view),
            paths,
        })
    }

    pub(super) fn live(paths: &Paths) -> Result<Self, StoreError> {
        Ok(Self {
            view: RefCell::new(View::live(paths)?),
            paths: paths.clone(),
        })
    }

    /// Returns `true` unless a file that is read as frozen has changed.
    fn still_frozen(&self) -> bool {
        match self.view.borrow().frozen {
            Some(stamp) => self.paths.stamp() == stamp,
            None => true,
        }
    }

    fn thaw(&self) -> Result<(), StoreError> {
        let live = View::live(&self.paths)?;
        *self.view.borrow_mut() = live;
        Ok(())
    }

    pub(super) fn view(&self) -> Ref<'_, Connection> {
        Ref::map(self.view.borrow(), |view| &view.connection)
    }
}

impl View {
    fn open(paths: &Paths) -> Result<Self, StoreError> {
        let stamp = paths.stamp();
        if stamp.log > 0 || lock::holder_at(&paths.lock).is_some() {
            return Self::live(paths);
        }
        Ok(Self {
            connection: open_reader(paths, true)?,
            frozen: Some(stamp),
        })
    }

    fn live(paths: &Paths) -> Result<Self, StoreError> {
        Ok(Self {
            connection: open_reader(paths, false)?,
            frozen: None,
        })
    }
}

impl Source for SqliteReader {
    fn ask<T>(
        &self,
        question: impl Fn(&Queries<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = question(&Queries(&self.view()));
        if self.still_frozen() {
            return answer;
        }
        self.thaw()?;
        question(&Queries(&self.view()))
    }
}

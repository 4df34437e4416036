//! Looking at a ledger from outside its owner: no lock, nothing written, short transactions.
//!
//! A ledger somebody owns is read live. One that nobody owns and that has no log beside it is read
//! as it stands, since opening it live would leave files there. That decision can be overtaken by
//! an owner who starts later; so each answer from a frozen file counts only if the files are still
//! what they were, and is otherwise asked for again, live.

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
    /// What the files looked like, if they are read as they stand.
    frozen: Option<Stamp>,
}

impl SqliteReader {
    /// Opens a ledger to look at it.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::NotALedger`], [`StoreError::NewerFormat`], and
    /// whatever damage or the system lead to.
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

    /// Whether the file can be taken as it stands.
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

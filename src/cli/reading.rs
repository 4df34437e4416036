//! Opening a ledger to look at it: without a lock, whoever owns it.

use std::path::Path;

use ktsu_ledger::StreamId;
use ktsu_ledger::names::second_name;
use ktsu_ledger::store::{Reader, SqliteReader, StoreError};

use super::engine::{Place, place_nearby};
use super::output::note;
use super::{Common, Failure, text};
use crate::history::Unreadable;
use crate::history::find::{self, Found};
use crate::history::listed::Listed;

/// What to do about a damaged ledger.
pub(super) const DAMAGED: &str = "ktsu verify says what is damaged, ktsu start --read-only serves what \
                                  can be read, ktsu restore BACKUP --to FILE brings a copy back";

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let hint = match &error {
            StoreError::Missing(_) => {
                Some("make one: ktsu run kits/hello; or name it: --ledger FILE")
            }
            StoreError::Damaged(_) => Some(DAMAGED),
            StoreError::WrongRow(_) => Some("the next start makes the list of runs again"),
            StoreError::NotALedger { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::Fenced { .. }
            | StoreError::KeyTwice(_)
            | StoreError::Failed { .. } => None,
        };
        let failure = Self::could_not_run(error.to_string());
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<Unreadable> for Failure {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::Store(error) => error.into(),
            Unreadable::Cut | Unreadable::Fold(_) | Unreadable::Definition(_) => {
                Self::could_not_run(error.to_string()).hint("ktsu verify says what is damaged")
            }
        }
    }
}

/// The ledger a command means, opened for reading.
pub(super) fn open(common: &Common) -> Result<(Listed<SqliteReader>, Place), Failure> {
    let place = place_nearby(common)?;
    Ok((open_at(&place.path)?, place))
}

/// A ledger, opened for reading.
pub(super) fn open_at(path: &Path) -> Result<Listed<SqliteReader>, Failure> {
    let reader = SqliteReader::open(path)?;
    warn_of_second_name(path);
    Ok(Listed::at(reader, path))
}

/// Says so where another name of the file may have a log that is not seen by this one.
pub(super) fn warn_of_second_name(ledger: &Path) {
    if let Some(found) = second_name(ledger) {
        let path = ledger.display().to_string();
        note(&format!(
            "warning: {} may be seen in an old state: {found}, and its log is found by one name alone",
            text::line(&path)
        ));
    }
}

/// A run, by its id or a part of it; with the scope of an inline child, if one was asked for.
pub(super) fn find_run(reader: &dyn Reader, asked: &str) -> Result<(StreamId, String), Failure> {
    let kinds = ["run:", "branch:", "recompute:"];
    let bare = kinds.iter().find_map(|kind| asked.strip_prefix(kind));
    let asked = bare.unwrap_or(asked);
    if asked.is_empty() {
        return Err(
            Failure::could_not_run("the id of the run is empty").hint("ktsu runs lists them")
        );
    }
    match find::run(reader, asked)? {
        Found::One(stream, scope) => Ok((stream, scope)),
        Found::None => Err(
            Failure::could_not_run(format!("there is no run {asked}")).hint(
                "ktsu runs lists them; three characters of an id are enough if no other has them",
            ),
        ),
        Found::Many(some) => Err(Failure::could_not_run(format!(
            "{asked} fits several runs:\n  {}",
            some.join("\n  ")
        ))
        .hint("give more of the id")),
    }
}

/// A run that has no such child.
pub(super) fn no_such_child(stream: &StreamId, scope: &str) -> Failure {
    let words = format!("{} has no child {scope}", stream.name());
    Failure::could_not_run(words).hint(format!("ktsu trace {}", stream.name()))
}

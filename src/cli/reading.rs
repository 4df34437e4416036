//! Opening a ledger to look at it: without a lock, whoever owns it.

use std::path::Path;

use ktsu_ledger::hard_links::second_name;
use ktsu_ledger::lock::is_held_elsewhere;
use ktsu_ledger::store::{Reader, SIDE_FILES, StoreError};
use ktsu_ledger::{Ledger, StreamId};

use super::engine::{LedgerLocation, nearby_ledger, quoted};
use super::output::note;
use super::{Common, Failure, text};
use ktsu_history::RunReadError;
use ktsu_history::find::{self, RunMatch};
use ktsu_history::indexed_reader::IndexedReader;

/// What to do about a damaged ledger.
pub(super) const DAMAGED_HINT: &str = "ktsu verify says what is damaged, ktsu start --read-only serves what \
                                  can be read, ktsu restore BACKUP --to FILE brings a copy back";
/// The same where not even that can be served.
pub(super) const UNSERVABLE_HINT: &str =
    "ktsu verify says what is damaged, ktsu restore BACKUP --to FILE brings a copy back";

/// No ledger has fewer bytes.
const MIN_LEDGER_BYTES: u64 = 100;

/// What to do about a file that was a ledger.
pub(super) fn restore_hint(path: &Path) -> String {
    format!(
        "if this was a ledger, bring the file back as it was; or from a copy: move it and what has \
         its name ({}) away, then ktsu restore BACKUP --to {}",
        SIDE_FILES.join(", "),
        quoted(path)
    )
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if let StoreError::NotALedger { path, .. } = &error
            && std::fs::metadata(path).is_ok_and(|found| found.len() < MIN_LEDGER_BYTES)
        {
            return Self::could_not_run(error.to_string()).hint(restore_hint(path));
        }
        let hint = match &error {
            StoreError::Missing(_) => {
                Some("make one: ktsu run kits/hello; or name it: --ledger FILE")
            }
            StoreError::Damaged(_) => Some(DAMAGED_HINT),
            StoreError::WrongRow(_) => Some("the next start makes the list of runs again"),
            StoreError::NotALedger { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::Fenced { .. }
            | StoreError::KeyTwice(_)
            | StoreError::Unknown(_)
            | StoreError::Failed { .. } => None,
        };
        let failure = Self::could_not_run(error.to_string());
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<RunReadError> for Failure {
    fn from(error: RunReadError) -> Self {
        match error {
            RunReadError::Store(error) => error.into(),
            RunReadError::Cut | RunReadError::Fold(_) | RunReadError::Definition(_) => {
                Self::could_not_run(error.to_string()).hint("ktsu verify says what is damaged")
            }
        }
    }
}

/// The ledger a command means, opened for reading.
pub(super) fn open(
    common: &Common,
) -> Result<(IndexedReader<Box<dyn Reader>>, LedgerLocation), Failure> {
    let place = nearby_ledger(common)?;
    Ok((open_at(&place.path)?, place))
}

/// As [`open`], for what is kept elsewhere and must not be an old state.
pub(super) fn open_seeing_all(
    common: &Common,
) -> Result<(IndexedReader<Box<dyn Reader>>, LedgerLocation), Failure> {
    let place = nearby_ledger(common)?;
    must_see_all(&place.path)?;
    Ok((open_at(&place.path)?, place))
}

/// Refuses a ledger of which only an old state may be seen: who owns it has its log by another name.
pub(super) fn must_see_all(ledger: &Path) -> Result<(), Failure> {
    if !is_held_elsewhere(ledger) {
        return Ok(());
    }
    let path = text::line(&ledger.display().to_string()).into_owned();
    let words = format!(
        "somebody owns {path} by another name of the same file, whose log is not seen by this one"
    );
    Err(Failure::could_not_run(words).hint("use the name that its owner uses"))
}

/// A ledger, opened for reading.
pub(super) fn open_at(path: &Path) -> Result<IndexedReader<Box<dyn Reader>>, Failure> {
    let reader = Ledger::open(path).reader()?;
    warn_of_second_name(path);
    Ok(IndexedReader::searching_damage(reader, path))
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
        RunMatch::One(stream, scope) => Ok((stream, scope)),
        RunMatch::None => Err(
            Failure::could_not_run(format!("there is no run {asked}")).hint(
                "ktsu runs lists them; three characters of an id are enough if no other has them",
            ),
        ),
        RunMatch::Many(some) => Err(Failure::could_not_run(format!(
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

//! Opens a ledger for reading, without a lock.

use std::path::Path;

use ktsu_ledger::hard_links::second_name;
use ktsu_ledger::lock::is_held_elsewhere;
use ktsu_ledger::store::{Reader, SIDE_FILES, StoreError};
use ktsu_ledger::{Ledger, StreamId};
use ktsu_projections::run::RunStatus;

use super::engine::{DEFAULT_LEDGER, LedgerLocation, nearby_ledger, quoted};
use super::files::missing_folder;
use super::output::note;
use super::{Common, Failure, text};
use ktsu_history::RunReadError;
use ktsu_history::evals::EVAL;
use ktsu_history::find::{self, RunMatch};
use ktsu_history::indexed_reader::IndexedReader;

/// What to do about a damaged ledger.
pub(super) const DAMAGED_HINT: &str = "to see what is damaged: ktsu verify; to serve what can be read: \
                                  ktsu start --read-only; to restore a backup: ktsu restore BACKUP --to FILE";
/// The same where not even that can be served.
pub(super) const UNSERVABLE_HINT: &str =
    "to see what is damaged: ktsu verify; to restore a backup: ktsu restore BACKUP --to FILE";

/// No ledger has fewer bytes.
const MIN_LEDGER_BYTES: u64 = 100;

/// What to do about a file that was a ledger.
pub(super) fn restore_hint(path: &Path) -> String {
    format!(
        "if this was a ledger, put the original file back; or move it and its side files ({}) \
         away, then: ktsu restore BACKUP --to {}",
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
                Some("create one: ktsu run kits/hello; or name one: --ledger FILE")
            }
            StoreError::Damaged(_) => Some(DAMAGED_HINT),
            StoreError::WrongRow(_) => Some("the next start rebuilds the list of runs"),
            StoreError::NotALedger { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::Fenced { .. }
            | StoreError::KeyTwice(_)
            | StoreError::Unknown(_)
            | StoreError::Failed { .. } => None,
        };
        let no_folder = match &error {
            // The usual one is created with its folder.
            StoreError::Missing(path) if path != Path::new(DEFAULT_LEDGER) => missing_folder(path),
            _ => None,
        };
        let failure = match no_folder {
            Some(folder) => {
                let words = format!("{error}: there is no folder {}", folder.display());
                Self::could_not_run(words)
            }
            None => Self::of(error),
        };
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
                Self::could_not_run(error.to_string()).hint("to see what is damaged: ktsu verify")
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

/// As [`open`], but refuses a ledger whose latest frames may not be visible: for copies and
/// exports.
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
        "{path} is in use through another name of the file, so its latest frames are not visible here"
    );
    Err(Failure::could_not_run(words).hint("use the path that its owner uses"))
}

/// A ledger, opened for reading.
pub(super) fn open_at(path: &Path) -> Result<IndexedReader<Box<dyn Reader>>, Failure> {
    let reader = Ledger::open(path).reader()?;
    warn_of_second_name(path);
    Ok(IndexedReader::searching_damage(reader, path))
}

/// Warns if the file has another name, whose log is not visible here.
pub(super) fn warn_of_second_name(ledger: &Path) {
    if let Some(found) = second_name(ledger) {
        let path = ledger.display().to_string();
        note(&format!(
            "warning: {} may be out of date: {found}, and its log belongs to one name only",
            text::line(&path)
        ));
    }
}

/// Finds a run by its id or a part of it, with the scope of an inline child if one is given.
pub(super) fn find_run(reader: &dyn Reader, given: &str) -> Result<(StreamId, String), Failure> {
    let kinds = ["run:", "branch:", "recompute:"];
    let bare = kinds.iter().find_map(|kind| given.strip_prefix(kind));
    let given = bare.unwrap_or(given);
    if is_eval(given) {
        let words = format!("{given} is an eval, and no run");
        return Err(Failure::could_not_run(words).hint(format!("ktsu evals {given}")));
    }
    if given.is_empty() {
        return Err(Failure::could_not_run("the run id is empty").hint("ktsu runs lists them"));
    }
    found(find::run(reader, given)?, given, "run")
}

/// The status of a run, if it has not ended.
pub(super) fn unfinished(
    reader: &dyn Reader,
    run: &StreamId,
) -> Result<Option<RunStatus>, StoreError> {
    let row = reader.row(run)?;
    let status = row.as_ref().map(|row| row.status.as_str());
    let all = [RunStatus::Pending, RunStatus::Running, RunStatus::Waiting];
    Ok(all.into_iter().find(|one| Some(one.as_str()) == status))
}

/// What was found of a name, or why nothing is meant by it.
fn found(found: RunMatch, given: &str, what: &str) -> Result<(StreamId, String), Failure> {
    match found {
        RunMatch::One(stream, scope) => Ok((stream, scope)),
        RunMatch::None => {
            let words = format!("there is no {what} {given}");
            let hint =
                format!("ktsu {what}s lists them; at least three characters of an id are needed");
            Err(Failure::could_not_run(words).hint(hint))
        }
        RunMatch::Removed(removed) => {
            let words = find::removal_in_words(&removed);
            Err(Failure::could_not_run(words).hint(find::REMOVED_HINT))
        }
        RunMatch::Many(some, count) => {
            let more = match count - some.len() {
                0 => String::new(),
                more => format!("\n  and {more} more"),
            };
            let words = format!(
                "{given} matches several {what}s:\n  {}{more}",
                some.join("\n  ")
            );
            Err(Failure::could_not_run(words).hint("give more of the id"))
        }
    }
}

/// Finds an eval by its id or a part of it.
pub(super) fn find_eval(reader: &dyn Reader, given: &str) -> Result<StreamId, Failure> {
    Ok(found(find::eval(reader, given)?, given, "eval")?.0)
}

/// Finds a run as [`find_run`] does, or an eval by what its id begins with: for commands that show
/// frames.
pub(super) fn find_record(reader: &dyn Reader, given: &str) -> Result<(StreamId, String), Failure> {
    match is_eval(given) {
        true => Ok((find_eval(reader, given)?, String::new())),
        false => find_run(reader, given),
    }
}

fn is_eval(given: &str) -> bool {
    given
        .strip_prefix("eval:")
        .unwrap_or(given)
        .starts_with(EVAL)
}

/// A run that has no such child.
pub(super) fn no_such_child(stream: &StreamId, scope: &str) -> Failure {
    let words = format!("{} has no child {scope}", stream.name());
    Failure::could_not_run(words).hint(format!("ktsu trace {}", stream.name()))
}

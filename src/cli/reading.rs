//! Opens a ledger for reading, without a lock.

use ktsu_ledger::hard_links::second_name;
use ktsu_ledger::lock::is_held_elsewhere;
use ktsu_ledger::store::Reader;
use ktsu_ledger::{Ledger, LedgerPlace};

use super::location::{LedgerLocation, nearby_ledger};
use super::output::note;
use super::{Common, Failure, text};
use ktsu_history::indexed_reader::IndexedReader;

/// The ledger a command means, opened for reading.
pub(super) fn open(
    common: &Common,
) -> Result<(IndexedReader<Box<dyn Reader>>, LedgerLocation), Failure> {
    let place = nearby_ledger(common)?;
    Ok((open_at(&place.ledger)?, place))
}

/// As [`open`], but refuses a ledger whose latest frames may not be visible: for copies and
/// exports.
pub(super) fn open_seeing_all(
    common: &Common,
) -> Result<(IndexedReader<Box<dyn Reader>>, LedgerLocation), Failure> {
    let place = nearby_ledger(common)?;
    must_see_all(&place.ledger)?;
    Ok((open_at(&place.ledger)?, place))
}

/// Refuses a ledger of which only an old state may be seen: who owns it has its log by another name.
pub(super) fn must_see_all(ledger: &LedgerPlace) -> Result<(), Failure> {
    if !ledger.file().is_some_and(is_held_elsewhere) {
        return Ok(());
    }
    let path = text::line(&ledger.to_string()).into_owned();
    let words = format!(
        "{path} is in use through another name of the file, so its latest frames are not visible here"
    );
    Err(Failure::could_not_run(words).hint("use the path that its owner uses"))
}

/// A ledger, opened for reading.
pub(super) fn open_at(ledger: &LedgerPlace) -> Result<IndexedReader<Box<dyn Reader>>, Failure> {
    let reader = Ledger::open(ledger).reader()?;
    warn_of_second_name(ledger);
    Ok(match ledger.file() {
        Some(path) => IndexedReader::searching_damage(reader, path),
        None => IndexedReader::new(reader),
    })
}

/// Warns if the file has another name, whose log is not visible here.
pub(super) fn warn_of_second_name(ledger: &LedgerPlace) {
    if let Some(found) = ledger.file().and_then(second_name) {
        let path = ledger.to_string();
        note(&format!(
            "warning: {} may be out of date: {found}, and its log belongs to one name only",
            text::line(&path)
        ));
    }
}

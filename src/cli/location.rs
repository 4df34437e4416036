//! The place of the ledger of a command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Common, Failure, folder};
use ktsu_assemble::{self as assemble, LedgerPlace};
use ktsu_environment::Environment;
use ktsu_opening::environment::{load_environment, process_environment};
use ktsu_opening::ledger::DEFAULT_LEDGER;
use ktsu_opening::quoting::quoted;

/// A ledger, as commands name it.
#[derive(Debug, Clone)]
pub(super) struct LedgerLocation {
    /// Its place.
    pub(super) ledger: LedgerPlace,
    /// The text to add to a command so that it finds the ledger: nothing, or ` --ledger FILE`.
    pub(super) flag: String,
}

/// The ledger: the one named, else the environment's, else the usual one below the working
/// directory.
pub(super) fn ledger_location(
    common: &Common,
    environment: Option<&Environment>,
) -> Result<LedgerLocation, Failure> {
    let found = |environment: Option<&Environment>| {
        let named = environment.and_then(|environment| environment.ledger.as_ref());
        named.map_or_else(|| PathBuf::from(DEFAULT_LEDGER), PathBuf::from)
    };
    let given = match &common.ledger {
        Some(given) => given.clone(),
        None => found(environment),
    };
    // What a command without the flag would look at.
    let usual = match std::env::var_os("KTSU_LEDGER").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => found(nearby_environment().ok().flatten().as_ref()),
    };
    let is_usual = given == usual;
    let ledger = ledger_at(given)?;
    let flag = match is_usual {
        true => String::new(),
        false => format!(" --ledger {}", quoted(Path::new(&ledger.to_string()))),
    };
    Ok(LedgerLocation { ledger, flag })
}

/// The ledger that a text names.
pub(super) fn ledger_at(text: PathBuf) -> Result<LedgerPlace, Failure> {
    let place = assemble::place_of(text, &process_environment());
    place.map_err(|refused| Failure::could_not_run(refused.to_string()).hint("--ledger FILE"))
}

/// The ledger a command without a kit means.
pub(super) fn nearby_ledger(common: &Common) -> Result<LedgerLocation, Failure> {
    let environment = match common.ledger {
        Some(_) => None,
        None => nearby_environment()?,
    };
    ledger_location(common, environment.as_ref())
}

fn nearby_environment() -> Result<Option<Environment>, Failure> {
    let kit = folder::of_process().unwrap_or_else(|| PathBuf::from("."));
    load_environment(environment_of_process().as_deref(), &kit)
}

/// The environment file that `KTSU_ENV` names.
pub(super) fn environment_of_process() -> Option<PathBuf> {
    let named = std::env::var_os("KTSU_ENV").filter(|path| !path.is_empty());
    named.map(PathBuf::from)
}

/// The process environment of a command that signs without a kit.
pub(super) fn signing_environment() -> Result<BTreeMap<String, String>, Failure> {
    let mut process = process_environment();
    let put = assemble::values::put_signing_key(nearby_environment()?.as_ref(), &mut process);
    put.map_err(|refused| Failure::could_not_run(refused.to_string()))?;
    Ok(process)
}

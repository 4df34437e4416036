//! The place of the ledger of a command.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Common, Failure, folder};
use ktsu_assemble as assemble;
use ktsu_environment::Environment;
use ktsu_opening::environment::{load_environment, process_environment};
use ktsu_opening::ledger::DEFAULT_LEDGER;
use ktsu_opening::quoting::quoted;

/// A ledger, as commands name it.
#[derive(Debug, Clone)]
pub(super) struct LedgerLocation {
    /// The file.
    pub(super) path: PathBuf,
    /// The text to add to a command so that it finds the ledger: nothing, or ` --ledger FILE`.
    pub(super) flag: String,
}

/// The ledger: the one named, else the environment's, else the usual one below the working
/// directory.
pub(super) fn ledger_location(
    common: &Common,
    environment: Option<&Environment>,
) -> LedgerLocation {
    let found = |environment: Option<&Environment>| {
        let named = environment.and_then(|environment| environment.ledger.as_ref());
        named.map_or_else(|| PathBuf::from(DEFAULT_LEDGER), PathBuf::from)
    };
    let path = match &common.ledger {
        Some(path) => path.clone(),
        None => found(environment),
    };
    // What a command without the flag would look at.
    let usual = match std::env::var_os("KTSU_LEDGER").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => found(nearby_environment().ok().flatten().as_ref()),
    };
    let flag = if path == usual {
        String::new()
    } else {
        format!(" --ledger {}", quoted(&path))
    };
    LedgerLocation { path, flag }
}

/// The ledger a command without a kit means.
pub(super) fn nearby_ledger(common: &Common) -> Result<LedgerLocation, Failure> {
    let environment = match common.ledger {
        Some(_) => None,
        None => nearby_environment()?,
    };
    Ok(ledger_location(common, environment.as_ref()))
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

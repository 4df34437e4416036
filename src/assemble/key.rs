//! The key for the tokens of attempts (decision W1): in a file next to a ledger, or derived from the
//! signing key where engines of several machines share a ledger.

use std::collections::BTreeMap;
use std::path::Path;

use super::{LedgerPlace, OpenEngineError, Setup, values};
use ktsu_evidence::{facts, signing_key};
use ktsu_ledger::Ledger;
use ktsu_orchestrator::TokenKey;
use ktsu_secret::file;

/// What the derived key is for.
const PURPOSE: &str = "ktsu 2026-11-27 tokens of attempts";

/// The key for the tokens of attempts: of a private file next to the ledger, which is created where
/// there is none; of a shared ledger, the same wherever its signing key is.
pub(super) fn of(
    ledger: &LedgerPlace,
    process: &BTreeMap<String, String>,
) -> Result<TokenKey, OpenEngineError> {
    if ledger.is_shared() {
        return derived(process);
    }
    let failed = |what: &str, path: &Path, why: &dyn std::fmt::Display| {
        OpenEngineError::Other(format!("the key file {} {what}: {why}", path.display()))
    };
    let mut key = [0; 32];
    let LedgerPlace::File(path) = ledger else {
        getrandom::fill(&mut key).map_err(|error| OpenEngineError::Other(error.to_string()))?;
        return Ok(TokenKey::new(key));
    };
    let path = file::sibling_path(path, ".key");
    match std::fs::read(&path) {
        Ok(bytes) => match <[u8; 32]>::try_from(bytes.as_slice()) {
            Ok(key) => {
                file::restrict_to_owner(&path)
                    .map_err(|error| failed("is open to others", &path, &error))?;
                Ok(TokenKey::new(key))
            }
            Err(_) => Err(failed(
                "is damaged",
                &path,
                &"remove it to have a new one created",
            )),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            getrandom::fill(&mut key).map_err(|error| OpenEngineError::Other(error.to_string()))?;
            file::write(&path, &key).map_err(|error| failed("cannot be written", &path, &error))?;
            Ok(TokenKey::new(key))
        }
        Err(error) => Err(failed("cannot be read", &path, &error)),
    }
}

/// Refuses a setup of a shared ledger whose signing key is missing, or is not the one in force.
///
/// # Errors
/// [`OpenEngineError`].
pub fn check_keys(setup: &Setup) -> Result<(), OpenEngineError> {
    let mut process = setup.process.clone();
    values::put_signing_key(setup.environment.as_ref(), &mut process)?;
    if !setup.ledger.is_shared() {
        return Ok(());
    }
    derived(&process)?;
    let key = signing_key::load_or_create(None, &process);
    let key = key.map_err(|error| OpenEngineError::Other(error.to_string()))?;
    let keys = facts::read(Ledger::open(&setup.ledger).reader()?.as_ref())?.keys;
    let ours = key.public(keys.origin());
    match keys.in_force() {
        Some(known) if known.key != ours => Err(OpenEngineError::Other(format!(
            "the signing key is {}, and {} is in force: every engine of a ledger needs the same one; \
             an engine that starts without --standby puts another in force",
            ours.id_text(),
            known.key.id_text()
        ))),
        Some(_) | None => Ok(()),
    }
}

fn derived(process: &BTreeMap<String, String>) -> Result<TokenKey, OpenEngineError> {
    let key = signing_key::derived(process, PURPOSE);
    let key = key.map_err(|error| OpenEngineError::Other(error.to_string()))?;
    key.map(TokenKey::new).ok_or_else(|| {
        let variable = signing_key::VARIABLE;
        OpenEngineError::Other(format!(
            "a ledger on a server needs its signing key in {variable}, the same for every engine of \
             it: `openssl rand -base64 32` makes one; or in the file that evidence.signing_key of the \
             environment names"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_key_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = LedgerPlace::File(folder.path().join("ledger.db"));
        let key = folder.path().join("ledger.db.key");
        of(&ledger, &BTreeMap::new()).unwrap();
        assert_eq!(mode(&key), 0o600);
        let made = std::fs::read(&key).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o666)).unwrap();
        of(&ledger, &BTreeMap::new()).unwrap();
        assert_eq!(mode(&key), 0o600);
        assert_eq!(std::fs::read(&key).unwrap(), made);
    }

    #[test]
    fn a_damaged_key_is_reported_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = LedgerPlace::File(folder.path().join("ledger.db"));
        std::fs::write(folder.path().join("ledger.db.key"), "short").unwrap();
        let refused = of(&ledger, &BTreeMap::new()).err().unwrap().to_string();
        assert!(
            refused.contains("ledger.db.key is damaged: remove it"),
            "{refused}"
        );
    }
}

//! The key file next to a ledger, for the tokens of attempts (decision W1).

use std::path::Path;

use super::{LedgerPlace, OpenEngineError};
use ktsu_orchestrator::TokenKey;
use ktsu_secret::file;

/// Loads the key for the tokens of attempts from a private file next to the ledger, or creates it
/// (decision W1).
pub(super) fn of(ledger: &LedgerPlace) -> Result<TokenKey, OpenEngineError> {
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
        of(&ledger).unwrap();
        assert_eq!(mode(&key), 0o600);
        let made = std::fs::read(&key).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o666)).unwrap();
        of(&ledger).unwrap();
        assert_eq!(mode(&key), 0o600);
        assert_eq!(std::fs::read(&key).unwrap(), made);
    }

    #[test]
    fn a_damaged_key_is_reported_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = LedgerPlace::File(folder.path().join("ledger.db"));
        std::fs::write(folder.path().join("ledger.db.key"), "short").unwrap();
        let refused = of(&ledger).err().unwrap().to_string();
        assert!(
            refused.contains("ledger.db.key is damaged: remove it"),
            "{refused}"
        );
    }
}

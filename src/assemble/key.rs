//! The key file beside a ledger: what the tokens of attempts are made with (decision W1).

use std::path::{Path, PathBuf};

use super::{LedgerPlace, NotOpened};
use crate::orchestrator::TokenKey;

/// The key behind the tokens of attempts: in a file beside the ledger that nobody else reads, made
/// where there is none (decision W1).
pub(super) fn of(ledger: &LedgerPlace) -> Result<TokenKey, NotOpened> {
    let failed = |what: &str, path: &Path, why: &dyn std::fmt::Display| {
        NotOpened::Other(format!("the key file {} {what}: {why}", path.display()))
    };
    let mut key = [0; 32];
    let LedgerPlace::File(path) = ledger else {
        getrandom::fill(&mut key).map_err(|error| NotOpened::Other(error.to_string()))?;
        return Ok(TokenKey::new(key));
    };
    let mut name = path.clone().into_os_string();
    name.push(".key");
    let path = PathBuf::from(name);
    match std::fs::read(&path) {
        Ok(bytes) => match <[u8; 32]>::try_from(bytes.as_slice()) {
            Ok(key) => {
                keep_to_owner(&path).map_err(|error| failed("is open to others", &path, &error))?;
                Ok(TokenKey::new(key))
            }
            Err(_) => Err(failed(
                "is damaged",
                &path,
                &"remove it, and a new one is made",
            )),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            getrandom::fill(&mut key).map_err(|error| NotOpened::Other(error.to_string()))?;
            write_secret(&path, &key)
                .map_err(|error| failed("cannot be written", &path, &error))?;
            Ok(TokenKey::new(key))
        }
        Err(error) => Err(failed("cannot be read", &path, &error)),
    }
}

/// Takes a file away from everybody but its owner, whatever was done to it.
fn keep_to_owner(path: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if std::fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

/// Writes a file only its owner can read; whole, or not at all.
fn write_secret(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let part = path.with_extension("key.part");
    let mut file = options.open(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&part, path)
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
    fn a_damaged_key_is_told_with_the_way_out() {
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

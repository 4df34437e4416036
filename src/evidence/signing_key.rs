//! The key that signs checkpoints: `KTSU_SIGNING_KEY`, or a file beside the ledger.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ktsu_ledger::Hash;
use ktsu_ledger::note::SigningKey;
use zeroize::Zeroizing;

use ktsu_secret::file;

/// The variable that holds the key.
pub const VARIABLE: &str = "KTSU_SIGNING_KEY";

/// 32 bytes that nobody sees.
type Seed = Zeroizing<[u8; 32]>;

/// The reason why there is no key. It never quotes one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SigningKeyError(String);

/// The file beside a ledger.
pub fn path(ledger: &Path) -> PathBuf {
    file::sibling_path(ledger, ".signing-key")
}

/// The path of a new key until the ledger knows it.
fn next_path(ledger: &Path) -> PathBuf {
    file::sibling_path(ledger, ".signing-key.next")
}

/// The key of a ledger, made where there is none. A ledger in memory has one for its lifetime.
///
/// # Errors
/// [`SigningKeyError`].
pub fn load_or_create(
    ledger: Option<&Path>,
    process: &BTreeMap<String, String>,
) -> Result<SigningKey, SigningKeyError> {
    let given = process.get(VARIABLE).filter(|text| !text.is_empty());
    let seed = match (given, ledger) {
        (Some(text), _) => parse(text)?,
        (None, None) => random()?,
        (None, Some(ledger)) => match read(&path(ledger))? {
            Some(seed) => seed,
            None => {
                let seed = random()?;
                write(&path(ledger), &seed)?;
                seed
            }
        },
    };
    Ok(SigningKey::from_seed(&seed))
}

/// Another key, for this purpose alone, of the key that [`VARIABLE`] holds; `None` if it holds none.
///
/// # Errors
/// [`SigningKeyError`].
pub fn derived(
    process: &BTreeMap<String, String>,
    purpose: &str,
) -> Result<Option<[u8; 32]>, SigningKeyError> {
    let given = process.get(VARIABLE).filter(|text| !text.is_empty());
    let seed = given.map(|text| parse(text)).transpose()?;
    Ok(seed.map(|seed| blake3::derive_key(purpose, seed.as_slice())))
}

/// The key of a file as [`VARIABLE`] would hold it: text, or the 32 bytes of a file beside a ledger.
///
/// # Errors
/// What the system says, or that it holds no key.
pub fn text_of(path: &Path) -> std::io::Result<String> {
    let bytes = Zeroizing::new(std::fs::read(path)?);
    if let Ok(seed) = <[u8; 32]>::try_from(bytes.as_slice()) {
        return Ok(BASE64.encode(seed));
    }
    let text = std::str::from_utf8(&bytes).ok().map(str::trim);
    let text = text.filter(|text| parse(text).is_ok());
    text.map(str::to_owned).ok_or_else(|| {
        let words = "holds no key: 32 bytes, or as `openssl rand -base64 32` writes them";
        std::io::Error::new(std::io::ErrorKind::InvalidData, words)
    })
}

/// The key that is to follow: it becomes the ledger's with [`promote`].
///
/// # Errors
/// [`SigningKeyError`].
pub fn make_next(ledger: &Path) -> Result<SigningKey, SigningKeyError> {
    let seed = random()?;
    write(&next_path(ledger), &seed)?;
    Ok(SigningKey::from_seed(&seed))
}

/// A key that was made and never took its place, because something stopped in between.
///
/// # Errors
/// [`SigningKeyError`].
pub fn pending(ledger: &Path) -> Result<Option<SigningKey>, SigningKeyError> {
    Ok(read(&next_path(ledger))?.map(|seed| SigningKey::from_seed(&seed)))
}

/// Puts the next key in the place of the one before, which is gone.
///
/// # Errors
/// [`SigningKeyError`].
pub fn promote(ledger: &Path) -> Result<(), SigningKeyError> {
    let moved = std::fs::rename(next_path(ledger), path(ledger));
    moved.map_err(|error| SigningKeyError(format!("the new key cannot take its place: {error}")))
}

/// 32 bytes in hexadecimal digits or base64.
fn parse(text: &str) -> Result<Seed, SigningKeyError> {
    let text = text.trim();
    if let Ok(hash) = text.to_ascii_lowercase().parse::<Hash>() {
        return Ok(Zeroizing::new(*hash.as_bytes()));
    }
    let bytes = BASE64.decode(text).map(Zeroizing::new).ok();
    let seed = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
    seed.map(Zeroizing::new).ok_or_else(|| {
        let words = format!(
            "{VARIABLE} is not a key: give 32 bytes in base64 or hexadecimal digits, as \
             `openssl rand -base64 32` makes them"
        );
        SigningKeyError(words)
    })
}

fn read(path: &Path) -> Result<Option<Seed>, SigningKeyError> {
    let failed = |what: &str| SigningKeyError(format!("the key file {} {what}", path.display()));
    let bytes = match std::fs::read(path) {
        Ok(bytes) => Zeroizing::new(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&format!("cannot be read: {error}"))),
    };
    let kept = file::restrict_to_owner(path);
    kept.map_err(|error| failed(&format!("is open to others: {error}")))?;
    let seed = <[u8; 32]>::try_from(bytes.as_slice());
    let damaged =
        "is damaged: restore it, or remove it to create a new key that no earlier key vouches for";
    seed.map(|seed| Some(Zeroizing::new(seed)))
        .map_err(|_| failed(damaged))
}

fn write(path: &Path, seed: &[u8; 32]) -> Result<(), SigningKeyError> {
    let failed = |error| {
        SigningKeyError(format!(
            "the key file {} cannot be written: {error}",
            path.display()
        ))
    };
    file::write(path, seed).map_err(failed)
}

fn random() -> Result<Seed, SigningKeyError> {
    let mut seed = Zeroizing::new([0; 32]);
    let filled = getrandom::fill(&mut *seed);
    filled.map_err(|error| SigningKeyError(format!("no key can be made: {error}")))?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn public(key: &SigningKey) -> String {
        key.public("x").to_base64()
    }

    #[test]
    fn the_key_is_made_once_rotated_whole_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.db");
        let none = BTreeMap::new();
        let first = public(&load_or_create(Some(&ledger), &none).unwrap());
        assert_eq!(
            public(&load_or_create(Some(&ledger), &none).unwrap()),
            first
        );
        let mode = std::fs::metadata(path(&ledger))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let next = public(&make_next(&ledger).unwrap());
        assert_eq!(
            public(&load_or_create(Some(&ledger), &none).unwrap()),
            first
        );
        assert_eq!(
            pending(&ledger).unwrap().as_ref().map(public),
            Some(next.clone())
        );
        promote(&ledger).unwrap();
        assert_eq!(public(&load_or_create(Some(&ledger), &none).unwrap()), next);
        assert!(pending(&ledger).unwrap().is_none());
    }

    #[test]
    fn a_key_from_the_environment_is_read_both_ways_and_never_quoted() {
        let hex = "ab".repeat(32);
        let base64 = BASE64.encode([0xab; 32]);
        let of = |text: &str| {
            load_or_create(
                None,
                &BTreeMap::from([(VARIABLE.to_owned(), text.to_owned())]),
            )
        };
        assert_eq!(public(&of(&hex).unwrap()), public(&of(&base64).unwrap()));
        let refused = of("hunter2").unwrap_err().to_string();
        assert!(
            refused.contains(VARIABLE) && !refused.contains("hunter2"),
            "{refused}"
        );
    }
}

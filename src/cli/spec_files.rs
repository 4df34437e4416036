//! Files beside a spec that it names, such as scripts.

use std::fs;
use std::path::Path;

/// The bytes of a file in a folder or below it, of at most so many MiB. `what`: what it is, in words.
///
/// # Errors
/// Why it is not read, in words for people.
pub(super) fn read(
    folder: &Path,
    relative: &str,
    what: &str,
    most_mib: u64,
) -> Result<Vec<u8>, String> {
    let found = folder.canonicalize().and_then(|folder| {
        let file = folder.join(relative).canonicalize()?;
        Ok((file.starts_with(&folder), file))
    });
    let missing = |_| format!("there is no {what} {}", folder.join(relative).display());
    let (is_within, file) = found.map_err(missing)?;
    if !is_within {
        return Err(format!(
            "the {what} {relative} is a link that leads out of the folder of the spec"
        ));
    }
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > most_mib << 20 {
        return Err(format!(
            "the {what} {relative} is not a file of at most {most_mib} MiB"
        ));
    }
    fs::read(&file).map_err(|error| format!("cannot read the {what} {relative}: {error}"))
}

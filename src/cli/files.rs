//! Files that commands write.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::Failure;

/// The failure of a file that cannot be read.
pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::could_not_run(format!("cannot read {}: {error}", path.display()))
}

/// The failure of a file that cannot be written.
pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::could_not_run(format!("cannot write {}: {error}", path.display()))
}

/// Creates the folder of a file.
pub(super) fn create_folder_of(file: &Path) -> std::io::Result<()> {
    let folder = file.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), std::fs::create_dir_all)
}

/// Writes a file whole or not at all.
pub(super) fn put(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| unwritable(file, &error);
    create_folder_of(file).map_err(failed)?;
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = std::fs::File::create(&beside)
        .and_then(|mut open| open.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&beside, file));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
}

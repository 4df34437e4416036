//! Files that commands read and write.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::Failure;

/// The failure of a file that cannot be read.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let why = why(path, error);
    Failure::could_not_run(format!("cannot read {}: {why}", path.display()))
}

/// The failure of a file that cannot be written.
pub fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let failure =
        |why: String| Failure::could_not_run(format!("cannot write {}: {why}", path.display()));
    match missing_folder(path) {
        Some(folder) if error.kind() == ErrorKind::NotFound => {
            let folder = folder.display();
            failure(format!("the folder {folder} does not exist"))
                .hint(format!("mkdir -p {folder}"))
        }
        _ => failure(why(path, error)),
    }
}

/// The folder of a file, if there is none.
pub fn missing_folder(file: &Path) -> Option<&Path> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.filter(|folder| !folder.exists())
}

/// The fault of a file, in our words where they say more than the system's.
fn why(path: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::AlreadyExists => "it already exists".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::IsADirectory => "it is a folder".to_owned(),
        ErrorKind::NotADirectory => {
            let folder = path.parent().unwrap_or(path);
            format!("{} is not a folder", folder.display())
        }
        ErrorKind::StorageFull => "the disk is full".to_owned(),
        _ => error.to_string(),
    }
}

/// Creates the folder of a file.
pub fn create_folder_of(file: &Path) -> std::io::Result<()> {
    let folder = file.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), std::fs::create_dir_all)
}

/// Writes a file whole or not at all.
pub fn put(file: &Path, text: &str) -> Result<(), Failure> {
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

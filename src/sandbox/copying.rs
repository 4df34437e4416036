//! Copying a folder for programs.

use std::fs::{self, File, FileTimes, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::folder::{FolderError, PrivateFolder};
use crate::interrupt::Interrupt;

/// The most bytes that are copied.
const MAX_BYTES: u64 = 1 << 30;

/// The most files, folders and links that are copied.
const MAX_COPIED: u64 = 100_000;

/// The bytes and files that may still be copied.
struct Budget {
    bytes: u64,
    files: u64,
}

/// Copies what is in a folder to the workspace of another: files, folders, and links as links.
pub(crate) fn copy(
    original: &Path,
    folder: &PrivateFolder,
    interrupt: &Interrupt,
) -> Result<(), FolderError> {
    let mut budget = Budget {
        bytes: MAX_BYTES,
        files: MAX_COPIED,
    };
    let own = folder.root().canonicalize()?;
    let mut folders = vec![(original.to_path_buf(), folder.workspace())];
    let mut made: Vec<(PathBuf, fs::Metadata)> = Vec::new();
    while let Some((from, to)) = folders.pop() {
        let entries = fs::read_dir(&from).map_err(|error| failed(&from, error))?;
        for entry in entries {
            if interrupt.is_set() {
                return Err(FolderError::Interrupted);
            }
            let path = entry.map_err(|error| failed(&from, error))?.path();
            let target = to.join(path.file_name().unwrap_or_default());
            let about = path.symlink_metadata();
            let about = about.map_err(|error| failed(&path, error))?;
            budget.spend(&about)?;
            // The original may hold the folder that the copy is made in.
            if about.is_dir() && path.canonicalize().is_ok_and(|path| path == own) {
                continue;
            }
            let copied = copy_one(&path, &target, &about);
            if copied.map_err(|error| failed(&path, error))? {
                folder.give(&target)?;
            }
            if about.is_dir() {
                folders.push((path, target.clone()));
                made.push((target, about));
            } else if about.is_file() {
                like(&target, &about)?;
            }
        }
    }
    // What is copied into a folder changes its time.
    for (target, about) in made.iter().rev() {
        like(target, about)?;
    }
    Ok(())
}

impl Budget {
    fn spend(&mut self, about: &fs::Metadata) -> Result<(), FolderError> {
        let files = self.files.checked_sub(1);
        self.files = files.ok_or(FolderError::TooMany(MAX_COPIED))?;
        let bytes = if about.is_file() { about.len() } else { 0 };
        let bytes = self.bytes.checked_sub(bytes);
        self.bytes = bytes.ok_or(FolderError::TooLarge(MAX_BYTES))?;
        Ok(())
    }
}

/// Returns `true` if there was anything to copy.
fn copy_one(path: &Path, target: &Path, about: &fs::Metadata) -> io::Result<bool> {
    let kind = about.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(path)?, target)?;
    } else if kind.is_dir() {
        fs::create_dir(target)?;
    } else if kind.is_file() {
        fs::copy(path, target)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Gives a copy the time and the mode of its original. Its owner can change it, as he could there.
fn like(target: &Path, about: &fs::Metadata) -> io::Result<()> {
    let own = if about.is_dir() { 0o700 } else { 0o600 };
    let mode = about.permissions().mode() & 0o777 | own;
    fs::set_permissions(target, Permissions::from_mode(mode))?;
    let times = FileTimes::new().set_modified(about.modified()?);
    File::open(target)?.set_times(times)
}

fn failed(path: &Path, error: io::Error) -> FolderError {
    FolderError::Copy(path.to_path_buf(), error)
}

//! Private folders that killed processes have left, as their locks show: no process holds them.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use crate::folder::{self, FIRST_USER, LAST_USER, LOCK, NEW_LOCK, PREFIX, USERS};

/// Removes the private folders of this user that no process uses any more. Links are not followed, and
/// what is not certain to be such a folder is left.
pub(crate) fn remove(temporary: &Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let root = entry.path();
        let is_own = |about: Metadata| about.is_dir() && is_own(about.uid());
        if root.symlink_metadata().is_ok_and(is_own)
            && let Some(_lock) = unused(&root)
        {
            folder::remove(&root);
        }
    }
}

/// Returns `true` if a folder of this user may be of a program of this process's user.
fn is_own(owner: u32) -> bool {
    let own = rustix::process::geteuid();
    let of_programs = FIRST_USER..FIRST_USER + USERS;
    let is_of_program = of_programs.contains(&owner) || owner == LAST_USER;
    owner == own.as_raw() || (own.is_root() && is_of_program)
}

/// The lock of a folder that no process uses, held from now on. It is the folder itself where its process was
/// killed before it had made the lock, or after it had removed everything.
fn unused(root: &Path) -> Option<File> {
    match open(&root.join(LOCK), OFlags::empty()) {
        Ok(lock) => {
            let opened = lock.metadata().ok()?;
            let own = rustix::process::geteuid().as_raw();
            let is_lock = opened.is_file() && opened.uid() == own;
            (is_lock && is_taken(&lock, &root.join(LOCK))).then_some(lock)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let itself = open(root, OFlags::DIRECTORY).ok()?;
            (is_taken(&itself, root) && is_begun_at_most(root)).then_some(itself)
        }
        Err(_) => None,
    }
}

/// Returns `true` if a folder has nothing but, perhaps, the file that becomes its lock.
fn is_begun_at_most(root: &Path) -> bool {
    let entries = fs::read_dir(root).ok();
    entries.is_some_and(|mut all| all.all(|one| one.is_ok_and(|it| it.file_name() == NEW_LOCK)))
}

/// Opens a path, unless it is a link, without waiting for the other end of a pipe.
fn open(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | more;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).open(path)
}

/// Locks what no process has locked, unless another process has removed it in between.
fn is_taken(file: &File, path: &Path) -> bool {
    file.try_lock().is_ok() && folder::is_at(file, path)
}

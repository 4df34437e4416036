//! Private folders that killed processes have left, as their locks show: no process holds them.

use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use crate::folder::{self, FIRST_USER, LAST_USER, LOCK, PREFIX, USERS};

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

/// Whether a folder of this user may be of a program of this process's user.
fn is_own(owner: u32) -> bool {
    let own = rustix::process::geteuid();
    let of_programs = FIRST_USER..FIRST_USER + USERS;
    let is_of_program = of_programs.contains(&owner) || owner == LAST_USER;
    owner == own.as_raw() || (own.is_root() && is_of_program)
}

/// The lock of a folder that no process uses, held from now on.
fn unused(root: &Path) -> Option<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let flags = i32::try_from(flags.bits()).ok()?;
    let lock = options.read(true).custom_flags(flags);
    let path = root.join(LOCK);
    let lock = lock.open(&path).ok()?;
    let opened = lock.metadata().ok()?;
    let own = rustix::process::geteuid().as_raw();
    if !opened.is_file() || opened.uid() != own || lock.try_lock().is_err() {
        return None;
    }
    // Another process may have removed it in between.
    let there = path.symlink_metadata().ok()?;
    let is_there = (there.dev(), there.ino()) == (opened.dev(), opened.ino());
    is_there.then_some(lock)
}

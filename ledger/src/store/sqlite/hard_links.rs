//! Detects further names of a ledger file.
//!
//! The write-ahead log and the lock file are found by the name of the ledger, in its folder. A
//! process that opens the same file by a second name finds neither: it would miss what is only in
//! the log, and write without it. A symlink is harmless, since it is resolved first, and so is a
//! mount of the whole folder. A hard link and a mount of the single file are not.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::files::Paths;

/// A sign that a file has a second name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecondName {
    /// The file has this many hard links.
    HardLinks(u64),
    /// The file is mounted by itself, so it has another name elsewhere.
    Mounted,
}

impl fmt::Display for SecondName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HardLinks(count) => write!(f, "the file has {count} names (hard links)"),
            Self::Mounted => f.write_str("the file is mounted by itself (a bind mount)"),
        }
    }
}

/// Looks for a sign that a ledger file has a second name. Nothing is opened, since closing a
/// descriptor of the file would drop the locks that SQLite has on it in this process.
pub fn second_name(ledger: &Path) -> Option<SecondName> {
    let db = Paths::of(ledger).db;
    let found = fs::metadata(&db).ok().filter(fs::Metadata::is_file)?;
    match found.nlink() {
        0 | 1 => is_mount(&db).then_some(SecondName::Mounted),
        count => Some(SecondName::HardLinks(count)),
    }
}

/// Returns `true` if something is mounted at exactly this path. Unknown on kernels before Linux
/// 5.8.
#[cfg(target_os = "linux")]
fn is_mount(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// No other system mounts single files.
#[cfg(not(target_os = "linux"))]
fn is_mount(_: &Path) -> bool {
    false
}

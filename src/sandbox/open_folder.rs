//! Folders that programs may be writing to, read and changed without following any link.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path};

use rustix::fs::{self, AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};

/// A folder that is open. What is in it is reached by its name, so that neither a link nor a folder that
/// is replaced meanwhile leads anywhere else.
#[derive(Debug)]
pub struct OpenFolder(OwnedFd);

/// The kind of an entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A file with bytes.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// The properties of an entry that are known without opening it.
#[derive(Debug, Clone, Copy)]
pub struct EntryStatus {
    /// Its kind.
    pub kind: EntryKind,
    /// The length of a file.
    pub bytes: u64,
    /// Bytes that it takes on the disk.
    pub on_disk: u64,
    /// True if anyone may run it.
    pub executable: bool,
    /// Its owner.
    pub(crate) owner: u32,
}

impl OpenFolder {
    /// Opens a folder, unless its path ends with a link.
    ///
    /// # Errors
    /// There is no such folder, or it cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(fs::open(path, FOLDER, Mode::empty())?))
    }

    /// Opens a folder within it, by its name.
    ///
    /// # Errors
    /// It is not a folder, or it cannot be read.
    pub fn folder(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(fs::openat(&self.0, name, FOLDER, Mode::empty())?))
    }

    /// Opens a folder below it, by names alone; the empty path is the folder itself.
    ///
    /// # Errors
    /// The path has other parts than names, or one of them is not a folder that can be read.
    pub fn below(&self, path: &Path) -> io::Result<Self> {
        let mut at = Self(self.0.try_clone()?);
        for part in path.components() {
            let Component::Normal(name) = part else {
                return Err(io::Error::other("the path leads out of the folder"));
            };
            at = at.folder(name)?;
        }
        Ok(at)
    }

    /// The names in it, in the order of the file system.
    ///
    /// # Errors
    /// It cannot be listed.
    pub fn names(&self) -> io::Result<impl Iterator<Item = io::Result<OsString>> + use<>> {
        let entries = Dir::read_from(&self.0)?;
        let names = entries.map(|entry| {
            let entry = entry?;
            Ok(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())
        });
        Ok(names.filter(|name| !name.as_ref().is_ok_and(|name| name == "." || name == "..")))
    }

    /// The status of an entry.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn status(&self, name: &OsStr) -> io::Result<EntryStatus> {
        let status = fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(EntryStatus::of(&status))
    }

    /// Opens a file for reading, and waits for no other end of a pipe.
    ///
    /// # Errors
    /// It is not a file, or it cannot be read.
    pub fn file(&self, name: &OsStr) -> io::Result<(File, EntryStatus)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // A device may do something once it is opened.
        is_file(self.status(name)?)?;
        let file = File::from(fs::openat(&self.0, name, flags, Mode::empty())?);
        let status = is_file(EntryStatus::of(&fs::fstat(&file)?))?;
        Ok((file, status))
    }

    /// The target of a link.
    ///
    /// # Errors
    /// It is not a link.
    pub fn link(&self, name: &OsStr) -> io::Result<OsString> {
        let target = fs::readlinkat(&self.0, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Makes a folder in it.
    ///
    /// # Errors
    /// The name is used, or the folder cannot be made.
    pub fn make_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777))?)
    }

    /// Makes a link in it.
    ///
    /// # Errors
    /// The name is used, or the link cannot be made.
    pub fn make_link(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        Ok(fs::symlinkat(target, &self.0, name)?)
    }

    /// Makes a file in it.
    ///
    /// # Errors
    /// The name is used, or the file cannot be made.
    pub fn make_file(&self, name: &OsStr, executable: bool) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
        let file = fs::openat(&self.0, name, flags | OFlags::NOFOLLOW, mode)?;
        fs::fchmod(&file, mode)?;
        Ok(File::from(file))
    }

    /// Removes an entry; a folder only if it is empty.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &OsStr, is_folder: bool) -> io::Result<()> {
        let flags = match is_folder {
            true => AtFlags::REMOVEDIR,
            false => AtFlags::empty(),
        };
        Ok(fs::unlinkat(&self.0, name, flags)?)
    }

    /// Moves an entry to another folder.
    pub(crate) fn rename(&self, name: &OsStr, to: &Self, new: &OsStr) -> io::Result<()> {
        Ok(fs::renameat(&self.0, name, &to.0, new)?)
    }

    /// Gives an entry to a user, and a link itself.
    pub(crate) fn give(&self, name: &OsStr, owner: u32) -> io::Result<()> {
        let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(fs::chownat(&self.0, name, Some(user), Some(group), flags)?)
    }

    /// The status of the folder itself.
    pub(crate) fn own_status(&self) -> io::Result<EntryStatus> {
        Ok(EntryStatus::of(&fs::fstat(self.0.as_fd())?))
    }

    /// Lets the owner of a folder within it read and change that folder.
    #[cfg(target_os = "linux")]
    pub(crate) fn unlock(&self, name: &OsStr) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;
        use std::os::unix::fs::PermissionsExt as _;
        // A folder that cannot be read can be named all the same.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::openat(&self.0, name, flags, Mode::empty())?;
        let named = format!("/proc/self/fd/{}", folder.as_raw_fd());
        std::fs::set_permissions(named, std::fs::Permissions::from_mode(0o700))
    }

    /// Lets the owner of a folder within it read and change that folder.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn unlock(&self, name: &OsStr) -> io::Result<()> {
        let (mode, flags) = (Mode::from_raw_mode(0o700), AtFlags::SYMLINK_NOFOLLOW);
        Ok(fs::chmodat(&self.0, name, mode, flags)?)
    }
}

/// The flags with which folders are opened.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl EntryStatus {
    fn of(status: &Stat) -> Self {
        let number = |value: i64| u64::try_from(value).unwrap_or_default();
        Self {
            kind: match FileType::from_raw_mode(status.st_mode) {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Folder,
                FileType::Symlink => EntryKind::Link,
                _ => EntryKind::Other,
            },
            bytes: number(status.st_size),
            on_disk: number(status.st_blocks).saturating_mul(512),
            executable: status.st_mode & 0o111 != 0,
            owner: status.st_uid,
        }
    }
}

fn is_file(status: EntryStatus) -> io::Result<EntryStatus> {
    match status.kind {
        EntryKind::File => Ok(status),
        EntryKind::Folder | EntryKind::Link | EntryKind::Other => {
            Err(io::Error::other("it is not a file"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_link_in_place_of_a_folder_or_a_file_leads_nowhere() {
        let (outside, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(outside.path().join("within")).unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(outside.path(), inside.path().join("link")).unwrap();
        symlink(outside.path().join("secret"), inside.path().join("file")).unwrap();
        let mut mkfifo = std::process::Command::new("mkfifo");
        let made = mkfifo.arg(inside.path().join("pipe")).status();
        assert!(made.unwrap().success());
        let folder = OpenFolder::open(inside.path()).unwrap();
        let link = OsStr::new("link");
        assert_eq!(folder.status(link).unwrap().kind, EntryKind::Link);
        assert!(OpenFolder::open(&inside.path().join("link")).is_err());
        assert!(folder.folder(link).is_err() && folder.unlock(link).is_err());
        for path in ["link", "link/within", "../within", "/", "a/../../b"] {
            assert!(folder.below(Path::new(path)).is_err(), "{path}");
        }
        for name in ["file", "link", "pipe"] {
            assert!(folder.file(OsStr::new(name)).is_err(), "{name}");
            assert!(folder.make_file(OsStr::new(name), false).is_err(), "{name}");
        }
        let mode = outside.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let mut names: Vec<_> = folder.names().unwrap().map(Result::unwrap).collect();
        names.sort();
        assert_eq!(names, ["file", "link", "pipe"]);
    }
}

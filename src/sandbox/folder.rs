//! A private folder: a copy of what a program works on, and what is made for it.
//!
//! ```text
//! ktsu-check-…/           only its owner may enter
//!   lock                  locked as long as the process lives that made the folder
//!   work/                 the copy: the workspace of programs
//!   made/                 files for programs, which they can only read
//!   shared/               what programs of other folders see of a service, such as its socket
//!   passwd, group, status of the sandbox itself
//! ```

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

use crate::occupancy::Occupancy;
use crate::open_folder::{EntryKind, EntryStatus, OpenFolder};
use crate::usage::FolderUsage;

/// The prefix of the names of private folders.
pub(crate) const PREFIX: &str = "ktsu-check-";

/// The file that is locked as long as a folder is in use.
pub(crate) const LOCK: &str = "lock";

/// Its name before it is locked.
pub(crate) const NEW_LOCK: &str = "lock-new";

/// The first of the users that programs run as, where this process is root: far from those of people,
/// services and containers.
pub(crate) const FIRST_USER: u32 = 1_900_000_000;

/// Number of these users.
pub(crate) const USERS: u32 = 1 << 22;

/// A user that has nothing, where there are fewer.
pub(crate) const LAST_USER: u32 = 65_534;

/// The time for which the end of programs that serve in a folder is waited for.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Number of attempts to make a folder, where another process removes it.
const MAX_ATTEMPTS: usize = 100;

/// A folder of its own, removed when it is dropped.
#[derive(Debug)]
pub struct PrivateFolder {
    root: PathBuf,
    /// The owner of everything in it, if that is not this process.
    owner: Option<u32>,
    /// The programs that serve in it.
    pub(crate) occupancy: Occupancy,
    /// Usage of the workspace when the first of them was started.
    began: OnceLock<FolderUsage>,
    /// The folder itself and its lock, both locked until it is removed.
    _locks: [File; 2],
}

/// The reason why there is no private folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Something in the original cannot be copied.
    #[error("cannot copy {0}: {1}")]
    Copy(PathBuf, io::Error),
    /// The original has more bytes than are copied.
    #[error("it has more than {} MiB", .0 >> 20)]
    TooLarge(u64),
    /// The original has more files than are copied.
    #[error("it has more than {0} files and folders")]
    TooMany(u64),
    /// The person wants to stop.
    #[error("it was interrupted")]
    Interrupted,
    /// The folder cannot be made.
    #[error("cannot make a private folder: {0}")]
    Make(#[from] io::Error),
}

impl PrivateFolder {
    /// An empty one, which belongs to a user, or to this process.
    pub(crate) fn new(owner: Option<u32>) -> Result<Self, FolderError> {
        let (made, itself) = make()?;
        let lock = lock(made.path())?;
        let folder = Self {
            root: made.keep(),
            owner,
            occupancy: Occupancy::default(),
            began: OnceLock::new(),
            _locks: [itself, lock],
        };
        folder.give(&folder.root)?;
        for part in [folder.workspace(), folder.made(), folder.shared()] {
            fs::create_dir(&part)?;
            folder.give(&part)?;
        }
        let passwd = "check:x:1000:1000::/tmp:/bin/sh\n";
        folder.put(&folder.root.join("passwd"), passwd.as_bytes(), 0o444)?;
        folder.put(&folder.root.join("group"), b"check:x:1000:\n", 0o444)?;
        Ok(folder)
    }

    /// The workspace.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Path of the folder with the files that are made for programs.
    pub fn made(&self) -> PathBuf {
        self.root.join("made")
    }

    /// Path of the folder that programs of other folders see of a service that runs in this one.
    pub fn shared(&self) -> PathBuf {
        self.root.join("shared")
    }

    /// Makes a file that programs can only read.
    ///
    /// # Errors
    /// [`FolderError::Make`].
    pub fn make(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        Ok(self.put(&self.made().join(name), bytes, 0o555)?)
    }

    /// Gives everything in the workspace to the user that programs run as. Links are not followed.
    ///
    /// # Errors
    /// Something cannot be given.
    pub fn give_all(&self) -> io::Result<()> {
        let Some(owner) = self.owner else {
            return Ok(());
        };
        let root = OpenFolder::open(&self.workspace())?;
        let mut folders = vec![PathBuf::new()];
        while let Some(path) = folders.pop() {
            let folder = root.below(&path)?;
            for name in folder.names()? {
                let name = name?;
                folder.give(&name, owner)?;
                if folder.status(&name)?.kind == EntryKind::Folder {
                    folders.push(path.join(name));
                }
            }
        }
        Ok(())
    }

    /// Lets no further program serve in it, and waits until none does any more, so that nothing writes to
    /// it; false if one does not end.
    pub fn close(&self) -> bool {
        self.occupancy.close(CLOSE_TIMEOUT)
    }

    /// Usage of the workspace before any program served in it. Their limits count from there,
    /// however often one is started.
    pub(crate) fn usage_before_serving(&self) -> FolderUsage {
        let usage = || FolderUsage::of(&self.workspace(), u64::MAX);
        *self.began.get_or_init(usage)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn put(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        if path.symlink_metadata().is_ok() {
            fs::remove_file(path)?;
        }
        fs::write(path, bytes)?;
        self.give(path)?;
        fs::set_permissions(path, Permissions::from_mode(mode))
    }

    /// Gives a file to the user that programs run as.
    pub(crate) fn give(&self, path: &Path) -> io::Result<()> {
        match self.owner {
            None => Ok(()),
            Some(_) => lchown(path, self.owner, self.owner),
        }
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        remove(&self.root);
    }
}

/// Makes a folder, and locks the folder itself, so that what is killed before the folder has its lock
/// leaves nothing that could be in use. Until it is locked, another process may take it for such a rest and
/// remove it; then there is another one.
fn make() -> io::Result<(TempDir, File)> {
    for _ in 0..MAX_ATTEMPTS {
        // From the start, whatever the umask is: a program could leave something for other users to run.
        let made = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        let itself = match File::open(made.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        let is_removed = matches!(itself.try_lock(), Err(TryLockError::WouldBlock));
        if !is_removed && is_at(&itself, made.path()) {
            return Ok((made, itself));
        }
    }
    Err(io::Error::other("it is removed each time"))
}

/// Returns `true` if an open file is that of a path, which is no link.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let id = |about: Metadata| (about.dev(), about.ino());
    let opened = file.metadata().map(id).ok();
    opened.is_some() && opened == path.symlink_metadata().map(id).ok()
}

/// Makes the lock of a folder. It has its name only once it is locked: what has one that is locked is in
/// use, and so is what has none if the folder itself is locked, or cannot be.
fn lock(root: &Path) -> io::Result<File> {
    let new = root.join(NEW_LOCK);
    let file = File::create_new(&new)?;
    // Not every file system has locks. Without one, a folder is left rather than removed while in use.
    if file.try_lock().is_ok() {
        fs::rename(&new, root.join(LOCK))?;
    }
    Ok(file)
}

/// Removes a folder, however deep it is: folders within it are moved to its top one after another, so
/// that neither paths nor the stack grow. What cannot be removed is left. No link is followed, even if
/// programs write to it meanwhile; its lock is removed last.
pub(crate) fn remove(root: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let _ = lchown(root, Some(own), None);
    let is_own = |about: EntryStatus| about.owner == own;
    if let Ok(top) = OpenFolder::open(root)
        && top.own_status().is_ok_and(is_own)
    {
        empty(&top);
        let _ = top.remove(OsStr::new(LOCK), false);
        let _ = fs::remove_dir(root);
    }
}

/// Removes what is in a folder, but for its lock.
fn empty(top: &OpenFolder) {
    let (mut folders, mut moved) = (Vec::new(), 0_u64);
    for name in names(top) {
        if name != LOCK {
            remove_or_move(top, &name, top, &mut moved, &mut folders);
        }
    }
    while let Some(name) = folders.pop() {
        if let Ok(folder) = top.folder(&name) {
            for within in names(&folder) {
                remove_or_move(&folder, &within, top, &mut moved, &mut folders);
            }
        }
        let _ = top.remove(&name, true);
    }
}

/// The names in a folder, before it changes.
fn names(folder: &OpenFolder) -> Vec<OsString> {
    folder.names().into_iter().flatten().flatten().collect()
}

/// Removes an entry that is not a folder. A folder is moved to the top, and noted there.
fn remove_or_move(
    from: &OpenFolder,
    name: &OsStr,
    top: &OpenFolder,
    moved: &mut u64,
    folders: &mut Vec<OsString>,
) {
    let is_folder = |about: EntryStatus| about.kind == EntryKind::Folder;
    if !from.status(name).is_ok_and(is_folder) {
        let _ = from.remove(name, false);
        return;
    }
    let to = unused(top, moved);
    // Its owner has to be able to write what is moved.
    let renamed = from.rename(name, top, &to);
    let renamed = renamed.or_else(|_| {
        from.unlock(name)?;
        from.rename(name, top, &to)
    });
    if renamed.is_ok() {
        let _ = top.unlock(&to);
        folders.push(to);
    }
}

/// A name that nothing in a folder has.
fn unused(top: &OpenFolder, moved: &mut u64) -> OsString {
    loop {
        *moved += 1;
        let to = OsString::from(format!("removed-{moved}"));
        if top.status(&to).is_err() {
            return to;
        }
    }
}

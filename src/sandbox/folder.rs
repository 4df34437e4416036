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

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

/// What the names of private folders begin with.
pub(crate) const PREFIX: &str = "ktsu-check-";

/// The file that is locked as long as a folder is in use.
pub(crate) const LOCK: &str = "lock";

/// The first of the users that programs run as, where this process is root: far from those of people,
/// services and containers.
pub(crate) const FIRST_USER: u32 = 1_900_000_000;

/// How many of them there are.
pub(crate) const USERS: u32 = 1 << 22;

/// A user that has nothing, where there are fewer.
pub(crate) const LAST_USER: u32 = 65_534;

/// A folder of its own, removed when it is dropped.
#[derive(Debug)]
pub struct PrivateFolder {
    root: PathBuf,
    /// Who owns everything in it, if that is not this process.
    owner: Option<u32>,
    /// Locked until the folder is removed.
    _lock: File,
}

/// Why there is no private folder.
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
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = lock(made.path())?;
        let folder = Self {
            root: made.keep(),
            owner,
            _lock: lock,
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

    /// What is made for programs.
    pub fn made(&self) -> PathBuf {
        self.root.join("made")
    }

    /// What programs of other folders see of a service that runs in this one.
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
        let mut folders = vec![self.workspace()];
        while let Some(folder) = folders.pop().filter(|_| self.owner.is_some()) {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                self.give(&entry.path())?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        Ok(())
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

/// Makes the lock of a folder. It has its name only once it is locked: what has no lock, or one that is
/// locked, is in use.
fn lock(root: &Path) -> io::Result<File> {
    let new = root.join("lock-new");
    let file = File::create_new(&new)?;
    // Not every file system has locks. Without one, a folder is left rather than removed while in use.
    if file.try_lock().is_ok() {
        fs::rename(&new, root.join(LOCK))?;
    }
    Ok(file)
}

/// Removes a folder, however deep it is: folders within it are moved to its top one after another, so
/// that neither paths nor the stack grow. What cannot be removed is left. No other user can change
/// its top meanwhile, so that no link is followed in place of a folder; its lock is removed last.
pub(crate) fn remove(root: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let _ = lchown(root, Some(own), None);
    let is_own = |about: fs::Metadata| about.is_dir() && about.uid() == own;
    if !root.symlink_metadata().is_ok_and(is_own) {
        return;
    }
    let _ = fs::set_permissions(root, Permissions::from_mode(0o700));
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut moved = 0_u64;
    let mut open = Some(root.to_path_buf());
    while let Some(folder) = open {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let entries: Vec<fs::DirEntry> = entries.collect();
        for entry in entries {
            let path = entry.path();
            if folder == root && entry.file_name() == LOCK {
                continue;
            }
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = fs::remove_file(&path);
                continue;
            }
            let to = top(root, &mut moved);
            if move_folder(&path, &to).is_ok() && is_folder(&to) {
                let _ = fs::set_permissions(&to, Permissions::from_mode(0o700));
                folders.push(to);
            }
        }
        if folder != root {
            let _ = fs::remove_dir(&folder);
        }
        open = folders.pop();
    }
    let _ = fs::remove_file(root.join(LOCK));
    let _ = fs::remove_dir(root);
}

/// A name at the top of a folder that nothing has.
fn top(root: &Path, moved: &mut u64) -> PathBuf {
    loop {
        *moved += 1;
        let to = root.join(format!("removed-{moved}"));
        if to.symlink_metadata().is_err() {
            return to;
        }
    }
}

/// Moves a folder, which its owner has to be able to write for that.
fn move_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).or_else(|_| {
        fs::set_permissions(from, Permissions::from_mode(0o700))?;
        fs::rename(from, to)
    })
}

fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_dir())
}

//! A private folder: a copy of what a program works on, and what is made for it.
//!
//! ```text
//! ktsu-check-…/           only its owner may enter
//!   work/                 the copy: the workspace of programs
//!   made/                 files for programs, which they can only read
//!   passwd, group, status of the sandbox itself
//! ```

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

/// A folder of its own, removed when it is dropped.
#[derive(Debug)]
pub struct PrivateFolder {
    root: PathBuf,
    /// Who owns everything in it, if that is not this process.
    owner: Option<u32>,
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
    /// The folder cannot be made.
    #[error("cannot make a private folder: {0}")]
    Make(#[from] io::Error),
}

impl PrivateFolder {
    /// An empty one, which belongs to a user, or to this process.
    pub(crate) fn new(owner: Option<u32>) -> Result<Self, FolderError> {
        let made = tempfile::Builder::new().prefix("ktsu-check-").tempdir()?;
        let folder = Self {
            root: made.keep(),
            owner,
        };
        folder.give(&folder.root)?;
        for part in [folder.workspace(), folder.made()] {
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

    /// Makes a file that programs can only read.
    ///
    /// # Errors
    /// [`FolderError::Make`].
    pub fn make(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        Ok(self.put(&self.made().join(name), bytes, 0o555)?)
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

/// Removes a folder, however deep it is: folders within it are moved to its top one after another, so
/// that neither paths nor the stack grow. What cannot be removed is left.
fn remove(root: &Path) {
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut moved = 0_u64;
    let mut open = Some(root.to_path_buf());
    while let Some(folder) = open {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let entries: Vec<fs::DirEntry> = entries.collect();
        for entry in entries {
            let path = entry.path();
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = fs::remove_file(&path);
                continue;
            }
            // A folder that cannot be written cannot be moved either.
            let _ = fs::set_permissions(&path, Permissions::from_mode(0o700));
            moved += 1;
            let to = root.join(format!("removed-{moved}"));
            match fs::rename(&path, &to) {
                Ok(()) => folders.push(to),
                Err(_) => continue,
            }
        }
        if folder != root {
            let _ = fs::remove_dir(&folder);
        }
        open = folders.pop();
    }
    let _ = fs::remove_dir(root);
}

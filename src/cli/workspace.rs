//! A folder of files that a run left, for checks.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use ktsu_eval::Workspace;

use super::Failure;

/// The most bytes of a file that are looked at.
const MAX_FILE: u64 = 16 << 20;

/// The folder.
#[derive(Debug)]
pub(super) struct WorkspaceFolder {
    /// Without links on the way.
    root: PathBuf,
}

impl WorkspaceFolder {
    /// Opens a folder.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let words = || {
            let words = format!("the workspace {} is not a folder", path.display());
            Failure::could_not_run(words)
                .hint("name the folder with the files of the run: --workspace DIR")
        };
        let root = path.canonicalize().map_err(|_| words())?;
        match root.is_dir() {
            true => Ok(Self { root }),
            false => Err(words()),
        }
    }
}

impl Workspace for WorkspaceFolder {
    fn read(&self, relative: &str) -> Result<Option<Vec<u8>>, String> {
        let found = match self.root.join(relative).canonicalize() {
            Ok(found) => found,
            Err(error) => {
                return match error.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
                    _ => Err(format!("{relative} cannot be read: {error}")),
                };
            }
        };
        if !found.starts_with(&self.root) {
            return Err(format!("{relative} leads out of the workspace"));
        }
        let failed = |error: std::io::Error| format!("{relative} cannot be read: {error}");
        // A pipe or a device would be waited for.
        if !found.metadata().map_err(failed)?.is_file() {
            return Err(format!("{relative} is not a file"));
        }
        let mut bytes = Vec::new();
        let file = File::open(&found).map_err(failed)?;
        let read = file
            .take(MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        match read as u64 > MAX_FILE {
            true => Err(format!("{relative} has more than {} MiB", MAX_FILE >> 20)),
            false => Ok(Some(bytes)),
        }
    }
}

//! A folder of files that a run left, for checks.

use std::cell::Cell;
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use ktsu_eval::Workspace;

use super::Failure;
use super::workspace_text::overview;

/// The most bytes of a file that are looked at.
const MAX_FILE: u64 = 16 << 20;

/// The most bytes that all checks look at.
const MAX_READ: u64 = 1 << 30;

/// The folder.
#[derive(Debug)]
pub(super) struct WorkspaceFolder {
    /// Without links on the way.
    root: PathBuf,
    /// The number of bytes that were read.
    read: Cell<u64>,
}

impl WorkspaceFolder {
    /// Opens a folder.
    ///
    /// # Errors
    /// It is not a folder.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let root = path.canonicalize().ok().filter(|root| root.is_dir());
        let read = Cell::new(0);
        root.map(|root| Self { root, read }).ok_or_else(|| {
            let words = format!("the workspace {} is not a folder", path.display());
            Failure::could_not_run(words)
                .hint("name the folder with the files of the run: --workspace DIR")
        })
    }

    /// A path without links, none where nothing is there.
    fn real(&self, path: &Path) -> Result<Option<PathBuf>, String> {
        match path.canonicalize() {
            Ok(found) if found.starts_with(&self.root) => Ok(Some(found)),
            Ok(_) => Err("leads out of the workspace".to_owned()),
            Err(error) => nothing_there(&error).map(|()| None),
        }
    }
}

/// Checks that an error means that nothing is there.
fn nothing_there(error: &Error) -> Result<(), String> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(()),
        ErrorKind::PermissionDenied => Err("cannot be read: permission denied".to_owned()),
        _ => Err("cannot be read: its path is too long, or leads in a circle".to_owned()),
    }
}

impl Workspace for WorkspaceFolder {
    fn read(&self, relative: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(found) = self.real(&self.root.join(relative))? else {
            return Ok(None);
        };
        let failed = |error: Error| match error.kind() {
            ErrorKind::PermissionDenied => "cannot be read: permission denied".to_owned(),
            _ => "cannot be read".to_owned(),
        };
        // A pipe or a device would be waited for.
        if !found.metadata().map_err(failed)?.is_file() {
            return Err("is not a file".to_owned());
        }
        if self.read.get() > MAX_READ {
            let most = MAX_READ >> 20;
            return Err(format!(
                "is not read: the checks before it have read {most} MiB"
            ));
        }
        let file = File::open(&found).map_err(failed)?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
        let read = read.map_err(failed)? as u64;
        self.read.set(self.read.get().saturating_add(read));
        match read > MAX_FILE {
            true => Err(format!("has more than {} MiB", MAX_FILE >> 20)),
            false => Ok(Some(bytes)),
        }
    }

    fn overview(&self) -> Result<String, String> {
        overview(&self.root)
    }

    fn exists(&self, relative: &str) -> Result<bool, String> {
        let path = self.root.join(relative);
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(true);
        };
        let Some(folder) = self.real(folder)? else {
            return Ok(false);
        };
        match folder.join(name).symlink_metadata() {
            Ok(_) => Ok(true),
            Err(error) => nothing_there(&error).map(|()| false),
        }
    }
}

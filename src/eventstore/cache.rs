//! The folder of local copies: which file this process uses, and throwing one away.

use std::fs;
use std::path::{Path, PathBuf};

use ktsu_ledger::store::{OpenMirrorError, SqliteMirror};
use ktsu_ledger::{Hash, StoreError};

/// The most processes of a machine that have a copy of one ledger at the same time.
const MAX_COPIES: usize = 64;
/// The files of a copy besides itself.
const SIDES: [&str; 2] = ["-wal", "-shm"];

/// The copies of one ledger on this machine.
#[derive(Debug, Clone)]
pub(crate) struct CacheFolder(PathBuf);

impl CacheFolder {
    /// The copies of the ledger of an address, in a folder for all of them.
    pub(crate) fn of(folder: &Path, address: &str) -> Self {
        let name = Hash::of(address.as_bytes()).to_string();
        let (name, _) = name.split_at(16);
        Self(folder.join("eventstore").join(name))
    }

    /// Opens the first copy that no other process uses. One that cannot be read is made again.
    pub(crate) fn open(&self) -> Result<(SqliteMirror, PathBuf), StoreError> {
        let failed = |error| StoreError::failed("make the folder of local copies", error);
        create_private(&self.0).map_err(failed)?;
        for number in 0..MAX_COPIES {
            let path = self.0.join(format!("copy-{number}.db"));
            match SqliteMirror::open(&path) {
                Ok(mirror) => return Ok((mirror, path)),
                Err(OpenMirrorError::Lock(_)) => {}
                Err(OpenMirrorError::Store(
                    StoreError::Damaged(_)
                    | StoreError::NotALedger { .. }
                    | StoreError::NewerFormat { .. },
                )) => return Ok((Self::remake(&path)?, path)),
                Err(OpenMirrorError::Store(error)) => return Err(error),
            }
        }
        let words = format!("{MAX_COPIES} processes have one in {}", self.0.display());
        Err(StoreError::failed("make a local copy", words))
    }

    /// Throws a copy away, and begins it again.
    pub(crate) fn remake(path: &Path) -> Result<SqliteMirror, StoreError> {
        let sides = SIDES.iter().map(|side| {
            let mut name = path.as_os_str().to_owned();
            name.push(side);
            PathBuf::from(name)
        });
        for file in sides.chain([path.to_owned()]) {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(StoreError::failed("remove a local copy", error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        SqliteMirror::open(path).map_err(|error| match error {
            OpenMirrorError::Store(error) => error,
            OpenMirrorError::Lock(lock) => StoreError::failed("make a local copy", lock),
        })
    }
}

/// Makes a folder that only its owner may read: it has what the ledger has.
fn create_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

//! Finds out that files of a folder were saved: by their times and lengths, then by their content.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ktsu_ledger::Hash;

/// The most files and folders that are looked at.
const MAX_ENTRIES: usize = 10_000;
/// The largest file whose content is read; of a larger one, its time and length count.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// The time and the length of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl FileStamp {
    fn of(found: &Metadata) -> Self {
        Self {
            modified: found.modified().ok(),
            bytes: found.len(),
        }
    }
}

/// The files of a folder and of those below it, as they were at the last look. Names that begin with a dot
/// are left out, and links to folders are not followed.
#[derive(Debug)]
pub(super) struct WatchedFolder {
    root: PathBuf,
    /// A file that counts although it may be elsewhere.
    beside: Option<PathBuf>,
    /// A file that does not count, with all whose paths begin with its own.
    ledger: Option<PathBuf>,
    most: usize,
    /// True if there was more at the last look.
    is_cut: bool,
    seen: BTreeMap<PathBuf, FileStamp>,
    /// True if a file was written between the last two looks: it may be half written.
    is_moving: bool,
    contents: BTreeMap<PathBuf, (FileStamp, Option<Hash>)>,
}

impl WatchedFolder {
    /// A folder as it is now, and a file beside it; without the files of a ledger, if that is in the folder.
    pub(super) fn new(root: &Path, beside: Option<PathBuf>, ledger: Option<PathBuf>) -> Self {
        Self::within(root, (beside, ledger), MAX_ENTRIES)
    }

    fn within(
        root: &Path,
        (beside, ledger): (Option<PathBuf>, Option<PathBuf>),
        most: usize,
    ) -> Self {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let ledger = ledger.and_then(|path| {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            Some(whole(folder.unwrap_or(Path::new("."))).join(path.file_name()?))
        });
        let mut folder = Self {
            root: whole(root),
            beside,
            ledger,
            most,
            is_cut: false,
            seen: BTreeMap::new(),
            is_moving: false,
            contents: BTreeMap::new(),
        };
        (folder.seen, folder.is_cut) = folder.stamps();
        folder.contents = folder.contents();
        folder
    }

    /// Returns `true` if there are more files and folders than are looked at.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Looks again. Returns `true` once the content of a file is another one than before, and nothing was
    /// written since the last look.
    pub(super) fn has_changed(&mut self) -> bool {
        let (stamps, is_cut) = self.stamps();
        self.is_cut = is_cut;
        if stamps != self.seen {
            self.seen = stamps;
            self.is_moving = true;
            return false;
        }
        if !std::mem::take(&mut self.is_moving) {
            return false;
        }
        let contents = self.contents();
        let is_same = |(path, (stamp, hash)): (&PathBuf, &(FileStamp, Option<Hash>))| {
            let before = self.contents.get(path);
            before.is_some_and(|(was, old)| old == hash && (hash.is_some() || was == stamp))
        };
        let changed = contents.len() != self.contents.len() || !contents.iter().all(is_same);
        self.contents = contents;
        changed
    }

    /// What is there, and whether there is more.
    fn stamps(&self) -> (BTreeMap<PathBuf, FileStamp>, bool) {
        let mut found = BTreeMap::new();
        if let Some(path) = &self.beside
            && let Ok(file) = std::fs::metadata(path)
        {
            found.insert(path.clone(), FileStamp::of(&file));
        }
        let mut folders = vec![self.root.clone()];
        let mut looked_at = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if looked_at >= self.most {
                    return (found, true);
                }
                looked_at += 1;
                if entry.file_name().as_encoded_bytes().starts_with(b".") {
                    continue;
                }
                let path = entry.path();
                if self.is_of_ledger(&path) {
                    continue;
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(path),
                    Ok(_) => {
                        let file = std::fs::metadata(&path).ok();
                        let file = file.filter(Metadata::is_file);
                        found.extend(file.map(|file| (path, FileStamp::of(&file))));
                    }
                    Err(_) => {}
                }
            }
        }
        (found, false)
    }

    fn is_of_ledger(&self, path: &Path) -> bool {
        let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
        let ledger = self.ledger.as_deref();
        ledger.is_some_and(|ledger| bytes(path).starts_with(&bytes(ledger)))
    }

    /// The contents of the files that were seen; of those whose stamps are the same, as they were.
    fn contents(&self) -> BTreeMap<PathBuf, (FileStamp, Option<Hash>)> {
        let content = |(path, stamp): (&PathBuf, &FileStamp)| {
            let known = self.contents.get(path).filter(|(was, _)| was == stamp);
            let hash = known.map_or_else(|| content_of(path), |(_, hash)| *hash);
            (path.clone(), (*stamp, hash))
        };
        self.seen.iter().map(content).collect()
    }
}

/// The hash of a file, if it is not too large.
fn content_of(path: &Path) -> Option<Hash> {
    let mut bytes = Vec::new();
    let mut file = File::open(path).ok()?.take(MAX_FILE_BYTES + 1);
    file.read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_FILE_BYTES).then(|| Hash::of(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &tempfile::TempDir, path: &str, text: &str) {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Sets the time of a file to what no other look has seen.
    fn touch(folder: &tempfile::TempDir, path: &str, seconds: u64) {
        let file = File::options().write(true).open(folder.path().join(path));
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        file.unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn a_save_counts_once_nothing_is_written_any_more_and_only_with_another_content() {
        let folder = tempfile::tempdir().unwrap();
        put(&folder, "workflows/a.workflow.yaml", "one");
        let beside = tempfile::tempdir().unwrap();
        put(&beside, "local.env.yaml", "one");
        let file = beside.path().join("local.env.yaml");
        let mut watched = WatchedFolder::new(
            folder.path(),
            Some(file),
            Some(folder.path().join("own.db")),
        );
        assert!(!watched.has_changed() && !watched.has_changed());
        put(&folder, "workflows/a.workflow.yaml", "three");
        let looks = [
            watched.has_changed(),
            watched.has_changed(),
            watched.has_changed(),
        ];
        assert_eq!(looks, [false, true, false]);
        touch(&folder, "workflows/a.workflow.yaml", 5);
        assert!(!watched.has_changed() && !watched.has_changed());
        for (folder, path) in [(&folder, "prompts/new.md"), (&beside, "local.env.yaml")] {
            put(folder, path, "other");
            touch(folder, path, 7);
            assert_eq!(
                [watched.has_changed(), watched.has_changed()],
                [false, true]
            );
        }
        std::fs::remove_file(folder.path().join("prompts/new.md")).unwrap();
        assert_eq!(
            [watched.has_changed(), watched.has_changed()],
            [false, true]
        );
        for path in [".ktsu/ledger.db", "own.db", "own.db-wal"] {
            put(&folder, path, "frames");
            assert!(!watched.has_changed() && !watched.has_changed(), "{path}");
        }
    }

    #[test]
    fn no_more_files_are_looked_at_than_may_be() {
        let folder = tempfile::tempdir().unwrap();
        for at in 0..20 {
            put(&folder, &format!("{at}/file.yaml"), "text");
        }
        let watched = WatchedFolder::within(folder.path(), (None, None), 10);
        assert!(watched.is_cut() && watched.seen.len() < 10);
        let whole = WatchedFolder::within(folder.path(), (None, None), 40);
        assert!(!whole.is_cut() && whole.seen.len() == 20);
        let large = File::create(folder.path().join("large.yaml")).unwrap();
        large.set_len(MAX_FILE_BYTES + 1).unwrap();
        assert_eq!(content_of(&folder.path().join("large.yaml")), None);
    }
}

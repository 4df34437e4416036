//! Reading a folder: what is in it, within bounds, through folders that are open.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ktsu_ledger::Hash;
use ktsu_sandbox::{EntryKind, EntryStatus, Interrupt, OpenFolder};
use serde_json::{Value, json};

/// The bounds on what is read of a folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListingBounds {
    /// Files, folders and links.
    pub(super) entries: usize,
    /// Bytes of all paths.
    pub(super) paths: usize,
    /// Bytes of a path.
    pub(super) path: usize,
    /// Bytes of all files whose digests are made: their lengths, as sparse files take time, too.
    pub(super) bytes: u64,
}

impl Default for ListingBounds {
    fn default() -> Self {
        Self {
            entries: 200_000,
            paths: 32 << 20,
            path: 4_096,
            bytes: 4 << 30,
        }
    }
}

/// The contents of a folder, by paths within it.
pub(super) struct FolderListing {
    pub(super) entries: BTreeMap<String, FolderEntry>,
    /// Entries that have no place in it, folders that cannot be listed, and files that cannot be read as a
    /// whole.
    pub(super) left_out: u64,
    /// The bounds on what may still be read.
    rest: ListingBounds,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FolderEntry {
    File {
        bytes: u64,
        /// None of one that is too large to be read.
        digest: Option<Hash>,
        executable: bool,
    },
    Folder,
    Link(String),
    /// A pipe, a socket, a device, or a file that cannot be read.
    Other,
}

impl FolderListing {
    /// Reads a folder.
    pub(super) fn read(
        root: &OpenFolder,
        bounds: ListingBounds,
        interrupt: &Interrupt,
    ) -> io::Result<Self> {
        let mut listing = Self {
            entries: BTreeMap::new(),
            left_out: 0,
            rest: bounds,
        };
        // Only one folder is open at a time, so that no depth of folders needs more.
        let mut folders = vec![PathBuf::new()];
        while let Some(path) = folders.pop() {
            let listed = root.below(&path);
            let listed = listed.and_then(|folder| folder.names().map(|names| (folder, names)));
            match listed {
                Ok((folder, names)) => {
                    for name in names {
                        is_wanted(interrupt)?;
                        match name {
                            Ok(name) => {
                                let below = path.join(&name);
                                let found = listing.take((&folder, &name), &below, interrupt)?;
                                folders.extend(found.then_some(below));
                            }
                            Err(_) => listing.left_out += 1,
                        }
                    }
                }
                Err(error) if path.as_os_str().is_empty() => return Err(error),
                // A program may take its rights away.
                Err(_) => listing.left_out += 1,
            }
        }
        Ok(listing)
    }

    /// Takes an entry, if there is room for it; whether it is a folder to be read.
    fn take(
        &mut self,
        at: (&OpenFolder, &OsStr),
        path: &Path,
        interrupt: &Interrupt,
    ) -> io::Result<bool> {
        let Some(path) = path.to_str().filter(|path| self.has_room(path)) else {
            self.left_out += 1;
            return Ok(false);
        };
        let entry = self.entry(at, interrupt)?;
        let is_folder = entry == FolderEntry::Folder;
        self.entries.insert(path.to_owned(), entry);
        Ok(is_folder)
    }

    fn has_room(&mut self, path: &str) -> bool {
        let rest = self.rest.paths.checked_sub(path.len());
        let rest = rest.filter(|_| path.len() < self.rest.path);
        let entries = self.rest.entries.checked_sub(1);
        let Some((paths, entries)) = rest.zip(entries) else {
            return false;
        };
        (self.rest.paths, self.rest.entries) = (paths, entries);
        true
    }

    fn entry(
        &mut self,
        (folder, name): (&OpenFolder, &OsStr),
        interrupt: &Interrupt,
    ) -> io::Result<FolderEntry> {
        let found = folder.status(name).and_then(|status| {
            Ok(match status.kind {
                EntryKind::Folder => FolderEntry::Folder,
                EntryKind::Link => self.link(folder.link(name)?)?,
                EntryKind::File => self.file(folder.file(name)?, interrupt)?,
                EntryKind::Other => FolderEntry::Other,
            })
        });
        is_wanted(interrupt)?;
        Ok(found.unwrap_or_else(|_| {
            self.left_out += 1;
            FolderEntry::Other
        }))
    }

    /// A link, whose target takes as much room as a path.
    fn link(&mut self, target: OsString) -> io::Result<FolderEntry> {
        let rest = self.rest.paths.checked_sub(target.len());
        let target = target.into_string().ok();
        let (rest, target) = rest.zip(target).ok_or_else(unreadable)?;
        self.rest.paths = rest;
        Ok(FolderEntry::Link(target))
    }

    /// A file, whose content is read if it is not too large.
    fn file(
        &mut self,
        (file, status): (File, EntryStatus),
        interrupt: &Interrupt,
    ) -> io::Result<FolderEntry> {
        let digest = match self.rest.bytes.checked_sub(status.bytes) {
            Some(rest) => {
                self.rest.bytes = rest;
                Some(digest(file, status.bytes, interrupt)?)
            }
            None => {
                self.left_out += 1;
                None
            }
        };
        Ok(FolderEntry::File {
            bytes: status.bytes,
            digest,
            executable: status.executable,
        })
    }
}

impl FolderEntry {
    pub(super) fn shown(&self) -> Value {
        match self {
            Self::File {
                bytes,
                digest,
                executable,
            } => {
                let mut shown = json!({"bytes": bytes, "executable": executable, "kind": "file"});
                if let Some(digest) = digest {
                    shown["digest"] = json!(digest);
                }
                shown
            }
            Self::Folder => json!({"kind": "folder"}),
            Self::Link(target) => json!({"kind": "link", "target": target}),
            Self::Other => json!({"kind": "other"}),
        }
    }
}

fn is_wanted(interrupt: &Interrupt) -> io::Result<()> {
    match interrupt.is_set() {
        true => Err(io::Error::other("it was interrupted")),
        false => Ok(()),
    }
}

/// The error of an entry that is left out.
fn unreadable() -> io::Error {
    io::Error::other("it cannot be recorded, or changed while it was read")
}

/// The digest of a file of this length.
fn digest(mut file: File, bytes: u64, interrupt: &Interrupt) -> io::Result<Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; usize::try_from(bytes.clamp(1, 1 << 20)).unwrap_or(1)];
    let mut rest = bytes;
    while rest > 0 {
        is_wanted(interrupt)?;
        let read = file.by_ref().take(rest).read(&mut buffer)?;
        if read == 0 {
            return Err(unreadable());
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        rest = rest.saturating_sub(read as u64);
    }
    match file.read(&mut [0])? {
        0 => Ok(Hash::from_bytes(hasher.finalize().as_bytes()).unwrap_or(Hash::ZERO)),
        _ => Err(unreadable()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn read(root: &Path, bounds: ListingBounds) -> FolderListing {
        let root = OpenFolder::open(root).unwrap();
        FolderListing::read(&root, bounds, &Interrupt::default()).unwrap()
    }

    /// A folder with three files of four bytes.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one", "two", "three"] {
            fs::write(folder.path().join(name), "four").unwrap();
        }
        folder
    }

    #[test]
    fn of_what_is_too_much_the_rest_is_left_out() {
        let folder = folder();
        let all = ListingBounds::default();
        for (bounds, listed, left_out) in [
            (all, 3, 0),
            (ListingBounds { entries: 2, ..all }, 2, 1),
            (ListingBounds { paths: 7, ..all }, 2, 1),
            (ListingBounds { path: 5, ..all }, 2, 1),
            (ListingBounds { bytes: 11, ..all }, 3, 1),
        ] {
            let listing = read(folder.path(), bounds);
            let found = (listing.entries.len(), listing.left_out);
            assert_eq!(found, (listed, left_out), "{bounds:?}");
        }
    }

    #[test]
    fn a_sparse_file_that_is_too_large_is_listed_with_its_size_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("sparse")).unwrap();
        file.set_len(1 << 40).unwrap();
        let listing = read(folder.path(), ListingBounds::default());
        let shown = listing.entries["sparse"].shown();
        let expected = json!({"bytes": 1_u64 << 40, "executable": false, "kind": "file"});
        assert_eq!((shown, listing.left_out), (expected, 1));
    }

    #[test]
    fn folders_too_deep_and_names_that_are_not_utf_8_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut at = OpenFolder::open(folder.path()).unwrap();
        let name = "d".repeat(200);
        for _ in 0..30 {
            at.make_folder(OsStr::new(&name)).unwrap();
            at = at.folder(OsStr::new(&name)).unwrap();
        }
        at.make_file(OsStr::new("hidden"), false).unwrap();
        let deep = read(folder.path(), ListingBounds::default());
        assert_eq!((deep.entries.len(), deep.left_out), (20, 1));
        let folder = tempfile::tempdir().unwrap();
        let strange = OsStr::from_bytes(b"\xff");
        symlink(strange, folder.path().join("link")).unwrap();
        fs::write(folder.path().join(strange), "").unwrap();
        let listing = read(folder.path(), ListingBounds::default());
        assert_eq!((listing.entries.len(), listing.left_out), (1, 2));
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let folder = folder();
        fs::create_dir(folder.path().join("within")).unwrap();
        for name in ["one", "within"] {
            let closed = fs::Permissions::from_mode(0o000);
            fs::set_permissions(folder.path().join(name), closed).unwrap();
        }
        // Nothing is closed to root.
        let is_closed = File::open(folder.path().join("one")).is_err();
        let listing = read(folder.path(), ListingBounds::default());
        assert_eq!(listing.left_out, if is_closed { 2 } else { 0 });
        assert_eq!(listing.entries.len(), 4);
    }

    #[test]
    fn an_interrupt_ends_the_reading() {
        let interrupt = Interrupt::default();
        interrupt.set();
        let folder = folder();
        let root = OpenFolder::open(folder.path()).unwrap();
        assert!(FolderListing::read(&root, ListingBounds::default(), &interrupt).is_err());
        let file = File::open(folder.path().join("one")).unwrap();
        assert!(digest(file, 4, &interrupt).is_err());
    }

    #[test]
    fn a_file_that_is_longer_or_shorter_than_it_was_has_no_digest() {
        let folder = folder();
        let open = || File::open(folder.path().join("one")).unwrap();
        let digest = |bytes| digest(open(), bytes, &Interrupt::default());
        assert_eq!(digest(4).unwrap(), Hash::of(b"four"));
        assert!(digest(3).is_err() && digest(5).is_err());
    }

    #[test]
    fn folders_that_turn_into_links_lead_nowhere() {
        use rustix::fs::{RenameFlags, renameat_with};
        let (outside, inside) = (folder(), tempfile::tempdir().unwrap());
        for at in 0..10 {
            fs::create_dir(inside.path().join(format!("d{at}"))).unwrap();
            symlink(outside.path(), inside.path().join(format!("l{at}"))).unwrap();
        }
        let is_read = AtomicBool::new(false);
        let exchange = || {
            let above = File::open(inside.path()).unwrap();
            let mut at = 0;
            while !is_read.load(Ordering::Relaxed) {
                at = (at + 1) % 10;
                let (folder, link) = (format!("d{at}"), format!("l{at}"));
                renameat_with(&above, folder, &above, link, RenameFlags::EXCHANGE).unwrap();
            }
        };
        let found = std::thread::scope(|scope| {
            scope.spawn(exchange);
            let listings = (0..300).map(|_| read(inside.path(), ListingBounds::default()));
            let mut entries = listings.flat_map(|listing| listing.entries.into_keys());
            let found = entries.find(|path| path.ends_with("one"));
            is_read.store(true, Ordering::Relaxed);
            found
        });
        assert_eq!(found, None);
    }
}

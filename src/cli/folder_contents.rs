//! What is in a folder, and how it differs from what was there before.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ktsu_ledger::{CanonicalJson, Hash};
use serde_json::{Map, Value, json};

/// The most files, folders and links of a folder.
const MAX_ENTRIES: usize = 200_000;

/// The most bytes of a file whose content a difference has.
const MAX_CONTENT: u64 = 1 << 20;

/// The most bytes of paths and contents in a difference.
const MAX_DIFFERENCE: u64 = 4 << 20;

/// What is in a folder, by paths within it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FolderContents {
    root: PathBuf,
    entries: BTreeMap<String, Entry>,
    /// Entries whose path is not UTF-8, and those that are too many.
    unnamed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File {
        bytes: u64,
        digest: Hash,
        executable: bool,
    },
    Folder,
    Link(String),
    /// A pipe, a socket, a device, or a file that cannot be read.
    Other,
}

impl FolderContents {
    /// Reads a folder. Links are not followed.
    ///
    /// # Errors
    /// The folder itself cannot be read.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let mut contents = Self {
            root: root.to_path_buf(),
            ..Self::default()
        };
        let mut folders = vec![root.to_path_buf()];
        let mut is_root = true;
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if is_root => return Err(error),
                // A program may take its rights away.
                Err(_) => continue,
            };
            is_root = false;
            for entry in entries.flatten() {
                let path = entry.path();
                let relative = path.strip_prefix(root).ok().and_then(Path::to_str);
                let Some(relative) = relative.filter(|_| contents.entries.len() < MAX_ENTRIES)
                else {
                    contents.unnamed += 1;
                    continue;
                };
                let found = Entry::of(&path).unwrap_or(Entry::Other);
                contents.entries.insert(relative.to_owned(), found.clone());
                if found == Entry::Folder {
                    folders.push(path);
                }
            }
        }
        Ok(contents)
    }

    /// BLAKE3 of all of it, as canonical JSON: `{PATH: {bytes, digest, executable, kind}}`.
    pub(super) fn digest(&self) -> Hash {
        let entries = self.entries.iter();
        let entries: Map<String, Value> = entries
            .map(|(path, entry)| (path.clone(), entry.shown()))
            .collect();
        let text = CanonicalJson::from_value(&Value::Object(entries)).unwrap_or_default();
        Hash::of(text.as_str().as_bytes())
    }

    /// How it differs from what was there before: `{added, modified, removed}`, with the contents of files.
    /// `whole` says whether all of it is there.
    pub(super) fn difference_from(&self, before: &Self) -> Value {
        let mut kept = Kept::default();
        let (mut added, mut modified) = (Map::new(), Map::new());
        for (path, entry) in &self.entries {
            match before.entries.get(path) {
                Some(was) if was == entry => {}
                was => {
                    let Some(shown) = kept.shown(&self.root, path, entry) else {
                        continue;
                    };
                    match was {
                        None => added.insert(path.clone(), shown),
                        Some(_) => modified.insert(path.clone(), shown),
                    };
                }
            }
        }
        let gone = before.entries.keys();
        let gone = gone.filter(|path| !self.entries.contains_key(*path));
        let removed: Vec<&String> = gone.filter(|path| kept.has_room(path)).collect();
        let mut difference = json!({"added": added, "modified": modified, "removed": removed,
            "whole": kept.left_out == 0 && self.unnamed + before.unnamed == 0});
        let left_out = kept.left_out.saturating_add(self.unnamed);
        if left_out > 0 {
            difference["left_out"] = json!(left_out);
        }
        difference
    }
}

impl Entry {
    fn of(path: &Path) -> io::Result<Self> {
        let about = path.symlink_metadata()?;
        Ok(match about.file_type() {
            kind if kind.is_dir() => Self::Folder,
            kind if kind.is_symlink() => {
                match fs::read_link(path)?.into_os_string().into_string() {
                    Ok(target) => Self::Link(target),
                    Err(_) => Self::Other,
                }
            }
            kind if kind.is_file() => Self::File {
                bytes: about.len(),
                digest: digest(path)?,
                executable: is_executable(&about),
            },
            _ => Self::Other,
        })
    }

    fn shown(&self) -> Value {
        match self {
            Self::File {
                bytes,
                digest,
                executable,
            } => {
                json!({"bytes": bytes, "digest": digest, "executable": executable, "kind": "file"})
            }
            Self::Folder => json!({"kind": "folder"}),
            Self::Link(target) => json!({"kind": "link", "target": target}),
            Self::Other => json!({"kind": "other"}),
        }
    }
}

/// How much a difference has so far.
#[derive(Default)]
struct Kept {
    bytes: u64,
    /// Entries, and contents of files, that it does not have.
    left_out: u64,
}

impl Kept {
    /// Whether there is room for an entry of this path.
    fn has_room(&mut self, path: &str) -> bool {
        // The entry itself has about as many.
        let bytes = self.bytes.saturating_add(path.len() as u64 + 128);
        let has_room = bytes <= MAX_DIFFERENCE;
        match has_room {
            true => self.bytes = bytes,
            false => self.left_out += 1,
        }
        has_room
    }

    /// An entry, with its content.
    fn shown(&mut self, root: &Path, path: &str, entry: &Entry) -> Option<Value> {
        if !self.has_room(path) {
            return None;
        }
        let mut shown = entry.shown();
        if let Entry::File { digest, .. } = entry {
            match self.content(&root.join(path), digest) {
                Some(Ok(text)) => shown["text"] = json!(text),
                Some(Err(bytes)) => shown["base64"] = json!(STANDARD.encode(bytes)),
                None => self.left_out += 1,
            }
        }
        Some(shown)
    }

    /// The content of a file, if it is small enough and what was looked at before.
    fn content(&mut self, path: &Path, digest: &Hash) -> Option<Result<String, Vec<u8>>> {
        let most = MAX_CONTENT.min(MAX_DIFFERENCE.saturating_sub(self.bytes));
        let mut bytes = Vec::new();
        let read = open(path).ok()?.take(most + 1).read_to_end(&mut bytes);
        if read.ok()? as u64 > most || Hash::of(&bytes) != *digest {
            return None;
        }
        self.bytes += bytes.len() as u64;
        Some(String::from_utf8(bytes).map_err(|error| error.into_bytes()))
    }
}

fn is_executable(about: &Metadata) -> bool {
    about.permissions().mode() & 0o111 != 0
}

/// Opens a file, and neither what a link leads to nor a pipe that would be waited for.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
}

fn digest(path: &Path) -> io::Result<Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(open(path)?)?;
    Ok(Hash::from_bytes(hasher.finalize().as_bytes()).unwrap_or(Hash::ZERO))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        folder
    }

    #[test]
    fn a_difference_has_what_was_added_modified_and_removed_and_nothing_else() {
        let folder = folder(&[("same", b"1"), ("other", b"1"), ("gone/a", b"1")]);
        let before = FolderContents::read(folder.path()).unwrap();
        fs::write(folder.path().join("other"), "2").unwrap();
        fs::write(folder.path().join("new"), [0xff, 0]).unwrap();
        fs::remove_dir_all(folder.path().join("gone")).unwrap();
        symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let after = FolderContents::read(folder.path()).unwrap();
        assert_ne!(before.digest(), after.digest());
        let difference = after.difference_from(&before);
        assert_eq!(difference["removed"], json!(["gone", "gone/a"]));
        assert_eq!(difference["modified"]["other"]["text"], "2");
        assert_eq!(difference["added"]["new"]["base64"], "/wA=");
        let link = json!({"kind": "link", "target": "/etc/passwd"});
        assert_eq!(difference["added"]["link"], link);
        let (added, modified) = (&difference["added"], &difference["modified"]);
        assert_eq!(added.as_object().unwrap().len(), 2);
        assert_eq!(modified.as_object().unwrap().len(), 1);
        assert_eq!(difference["whole"], true);
        let none = json!({"added": {}, "modified": {}, "removed": [], "whole": true});
        assert_eq!(after.difference_from(&after), none);
    }

    #[test]
    fn what_is_too_large_is_listed_without_its_content() {
        let large = vec![b'x'; 1 + usize::try_from(MAX_CONTENT).unwrap()];
        let folder = folder(&[("large", &large)]);
        let after = FolderContents::read(folder.path()).unwrap();
        let difference = after.difference_from(&FolderContents::default());
        let file = &difference["added"]["large"];
        assert_eq!(file["bytes"], large.len());
        assert!(file.get("text").is_none());
        assert_eq!(
            (&difference["whole"], &difference["left_out"]),
            (&json!(false), &json!(1))
        );
    }
}

//! What is in a folder, and how it differs from what was there before.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
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

/// Makes a difference to a folder. Nothing is changed outside of it, whatever the difference says.
///
/// # Errors
/// The difference does not fit, or is not whole.
pub(super) fn apply(root: &Path, difference: &Value) -> io::Result<()> {
    let root = root.canonicalize()?;
    let removed = difference["removed"].as_array().into_iter().flatten();
    // What is within a folder comes after it.
    for path in removed.rev() {
        let path = place(&root, path.as_str().unwrap_or_default())?;
        match path.symlink_metadata()?.is_dir() {
            true => fs::remove_dir(&path)?,
            false => fs::remove_file(&path)?,
        }
    }
    for members in ["added", "modified"] {
        let entries = difference[members].as_object().into_iter().flatten();
        for (path, entry) in entries {
            put(&place(&root, path)?, entry)?;
        }
    }
    Ok(())
}

/// Where a path of a difference is: in a folder that is within the root, and no link leads there.
fn place(root: &Path, path: &str) -> io::Result<PathBuf> {
    let outside = || io::Error::other("a path leads out of the folder");
    let path = Path::new(path);
    let is_plain = |part| matches!(part, std::path::Component::Normal(_));
    let name = path.file_name().filter(|_| path.components().all(is_plain));
    let above = root.join(path.parent().unwrap_or(Path::new("")));
    let above = above.canonicalize().ok();
    let above = above.filter(|above| above.starts_with(root));
    above
        .zip(name)
        .map(|(above, name)| above.join(name))
        .ok_or_else(outside)
}

fn put(path: &Path, entry: &Value) -> io::Result<()> {
    let is_folder = path.symlink_metadata().map(|about| about.is_dir());
    match (is_folder, entry["kind"].as_str()) {
        (Ok(true), Some("folder")) => return Ok(()),
        (Ok(true), _) => fs::remove_dir(path)?,
        (Ok(false), _) => fs::remove_file(path)?,
        (Err(_), _) => {}
    }
    match entry["kind"].as_str() {
        Some("folder") => fs::create_dir(path),
        Some("link") => symlink(entry["target"].as_str().unwrap_or_default(), path),
        Some("file") => {
            fs::write(path, content(entry)?)?;
            let mode = if entry["executable"] == true {
                0o755
            } else {
                0o644
            };
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        }
        _ => Err(io::Error::other(
            "it is neither a file, a folder nor a link",
        )),
    }
}

fn content(entry: &Value) -> io::Result<Vec<u8>> {
    let missing = || io::Error::other("its content is not kept");
    match (entry["text"].as_str(), entry["base64"].as_str()) {
        (Some(text), _) => Ok(text.as_bytes().to_vec()),
        (None, Some(bytes)) => STANDARD.decode(bytes).map_err(|_| missing()),
        (None, None) => Err(missing()),
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
    fn a_difference_that_is_made_to_what_was_before_gives_what_was_after() {
        let files: &[(&str, &[u8])] = &[("a/b/c", b"1"), ("d", b"1"), ("e", b"1"), ("f/g", b"1")];
        let (first, second) = (folder(files), folder(files));
        let before = FolderContents::read(first.path()).unwrap();
        let root = first.path();
        fs::remove_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a"), "now a file").unwrap();
        fs::write(root.join("d"), [0xff]).unwrap();
        fs::set_permissions(root.join("e"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(root.join("n/m")).unwrap();
        symlink("/nowhere", root.join("n/l")).unwrap();
        let after = FolderContents::read(root).unwrap();
        let difference = after.difference_from(&before);
        apply(second.path(), &difference).unwrap();
        let made = FolderContents::read(second.path()).unwrap();
        assert_eq!(made.digest(), after.digest());
        assert!(
            apply(second.path(), &difference).is_err(),
            "what is gone cannot be removed"
        );
    }

    #[test]
    fn a_difference_changes_nothing_outside_of_its_folder() {
        let outside = folder(&[("kept", b"1")]);
        let folder = folder(&[("a", b"1")]);
        symlink(outside.path(), folder.path().join("link")).unwrap();
        let file = json!({"kind": "file", "text": "2", "executable": false});
        for path in [
            "link/kept",
            "link/new",
            "../new",
            "/new",
            "a/../../new",
            "",
            ".",
        ] {
            let difference = json!({"added": {path: file}, "modified": {}, "removed": []});
            assert!(apply(folder.path(), &difference).is_err(), "{path}");
        }
        let difference = json!({"added": {}, "modified": {}, "removed": ["link/kept"]});
        assert!(apply(folder.path(), &difference).is_err());
        assert_eq!(fs::read(outside.path().join("kept")).unwrap(), b"1");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
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

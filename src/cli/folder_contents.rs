//! The contents of a folder, and their difference from what was there before.

mod change;
mod listing;

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ktsu_ledger::{CanonicalJson, Hash};
use ktsu_sandbox::{Interrupt, OpenFolder};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub(super) use self::change::apply;
use self::listing::{FolderEntry, FolderListing, ListingBounds};

/// The most bytes of a file whose content a difference has.
const MAX_CONTENT: u64 = 1 << 20;

/// The most bytes of a difference as JSON.
const MAX_DIFFERENCE: u64 = 4 << 20;

/// The contents of a folder, by paths within it.
#[derive(Debug, Clone, Default)]
pub(super) struct FolderContents {
    root: PathBuf,
    entries: BTreeMap<String, FolderEntry>,
    /// Entries, folders and contents of files that are not looked at.
    left_out: u64,
    /// That of all entries, once it was asked for.
    digest: OnceLock<Hash>,
}

impl FolderContents {
    /// Reads a folder, unless it is interrupted. No link is followed, even if something writes to it
    /// meanwhile.
    ///
    /// # Errors
    /// The folder itself cannot be read, or the interrupt is set.
    pub(super) fn read(root: &Path, interrupt: &Interrupt) -> io::Result<Self> {
        Self::within(root, ListingBounds::default(), interrupt)
    }

    fn within(root: &Path, bounds: ListingBounds, interrupt: &Interrupt) -> io::Result<Self> {
        let listing = FolderListing::read(&OpenFolder::open(root)?, bounds, interrupt)?;
        Ok(Self {
            root: root.to_path_buf(),
            entries: listing.entries,
            left_out: listing.left_out,
            digest: OnceLock::new(),
        })
    }

    /// BLAKE3 of all of it, as canonical JSON: `{PATH: {bytes, digest, executable, kind}}`.
    pub(super) fn digest(&self) -> Hash {
        *self.digest.get_or_init(|| self.made_digest())
    }

    fn made_digest(&self) -> Hash {
        let mut hasher = blake3::Hasher::new();
        let mut before = "{";
        for (path, entry) in &self.entries {
            let entry = CanonicalJson::from_value(&entry.shown()).unwrap_or_default();
            for part in [before, CanonicalJson::string(path).as_str(), ":"] {
                hasher.update(part.as_bytes());
            }
            hasher.update(entry.as_str().as_bytes());
            before = ",";
        }
        if self.entries.is_empty() {
            hasher.update(b"{");
        }
        hasher.update(b"}");
        Hash::from_bytes(hasher.finalize().as_bytes()).unwrap_or(Hash::ZERO)
    }

    /// The difference from what was there before: `{added, modified, removed}`, with the contents
    /// of files. `whole` says whether all of it is there.
    ///
    /// # Errors
    /// The folder itself cannot be read any more.
    pub(super) fn difference_from(&self, before: &Self) -> io::Result<Value> {
        let root = OpenFolder::open(&self.root)?;
        let mut kept = Kept::default();
        let (mut added, mut modified) = (Map::new(), Map::new());
        for (path, entry) in &self.entries {
            match before.entries.get(path) {
                Some(was) if was == entry => {}
                was => {
                    let Some(shown) = kept.shown(&root, path, entry) else {
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
        let removed: Vec<&String> = gone.filter(|path| kept.has_room(path, &())).collect();
        let mut difference = json!({"added": added, "modified": modified, "removed": removed,
            "whole": kept.left_out == 0 && self.left_out == 0 && before.left_out == 0});
        let left_out = kept.left_out.saturating_add(self.left_out);
        if left_out > 0 {
            difference["left_out"] = json!(left_out);
        }
        Ok(difference)
    }
}

/// The size of a difference so far.
#[derive(Default)]
struct Kept {
    /// Of JSON.
    bytes: u64,
    /// Entries, and contents of files, that it does not have.
    left_out: u64,
}

impl Kept {
    /// Returns `true` if there is room for an entry of this path.
    fn has_room(&mut self, path: &str, entry: &impl Serialize) -> bool {
        let length = json_length(&path).saturating_add(json_length(entry));
        let has_room = self.takes(length);
        self.left_out += u64::from(!has_room);
        has_room
    }

    fn takes(&mut self, length: u64) -> bool {
        let bytes = self.bytes.saturating_add(length).saturating_add(BETWEEN);
        let has_room = bytes <= MAX_DIFFERENCE;
        if has_room {
            self.bytes = bytes;
        }
        has_room
    }

    /// An entry, with its content.
    fn shown(&mut self, root: &OpenFolder, path: &str, entry: &FolderEntry) -> Option<Value> {
        let mut shown = entry.shown();
        if !self.has_room(path, &shown) {
            return None;
        }
        if let FolderEntry::File {
            digest: Some(digest),
            bytes,
            ..
        } = entry
        {
            match self.content(root, Path::new(path), (*bytes, digest)) {
                Some((name, content)) => shown[name] = content,
                None => self.left_out += 1,
            }
        }
        Some(shown)
    }

    /// The content of a file, if there is room for it and it is what was looked at before.
    fn content(
        &mut self,
        root: &OpenFolder,
        path: &Path,
        (length, digest): (u64, &Hash),
    ) -> Option<(&'static str, Value)> {
        if length > MAX_CONTENT.min(MAX_DIFFERENCE.saturating_sub(self.bytes)) {
            return None;
        }
        let folder = root.below(path.parent().unwrap_or(Path::new("")));
        let opened = folder.and_then(|folder| folder.file(path.file_name().unwrap_or_default()));
        let (file, _) = opened.ok()?;
        let mut bytes = Vec::new();
        file.take(length + 1).read_to_end(&mut bytes).ok()?;
        if Hash::of(&bytes) != *digest {
            return None;
        }
        let encoded = |bytes: &[u8]| ("base64", json!(STANDARD.encode(bytes)));
        let (name, content) = match String::from_utf8(bytes) {
            Ok(text) if is_longer_than_base64(&text) => encoded(text.as_bytes()),
            Ok(text) => ("text", json!(text)),
            Err(error) => encoded(error.as_bytes()),
        };
        self.takes(json_length(&content)).then_some((name, content))
    }
}

/// Returns `true` if a text has so many control characters, each of which is six bytes of JSON,
/// that base64 is shorter.
fn is_longer_than_base64(text: &str) -> bool {
    let is_escaped = |c: char| c.is_ascii_control() && !c.is_ascii_whitespace();
    let quotes = 2;
    let encoded = text.len().div_ceil(3) * 4 + quotes;
    text.contains(is_escaped) && json_length(&text) > encoded as u64
}

/// Bytes of names, quotes and commas around an entry and its content.
const BETWEEN: u64 = 16;

/// The length of a value as JSON: a control character is six bytes.
pub(super) fn json_length(value: &impl Serialize) -> u64 {
    struct Length(u64);
    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len() as u64);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    let _ = serde_json::to_writer(&mut length, value);
    length.0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn read(root: &Path) -> io::Result<FolderContents> {
        FolderContents::read(root, &Interrupt::default())
    }

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
        let before = read(folder.path()).unwrap();
        fs::write(folder.path().join("other"), "2").unwrap();
        fs::write(folder.path().join("new"), [0xff, 0]).unwrap();
        fs::remove_dir_all(folder.path().join("gone")).unwrap();
        symlink("/etc/passwd", folder.path().join("link")).unwrap();
        let after = read(folder.path()).unwrap();
        assert_ne!(before.digest(), after.digest());
        let difference = after.difference_from(&before).unwrap();
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
        assert_eq!(after.difference_from(&after).unwrap(), none);
    }

    #[test]
    fn a_difference_that_is_made_to_what_was_before_gives_what_was_after() {
        let files: &[(&str, &[u8])] = &[("a/b/c", b"1"), ("d", b"1"), ("e", b"1"), ("f/g", b"1")];
        let (first, second) = (folder(files), folder(files));
        let before = read(first.path()).unwrap();
        let root = first.path();
        fs::remove_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a"), "now a file").unwrap();
        fs::write(root.join("d"), [0xff]).unwrap();
        fs::set_permissions(root.join("e"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(root.join("n/m")).unwrap();
        symlink("/nowhere", root.join("n/l")).unwrap();
        let after = read(root).unwrap();
        let difference = after.difference_from(&before).unwrap();
        apply(second.path(), &difference).unwrap();
        let made = read(second.path()).unwrap();
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
        let after = read(folder.path()).unwrap();
        let difference = after.difference_from(&FolderContents::default()).unwrap();
        let file = &difference["added"]["large"];
        assert_eq!(file["bytes"], large.len());
        assert!(file.get("text").is_none());
        assert_eq!(
            (&difference["whole"], &difference["left_out"]),
            (&json!(false), &json!(1))
        );
    }

    #[test]
    fn a_digest_is_that_of_the_canonical_json_of_all_entries() {
        let empty = folder(&[]);
        assert_eq!(read(empty.path()).unwrap().digest(), Hash::of(b"{}"));
        let files: &[(&str, &[u8])] =
            &[("a\"\u{1}", b"1"), ("\u{ffff}", b"2"), ("\u{10000}/b", b"")];
        let folder = folder(files);
        symlink("\n", folder.path().join("link")).unwrap();
        let contents = read(folder.path()).unwrap();
        let entries = contents.entries.iter();
        let entries = entries.map(|(path, entry)| (path.clone(), entry.shown()));
        let whole = CanonicalJson::from_value(&Value::Object(entries.collect())).unwrap();
        assert_eq!(contents.entries.len(), 5);
        assert_eq!(contents.digest(), Hash::of(whole.as_str().as_bytes()));
    }

    #[test]
    fn a_difference_is_as_large_as_it_is_as_json() {
        let quotes = vec![b'"'; 1_000_000];
        let names = ["a", "b", "c", "d"];
        let folder = folder(&names.map(|name| (name, quotes.as_slice())));
        let after = read(folder.path()).unwrap();
        let difference = after.difference_from(&FolderContents::default()).unwrap();
        assert_eq!(difference["left_out"], 2);
        assert!(json_length(&difference) < MAX_DIFFERENCE);
        assert_eq!(
            json_length(&difference),
            difference.to_string().len() as u64
        );
    }

    #[test]
    fn text_of_control_characters_is_kept_as_base64_which_is_shorter() {
        let control = vec![1; 900_000];
        let few = "\u{1b}[1mbold\u{1b}[0m, and more text than that";
        let folder = folder(&[
            ("control", control.as_slice()),
            ("few", few.as_bytes()),
            ("json", br#"{"":""}"#),
        ]);
        let after = read(folder.path()).unwrap();
        let difference = after.difference_from(&FolderContents::default()).unwrap();
        let added = &difference["added"];
        assert_eq!(added["control"]["base64"], STANDARD.encode(&control));
        assert_eq!(added["few"]["text"], few);
        assert_eq!(added["json"]["text"], r#"{"":""}"#);
        assert_eq!(difference["whole"], true);
    }

    #[test]
    fn a_file_that_changes_after_it_was_looked_at_is_left_out() {
        let folder = folder(&[("a", b"1")]);
        let after = read(folder.path()).unwrap();
        fs::write(folder.path().join("a"), "2").unwrap();
        let difference = after.difference_from(&FolderContents::default()).unwrap();
        assert!(difference["added"]["a"].get("text").is_none());
        assert_eq!(difference["whole"], false);
    }

    #[test]
    fn two_versions_that_are_not_looked_at_are_not_the_same() {
        let folder = folder(&[("a", b"12")]);
        let bounds = ListingBounds {
            bytes: 1,
            ..ListingBounds::default()
        };
        let read = || FolderContents::within(folder.path(), bounds, &Interrupt::default());
        let before = read().unwrap();
        fs::write(folder.path().join("a"), "34").unwrap();
        let difference = read().unwrap().difference_from(&before).unwrap();
        assert_eq!(difference["whole"], false);
    }
}

//! The files of a folder as text for a model: their names and sizes, and what those say that are text.

use std::fs::{self, DirEntry, File};
use std::io::Read as _;
use std::path::Path;

/// The most entries that are listed.
const MAX_ENTRIES: usize = 1_000;

/// The most entries that are looked at.
const MAX_VISITED: usize = 100_000;

/// The deepest level at which folders are listed.
const MAX_DEPTH: usize = 32;

/// The most bytes of all texts together.
const MAX_TEXT: usize = 40 << 10;

/// The most bytes of the text of one file.
const MAX_FILE_TEXT: u64 = 16 << 10;

/// A listing of the contents of a folder.
struct Listing {
    lines: Vec<String>,
    texts: Vec<String>,
    /// The number of bytes of texts that there is still room for.
    room: usize,
    visited: usize,
    /// The number of entries that are not listed, and of files that are not shown.
    unlisted: usize,
    unshown: usize,
}

/// The files of a folder, in the order of their names. Links are named, and not followed.
///
/// # Errors
/// It cannot be read.
pub(super) fn overview(root: &Path) -> Result<String, String> {
    let mut listing = Listing {
        lines: Vec::new(),
        texts: Vec::new(),
        room: MAX_TEXT,
        visited: 0,
        unlisted: 0,
        unshown: 0,
    };
    listing.folder(root, "", 0)?;
    let Listing {
        lines,
        texts,
        unlisted,
        unshown,
        ..
    } = listing;
    let mut text = format!("Files ({}):\n{}\n", lines.len(), lines.join("\n"));
    if unlisted > 0 {
        text.push_str(&format!("[{unlisted} more are not listed]\n"));
    }
    text.extend(texts);
    if unshown > 0 {
        text.push_str(&format!("\n[the text of {unshown} files is left out]\n"));
    }
    Ok(text)
}

impl Listing {
    fn folder(&mut self, folder: &Path, shown: &str, depth: usize) -> Result<(), String> {
        let unread = |error: std::io::Error| {
            let name = if shown.is_empty() {
                "the folder"
            } else {
                shown
            };
            format!("{name} cannot be read: {}", error.kind())
        };
        let mut entries: Vec<DirEntry> = Vec::new();
        for entry in fs::read_dir(folder).map_err(unread)? {
            self.visited += 1;
            if self.visited > MAX_VISITED {
                return Err(format!("there are more than {MAX_VISITED} files"));
            }
            entries.push(entry.map_err(unread)?);
        }
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let name = printable(&entry.file_name().to_string_lossy());
            let name = match shown {
                "" => name,
                above => format!("{above}/{name}"),
            };
            self.entry(&entry, &name, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &DirEntry, name: &str, depth: usize) -> Result<(), String> {
        let found = entry.metadata().map_err(|error| {
            let kind = error.kind();
            format!("{name} cannot be read: {kind}")
        })?;
        if found.is_dir() {
            if depth >= MAX_DEPTH {
                self.list(format!("{name}/ (not listed)"));
                return Ok(());
            }
            return self.folder(&entry.path(), name, depth + 1);
        }
        if found.is_symlink() {
            let to = fs::read_link(entry.path()).unwrap_or_default();
            self.list(format!("{name} -> {}", printable(&to.to_string_lossy())));
        } else if found.is_file() {
            self.file(&entry.path(), name, found.len());
        } else {
            self.list(format!("{name} (no file)"));
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: &str, bytes: u64) {
        let read = File::open(path).and_then(|file| {
            let mut read = Vec::new();
            file.take(MAX_FILE_TEXT).read_to_end(&mut read)?;
            Ok(read)
        });
        let text = read.ok().and_then(|read| text_of(&read, bytes));
        let Some(text) = text else {
            return self.list(format!("{name} ({bytes} bytes, not text)"));
        };
        self.list(format!("{name} ({bytes} bytes)"));
        if text.len() > self.room {
            self.unshown += 1;
            return;
        }
        self.room -= text.len();
        let left_out = bytes.saturating_sub(text.len() as u64);
        let more = match left_out {
            0 => String::new(),
            count => format!("\n[{count} more bytes are left out]"),
        };
        self.texts.push(format!("\n=== {name}\n{text}{more}\n"));
    }

    fn list(&mut self, line: String) {
        match self.lines.len() < MAX_ENTRIES {
            true => self.lines.push(line),
            false => self.unlisted += 1,
        }
    }
}

/// The text that a file begins with; none if it is not text.
fn text_of(read: &[u8], bytes: u64) -> Option<String> {
    let text = match std::str::from_utf8(read) {
        Ok(text) => text,
        // Reading may have ended within a character.
        Err(error) if error.error_len().is_none() && bytes > read.len() as u64 => {
            std::str::from_utf8(read.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0')).then(|| text.to_owned())
}

/// A name whose characters are all visible.
fn printable(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_in_order_with_what_is_text_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("sub/b.txt"), "two").unwrap();
        fs::write(root.join("a.txt"), "one\n").unwrap();
        fs::write(root.join("z.bin"), [0, 159, 146]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
        assert_eq!(
            overview(root).unwrap(),
            "Files (4):\na.txt (4 bytes)\nlink -> /etc/passwd\nsub/b.txt (3 bytes)\n\
             z.bin (3 bytes, not text)\n\n=== a.txt\none\n\n\n=== sub/b.txt\ntwo\n"
        );
    }

    #[test]
    fn what_is_left_out_of_texts_is_said_with_its_size() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(folder.path().join(name), "ä".repeat(9_000)).unwrap();
        }
        let text = overview(folder.path()).unwrap();
        assert!(text.contains("[1616 more bytes are left out]"), "{text}");
        assert!(text.contains("[the text of 1 files is left out]"));
        assert!(text.len() < 64 << 10);
    }
}

//! Making a difference to a folder.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ktsu_sandbox::{EntryKind, OpenFolder};
use serde_json::Value;

/// Makes a difference to a folder. Nothing is changed outside of it, whatever the difference says.
///
/// # Errors
/// The difference does not fit, or is not whole.
pub(crate) fn apply(root: &Path, difference: &Value) -> io::Result<()> {
    let root = OpenFolder::open(root)?;
    let removed = difference["removed"].as_array().into_iter().flatten();
    // What is within a folder comes after it.
    for path in removed.rev() {
        let (folder, name) = place(&root, path.as_str().unwrap_or_default())?;
        let is_folder = folder.status(name)?.kind == EntryKind::Folder;
        folder.remove(name, is_folder)?;
    }
    for members in ["added", "modified"] {
        let entries = difference[members].as_object().into_iter().flatten();
        for (path, entry) in entries {
            put(place(&root, path)?, entry)?;
        }
    }
    Ok(())
}

/// The place of a path of a difference: the folder that it is in, which no link leads to, and its
/// name there.
fn place<'p>(root: &OpenFolder, path: &'p str) -> io::Result<(OpenFolder, &'p OsStr)> {
    let mut parts = Path::new(path).components();
    let Some(Component::Normal(name)) = parts.next_back() else {
        return Err(io::Error::other("a path leads out of the folder"));
    };
    Ok((root.below(parts.as_path())?, name))
}

fn put((folder, name): (OpenFolder, &OsStr), entry: &Value) -> io::Result<()> {
    let is_folder = folder.status(name).map(|it| it.kind == EntryKind::Folder);
    match (is_folder, entry["kind"].as_str()) {
        (Ok(true), Some("folder")) => return Ok(()),
        (Ok(is_folder), _) => folder.remove(name, is_folder)?,
        (Err(_), _) => {}
    }
    match entry["kind"].as_str() {
        Some("folder") => folder.make_folder(name),
        Some("link") => {
            let target = entry["target"].as_str().unwrap_or_default();
            folder.make_link(name, OsStr::new(target))
        }
        Some("file") => {
            let mut file = folder.make_file(name, entry["executable"] == true)?;
            file.write_all(&content(entry)?)
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

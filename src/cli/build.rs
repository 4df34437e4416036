//! Lists the pages of `docs/errors`, which `ktsu explain` prints: `(CODE, TEXT)`, sorted by code.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> io::Result<()> {
    let folder = folder_of("CARGO_MANIFEST_DIR")?.join("../../docs/errors");
    writeln!(io::stdout(), "cargo::rerun-if-changed={}", folder.display())?;
    let files = fs::read_dir(folder)?.map(|file| Ok(file?.path()));
    let files: Vec<PathBuf> = files.collect::<io::Result<_>>()?;
    let mut pages: Vec<(&OsStr, &Path)> = files
        .iter()
        .filter(|file| file.extension().is_some_and(|ending| ending == "md"))
        .filter_map(|file| Some((file.file_stem()?, file.as_path())))
        .collect();
    pages.sort_unstable();
    let rows = pages
        .iter()
        .map(|(code, file)| format!("({code:?}, include_str!({file:?})),\n"));
    let list = format!("&[\n{}]\n", rows.collect::<String>());
    fs::write(folder_of("OUT_DIR")?.join("error_pages.rs"), list)
}

/// A folder that Cargo names.
fn folder_of(variable: &str) -> io::Result<PathBuf> {
    let folder = env::var_os(variable).ok_or(io::ErrorKind::NotFound)?;
    Ok(PathBuf::from(folder))
}

//! The report that bubblewrap writes about itself and the program that it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::usage;

/// A file that bubblewrap writes to, one for each program.
#[derive(Debug)]
pub(crate) struct StatusFile(PathBuf);

/// The content of the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// The exit code of the program, if it ended by itself.
    pub(crate) exit_code: Option<i32>,
    /// The first process of the namespace; none if it was not begun.
    first: Option<i32>,
}

impl StatusFile {
    /// One in a private folder.
    pub(crate) fn new(root: &Path) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(root.join(format!("status-{number}")))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Reads it, once bubblewrap has ended, and removes it.
    pub(crate) fn take(self) -> Status {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let _ = fs::remove_file(&self.0);
        Status::of(&text)
    }
}

impl Status {
    fn of(text: &str) -> Self {
        Self {
            exit_code: member(text, "exit-code"),
            first: member(text, "child-pid"),
        }
    }

    /// Waits until every process of the namespace has ended, which may be after bubblewrap itself; false
    /// if that takes too long.
    pub(crate) fn has_ended(&self) -> bool {
        self.first.is_none_or(usage::has_ended)
    }
}

/// A number in what bubblewrap writes about itself: `{"exit-code": 3}`.
fn member(status: &str, name: &str) -> Option<i32> {
    let (_, number) = status.rsplit_once(&format!("\"{name}\":"))?;
    let digits = number.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits.get(..end?)?.parse().ok()
}

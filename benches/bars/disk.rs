//! The bare writer: what this disk allows whoever appends and syncs, and does nothing else.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::table::{median, per_second};

/// A folder on the disk of the build, never in memory.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn file(folder: &Path) -> File {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    options.open(folder.join("bare")).unwrap()
}

/// A file that is only appended to. It stays while something else is measured beside it: deleting
/// it in between would make the disk's next sync pay for that.
pub(crate) struct Bare {
    file: File,
    _folder: TempDir,
}

impl Bare {
    pub(crate) fn new() -> Self {
        let folder = folder();
        Self {
            file: file(folder.path()),
            _folder: folder,
        }
    }

    /// The median time of appending some bytes and syncing them.
    pub(crate) fn sync(&mut self, bytes: usize, rounds: usize) -> Duration {
        let block = vec![b'x'; bytes];
        let mut times: Vec<Duration> = (0..rounds)
            .map(|_| {
                let started = Instant::now();
                self.file.write_all(&block).unwrap();
                self.file.sync_data().unwrap();
                started.elapsed()
            })
            .collect();
        median(&mut times)
    }
}

/// Records a second when these are appended in groups of so many, each group synced.
pub(crate) fn grouped(records: &[String], group: usize, time: Duration) -> f64 {
    let folder = folder();
    let mut file = file(folder.path());
    let started = Instant::now();
    let mut written = 0;
    'all: loop {
        for group in records.chunks(group.max(1)) {
            file.write_all(group.concat().as_bytes()).unwrap();
            file.sync_data().unwrap();
            written += group.len();
            if started.elapsed() >= time {
                break 'all;
            }
        }
    }
    per_second(written, started.elapsed())
}

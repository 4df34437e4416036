//! The resources that a program takes while it runs: its processes, their memory, and what they
//! write.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::open_folder::{EntryKind, EntryStatus, OpenFolder};

/// The longest path that is followed, in bytes.
const MAX_PATH: usize = 3_000;

/// The processes below another one.
#[derive(Debug, Default)]
pub(crate) struct ProcessUsage {
    /// Those that it has started itself.
    pub(crate) children: Vec<i32>,
    /// All of them.
    pub(crate) all: Vec<i32>,
    /// Bytes of memory, of all of them: what they share counts for each.
    pub(crate) memory: u64,
    /// Bytes that they have written to disks, those that have ended among them.
    pub(crate) written: u64,
}

/// The size of a folder's content.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FolderUsage {
    /// Bytes on the disk, or the length of a file that has holes.
    pub(crate) bytes: u64,
    /// The length of its largest file.
    pub(crate) largest: u64,
    /// Number of files and folders in it.
    pub(crate) files: u64,
    /// True if it has folders too deep to be followed.
    pub(crate) is_too_deep: bool,
}

impl ProcessUsage {
    /// The processes that run below a process now, and their usage.
    pub(crate) fn below(root: i32) -> Self {
        let children = parents();
        let mut usage = Self {
            children: children.get(&root).cloned().unwrap_or_default(),
            ..Self::default()
        };
        let mut open = usage.children.clone();
        while let Some(process) = open.pop() {
            usage.all.push(process);
            usage.memory = usage.memory.saturating_add(memory(process));
            usage.written = usage.written.saturating_add(written(process));
            open.extend(children.get(&process).into_iter().flatten());
        }
        usage
    }
}

/// The time that it may take until the first process of a namespace has ended.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until the first process of a namespace has ended, which it does after all others; false if
/// that takes too long. It is the child of one that has ended, so that nothing reports its end.
pub(crate) fn has_ended(first: i32) -> bool {
    let began = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        let stat = fs::read_to_string(format!("/proc/{first}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let state = after.split_whitespace().next();
        if matches!(state, None | Some("Z" | "X")) {
            return true;
        }
        if began.elapsed() > END_TIMEOUT {
            return false;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// The processes of the machine, by the one that started them.
fn parents() -> BTreeMap<i32, Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read(entry.path().join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat).into_owned();
        // The name of the program may hold anything, parentheses too.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let parent = after.split_whitespace().nth(1);
        if let Some(parent) = parent.and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push(process);
        }
    }
    children
}

/// Memory that is not of files.
fn memory(process: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let lines = status.lines();
    let of_it = lines.filter(|line| line.starts_with("RssAnon:") || line.starts_with("RssShmem:"));
    let kib = of_it.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.sum::<u64>().saturating_mul(1 << 10)
}

/// Number of bytes that a process has written, with those of the children that it has waited for.
fn written(process: i32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let mut lines = io.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("write_bytes: "));
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

impl FolderUsage {
    /// The size of a folder's content now, of so many files at most. A program may be changing it.
    pub(crate) fn of(folder: &Path, most: u64) -> Self {
        let mut usage = Self::default();
        let Ok(root) = OpenFolder::open(folder) else {
            return usage;
        };
        let mut open = vec![PathBuf::new()];
        while let Some(path) = open.pop() {
            let Ok(folder) = root.below(&path) else {
                continue;
            };
            for name in folder.names().into_iter().flatten().flatten() {
                usage.files += 1;
                if usage.files > most {
                    return usage;
                }
                let below = path.join(&name);
                if below.as_os_str().len() > MAX_PATH {
                    usage.is_too_deep = true;
                    continue;
                }
                let Ok(about) = folder.status(&name) else {
                    continue;
                };
                usage.take(about);
                if about.kind == EntryKind::Folder {
                    open.push(below);
                }
            }
        }
        usage
    }

    /// Counts an entry. A file that has holes takes as long to be read as one that has none.
    fn take(&mut self, about: EntryStatus) {
        let length = match about.kind {
            EntryKind::File => about.bytes,
            EntryKind::Folder | EntryKind::Link | EntryKind::Other => 0,
        };
        self.bytes = self.bytes.saturating_add(about.on_disk.max(length));
        self.largest = self.largest.max(length);
    }
}

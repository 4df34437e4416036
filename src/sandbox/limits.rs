//! The limits on what a program may take.

use std::time::Duration;

/// The limits on what a program may take. Each has a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxLimits {
    /// From its start to its end.
    pub time: Duration,
    /// Bytes of memory: of each process, and of all together.
    pub memory: u64,
    /// Processes at a time.
    pub processes: u64,
    /// Bytes by which the workspace may grow, and the size of any file.
    pub disk: u64,
    /// Files and folders by which the workspace may grow.
    pub files: u64,
    /// Bytes of each output that are kept: its end.
    pub output: usize,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(600),
            memory: 2 << 30,
            processes: 512,
            disk: 1 << 30,
            files: 200_000,
            output: 64 << 10,
        }
    }
}

/// The limit that ended a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// [`SandboxLimits::time`].
    Time(Duration),
    /// [`SandboxLimits::memory`].
    Memory(u64),
    /// [`SandboxLimits::processes`].
    Processes(u64),
    /// [`SandboxLimits::disk`].
    Disk(u64),
    /// [`SandboxLimits::files`], and how deep folders are within each other.
    Files(u64),
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        match self {
            Self::Time(most) => write!(f, "it took longer than {most:?}"),
            Self::Memory(most) => write!(f, "it took more than {} MiB of memory", mib(*most)),
            Self::Processes(most) => write!(f, "it had {most} processes at a time"),
            Self::Disk(most) => write!(f, "it wrote more than {} MiB", mib(*most)),
            Self::Files(most) => write!(
                f,
                "it added more than {most} files, or folders too deep within each other"
            ),
        }
    }
}

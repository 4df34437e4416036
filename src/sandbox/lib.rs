//! Programs that are not trusted, such as the commands of checks: each runs apart from everything else
//! on the machine, within limits, beside a private copy of a folder.
//!
//! ```text
//! folder ─Sandbox::copy_of─────▶ PrivateFolder ─┐
//! Program ────────────────────Sandbox::run─────┴─▶ Execution: exit code or limit, output
//! ```
//!
//! [`Sandbox`] knows bubblewrap, [`execution`] the life of a process, [`process_group`] what ends it without a sandbox, [`usage`] what it takes,
//! [`PrivateFolder`] the files, [`OpenFolder`] how they are read while
//! programs may write to them, [`left_behind`] those of killed processes, [`Interrupt`] the wish to
//! stop. None of them knows what a check is. The sandbox exists on Linux only.

mod bubblewrap;
mod copying;
mod execution;
mod folder;
mod interrupt;
mod left_behind;
mod limits;
mod occupancy;
mod open_folder;
mod process_group;
mod serving;
mod status;
mod usage;

pub use bubblewrap::{Sandbox, SandboxError};
pub use execution::{Execution, Program, ProgramEnd, ProgramOutput, ReachedService};
pub use folder::{FolderError, PrivateFolder};
pub use interrupt::Interrupt;
pub use limits::{Limit, SandboxLimits};
pub use open_folder::{EntryKind, EntryStatus, OpenFolder};
pub use serving::{Ending, ServingProgram};

#[cfg(test)]
mod tests;

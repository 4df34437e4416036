//! The failure of a run, and what it ends.

use super::StepKey;

/// The reason why the run is failing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFailure {
    /// The frame that failed it.
    pub seq: u64,
    /// The scope it happened in.
    pub scope: u32,
    /// The step, if it was one.
    pub step: Option<u32>,
    /// The error code.
    pub code: String,
    /// For people.
    pub message: String,
    /// The item that it ends, and not the run.
    pub within: Option<FailedItem>,
}

/// An item of a fan-out one of whose invoked workflows failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedItem {
    /// The step that fans out.
    pub step: StepKey,
    /// The item.
    pub item: u32,
    /// True if a reserved field fails the run, whatever the fan-out tolerates (decision R4).
    pub fatal: bool,
}

//! What is known of a workflow that was checked without the rest of its kit.

use ktsu_config::fault::Fault;
use ktsu_workflow::types::ValueType;

/// A workflow that calls nothing, checked as it was read.
pub(super) struct CheckedAlone {
    /// What it gives where it is called.
    pub(super) output: ValueType,
    pub(super) faults: Vec<Fault>,
    /// What the check cost.
    pub(super) effort: u64,
}

//! The findings on a workflow that was checked without the rest of its kit.

use ktsu_config::fault::Fault;
use ktsu_workflow::types::ValueType;

/// A workflow that calls nothing, checked as it was read.
pub(super) struct CheckedAlone {
    /// The type of its output where it is called.
    pub(super) output: ValueType,
    pub(super) faults: Vec<Fault>,
    /// The effort of the check.
    pub(super) effort: u64,
}

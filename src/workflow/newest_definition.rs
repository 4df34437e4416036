//! The definition that a run has now.

use std::sync::Arc;

use ktsu_ledger::Frame;

use crate::definition::Definition;
use crate::replay::Definitions;

/// The last definition that the frames of a run bring: that of the run, or of a branch of it. Nothing
/// where it does not compile.
pub fn newest_definition(frames: &[Frame]) -> Option<Arc<Definition>> {
    let mut newest = frames.iter().rev();
    let newest = newest.find(|frame| frame.event.definition().is_some())?;
    Definitions::default().introduced_by(newest).ok()?
}

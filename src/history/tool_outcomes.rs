//! The outcomes of the tool calls of a run.

use ktsu_eval::FrameView;

/// Counts of the tool calls that were sent, by how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolOutcomes {
    /// With a result.
    pub ok: u64,
    /// With an error.
    pub errors: u64,
}

impl ToolOutcomes {
    pub(crate) fn of(frames: &[FrameView]) -> Self {
        let returned = frames.iter().filter(|frame| frame.kind == "tool.returned");
        let mut outcomes = Self::default();
        for frame in returned {
            match frame.status.as_deref() {
                Some("ok") => outcomes.ok += 1,
                Some("error") => outcomes.errors += 1,
                _ => {}
            }
        }
        outcomes
    }
}

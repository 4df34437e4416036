//! Who sees which workflows of the kit, and where a run is one of them.

use ktsu_inspector::RunKit;
use ktsu_kit::{Kit, KitWorkflow};
use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::Visibility;

/// True if a workflow is shown to those who may read frames, or, as one that runs are named after, to all.
pub(super) fn may_see(workflow: &KitWorkflow, reads_frames: bool) -> bool {
    reads_frames || workflow.visibility == Visibility::Root
}

/// The workflow of a run in the kit that the engine serves, for those who may see it there.
pub(super) fn kit_of_run(
    kit: &Kit,
    frames: &[Frame],
    workflow: &str,
    reads_frames: bool,
) -> Option<RunKit> {
    let known = kit.workflows.get(workflow);
    let known = known.filter(|one| may_see(one, reads_frames))?;
    let mut brought = frames.iter().rev();
    let (_, digest) = brought.find_map(|frame| frame.event.definition())?;
    Some(RunKit {
        is_current: known.definition.digest == digest,
    })
}

//! Who sees which workflows of the kit, and where a run is one of them.

use ktsu_inspector::RunKit;
use ktsu_kit::{Kit, KitWorkflow};
use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::Visibility;

/// Root workflows are named by every run of them; others are parts of a kit, as its prompts are.
pub(super) fn may_see(workflow: &KitWorkflow, is_open: bool) -> bool {
    is_open || workflow.visibility == Visibility::Root
}

/// The workflow of a run in the kit that the engine serves, for those who may see it there.
pub(super) fn kit_of_run(
    kit: &Kit,
    frames: &[Frame],
    workflow: &str,
    is_open: bool,
) -> Option<RunKit> {
    let known = kit.workflows.get(workflow);
    let known = known.filter(|one| may_see(one, is_open))?;
    let mut brought = frames.iter().rev();
    let (_, digest) = brought.find_map(|frame| frame.event.definition())?;
    Some(RunKit {
        is_current: known.definition.digest == digest,
    })
}

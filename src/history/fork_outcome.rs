//! What a branch asked since it was forked, against the estimate of before.

use ktsu_ledger::event::BranchCreated;
use ktsu_ledger::event::plan::Plan;
use ktsu_ledger::{CanonicalJson, Frame};
use ktsu_projections::life::{Change, changes};
use ktsu_projections::run::{FoldError, RunState, RunStatus};
use ktsu_workflow::admit::prompt_edits::differ_in_prompts_alone;
use ktsu_workflow::simulate::is_intervention;

use super::fork_estimate::{AmountBound, ForkBound, ForkUsage, fork_estimate, prefix, used_since};

/// What a branch used since it was forked, and the bound of before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkOutcome {
    /// The bound, as its parent is recorded.
    pub bound: ForkBound,
    /// What it used.
    pub used: ForkUsage,
    /// True if that lies within the bound.
    pub is_within: bool,
}

/// Returns `true` if a branch has the definition of its parent, but for its prompts.
fn is_same_but_prompts(parent: &[Frame], first: &BranchCreated) -> bool {
    let Some(brought) = &first.definition else {
        return true;
    };
    let until = prefix(parent, first.fork_position).unwrap_or_default();
    let recorded = until
        .iter()
        .rev()
        .find_map(|frame| frame.event.definition());
    let plan = |json: &CanonicalJson| serde_json::from_str::<Plan>(json.as_str()).ok();
    let both = recorded
        .and_then(|(recorded, _)| plan(recorded))
        .zip(plan(brought));
    both.is_some_and(|(one, other)| differ_in_prompts_alone(&one, &other))
}

/// What came of a branch that continues with the definition of its parent, or with other prompts; none
/// of any other.
///
/// # Errors
/// [`FoldError`].
pub fn fork_outcome(parent: &[Frame], branch: &[Frame]) -> Result<Option<ForkOutcome>, FoldError> {
    let first = branch.iter().rev().find_map(|frame| frame.event.branched());
    let Some(first) = first.filter(|first| is_same_but_prompts(parent, first)) else {
        return Ok(None);
    };
    let Some(estimate) = fork_estimate(parent, first.fork_position)? else {
        return Ok(None);
    };
    // What people did to it after it began to continue is not in the bound.
    let resumed = |frame: &&Frame| changes(frame).any(|one| matches!(one, Change::Resumed(_)));
    let own = prefix(branch, first.fork_position).map_or(0, <[Frame]>::len);
    let own = branch.get(own..).unwrap_or_default().iter();
    let mut set = own.clone().skip(1).take_while(|frame| !resumed(frame));
    let sets_values = first.params.is_some() || set.any(|frame| is_intervention(&frame.event));
    let bound = match (first.restarts, sets_values) {
        (false, _) => estimate.unchanged,
        (true, false) => estimate.prompts,
        (true, true) => estimate.changed,
    };
    let continued = own.skip_while(|frame| !resumed(frame)).skip(1);
    if { continued }.any(|frame| is_intervention(&frame.event)) {
        return Ok(None);
    }
    let used = used_since(branch, first.fork_position)?;
    let is_complete = RunState::fold(branch)?.status() == RunStatus::Complete;
    let admits = |bound: AmountBound, amount| bound.admits(amount, is_complete);
    Ok(Some(ForkOutcome {
        is_within: admits(bound.llm_calls, used.llm_calls)
            && admits(bound.tokens, used.tokens)
            && admits(bound.cost_micro_usd, used.cost_micro_usd),
        bound,
        used,
    }))
}

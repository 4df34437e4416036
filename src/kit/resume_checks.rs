//! Which steps with `on: resume` others can be resumed to, as far as it is known before any run.

use std::path::Path;

use ktsu_ledger::event::plan::{StepPlan, StepWork};

use super::loader::Loader;
use super::narrowing::StepCommands;
use super::workflow::WorkflowDraft;
use ktsu_config::fault::{Fault, FaultCode};

/// Reports steps that no step can be resumed to.
pub(super) fn check(loader: &mut Loader) {
    let mut found = Vec::new();
    for (path, draft) in &loader.drafts {
        let Some(draft) = draft else { continue };
        for (position, step) in draft.steps.iter().enumerate() {
            if step.plan.is_on_resume()
                && let Some((words, hint)) = never(loader, path, draft, position)
            {
                let fault = Fault::new(FaultCode::NeverResumed, step.place, words).hint(hint);
                found.push(fault.in_file(Path::new(path)));
            }
        }
    }
    found.into_iter().for_each(|fault| loader.faults.add(fault));
}

/// The positions of the steps that a step can be resumed to.
pub(super) fn others(loader: &Loader, path: &str, position: usize) -> Vec<usize> {
    let Some(Some(draft)) = loader.drafts.get(path) else {
        return Vec::new();
    };
    let may = |other: usize| !needs_more(draft, position, other) && is_on_resume(draft, other);
    match may_suspend(loader, path, draft, position) {
        true => (0..draft.steps.len()).filter(|other| may(*other)).collect(),
        false => Vec::new(),
    }
}

/// Why no step can be resumed to this one, and what to do about it.
fn never(
    loader: &Loader,
    path: &str,
    draft: &WorkflowDraft,
    position: usize,
) -> Option<(String, &'static str)> {
    let all = 0..draft.steps.len();
    let mut suspending = all
        .filter(|at| may_suspend(loader, path, draft, *at))
        .peekable();
    let id = &draft.steps.get(position)?.plan.id;
    if suspending.peek().is_none() {
        let words = format!("no step of this workflow can be suspended, so {id:?} never runs");
        let hint = "add `commands: {suspend: true}` to the agent of a step";
        return Some((words, hint));
    }
    if suspending.any(|at| !needs_more(draft, at, position)) {
        return None;
    }
    let words = format!("{id:?} needs steps that no step needs that can be suspended");
    let hint = "a step is resumed only to one that needs no more than itself";
    Some((words, hint))
}

fn is_on_resume(draft: &WorkflowDraft, position: usize) -> bool {
    let step = draft.steps.get(position);
    step.is_some_and(|step| step.plan.is_on_resume())
}

/// Whether one of two steps needs what the other does not.
fn needs_more(draft: &WorkflowDraft, suspended: usize, other: usize) -> bool {
    let needs = |at: usize| draft.steps.get(at).map_or(&[][..], |step| &step.plan.needs);
    needs(other)
        .iter()
        .any(|need| !needs(suspended).contains(need))
}

/// Whether an ordinary step can be suspended. An agent that cannot be read may do so: its faults are
/// reported elsewhere.
fn may_suspend(loader: &Loader, path: &str, draft: &WorkflowDraft, position: usize) -> bool {
    let plan: Option<&StepPlan> = draft.steps.get(position).map(|step| &step.plan);
    let Some(StepWork::Agent(agent)) = plan.map(|plan| &plan.work) else {
        return false;
    };
    let call = draft
        .steps
        .get(position)
        .and_then(|step| step.agent.as_ref());
    let narrowed = call.and_then(|call| call.commands.as_ref());
    if narrowed.is_some_and(StepCommands::forbids_suspend) {
        return false;
    }
    let file = loader.calls.get(&(path.to_owned(), position));
    let Some(file) = file.filter(|_| agent.for_each.is_none() && !agent.on_resume) else {
        return false;
    };
    let Some(Some(draft)) = loader.agents.get(file) else {
        return true;
    };
    let commands = draft.plan.commands.as_ref();
    commands.is_some_and(|commands| commands.suspend.is_some())
}

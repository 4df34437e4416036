//! The steps with `on: resume` that others can be resumed to, as far as it is known before any run.

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
    let suspended = draft.steps.get(position);
    let suspended = suspended.filter(|_| may_suspend(loader, path, draft, position));
    let Some(suspended) = suspended else {
        return Vec::new();
    };
    let others = draft.steps.iter().enumerate();
    let others = others.filter(|(_, other)| other.plan.may_resume(&suspended.plan));
    others.map(|(other, _)| other).collect()
}

/// The reason why no step can be resumed to this one, and what to do about it.
fn never(
    loader: &Loader,
    path: &str,
    draft: &WorkflowDraft,
    position: usize,
) -> Option<(String, &'static str)> {
    let plan = &draft.steps.get(position)?.plan;
    let id = &plan.id;
    let all = draft.steps.iter().enumerate();
    let suspending = all.filter(|(at, _)| may_suspend(loader, path, draft, *at));
    let suspending: Vec<&StepPlan> = suspending.map(|(_, step)| &step.plan).collect();
    let Some(first) = suspending.first() else {
        let words = format!("no step of this workflow can be suspended, so {id:?} never runs");
        let hint = "add `commands: {suspend: true}` to the agent of a step";
        return Some((words, hint));
    };
    if suspending.iter().any(|step| plan.may_resume(step)) {
        return None;
    }
    let more = plan.needs_beyond(first);
    let more = more.filter_map(|need| draft.steps.get(need as usize));
    let more: Vec<String> = more.map(|step| format!("{:?}", step.plan.id)).collect();
    let (more, suspended) = (more.join(", "), &first.id);
    let words = format!("{id:?} needs {more}, and {suspended:?}, which can be suspended, does not");
    let hint = "a step is resumed only to one that needs no more than itself";
    Some((words, hint))
}

/// Returns `true` if an ordinary step can be suspended. An agent that cannot be read may do so: its
/// faults are reported elsewhere.
fn may_suspend(loader: &Loader, path: &str, draft: &WorkflowDraft, position: usize) -> bool {
    let step = draft.steps.get(position);
    let Some(StepWork::Agent(agent)) = step.map(|step| &step.plan.work) else {
        return false;
    };
    let call = step.and_then(|step| step.agent.as_ref());
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

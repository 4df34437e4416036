//! Checks between files: children, agents, their params, and permitted calls.

use std::collections::BTreeSet;
use std::path::Path;

use ktsu_ledger::event::plan::{ChildPlan, StepPlan, StepWork, Visibility, Webhooks, WorkflowPlan};
use serde_json::Value;

use super::calls;
use super::loader::Loader;
use super::narrowing;
use super::reference;
use super::schemas::{missing_params, undeclared_param};
use super::step::ChildDraft;
use super::workflow::WorkflowDraft;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_workflow::graph::{self, Expansion, MAX_LEVELS, MAX_SCOPES};
use ktsu_workflow::params::ParamsSchema;

/// Checks every link of the kit.
pub(super) fn check(loader: &mut Loader) {
    let mut found = Vec::new();
    for (path, draft) in &loader.drafts {
        let Some(draft) = draft else { continue };
        for (position, step) in draft.steps.iter().enumerate() {
            let mut faults = Vec::new();
            let file = loader.calls.get(&(path.clone(), position));
            let agent = file.and_then(|file| Some((file, loader.agents.get(file)?.as_ref()?)));
            if let (Some(call), Some((file, agent))) = (&step.agent, agent) {
                let is_reported = |param: &str| {
                    let key = (file.clone(), param.to_owned());
                    loader.unmarked.contains(&key)
                };
                calls::check(draft, call, agent, &is_reported, &mut faults);
            }
            let child = loader.children.get(&(path.clone(), position));
            let child = child.and_then(|child| loader.drafts.get(child)?.as_ref());
            if let (Some(said), Some(child)) = (&step.child, child)
                && let StepWork::Workflow(plan) = &step.plan.work
            {
                self::child(plan, said, child, "the step", &mut faults);
            }
            if let StepWork::Agent(plan) = &step.plan.work {
                for (name, one) in &plan.may_invoke {
                    let key = (path.clone(), position, name.clone());
                    let child = loader.invoked.get(&key);
                    let child = child.and_then(|child| loader.drafts.get(child)?.as_ref());
                    if let (Some(said), Some(child)) = (step.invoked.get(name), child) {
                        invoked(&one.child, said, child, &mut faults);
                    }
                }
            }
            found.extend(
                faults
                    .into_iter()
                    .map(|fault| fault.in_file(Path::new(path))),
            );
        }
    }
    found.extend(spread(loader));
    found.into_iter().for_each(|fault| loader.faults.add(fault));
}

/// Checks that a workflow fits what it is called with. `what` calls it: `the step`.
pub(super) fn child(
    plan: &ChildPlan,
    said: &ChildDraft,
    child: &WorkflowDraft,
    what: &str,
    faults: &mut Vec<Fault>,
) {
    let version = &child.plan.version;
    let reference = said.reference();
    faults.extend(reference::version(&reference, version, true, what));
    variables(said, child, faults);
    params(said, child, faults);
    literals(plan, said, child, faults);
    webhooks(plan, said, child, faults);
}

/// Checks that what an agent may invoke fits its step. Its params are those of each command.
fn invoked(plan: &ChildPlan, said: &ChildDraft, child: &WorkflowDraft, faults: &mut Vec<Fault>) {
    let version = &child.plan.version;
    faults.extend(reference::version(
        &said.reference(),
        version,
        true,
        "the step",
    ));
    variables(said, child, faults);
    webhooks(plan, said, child, faults);
}

/// Only the root of a run is given values for variables, so no other workflow declares any, whatever
/// its visibility (decision K4). A sub-workflow is told so in its own file.
fn variables(said: &ChildDraft, child: &WorkflowDraft, faults: &mut Vec<Fault>) {
    if child.plan.env.is_empty() || child.plan.visibility == Visibility::SubWorkflow {
        return;
    }
    let words = format!(
        "{:?} declares variables, and a workflow that is called inline has none",
        said.path
    );
    let fault = Fault::new(FaultCode::EnvInSubWorkflow, said.place, words);
    faults.push(fault.hint("let it declare params instead, and hand the values down"));
}

/// Checks that what the child requires is given, and nothing it refuses.
fn params(said: &ChildDraft, child: &WorkflowDraft, faults: &mut Vec<Fault>) {
    let Some(schema) = &child.plan.params else {
        return;
    };
    let Ok(schema) = ParamsSchema::compile(schema) else {
        return;
    };
    let what = format!("{:?}", said.path);
    let is_given = |name: &str| said.params.iter().any(|(given, _)| given == name);
    missing_params(
        &what,
        schema.required(),
        is_given,
        said.params_place,
        faults,
    );
    for (given, place) in &said.params {
        faults.extend(undeclared_param(&what, &schema, given, *place));
    }
}

/// Checks what is written out before any run.
fn literals(plan: &ChildPlan, said: &ChildDraft, child: &WorkflowDraft, faults: &mut Vec<Fault>) {
    let Some(schema) = &child.plan.params else {
        return;
    };
    let (Ok(schema), Some(given)) = (ParamsSchema::compile(schema), &plan.params) else {
        return;
    };
    let given = given.to_value();
    for (name, place) in &said.params {
        let value = given.get(name).filter(|value| is_written_out(value));
        let violations = value.map(|value| schema.check_one(name, value.clone()));
        for violation in violations.unwrap_or_default() {
            let words = format!("{name} does not fit: {}", violation.message);
            faults.push(Fault::new(FaultCode::BadValue, *place, words));
        }
    }
}

/// Returns `true` if a value has no expressions in it.
fn is_written_out(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains("{{"),
        Value::Array(items) => items.iter().all(is_written_out),
        Value::Object(members) => members.values().all(is_written_out),
        _ => true,
    }
}

/// Both sides must say `execute`; otherwise nothing is sent (decision S7).
fn webhooks(plan: &ChildPlan, said: &ChildDraft, child: &WorkflowDraft, faults: &mut Vec<Fault>) {
    if plan.webhooks == Webhooks::Execute && child.plan.webhooks == Webhooks::Suppress {
        let words = format!(
            "{:?} suppresses its webhooks, so none will be sent",
            said.path
        );
        let fault = Fault::new(FaultCode::WebhooksNotAgreed, said.webhooks, words).warning();
        faults.push(fault.hint("add webhooks: execute at the top of that file"));
    }
}

/// Files that call one another, or that grow too large where they stand in each other's place.
fn spread(loader: &Loader) -> Vec<Fault> {
    let (paths, needs) = loader.call_graph();
    let place = |path: &String| paths.binary_search(&path).unwrap_or(usize::MAX);
    match (graph::order(&needs), graph::expansions(&needs)) {
        (Err(cycle), _) => {
            let names: Vec<&str> = cycle.iter().map(|place| paths[*place].as_str()).collect();
            let words = format!("workflows call one another: {}", names.join(" -> "));
            let call = |from: &str, to: &str| {
                let own = loader.children.iter();
                let own = own.map(|((parent, at), child)| ((parent, at), child));
                let invoked = loader.invoked.iter();
                let invoked = invoked.map(|((parent, at, _), child)| ((parent, at), child));
                let mut calls = own.chain(invoked);
                calls.find(|((parent, _), child)| *parent == from && *child == to)
            };
            let ends = names.first().zip(names.get(1));
            let found = ends.and_then(|(from, to)| call(from, to));
            let fault = found.and_then(|((parent, position), _)| {
                at_call(loader, parent, *position, FaultCode::WorkflowCycle, words)
            });
            fault.into_iter().collect()
        }
        (Ok(_), Some(sizes)) => too_large(loader, &|path| sizes.get(place(path)).copied()),
        (Ok(_), None) => Vec::new(),
    }
}

/// Workflows that are too large although none of their children is: what calls these is too large
/// as well, and needs no words of its own.
fn too_large(loader: &Loader, size: &dyn Fn(&String) -> Option<Expansion>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for path in loader.drafts.keys() {
        let calls = loader
            .children
            .range((path.clone(), 0)..=(path.clone(), usize::MAX));
        let calls = calls.filter_map(|((_, step), child)| Some((*step, size(child)?)));
        let calls: Vec<(usize, Expansion)> = calls.collect();
        let Some(own) = size(path).filter(|own| own.is_too_large()) else {
            continue;
        };
        if calls.iter().any(|(_, child)| child.is_too_large()) {
            continue;
        }
        // The first of the largest: the others stand below it.
        let first = |rank: &dyn Fn(Expansion) -> usize| {
            let most = calls.iter().map(|(_, child)| rank(*child)).max()?;
            let found = calls.iter().find(|(_, child)| rank(*child) == most);
            found.map(|(step, _)| *step)
        };
        let (step, code, words) = if own.levels > MAX_LEVELS {
            let words = format!(
                "this call is the top of {} levels of children; {MAX_LEVELS} are the most",
                own.levels
            );
            (
                first(&|child| child.levels),
                FaultCode::ChildrenTooDeep,
                words,
            )
        } else {
            let words = format!(
                "this workflow and all it calls are {} scopes; {MAX_SCOPES} are the most",
                own.scopes
            );
            (
                first(&|child| child.scopes),
                FaultCode::TooManyScopes,
                words,
            )
        };
        faults.extend(step.and_then(|step| at_call(loader, path, step, code, words)));
    }
    faults
}

/// A fault at the step that calls a child.
fn at_call(
    loader: &Loader,
    parent: &str,
    position: usize,
    code: FaultCode,
    words: String,
) -> Option<Fault> {
    let draft = loader.drafts.get(parent)?.as_ref()?;
    let step = draft.steps.get(position)?;
    let place = step
        .child
        .as_ref()
        .or_else(|| step.invoked.values().next())?
        .place;
    Some(Fault::new(code, place, words).in_file(Path::new(parent)))
}

/// The plan of a workflow with the paths of its children and agents filled in.
pub(super) fn plan(loader: &mut Loader, path: &str) -> Option<WorkflowPlan> {
    let draft = loader.drafts.get_mut(path)?.take()?;
    let mut plan = draft.plan;
    let narrows = draft.steps.iter().enumerate().filter(|(_, step)| {
        let call = step.agent.as_ref();
        call.is_some_and(|call| call.commands.is_some())
    });
    let narrows: BTreeSet<usize> = narrows.map(|(position, _)| position).collect();
    plan.steps = draft.steps.into_iter().map(|step| step.plan).collect();
    for (position, step) in plan.steps.iter_mut().enumerate() {
        match &mut step.work {
            StepWork::Workflow(child) => {
                let found = loader.children.get(&(path.to_owned(), position))?;
                child.workflow.clone_from(found);
            }
            StepWork::Agent(agent) => {
                let found = loader.calls.get(&(path.to_owned(), position))?;
                agent.file.clone_from(found);
                if narrows.contains(&position) {
                    agent.file = narrowing::path(found, path, &step.id);
                }
                for (name, invoked) in &mut agent.may_invoke {
                    let key = (path.to_owned(), position, name.clone());
                    invoked.child.workflow.clone_from(loader.invoked.get(&key)?);
                }
            }
            StepWork::Transform(_) | StepWork::Webhook(_) => {}
        }
    }
    Some(plan)
}

/// The workflows a plan calls.
pub(super) fn children(plan: &WorkflowPlan) -> impl Iterator<Item = String> + '_ {
    let children = plan.steps.iter().flat_map(StepPlan::children);
    children.map(|child| child.workflow.clone())
}

/// The agents a plan calls.
pub(super) fn agents(plan: &WorkflowPlan) -> impl Iterator<Item = String> + '_ {
    plan.steps.iter().filter_map(|step| match &step.work {
        StepWork::Agent(agent) => Some(agent.file.clone()),
        StepWork::Workflow(_) | StepWork::Transform(_) | StepWork::Webhook(_) => None,
    })
}

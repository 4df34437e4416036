//! The worlds of a kit in its definitions: every run of a root workflow loads all of them, and a
//! world without a root workflow of its name can be run on its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::plan::world::WorldPlan;
use ktsu_ledger::event::plan::{Policy, Variable, Visibility, Webhooks, WorkflowPlan};

use super::params;
use crate::files::{WORKFLOW_SUFFIX, WORLD_SUFFIX};
use crate::loader::Loader;

/// The additions of worlds to the definitions of a kit.
#[derive(Default)]
pub(crate) struct WorldRoots {
    /// By path.
    pub(crate) worlds: BTreeMap<String, Arc<WorldPlan>>,
    /// The variables they declare, each once.
    env: Vec<Variable>,
    /// By path: the workflow without steps of a world that runs on its own.
    pub(crate) implicit: BTreeMap<String, Arc<WorkflowPlan>>,
}

impl WorldRoots {
    /// Takes the worlds out of the drafts of a kit without errors.
    pub(crate) fn take(loader: &mut Loader) -> Self {
        let mut roots = Self::default();
        let alone = std::mem::take(&mut loader.worlds);
        for draft in alone.values().flatten() {
            for (variable, _) in &draft.env {
                if roots.env.iter().all(|one| one.name != variable.name) {
                    roots.env.push(variable.clone());
                }
            }
        }
        let drafts = alone.iter();
        let drafts = drafts.filter_map(|(path, draft)| Some((path.as_str(), draft.as_ref()?)));
        let params = params::of_kit(drafts);
        for (path, draft) in alone {
            let Some(draft) = draft else { continue };
            let name = name_of(&path).to_owned();
            let workflow = format!("workflows/{name}{WORKFLOW_SUFFIX}");
            if !loader.drafts.contains_key(&workflow) {
                let plan = WorkflowPlan {
                    env: roots.env.clone(),
                    invoke: None,
                    name,
                    output: None,
                    params: params.clone(),
                    policy: Policy::default(),
                    steps: Vec::new(),
                    version: draft.plan.version.clone(),
                    visibility: Visibility::Root,
                    webhooks: Webhooks::Suppress,
                };
                roots.implicit.insert(path.clone(), Arc::new(plan));
            }
            let mut plan = draft.plan;
            let responders = plan.edges.iter_mut().chain(&mut plan.responders);
            for (position, responder) in responders.enumerate() {
                let run = loader.runs.get(&(path.clone(), position));
                if let (Some(run), Some(child)) = (run, responder.work.child_mut()) {
                    child.workflow.clone_from(run);
                }
            }
            roots.worlds.insert(path, Arc::new(plan));
        }
        roots
    }

    /// A root workflow as a run of it has it: with the variables of the worlds that it loads.
    pub(crate) fn root(&self, plan: &Arc<WorkflowPlan>) -> Arc<WorkflowPlan> {
        let declares = |name: &str| plan.env.iter().any(|one| one.name == name);
        let more = self.env.iter().filter(|one| !declares(&one.name));
        let more: Vec<Variable> = more.cloned().collect();
        if more.is_empty() {
            return Arc::clone(plan);
        }
        let mut plan = WorkflowPlan::clone(plan);
        plan.env.extend(more);
        Arc::new(plan)
    }
}

/// The name of a world by its path.
pub(crate) fn name_of(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.strip_suffix(WORLD_SUFFIX).unwrap_or(file)
}

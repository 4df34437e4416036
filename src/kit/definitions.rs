//! From what was read and checked to the definitions of a kit.
//!
//! ```text
//! drafts ──▶ plans, one a file ──what a root reaches──▶ definition, one a workflow of the kit
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::SourceSpan;
use ktsu_ledger::event::plan::{AgentFile, FORMAT, Plan, Visibility, WorkflowPlan};
use ktsu_workflow::definition::Definition;

use super::kit::KitWorkflow;
use super::links;
use super::loader::Loader;
use super::narrowing::{self, StepCommands};
use super::parallel;
use super::servers::ServerUse;
use super::world::WorldRoots;

/// The plans of the files of a kit, shared by every definition that reaches them.
pub(super) struct Plans {
    workflows: BTreeMap<String, Arc<WorkflowPlan>>,
    agents: BTreeMap<String, Arc<AgentFile>>,
    roots: WorldRoots,
}

impl Plans {
    /// Takes the plans out of the drafts of a kit without errors.
    pub(super) fn take(loader: &mut Loader, uses: &BTreeMap<String, Vec<ServerUse>>) -> Self {
        let roots = WorldRoots::take(loader);
        let narrowed = narrowed(loader);
        let paths: Vec<String> = loader.drafts.keys().cloned().collect();
        let workflows = paths.into_iter().filter_map(|path| {
            let plan = links::plan(loader, &path)?;
            Some((path, Arc::new(plan)))
        });
        Self {
            workflows: workflows.collect(),
            agents: agents(loader, uses, narrowed),
            roots,
        }
    }

    /// The worlds that can be run on their own.
    pub(super) fn worlds(&self) -> impl Iterator<Item = String> + '_ {
        self.roots.implicit.keys().cloned()
    }

    /// The definitions of some workflows, or what is wrong with them, in the order of their paths.
    pub(super) fn compile(&self, roots: &[String]) -> Vec<Result<Option<KitWorkflow>, Vec<Fault>>> {
        parallel::map(roots, |root| {
            let plan = self.reached(root);
            plan.map(compile).transpose()
        })
    }

    /// A workflow and everything it reaches; of a root also the worlds of the kit, and what these
    /// reach.
    fn reached(&self, root: &str) -> Option<Plan> {
        let plan = self.workflows.get(root);
        let plan = plan.or_else(|| self.roots.implicit.get(root))?;
        let worlds = match plan.visibility {
            Visibility::Root => self.roots.worlds.clone(),
            Visibility::SubWorkflow => BTreeMap::new(),
        };
        let own = match worlds.is_empty() {
            true => Arc::clone(plan),
            false => self.roots.root(plan),
        };
        let mut waiting: BTreeSet<String> = links::children(&own).collect();
        let run = worlds.values().flat_map(|world| world.workflows());
        waiting.extend(run.map(str::to_owned));
        waiting.remove(root);
        let mut workflows = BTreeMap::from([(root.to_owned(), own)]);
        while let Some(path) = waiting.pop_first() {
            let plan = self.workflows.get(&path)?;
            waiting.extend(links::children(plan).filter(|child| !workflows.contains_key(child)));
            workflows.insert(path, Arc::clone(plan));
        }
        let mut agents = BTreeMap::new();
        for path in workflows.values().flat_map(|plan| links::agents(plan)) {
            let agent = self.agents.get(&path)?;
            agents.insert(path, Arc::clone(agent));
        }
        Some(Plan {
            agents,
            format: FORMAT,
            root: root.to_owned(),
            workflows,
            worlds,
        })
    }
}

/// The agents, each with the servers it uses; not one whose server is broken.
fn agents(
    loader: &mut Loader,
    uses: &BTreeMap<String, Vec<ServerUse>>,
    narrowed: Vec<(String, String, StepCommands)>,
) -> BTreeMap<String, Arc<AgentFile>> {
    let (agents, servers) = (std::mem::take(&mut loader.agents), &loader.servers);
    let whole = agents.into_iter().filter_map(|(path, draft)| {
        let mut agent = draft?.plan;
        for one in uses.get(&path).into_iter().flatten() {
            let server = servers.get(&one.server)?.as_ref()?;
            agent.servers.push(one.plan(&server.server));
        }
        Some((path, Arc::new(agent)))
    });
    let mut whole: BTreeMap<String, Arc<AgentFile>> = whole.collect();
    for (path, file, commands) in narrowed {
        if let Some(agent) = whole.get(&file) {
            let agent = narrowing::narrowed(agent, &commands);
            whole.insert(path, Arc::new(agent));
        }
    }
    whole
}

/// The agents that steps narrow: the path of each, that of its file, and what the step says.
fn narrowed(loader: &Loader) -> Vec<(String, String, StepCommands)> {
    let mut found = Vec::new();
    for (workflow, draft) in &loader.drafts {
        let steps = draft.iter().flat_map(|draft| &draft.steps).enumerate();
        for (position, step) in steps {
            let commands = step.agent.as_ref().and_then(|call| call.commands.as_ref());
            let file = loader.calls.get(&(workflow.clone(), position));
            if let (Some(commands), Some(file)) = (commands, file) {
                let path = narrowing::path(file, workflow, &step.plan.id);
                found.push((path, file.clone(), commands.clone()));
            }
        }
    }
    found
}

fn compile(plan: Plan) -> Result<KitWorkflow, Vec<Fault>> {
    let path = plan.root.clone();
    match Definition::compile(plan) {
        Ok(definition) => Ok(KitWorkflow {
            visibility: definition.outline.root().plan.visibility,
            path,
            definition: Arc::new(definition.at_rest()),
            lock: None,
        }),
        Err(found) => {
            let worded = found.into_iter().map(|(place, words)| {
                let words = format!("{place}: {words}");
                Fault::new(FaultCode::BadValue, SourceSpan::default(), words)
                    .in_file(Path::new(&path))
            });
            Err(worded.collect())
        }
    }
}

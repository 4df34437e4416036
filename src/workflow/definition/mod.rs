//! A whole definition, valid by construction: every expression is parsed, every schema compiled,
//! every edge checked. Compiled from a plan, either freshly read from files or recorded in a blob.

mod agent;
mod responder;
mod server;
mod step;
mod validation;
mod world;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{FORMAT, Plan, StepPlan, StepWork, Variable, WorkflowPlan};
use ktsu_projections::run::{Outline, RunState, StepKey};

use super::airlock::Schema;
use super::expression::{Expression, ExpressionError, Root};
use super::graph;
use super::params::ParamsSchema;
use super::template::{Template, TemplateError};
pub use agent::CompiledAgent;
pub use responder::{
    CompiledAsk, CompiledEntry, CompiledFind, CompiledForEach, CompiledLookup, CompiledMake,
    CompiledMatch, CompiledQuery, CompiledResponder, CompiledResponse,
};
pub use server::{CompiledServer, ServerParamError, ServerParamValues};
pub use step::{CompiledStep, CompiledWork};
pub use world::{CompiledRelation, CompiledWorld, CompiledWorlds};

/// The root workflow and everything it reaches, compiled.
#[derive(Debug)]
pub struct Definition {
    /// The plan that it was compiled from.
    pub plan: Plan,
    /// The canonical text of the plan.
    pub json: CanonicalJson,
    /// BLAKE3 of the text, in hex: names the definition (seed 000, invariant 12).
    pub digest: String,
    /// The edges in both directions, shared with the state of every run.
    pub outline: Arc<Outline>,
    /// By the keys of [`Plan::workflows`]. See [`Definition::at_rest`].
    workflows: BTreeMap<String, OnceLock<Option<CompiledWorkflow>>>,
    /// The variables that expressions mention.
    mentioned: BTreeSet<String>,
    /// By the keys of [`Plan::agents`].
    pub agents: BTreeMap<String, CompiledAgent>,
    /// See [`Definition::at_rest`].
    worlds: OnceLock<Option<CompiledWorlds>>,
    /// See [`Definition::checks_may_grow`].
    checks_may_grow: bool,
}

/// One workflow, compiled.
#[derive(Debug)]
pub struct CompiledWorkflow {
    /// The plan that it was compiled from.
    pub plan: Arc<WorkflowPlan>,
    /// In file order.
    pub steps: Vec<CompiledStep>,
    /// The schema of its params.
    pub params: Option<ParamsSchema>,
    /// The template (`map`) and the schema (`schema`) of its own output.
    pub output: Option<(Option<Template>, Option<Schema>)>,
    /// Positions in `steps`.
    pub by_id: HashMap<String, usize>,
}

/// The faults of a plan: the place of each, and what is wrong there, in words.
pub type CompileErrors = Vec<(String, String)>;

/// Returns `true` if the effort of checking values can grow faster than the values, for any schema.
fn checks_may_grow<'d>(
    workflows: impl IntoIterator<Item = &'d CompiledWorkflow>,
    agents: impl IntoIterator<Item = &'d CompiledAgent>,
    worlds: Option<&CompiledWorlds>,
) -> bool {
    let of_workflow = |workflow: &CompiledWorkflow| {
        let params = workflow.params.as_ref().map(ParamsSchema::schema);
        let output = workflow.output.as_ref();
        let output = output.and_then(|(_, schema)| schema.as_ref());
        let steps = workflow.steps.iter();
        let mut steps =
            steps.flat_map(|step| step.schema().into_iter().chain(step.resume_schema()));
        params.into_iter().chain(output).any(Schema::is_counted) || steps.any(Schema::is_counted)
    };
    let of_agent = |agent: &CompiledAgent| agent.schemas().any(Schema::is_counted);
    workflows.into_iter().any(of_workflow)
        || agents.into_iter().any(of_agent)
        || worlds.is_some_and(|worlds| worlds.schemas().any(Schema::is_counted))
}

impl Definition {
    /// Compiles a plan, or says everything that is wrong with it.
    pub fn compile(plan: Plan) -> Result<Self, CompileErrors> {
        let mut faults = CompileErrors::new();
        if plan.format != FORMAT {
            let words = format!("format {} is not {FORMAT}", plan.format);
            return Err(vec![("format".to_owned(), words)]);
        }
        if !plan.workflows.contains_key(&plan.root) {
            faults.push((
                "root".to_owned(),
                format!("{} is not in the plan", plan.root),
            ));
        }
        let mut workflows = BTreeMap::new();
        let mut mentioned = BTreeSet::new();
        for (path, workflow) in &plan.workflows {
            let compiled = CompiledWorkflow::compile(workflow, path, &mut faults);
            children(&plan, path, workflow, &mut faults);
            mentioned.extend(compiled.iter().flat_map(CompiledWorkflow::variables));
            workflows.insert(path.clone(), OnceLock::from(compiled));
        }
        let mut agents = BTreeMap::new();
        for (path, file) in &plan.agents {
            let compiled = CompiledAgent::compile(file, path, &mut faults);
            agents.extend(compiled.map(|agent| (path.clone(), agent)));
        }
        let worlds = CompiledWorlds::compile(&plan.worlds, &mut faults);
        mentioned.extend(
            worlds
                .iter()
                .flat_map(CompiledWorlds::variables)
                .map(str::to_owned),
        );
        responders(&plan, worlds.as_ref(), &mut faults);
        reach(&plan, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let json = serde_json::to_value(&plan)
            .ok()
            .and_then(|value| CanonicalJson::from_value(&value).ok())
            .ok_or_else(|| vec![("plan".to_owned(), "nested too deeply".to_owned())])?;
        let digest = blake3::hash(json.as_str().as_bytes()).to_hex().to_string();
        let outline = Outline::of(plan.clone());
        let outline = outline.map_err(|bad| vec![("plan".to_owned(), bad.to_string())])?;
        let compiled = workflows.values().filter_map(OnceLock::get).flatten();
        let checks_may_grow = checks_may_grow(compiled, agents.values(), worlds.as_ref());
        Ok(Self {
            checks_may_grow,
            plan,
            json,
            digest,
            outline,
            workflows,
            mentioned,
            agents,
            worlds: OnceLock::from(worlds),
        })
    }

    /// The definition without what can be made of its plan again, as it was made once: a workflow is
    /// compiled when it is next asked for. Of the many workflows of a kit few may ever run.
    #[must_use]
    pub fn at_rest(mut self) -> Self {
        self.workflows
            .values_mut()
            .for_each(|compiled| *compiled = OnceLock::new());
        self.worlds = OnceLock::new();
        self
    }

    /// Returns `true` if checking a value against one of its schemas can take far longer than its
    /// size suggests.
    pub fn checks_may_grow(&self) -> bool {
        self.checks_may_grow
    }

    /// The root workflow.
    pub fn root(&self) -> Option<&CompiledWorkflow> {
        self.workflow(&self.plan.root)
    }

    /// The first step that needs a runtime, by workflow and id.
    pub fn first_agent(&self) -> Option<String> {
        self.plan.workflows.values().find_map(|workflow| {
            let mut steps = workflow.steps.iter();
            let agent = steps.find(|step| matches!(step.work, StepWork::Agent(_)));
            agent.map(|step| format!("{}/{}", workflow.name, step.id))
        })
    }

    /// The same definition, with other model groups in place of those that it would use.
    ///
    /// # Errors
    /// [`CompileErrors`], as of [`Definition::compile`].
    pub fn with_groups(&self, groups: &BTreeMap<String, String>) -> Result<Self, CompileErrors> {
        let mut plan = self.plan.clone();
        if let Some(root) = plan.workflows.get_mut(&plan.root) {
            let root = Arc::make_mut(root);
            // Each is about the groups as they are, not as another one leaves them.
            let policy = root.policy.clone();
            root.policy = groups.iter().fold(policy, |policy, (wanted, other)| {
                policy.with_group(wanted, other)
            });
        }
        Self::compile(plan)
    }

    /// Every model group its agents and responders may be sent to, after the root's policy had its say.
    pub fn groups(&self) -> BTreeSet<String> {
        let steps = self.plan.workflows.values().flat_map(|one| &one.steps);
        let agents = steps.filter_map(|step| match &step.work {
            StepWork::Agent(agent) => Some(agent),
            StepWork::Transform(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => None,
        });
        let policy = self.outline.root().plan.policy.clone();
        let groups = agents.filter_map(|agent| {
            let wanted = agent.group.as_ref();
            let wanted = wanted.or_else(|| Some(&self.agents.get(&agent.file)?.file.group))?;
            Some(policy.group(wanted).to_owned())
        });
        let asked = self.plan.worlds.values().flat_map(|world| world.groups());
        let asked = asked.map(|group| policy.group(group).to_owned());
        groups.chain(asked).collect()
    }

    /// Every variable of the environment that the root declares or an expression anywhere mentions.
    pub fn variables(&self) -> BTreeSet<String> {
        let declared = self.declared().iter();
        let declared = declared.map(|variable| variable.name.clone());
        declared.chain(self.mentioned.iter().cloned()).collect()
    }

    /// The plan of the root workflow.
    pub fn root_plan(&self) -> Option<&WorkflowPlan> {
        self.plan.workflows.get(&self.plan.root).map(Arc::as_ref)
    }

    /// The variables that the root declares.
    pub fn declared(&self) -> &[Variable] {
        self.root_plan().map_or(&[], |root| &root.env)
    }

    /// The workflow a child step names.
    pub fn workflow(&self, path: &str) -> Option<&CompiledWorkflow> {
        let compiled = self.workflows.get(path)?.get_or_init(|| {
            let plan = self.plan.workflows.get(path)?;
            CompiledWorkflow::compile(plan, path, &mut CompileErrors::new())
        });
        compiled.as_ref()
    }

    /// The step by whose definition another runs: itself, or the one that it was resumed to.
    pub fn acting_step(&self, state: &RunState, at: StepKey) -> Option<&CompiledStep> {
        let workflow = self.workflow(&state.scope_of(at)?.shape.key)?;
        workflow.steps.get(state.acting_position(at)? as usize)
    }

    /// The worlds that a run of it loads, if there are any.
    pub fn worlds(&self) -> Option<&CompiledWorlds> {
        let compiled = self
            .worlds
            .get_or_init(|| CompiledWorlds::compile(&self.plan.worlds, &mut CompileErrors::new()));
        compiled.as_ref()
    }

    /// Every workflow, with its key.
    pub fn workflows(&self) -> impl Iterator<Item = (&str, &CompiledWorkflow)> {
        let paths = self.workflows.keys();
        paths.filter_map(|path| Some((path.as_str(), self.workflow(path)?)))
    }
}

fn children(plan: &Plan, path: &str, workflow: &WorkflowPlan, faults: &mut CompileErrors) {
    for step in &workflow.steps {
        for child in step.children() {
            if !plan.workflows.contains_key(&child.workflow) {
                let words = format!("{} is not in the plan", child.workflow);
                faults.push((format!("{path}/{}/workflow", step.id), words));
            }
        }
        match &step.work {
            StepWork::Agent(agent) if !plan.agents.contains_key(&agent.file) => {
                let words = format!("the agent {:?} is not in the plan", agent.file);
                faults.push((format!("{path}/{}/agent", step.id), words));
            }
            StepWork::Workflow(_)
            | StepWork::Agent(_)
            | StepWork::Transform(_)
            | StepWork::Webhook(_) => {}
        }
    }
}

/// Checks that what responders run is in the plan, and that what they see is no secret.
fn responders(plan: &Plan, worlds: Option<&CompiledWorlds>, faults: &mut CompileErrors) {
    for (path, world) in &plan.worlds {
        for missing in world
            .workflows()
            .filter(|key| !plan.workflows.contains_key(*key))
        {
            faults.push((path.clone(), format!("{missing} is not in the plan")));
        }
    }
    let root = plan.workflows.get(&plan.root);
    let secrets = root
        .iter()
        .flat_map(|root| &root.env)
        .filter(|one| one.secret);
    let secrets: BTreeSet<&str> = secrets.map(|one| one.name.as_str()).collect();
    let mentioned = worlds.into_iter().flat_map(CompiledWorlds::variables);
    for name in mentioned.filter(|name| secrets.contains(name)) {
        let words = format!("a responder sees env.{name}, which is a secret");
        faults.push(("worlds".to_owned(), words));
    }
}

/// Workflow files are a graph too: one that comes back to itself would run without end, and one
/// that spreads too far would not fit into a run.
fn reach(plan: &Plan, faults: &mut CompileErrors) {
    let paths: Vec<&String> = plan.workflows.keys().collect();
    let place = |path: &String| paths.binary_search(&path).unwrap_or(usize::MAX);
    let needs: Vec<Vec<usize>> = plan
        .workflows
        .values()
        .map(|workflow| {
            let children = workflow.steps.iter().flat_map(StepPlan::children);
            children.map(|child| place(&child.workflow)).collect()
        })
        .collect();
    if let Err(cycle) = graph::order(&needs) {
        let names: Vec<&str> = cycle.iter().map(|place| paths[*place].as_str()).collect();
        faults.push((
            names[0].to_owned(),
            format!("workflows call one another: {}", names.join(" -> ")),
        ));
    }
    let run = plan.worlds.values().flat_map(|world| world.workflows());
    let opened: BTreeSet<&str> = run.chain([plan.root.as_str()]).collect();
    let sizes = graph::expansions(&needs).unwrap_or_default();
    for path in opened {
        let size = paths.iter().position(|other| *other == path);
        let Some(size) = size.and_then(|place| sizes.get(place)) else {
            continue;
        };
        if !size.is_too_large() {
            continue;
        }
        let words = format!(
            "{} levels of children and {} scopes are more than {} and {}",
            size.levels,
            size.scopes,
            graph::MAX_LEVELS,
            graph::MAX_SCOPES,
        );
        faults.push((path.to_owned(), words));
    }
}

impl CompiledWorkflow {
    /// Compiles one workflow; what is wrong is added to `faults`, each with a place that begins
    /// with `path`.
    pub fn compile(
        plan: &Arc<WorkflowPlan>,
        path: &str,
        faults: &mut CompileErrors,
    ) -> Option<Self> {
        let before = faults.len();
        let params = params_schema(
            plan.params.as_ref(),
            faults,
            &format!("{path}/params/schema"),
        );
        let output = plan.output.as_ref().map(|output| {
            let at = format!("{path}/output");
            let map = tree(output.map.as_ref(), faults, &format!("{at}/map"));
            let schema = output.schema.as_ref();
            (map, output_schema(schema, faults, &format!("{at}/schema")))
        });
        let mut steps = Vec::new();
        for step in &plan.steps {
            steps.extend(CompiledStep::compile(step, path, faults));
        }
        if faults.len() > before {
            return None;
        }
        let mut by_id = HashMap::new();
        for (place, step) in plan.steps.iter().enumerate() {
            if by_id.insert(step.id.clone(), place).is_some() {
                faults.push((
                    format!("{path}/{}", step.id),
                    "this id appears twice".to_owned(),
                ));
            }
        }
        link(&steps, &by_id, path, faults);
        for template in output.iter().filter_map(|(map, _)| map.as_ref()) {
            for id in graph::step_ids(template.roots()).filter(|id| !by_id.contains_key(*id)) {
                let at = format!("{path}/output/map");
                faults.push((at, format!("there is no step {id:?}")));
            }
        }
        (faults.len() == before).then(|| Self {
            plan: Arc::clone(plan),
            steps,
            params,
            output,
            by_id,
        })
    }

    /// The step with this id.
    pub fn step(&self, id: &str) -> Option<&CompiledStep> {
        self.by_id.get(id).map(|place| &self.steps[*place])
    }

    /// Every name its steps and its output mention.
    fn roots(&self) -> BTreeSet<Root> {
        let map = self.output.iter().filter_map(|(map, _)| map.as_ref());
        let map = map.flat_map(|map| map.roots().iter().cloned());
        self.steps
            .iter()
            .flat_map(CompiledStep::roots)
            .chain(map)
            .collect()
    }

    /// The variables that its expressions mention.
    fn variables(&self) -> BTreeSet<String> {
        let roots = self.roots().into_iter();
        let names = roots.filter_map(|root| match root {
            Root::Env(name) => Some(name),
            Root::Params
            | Root::Step(_)
            | Root::Item
            | Root::ItemIndex
            | Root::Resume
            | Root::Name(_) => None,
        });
        names.collect()
    }

    /// Returns `true` if a variable is declared as a secret.
    pub fn is_secret(&self, variable: &str) -> bool {
        let declared = self.plan.env.iter();
        declared
            .filter(|one| one.secret)
            .any(|one| one.name == variable)
    }
}

/// Needs must exist and cover every mention.
fn link(
    steps: &[CompiledStep],
    by_id: &HashMap<String, usize>,
    path: &str,
    faults: &mut CompileErrors,
) {
    let needs: Vec<Vec<usize>> = steps.iter().map(|step| step.needs.clone()).collect();
    for (place, wanted) in needs.iter().enumerate() {
        let at = format!("{path}/{}/needs", steps[place].id);
        for need in wanted {
            if *need >= steps.len() {
                faults.push((at.clone(), format!("there is no step {need}")));
            }
        }
        let roots = steps[place].roots();
        for id in graph::step_ids(&roots) {
            match by_id.get(id) {
                Some(mentioned) if wanted.contains(mentioned) => {}
                Some(_) => faults.push((at.clone(), format!("step {id} is used and not needed"))),
                None => faults.push((at.clone(), format!("there is no step {id:?}"))),
            }
        }
    }
    if let Err(cycle) = graph::order(&needs) {
        let names: Vec<&str> = cycle
            .iter()
            .map(|place| steps[*place].id.as_str())
            .collect();
        let words = format!("steps wait for one another: {}", names.join(" -> "));
        faults.push((path.to_owned(), words));
    }
}

fn tree(tree: Option<&CanonicalJson>, faults: &mut CompileErrors, at: &str) -> Option<Template> {
    collect_error(Template::parse(tree?), faults, at)
}

fn text(text: Option<&String>, faults: &mut CompileErrors, at: &str) -> Option<Template> {
    collect_error(Template::text(text?), faults, at)
}

fn expression(source: Option<&String>, faults: &mut CompileErrors, at: &str) -> Option<Expression> {
    collect_error(Expression::parse(source?), faults, at)
}

fn output_schema(
    schema: Option<&CanonicalJson>,
    faults: &mut CompileErrors,
    at: &str,
) -> Option<Schema> {
    collect_error(Schema::compile_output(schema?), faults, at)
}

fn params_schema(
    schema: Option<&CanonicalJson>,
    faults: &mut CompileErrors,
    at: &str,
) -> Option<ParamsSchema> {
    collect_error(ParamsSchema::compile(schema?), faults, at)
}

/// The value, or nothing and one more fault.
fn collect_error<T, E: Worded>(
    outcome: Result<T, E>,
    faults: &mut CompileErrors,
    at: &str,
) -> Option<T> {
    outcome
        .map_err(|error| faults.push((format!("{at}{}", error.place()), error.to_string())))
        .ok()
}

/// An error that knows its place below the thing that was compiled.
trait Worded: std::fmt::Display {
    fn place(&self) -> &str;
}

impl Worded for ExpressionError {
    fn place(&self) -> &str {
        ""
    }
}

impl Worded for TemplateError {
    fn place(&self) -> &str {
        &self.pointer
    }
}

impl Worded for super::airlock::SchemaError {
    fn place(&self) -> &str {
        &self.pointer
    }
}

#[cfg(test)]
mod world_tests;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plans_tests::{plan, transform, workflow};

    #[test]
    fn a_definition_at_rest_compiles_what_is_asked_for_once_and_knows_its_variables() {
        let steps = json!([
            transform("a", json!([]), "env.URL"),
            transform("b", json!([0]), "step.a.result")
        ]);
        let plan = plan(json!({"main": workflow("main", steps)}));
        let whole = Definition::compile(serde_json::from_value(plan).unwrap()).unwrap();
        let names = whole.variables();
        assert!(names.contains("URL"));
        let resting = whole.at_rest();
        assert!(resting.workflows.values().all(|one| one.get().is_none()));
        assert_eq!(resting.variables(), names);
        let first = resting.root().unwrap();
        assert_eq!(first.steps.len(), 2);
        assert!(std::ptr::eq(first, resting.workflow("main").unwrap()));
        assert!(resting.workflow("other").is_none());
    }
}

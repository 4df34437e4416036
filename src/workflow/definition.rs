//! A whole definition, valid by construction: every expression parsed, every schema compiled,
//! every edge checked. Made from a plan, whether that was just read from files or comes back from
//! a blob after a crash.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ktsu_ledger::Json;
use ktsu_ledger::event::plan::{
    AgentPlan, ChildPlan, FORMAT, OutputPlan, Plan, StepPlan, WebhookPlan, Work, WorkflowPlan,
};

use serde_json::Value;

use super::airlock::{Schema, Violation};
use super::expression::{Expression, ExpressionError, Root};
use super::graph;
use super::params::ParamsSchema;
use super::template::{Template, TemplateError};
use super::transform::CompiledTransform;

/// The root workflow and everything it reaches, compiled.
#[derive(Debug)]
pub struct Definition {
    /// What it was made from.
    pub plan: Plan,
    /// The canonical text of the plan.
    pub json: Json,
    /// BLAKE3 of the text, in hex: names the definition (seed 000, invariant 12).
    pub digest: String,
    /// By the keys of [`Plan::workflows`].
    pub workflows: BTreeMap<String, Workflow>,
}

/// One workflow, compiled.
#[derive(Debug)]
pub struct Workflow {
    /// What it was made from.
    pub plan: WorkflowPlan,
    /// In file order.
    pub steps: Vec<Step>,
    /// The schema of its params.
    pub params: Option<ParamsSchema>,
    /// How its own output is made (`map`) and judged (`schema`).
    pub output: Option<(Option<Template>, Option<Schema>)>,
    /// Positions in `steps`.
    pub by_id: HashMap<String, usize>,
}

/// One step, compiled.
#[derive(Debug)]
pub struct Step {
    /// Unique in its workflow.
    pub id: String,
    /// Positions of the steps it waits for, ascending.
    pub needs: Vec<usize>,
    /// Positions of the steps that wait for it, ascending.
    pub dependants: Vec<usize>,
    /// Falsy skips the step.
    pub condition: Option<Expression>,
    /// The air-lock of its output; [`Step::check_output`] applies it.
    pub schema: Option<Schema>,
    /// What it does.
    pub work: CompiledWork,
    /// The schema speaks of the value of a transform, not of the object around it.
    judges_result: bool,
}

/// The four primitives with their expressions parsed.
#[derive(Debug)]
pub enum CompiledWork {
    /// A model reasons.
    Agent {
        /// An object of templates.
        params: Option<Template>,
        /// `for_each.from`.
        from: Option<Expression>,
    },
    /// Data is reshaped.
    Transform(CompiledTransform),
    /// An HTTP endpoint is called.
    Webhook {
        /// A template that makes text.
        url: Template,
        /// A tree of templates.
        body: Option<Template>,
    },
    /// Another workflow runs inline.
    Workflow {
        /// An object of templates.
        params: Option<Template>,
    },
}

/// What is wrong where, in words.
pub type Faults = Vec<(String, String)>;

impl Definition {
    /// Compiles a plan, or says everything that is wrong with it.
    pub fn compile(plan: Plan) -> Result<Self, Faults> {
        let mut faults = Faults::new();
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
        for (path, workflow) in &plan.workflows {
            let compiled = Workflow::compile(workflow, path, &mut faults);
            children(&plan, path, workflow, &mut faults);
            workflows.extend(compiled.map(|workflow| (path.clone(), workflow)));
        }
        reaches_itself(&plan, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let json = serde_json::to_value(&plan)
            .ok()
            .and_then(|value| Json::from_value(&value).ok())
            .ok_or_else(|| vec![("plan".to_owned(), "nested too deeply".to_owned())])?;
        let digest = blake3::hash(json.as_str().as_bytes()).to_hex().to_string();
        Ok(Self {
            plan,
            json,
            digest,
            workflows,
        })
    }

    /// The root workflow.
    pub fn root(&self) -> Option<&Workflow> {
        self.workflows.get(&self.plan.root)
    }

    /// The workflow a child step names.
    pub fn workflow(&self, path: &str) -> Option<&Workflow> {
        self.workflows.get(path)
    }
}

fn children(plan: &Plan, path: &str, workflow: &WorkflowPlan, faults: &mut Faults) {
    for step in &workflow.steps {
        match &step.work {
            Work::Workflow(child) if !plan.workflows.contains_key(&child.workflow) => {
                let words = format!("{} is not in the plan", child.workflow);
                faults.push((format!("{path}/{}/workflow", step.id), words));
            }
            Work::Workflow(_) | Work::Agent(_) | Work::Transform(_) | Work::Webhook(_) => {}
        }
    }
}

/// Workflow files are a graph too, and one that comes back to itself would run without end.
fn reaches_itself(plan: &Plan, faults: &mut Faults) {
    let paths: Vec<&String> = plan.workflows.keys().collect();
    let place = |path: &String| paths.binary_search(&path).unwrap_or(usize::MAX);
    let needs: Vec<Vec<usize>> = plan
        .workflows
        .values()
        .map(|workflow| workflow.steps.iter().filter_map(child).map(place).collect())
        .collect();
    if let Err(cycle) = graph::order(&needs) {
        let names: Vec<&str> = cycle.iter().map(|place| paths[*place].as_str()).collect();
        faults.push((
            names[0].to_owned(),
            format!("workflows call one another: {}", names.join(" -> ")),
        ));
    }
}

fn child(step: &StepPlan) -> Option<&String> {
    match &step.work {
        Work::Workflow(child) => Some(&child.workflow),
        Work::Agent(_) | Work::Transform(_) | Work::Webhook(_) => None,
    }
}

impl Workflow {
    /// Compiles one workflow; what is wrong is added to `faults`, each with a place that begins
    /// with `path`.
    pub fn compile(plan: &WorkflowPlan, path: &str, faults: &mut Faults) -> Option<Self> {
        let before = faults.len();
        let params = plan.params.as_ref().and_then(|schema| {
            let compiled = ParamsSchema::compile(schema);
            noted(compiled, faults, &format!("{path}/params/schema"))
        });
        let output = plan
            .output
            .as_ref()
            .map(|output| compile_output(output, path, faults));
        let mut steps = Vec::new();
        for step in &plan.steps {
            steps.extend(Step::compile(step, path, faults));
        }
        if faults.len() > before {
            return None;
        }
        let mut by_id = HashMap::new();
        for (place, step) in plan.steps.iter().enumerate() {
            if by_id.insert(step.id.clone(), place).is_some() {
                faults.push((
                    format!("{path}/{}", step.id),
                    "this id stands twice".to_owned(),
                ));
            }
        }
        link(&mut steps, &by_id, path, faults);
        for template in output.iter().filter_map(|(map, _)| map.as_ref()) {
            for id in graph::step_ids(template.roots()).filter(|id| !by_id.contains_key(*id)) {
                let at = format!("{path}/output/map");
                faults.push((at, format!("there is no step {id:?}")));
            }
        }
        (faults.len() == before).then(|| Self {
            plan: plan.clone(),
            steps,
            params,
            output,
            by_id,
        })
    }

    /// The step with this id.
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.by_id.get(id).map(|place| &self.steps[*place])
    }

    /// Whether a variable is declared as a secret.
    pub fn is_secret(&self, variable: &str) -> bool {
        let declared = self.plan.env.iter();
        declared
            .filter(|one| one.secret)
            .any(|one| one.name == variable)
    }
}

fn compile_output(
    output: &OutputPlan,
    path: &str,
    faults: &mut Faults,
) -> (Option<Template>, Option<Schema>) {
    let map = output
        .map
        .as_ref()
        .and_then(|map| noted(Template::parse(map), faults, &format!("{path}/output/map")));
    let schema = output.schema.as_ref().and_then(|schema| {
        noted(
            Schema::compile_output(schema),
            faults,
            &format!("{path}/output/schema"),
        )
    });
    (map, schema)
}

/// Dependants are the needs the other way round; needs must cover every mention.
fn link(steps: &mut [Step], by_id: &HashMap<String, usize>, path: &str, faults: &mut Faults) {
    let needs: Vec<Vec<usize>> = steps.iter().map(|step| step.needs.clone()).collect();
    for (place, wanted) in needs.iter().enumerate() {
        let at = format!("{path}/{}/needs", steps[place].id);
        for need in wanted {
            match steps.get_mut(*need) {
                Some(step) => step.dependants.push(place),
                None => faults.push((at.clone(), format!("there is no step {need}"))),
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

impl Step {
    /// Compiles one step, without its dependants.
    pub fn compile(plan: &StepPlan, path: &str, faults: &mut Faults) -> Option<Self> {
        let before = faults.len();
        let at = format!("{path}/{}", plan.id);
        let condition = plan.condition.as_ref().and_then(|source| {
            noted(
                Expression::parse(source),
                faults,
                &format!("{at}/condition"),
            )
        });
        let schema = plan.schema.as_ref().and_then(|schema| {
            noted(
                Schema::compile_output(schema),
                faults,
                &format!("{at}/output/schema"),
            )
        });
        let work = CompiledWork::compile(&plan.work, &at, faults)?;
        (faults.len() == before).then(|| Self {
            id: plan.id.clone(),
            needs: plan.needs.iter().map(|need| *need as usize).collect(),
            dependants: Vec::new(),
            condition,
            schema,
            work,
            judges_result: judges_result(plan),
        })
    }

    /// What the step's own schema says about an output without reserved fields; nothing when
    /// there is no schema (decision E5).
    ///
    /// The output of a transform is `{"result": value}`: a schema that requires `result` judges
    /// the object, any other judges the value.
    pub fn check_output(&self, output: &Value) -> Vec<Violation> {
        let Some(schema) = &self.schema else {
            return Vec::new();
        };
        match output.get("result").filter(|_| self.judges_result) {
            Some(result) => schema.check(result),
            None => schema.check(output),
        }
    }

    /// Every name its condition and its work mention.
    pub fn roots(&self) -> BTreeSet<Root> {
        let mut roots = self.work.roots();
        roots.extend(
            self.condition
                .iter()
                .flat_map(|one| one.roots().iter().cloned()),
        );
        roots
    }
}

fn judges_result(plan: &StepPlan) -> bool {
    let schema = plan.schema.as_ref().map(Json::to_value);
    let required = schema
        .as_ref()
        .and_then(|schema| schema.get("required")?.as_array());
    let wraps = required.is_some_and(|names| names.iter().any(|name| name == "result"));
    match &plan.work {
        Work::Transform(_) => !wraps,
        Work::Agent(_) | Work::Webhook(_) | Work::Workflow(_) => false,
    }
}

impl CompiledWork {
    fn compile(work: &Work, at: &str, faults: &mut Faults) -> Option<Self> {
        match work {
            Work::Agent(agent) => Some(Self::agent(agent, at, faults)),
            Work::Transform(plan) => {
                match CompiledTransform::compile(plan) {
                    Ok(transform) => Some(Self::Transform(transform)),
                    Err(errors) => {
                        faults.extend(errors.into_iter().map(|(place, error)| {
                            (format!("{at}/transform/{place}"), error.message)
                        }));
                        None
                    }
                }
            }
            Work::Webhook(webhook) => Self::webhook(webhook, at, faults),
            Work::Workflow(ChildPlan { params, .. }) => Some(Self::Workflow {
                params: tree(params.as_ref(), faults, &format!("{at}/params")),
            }),
        }
    }

    fn agent(plan: &AgentPlan, at: &str, faults: &mut Faults) -> Self {
        let from = plan.for_each.as_ref().and_then(|fan| {
            noted(
                Expression::parse(&fan.from),
                faults,
                &format!("{at}/for_each/from"),
            )
        });
        Self::Agent {
            params: tree(plan.params.as_ref(), faults, &format!("{at}/params")),
            from,
        }
    }

    fn webhook(plan: &WebhookPlan, at: &str, faults: &mut Faults) -> Option<Self> {
        let url = noted(
            Template::text(&plan.url),
            faults,
            &format!("{at}/webhook/url"),
        );
        let body = tree(plan.body.as_ref(), faults, &format!("{at}/webhook/body"));
        Some(Self::Webhook { url: url?, body })
    }

    /// Every name mentioned.
    pub fn roots(&self) -> BTreeSet<Root> {
        let of = |template: &Option<Template>| {
            template
                .iter()
                .flat_map(|one| one.roots().iter().cloned())
                .collect()
        };
        match self {
            Self::Agent { params, from } => {
                let mut roots: BTreeSet<Root> = of(params);
                roots.extend(from.iter().flat_map(|one| one.roots().iter().cloned()));
                roots
            }
            Self::Transform(transform) => transform.roots(),
            Self::Webhook { url, body } => {
                let mut roots: BTreeSet<Root> = of(body);
                roots.extend(url.roots().iter().cloned());
                roots
            }
            Self::Workflow { params } => of(params),
        }
    }
}

fn tree(tree: Option<&Json>, faults: &mut Faults, at: &str) -> Option<Template> {
    tree.and_then(|tree| noted(Template::parse(tree), faults, at))
}

/// The value, or nothing and one more fault.
fn noted<T, E: Worded>(outcome: Result<T, E>, faults: &mut Faults, at: &str) -> Option<T> {
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

/// Definitions are shared by the runs that follow them.
pub type Shared = Arc<Definition>;

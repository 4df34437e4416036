//! The definition of a recompute: one fan-out for each agent step, over the inputs of its tasks, and
//! the `questions` of responders.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::plan::{
    AgentFile, AgentPlan, FORMAT, FanOut, Plan, Policy, StepPlan, StepWork, Variable, Visibility,
    Webhooks, WorkflowPlan,
};
use ktsu_ledger::event::{
    EnvValue, Limits, Principal, RecomputeEvent, RecomputeOf, RecordedResult, RunCreated,
};
use ktsu_ledger::id::MAX_NAME;
use ktsu_ledger::{Actor, CanonicalJson, Cause, Draft, Event};
use serde_json::{Map, Value, json};

use super::questions::{self, ASKS, PlannedQuestions};
use super::{MAX_RESULTS, RecomputeError, RecordedAsk, RecordedRun, RecordedTask};
use crate::admit::ENGINE;
use crate::defaults::segment;
use crate::definition::Definition;
use crate::rules::RULES;
use crate::template::Template;

/// A recompute that is ready to begin.
#[derive(Debug)]
pub struct PreparedRecompute {
    /// Of agents alone.
    pub definition: Definition,
    /// Its first frame.
    pub created: Draft,
}

/// Prepares the recompute of a run, or of one of its steps.
///
/// # Errors
/// [`RecomputeError`].
pub fn prepare(
    recorded: &RecordedRun,
    only: Option<&str>,
    principal: Principal,
) -> Result<PreparedRecompute, RecomputeError> {
    if recorded.of.is_some() || recorded.stream.kind() == "recompute" {
        return Err(RecomputeError::IsRecompute);
    }
    let mut paths: Vec<String> = Vec::new();
    let mut groups: BTreeMap<String, Vec<&RecordedTask>> = BTreeMap::new();
    for task in recorded.ended() {
        let path = task.path();
        if !paths.contains(&path) {
            paths.push(path.clone());
        }
        groups.entry(path).or_default().push(task);
    }
    let mut asks: Vec<&RecordedAsk> = recorded.ended_asks().collect();
    if paths.is_empty() && asks.is_empty() {
        return Err(RecomputeError::Nothing);
    }
    if let Some(only) = only {
        if !groups.contains_key(only) && !asks.iter().any(|ask| ask.address == only) {
            paths.extend(asks.into_iter().map(|ask| ask.address.clone()));
            return Err(RecomputeError::NoSuchStep(paths));
        }
        paths.retain(|path| path == only);
        asks.retain(|ask| ask.address == only);
    }
    let mut steps = Vec::new();
    let mut params = Map::new();
    let mut agents = BTreeMap::new();
    let mut offered = BTreeMap::new();
    let mut results = Vec::new();
    for path in &paths {
        let tasks = groups.get(path).map(Vec::as_slice).unwrap_or_default();
        let Some(first) = tasks.first() else { continue };
        let id = unique(path, &params);
        let file = recorded.plan.agents.get(&first.agent.file);
        agents.extend(file.map(|file| (first.agent.file.clone(), file.clone())));
        offered.extend(offers(&recorded.plan, &first.agent));
        let mut leaves = Vec::new();
        let tree = first.agent.params.as_ref().map(CanonicalJson::to_value);
        let tree = tree.map(|tree| rewritten(&tree, "", first, &mut leaves));
        steps.push(fan_out(&id, &first.agent, tree)?);
        for (item, task) in (0..).zip(tasks) {
            results.extend(of_item(task.calls.results(), &id, item));
        }
        let given = tasks.iter().map(|task| given(task, &leaves));
        params.insert(
            id,
            json!({"step": path, "tasks": given.collect::<Vec<_>>()}),
        );
    }
    let root = recorded.plan.workflows.get(&recorded.plan.root);
    let parts = RecomputeParts {
        root: recorded.plan.root.clone(),
        workflow: recorded.workflow.clone(),
        version: recorded.version.clone(),
        env: root.map(|root| root.env.clone()).unwrap_or_default(),
        policy: root.map(|root| root.policy.clone()).unwrap_or_default(),
        steps,
        questions: questions::plan(recorded, &asks),
        agents,
        offered,
        params: Value::Object(params),
        values: recorded.env.clone(),
        of: Some(RecomputeOf {
            head: recorded.head.clone(),
            step: only.map(str::to_owned),
            stream: recorded.stream.to_string(),
        }),
        cause: vec![Cause::There(recorded.stream.clone(), recorded.last)],
        results,
        references: recorded.references.clone(),
        rules: recorded.rules,
    };
    parts.prepared(principal)
}

/// Prepares one task of a definition at hand: an agent step, given these params. `results` answer
/// the calls that are not sent.
///
/// # Errors
/// [`RecomputeError`].
pub fn prepare_task(
    definition: &Definition,
    agent: &AgentPlan,
    path: &str,
    input: &Map<String, Value>,
    results: &[RecordedResult],
    principal: Principal,
) -> Result<PreparedRecompute, RecomputeError> {
    let id = unique(path, &Map::new());
    let names = (0..).zip(input.keys());
    let tree = names.map(|(place, name)| (name.clone(), leaf(place)));
    let tree = Value::Object(tree.collect());
    let values: Vec<&Value> = input.values().collect();
    let root = definition.root().map(|root| &root.plan);
    let results = of_item(results.iter(), &id, 0).collect();
    let file = definition.agents.get(&agent.file);
    let file = file.map(|one| (agent.file.clone(), one.file.clone()));
    let parts = RecomputeParts {
        root: definition.plan.root.clone(),
        workflow: root.map(|root| root.name.clone()).unwrap_or_default(),
        version: root.map(|root| root.version.clone()).unwrap_or_default(),
        env: Vec::new(),
        policy: root.map(|root| root.policy.clone()).unwrap_or_default(),
        steps: vec![fan_out(&id, agent, Some(tree))?],
        questions: None,
        agents: file.into_iter().collect(),
        offered: offers(&definition.plan, agent).collect(),
        params: json!({id: {"step": path, "tasks": [{"given": values}]}}),
        values: BTreeMap::new(),
        of: None,
        cause: Vec::new(),
        results,
        references: Vec::new(),
        rules: RULES,
    };
    parts.prepared(principal)
}

/// The parts from which a recompute is made.
struct RecomputeParts {
    root: String,
    workflow: String,
    version: String,
    env: Vec<Variable>,
    policy: Policy,
    steps: Vec<StepPlan>,
    questions: Option<PlannedQuestions>,
    agents: BTreeMap<String, Arc<AgentFile>>,
    /// The workflows that agents may invoke: judged as in the run, and never run.
    offered: BTreeMap<String, Arc<WorkflowPlan>>,
    params: Value,
    values: BTreeMap<String, EnvValue>,
    of: Option<RecomputeOf>,
    cause: Vec<Cause>,
    references: Vec<String>,
    results: Vec<RecordedResult>,
    rules: u32,
}

impl RecomputeParts {
    fn prepared(self, principal: Principal) -> Result<PreparedRecompute, RecomputeError> {
        let bytes: usize = self.results.iter().map(size).sum();
        if bytes > MAX_RESULTS {
            return Err(RecomputeError::TooMuch(bytes));
        }
        let mut params = json!({ "steps": self.params });
        let mut worlds = BTreeMap::new();
        if let Some(questions) = self.questions {
            params[ASKS] = questions.params;
            params["goal"] = questions.goal.into();
            worlds.insert(questions.path, Arc::new(questions.world));
        }
        let workflow = WorkflowPlan {
            env: self.env,
            invoke: None,
            name: self.workflow.clone(),
            output: None,
            params: None,
            policy: self.policy,
            steps: self.steps,
            version: self.version.clone(),
            visibility: Visibility::Root,
            webhooks: Webhooks::Suppress,
        };
        let definition = Definition::compile(Plan {
            agents: self.agents,
            format: FORMAT,
            root: self.root.clone(),
            workflows: {
                let mut workflows = self.offered;
                workflows.insert(self.root, Arc::new(workflow));
                workflows
            },
            worlds,
        });
        let definition = definition.map_err(|faults| {
            let first = faults.into_iter().next();
            let words = first.map(|(place, words)| format!("{place}: {words}"));
            RecomputeError::Unusable(words.unwrap_or_default())
        })?;
        let created = RunCreated {
            definition: definition.json.clone(),
            digest: definition.digest.clone(),
            effects: None,
            references: self.references,
            engine: ENGINE.to_owned(),
            env: self.values,
            idempotency_digest: None,
            idempotency_key: None,
            limits: Limits::default(),
            lock: None,
            no_cache: false,
            of: self.of,
            params: tree(&params)?,
            principal: principal.clone(),
            results: self.results,
            rules: self.rules,
            version: self.version,
            workflow: self.workflow,
        };
        let created = Draft {
            scope: String::new(),
            actor: Actor::Principal(principal.id),
            cause: self.cause,
            event: Event::Recompute(RecomputeEvent::Created(Box::new(created))),
        };
        Ok(PreparedRecompute {
            definition,
            created,
        })
    }
}

/// Recorded results as those of an item of a step of the recompute.
fn of_item<'a>(
    results: impl Iterator<Item = &'a RecordedResult>,
    step: &str,
    item: u32,
) -> impl Iterator<Item = RecordedResult> {
    results.map(move |result| RecordedResult {
        item,
        step: step.to_owned(),
        ..result.clone()
    })
}

fn size(result: &RecordedResult) -> usize {
    let structured = result.structured.as_ref();
    result.content.as_str().len() + structured.map_or(0, |json| json.as_str().len())
}

/// One step that asks an agent for each of its tasks.
/// The workflows that the agent of a step may invoke, as far as their params go.
fn offers<'p>(
    plan: &'p Plan,
    agent: &'p AgentPlan,
) -> impl Iterator<Item = (String, Arc<WorkflowPlan>)> + 'p {
    let names = agent.may_invoke.values().map(|one| &one.child.workflow);
    names.filter_map(|name| {
        let whole = plan.workflows.get(name)?;
        let offered = WorkflowPlan {
            env: Vec::new(),
            invoke: None,
            output: None,
            policy: Policy::default(),
            steps: Vec::new(),
            ..WorkflowPlan::clone(whole)
        };
        Some((name.clone(), Arc::new(offered)))
    })
}

fn fan_out(id: &str, agent: &AgentPlan, params: Option<Value>) -> Result<StepPlan, RecomputeError> {
    let concurrency = agent.for_each.as_ref().map_or(1, |each| each.concurrency);
    let each = FanOut {
        concurrency,
        from: format!("params.steps.\"{id}\".tasks"),
        max_failures: -1,
        max_items: None,
    };
    Ok(StepPlan {
        condition: None,
        id: id.to_owned(),
        needs: Vec::new(),
        schema: None,
        summary: None,
        work: StepWork::Agent(AgentPlan {
            for_each: Some(each),
            on_resume: false,
            params: params.map(|params| tree(&params)).transpose()?,
            ..agent.clone()
        }),
    })
}

fn tree(value: &Value) -> Result<CanonicalJson, RecomputeError> {
    CanonicalJson::from_value(value).map_err(|error| RecomputeError::Unusable(error.to_string()))
}

/// An id that no other step has: where the step stands in the run, as far as an id can say it.
fn unique(path: &str, taken: &Map<String, Value>) -> String {
    // Addresses of what responders run, and only these, have an @ and a dot: no id of a step has.
    let plain = path.trim_start_matches('@').replace('.', "_");
    let plain = plain.replace('/', "__");
    if plain.len() <= MAX_NAME && !taken.contains_key(&plain) {
        return plain;
    }
    let mut numbers = taken.len()..;
    let free = numbers.find_map(|number| {
        let id = format!("step__{number}");
        (!taken.contains_key(&id)).then_some(id)
    });
    free.unwrap_or_default()
}

/// The expression for what a task was given at a place.
fn leaf(place: usize) -> Value {
    Value::String(format!("{{{{ item.given[{place}] }}}}"))
}

/// The declared params with a reference to the recorded value wherever an expression stood. What
/// resolves through a secret stays what it was; `leaves` are the pointers of the others.
fn rewritten(declared: &Value, at: &str, task: &RecordedTask, leaves: &mut Vec<String>) -> Value {
    match declared {
        Value::String(text) if is_template(text) && task.given.get(at) != Some(&None) => {
            leaves.push(at.to_owned());
            leaf(leaves.len() - 1)
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let below = |(index, item)| rewritten(item, &format!("{at}/{index}"), task, leaves);
            Value::Array(items.map(below).collect())
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, member)| {
                let at = format!("{at}/{}", segment(name));
                let below = rewritten(member, &at, task, leaves);
                (name.clone(), below)
            });
            Value::Object(members.collect())
        }
        _ => declared.clone(),
    }
}

fn is_template(text: &str) -> bool {
    Template::text(text).is_ok_and(|template| !template.is_literal())
}

/// The values that one task was given, in the order of `leaves`, and its item, if it was one.
fn given(task: &RecordedTask, leaves: &[String]) -> Value {
    let value = |pointer: &String| task.given.get(pointer).cloned().flatten();
    let values: Vec<Value> = leaves
        .iter()
        .map(|pointer| value(pointer).unwrap_or_default())
        .collect();
    match task.item {
        Some(item) => json!({"given": values, "item": item}),
        None => json!({ "given": values }),
    }
}

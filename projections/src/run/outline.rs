//! The shape of a definition: the dependencies between steps, in both directions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ktsu_ledger::event::plan::{
    AgentFile, Plan, ReviewPolicy, ServerPlan, StepPlan, SuspendPolicy, Webhooks, WorkflowPlan,
    world::WorldPlan,
};
use ktsu_ledger::{CanonicalJson, Frame};

/// The most levels of children in a recorded definition: more than a kit may have, and few enough to
/// be walked level by level. What is deeper was written by something else.
pub(super) const MAX_LEVELS: usize = 64;

/// A definition with its reverse edges, shared by every run of it.
#[derive(Debug)]
pub struct Outline {
    root: Arc<WorkflowShape>,
    workflows: BTreeMap<String, Arc<WorkflowShape>>,
    agents: BTreeMap<String, AgentShape>,
    worlds: BTreeMap<String, Arc<WorldPlan>>,
}

/// The facts about an agent that the state of a run needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentShape {
    /// True if it may look at its draft once more.
    pub reflects: bool,
    /// True if its output schema declares `ktsu_confidence`.
    pub declares_confidence: bool,
    /// The most turns that it has.
    pub max_turns: u32,
    /// The tool servers it uses.
    pub servers: Vec<ServerPlan>,
    /// The policy for people's decisions on an outcome that asks for a review, if one may.
    pub review: Option<ReviewPolicy>,
    /// The policy for the data that a step of it waits for, if it may suspend its step.
    pub suspend: Option<SuspendPolicy>,
}

/// One workflow of a definition.
#[derive(Debug)]
pub struct WorkflowShape {
    /// Its key in the definition.
    pub key: String,
    /// As persisted.
    pub plan: Arc<WorkflowPlan>,
    dependants: Vec<Vec<u32>>,
    by_id: HashMap<String, u32>,
}

/// A definition that does not hang together. `validate` finds these with positions; here they are
/// the last line of defence, for a definition read back from a ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The text is not a plan.
    #[error("the recorded definition cannot be read: {0}")]
    Unreadable(String),
    /// A format this version does not know.
    #[error("the recorded definition has format {0}, which this version of ktsu does not know")]
    Format(u32),
    /// A workflow it names is not in it.
    #[error("the definition has no workflow {0:?}")]
    Missing(String),
    /// Workflows call one another in a circle, or through too many others.
    #[error("the workflows of the definition call one another more than {MAX_LEVELS} levels deep")]
    Levels,
    /// Steps wait for each other, or for one that does not exist.
    #[error("the steps of workflow {0:?} cannot be put in an order")]
    Edges(String),
}

impl Outline {
    /// Reads the definition that a frame brings, if it is one that brings any.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn from_first_frame(frame: &Frame) -> Result<Option<Arc<Self>>, PlanError> {
        let definition = frame.event.definition();
        definition
            .map(|(definition, _)| Self::from_definition(definition))
            .transpose()
    }

    /// Reads a definition as frames carry it.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn from_definition(definition: &CanonicalJson) -> Result<Arc<Self>, PlanError> {
        let plan = serde_json::from_str(definition.as_str());
        Self::of(plan.map_err(|error| PlanError::Unreadable(error.to_string()))?)
    }

    /// Works out the reverse edges.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn of(plan: Plan) -> Result<Arc<Self>, PlanError> {
        if plan.format != ktsu_ledger::event::plan::FORMAT {
            return Err(PlanError::Format(plan.format));
        }
        let known: BTreeSet<String> = plan.workflows.keys().cloned().collect();
        let mut workflows = BTreeMap::new();
        for (key, workflow) in plan.workflows {
            let missing = {
                let mut children = workflow.steps.iter().flat_map(StepPlan::children);
                let missing = children.find(|child| !known.contains(&child.workflow));
                missing.map(|child| child.workflow.clone())
            };
            if let Some(missing) = missing {
                return Err(PlanError::Missing(missing));
            }
            workflows.insert(key.clone(), Arc::new(WorkflowShape::of(key, workflow)?));
        }
        let run = plan.worlds.values().flat_map(|world| world.workflows());
        if let Some(missing) = { run }.find(|key| !known.contains(*key)) {
            return Err(PlanError::Missing(missing.to_owned()));
        }
        let agents = plan.agents.into_iter();
        let agents = agents.map(|(key, file)| (key, AgentShape::of(&file)));
        let root = workflows.get(&plan.root).cloned();
        let root = root.ok_or(PlanError::Missing(plan.root))?;
        if is_too_deep(&workflows) {
            return Err(PlanError::Levels);
        }
        Ok(Arc::new(Self {
            root,
            workflows,
            agents: agents.collect(),
            worlds: plan.worlds,
        }))
    }

    /// The workflow that was invoked.
    pub fn root(&self) -> &Arc<WorkflowShape> {
        &self.root
    }

    /// The worlds that a run of it loads, by path, in their order; most have none.
    pub fn worlds(&self) -> &BTreeMap<String, Arc<WorldPlan>> {
        &self.worlds
    }

    /// An agent by its key.
    pub fn agent(&self, key: &str) -> Option<&AgentShape> {
        self.agents.get(key)
    }

    /// A workflow by its key.
    pub fn workflow(&self, key: &str) -> Option<&Arc<WorkflowShape>> {
        self.workflows.get(key)
    }
}

impl AgentShape {
    fn of(file: &AgentFile) -> Self {
        let place = format!("/properties/{}", crate::life::reserved::CONFIDENCE);
        Self {
            reflects: file.prompt.reflect.is_some(),
            declares_confidence: file.output.pointer(&place).is_some(),
            max_turns: file.max_turns,
            servers: file.servers.clone(),
            review: file.commands.as_ref().and_then(|all| all.review.clone()),
            suspend: file.commands.as_ref().and_then(|all| all.suspend.clone()),
        }
    }
}

impl WorkflowShape {
    fn of(key: String, plan: Arc<WorkflowPlan>) -> Result<Self, PlanError> {
        let count = plan.steps.len();
        let mut dependants = vec![Vec::new(); count];
        let mut by_id = HashMap::with_capacity(count);
        for (at, step) in (0u32..).zip(&plan.steps) {
            by_id.insert(step.id.clone(), at);
            for need in &step.needs {
                match dependants.get_mut(*need as usize) {
                    Some(list) => list.push(at),
                    None => return Err(PlanError::Edges(plan.name.clone())),
                }
            }
        }
        let shape = Self {
            key,
            plan,
            dependants,
            by_id,
        };
        if by_id_is_whole(&shape) && can_be_ordered(&shape) {
            Ok(shape)
        } else {
            Err(PlanError::Edges(shape.plan.name.clone()))
        }
    }

    /// The steps that wait for a step.
    pub fn dependants(&self, step: u32) -> &[u32] {
        self.dependants
            .get(step as usize)
            .map_or(&[], Vec::as_slice)
    }

    /// A step by position.
    pub fn step(&self, step: u32) -> Option<&StepPlan> {
        self.plan.steps.get(step as usize)
    }

    /// The position of a step.
    pub fn position(&self, id: &str) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    /// The steps that a suspended step may be resumed to.
    pub fn resume_steps(&self, suspended: u32) -> impl Iterator<Item = &StepPlan> {
        let all = (0u32..).zip(&self.plan.steps);
        all.filter(move |(other, _)| self.may_resume_to(suspended, *other))
            .map(|(_, step)| step)
    }

    /// Returns `true` if a suspended step may be resumed to another: to one that runs only then,
    /// and needs no more than the suspended one.
    pub fn may_resume_to(&self, suspended: u32, other: u32) -> bool {
        let both = self.step(suspended).zip(self.step(other));
        both.is_some_and(|(suspended, other)| other.may_resume(suspended))
    }

    /// Returns `true` if this side agrees that webhooks are sent.
    pub fn sends_webhooks(&self) -> bool {
        self.plan.webhooks == Webhooks::Execute
    }
}

/// Returns `true` if some workflow has children of children beyond the most levels: taking away
/// what calls nothing, again and again, has to take everything away.
fn is_too_deep(workflows: &BTreeMap<String, Arc<WorkflowShape>>) -> bool {
    let calls = |shape: &WorkflowShape, left: &BTreeSet<&String>| {
        let mut children = shape.plan.steps.iter().flat_map(StepPlan::children);
        children.any(|child| left.contains(&child.workflow))
    };
    let mut left: BTreeSet<&String> = workflows.keys().collect();
    for _ in 0..=MAX_LEVELS {
        let leaves = workflows
            .iter()
            .filter(|(key, shape)| left.contains(key) && !calls(shape, &left));
        let leaves: Vec<&String> = leaves.map(|(key, _)| key).collect();
        leaves.into_iter().for_each(|key| {
            left.remove(key);
        });
        if left.is_empty() {
            return false;
        }
    }
    true
}

fn by_id_is_whole(shape: &WorkflowShape) -> bool {
    shape.by_id.len() == shape.plan.steps.len()
}

/// Returns `true` if taking away what waits for nothing, again and again, takes everything away.
fn can_be_ordered(shape: &WorkflowShape) -> bool {
    let mut waiting: Vec<usize> = shape
        .plan
        .steps
        .iter()
        .map(|step| step.needs.len())
        .collect();
    let mut free: Vec<u32> = (0u32..)
        .zip(&waiting)
        .filter_map(|(at, needs)| (*needs == 0).then_some(at))
        .collect();
    let mut taken = 0;
    while let Some(step) = free.pop() {
        taken += 1;
        for dependant in shape.dependants(step) {
            if let Some(left) = waiting.get_mut(*dependant as usize) {
                *left -= 1;
                if *left == 0 {
                    free.push(*dependant);
                }
            }
        }
    }
    taken == shape.plan.steps.len()
}

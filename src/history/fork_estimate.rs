//! The bound of what a fork would ask models again, from the frames that it shares and the definition.
//!
//! A fork keeps what has ended in its frames, and continues or begins again what has not. What runs then, and how
//! often, the definition says as far as nothing depends on replies that are not known yet. So the bound has a
//! lower end, for branches that complete, and an upper end unless something has none. Calls that are sent again
//! because a runtime or the engine was lost come on top.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::Frame;
use ktsu_ledger::event::SkipReason;
use ktsu_ledger::event::plan::{AgentPlan, StepPlan, StepWork};
use ktsu_projections::envelope::UsageView;
use ktsu_projections::life::task::TaskPhase;
use ktsu_projections::life::tasks::Tasks;
use ktsu_projections::run::{FoldError, RunState, Step, StepStatus, WorkflowShape};
use ktsu_projections::step_name::path_in;
use ktsu_workflow::expression::{Expression, Root};
use ktsu_workflow::simulate::is_intervention;
use serde::Serialize;
use utoipa::ToSchema;

/// The most steps that are looked at; children that are children of several steps count each time.
const MAX_STEPS: usize = 10_000;
/// The calls of a task besides its turns: a draft is put right once.
const REPAIRS: u64 = 1;

/// An estimate of a fork after a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkEstimate {
    /// The last frame that is shared.
    pub at_frame: u64,
    /// What the recorded run used after it: no bound, but what to expect of the same steps.
    pub recorded: ForkUsage,
    /// The bound if nothing is changed.
    pub unchanged: ForkBound,
    /// The bound if prompts alone are changed.
    pub prompts: ForkBound,
    /// The bound if params or fields of outputs are changed.
    pub changed: ForkBound,
}

/// The bound of an estimate that holds for a fork, by what it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForkBoundName {
    /// It changes nothing.
    Unchanged,
    /// It changes prompts alone.
    Prompts,
    /// It changes params or fields of outputs.
    Changed,
}

impl ForkEstimate {
    /// The bound of a name.
    pub fn bound(&self, name: ForkBoundName) -> &ForkBound {
        match name {
            ForkBoundName::Unchanged => &self.unchanged,
            ForkBoundName::Prompts => &self.prompts,
            ForkBoundName::Changed => &self.changed,
        }
    }
}

/// The steps of a bound that ask models, by the key of their agent's file.
pub type AskingSteps = BTreeMap<String, Vec<String>>;

/// What was used by some part of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkUsage {
    /// Model calls that no earlier reply answered.
    pub llm_calls: u64,
    /// Tokens sent and received.
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
}

/// The bound of what a fork asks again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkBound {
    /// The steps that run, again or for the first time, by path; children's too.
    pub steps: Vec<String>,
    /// Model calls that no earlier reply answers.
    pub llm_calls: AmountBound,
    /// Tokens sent and received.
    pub tokens: AmountBound,
    /// Millionths of a US dollar.
    pub cost_micro_usd: AmountBound,
    /// The parts that are not known.
    pub unknown: Vec<UnknownPart>,
}

/// The least and the most of an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AmountBound {
    /// The least, if the branch completes.
    pub at_least: u64,
    /// The most; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
}

impl Default for AmountBound {
    fn default() -> Self {
        Self {
            at_least: 0,
            at_most: Some(0),
        }
    }
}

impl AmountBound {
    /// Returns `true` if an amount lies within it; one of a branch that did not complete may be lower.
    pub fn admits(&self, amount: u64, is_complete: bool) -> bool {
        (!is_complete || amount >= self.at_least) && self.at_most.is_none_or(|most| amount <= most)
    }
}

/// Something that is not known of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnknownPart {
    /// The step; absent for the run as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What is not known.
    pub why: UnknownReason,
}

/// What is not known of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownReason {
    /// Whether the step runs: its condition decides.
    Runs,
    /// Whether agents skip their steps, and with them what follows.
    Skips,
    /// How many items its list has.
    Items,
    /// What commands of its agent run, or how often people ask for it again.
    Commands,
    /// How many turns its agent takes between its tools.
    Tools,
    /// How long prompts and replies are, and what they cost.
    Prices,
    /// What responders of the run's worlds ask.
    Responders,
    /// The definition has too many steps to look at.
    Size,
}

impl UnknownReason {
    /// In words, behind the name of a step.
    pub fn as_words(self) -> &'static str {
        match self {
            Self::Runs => "whether it runs",
            Self::Skips => "whether agents skip what follows them",
            Self::Items => "how many items it has",
            Self::Commands => "what its agent's commands run, and how often it is asked for again",
            Self::Tools => "how many turns its agent takes",
            Self::Prices => "tokens and cost of new calls",
            Self::Responders => "what responders ask",
            Self::Size => "the definition has too many steps",
        }
    }
}

impl ForkUsage {
    fn of(usage: &UsageView) -> Self {
        Self {
            llm_calls: usage.llm_calls.saturating_sub(usage.cached_calls),
            tokens: usage.tokens_in.saturating_add(usage.tokens_out),
            cost_micro_usd: usage.cost_micro_usd,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            llm_calls: self.llm_calls.saturating_sub(before.llm_calls),
            tokens: self.tokens.saturating_sub(before.tokens),
            cost_micro_usd: self.cost_micro_usd.saturating_sub(before.cost_micro_usd),
        }
    }
}

/// The usage of a run from a frame on; nothing if it has no frame before that.
///
/// # Errors
/// [`FoldError`].
pub fn used_since(recorded: &[Frame], position: u64) -> Result<ForkUsage, FoldError> {
    let used = |frames: &[Frame]| {
        let envelope = super::fold(frames)?.envelope("");
        let usage = envelope.map(|envelope| ForkUsage::of(&envelope.totals));
        Ok::<_, FoldError>(usage.unwrap_or_default())
    };
    let Some(before) = prefix(recorded, position) else {
        return Ok(ForkUsage::default());
    };
    Ok(used(recorded)?.since(used(before)?))
}

pub(super) fn prefix(recorded: &[Frame], position: u64) -> Option<&[Frame]> {
    let position = usize::try_from(position).ok().filter(|at| *at > 0)?;
    recorded.get(..position)
}

/// The estimate of a fork that shares so many frames; none if it shares none, or there are not so many.
///
/// # Errors
/// [`FoldError`].
pub fn fork_estimate(recorded: &[Frame], position: u64) -> Result<Option<ForkEstimate>, FoldError> {
    let estimate = estimate_by_agent(recorded, position)?;
    Ok(estimate.map(|(estimate, _)| estimate))
}

/// As [`fork_estimate`], with the steps that ask if something is changed.
///
/// # Errors
/// [`FoldError`].
pub fn estimate_by_agent(
    recorded: &[Frame],
    position: u64,
) -> Result<Option<(ForkEstimate, AskingSteps)>, FoldError> {
    let Some(shared) = prefix(recorded, position) else {
        return Ok(None);
    };
    let state = RunState::fold(shared)?;
    // What people did to the recorded run later, a fork does not repeat.
    let rest = recorded.get(shared.len()..).unwrap_or_default();
    let is_as_recorded = !rest.iter().any(|frame| is_intervention(&frame.event));
    let whole = match is_as_recorded {
        true => Some(RunState::fold(recorded)?),
        false => None,
    };
    let bound = |name: ForkBoundName| {
        let changes_values = name == ForkBoundName::Changed;
        let mut walk = EstimateWalk {
            state: &state,
            whole: whole.as_ref().filter(|_| !changes_values),
            changes_values,
            restarts: name != ForkBoundName::Unchanged,
            bound: ForkBound::default(),
            asking: AskingSteps::new(),
            may_skip: false,
            left: MAX_STEPS,
        };
        walk.run();
        (walk.bound, walk.asking)
    };
    let (changed, asking) = bound(ForkBoundName::Changed);
    let estimate = ForkEstimate {
        at_frame: position.saturating_sub(1),
        recorded: used_since(recorded, position)?,
        unchanged: bound(ForkBoundName::Unchanged).0,
        prompts: bound(ForkBoundName::Prompts).0,
        changed,
    };
    Ok(Some((estimate, asking)))
}

/// A workflow of the run or of a child, at the fork.
struct WalkedScope {
    path: String,
    shape: Arc<WorkflowShape>,
    /// True if nothing of it is kept.
    is_fresh: bool,
    /// True if its params are those of the recorded run.
    is_given: bool,
    /// True if it runs for sure.
    runs: bool,
}

/// What is known of a step, before those that need it are looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct StepFacts {
    /// Its output is known: it is kept, or follows from what is kept.
    is_known: bool,
    /// It is not skipped by its agent, or because of one, so that what needs it is not skipped for that.
    lets_run: bool,
}

/// What is known of the needs of a step.
#[derive(Debug, Clone, Copy)]
struct StepNeeds {
    /// All their outputs.
    are_known: bool,
    /// That none of them has it skipped.
    let_run: bool,
    /// The list of its items, if it is a fan-out.
    list_is_known: bool,
}

/// Returns `true` if a fan-out takes its list from values that are those of the recorded run.
fn list_is_known(scope: &WalkedScope, step: &StepPlan, facts: &[Option<StepFacts>]) -> bool {
    let StepWork::Agent(plan) = &step.work else {
        return false;
    };
    let list = plan.for_each.as_ref();
    let list = list.and_then(|list| Expression::parse(&list.from).ok());
    let is_known = |root: &Root| match root {
        Root::Params | Root::Env(_) => scope.is_given,
        Root::Step(id) => {
            let at = scope.shape.position(id);
            let fact = at.and_then(|at| *facts.get(at as usize)?);
            fact.is_some_and(|fact| fact.is_known)
        }
        Root::Item | Root::ItemIndex | Root::Resume | Root::Name(_) => false,
    };
    list.is_some_and(|list| list.roots().iter().all(is_known))
}

struct EstimateWalk<'r> {
    state: &'r RunState,
    /// The recorded run to its end, where the fork repeats what does not depend on replies.
    whole: Option<&'r RunState>,
    /// True if other values than the recorded ones may come of what is kept.
    changes_values: bool,
    /// True if what has begun begins again.
    restarts: bool,
    bound: ForkBound,
    asking: AskingSteps,
    /// True if an agent decides whether what follows it runs.
    may_skip: bool,
    left: usize,
}

/// Returns `true` unless an ended step has those skipped that need it.
fn lets_run(step: &Step) -> bool {
    let skips = [SkipReason::AgentSkipped, SkipReason::DependencySkipped];
    step.skipped.as_ref().is_none_or(|why| !skips.contains(why))
}

impl EstimateWalk<'_> {
    fn run(&mut self) {
        if self.state.responding().is_some() {
            self.unknown(None, UnknownReason::Responders);
            self.bound.llm_calls.at_most = None;
        }
        let is_over = self.state.status().is_terminal() || self.state.failing().is_some();
        let mut open = Vec::new();
        if !is_over {
            open.push(WalkedScope {
                path: String::new(),
                shape: Arc::clone(self.state.outline().root()),
                is_fresh: false,
                is_given: true,
                runs: true,
            });
        }
        while let Some(scope) = open.pop() {
            self.scope(&scope, &mut open);
        }
        if self.may_skip {
            self.unknown(None, UnknownReason::Skips);
        }
        if self.bound.llm_calls.at_most != Some(0) {
            self.unknown(None, UnknownReason::Prices);
            self.bound.tokens.at_most = None;
            self.bound.cost_micro_usd.at_most = None;
        }
    }

    fn scope(&mut self, scope: &WalkedScope, open: &mut Vec<WalkedScope>) {
        let steps = &scope.shape.plan.steps;
        if self.left < steps.len() {
            self.unknown(None, UnknownReason::Size);
            self.bound.llm_calls.at_most = None;
            return;
        }
        self.left -= steps.len();
        let mut facts: Vec<Option<StepFacts>> = vec![None; steps.len()];
        // Steps in the order of what they need, which the outline shows to have no cycle.
        let mut todo: Vec<usize> = (0..steps.len()).rev().collect();
        while let Some(at) = todo.pop() {
            let Some(step) = steps.get(at).filter(|_| facts.get(at) == Some(&None)) else {
                continue;
            };
            let needs = step.needs.iter().map(|need| *need as usize);
            let is_open = |need: &usize| facts.get(*need) == Some(&None);
            let missing: Vec<usize> = needs.clone().filter(is_open).collect();
            if !missing.is_empty() {
                todo.push(at);
                todo.extend(missing);
                continue;
            }
            let needed: Vec<StepFacts> = needs.filter_map(|need| *facts.get(need)?).collect();
            let needs = StepNeeds {
                are_known: needed.iter().all(|one| one.is_known),
                let_run: needed.iter().all(|one| one.lets_run),
                list_is_known: list_is_known(scope, step, &facts),
            };
            let fact = self.step(scope, step, needs, open);
            if let Some(place) = facts.get_mut(at) {
                *place = Some(fact);
            }
        }
    }

    /// A step whose needs were looked at.
    fn step(
        &mut self,
        scope: &WalkedScope,
        step: &StepPlan,
        needs: StepNeeds,
        open: &mut Vec<WalkedScope>,
    ) -> StepFacts {
        let at = self.state.step_at(&scope.path, &step.id);
        let held = at.filter(|_| !scope.is_fresh);
        let held = held.and_then(|at| self.state.step(at));
        let status = held.map_or(StepStatus::Pending, |step| step.status);
        if !matches!(status, StepStatus::Pending | StepStatus::Running) {
            return StepFacts {
                is_known: true,
                lets_run: held.is_some_and(lets_run),
            };
        }
        // One that runs only in place of another is among the commands of that one.
        if step.is_on_resume() {
            return StepFacts::default();
        }
        let is_repeated = needs.are_known && scope.is_given;
        let later = self.whole;
        let later = later.and_then(|whole| whole.step(whole.step_at(&scope.path, &step.id)?));
        let recorded = later.filter(|_| is_repeated);
        let runs = match (status, recorded.map(|step| step.status)) {
            (StepStatus::Running, _) if !self.changes_values => Some(true),
            (_, Some(StepStatus::Skipped)) => {
                // One whose agent asked to be skipped ran.
                Some(recorded.is_some_and(|step| step.tasks.is_some()))
            }
            (_, Some(StepStatus::Complete)) => Some(true),
            _ if step.condition.is_none() && needs.let_run => Some(true),
            _ => None,
        };
        if runs == Some(false) {
            return StepFacts {
                is_known: true,
                lets_run: recorded.is_some_and(lets_run),
            };
        }
        let path = path_in(&scope.path, &step.id);
        self.bound.steps.push(path.clone());
        match (runs, &step.condition) {
            (None, Some(_)) => self.unknown(Some(&path), UnknownReason::Runs),
            (None, None) => self.may_skip = true,
            (Some(_), _) => {}
        }
        let runs = scope.runs && runs == Some(true);
        // What has begun begins again if something is changed.
        let is_fresh = scope.is_fresh || status == StepStatus::Pending || self.restarts;
        match &step.work {
            StepWork::Agent(plan) => {
                let at_fork = held
                    .filter(|_| !is_fresh)
                    .and_then(|step| step.tasks.as_deref());
                let recorded = later.filter(|_| needs.list_is_known);
                let recorded = recorded.and_then(|step| step.tasks.as_deref());
                self.agent(&path, plan, at_fork, recorded, runs);
            }
            StepWork::Workflow(child) => {
                if let Some(shape) = self.state.outline().workflow(&child.workflow) {
                    open.push(WalkedScope {
                        path: path.clone(),
                        shape: Arc::clone(shape),
                        is_fresh,
                        is_given: is_repeated && !self.changes_values,
                        runs,
                    });
                }
            }
            StepWork::Transform(_) | StepWork::Webhook(_) => {}
        }
        let is_pure = matches!(step.work, StepWork::Transform(_));
        let is_agent = matches!(step.work, StepWork::Agent(_));
        StepFacts {
            is_known: is_pure && is_repeated && self.whole.is_some() && runs,
            lets_run: !is_agent && (runs || needs.let_run),
        }
    }

    /// The calls of an agent step, from its tasks at the fork, or else from those that were recorded later.
    fn agent(
        &mut self,
        path: &str,
        plan: &AgentPlan,
        at_fork: Option<&Tasks>,
        recorded: Option<&Tasks>,
        runs: bool,
    ) {
        let Some(agent) = self.state.outline().agent(&plan.file) else {
            self.bound.llm_calls.at_most = None;
            return;
        };
        let asking = self.asking.entry(plan.file.clone()).or_default();
        asking.push(path.to_owned());
        let each = u64::from(agent.max_turns) + REPAIRS + u64::from(agent.reflects);
        let (least, most) = match (&plan.for_each, at_fork, recorded) {
            (None, Some(tasks), _) => unfinished(tasks, 1),
            (None, None, _) => (1, Some(1)),
            (Some(_), Some(tasks), _) if tasks.items.is_some() => {
                unfinished(tasks, tasks.items.unwrap_or_default().into())
            }
            (Some(_), None, Some(tasks)) if tasks.items.is_some() => {
                let items = u64::from(tasks.items.unwrap_or_default());
                (items, Some(items))
            }
            (Some(fan_out), ..) => {
                self.unknown(Some(path), UnknownReason::Items);
                (0, fan_out.max_items.map(u64::from))
            }
        };
        let mut at_most = most.map(|most| most.saturating_mul(each));
        let asks = agent.review.is_some() || agent.suspend.is_some();
        if asks || !plan.may_invoke.is_empty() {
            self.unknown(Some(path), UnknownReason::Commands);
            at_most = None;
        }
        if !agent.servers.is_empty() {
            self.unknown(Some(path), UnknownReason::Tools);
        }
        let calls = &mut self.bound.llm_calls;
        // An earlier reply may answer what is cached.
        if runs && !plan.cache {
            calls.at_least = calls.at_least.saturating_add(least);
        }
        let both = calls.at_most.zip(at_most);
        calls.at_most = both.map(|(one, other)| one.saturating_add(other));
    }

    fn unknown(&mut self, step: Option<&str>, why: UnknownReason) {
        self.bound.unknown.push(UnknownPart {
            step: step.map(str::to_owned),
            why,
        });
    }
}

/// The tasks of a step that have not begun, and those that have not ended, of so many.
fn unfinished(tasks: &Tasks, of: u64) -> (u64, Option<u64>) {
    let begun = tasks.list.iter().filter(|task| task.attempt > 0).count() as u64;
    let ended = tasks
        .list
        .iter()
        .filter(|task| has_ended(&task.phase))
        .count() as u64;
    (of.saturating_sub(begun), Some(of.saturating_sub(ended)))
}

fn has_ended(phase: &TaskPhase) -> bool {
    matches!(phase, TaskPhase::Finished { .. } | TaskPhase::Settled)
}

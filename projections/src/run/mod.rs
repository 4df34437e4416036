//! The state of a run: what the engine decides from.
//!
//! ```text
//! RunState::begin(run.created) ──apply(frame)*──▶ state ──▶ todo(): what is not yet decided
//! ```
//!
//! [`RunState::check`] checks a new frame in constant time, [`RunState::apply`] applies it. Both
//! use the same tables (`transition`), so whatever is refused live is refused on replay. The set of
//! things to decide is updated with each frame, so reading it takes time in proportion to its size.

mod agents;
mod announced;
mod apply;
mod failure;
mod header;
mod interventions;
mod invoking;
mod notice;
pub mod notices;
pub(crate) mod outline;
mod pins;
pub mod reply_cache;
mod responder_tasks;
pub mod reviewing;
mod sendings;
mod spend;
pub mod steer;
pub mod suspending;
mod transition;
pub mod waits;
mod worlds;

pub use crate::life::key::{StepKey, TaskId};
pub use crate::life::model_call::{CallSize, ModelCall};
pub use crate::life::output::StoredOutput;
pub use crate::life::overlays::OverlayValue;
pub use crate::life::recorded_results::{RecomputeResults, TaskResults};
pub use crate::life::reports::AcceptedReport;
pub use crate::life::scope::{RunStatus, Scope, ScopeEnd};
pub use crate::life::step::{Effective, Phase, Step, StepStatus};
pub use crate::life::task::{AgentTask, Hint, ItemEnd, Reflection, TaskPhase};
pub use crate::life::tasks::{ItemCounts, TaskAction, Tasks};
pub use crate::pointer::escape;
pub use announced::AnnouncedEffect;
pub use failure::{FailedItem, RunFailure};
pub use header::RunHeader;
pub use interventions::ForkPoint;
pub use outline::{AgentShape, Outline, PlanError, WorkflowShape};
pub use pins::Pins;
pub use spend::{Affordability, GroupPrice, GroupPrices, RESERVING_RULES, Spend};
pub use transition::TransitionError;
pub use worlds::BRANCHES_OPEN_RULES;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ktsu_ledger::event::{Reference, Sameness, StepInput, is_address};
use ktsu_ledger::frame::Link;
use ktsu_ledger::{CanonicalJson, Event, Frame, Hash, StreamId, Timestamp};
use serde_json::Value;

use crate::pointer::unescape;
use responder_tasks::ResponderTasks;

/// A thing to decide, in the order in which things are decided: effects before pure steps, each in
/// file order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Todo {
    /// Start the run.
    Start,
    /// An effect is to be announced.
    Effect(StepKey),
    /// Anything else about a step.
    Step(StepKey),
    /// Every step of a scope is settled.
    End {
        /// Position in [`RunState::scopes`].
        scope: u32,
    },
}

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct RunState {
    stream: StreamId,
    outline: Arc<Outline>,
    created: RunHeader,
    next_seq: u64,
    head: Hash,
    at: Timestamp,
    scopes: Vec<Scope>,
    /// Inline children by path.
    by_path: HashMap<String, u32>,
    todo: BTreeSet<Todo>,
    failing: Option<RunFailure>,
    /// The step whose output a frame holds, by frame.
    produced: BTreeMap<u64, StepKey>,
    /// Steps that wait to be sent again.
    retries: BTreeSet<StepKey>,
    spend: Spend,
    /// The replies that identical requests may repeat.
    replies: reply_cache::ReplyCache,
    /// Number of tasks that wait for people.
    suspended: usize,
    /// The commands of outcomes that run workflows, by the frame that has them.
    commanded: BTreeMap<u64, Arc<Value>>,
    /// Effects that have not ended, by the frame that announced them.
    announced: BTreeMap<u64, AnnouncedEffect>,
    /// The notices to people about calls that wait for them, and the status of each.
    notices: BTreeMap<notices::Notice, notices::NoticeStatus>,
    /// The frames that set params and values of the environment, in order.
    origins: Vec<interventions::ParamsSource>,
    /// Values that people set, by frame.
    overlays: BTreeMap<u64, CanonicalJson>,
    /// True if a person has to say that it continues.
    parked: bool,
    /// The word by which a person paused the run.
    paused: Option<Box<steer::SteeringRecord>>,
    /// The kind of the end that a person gives it, and the word.
    stopped: Option<Box<(steer::StopKind, steer::SteeringRecord)>>,
    fork: Option<ForkPoint>,
    /// The effects and calls that are held back.
    suppression: interventions::Suppression,
    /// Steps of the run that are to begin again, since which frame.
    resetting: BTreeSet<u32>,
    resumed: u64,
    /// The time from which the run's time counts (decision F3).
    deadline_from: Timestamp,
    compared: Option<Sameness>,
    /// If it loads worlds.
    responding: Option<Box<crate::world::Responding>>,
    /// The questions that its responders ask and the workflows that they run, once begun.
    responder_tasks: ResponderTasks,
    /// The last frame that says that it ends unless something is due.
    idle: Option<u64>,
}

/// A fold that takes the frames of a run as they are decided: its state, and what is folded beside
/// it.
pub trait RunFold {
    /// The state, from which the next frames are decided.
    fn state(&self) -> &RunState;

    /// Takes a frame, after checking it.
    ///
    /// # Errors
    /// [`TransitionError`]; nothing is changed then.
    fn apply(&mut self, frame: &Frame) -> Result<(), TransitionError>;
}

impl RunFold for RunState {
    fn state(&self) -> &RunState {
        self
    }

    fn apply(&mut self, frame: &Frame) -> Result<(), TransitionError> {
        RunState::apply(self, frame)
    }
}

impl RunState {
    /// The state after `run.created`, or after a `branch.created` that shares nothing.
    ///
    /// # Errors
    /// [`TransitionError`] if the frame is not the first frame of a run.
    pub fn begin(frame: &Frame, outline: Arc<Outline>) -> Result<Self, TransitionError> {
        if let Some(branch) = frame.event.branched() {
            return Self::begin_branch(frame, branch, outline);
        }
        let created = frame.event.created().ok_or(TransitionError::NotARun)?;
        if frame.seq != 0 || !frame.scope.is_empty() || frame.prev != Hash::ZERO {
            return Err(TransitionError::NotARun);
        }
        let pins = Pins::of(created);
        let recomputes = matches!(frame.event, Event::Recompute(_));
        let results = recomputes.then(|| Box::new(RecomputeResults::of(created)));
        let created = RunHeader {
            at: frame.at,
            params: created.params.clone(),
            env: created.env.clone(),
            limits: created.limits,
            rules: created.rules,
            principal: created.principal.clone(),
            digest: created.digest.clone(),
            idempotency_key: created.idempotency_key.clone(),
            idempotency_digest: created.idempotency_digest.clone(),
            of: created.of.clone(),
            effects: created.effects(),
            no_cache: created.no_cache,
            pins,
            references: created.references.clone(),
            results,
        };
        Ok(Self::pending(frame, outline, created))
    }

    /// A run that has not begun, after its first frame.
    fn pending(frame: &Frame, outline: Arc<Outline>, created: RunHeader) -> Self {
        let shape = outline.root().clone();
        let origin = interventions::ParamsSource {
            frame: frame.seq,
            params: Some(created.params.clone()),
            env: Some(created.env.clone()),
        };
        Self {
            stream: frame.stream.clone(),
            suppression: interventions::Suppression::of_run(created.effects),
            created,
            next_seq: 1,
            head: frame.hash,
            at: frame.at,
            by_path: HashMap::new(),
            scopes: vec![Scope::pending(String::new(), None, shape, true)],
            todo: BTreeSet::from([Todo::Start]),
            failing: None,
            produced: BTreeMap::new(),
            retries: BTreeSet::new(),
            spend: Spend::default(),
            replies: reply_cache::ReplyCache::default(),
            suspended: 0,
            commanded: BTreeMap::new(),
            announced: BTreeMap::new(),
            notices: BTreeMap::new(),
            origins: vec![origin],
            overlays: BTreeMap::new(),
            parked: false,
            paused: None,
            stopped: None,
            fork: None,
            resetting: BTreeSet::new(),
            resumed: 0,
            deadline_from: frame.at,
            compared: None,
            responding: Self::unseen_worlds(&outline, frame),
            responder_tasks: ResponderTasks::default(),
            idle: None,
            outline,
        }
    }

    /// Folds a whole recorded run.
    ///
    /// # Errors
    /// [`FoldError`] names the first frame that does not follow from those before it.
    pub fn fold<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Result<Self, FoldError> {
        let mut frames = frames.into_iter();
        let first = frames.next().ok_or(FoldError::Empty)?;
        let refused = |refusal| FoldError::Refused(first.seq, refusal);
        let outline =
            Outline::from_first_frame(first)?.ok_or_else(|| refused(TransitionError::NotARun))?;
        let mut state = Self::begin(first, outline).map_err(refused)?;
        for frame in frames {
            state
                .apply(frame)
                .map_err(|refusal| FoldError::Refused(frame.seq, refusal))?;
        }
        Ok(state)
    }

    /// The stream.
    pub fn stream(&self) -> &StreamId {
        &self.stream
    }

    /// The definition's shape.
    pub fn outline(&self) -> &Arc<Outline> {
        &self.outline
    }

    /// The content of `run.created`.
    pub fn created(&self) -> &RunHeader {
        &self.created
    }

    /// The number of the decision rules that hold from here on: that of `run.created`, or of the
    /// latest `branch.created`.
    pub fn rules(&self) -> u32 {
        self.created.rules
    }

    /// The status of the run.
    pub fn status(&self) -> RunStatus {
        let own = self.scopes.first();
        let own = own.map_or(RunStatus::Pending, |scope| scope.status);
        match self.parked || self.paused.is_some() || self.waits_for_people() {
            true if !own.is_terminal() => RunStatus::Waiting,
            _ => own,
        }
    }

    /// The result of a recompute, once it is compared with its run.
    pub fn compared(&self) -> Option<Sameness> {
        self.compared
    }

    /// Returns `true` if nothing more can happen: it has ended, and a recompute of a run is
    /// compared with it.
    pub fn is_over(&self) -> bool {
        self.status().is_terminal() && (self.created.of.is_none() || self.compared.is_some())
    }

    /// The place of the next frame.
    pub fn link(&self) -> Link {
        Link {
            stream: self.stream.clone(),
            seq: self.next_seq,
            prev: self.head,
        }
    }

    /// The number of the next frame.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The moment of the last frame; no later frame may be before it.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// The run itself and every inline child that began, in the order they began.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// One of them.
    pub fn scope(&self, scope: u32) -> Option<&Scope> {
        self.scopes.get(scope as usize)
    }

    /// The scope of a step.
    pub fn scope_of(&self, at: StepKey) -> Option<&Scope> {
        self.scope(at.scope())
    }

    /// The position of a scope by its path.
    pub fn scope_at(&self, path: &str) -> Option<u32> {
        if path.is_empty() {
            return Some(0);
        }
        self.by_path.get(path).copied()
    }

    /// A step, or what a responder asked or ran, as if it were one.
    pub fn step(&self, at: StepKey) -> Option<&Step> {
        match at {
            StepKey::Of { scope, step } => self.scope(scope)?.steps.get(step as usize),
            StepKey::Responder { .. } => Some(&self.responder_task(at)?.step),
            StepKey::Gone => None,
        }
    }

    /// A step by the path of its scope and its id; or what a responder asked or ran, by its address.
    pub fn step_at(&self, path: &str, id: &str) -> Option<StepKey> {
        if path.is_empty() && is_address(id) {
            return self.responder_task_at(id);
        }
        let scope = self.scope_at(path)?;
        Some(StepKey::of(scope, self.scope(scope)?.shape.position(id)?))
    }

    /// The first thing to decide, if there is any.
    pub fn todo(&self) -> Option<Todo> {
        self.todo.first().copied()
    }

    /// The first thing to decide but for the end of the run itself, if there is any.
    pub fn todo_before_end(&self) -> Option<Todo> {
        let mut todo = self.todo.iter().copied();
        todo.find(|todo| *todo != Todo::End { scope: 0 })
    }

    /// The reason why the run is failing, if it is.
    pub fn failing(&self) -> Option<&RunFailure> {
        self.failing.as_ref()
    }

    /// The value of a step as later steps see it: the only way to it.
    pub fn effective(&self, at: StepKey) -> Effective<'_> {
        let found = self.step(at);
        found.map_or(Effective::Absent, Step::effective)
    }

    /// The time from which the run's time counts.
    pub fn deadline_from(&self) -> Timestamp {
        self.deadline_from
    }

    /// The webhooks that failed and wait to be sent again.
    pub fn retries(&self) -> impl Iterator<Item = StepKey> {
        self.retries.iter().copied()
    }

    /// The params of a scope, as a tree.
    pub fn params(&self, scope: u32) -> Value {
        if self.scope(scope).is_none_or(|scope| scope.parent.is_none()) {
            return self.created.params.to_value();
        }
        let mut params = Value::Object(serde_json::Map::new());
        let input = self.given(scope).map(|(input, _)| input);
        // A param comes before the places inside it: keys are in order.
        for (path, given) in input.into_iter().flatten() {
            let Some(path) = path.strip_prefix("/params") else {
                continue;
            };
            let value = match given {
                StepInput::Ref(reference) => self.value_at(reference),
                StepInput::Value { value, .. } => Some(value.to_value()),
                StepInput::Template(template) => Some(Value::from(template.as_str())),
            };
            let value = value.unwrap_or(Value::Null);
            match (params.pointer_mut(path), path.rfind('/')) {
                (Some(place), _) => *place = value,
                (None, Some(0)) => params[unescape(path.trim_start_matches('/'))] = value,
                (None, _) => {}
            }
        }
        params
    }

    /// The place of a param of a scope in the stream: through as many children as it was handed
    /// down, to the frame that first held it.
    pub fn locate_param(&self, scope: u32, pointer: &str) -> Option<Reference> {
        if self.scope(scope)?.parent.is_none() {
            return Some(Reference {
                frame: self.params_frame(),
                path: format!("/params{pointer}"),
            });
        }
        let (input, started) = self.given(scope)?;
        let wanted = format!("/params{pointer}");
        let within = |outer: &str, inner: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // What has a place of its own inside what is wanted is not where that is.
        if input
            .keys()
            .any(|key| *key != wanted && within(&wanted, key))
        {
            return None;
        }
        let holders = input.iter().filter(|(key, _)| within(key, &wanted));
        let (key, given) = holders.max_by_key(|(key, _)| key.len())?;
        let rest = wanted.strip_prefix(key.as_str())?;
        match given {
            StepInput::Ref(reference) => Some(Reference {
                frame: reference.frame,
                path: format!("{}{rest}", reference.path),
            }),
            StepInput::Value { .. } => Some(Reference {
                frame: started?,
                path: format!("/input/{}/value/value{rest}", escape(key)),
            }),
            StepInput::Template(_) => None,
        }
    }

    /// The value a reference points to, for the places this state keeps: params, values of the
    /// environment, outputs, inputs of children.
    pub fn value_at(&self, reference: &Reference) -> Option<Value> {
        let said = self.supplied_value(reference);
        if let Some(said) = said.or_else(|| self.commanded_value(reference)) {
            return Some(said);
        }
        if let Some(held) = self.produced(reference.frame) {
            let rest = reference.path.strip_prefix(held.location.path.as_str());
            if let Some(rest) = rest.filter(|_| held.location.frame == reference.frame) {
                return held.json.pointer(rest);
            }
        }
        let (key, rest) = reference
            .path
            .strip_prefix("/input/")?
            .split_once("/value/value")?;
        let key = unescape(key);
        let steps = self.scopes.iter().flat_map(|scope| &scope.steps);
        let runs = self.responder_tasks.iter().map(|(_, task)| &task.step);
        let mut steps = steps.chain(runs);
        let held = steps.find(|step| step.started == Some(reference.frame));
        let input = held.map(|step| &step.input).or_else(|| {
            let mut scopes = self.scopes.iter();
            let begun = scopes.find(|scope| scope.started == Some(reference.frame))?;
            Some(&begun.invoked.as_ref()?.input)
        })?;
        match input.get(&key)? {
            StepInput::Value { value, .. } => value.pointer(rest),
            StepInput::Ref(_) | StepInput::Template(_) => None,
        }
    }

    /// The output that a frame holds, or that stands for it.
    fn produced(&self, frame: u64) -> Option<&StoredOutput> {
        self.step(*self.produced.get(&frame)?)?.output.as_ref()
    }
}

/// The reason why a recorded run cannot be folded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// There are no frames.
    #[error("the stream is empty")]
    Empty,
    /// The definition cannot be read.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A frame does not follow from those before it.
    #[error("frame {0}: {1}")]
    Refused(u64, TransitionError),
}

#[cfg(test)]
mod tests;

//! Checks people's interventions in recorded runs: overlays, resumptions, forks (decisions F1, F2).

mod error;
mod outputs;

use std::sync::Arc;

use ktsu_ledger::event::plan::StepPlan;
use ktsu_ledger::event::{
    BranchCreated, Effects, OverlaySet, PersonEvent, Principal, RunEvent, RunResumed, StepEvent,
    is_address,
};
use ktsu_ledger::{Actor, CanonicalJson, Cause, Draft, Event, Frame, StreamId, Timestamp};
use ktsu_projections::reviews::review_id;
use ktsu_projections::run::{RunState, RunStatus, StepKey, StepStatus};
use ktsu_projections::world::Responding;
use ktsu_projections::world::steps::{is_step_object, step_object};
use serde_json::Value;

pub use error::InterventionError;
pub(super) use outputs::check_replaced;
pub use outputs::overlay_conflicts;

use super::ENGINE;
use super::fields;
use super::fork_place;
use super::prompt_edits::PromptEdits;
use crate::definition::{CompiledWorkflow, Definition};
use crate::failure_text::violations;
use crate::next::Memo;
use crate::params;
use crate::rules::{self, DecisionRules};
use crate::turn::{self, Turn};

/// A value a person sets for one field of a step's output.
#[derive(Debug, Clone)]
pub struct OverlayCommand {
    /// The scope's path; empty for the run itself.
    pub scope: String,
    /// The step.
    pub step: String,
    /// The top-level field.
    pub field: String,
    /// The value.
    pub value: Value,
    /// The reason.
    pub reason: String,
    /// The person who asks for it.
    pub by: Principal,
}

/// A request to fork a run.
#[derive(Debug, Clone)]
pub struct ForkRequest {
    /// The place of the fork.
    pub point: ForkPosition,
    /// The person who asks for it.
    pub by: Principal,
    /// The reason.
    pub reason: Option<String>,
    /// The treatment of calls to the world.
    pub effects: Effects,
    /// The definition from there on.
    pub definition: Option<Arc<Definition>>,
    /// Prompts of the recorded definition that are edited.
    pub prompts: PromptEdits,
    /// Params that change: the path of members, and the value.
    pub params: Vec<(Vec<String>, Value)>,
    /// Fields of outputs that change.
    pub overlays: Vec<OverlayCommand>,
    /// True if the branch continues at once.
    pub go: bool,
}

impl ForkRequest {
    /// Returns `true` if the branch does something else than the run did.
    pub fn changes(&self) -> bool {
        let has_definition = self.definition.is_some() || !self.prompts.is_empty();
        has_definition || !self.params.is_empty() || !self.overlays.is_empty()
    }
}

/// A fork at a known position.
#[derive(Debug, Clone)]
pub struct ForkCommand {
    /// `branch_…`.
    pub branch_id: String,
    /// The run that is forked.
    pub parent_run_id: String,
    /// The number of frames that are shared.
    pub position: u64,
    /// The request.
    pub request: ForkRequest,
}

/// A branch that can be appended.
#[derive(Debug)]
pub struct ForkedBranch {
    /// Its state after the turn.
    pub state: RunState,
    /// Its own frames.
    pub turn: Turn,
    /// The definition with which it continues.
    pub definition: Arc<Definition>,
}

/// Checks an overlay: the effective output passes the air-lock of its step, or nothing happens.
///
/// # Errors
/// [`InterventionError`].
pub fn overlay(
    definition: &Definition,
    state: &RunState,
    said: OverlayCommand,
) -> Result<Draft, InterventionError> {
    reject_recompute(state.stream())?;
    let rules = DecisionRules::from_recorded(state.rules())?;
    let no_step = || InterventionError::NoStep(said.step.clone());
    let scope = state.scope_at(&said.scope).ok_or_else(no_step)?;
    let held = state.scope(scope).ok_or_else(no_step)?;
    let at = held.shape.position(&said.step).ok_or_else(no_step)?;
    let step = held.steps.get(at as usize).ok_or_else(no_step)?;
    let asked = state.pending_reviews().into_iter();
    let mut reviews = asked.filter(|asked| asked.step == StepKey::of(scope, at));
    if let Some(asked) = reviews.next() {
        let review = review_id(state.stream(), asked.review.request);
        return Err(InterventionError::UnderReview {
            step: said.step,
            review,
        });
    }
    let output = step.effective.as_ref().or(step.output.as_ref());
    let (StepStatus::Complete, Some(output), Some(ended)) = (step.status, output, step.ended)
    else {
        return Err(InterventionError::NotComplete {
            status: step.status.as_str(),
            step: said.step,
        });
    };
    let Value::Object(members) = output.json.to_value() else {
        return Err(InterventionError::NotAnObject(said.step));
    };
    let workflow = definition.workflow(&held.shape.key).ok_or_else(no_step)?;
    let mut whole = Value::Object(members);
    let values = [(&said.field, &said.value)];
    let schemas =
        super::fields::StepSchemas::of(state, StepKey::of(scope, at)).ok_or_else(no_step)?;
    check_replaced(definition, (workflow, schemas), &mut whole, values, rules)?;
    Ok(Draft {
        scope: said.scope,
        actor: Actor::Principal(said.by.id.clone()),
        cause: vec![Cause::Here(ended)],
        event: Event::Person(PersonEvent::OverlaySet(OverlaySet {
            by: said.by,
            field: said.field,
            reason: said.reason,
            step: said.step,
            value: CanonicalJson::from_value(&said.value)
                .map_err(|_| InterventionError::TooDeep)?,
        })),
    })
}

/// The frames of an overlay: it, and the resumption of a run that is complete and whose responders react
/// to it, as to what is posted.
///
/// # Errors
/// [`InterventionError`].
pub fn overlay_of_run(
    definition: &Definition,
    state: &RunState,
    said: OverlayCommand,
) -> Result<Vec<Draft>, InterventionError> {
    let (by, reason) = (said.by.clone(), said.reason.clone());
    let draft = overlay(definition, state, said)?;
    let reacts = match &draft.event {
        Event::Person(PersonEvent::OverlaySet(set)) if draft.scope.is_empty() => {
            state.reacts_to_overlay(set).then(|| step_object(&set.step))
        }
        _ => None,
    };
    let resumed = reacts.map(|object| Draft {
        scope: String::new(),
        actor: draft.actor.clone(),
        cause: vec![Cause::Here(state.next_seq())],
        event: Event::Run(RunEvent::Resumed(RunResumed {
            by,
            from: Some(object),
            paused_ms: None,
            reason: Some(reason),
        })),
    });
    Ok(std::iter::once(draft).chain(resumed).collect())
}

/// Checks a resumption at a moment. Without `from`, a waiting branch or a paused run continues, a branch of
/// all frames of a complete run accepts posts from then on, and any other run that has ended repeats what
/// failed for its responders.
///
/// # Errors
/// [`InterventionError`].
pub fn resume(
    state: &RunState,
    from: Option<String>,
    by: Principal,
    reason: Option<String>,
    now: Timestamp,
) -> Result<Draft, InterventionError> {
    reject_recompute(state.stream())?;
    DecisionRules::from_recorded(state.rules())?;
    let ended = state.status().is_terminal();
    if let Some(exhausted) = state.responding().and_then(Responding::exhausted) {
        return Err(InterventionError::UsedUp(exhausted.reasons.join(", ")));
    }
    let paused = state.paused();
    if paused.is_some() && from.is_some() {
        return Err(InterventionError::Paused);
    }
    if !ended && !state.is_parked() && paused.is_none() {
        return Err(InterventionError::NotResumable(state.status().as_str()));
    }
    let from = match from {
        None if state.opens_when_resumed() => match state.to_ask_again(None) {
            Some(address) => Some(address.to_owned()),
            None => state.unseen_overlay().map(step_object),
        },
        None if ended => Some(task_to_begin_again(state, None)?),
        Some(name)
            if ended && state.to_ask_again(Some(&name)).is_some() && !is_step(state, &name) =>
        {
            Some(task_to_begin_again(state, Some(&name))?)
        }
        from => from,
    };
    match &from {
        None => {}
        Some(address) if is_address(address) && state.to_ask_again(Some(address)).is_some() => {}
        Some(object) if is_step_object(object) && state.has_unseen_triggers() => {}
        Some(step) => check_restartable(state, step)?,
    }
    Ok(Draft {
        scope: String::new(),
        actor: Actor::Principal(by.id.clone()),
        cause: vec![Cause::Here(state.next_seq().saturating_sub(1))],
        event: Event::Run(RunEvent::Resumed(RunResumed {
            by,
            from,
            paused_ms: paused.map(|pause| now.millis_since(pause.at)),
            reason,
        })),
    })
}

fn is_step(state: &RunState, name: &str) -> bool {
    let root = state.scope(0);
    root.is_some_and(|root| root.shape.position(name).is_some())
}

/// The address of what a responder asked or ran and begins again; of one that is named, if one is. All
/// that came to nothing begins again with it.
fn task_to_begin_again(state: &RunState, of: Option<&str>) -> Result<String, InterventionError> {
    let complete = state.status() == RunStatus::Complete;
    let ended = InterventionError::EndedWithoutFrom(state.status().as_str());
    if !complete && !state.failed_by_responder_task() {
        return Err(ended);
    }
    let address = state.to_ask_again(of).map(str::to_owned);
    address.ok_or_else(|| match complete && state.responding().is_some() {
        true => InterventionError::NothingUnanswered,
        false => ended,
    })
}

/// Refuses to go on from a recompute.
///
/// # Errors
/// [`InterventionError::IsRecompute`].
pub fn reject_recompute(stream: &StreamId) -> Result<(), InterventionError> {
    match stream.kind() {
        "recompute" => Err(InterventionError::IsRecompute),
        _ => Ok(()),
    }
}

fn check_restartable(state: &RunState, from: &str) -> Result<(), InterventionError> {
    let no_step = || InterventionError::NoStep(from.to_owned());
    let root = state.scope(0).ok_or_else(no_step)?;
    let responds = |name: &str| state.responding().is_some_and(|all| all.knows(name));
    if let Some((around, _)) = from.split_once('/')
        && (root.shape.position(around).is_some() || responds(around))
    {
        return Err(InterventionError::Inside(from.to_owned()));
    }
    let Some(step) = root.shape.position(from) else {
        return Err(match responds(from) {
            true => InterventionError::NothingLeftOf(from.to_owned()),
            false => no_step(),
        });
    };
    if root.shape.step(step).is_some_and(StepPlan::is_on_resume) {
        return Err(InterventionError::OnResume(from.to_owned()));
    }
    match state.failure_outside(&state.restarted_with(step)) {
        None => Ok(()),
        Some(failed) => Err(InterventionError::LeavesAFailure {
            from: from.to_owned(),
            failed: root.path_of(failed),
        }),
    }
}

/// Checks a fork of recorded frames, and decides what follows from it.
///
/// # Errors
/// [`InterventionError`].
pub fn fork(
    recorded: &[Frame],
    definition: &Arc<Definition>,
    fork: ForkCommand,
    at: Timestamp,
) -> Result<ForkedBranch, InterventionError> {
    if let Some(first) = recorded.first() {
        reject_recompute(&first.stream)?;
    }
    let outside = || InterventionError::Position {
        position: fork.position,
        frames: recorded.len() as u64,
    };
    let shared = usize::try_from(fork.position).map_err(|_| outside())?;
    let shared = recorded.get(..shared).ok_or_else(outside)?;
    let definition = fork.request.definition.as_ref().unwrap_or(definition);
    rules::check_rules_known(recorded)?;
    let whole = RunState::fold(recorded.get(..shared.len().max(1)).unwrap_or_default())?;
    let branch = branch_created(&whole, definition, &fork)?;
    if (branch.definition.is_some() || branch.params.is_some())
        && let Some(inside) = fork_place::inside_firing(&whole, recorded, fork.position)?
    {
        return Err(InterventionError::InsideFiring(inside));
    }
    let draft = Draft {
        scope: String::new(),
        actor: Actor::Principal(fork.request.by.id.clone()),
        cause: Vec::from_iter(fork.position.checked_sub(1).map(Cause::Here)),
        event: Event::Run(RunEvent::Branched(Box::new(branch))),
    };
    let memo = Memo::default();
    let at = at.max(whole.at());
    let (mut state, mut turn) = match shared.is_empty() {
        true => {
            let stream = StreamId::run(&fork.branch_id).map_err(|_| outside())?;
            turn::begin(definition, stream, draft, at, &memo)?
        }
        false => {
            let mut state = whole;
            let turn = turn::apply_input(definition, &mut state, draft, at, &memo)?;
            (state, turn)
        }
    };
    for command in fork.request.overlays {
        let input = overlay(definition, &state, command)?;
        turn.sealed
            .extend(turn::apply_input(definition, &mut state, input, at, &memo)?.sealed);
    }
    if fork.request.go && (!state.status().is_terminal() || state.opens_when_resumed()) {
        let input = resume(&state, None, fork.request.by, fork.request.reason, at)?;
        let next = turn::apply_input(definition, &mut state, input, at, &memo)?;
        turn.sealed.extend(next.sealed);
        turn.more = next.more;
    }
    Ok(ForkedBranch {
        state,
        turn,
        definition: Arc::clone(definition),
    })
}

/// The first frame of a branch: what changes, and everything if nothing is shared.
fn branch_created(
    state: &RunState,
    definition: &Definition,
    fork: &ForkCommand,
) -> Result<BranchCreated, InterventionError> {
    let root = definition.root().ok_or(InterventionError::NotARoot)?;
    let request = &fork.request;
    let whole = fork.position == 0;
    let other = request.definition.is_some() && definition.digest != state.created().digest;
    let env = &state.created().env;
    let mut declared = root.plan.env.iter();
    if let Some(missing) = declared.find(|variable| !env.contains_key(&variable.name)) {
        return Err(InterventionError::NoValue(missing.name.clone()));
    }
    let params = changed_params(state, root, request, other)?;
    let renamed = whole || other;
    Ok(BranchCreated {
        branch_id: fork.branch_id.clone(),
        by: request.by.clone(),
        definition: renamed.then(|| definition.json.clone()),
        digest: renamed.then(|| definition.digest.clone()),
        effects: request.effects,
        engine: ENGINE.to_owned(),
        env: whole.then(|| env.clone()),
        fork_position: fork.position,
        limits: whole.then_some(state.created().limits),
        restarts: !whole && (other || params.is_some() || !request.overlays.is_empty()),
        params: params.or_else(|| whole.then(|| state.created().params.clone())),
        parent_run_id: fork.parent_run_id.clone(),
        reason: request.reason.clone(),
        references: match whole {
            true => state.created().references.clone(),
            false => Vec::new(),
        },
        rules: state.rules(),
        version: renamed.then(|| root.plan.version.clone()),
        workflow: renamed.then(|| root.plan.name.clone()),
    })
}

/// The params from the fork on, if they change: checked as those of an invocation are.
fn changed_params(
    state: &RunState,
    root: &CompiledWorkflow,
    request: &ForkRequest,
    other: bool,
) -> Result<Option<CanonicalJson>, InterventionError> {
    if request.params.is_empty() && !other {
        return Ok(None);
    }
    let mut params = state.created().params.to_value();
    let mut changes = Value::Object(serde_json::Map::new());
    for (path, value) in &request.params {
        fields::check_param_path(root.plan.params.as_ref(), path)
            .map_err(InterventionError::NoParam)?;
        set(&mut params, path, value);
        set(&mut changes, path, value);
    }
    let secrets = root
        .params
        .as_ref()
        .map(|params| params.secrets_in(&changes));
    if let Some(found) = secrets.filter(|found| !found.is_empty()) {
        return Err(InterventionError::Params(violations(found)));
    }
    let resolved = params::resolve_given(root.params.as_ref(), params, DecisionRules::of(state));
    let resolved = resolved.map_err(|found| InterventionError::Params(violations(found)))?;
    let json = CanonicalJson::from_value(&resolved).map_err(|_| InterventionError::TooDeep)?;
    Ok((json != state.created().params).then_some(json))
}

/// Sets a member of an object, making the objects around it where there are none.
fn set(place: &mut Value, path: &[String], value: &Value) {
    let Some((name, rest)) = path.split_first() else {
        *place = value.clone();
        return;
    };
    if !place.is_object() {
        *place = Value::Object(serde_json::Map::new());
    }
    if let Some(members) = place.as_object_mut() {
        let inner = members.entry(name.clone()).or_insert(Value::Null);
        set(inner, rest, value);
    }
}

/// The place at which a run is forked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkPosition {
    /// So many frames are shared.
    At(u64),
    /// This frame is the last that is shared.
    AtFrame(u64),
    /// Everything before the latest attempt of a step, by its path: `call/inner`.
    Before(String),
    /// Everything.
    End,
}

/// The fork position that a point names.
///
/// # Errors
/// [`InterventionError::NoStep`] for a step that has not begun, [`InterventionError::Position`].
pub fn fork_position(recorded: &[Frame], point: &ForkPosition) -> Result<u64, InterventionError> {
    let frames = recorded.len() as u64;
    let position = match point {
        ForkPosition::At(position) => *position,
        ForkPosition::AtFrame(frame) => frame.saturating_add(1),
        ForkPosition::End => frames,
        ForkPosition::Before(path) => {
            let (scope, step) = path.rsplit_once('/').unwrap_or(("", path));
            let begins = |frame: &&Frame| {
                let begins = matches!(
                    &frame.event,
                    Event::Step(StepEvent::Started(_) | StepEvent::Skipped(_))
                );
                let about = matches!(&frame.event, Event::Step(event) if event.step() == step);
                begins && about && frame.scope == scope
            };
            let last = recorded.iter().rev().find(begins);
            last.ok_or_else(|| InterventionError::NoStep(path.clone()))?
                .seq
        }
    };
    match position <= frames {
        true => Ok(position),
        false => Err(InterventionError::Position { position, frames }),
    }
}

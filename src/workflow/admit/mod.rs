//! Checks everything that comes from outside: the result is an input frame, or a refusal that
//! writes nothing.

pub mod approval;
pub mod budget;
pub mod fields;
pub mod fork_place;
pub mod intervention;
pub mod post;
pub mod prompt_edits;
pub mod report;
pub mod review;
pub mod steer;
pub mod suspend;
pub mod tools;

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::Visibility;
use ktsu_ledger::event::{
    ClockJumped, ContinueReason, Effects, EnvValue, Limits, Principal, RecomputeCompared,
    RecomputeEvent, RunCreated, RunEvent, Violation, WebhookAnswer, WebhookEvent,
};
use ktsu_ledger::{Actor, CanonicalJson, Cause, Draft, Event, Timestamp};
use ktsu_projections::run::notices::{Notice, NoticeStatus};
use ktsu_projections::run::{Phase, RunState, StepKey, StepStatus};
use serde_json::Value;

use crate::definition::Definition;
use crate::failure_text::violations;
use crate::next::{Memo, next};
use crate::rules::{DecisionRules, RULES};
use crate::{params, timers, turn};

/// Name and version of this engine, as `run.created` records it.
pub const ENGINE: &str = concat!("ktsu ", env!("CARGO_PKG_VERSION"));

/// A request to start a run.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The request's body.
    pub body: Value,
    /// The treatment of its webhooks and messages: whether they are sent.
    pub effects: Effects,
    /// Values of the declared environment variables.
    pub env: BTreeMap<String, EnvValue>,
    /// The client's `Idempotency-Key`, and the digest of what it was used for.
    pub idempotency: Option<(String, String)>,
    /// The lock of the kit, where the workflow's files are those it names.
    pub lock: Option<CanonicalJson>,
    /// True if every model call is to be made, although an earlier reply of the run may answer it.
    pub no_cache: bool,
    /// The principal that asks for it.
    pub principal: Principal,
    /// Names that stand for something of this run alone.
    pub references: Vec<String>,
}

/// The reason why a run is not started. Nothing is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvocationError {
    /// The params do not fit their schema (seed 000, invariant 14).
    Params(Vec<Violation>),
    /// The workflow is a sub-workflow (seed 000, invariant 30).
    NotARoot,
}

/// Checks a request to start a run.
///
/// # Errors
/// [`InvocationError`].
pub fn invocation(definition: &Definition, asked: Invocation) -> Result<Draft, InvocationError> {
    let Some(root) = definition.root() else {
        return Err(InvocationError::NotARoot);
    };
    if root.plan.visibility == Visibility::SubWorkflow {
        return Err(InvocationError::NotARoot);
    }
    // Before anything else is said about the body: not even a fault may come near the value.
    let secrets = root
        .params
        .as_ref()
        .map(|params| params.secrets_in(&asked.body));
    if let Some(found) = secrets.filter(|found| !found.is_empty()) {
        return Err(InvocationError::Params(violations(found)));
    }
    let resolved = params::resolve(root.params.as_ref(), asked.body, DecisionRules::NEWEST);
    let resolved = resolved.map_err(|found| InvocationError::Params(violations(found)))?;
    let too_deep = |_| {
        InvocationError::Params(vec![Violation {
            message: "nested too deeply".to_owned(),
            path: String::new(),
            rule: "depth".to_owned(),
        }])
    };
    let (key, digest) = asked.idempotency.unzip();
    let actor = Actor::Principal(asked.principal.id.clone());
    let created = RunCreated {
        definition: definition.json.clone(),
        digest: definition.digest.clone(),
        effects: (asked.effects == Effects::Suppress).then_some(Effects::Suppress),
        engine: ENGINE.to_owned(),
        env: asked.env,
        idempotency_digest: digest,
        idempotency_key: key,
        limits: Limits::default(),
        lock: asked.lock,
        no_cache: asked.no_cache,
        of: None,
        params: CanonicalJson::from_value(&resolved).map_err(too_deep)?,
        principal: asked.principal,
        references: asked.references,
        results: Vec::new(),
        rules: RULES,
        version: root.plan.version.clone(),
        workflow: root.plan.name.clone(),
    };
    Ok(Draft {
        scope: String::new(),
        actor,
        cause: Vec::new(),
        event: Event::Run(RunEvent::Created(Box::new(created))),
    })
}

/// The result of a sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookOutcome {
    /// The scope's path.
    pub scope: String,
    /// The answer that the frame will record.
    pub answer: WebhookAnswer,
}

/// Checks an answer to a webhook: dropped if the state no longer waits for it.
pub fn answer(state: &RunState, got: WebhookOutcome) -> Option<Draft> {
    let at = state.scope_at(&got.scope)?;
    let scope = state.scope(at)?;
    let position = scope.shape.position(&got.answer.step)?;
    let step = scope.steps.get(position as usize)?;
    let event = match got.answer.code {
        None => WebhookEvent::Delivered,
        Some(_) => WebhookEvent::Failed,
    };
    let (seq, current) = if let Some(request) = got.answer.approval {
        let Some(NoticeStatus::Sent { seq }) = state.notice(Notice {
            request,
            webhook: StepKey::of(at, position),
        }) else {
            return None;
        };
        (
            seq,
            !state.status().is_terminal() && state.failing().is_none(),
        )
    } else {
        let Phase::Sent { sending, seq } = step.phase else {
            return None;
        };
        let current = step.status == StepStatus::Running
            && sending == got.answer.sending
            && step.attempt == got.answer.attempt;
        (seq, current)
    };
    current.then(|| Draft {
        scope: got.scope,
        actor: Actor::Orchestrator,
        cause: vec![Cause::Here(seq)],
        event: Event::Webhook(event(got.answer)),
    })
}

/// Checks what a recompute came to: dropped if it is not waited for.
pub fn compared(state: &RunState, compared: RecomputeCompared) -> Option<Draft> {
    let due = state.status().is_terminal() && !state.is_over();
    due.then(|| Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: vec![Cause::Here(state.next_seq().saturating_sub(1))],
        event: Event::Recompute(RecomputeEvent::Compared(compared)),
    })
}

/// That the wall clock went forward by so much more than the time that passed, if a deadline of the
/// run depends on it and its last frame is older than the jump.
pub fn jumped(state: &RunState, clock: Timestamp, by_ms: u64) -> Option<Draft> {
    let by_ms = by_ms.min(clock.millis_since(state.at()));
    timers::next(state).filter(|_| by_ms > 0)?;
    Some(clock_jumped(state, clock, Some(by_ms)))
}

fn clock_jumped(state: &RunState, clock: Timestamp, forward_ms: Option<u64>) -> Draft {
    let last = state.at();
    Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: vec![Cause::Here(state.next_seq().saturating_sub(1))],
        event: Event::Run(RunEvent::ClockJumped(ClockJumped {
            clock,
            last,
            forward_ms,
        })),
    }
}

/// The frames that a recovered run records first, if any: that the clock is before its last frame,
/// and that it continues deciding. A run that waits writes nothing (DESIGN 1).
///
/// `more` says that something else is to be recorded, so that a clock that jumped is noted before.
pub fn restart(
    definition: &Definition,
    state: &RunState,
    clock: Timestamp,
    more: bool,
) -> Vec<Draft> {
    let mut inputs = Vec::new();
    let decides = next(definition, state, &Memo::default()).is_some();
    if !decides && !more {
        return inputs;
    }
    if clock < state.at() {
        inputs.push(clock_jumped(state, clock, None));
    }
    if decides {
        inputs.push(turn::continuation(state, ContinueReason::Restart));
    }
    inputs
}

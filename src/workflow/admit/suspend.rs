//! Checks the data that a suspended step waits for (seed 004; decision P3): each suspension is resumed
//! once, with data that the step's schema allows.

use ktsu_ledger::event::{PersonEvent, Principal, RunEvent, SuspendResumed, TimerFired, TimerKind};
use ktsu_ledger::{Actor, CanonicalJson, Cause, Draft, Event, Timestamp};
use ktsu_projections::life::suspension::SuspensionState;
use ktsu_projections::run::suspending::AskedSuspension;
use ktsu_projections::run::{RunState, StepKey};
use ktsu_projections::suspensions::suspend_id;
use serde_json::Value;

use crate::airlock::{self, SchemaViolation};
use crate::definition::Definition;
use crate::rules::DecisionRules;

/// Data for a step that waits for them.
#[derive(Debug, Clone)]
pub struct StepResumption {
    /// The scope's path; empty for the run itself.
    pub scope: String,
    /// The step.
    pub step: String,
    /// The suspension that is meant, if the caller says it; otherwise it is the one that is
    /// pending.
    pub suspend_id: Option<String>,
    /// The suspension that the caller may resume.
    pub permitted: PermittedSuspension,
    /// The data.
    pub data: Value,
    /// The principal that gives the data.
    pub by: Principal,
    /// The reason, where one is given.
    pub reason: Option<String>,
}

/// The suspension that a caller was found to be permitted to resume: no other is resumed, since another may
/// ask for other roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermittedSuspension {
    /// The one of this `suspend.requested`, whose roles the caller has; none if nothing was asked for when
    /// they were looked at.
    Request(Option<u64>),
    /// The one of this attempt, which a link names.
    Attempt(u32),
}

/// The reason why data are refused. Nothing is recorded.
#[derive(Debug, thiserror::Error)]
pub enum StepResumptionError {
    /// The step does not wait for data.
    #[error("step {step:?} does not wait for data")]
    NotPending {
        /// The step.
        step: String,
    },
    /// The suspension is over.
    #[error("the suspension of step {step:?} is over: {how}")]
    Over {
        /// The step.
        step: String,
        /// The end that it had.
        how: &'static str,
    },
    /// Another suspension of the step is pending.
    #[error("the suspension that is pending is {pending}, not {given:?}")]
    Stale {
        /// The suspension that is pending.
        pending: String,
        /// The suspension that was meant.
        given: String,
    },
    /// The time is over.
    #[error("the time to resume {id} is over")]
    Expired {
        /// The suspension.
        id: String,
    },
    /// The data are not what the step's schema allows.
    #[error("the data do not fit `resume.schema` of step {step:?}: {words}")]
    Data {
        /// The step.
        step: String,
        /// The fault of the data, and its place, for people.
        words: String,
        /// The code of the schema's refusal.
        code: &'static str,
    },
}

/// Checks data for a step.
///
/// # Errors
/// [`StepResumptionError`].
pub fn resume(
    definition: &Definition,
    state: &RunState,
    given: StepResumption,
    now: Timestamp,
) -> Result<Draft, StepResumptionError> {
    let asked = find(state, &given)?;
    let request = asked.suspension.request;
    if asked.suspension.deadline() <= now {
        let id = suspend_id(state.stream(), request);
        return Err(StepResumptionError::Expired { id });
    }
    check(definition, state, &asked, &given)?;
    let data = CanonicalJson::from_value(&given.data).map_err(|_| StepResumptionError::Data {
        step: given.step.clone(),
        words: "they are nested too deeply".to_owned(),
        code: "resume_data_invalid",
    })?;
    let by = given.by.id.clone();
    let event = PersonEvent::SuspendResumed(Box::new(SuspendResumed {
        attempt: asked.task.attempt,
        by: given.by,
        data,
        reason: given.reason,
        request,
        step: given.step,
    }));
    Ok(Draft {
        scope: given.scope,
        actor: Actor::Principal(by),
        cause: vec![Cause::Here(request)],
        event: Event::Person(event),
    })
}

/// The suspension that ends first without data, and when.
pub(crate) fn next_deadline(state: &RunState) -> Option<(Timestamp, AskedSuspension<'_>)> {
    let asked = state.pending_suspensions().into_iter();
    let ends = asked.map(|asked| (asked.suspension.deadline(), asked));
    ends.min_by_key(|(until, asked)| (*until, asked.suspension.request))
}

/// The input that ends it, if its time is over.
pub(crate) fn expired(state: &RunState, now: Timestamp) -> Option<Draft> {
    let (until, asked) = next_deadline(state)?;
    let scope = state.scope_of(asked.step)?;
    let fired = TimerFired {
        responder: None,
        step: Some(state.step_id(asked.step)?.to_owned()),
        timer: TimerKind::Suspend,
    };
    (until <= now).then(|| Draft {
        scope: scope.path.clone(),
        actor: Actor::Orchestrator,
        cause: vec![Cause::Here(asked.suspension.request)],
        event: Event::Run(RunEvent::TimerFired(fired)),
    })
}

/// The suspension that is meant; or what became of it.
fn find<'s>(
    state: &'s RunState,
    given: &StepResumption,
) -> Result<AskedSuspension<'s>, StepResumptionError> {
    let step = given.step.clone();
    let at = state.step_at(&given.scope, &given.step);
    let waits = state.failing().is_none() && !state.is_parked();
    let asked = state.pending_suspensions().into_iter();
    let mut here = asked.filter(|asked| waits && Some(asked.step) == at);
    let Some(asked) = here.next() else {
        let how = at.and_then(|at| how_it_ended(state, at));
        return Err(match how {
            Some(how) => StepResumptionError::Over { step, how },
            None => StepResumptionError::NotPending { step },
        });
    };
    let pending = suspend_id(state.stream(), asked.suspension.request);
    match &given.suspend_id {
        Some(given) if *given != pending => Err(StepResumptionError::Stale {
            pending,
            given: given.clone(),
        }),
        _ => match given.permitted {
            PermittedSuspension::Attempt(attempt) if attempt != asked.task.attempt => {
                let how = "an earlier attempt waited for it";
                Err(StepResumptionError::Over { step, how })
            }
            PermittedSuspension::Request(known) if known != Some(asked.suspension.request) => {
                Err(StepResumptionError::NotPending { step })
            }
            PermittedSuspension::Attempt(_) | PermittedSuspension::Request(_) => Ok(asked),
        },
    }
}

/// The end of the last suspension of a step, in words.
fn how_it_ended(state: &RunState, at: StepKey) -> Option<&'static str> {
    let suspension = state
        .task(at, None)
        .and_then(|task| task.suspension.as_deref());
    match suspension.map(|one| &one.state) {
        Some(SuspensionState::Resumed { .. }) => Some("it has its data"),
        Some(SuspensionState::TimedOut { .. }) => Some("the data did not come in time"),
        Some(SuspensionState::Pending(_)) => {
            let over = state.failing().is_some() || state.status().is_terminal();
            over.then_some("the run ended before the data came")
        }
        Some(SuspensionState::Due) => None,
        None => {
            let given = state.resumption(at);
            given.map(|_| "it has its data")
        }
    }
}

/// Checks the data against the schema of the step, or of the other step by which it runs.
fn check(
    definition: &Definition,
    state: &RunState,
    asked: &AskedSuspension<'_>,
    given: &StepResumption,
) -> Result<(), StepResumptionError> {
    let step = definition.acting_step(state, asked.step);
    let Some(schema) = step.and_then(|step| step.resume_schema()) else {
        return Ok(());
    };
    let found: Vec<SchemaViolation> = airlock::check(schema, &given.data, DecisionRules::of(state));
    let Some(first) = found.first() else {
        return Ok(());
    };
    Err(StepResumptionError::Data {
        step: given.step.clone(),
        words: ktsu_schema::message_at(&first.message, &first.pointer),
        code: airlock::code_of_first(&found, "resume_data_invalid"),
    })
}

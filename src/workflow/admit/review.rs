//! Checks people's decisions on outcomes (seed 004; decision P3): each review is decided once.

use std::collections::BTreeMap;

use ktsu_ledger::event::{
    PersonEvent, Principal, ReviewDecided, ReviewDecision, RunEvent, TimerFired, TimerKind,
};
use ktsu_ledger::{Actor, CanonicalJson, Cause, Draft, Event, Timestamp};
use ktsu_projections::life::review::{PendingReview, ReviewRefusal, ReviewState};
use ktsu_projections::life::task::output_without_reserved_fields;
use ktsu_projections::reviews::review_id;
use ktsu_projections::run::reviewing::AskedReview;
use ktsu_projections::run::{AgentTask, RunState, TaskPhase};
use serde_json::Value;

use super::fields::StepSchemas;
use super::intervention::{InterventionError, check_replaced};
use crate::definition::Definition;
use crate::rules::DecisionRules;

/// A person's decision about an outcome.
#[derive(Debug, Clone)]
pub struct ReviewCommand {
    /// The scope's path; empty for the run itself.
    pub scope: String,
    /// The step.
    pub step: String,
    /// The review that they mean, if they say it; otherwise it is the one that is pending.
    pub review_id: Option<String>,
    /// The `review.requested` whose roles they have, if people were asked when that was looked at: no
    /// other is decided, since another may ask for other roles.
    pub permitted: Option<u64>,
    /// The decision.
    pub decision: ReviewDecision,
    /// The fields of the output that they replace.
    pub overlay: BTreeMap<String, Value>,
    /// The person who decides.
    pub by: Principal,
    /// The reason, where one is given.
    pub reason: Option<String>,
}

/// The reason why a decision is refused. Nothing is recorded.
#[derive(Debug, thiserror::Error)]
pub enum ReviewDecisionError {
    /// The step does not wait for a review.
    #[error("the outcome of step {step:?} does not wait for a review")]
    NotPending {
        /// The step.
        step: String,
    },
    /// It was decided.
    #[error("the review of step {step:?} is over: {decided}")]
    Decided {
        /// The step.
        step: String,
        /// The decision that was made.
        decided: String,
    },
    /// Another review of the step is pending.
    #[error("the review that is pending is {pending}, not {given:?}")]
    Stale {
        /// The review that is pending.
        pending: String,
        /// The review that was meant.
        given: String,
    },
    /// The time is over.
    #[error("the time to decide on {id} is over")]
    Expired {
        /// The review.
        id: String,
    },
    /// Whoever started the run may not approve.
    #[error("{by:?} started the run, and the policy asks for another person to approve")]
    Proposer {
        /// The person.
        by: String,
    },
    /// One person counts once.
    #[error("{by:?} has approved {id} already; the policy asks for several people")]
    Twice {
        /// The review.
        id: String,
        /// The person.
        by: String,
    },
    /// People who approve replace one field by one value.
    #[error(
        "the field {field:?} is already replaced otherwise: {by} approved with {field} = {value}"
    )]
    Otherwise {
        /// The field.
        field: String,
        /// The person who replaced it.
        by: String,
        /// By what, shortened.
        value: String,
    },
    /// A rejected outcome has no output that could be changed.
    #[error("a rejection replaces nothing: leave the overlay out")]
    OverlayOfRejection,
    /// A replaced field does not fit.
    #[error(transparent)]
    Overlay(#[from] InterventionError),
}

/// Checks a decision.
///
/// # Errors
/// [`ReviewDecisionError`].
pub fn decide(
    definition: &Definition,
    state: &RunState,
    said: ReviewCommand,
    now: Timestamp,
) -> Result<Draft, ReviewDecisionError> {
    let asked = find(state, &said)?;
    let id = review_id(state.stream(), asked.review.request);
    if asked.review.deadline() <= now {
        return Err(ReviewDecisionError::Expired { id });
    }
    let by = said.by.id.clone();
    match said.decision {
        ReviewDecision::Approved => {
            if asked.review.policy.not_by_proposer && by == state.proposer().id {
                return Err(ReviewDecisionError::Proposer { by });
            }
            if asked.review.approved_by.contains(&by) {
                return Err(ReviewDecisionError::Twice { id, by });
            }
            check_overlay(definition, state, &asked, &said.overlay)?;
            check_agrees(asked.review, &canonical(&said.overlay)?)?;
        }
        ReviewDecision::Rejected if !said.overlay.is_empty() => {
            return Err(ReviewDecisionError::OverlayOfRejection);
        }
        ReviewDecision::Rejected => {}
    }
    let overlay = canonical(&said.overlay)?;
    let event = PersonEvent::ReviewDecided(Box::new(ReviewDecided {
        attempt: asked.task.attempt,
        by: said.by,
        decision: said.decision,
        overlay,
        reason: said.reason,
        request: asked.review.request,
        step: said.step,
    }));
    Ok(Draft {
        scope: said.scope,
        actor: Actor::Principal(by),
        cause: vec![Cause::Here(asked.review.request)],
        event: Event::Person(event),
    })
}

/// The review that ends first without a decision, and when.
pub(crate) fn next_deadline(state: &RunState) -> Option<(Timestamp, AskedReview<'_>)> {
    let asked = state.pending_reviews().into_iter();
    let ends = asked.map(|asked| (asked.review.deadline(), asked));
    ends.min_by_key(|(until, asked)| (*until, asked.review.request))
}

/// The input that ends it, if its time is over.
pub(crate) fn expired(state: &RunState, now: Timestamp) -> Option<Draft> {
    let (until, asked) = next_deadline(state)?;
    let scope = state.scope_of(asked.step)?;
    let fired = TimerFired {
        responder: None,
        step: Some(state.step_id(asked.step)?.to_owned()),
        timer: TimerKind::Review,
    };
    (until <= now).then(|| Draft {
        scope: scope.path.clone(),
        actor: Actor::Orchestrator,
        cause: vec![Cause::Here(asked.review.request)],
        event: Event::Run(RunEvent::TimerFired(fired)),
    })
}

/// The review that is meant; or what became of it.
fn find<'s>(
    state: &'s RunState,
    said: &ReviewCommand,
) -> Result<AskedReview<'s>, ReviewDecisionError> {
    let step = said.step.clone();
    let at = state.step_at(&said.scope, &said.step);
    let waits = state.failing().is_none() && !state.is_parked();
    let asked = state.pending_reviews().into_iter();
    let mut here = asked.filter(|asked| waits && Some(asked.step) == at);
    let Some(asked) = here.next() else {
        let task = at.and_then(|at| state.task(at, None));
        return Err(match task.and_then(|task| outcome_of_review(state, task)) {
            Some(decided) => ReviewDecisionError::Decided { step, decided },
            None => ReviewDecisionError::NotPending { step },
        });
    };
    let pending = review_id(state.stream(), asked.review.request);
    match &said.review_id {
        Some(given) if *given != pending => Err(ReviewDecisionError::Stale {
            pending,
            given: given.clone(),
        }),
        _ if said.permitted != Some(asked.review.request) => {
            Err(ReviewDecisionError::NotPending { step })
        }
        _ => Ok(asked),
    }
}

/// The decision about the outcome of a task, in words.
fn outcome_of_review(state: &RunState, task: &AgentTask) -> Option<String> {
    let review = task.review.as_deref()?;
    match &review.state {
        ReviewState::Approved { .. } => Some("it was approved".to_owned()),
        ReviewState::Refused(ReviewRefusal::Rejected { by, .. }) => {
            Some(format!("{by} rejected it"))
        }
        ReviewState::Refused(ReviewRefusal::TimedOut { .. }) => {
            Some("there was no decision in time".to_owned())
        }
        ReviewState::Due => None,
        ReviewState::Pending(_) => {
            let over = state.failing().is_some() || state.status().is_terminal();
            over.then(|| "the run ended before a decision".to_owned())
        }
    }
}

/// Checks what a person replaces, over what those before them replaced.
fn check_overlay(
    definition: &Definition,
    state: &RunState,
    asked: &AskedReview<'_>,
    overlay: &BTreeMap<String, Value>,
) -> Result<(), ReviewDecisionError> {
    if overlay.is_empty() {
        return Ok(());
    }
    let no_step = || InterventionError::NoStep(String::new());
    let scope = state.scope_of(asked.step).ok_or_else(no_step)?;
    let workflow = definition.workflow(&scope.shape.key).ok_or_else(no_step)?;
    let schemas = StepSchemas::of(state, asked.step).ok_or_else(no_step)?;
    let rules = DecisionRules::from_recorded(state.rules()).map_err(InterventionError::from)?;
    let mut output = provisional(asked.task).unwrap_or_default();
    replace(&mut output, asked.review);
    check_replaced(definition, (workflow, schemas), &mut output, overlay, rules)?;
    Ok(())
}

fn canonical(
    overlay: &BTreeMap<String, Value>,
) -> Result<BTreeMap<String, CanonicalJson>, InterventionError> {
    let members = overlay.iter().map(|(field, value)| {
        let value = CanonicalJson::from_value(value).map_err(|_| InterventionError::TooDeep)?;
        Ok((field.clone(), value))
    });
    members.collect()
}

/// The most characters of a value that an error repeats.
const SHOWN_CHARS: usize = 100;

/// Checks that no one before replaced one of these fields otherwise.
fn check_agrees(
    review: &PendingReview,
    overlay: &BTreeMap<String, CanonicalJson>,
) -> Result<(), ReviewDecisionError> {
    let Some((field, replaced)) = review.conflict(overlay) else {
        return Ok(());
    };
    let text = replaced.value.as_str();
    let value = match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    };
    Err(ReviewDecisionError::Otherwise {
        field: field.clone(),
        by: replaced.by.clone(),
        value,
    })
}

fn replace(output: &mut Value, review: &PendingReview) {
    for (field, value) in review.replaced() {
        output[field.as_str()] = value.to_value();
    }
}

/// The output that a review is about.
fn provisional(task: &AgentTask) -> Option<Value> {
    let TaskPhase::Finished { outcome, .. } = &task.phase else {
        return None;
    };
    Some(output_without_reserved_fields(outcome)?.to_value())
}

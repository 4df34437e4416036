//! Checks people's decisions on tool calls (seed 000, invariant 34; decision A1): a decision is
//! about one call with its exact arguments, and each call is decided once.

use ktsu_ledger::event::{AgentEvent, ApprovalDecided, ApprovalExpired, Decision, Principal};
use ktsu_ledger::{Actor, Cause, Draft, Event, Timestamp};
use ktsu_projections::approvals::approval_id;
use ktsu_projections::run::waits::PendingDecision;
use ktsu_projections::run::{RunState, StepKey};

/// A person's word about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalCommand {
    /// The scope's path; empty for the run itself.
    pub scope: String,
    /// The step.
    pub step: String,
    /// The item of a fan-out.
    pub item: Option<u32>,
    /// The call that is meant, where several wait in the step.
    pub approval_id: Option<String>,
    /// The digest of the arguments the person saw, if it is said.
    pub digest: Option<String>,
    /// The person's decision.
    pub decision: Decision,
    /// The person who decides.
    pub by: Principal,
    /// The reason, where one is given.
    pub reason: Option<String>,
    /// Of a call that happened: what it gave.
    pub result: Option<String>,
}

/// The reason why a decision is refused. Nothing is recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalDecisionError {
    /// Nothing waits there; it may have been decided.
    #[error("no call of step {step:?} waits for a decision")]
    NotPending {
        /// The step.
        step: String,
    },
    /// Several do.
    #[error("several calls of step {step:?} wait for a decision: {}", ids.join(", "))]
    Several {
        /// The step.
        step: String,
        /// The calls that wait.
        ids: Vec<String>,
    },
    /// The person saw other arguments.
    #[error("the arguments of {id} have the digest {actual}, not the one that was decided on")]
    OtherArguments {
        /// The record.
        id: String,
        /// The digest of the arguments that are recorded.
        actual: String,
    },
    /// The time is over.
    #[error("the time to decide on {id} is over")]
    Expired {
        /// The record.
        id: String,
    },
    /// Whoever started the run may not approve.
    #[error("{by:?} started the run, and the policy asks for somebody else to approve")]
    Proposer {
        /// The person.
        by: String,
    },
    /// One person counts once.
    #[error("{by:?} has approved {id} already; the policy asks for several people")]
    Twice {
        /// The record.
        id: String,
        /// The person.
        by: String,
    },
    /// Only a call in doubt can have happened.
    #[error("{id} was not sent, so it cannot have happened: approve or reject it")]
    NotInDoubt {
        /// The record.
        id: String,
    },
}

/// Checks a decision.
///
/// # Errors
/// [`ApprovalDecisionError`].
pub fn decide(
    state: &RunState,
    said: ApprovalCommand,
    now: Timestamp,
) -> Result<Draft, ApprovalDecisionError> {
    let asked = find_pending(state, &said)?;
    let id = approval_id(state.stream(), asked.request);
    if said
        .digest
        .as_ref()
        .is_some_and(|digest| *digest != asked.call.digest)
    {
        let actual = asked.call.digest.clone();
        return Err(ApprovalDecisionError::OtherArguments { id, actual });
    }
    if let Some(gate) = asked.call.state.gate() {
        if gate.deadline().is_some_and(|until| until <= now) {
            return Err(ApprovalDecisionError::Expired { id });
        }
        let by = said.by.id.clone();
        let approves = said.decision == Decision::Approved;
        if approves && gate.policy.not_by_proposer && by == state.proposer().id {
            return Err(ApprovalDecisionError::Proposer { by });
        }
        if approves && gate.approved_by.contains(&by) {
            return Err(ApprovalDecisionError::Twice { id, by });
        }
        if said.decision == Decision::Happened {
            return Err(ApprovalDecisionError::NotInDoubt { id });
        }
    }
    let event = AgentEvent::ApprovalDecided(Box::new(ApprovalDecided {
        attempt: asked.task.attempt,
        digest: asked.call.digest.clone(),
        decision: said.decision,
        item: said.item,
        reason: said.reason,
        request: asked.request,
        result: said.result.filter(|_| said.decision == Decision::Happened),
        step: said.step,
        by: said.by.clone(),
    }));
    Ok(Draft {
        scope: said.scope,
        actor: Actor::Principal(said.by.id),
        cause: vec![Cause::Here(asked.request)],
        event: Event::Agent(event),
    })
}

/// That nobody decided in time: the wait that ends first, if it has ended.
pub(crate) fn expired(state: &RunState, now: Timestamp) -> Option<Draft> {
    let (until, asked) = next_deadline(state)?;
    let scope = state.scope_of(asked.at.step)?;
    let event = AgentEvent::ApprovalExpired(ApprovalExpired {
        attempt: asked.task.attempt,
        item: asked.at.item,
        request: asked.request,
        step: state.step_id(asked.at.step)?.to_owned(),
    });
    (until <= now).then(|| Draft {
        scope: scope.path.clone(),
        actor: Actor::Orchestrator,
        cause: vec![Cause::Here(asked.request)],
        event: Event::Agent(event),
    })
}

/// The call a decision is about.
fn find_pending<'s>(
    state: &'s RunState,
    said: &ApprovalCommand,
) -> Result<PendingDecision<'s>, ApprovalDecisionError> {
    let step = ktsu_projections::lineage::item_name(&said.step, said.item);
    let at = state.scope_at(&said.scope).and_then(|scope| {
        let held = state.scope(scope)?;
        Some(StepKey::of(scope, held.shape.position(&said.step)?))
    });
    let waits = state.failing().is_none() && !state.is_parked();
    let here =
        |asked: &PendingDecision<'_>| Some(asked.at.step) == at && asked.at.item == said.item;
    let mut found: Vec<PendingDecision<'s>> = match waits {
        true => state.pending_decisions().into_iter().filter(here).collect(),
        false => Vec::new(),
    };
    let id = |asked: &PendingDecision<'_>| approval_id(state.stream(), asked.request);
    if let Some(wanted) = &said.approval_id {
        found.retain(|asked| id(asked) == *wanted);
    }
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(ApprovalDecisionError::NotPending { step }),
        several => Err(ApprovalDecisionError::Several {
            step,
            ids: several.iter().map(id).collect(),
        }),
    }
}

/// The next end of a wait for people: its time, and what it is about.
pub fn next_deadline(state: &RunState) -> Option<(Timestamp, PendingDecision<'_>)> {
    let asked = state.pending_decisions().into_iter();
    let ends = asked.filter_map(|asked| Some((asked.call.state.gate()?.deadline()?, asked)));
    ends.min_by_key(|(until, asked)| (*until, asked.request))
}

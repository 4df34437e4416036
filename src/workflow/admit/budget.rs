//! Checks that a person raises the budget of a run's worlds (decision F5). A run that failed because
//! it was used up goes on where it stood.

use ktsu_ledger::event::plan::world::WorldBudget;
use ktsu_ledger::event::{BudgetRaised, Principal, WorldBudgetExhausted, WorldEvent};
use ktsu_ledger::{Actor, Cause, Draft, Event, Timestamp};
use ktsu_projections::run::{RunState, RunStatus};

use super::intervention::{InterventionError, reject_recompute, resume};
use super::steer::status_text;
use crate::next::{MAX_COST_LIMIT, MAX_DEPTH_LIMIT, MAX_EVENTS_LIMIT, MAX_TIME_LIMIT, limit_text};
use crate::rules::DecisionRules;

/// Limits as a person raises them; those that are absent stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RaisedBudget {
    /// World frames.
    pub max_events: Option<u64>,
    /// Millionths of a US dollar.
    pub max_llm_cost_micro_usd: Option<u64>,
    /// Depth of a world frame.
    pub max_recursion_depth: Option<u32>,
    /// Milliseconds.
    pub max_wall_ms: Option<u64>,
}

impl RaisedBudget {
    /// Each limit: its name, what it is raised to, and what it is now.
    fn limits(self, now: WorldBudget) -> [(&'static str, Option<u64>, u64); 4] {
        [
            (MAX_EVENTS_LIMIT, self.max_events, now.max_events),
            (
                MAX_COST_LIMIT,
                self.max_llm_cost_micro_usd,
                now.max_llm_cost_micro_usd,
            ),
            (
                MAX_DEPTH_LIMIT,
                self.max_recursion_depth.map(u64::from),
                now.max_recursion_depth.into(),
            ),
            (MAX_TIME_LIMIT, self.max_wall_ms, now.max_wall_ms),
        ]
    }
}

/// Checks raised limits at a moment. What comes first is recorded first; a run that is paused, or a
/// branch that waits, is resumed behind it.
///
/// # Errors
/// [`InterventionError`].
pub fn raise(
    state: &RunState,
    raised: RaisedBudget,
    by: Principal,
    reason: Option<String>,
    now: Timestamp,
) -> Result<Vec<Draft>, InterventionError> {
    reject_recompute(state.stream())?;
    let (Some(responding), Some(budget)) = (state.responding(), state.world_budget()) else {
        return Err(InterventionError::NoWorlds);
    };
    DecisionRules::from_recorded(state.rules())?;
    if !state.may_raise_budget() {
        return Err(InterventionError::NotRaisable(status_text(state)));
    }
    let limits = raised.limits(budget);
    if limits.iter().all(|(_, raised, _)| raised.is_none()) {
        return Err(InterventionError::NothingRaised);
    }
    let lower = limits
        .into_iter()
        .find(|(_, raised, now)| raised.is_some_and(|raised| raised <= *now));
    if let Some((name, _, now)) = lower {
        return Err(InterventionError::NotHigher(limit_text(name, now)));
    }
    let after = WorldBudget {
        max_events: raised.max_events.unwrap_or(budget.max_events),
        limits_cost: budget.limits_cost,
        max_llm_cost_micro_usd: raised
            .max_llm_cost_micro_usd
            .unwrap_or(budget.max_llm_cost_micro_usd),
        max_recursion_depth: raised
            .max_recursion_depth
            .unwrap_or(budget.max_recursion_depth),
        max_wall_ms: raised.max_wall_ms.unwrap_or(budget.max_wall_ms),
    };
    if let Some(exhausted) = responding.exhausted() {
        let left = still_exhausted(exhausted, after);
        if !left.is_empty() {
            return Err(InterventionError::UsedUp(left.join(", ")));
        }
    }
    let event = WorldEvent::BudgetRaised(BudgetRaised {
        by: by.clone(),
        max_events: raised.max_events,
        max_llm_cost_micro_usd: raised.max_llm_cost_micro_usd,
        max_recursion_depth: raised.max_recursion_depth,
        max_wall_ms: raised.max_wall_ms,
        reason: reason.clone(),
    });
    let mut drafts = vec![Draft {
        scope: String::new(),
        actor: Actor::Principal(by.id.clone()),
        cause: vec![Cause::Here(state.next_seq().saturating_sub(1))],
        event: Event::World(event),
    }];
    let root = state.scope(0).map(|root| root.status);
    let waits = state.paused().is_some() || state.is_parked();
    if waits && root == Some(RunStatus::Running) {
        let mut resumed = resume(state, None, by, reason, now)?;
        resumed.cause = vec![Cause::Here(state.next_seq())];
        drafts.push(resumed);
    }
    Ok(drafts)
}

/// The limits that were reached when the budget was used up, and that would be reached still.
fn still_exhausted(exhausted: &WorldBudgetExhausted, budget: WorldBudget) -> Vec<String> {
    let suffices = |name: &str| match name {
        MAX_EVENTS_LIMIT => budget.max_events > exhausted.event_count,
        MAX_COST_LIMIT => budget.max_llm_cost_micro_usd > exhausted.cost_micro_usd,
        MAX_DEPTH_LIMIT => budget.max_recursion_depth >= exhausted.depth,
        MAX_TIME_LIMIT => budget.max_wall_ms > exhausted.elapsed_ms,
        // A limit that this version does not know is not one that it can raise.
        _ => false,
    };
    let reasons = exhausted.reasons.iter();
    let left = reasons.filter(|reason| {
        let name = reason.split('=').next().unwrap_or_default();
        !suffices(name)
    });
    left.cloned().collect()
}

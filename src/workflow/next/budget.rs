//! The end of the budget of a run's worlds (decision F5): one `budget.exhausted`, which names every
//! limit that is reached.

use ktsu_ledger::event::plan::world::WorldBudget;
use ktsu_ledger::event::{Dropped, WorldBudgetExhausted, WorldEvent};
use ktsu_ledger::{Cause, Draft, Event};
use ktsu_projections::run::{RunState, RunStatus};
use ktsu_projections::world::{ResponderTaskPhase, Responding, TriggerSubject};

use super::DecisionBatch;
use crate::definition::{CompiledWorlds, Definition};

/// The names of the limits, as world files and the reasons of `budget.exhausted` have them.
pub(crate) const MAX_EVENTS_LIMIT: &str = "max_events";
pub(crate) const MAX_COST_LIMIT: &str = "max_llm_cost_usd";
pub(crate) const MAX_DEPTH_LIMIT: &str = "max_recursion_depth";
pub(crate) const MAX_TIME_LIMIT: &str = "max_wall_seconds";

/// `budget.exhausted` where a limit is exceeded whatever comes next: by what a reply that came in
/// cost or added, or because the time is up. Runs without worlds pay one comparison.
pub(super) fn over_budget(definition: &Definition, state: &RunState) -> Option<Vec<Draft>> {
    let responding = state.responding()?;
    let worlds = definition.worlds()?;
    let runs = state.scope(0)?.status == RunStatus::Running;
    if !runs || !responding.is_loaded() || responding.exhausted().is_some() {
        return None;
    }
    WorldUsage::of(worlds, state, responding).exhausted(None)
}

/// The budget of responders, and what they have used of it.
pub(super) struct WorldUsage<'a> {
    limits: WorldBudget,
    worlds: &'a CompiledWorlds,
    state: &'a RunState,
    responding: &'a Responding,
}

/// A world frame that would come next.
#[derive(Clone, Copy)]
pub(super) struct NextEvent<'a> {
    /// The causes of the frame.
    pub(super) causes: &'a [Cause],
    /// True if it asks a model, which costs something.
    pub(super) asks: bool,
}

impl<'a> WorldUsage<'a> {
    /// Of a run that loads these worlds, with their limits unless people raised them.
    pub(super) fn of(
        worlds: &'a CompiledWorlds,
        state: &'a RunState,
        responding: &'a Responding,
    ) -> Self {
        Self {
            limits: responding.budget(worlds.budget),
            worlds,
            state,
            responding,
        }
    }

    /// `budget.exhausted` where a limit is exceeded, or would be by one more event; an exact fit
    /// exceeds nothing. A model is not asked once the recorded cost has reached its limit, as under
    /// the budget of a workflow (decision F4).
    pub(super) fn exhausted(&self, next: Option<NextEvent<'_>>) -> Option<Vec<Draft>> {
        let (limits, activity) = (self.limits, self.responding.activity());
        let depth = next.map(|next| activity.depth_below(next.causes));
        let events = activity.events() + u64::from(next.is_some());
        let deepest = activity.deepest().max(depth).unwrap_or_default();
        let cost = self.state.spend().cost_micro_usd;
        let max_cost = limits.max_llm_cost_micro_usd;
        let asks = next.is_some_and(|next| next.asks) || self.responding.is_call_refused();
        let is_time_up = self.responding.is_time_up();
        let over_events = events > limits.max_events;
        let over_depth = deepest > limits.max_recursion_depth;
        let over_cost = cost > max_cost || (asks && cost == max_cost);
        if !(over_events || over_depth || over_cost || is_time_up) {
            return None;
        }
        let elapsed_ms = self.responding.used_ms();
        // The timer may be late; its limit is reached all the same.
        let over_time = is_time_up || elapsed_ms >= limits.max_wall_ms;
        let reached = [
            (over_events, MAX_EVENTS_LIMIT, limits.max_events),
            (
                over_depth,
                MAX_DEPTH_LIMIT,
                limits.max_recursion_depth.into(),
            ),
            (over_cost, MAX_COST_LIMIT, max_cost),
            (over_time, MAX_TIME_LIMIT, limits.max_wall_ms),
        ];
        let reached = reached.into_iter().filter(|(reached, ..)| *reached);
        let event = WorldEvent::BudgetExhausted(WorldBudgetExhausted {
            cost_micro_usd: cost,
            depth: depth.unwrap_or(deepest),
            dropped: Dropped {
                outputs: dropped_outputs(self.worlds, self.responding),
                timers: self.responding.timer_count() as u64,
                triggers: self.responding.queued_triggers(),
            },
            elapsed_ms,
            event_count: activity.events(),
            reasons: reached
                .map(|(_, name, limit)| limit_text(name, limit))
                .collect(),
        });
        let started = self.state.scope(0).and_then(|root| root.started);
        let last = activity.last().or(started);
        let mut unit = DecisionBatch::new(self.state, "");
        unit.push(Event::World(event), last.into_iter().collect());
        Some(unit.drafts)
    }
}

/// The number of outputs that the end of a budget would drop: what is left to make of the trigger
/// under way, at the most, and what responders are to ask or run and have not begun.
pub fn dropped_outputs(worlds: &CompiledWorlds, responding: &Responding) -> u64 {
    let current = responding.current();
    let reacts = current.and_then(|(trigger, _)| match &trigger.subject {
        TriggerSubject::Reply { task, .. } => worlds.responder(&task.responder),
        TriggerSubject::Object { .. } | TriggerSubject::Relation(_) | TriggerSubject::Posted(_) => {
            None
        }
    });
    let then = reacts.map_or(0, |(_, responder)| responder.then.len());
    let then = u32::try_from(then).unwrap_or(u32::MAX);
    let left = responding.firing().map_or(0, |firing| firing.left(then));
    let tasks = responding.tasks();
    let waiting = tasks.filter(|task| task.phase == ResponderTaskPhase::Waiting);
    left.saturating_add(waiting.count() as u64)
}

/// `NAME=LIMIT`, in the units of world files.
pub(crate) fn limit_text(name: &str, limit: u64) -> String {
    let (unit, digits) = match name {
        MAX_COST_LIMIT => (1_000_000, 6),
        MAX_TIME_LIMIT => (1_000, 3),
        _ => return format!("{name}={limit}"),
    };
    let text = format!("{}.{:0digits$}", limit / unit, limit % unit);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{name}={text}")
}

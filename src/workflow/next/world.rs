//! What responders make of what happened, in runs that load worlds (seed 002).

use ktsu_ledger::event::{
    Dropped, KitLoaded, LoadedWorld, WorkerEvent, WorldBudgetExhausted, WorldEvent,
};
use ktsu_ledger::{Draft, Event};
use ktsu_projections::run::{RunState, RunStatus};
use ktsu_projections::world::Responding;
use ktsu_projections::world::activity::{is_address, is_world_event};
use ktsu_projections::world::responding::Firing;
use serde_json::Value;

use super::{DecisionBatch, Memo};
use crate::definition::{CompiledWorlds, Definition};
use crate::respond::{RespondContext, Response, next};
use crate::rules::DecisionRules;

/// The next frame of the run's responders, with what belongs to it; nothing if they have seen
/// everything.
pub(super) fn respond(
    definition: &Definition,
    state: &RunState,
    memo: &Memo,
) -> Option<Vec<Draft>> {
    let responding = state.responding()?;
    let worlds = definition.worlds()?;
    let root = state.scope(0)?;
    if root.status != RunStatus::Running {
        return None;
    }
    if !responding.is_loaded() {
        return Some(loaded(worlds, state, root.started?));
    }
    let created = state.created();
    let params = created.params.to_value();
    let context = RespondContext {
        worlds,
        goal: params.get("goal").and_then(Value::as_str),
        params: &created.params,
        env: &created.env,
        rules: DecisionRules::of(state),
    };
    let mut memo = memo.responders.borrow_mut();
    memo.at(state.next_seq());
    match next(context, responding, &mut memo)? {
        Response::Frame(draft) => Some(match exhausted(worlds, state, responding, Some(&draft)) {
            Some(exhausted) => exhausted,
            None => vec![*draft],
        }),
        Response::Failed(draft) => Some(vec![*draft]),
        Response::Rejected(drafts) => Some(Vec::from(*drafts)),
        // No run loads worlds that ask or run anything: `admit::invocation` refuses them.
        Response::Announce(_) => None,
    }
}

/// The hash of the world that the end of a run names; nothing at the end of a child, and where no
/// worlds are loaded.
pub(super) fn world_hash(state: &RunState, scope: &str) -> Option<String> {
    let responding = state.responding().filter(|_| scope.is_empty())?;
    Some(responding.head().hash())
}

/// `kit.loaded`.
fn loaded(worlds: &CompiledWorlds, state: &RunState, started: u64) -> Vec<Draft> {
    let loaded = worlds.worlds().iter().map(|(path, world)| LoadedWorld {
        name: world.name.clone(),
        path: path.clone(),
        version: world.version.clone(),
    });
    let mut unit = DecisionBatch::new(state, "");
    let event = WorldEvent::Loaded(KitLoaded {
        worlds: loaded.collect(),
    });
    unit.push(Event::World(event), vec![started]);
    unit.drafts
}

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
    exhausted(worlds, state, responding, None)
}

/// `budget.exhausted` in the place of what would exceed a limit; an exact fit does not. Without a
/// next frame, if a limit is exceeded already. It names every limit that is reached.
///
/// What starts a call of a model is refused once the recorded cost has reached its limit, as it is
/// under the budget of a workflow (decision F4).
fn exhausted(
    worlds: &CompiledWorlds,
    state: &RunState,
    responding: &Responding,
    next: Option<&Draft>,
) -> Option<Vec<Draft>> {
    let counts = next.is_some_and(|next| is_world_event(&next.event, &next.scope));
    let calls = next.is_some_and(starts_call);
    if next.is_some() && !counts && !calls {
        return None;
    }
    let budget = responding.budget(worlds.budget);
    let activity = responding.activity();
    let events = activity.events() + u64::from(counts);
    let depth = match next {
        Some(next) => activity.depth_below(&next.cause),
        None => activity.deepest().unwrap_or_default(),
    };
    let cost = state.spend().cost_micro_usd;
    let elapsed_ms = responding.used_ms();
    let is_over = [
        events > budget.max_events,
        depth > budget.max_recursion_depth,
        cost > budget.max_llm_cost_micro_usd || (calls && cost == budget.max_llm_cost_micro_usd),
        responding.is_time_up(),
    ];
    if is_over == [false; 4] {
        return None;
    }
    // The timer may be late; its limit is reached all the same.
    let reached = [
        is_over[0],
        is_over[1],
        is_over[2],
        is_over[3] || elapsed_ms >= budget.max_wall_ms,
    ];
    let limits = [
        (MAX_EVENTS_LIMIT, budget.max_events),
        (MAX_DEPTH_LIMIT, budget.max_recursion_depth.into()),
        (MAX_COST_LIMIT, budget.max_llm_cost_micro_usd),
        (MAX_TIME_LIMIT, budget.max_wall_ms),
    ];
    let reasons = limits.into_iter().zip(reached);
    let reasons = reasons.filter(|(_, reached)| *reached);
    let event = WorldEvent::BudgetExhausted(WorldBudgetExhausted {
        cost_micro_usd: cost,
        depth,
        dropped: Dropped {
            outputs: responding.firing().map_or(0, Firing::left),
            triggers: responding.queued_triggers(),
        },
        elapsed_ms,
        event_count: activity.events(),
        reasons: reasons
            .map(|((name, limit), _)| limit_text(name, limit))
            .collect(),
    });
    let last = activity
        .last()
        .or(state.scope(0).and_then(|root| root.started));
    let mut unit = DecisionBatch::new(state, "");
    unit.push(Event::World(event), last.into_iter().collect());
    Some(unit.drafts)
}

/// Whether a frame announces that a responder's question goes to a model.
fn starts_call(next: &Draft) -> bool {
    matches!(&next.event, Event::Worker(WorkerEvent::Dispatched(sent)) if is_address(&sent.step))
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

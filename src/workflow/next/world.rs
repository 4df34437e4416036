//! What responders make of what happened, in runs that load worlds (seed 002).

use ktsu_ledger::event::{Dropped, KitLoaded, LoadedWorld, WorldBudgetExhausted, WorldEvent};
use ktsu_ledger::{Draft, Event};
use ktsu_projections::run::{RunState, RunStatus};
use ktsu_projections::world::Responding;
use ktsu_projections::world::activity::is_world_event;
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
        Response::Frame(draft) => Some(match exhausted(worlds, state, responding, &draft) {
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

/// `budget.exhausted` in the place of an event that would exceed a limit; an exact fit does not. It
/// names every limit that the event would exceed.
fn exhausted(
    worlds: &CompiledWorlds,
    state: &RunState,
    responding: &Responding,
    next: &Draft,
) -> Option<Vec<Draft>> {
    if !is_world_event(&next.event, &next.scope) {
        return None;
    }
    let budget = responding.budget(worlds.budget);
    let activity = responding.activity();
    let depth = activity.depth_below(&next.cause);
    let mut reasons = Vec::new();
    if activity.events() >= budget.max_events {
        reasons.push(format!("max_events={}", budget.max_events));
    }
    if depth > budget.max_recursion_depth {
        reasons.push(format!(
            "max_recursion_depth={}",
            budget.max_recursion_depth
        ));
    }
    if reasons.is_empty() {
        return None;
    }
    let created = state.created();
    let event = WorldEvent::BudgetExhausted(WorldBudgetExhausted {
        cost_micro_usd: 0,
        depth,
        dropped: Dropped {
            outputs: responding.firing().map_or(0, Firing::left),
            triggers: responding.queued_triggers(),
        },
        elapsed_ms: state.at().millis_since(created.at),
        event_count: activity.events(),
        reasons,
    });
    let last = activity
        .last()
        .or(state.scope(0).and_then(|root| root.started));
    let mut unit = DecisionBatch::new(state, "");
    unit.push(Event::World(event), last.into_iter().collect());
    Some(unit.drafts)
}

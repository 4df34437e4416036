//! What responders make of what happened, in runs that load worlds (seed 002).

use ktsu_ledger::event::{KitLoaded, LoadedWorld, WorldEvent};
use ktsu_ledger::{Draft, Event};
use ktsu_projections::run::{RunState, RunStatus};
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
        Response::Frame(draft) | Response::Failed(draft) => Some(vec![*draft]),
        Response::Rejected(drafts) => Some(Vec::from(*drafts)),
        // No run loads worlds that ask or run anything: `admit::invocation` refuses them.
        Response::Announce(_) => None,
    }
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

//! The decisions of responders about what happened, in runs that load worlds (seed 002).

use std::sync::Arc;

use ktsu_ledger::event::{KitLoaded, LoadedWorld, TaskKind, WorldEvent};
use ktsu_ledger::{Cause, Draft, Event};
use ktsu_projections::run::{RunState, RunStatus};
use ktsu_projections::world::activity::is_world_event;
use ktsu_projections::world::{Responding, Trigger, TriggerSubject};

use super::budget::{NextEvent, WorldUsage};
use super::{DecisionBatch, Memo, ask};
use crate::definition::{CompiledWorlds, Definition};
use crate::respond::{Response, next};

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
    let usage = WorldUsage::of(worlds, state, responding);
    let response = ask::with_context(definition, state, memo, |context| {
        let mut memo = memo.responders.borrow_mut();
        memo.at(state.next_seq());
        next(context, responding, &mut memo)
    })??;
    let checked = |drafts: Vec<Draft>| {
        let reacts = drafts.first().and_then(|draft| draft.cause.first());
        let check = reply(responding, reacts)
            .and_then(|trigger| ask::check_reply(definition, state, &trigger));
        Some(check.unwrap_or(drafts))
    };
    match response {
        Response::Frame(draft) if is_world_event(&draft.event, &draft.scope) => {
            let exhausted = usage.exhausted(Some(NextEvent {
                causes: &draft.cause,
                asks: false,
            }));
            exhausted.or_else(|| checked(vec![*draft]))
        }
        Response::Frame(draft) | Response::Failed(draft) => checked(vec![*draft]),
        Response::Rejected(drafts) => checked(Vec::from(*drafts)),
        Response::Announce(task) => {
            // The request of a question counts; what a workflow does counts where it ends.
            let causes = [Cause::Here(task.trigger.seq)];
            let request = NextEvent {
                causes: &causes,
                asks: true,
            };
            let counts = task.kind == TaskKind::Ask;
            let exhausted = usage.exhausted(counts.then_some(request));
            exhausted.or_else(|| ask::announce(definition, state, memo, &task))
        }
    }
}

/// The trigger at the cursor or behind it, if a decision is a reaction to it and it is the end of
/// what a responder asked or ran.
fn reply(responding: &Responding, cause: Option<&Cause>) -> Option<Arc<Trigger>> {
    let is_reply = |trigger: &Arc<Trigger>| {
        let about = cause == Some(&Cause::Here(trigger.seq));
        about && matches!(trigger.subject, TriggerSubject::Reply { .. })
    };
    let (current, _) = responding.current()?;
    if cause == Some(&Cause::Here(current.seq)) {
        return Some(Arc::clone(current)).filter(is_reply);
    }
    let (next, _) = responding.after_current()?;
    Some(next).filter(is_reply)
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

//! Requests that an earlier reply of the run answers.

use ktsu_ledger::event::AgentEvent;
use ktsu_ledger::{Draft, Event};
use ktsu_projections::run::RunState;

use super::DecisionBatch;

/// The reply that is repeated to a request. It comes before everything else, so that it stands in the
/// turn of its request: the runtime learns of it from the answer to its report.
pub(super) fn repeat(state: &RunState) -> Option<Vec<Draft>> {
    let (at, call, reply) = state.reply_due()?;
    let scope = state.scope_of(at.step)?;
    let step = state.step_id(at.step)?;
    let attempt = state.task(at.step, at.item)?.attempt;
    let response = reply.repeated(call, (step, at.item), attempt);
    let mut unit = DecisionBatch::new(state, &scope.path);
    let event = AgentEvent::Response(Box::new(response));
    unit.push(Event::Agent(event), vec![call.seq]);
    Some(unit.drafts)
}

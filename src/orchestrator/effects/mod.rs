//! What leaves the process. An effect starts once its announcement is durable; its answer comes
//! back to the run's mailbox, and enters as an input.

mod agent;
mod secrets;
mod servers;
mod webhook;

use std::sync::Arc;

use ktsu_ledger::Timestamp;
use ktsu_projections::run::RunState;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::Shared;
use super::run::Message;
pub(super) use agent::{recorded, watch};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::Memo;

/// A step, or an item of it, whose effect is announced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Position among the run's scopes.
    pub(super) scope: u32,
    /// Position among the scope's steps.
    pub(super) step: u32,
    /// The item of a fan-out.
    pub(super) item: Option<u32>,
    /// Of a notice: the frame that asks people.
    pub(super) approval: Option<u64>,
}

impl Place {
    /// A whole step.
    pub(super) fn step(scope: u32, step: u32) -> Self {
        Self {
            scope,
            step,
            item: None,
            approval: None,
        }
    }

    /// The place of a step by path.
    pub(super) fn find(
        state: &RunState,
        scope: &str,
        step: &str,
        item: Option<u32>,
    ) -> Option<Self> {
        let scope = state.scope_at(scope)?;
        let step = state.scope(scope)?.shape.position(step)?;
        Some(Self {
            scope,
            step,
            item,
            approval: None,
        })
    }
}

/// Starts effects. The values they need are built here, for this use (DESIGN 1). Gives a handle on each
/// webhook, by which it can be broken off.
pub(super) fn start(
    shared: &Arc<Shared>,
    state: &RunState,
    definition: &Definition,
    (places, now): (&[Place], Timestamp),
    mailbox: &mpsc::Sender<Box<Message>>,
) -> Vec<AbortHandle> {
    let (mut tasks, mut webhooks) = (Vec::new(), Vec::new());
    let memo = Memo::default();
    for place in places {
        if let Some(sending) = webhook::prepare(shared, state, definition, *place) {
            let shared = Arc::clone(shared);
            let mailbox = mailbox.clone();
            let sending = tokio::spawn(async move {
                let answer = sending.send(&shared).await;
                // The run may have ended meanwhile; then nobody waits for the answer.
                let _ = mailbox.send(Box::new(Message::Answer(answer))).await;
            });
            webhooks.push(sending.abort_handle());
        } else if let Some(task) = agent::prepare(shared, state, definition, &memo, (*place, now)) {
            agent::watch(shared, state, *place, mailbox);
            tasks.push(task);
        }
    }
    agent::send_all(shared, state, tasks, mailbox);
    webhooks
}

//! What leaves the process. An effect starts once its announcement is durable; its answer comes
//! back to the run's mailbox, and enters as an input.

mod webhook;

use std::sync::Arc;

use ktsu_projections::run::RunState;
use tokio::sync::mpsc;

use super::Shared;
use crate::workflow::admit::Answer;
use crate::workflow::definition::Definition;

/// A step whose effect is announced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Position among the run's scopes.
    pub(super) scope: u32,
    /// Position among the scope's steps.
    pub(super) step: u32,
}

impl Place {
    /// The place of a step by path.
    pub(super) fn find(state: &RunState, scope: &str, step: &str) -> Option<Self> {
        let scope = state.scope_at(scope)?;
        let step = state.scope(scope)?.shape.position(step)?;
        Some(Self { scope, step })
    }
}

/// Starts an effect. The values it needs are built here, for this use (DESIGN 1).
pub(super) fn start(
    shared: &Arc<Shared>,
    state: &RunState,
    definition: &Definition,
    place: Place,
    mailbox: &mpsc::Sender<Box<Answer>>,
) {
    let Some(sending) = webhook::prepare(shared, state, definition, place) else {
        return;
    };
    let shared = Arc::clone(shared);
    let mailbox = mailbox.clone();
    tokio::spawn(async move {
        let answer = sending.send(&shared).await;
        // The run may have ended meanwhile; then nobody waits for the answer.
        let _ = mailbox.send(Box::new(answer)).await;
    });
}

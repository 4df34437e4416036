//! Everything that leaves the process. An effect starts once its announcement is durable; its
//! result arrives in the run's mailbox and becomes an input.

mod agent;
mod secrets;
mod servers;
mod webhook;

use std::sync::Arc;

use ktsu_ledger::Timestamp;
use ktsu_projections::run::{RunState, TaskId};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::run::Message;
use super::{Shared, recompute};
pub(super) use agent::watch;
use ktsu_workflow::definition::Definition;
use ktsu_workflow::effects::{Effect, EffectKind};
use ktsu_workflow::next::Memo;

/// Returns `true` if an effect of a run may start before its announcement is durable: the task of
/// an agent without tool servers, where the runtime is in this process and ends with it. The first
/// thing such a task does is to report its request, and nothing leaves the process before that
/// report is durable, and the dispatch with it.
pub(super) fn may_start_early(shared: &Shared, state: &RunState, effect: &Effect) -> bool {
    let EffectKind::Task(at) = effect.kind else {
        return false;
    };
    let task = state.task(at.step, at.item);
    shared.peers.runtime_here.is_some()
        && task.is_some_and(|task| task.attempt == 1)
        && state.servers(at.step).is_empty()
}

/// Starts effects that are due. The values they need are built here, for this use (DESIGN 1). Gives
/// a handle on each webhook, by which it can be broken off.
pub(super) fn start(
    shared: &Arc<Shared>,
    state: &RunState,
    definition: &Definition,
    memo: &Memo,
    (due, now): (&[Effect], Timestamp),
    mailbox: &mpsc::Sender<Box<Message>>,
) -> Vec<AbortHandle> {
    let (mut tasks, mut webhooks) = (Vec::new(), Vec::new());
    let request = |at: TaskId, about: Option<u64>| {
        let sending = webhook::prepare(shared, state, definition, (at, about))?;
        let (shared, mailbox) = (Arc::clone(shared), mailbox.clone());
        let sending = tokio::spawn(async move {
            let answer = sending.send(&shared).await;
            // Fails if the run has ended meanwhile.
            let _ = mailbox.send(Box::new(Message::Answer(answer))).await;
        });
        Some(sending.abort_handle())
    };
    for effect in due {
        match effect.kind {
            EffectKind::Webhook(at) => webhooks.extend(request(at, None)),
            EffectKind::Notice(notice) => {
                webhooks.extend(request(TaskId::step(notice.webhook), Some(notice.request)));
            }
            EffectKind::Task(at) => {
                let task = agent::prepare(shared, state, definition, memo, (at, now));
                if let Some(task) = task {
                    agent::watch(shared, state, at, mailbox);
                    tasks.push(task);
                }
            }
            EffectKind::Comparison => recompute::compare(shared, state, mailbox),
        }
    }
    agent::send_all(shared, state, tasks, mailbox);
    webhooks
}

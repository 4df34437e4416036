//! Effects that were announced and have not ended.
//!
//! Updated with each frame, so that listing the effects announced since a given frame takes time in
//! proportion to the result. Which of them should be in progress is decided by the workflow.

use std::ops::RangeBounds;

use ktsu_ledger::event::WebhookEvent;

use super::notice::{Notice, NoticeStatus};
use super::{AgentTask, Phase, RunState, Step, TaskId};

/// An effect that a frame announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnnouncedEffect {
    /// `webhook.sent` of a webhook step: ended by its answer.
    Webhook(TaskId),
    /// `webhook.sent` of a notice: ended by its answer.
    Notice(Notice),
    /// `worker.dispatched`: ended when the task ends, is lost, or waits for people.
    Task(TaskId),
}

impl RunState {
    /// The effects that these frames announced and that have not ended, in that order.
    pub fn announced(
        &self,
        frames: impl RangeBounds<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, AnnouncedEffect)> {
        let open = self.announced.range(frames);
        open.map(|(seq, announced)| (*seq, *announced))
    }

    /// The frame by which a person last let the run go on; 0 if nobody had to.
    pub fn last_resumed(&self) -> u64 {
        self.resumed
    }

    pub(super) fn announce(&mut self, seq: u64, announced: AnnouncedEffect) {
        self.announced.insert(seq, announced);
    }

    /// Takes in that a webhook of a step was sent, or that a sending of it has ended.
    pub(super) fn announce_webhook(&mut self, seq: u64, at: TaskId, event: &WebhookEvent) {
        match event {
            WebhookEvent::Sent(_) => self.announce(seq, AnnouncedEffect::Webhook(at)),
            WebhookEvent::Delivered(_) | WebhookEvent::Failed(_) | WebhookEvent::Dead(_) => {
                if let Some(seq) = self.step(at.step).and_then(open_sending) {
                    self.announced.remove(&seq);
                }
            }
        }
    }

    /// Forgets the announcement of a task that no runtime has any more.
    pub(super) fn end_dispatch(&mut self, at: TaskId) {
        let task = self.task_mut(at.step, at.item);
        let ended = task.filter(|task| !task.is_live());
        if let Some(seq) = ended.and_then(|task| task.dispatched.take()) {
            self.announced.remove(&seq);
        }
    }

    /// Forgets what a step has announced: it ended, or began again.
    pub(super) fn end_announced(&mut self, step: &Step) {
        // Mostly there is nothing.
        if self.announced.is_empty() {
            return;
        }
        if let Some(seq) = open_sending(step) {
            self.announced.remove(&seq);
        }
        let tasks = step.tasks.iter().flat_map(|tasks| &tasks.list);
        for seq in tasks.filter_map(|task: &AgentTask| task.dispatched) {
            self.announced.remove(&seq);
        }
    }

    /// Forgets the announcements of notices that are no longer known.
    pub(super) fn end_forgotten_notices(&mut self) {
        let notices = &self.notices;
        self.announced.retain(|seq, announced| match announced {
            AnnouncedEffect::Notice(notice) => {
                notices.get(notice) == Some(&NoticeStatus::Sent { seq: *seq })
            }
            AnnouncedEffect::Webhook(_) | AnnouncedEffect::Task(_) => true,
        });
    }
}

/// The frame that announced the sending a step waits for.
pub(super) fn open_sending(step: &Step) -> Option<u64> {
    match step.phase {
        Phase::Sent { seq, .. } => Some(seq),
        Phase::Begun
        | Phase::Checked { .. }
        | Phase::Delivered { .. }
        | Phase::Undelivered { .. }
        | Phase::Backoff { .. }
        | Phase::ToResend { .. }
        | Phase::Child { .. } => None,
    }
}

//! Webhooks that notify people of pending calls: one for each `on: approval` step and call (`spec`
//! A11; decision S6).
//!
//! A notice is sent once, while its call is pending, and the response is recorded; whether it was
//! delivered has no effect on decisions. The step itself never runs.

use ktsu_ledger::Frame;
use ktsu_ledger::event::WebhookEvent;
use ktsu_ledger::event::plan::StepWork;

pub use super::notice::{Notice, NoticeStatus};
use super::{AnnouncedEffect, RunState, Scope, StepKey};

impl RunState {
    /// The status of a notice, if it was announced.
    pub fn notice(&self, notice: Notice) -> Option<NoticeStatus> {
        self.notices.get(&notice).copied()
    }

    /// Returns `true` if a frame about a notice may follow.
    pub(super) fn may_change_notice(&self, notice: Notice, event: &WebhookEvent) -> bool {
        match (self.notice(notice), event) {
            (None, WebhookEvent::Sent(sent)) => sent.sending == 1 && self.may_notify(notice),
            (None, WebhookEvent::Dead(dead)) => dead.sendings == 0 && self.may_notify(notice),
            (
                Some(NoticeStatus::Sent { .. }),
                WebhookEvent::Delivered(_) | WebhookEvent::Failed(_),
            ) => true,
            _ => false,
        }
    }

    /// Returns `true` if a call waits for people and a webhook speaks of it.
    fn may_notify(&self, notice: Notice) -> bool {
        let asked = self.pending_decisions();
        let mut gates = asked
            .iter()
            .filter(|asked| asked.call.state.gate().is_some());
        let asked = gates.find(|asked| asked.request == notice.request);
        asked.is_some_and(|asked| {
            let mut webhooks = self.notifiers(asked.at.step);
            webhooks.any(|one| one == notice.webhook)
        })
    }

    pub(super) fn take_notice(&mut self, frame: &Frame, notice: Notice, event: &WebhookEvent) {
        match event {
            WebhookEvent::Sent(_) => {
                let seq = frame.seq;
                self.notices.insert(notice, NoticeStatus::Sent { seq });
                self.announce(seq, AnnouncedEffect::Notice(notice));
            }
            WebhookEvent::Delivered(_) | WebhookEvent::Failed(_) | WebhookEvent::Dead(_) => {
                let before = self.notices.insert(notice, NoticeStatus::Ended);
                if let Some(NoticeStatus::Sent { seq }) = before {
                    self.announced.remove(&seq);
                }
            }
        }
    }

    /// Drops the notices of requests that no longer wait.
    pub(super) fn forget_notices(&mut self) {
        let asked: Vec<u64> = self
            .pending_decisions()
            .iter()
            .map(|asked| asked.request)
            .collect();
        self.notices
            .retain(|notice, _| asked.contains(&notice.request));
        self.end_forgotten_notices();
    }

    /// The webhooks that speak of a step's calls: those that depend on it, and those that depend on
    /// nothing.
    pub fn notifiers(&self, at: StepKey) -> impl Iterator<Item = StepKey> {
        let speaking = |scope: &&Scope| scope.webhooks && !self.suppresses_effects();
        let held = self.scope_of(at).filter(speaking).into_iter();
        let steps = held.flat_map(|held| (0u32..).zip(&held.shape.plan.steps));
        let speak = steps.filter(move |(_, plan)| {
            let of = at.position().is_some_and(|step| plan.needs.contains(&step));
            let about = plan.needs.is_empty() || of;
            about && matches!(&plan.work, StepWork::Webhook(webhook) if webhook.on_approval)
        });
        speak.map(move |(step, _)| StepKey::of(at.scope(), step))
    }
}

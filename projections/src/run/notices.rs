//! Webhooks that tell people what waits for them: one for each `on: approval` step and call (`spec`
//! A11; decision S6).
//!
//! A notice is due once a call waits, is sent once, and its answer is recorded; whether it reached
//! anybody decides nothing. The step itself never runs.

use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::Work;
use ktsu_ledger::event::{AgentEvent, WebhookEvent};

use super::{Announced, RunState};

/// A notice, by what it is about: the frame that asks, then scope and step of the webhook.
pub type Notice = (u64, u32, u32);

/// How far a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It is to be announced.
    Due,
    /// It is announced, and not answered.
    Sent {
        /// The `webhook.sent`.
        seq: u64,
    },
}

impl RunState {
    /// The first notice that is to be announced.
    pub fn notice_due(&self) -> Option<Notice> {
        let mut due = self.notices.iter().filter(|(_, told)| **told == Told::Due);
        due.next().map(|(notice, _)| *notice)
    }

    /// How far a notice is.
    pub fn notice(&self, notice: Notice) -> Option<Told> {
        self.notices.get(&notice).copied()
    }

    /// Whether a frame about a notice may follow.
    pub(super) fn notice_may(&self, notice: Notice, event: &WebhookEvent) -> bool {
        match (self.notice(notice), event) {
            (Some(Told::Due), WebhookEvent::Sent(sent)) => sent.sending == 1,
            (Some(Told::Due), WebhookEvent::Dead(dead)) => dead.sendings == 0,
            (Some(Told::Sent { .. }), WebhookEvent::Delivered(_) | WebhookEvent::Failed(_)) => true,
            _ => false,
        }
    }

    pub(super) fn take_notice(&mut self, frame: &Frame, notice: Notice, event: &WebhookEvent) {
        match event {
            WebhookEvent::Sent(_) => {
                let seq = frame.seq;
                self.notices.insert(notice, Told::Sent { seq });
                self.announce(seq, Announced::Notice(notice));
            }
            WebhookEvent::Delivered(_) | WebhookEvent::Failed(_) | WebhookEvent::Dead(_) => {
                if let Some(Told::Sent { seq }) = self.notices.remove(&notice) {
                    self.announced.remove(&seq);
                }
            }
        }
    }

    /// What people are to be told after a frame about an agent, and what no more.
    pub(super) fn note_waits(&mut self, frame: &Frame, scope: u32, at: u32, event: &AgentEvent) {
        match event {
            AgentEvent::ApprovalRequested(_) => {
                for step in self.tellers(scope, at) {
                    self.notices.insert((frame.seq, scope, step), Told::Due);
                }
            }
            AgentEvent::ApprovalDecided(_)
            | AgentEvent::ApprovalExpired(_)
            | AgentEvent::Finished(_)
                if !self.notices.is_empty() =>
            {
                let asked: Vec<u64> = self.asked().iter().map(|asked| asked.request).collect();
                let waits = |notice: &Notice| asked.contains(&notice.0);
                self.notices
                    .retain(|notice, told| *told != Told::Due || waits(notice));
            }
            AgentEvent::Request(_)
            | AgentEvent::Response(_)
            | AgentEvent::Decided(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::BudgetExhausted(_)
            | AgentEvent::ToolCalled(_)
            | AgentEvent::ToolReturned(_)
            | AgentEvent::ToolInDoubt(_)
            | AgentEvent::ApprovalDecided(_)
            | AgentEvent::ApprovalExpired(_)
            | AgentEvent::Finished(_) => {}
        }
    }

    /// Nobody is told any more of what does not wait.
    pub(super) fn forget_notices(&mut self) {
        let asked: Vec<u64> = self.asked().iter().map(|asked| asked.request).collect();
        self.notices.retain(|notice, _| asked.contains(&notice.0));
        self.end_forgotten_notices();
    }

    /// The webhooks that speak of a step's calls: those that depend on it, and those that depend on
    /// nothing.
    fn tellers(&self, scope: u32, at: u32) -> Vec<u32> {
        let Some(held) = self.scope(scope) else {
            return Vec::new();
        };
        if !held.webhooks || self.suppresses_effects() {
            return Vec::new();
        }
        let tells = |plan: &ktsu_ledger::event::plan::StepPlan| {
            let about = plan.needs.is_empty() || plan.needs.contains(&at);
            about && matches!(&plan.work, Work::Webhook(webhook) if webhook.on_approval)
        };
        let steps = (0u32..).zip(&held.shape.plan.steps);
        steps
            .filter(|(_, plan)| tells(plan))
            .map(|(step, _)| step)
            .collect()
    }
}

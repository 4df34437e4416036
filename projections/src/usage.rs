//! What a run used: calls, tokens, cost, time. Sums only, so the order of frames does not matter.

use ktsu_ledger::event::WebhookEvent;
use ktsu_ledger::{Event, Frame, Timestamp};
use serde::Serialize;

/// What a step or a run used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Cost in millionths of a US dollar (decision E3).
    pub cost_micro_usd: u64,
    /// From the first frame to the last, in milliseconds.
    pub duration_ms: u64,
    /// Model calls.
    pub llm_calls: u64,
    /// Tokens sent to models.
    pub tokens_in: u64,
    /// Tokens received from models.
    pub tokens_out: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Webhook sendings.
    pub webhook_calls: u64,
    #[serde(skip)]
    first: Option<Timestamp>,
}

impl Usage {
    /// Takes a frame.
    pub fn apply(&mut self, frame: &Frame) {
        let first = *self.first.get_or_insert(frame.at);
        self.duration_ms = self.duration_ms.max(frame.at.millis_since(first));
        match &frame.event {
            Event::Webhook(WebhookEvent::Sent(_)) => self.webhook_calls += 1,
            Event::Run(_)
            | Event::Step(_)
            | Event::Webhook(_)
            | Event::Store(_)
            | Event::Foreign { .. } => {}
        }
    }
}

//! The usage of a run: calls, tokens, cost, time. Sums only, so the order of frames does not
//! matter.

use ktsu_ledger::event::{AgentEvent, CallUsage, Purpose, WebhookEvent};
use ktsu_ledger::{Event, Frame};
use serde::Serialize;

use crate::used_time::UsedTime;

/// The usage of a step or a run so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Model calls that an earlier reply of the run answered; among [`Usage::llm_calls`] too.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub cached_calls: u64,
    /// Cost in millionths of a US dollar (decision E3).
    pub cost_micro_usd: u64,
    /// From the first frame to the last, in milliseconds.
    pub duration_ms: u64,
    /// Model calls.
    pub llm_calls: u64,
    /// Model calls that put a draft right; among [`Usage::llm_calls`] too.
    pub repair_calls: u64,
    /// Model calls that looked at a draft once more; among [`Usage::llm_calls`] too.
    pub reflect_calls: u64,
    /// The original cost of the replies that were repeated, in millionths of a US dollar.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub saved_micro_usd: u64,
    /// Tokens sent to models, for the replies that were repeated.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub saved_tokens_in: u64,
    /// Tokens received from models, for the replies that were repeated.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub saved_tokens_out: u64,
    /// Tokens sent to models.
    pub tokens_in: u64,
    /// Tokens received from models.
    pub tokens_out: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Webhook sendings.
    pub webhook_calls: u64,
    #[serde(skip)]
    time: UsedTime,
}

impl Usage {
    /// Takes a frame. `still`: whether only people could move what this is about until then.
    pub fn apply(&mut self, frame: &Frame, still: bool) {
        self.time.apply(frame, still);
        self.duration_ms = self.time.millis();
        if let Event::Webhook(WebhookEvent::Sent(_)) = &frame.event {
            self.webhook_calls += 1;
        } else if let Event::Agent(event) = &frame.event {
            self.apply_agent(event);
        }
    }

    /// Leaves out milliseconds before the last frame that was taken, or after it.
    pub fn leave_out(&mut self, ms: u64, taken: bool) {
        self.time.leave_out(ms, taken);
        self.duration_ms = self.time.millis();
    }

    /// The time in which only people could move it, in milliseconds.
    pub fn waited_ms(&self) -> u64 {
        self.time.waited_ms()
    }

    fn apply_saved(&mut self, saved: &CallUsage) {
        self.cached_calls += 1;
        self.saved_micro_usd = self.saved_micro_usd.saturating_add(saved.cost_micro_usd);
        self.saved_tokens_in = self.saved_tokens_in.saturating_add(saved.tokens_in);
        self.saved_tokens_out = self.saved_tokens_out.saturating_add(saved.tokens_out);
    }

    /// A call counts once, when it is asked for; its tokens and cost when it is answered. A runtime
    /// that reports only its end is believed.
    fn apply_agent(&mut self, event: &AgentEvent) {
        if let AgentEvent::Request(request) = event {
            self.llm_calls += 1;
            self.repair_calls += u64::from(request.purpose == Purpose::Repair);
            self.reflect_calls += u64::from(request.purpose == Purpose::Reflect);
        } else if let AgentEvent::Response(response) = event {
            self.tokens_in = self.tokens_in.saturating_add(response.tokens_in);
            self.tokens_out = self.tokens_out.saturating_add(response.tokens_out);
            self.cost_micro_usd = self.cost_micro_usd.saturating_add(response.cost_micro_usd);
            if let Some(saved) = &response.saved {
                self.apply_saved(saved);
            }
        } else if let AgentEvent::Finished(finished) = event
            && let Some(claimed) = &finished.metrics
        {
            self.llm_calls = self.llm_calls.saturating_add(claimed.llm_calls);
            self.reflect_calls = self.reflect_calls.saturating_add(claimed.reflect_calls);
            self.tool_calls = self.tool_calls.saturating_add(claimed.tool_calls);
            self.tokens_in = self.tokens_in.saturating_add(claimed.tokens_in);
            self.tokens_out = self.tokens_out.saturating_add(claimed.tokens_out);
            self.cost_micro_usd = self.cost_micro_usd.saturating_add(claimed.cost_micro_usd);
        } else if let AgentEvent::ToolCalled(called) = event {
            // One that is sent again is still the same call.
            self.tool_calls += u64::from(called.again.is_none());
        }
    }
}

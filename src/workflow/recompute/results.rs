//! The recorded tool calls of one task: the results that answer the same calls of a recompute, and,
//! in a recompute, the calls that nothing answered.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::ServerPlan;
use ktsu_ledger::event::{AgentEvent, RecordedAt, RecordedResult, UnsentReason};
use ktsu_ledger::{CanonicalJson, Frame};
use ktsu_projections::calls::CallHistory;
use ktsu_projections::life::recorded_results::target;

use crate::admit::tools::is_withheld;

/// The calls of a task, as far as they matter to a recompute.
#[derive(Debug, Clone, Default)]
pub struct RecordedCalls {
    /// The results of those that a recompute does not send, by the reply that asks for them and the
    /// index there. The recompute fills in step and item.
    results: BTreeMap<(u64, u32), RecordedResult>,
    /// Of a recompute: the model's names for the tools whose calls nothing answered.
    pub unanswered: Vec<String>,
    /// The tools the model was offered last.
    offered: Option<CanonicalJson>,
    history: CallHistory,
}

impl RecordedCalls {
    /// The results of those that a recompute does not send, in the order in which the calls were
    /// asked for.
    pub fn results(&self) -> impl Iterator<Item = &RecordedResult> {
        self.results.values()
    }

    /// Applies a frame of the task. `servers` are those of its agent.
    pub(super) fn apply(&mut self, frame: &Frame, event: &AgentEvent, servers: &[ServerPlan]) {
        if let AgentEvent::Request(request) = event {
            self.offered = request.tools.clone().or(self.offered.take());
        }
        let record = self.history.apply(frame);
        let (Some(record), AgentEvent::ToolReturned(returned)) = (record, event) else {
            return;
        };
        let call = &record.call;
        if returned.not_sent == Some(UnsentReason::SuppressedInBranch)
            && returned.recorded.is_none()
        {
            self.unanswered.push(call.name.clone());
        }
        // A call with a secret is recorded with arguments that were never meant to be sent.
        if call.secret {
            return;
        }
        let offered = || target(self.offered.as_ref()?, &call.name);
        let Some((server, tool)) = record.target.clone().or_else(offered) else {
            return;
        };
        let mut servers = servers.iter();
        if !servers.any(|plan| plan.name == server && is_withheld(plan, &tool)) {
            return;
        }
        let result = RecordedResult {
            content: returned.content.clone(),
            digest: call.digest.clone(),
            is_error: returned.is_error,
            item: 0,
            not_sent: returned.not_sent,
            recorded: RecordedAt {
                seq: frame.seq,
                server,
                stream: frame.stream.to_string(),
                tool,
            },
            step: String::new(),
            structured: returned.structured.clone(),
        };
        self.results.insert(record.key, result);
    }
}

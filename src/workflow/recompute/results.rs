//! What is recorded of the calls of one task: the results that answer the same calls of a recompute,
//! and, in a recompute, the calls that nothing answered.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::ServerPlan;
use ktsu_ledger::event::{AgentEvent, RecordedAt, RecordedResult, ToolReturned, UnsentReason};
use ktsu_ledger::{CanonicalJson, Frame, Hash};
use ktsu_projections::run::recorded_results::target;
use serde_json::Value;

use crate::admit::tools::is_withheld;

/// The calls of a task, as far as they matter to a recompute.
#[derive(Debug, Clone, Default)]
pub struct RecordedCalls {
    /// What came of those that a recompute does not send, by the reply that asked for them and the
    /// place in it. Step and item are the recompute's to say.
    results: BTreeMap<(u64, u32), RecordedResult>,
    /// Of a recompute: the tools whose calls nothing answered, as its model calls them.
    pub unanswered: Vec<String>,
    /// The tools the model was told of last.
    offered: Option<CanonicalJson>,
    /// The replies that asked for tools.
    asked: BTreeMap<u64, Value>,
    /// Whose tool a call is, by reply and place.
    targets: BTreeMap<(u64, u32), (String, String)>,
}

impl RecordedCalls {
    /// What came of those that a recompute does not send, in the order in which they were asked for.
    pub fn results(&self) -> impl Iterator<Item = &RecordedResult> {
        self.results.values()
    }

    /// Takes a frame of the task. `servers` are those of its agent.
    pub(super) fn take(&mut self, frame: &Frame, event: &AgentEvent, servers: &[ServerPlan]) {
        match event {
            AgentEvent::Request(request) => {
                self.offered = request.tools.clone().or(self.offered.take());
            }
            AgentEvent::Response(answer) => {
                let calls = answer.tool_calls.as_ref().map(CanonicalJson::to_value);
                self.asked.extend(calls.map(|calls| (frame.seq, calls)));
            }
            AgentEvent::ToolCalled(called) => {
                let target = (called.server.clone(), called.tool.clone());
                self.targets.insert((called.response, called.call), target);
            }
            AgentEvent::ApprovalRequested(asked) => {
                let target = (asked.server.clone(), asked.tool.clone());
                self.targets.insert((asked.response, asked.call), target);
            }
            AgentEvent::ToolReturned(returned) => self.returned(frame, returned, servers),
            AgentEvent::Decided(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::BudgetExhausted(_)
            | AgentEvent::ToolInDoubt(_)
            | AgentEvent::ApprovalDecided(_)
            | AgentEvent::ApprovalExpired(_)
            | AgentEvent::Finished(_) => {}
        }
    }

    fn returned(&mut self, frame: &Frame, returned: &ToolReturned, servers: &[ServerPlan]) {
        let asked = self.asked.get(&returned.response);
        let Some(call) = asked.and_then(|calls| calls.get(returned.call as usize)) else {
            return;
        };
        let name = call["name"].as_str().unwrap_or_default();
        if returned.not_sent == Some(UnsentReason::SuppressedInBranch)
            && returned.recorded.is_none()
        {
            self.unanswered.push(name.to_owned());
        }
        // One with a secret in it is known by arguments that were never meant to be sent.
        if call["secret"] == Value::Bool(true) {
            return;
        }
        let place = (returned.response, returned.call);
        let known = self.targets.get(&place).cloned();
        let known = known.or_else(|| target(self.offered.as_ref()?, name));
        let Some((server, tool)) = known else { return };
        let mut servers = servers.iter();
        if !servers.any(|one| one.name == server && is_withheld(one, &tool)) {
            return;
        }
        let arguments = CanonicalJson::from_value(&call["arguments"]).unwrap_or_default();
        let result = RecordedResult {
            content: returned.content.clone(),
            digest: Hash::of(arguments.as_str().as_bytes()).to_string(),
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
        self.results.insert(place, result);
    }
}

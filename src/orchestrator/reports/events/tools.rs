//! Tool events in reports of runtimes. What the definition and the state determine (digests, keys,
//! policies) is added during validation.

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{ApprovalPolicy, OnReject};
use ktsu_ledger::event::{
    AgentEvent, ApprovalRequested, DoubtReason, Reference, ToolCalled, ToolInDoubt, ToolReturned,
    UnsentReason,
};
use serde_json::{Value, json};

use super::{ReportContext, ReportError};
use ktsu_contract::gateway::ToolCall;
use ktsu_contract::report as wire;

impl ReportContext<'_> {
    /// The tool calls of a reply. Arguments that contained a secret are marked and will not be
    /// sent.
    pub(super) fn tool_calls(
        &self,
        calls: Vec<ToolCall>,
    ) -> Result<Option<CanonicalJson>, ReportError> {
        if calls.is_empty() {
            return Ok(None);
        }
        let calls = calls.into_iter().map(|mut call| {
            let before = call.arguments.clone();
            self.redactor.redact_value(&mut call.arguments);
            let mut redacted = json!({
                "arguments": call.arguments,
                "id": self.redactor.redact_text(&call.id),
                "name": self.redactor.redact_text(&call.name),
            });
            if call.arguments != before {
                redacted["secret"] = Value::Bool(true);
            }
            redacted
        });
        self.json(calls.collect()).map(Some)
    }

    pub(super) fn called(&self, event: wire::ToolCalled) -> AgentEvent {
        AgentEvent::ToolCalled(Box::new(ToolCalled {
            again: None,
            approval: None,
            arguments: arguments(event.response, event.call),
            attempt: self.attempt,
            call: event.call,
            digest: String::new(),
            idempotency_key: String::new(),
            item: self.item,
            report: self.report.clone(),
            response: event.response,
            server: event.server,
            step: self.step.to_owned(),
            tool: event.tool,
        }))
    }

    pub(super) fn returned(&self, event: wire::ToolReturned) -> Result<AgentEvent, ReportError> {
        let not_sent = match event.not_sent.map(Value::from) {
            None => None,
            Some(word) => Some(
                serde_json::from_value::<UnsentReason>(word.clone()).map_err(|_| {
                    ReportError::Malformed(format!("{word} is no reason not to send a call"))
                })?,
            ),
        };
        let structured = event.structured.map(|value| self.json(value));
        Ok(AgentEvent::ToolReturned(Box::new(ToolReturned {
            attempt: self.attempt,
            call: event.call,
            called: None,
            content: self.json(Value::Array(event.content))?,
            duration_ms: event.duration_ms,
            is_error: event.is_error || not_sent.is_some(),
            item: self.item,
            not_sent,
            recorded: None,
            report: self.report.clone(),
            response: event.response,
            step: self.step.to_owned(),
            structured: structured.transpose()?,
        })))
    }

    pub(super) fn in_doubt(&self, event: &wire::ToolInDoubt) -> AgentEvent {
        AgentEvent::ToolInDoubt(ToolInDoubt {
            attempt: self.attempt,
            called: event.called,
            item: self.item,
            reason: DoubtReason::NoAnswer,
            report: Some(self.report.clone()),
            step: self.step.to_owned(),
        })
    }

    pub(super) fn approval_requested(&self, event: wire::ApprovalRequested) -> AgentEvent {
        AgentEvent::ApprovalRequested(Box::new(ApprovalRequested {
            arguments: arguments(event.response, event.call),
            attempt: self.attempt,
            call: event.call,
            digest: String::new(),
            item: self.item,
            policy: ApprovalPolicy {
                not_by_proposer: false,
                on_reject: OnReject::Fail,
                quorum: 1,
                timeout: None,
            },
            report: self.report.clone(),
            response: event.response,
            server: event.server,
            step: self.step.to_owned(),
            tool: event.tool,
        }))
    }
}

fn arguments(response: u64, call: u32) -> Reference {
    Reference {
        frame: response,
        path: format!("/tool_calls/{call}/arguments"),
    }
}

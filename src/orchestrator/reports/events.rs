//! The reports of a runtime, as events of its run: redacted, and in the form of frames.

mod tools;

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::{
    AgentDecided, AgentEvent, AgentFinished, CallAttempt, CallError, CallUsage, ClaimedMetrics,
    FinishReason, LlmRequest, LlmResponse, Purpose, ReportReference,
};
use serde_json::{Value, json};

use super::error::ReportError;
use ktsu_contract::gateway::{MAX_ATTEMPTS_LISTED, ModelAttempt};
use ktsu_contract::report::{self as wire, FailureDetails, TaskCompletion, TaskOutcome};
use ktsu_secret::Redactor;

/// The most characters of a tool's name in a message.
const MAX_TOOL_NAME_SHOWN: usize = 128;

/// The values that all events of a report have in common.
pub(super) struct ReportContext<'a> {
    pub(super) attempt: u32,
    pub(super) item: Option<u32>,
    pub(super) step: &'a str,
    pub(super) report: ReportReference,
    pub(super) redactor: Arc<Redactor>,
    /// The digests of how the gateway routes calls, by group, where they are known.
    pub(super) routing: Option<&'a BTreeMap<String, String>>,
}

impl ReportContext<'_> {
    /// The events of a report, in order.
    pub(super) fn events(&self, report: wire::Report) -> Result<Vec<AgentEvent>, ReportError> {
        let events = report.events.into_iter();
        events.map(|event| self.event(event)).collect()
    }

    fn event(&self, event: wire::ReportEvent) -> Result<AgentEvent, ReportError> {
        Ok(match event {
            wire::ReportEvent::Request(request) => AgentEvent::Request(LlmRequest {
                attempt: self.attempt,
                base: request.base,
                digest: String::new(),
                group: request.group.clone(),
                item: self.item,
                max_tokens: request.max_tokens,
                messages: self.json(json!(request.messages))?,
                purpose: match request.purpose {
                    wire::Purpose::Turn => Purpose::Turn,
                    wire::Purpose::Repair => Purpose::Repair,
                    wire::Purpose::Reflect => Purpose::Reflect,
                },
                report: self.report.clone(),
                // Whether an earlier reply may answer is for the run to say.
                routing: request
                    .accepts_cached
                    .then(|| self.routing?.get(&request.group).cloned())
                    .flatten(),
                step: self.step.to_owned(),
                temperature_millionths: request.temperature.map(millionths),
                tools: request
                    .tools
                    .map(|tools| self.json(json!(tools)))
                    .transpose()?,
            }),
            wire::ReportEvent::Response(answer) => {
                AgentEvent::Response(Box::new(self.response(answer)?))
            }
            wire::ReportEvent::Decided(decided) => {
                if decided
                    .draft
                    .as_ref()
                    .is_some_and(|draft| !draft.is_object())
                {
                    let words = "a draft is a JSON object";
                    return Err(ReportError::Malformed(words.to_owned()));
                }
                let draft = decided.draft.map(|draft| self.json(draft)).transpose()?;
                if draft.is_some() == decided.response.is_some() {
                    let words = "an agent.decided has a draft or names a response";
                    return Err(ReportError::Malformed(words.to_owned()));
                }
                AgentEvent::Decided(AgentDecided {
                    attempt: self.attempt,
                    draft,
                    item: self.item,
                    report: self.report.clone(),
                    response: decided.response,
                    step: self.step.to_owned(),
                })
            }
            wire::ReportEvent::ToolCalled(called) => self.called(called),
            wire::ReportEvent::ToolReturned(returned) => self.returned(returned)?,
            wire::ReportEvent::ToolInDoubt(doubt) => self.in_doubt(&doubt),
            wire::ReportEvent::ApprovalRequested(request) => self.approval_requested(request),
            wire::ReportEvent::Finished(finished) => {
                let reason: Option<FinishReason> =
                    serde_json::from_value(Value::from(finished.reason.as_str())).ok();
                let reason = reason.ok_or_else(|| {
                    ReportError::Malformed(format!("{:?} is no reason", finished.reason))
                })?;
                self.finished(reason, finished.outcome, None)?
            }
        })
    }

    pub(super) fn response(&self, answer: wire::LlmResponse) -> Result<LlmResponse, ReportError> {
        let text = |text: &str| self.redactor.redact_text(text);
        Ok(LlmResponse {
            attempt: self.attempt,
            attempts: self.attempts(answer.attempts)?,
            cached: answer.cached,
            content: answer
                .content
                .map(|content| CanonicalJson::string(&self.redactor.redact_reply(&content))),
            cost_micro_usd: answer.cost_micro_usd,
            duration_ms: answer.duration_ms,
            error: answer.error.map(|error| CallError {
                code: error.code,
                // The gateway truncates messages of providers, but knows only its own keys.
                message: self.redactor.redact_cut(&error.message),
                retryable: error.retryable,
            }),
            input_hash: String::new(),
            item: self.item,
            model: text(&answer.model),
            output_hash: String::new(),
            prices: answer.prices,
            provider: text(&answer.provider),
            repeats: None,
            report: Some(self.report.clone()),
            request: answer.request,
            saved: None,
            step: self.step.to_owned(),
            tokens_cached: answer.tokens_cached,
            tokens_in: answer.tokens_in,
            tokens_out: answer.tokens_out,
            tokens_reasoning: answer.tokens_reasoning,
            tool_calls: self.tool_calls(answer.tool_calls)?,
            unpriced: answer.unpriced,
        })
    }

    fn attempts(&self, attempts: Vec<ModelAttempt>) -> Result<Vec<CallAttempt>, ReportError> {
        if attempts.len() > MAX_ATTEMPTS_LISTED {
            let words = format!("an llm.response lists at most {MAX_ATTEMPTS_LISTED} attempts");
            return Err(ReportError::Malformed(words));
        }
        let text = |text: &str| self.redactor.redact_text(text);
        let attempts = attempts.into_iter().map(|one| CallAttempt {
            duration_ms: one.duration_ms,
            model: text(&one.model),
            status: text(&one.status),
            usage: CallUsage {
                cost_micro_usd: one.usage.cost_micro_usd,
                tokens_cached: one.usage.tokens_cached,
                tokens_in: one.usage.tokens_in,
                tokens_out: one.usage.tokens_out,
                tokens_reasoning: one.usage.tokens_reasoning,
            },
        });
        Ok(attempts.collect())
    }

    fn finished(
        &self,
        reason: FinishReason,
        mut outcome: TaskOutcome,
        metrics: Option<ClaimedMetrics>,
    ) -> Result<AgentEvent, ReportError> {
        if outcome.output.is_some() == outcome.error.is_some() {
            let words = "an outcome has an output or an error";
            return Err(ReportError::Malformed(words.to_owned()));
        }
        // Replies are redacted as JSON, too, because they may be parsed.
        outcome.raw_output = outcome
            .raw_output
            .map(|raw| self.redactor.redact_reply(&raw));
        if let Some(error) = &mut outcome.error {
            error.message = self.redactor.redact_cut(&error.message);
        }
        Ok(AgentEvent::Finished(Box::new(AgentFinished {
            attempt: self.attempt,
            item: self.item,
            metrics,
            outcome: self.json(json!(outcome))?,
            reason,
            report: Some(self.report.clone()),
            step: self.step.to_owned(),
        })))
    }

    pub(super) fn completed(&self, completion: TaskCompletion) -> Result<AgentEvent, ReportError> {
        let (reason, error) = match completion.status.as_str() {
            "ok" => (FinishReason::Completed, None),
            "failed" => (
                FinishReason::Error,
                Some(failure(completion.error.as_ref())),
            ),
            // It has dropped the task, and waits to be dispatched again in a way that is gone.
            "pending_approval" => {
                let error = approval_unsupported(completion.pending_approval.as_ref());
                (FinishReason::Error, Some(error))
            }
            other => {
                let words = format!("{other:?} is no status: ok, failed or pending_approval");
                return Err(ReportError::Malformed(words));
            }
        };
        let output = completion.output.filter(|_| error.is_none());
        let raw_output = completion.raw_output.map(|raw| match raw {
            Value::String(text) => text,
            other => other.to_string(),
        });
        let outcome = TaskOutcome {
            output: output.or_else(|| error.is_none().then_some(Value::Null)),
            events: completion.events,
            commands: completion.commands,
            error,
            raw_output,
        };
        let metrics = completion.metrics.unwrap_or_default();
        let metrics = ClaimedMetrics {
            cost_micro_usd: micro_usd(metrics.cost_usd),
            llm_calls: metrics.llm_calls,
            model: self.redactor.redact_text(&metrics.model_resolved),
            reflect_calls: metrics.reflect_calls,
            tokens_in: metrics.tokens_in,
            tokens_out: metrics.tokens_out,
            tool_calls: metrics.tool_calls,
        };
        self.finished(reason, outcome, Some(metrics))
    }

    /// Redacts a value on entry; only the redacted form is used from here on.
    fn json(&self, mut value: Value) -> Result<CanonicalJson, ReportError> {
        self.redactor.redact_value(&mut value);
        let deep = |_| ReportError::Malformed("nested too deeply".to_owned());
        CanonicalJson::from_value(&value).map_err(deep)
    }
}

/// The error of a `complete`: text, or structured.
fn failure(error: Option<&Value>) -> FailureDetails {
    let structured = error.and_then(|error| serde_json::from_value(error.clone()).ok());
    structured.unwrap_or_else(|| FailureDetails {
        code: "agent_failed".to_owned(),
        message: match error {
            Some(Value::String(text)) if !text.is_empty() => text.clone(),
            _ => "the agent failed".to_owned(),
        },
        retryable: false,
    })
}

/// The failure of a task whose runtime requests an approval with a final `complete`, by the earlier
/// contract.
fn approval_unsupported(approval: Option<&Value>) -> FailureDetails {
    let tool = approval.and_then(|approval| approval.get("tool_name"));
    let tool: String = match tool.and_then(Value::as_str) {
        Some(name) => name.chars().take(MAX_TOOL_NAME_SHOWN).collect(),
        None => "a tool".to_owned(),
    };
    FailureDetails {
        code: "approval_unsupported".to_owned(),
        message: format!(
            "{tool} needs an approval, and this runtime asks for it by complete instead of a report"
        ),
        retryable: false,
    }
}

/// Millionths of a US dollar, rounded half up; 0 if it is not a valid amount.
fn micro_usd(usd: f64) -> u64 {
    let micro = (usd * 1_000_000.0 + 0.5).floor();
    match micro.is_finite() && micro > 0.0 {
        // The cast saturates, as intended.
        true => micro as u64,
        false => 0,
    }
}

/// Millionths of a temperature, rounded half up; 0 if it is not a valid one.
fn millionths(temperature: f64) -> u32 {
    u32::try_from(micro_usd(temperature)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;

//! Reports of runtimes: authorized, redacted, passed to the run, and acknowledged once durable
//! (decisions W1-W5).

mod tools;

use ktsu_ledger::branch::frames;
use ktsu_ledger::event::{
    AgentDecided, AgentEvent, AgentFinished, CallAttempt, CallError, CallUsage, ClaimedMetrics,
    FinishReason, LlmRequest, LlmResponse, Purpose, Report,
};
use ktsu_ledger::store::StoreError;
use ktsu_ledger::{CanonicalJson, Event, Frame, Hash, StreamId};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::effects::recorded;
use super::run::{Message, ReportMessage, ReportOutcome};
use super::token::TaskName;
use super::{Orchestrator, wait_for};
use ktsu_contract::gateway::{MAX_ATTEMPTS_LISTED, ModelAttempt};
use ktsu_contract::report::{
    self as wire, FailureDetails, Heartbeat, HeartbeatAck, ReportAck, TaskCompletion, TaskOutcome,
};
use ktsu_secret::Redactor;
use ktsu_workflow::admit::report::{ReportAdmission, report};

/// The most characters of a tool's name in a message.
const MAX_TOOL_NAME_SHOWN: usize = 128;

/// How long a runtime may take to report which instance it is.
const HEALTH_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// A task, as a path names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskAddress {
    /// The run's stream.
    pub stream: StreamId,
    /// The inline child, or empty.
    pub scope: String,
    /// The step.
    pub step: String,
    /// The item of a fan-out.
    pub item: Option<u32>,
}

/// Why a report changes nothing (decision W2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The token is missing, or of another task.
    #[error("the token is not one of this task")]
    Unauthorized,
    /// Another attempt, an end, other bytes under a used number.
    #[error("the task is not waiting for this report")]
    Stale,
    /// It does not follow from earlier reports, or is empty.
    #[error("{0}")]
    Malformed(String),
    /// The run cannot go on here just now.
    #[error("{0}")]
    Unavailable(String),
}

impl TaskAddress {
    pub(super) fn name(&self) -> TaskName {
        TaskName::new(self.stream.name(), &self.scope, &self.step, self.item)
    }

    /// The event of a frame, if it is about this task and its agent.
    fn event_of<'f>(&self, frame: &'f Frame) -> Option<&'f AgentEvent> {
        let Event::Agent(event) = &frame.event else {
            return None;
        };
        let own =
            frame.scope == self.scope && event.step() == self.step && event.item() == self.item;
        own.then_some(event)
    }
}

impl Orchestrator {
    /// The attempt that a token belongs to.
    ///
    /// # Errors
    /// [`ReportError::Unauthorized`].
    pub fn authorize(&self, task: &TaskAddress, token: &str) -> Result<u32, ReportError> {
        let attempt = self.shared.peers.tokens.attempt(&task.name(), token);
        attempt.ok_or(ReportError::Unauthorized)
    }

    /// Takes a report, and returns once it is durable.
    ///
    /// # Errors
    /// [`ReportError`]; nothing is recorded.
    pub async fn report(
        &self,
        task: TaskAddress,
        attempt: u32,
        report: wire::Report,
        bytes: &[u8],
    ) -> Result<ReportAck, ReportError> {
        if report.attempt != attempt {
            return Err(ReportError::Stale);
        }
        if report.n == 0 {
            let words = "the number of a report is counted from 1";
            return Err(ReportError::Malformed(words.to_owned()));
        }
        let about = self.report_context(&task, attempt, report.n, bytes);
        let events = report.events.into_iter().map(|event| about.event(event));
        let events: Vec<AgentEvent> = events.collect::<Result<_, _>>()?;
        let frames = self.submit_report(&task, events, attempt).await?;
        Ok(answer(report.n, &task, &frames))
    }

    /// Takes the end of a task from a runtime that reports nothing else.
    ///
    /// # Errors
    /// [`ReportError`]; nothing is recorded.
    pub async fn complete(
        &self,
        task: TaskAddress,
        attempt: u32,
        completion: TaskCompletion,
        bytes: &[u8],
    ) -> Result<(), ReportError> {
        let about = self.report_context(&task, attempt, 0, bytes);
        let event = about.completed(completion)?;
        let frames = self.submit_report(&task, vec![event], attempt).await;
        frames.map(|_| ())
    }

    fn report_context<'a>(
        &'a self,
        task: &'a TaskAddress,
        attempt: u32,
        n: u32,
        bytes: &[u8],
    ) -> ReportContext<'a> {
        ReportContext {
            attempt,
            item: task.item,
            step: &task.step,
            report: Report {
                digest: Hash::of(bytes).to_string(),
                n,
            },
            redactor: &self.shared.secrets.redactor,
        }
    }

    /// Records a heartbeat. An instance that does not name another's tasks replaces it only if the
    /// runtime's health confirms that: a second runtime next to it must not cost it its tasks.
    pub async fn heartbeat(&self, beat: &Heartbeat) -> HeartbeatAck {
        let supervisor = &self.shared.supervisor;
        let (heard, elsewhere) = supervisor.heartbeat(beat);
        if elsewhere && self.is_the_runtime(&beat.runtime_id).await {
            supervisor.instance_replaced(beat);
        }
        heard
    }

    /// Whether the configured runtime is this instance. One that gives no id is believed.
    async fn is_the_runtime(&self, instance: &str) -> bool {
        let Some(runtime) = &self.shared.peers.runtime else {
            return true;
        };
        let response =
            tokio::time::timeout(HEALTH_TIMEOUT, runtime.get("/health", "application/json")).await;
        let Ok(Ok(answer)) = response else {
            return false;
        };
        let Ok(body) = axum::body::to_bytes(answer.into_body(), 64 * 1024).await else {
            return false;
        };
        let health: Value = serde_json::from_slice(&body).unwrap_or_default();
        let named = health.get("runtime_id").and_then(Value::as_str);
        named.is_none_or(|named| named == instance)
    }

    async fn submit_report(
        &self,
        task: &TaskAddress,
        events: Vec<AgentEvent>,
        attempt: u32,
    ) -> Result<Vec<Frame>, ReportError> {
        let shared = &self.shared;
        let Some(under_way) = shared.runs.get(task.stream.name()) else {
            return self.after_the_end(task, events).await;
        };
        let supervisor = &shared.supervisor;
        supervisor.record_contact(&task.name(), attempt, None);
        let (reply, replied) = oneshot::channel();
        let message = Message::Report(ReportMessage {
            scope: task.scope.clone(),
            events: events.clone(),
            reply,
        });
        let taken = match under_way.send(Box::new(message)).await {
            true => replied.await.ok(),
            false => None,
        };
        let Some(taken) = taken else {
            // The run ended while the report was on its way.
            return self.after_the_end(task, events).await;
        };
        let mut progress = under_way.progress;
        let (first, last, frames) = match taken {
            ReportOutcome::New(frames) => match (frames.first(), frames.last()) {
                (Some(first), Some(last)) => (first.seq, last.seq, Some(frames)),
                _ => return Err(ReportError::Stale),
            },
            ReportOutcome::Again { first, last } => (first, last, None),
            ReportOutcome::Stale => return Err(ReportError::Stale),
            ReportOutcome::Malformed(words) => return Err(ReportError::Malformed(words)),
        };
        let durable = wait_for(&mut progress, |progress| progress.durable >= Some(last)).await;
        durable.map_err(ReportError::Unavailable)?;
        match frames {
            Some(frames) => Ok(frames),
            None => Ok(from(task, self.frames(task).await?, first)),
        }
    }

    /// A report about a run that is not under way: the answer of before, if it was given, and
    /// nothing else.
    async fn after_the_end(
        &self,
        task: &TaskAddress,
        events: Vec<AgentEvent>,
    ) -> Result<Vec<Frame>, ReportError> {
        let frames = self.frames(task).await?;
        let state = ktsu_projections::run::RunState::fold(&frames);
        let state = state.map_err(|error| ReportError::Unavailable(error.to_string()))?;
        let ended = state.status().is_terminal();
        match report(&state, &task.scope, events) {
            ReportAdmission::Repeated { first, .. } => Ok(from(task, frames, first)),
            // The task is still wanted and the run will be resumed: retry later.
            ReportAdmission::Accepted(_) | ReportAdmission::Deferred(_) if !ended => {
                let words = "the run is not under way just now";
                Err(ReportError::Unavailable(words.to_owned()))
            }
            ReportAdmission::Accepted(_)
            | ReportAdmission::Deferred(_)
            | ReportAdmission::Stale => Err(ReportError::Stale),
            ReportAdmission::Malformed(words) => Err(ReportError::Malformed(words)),
        }
    }

    /// Everything that is recorded of a task's run.
    async fn frames(&self, task: &TaskAddress) -> Result<Vec<Frame>, ReportError> {
        let stream = task.stream.clone();
        let readers = &self.shared.readers;
        let read = readers.with(move |reader| frames(reader, &stream));
        let unreadable = |error: StoreError| ReportError::Unavailable(error.to_string());
        read.await.map_err(unreadable)
    }
}

/// The frames of a report, and the decisions about its task that followed.
fn from(task: &TaskAddress, frames: Vec<Frame>, first: u64) -> Vec<Frame> {
    let mut rest = frames.into_iter().skip_while(|frame| frame.seq < first);
    let Some(input) = rest.next() else {
        return Vec::new();
    };
    let Event::Agent(event) = &input.event else {
        return Vec::new();
    };
    let report = event.report().cloned();
    let mut found = vec![input];
    for frame in rest {
        let Some(event) = task.event_of(&frame) else {
            continue;
        };
        let reflects = matches!(event, AgentEvent::ReflectStarted(_));
        if !reflects && event.report() != report.as_ref() {
            break;
        }
        found.push(frame);
    }
    found
}

fn answer(n: u32, task: &TaskAddress, frames: &[Frame]) -> ReportAck {
    let mut answer = ReportAck {
        n,
        events: Vec::new(),
        reflect: false,
        suspended: false,
        refused: None,
    };
    for frame in frames {
        let Some(event) = task.event_of(frame) else {
            continue;
        };
        match event {
            AgentEvent::ReflectStarted(_) => answer.reflect = true,
            AgentEvent::ApprovalRequested(_) | AgentEvent::ToolInDoubt(_) => {
                answer.suspended = true;
            }
            AgentEvent::BudgetExhausted(spent) => {
                answer.refused = Some(FailureDetails {
                    code: "budget_exceeded".to_owned(),
                    message: format!(
                        "the run has used {} of its budget of {}",
                        ktsu_projections::lineage::dollars(spent.cost_micro_usd),
                        ktsu_projections::lineage::dollars(spent.limit_micro_usd)
                    ),
                    retryable: false,
                });
            }
            _ => {}
        }
        answer.events.push(recorded(frame));
    }
    answer
}

/// What all events of a report have in common.
struct ReportContext<'a> {
    attempt: u32,
    item: Option<u32>,
    step: &'a str,
    report: Report,
    redactor: &'a Redactor,
}

impl ReportContext<'_> {
    fn event(&self, event: wire::ReportEvent) -> Result<AgentEvent, ReportError> {
        Ok(match event {
            wire::ReportEvent::Request(request) => AgentEvent::Request(LlmRequest {
                attempt: self.attempt,
                base: request.base,
                digest: String::new(),
                group: request.group,
                item: self.item,
                max_tokens: request.max_tokens,
                messages: self.json(json!(request.messages))?,
                purpose: match request.purpose {
                    wire::Purpose::Turn => Purpose::Turn,
                    wire::Purpose::Repair => Purpose::Repair,
                    wire::Purpose::Reflect => Purpose::Reflect,
                },
                report: self.report.clone(),
                step: self.step.to_owned(),
                tools: request
                    .tools
                    .map(|tools| self.json(json!(tools)))
                    .transpose()?,
            }),
            wire::ReportEvent::Response(answer) => self.response(answer)?,
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

    fn response(&self, answer: wire::LlmResponse) -> Result<AgentEvent, ReportError> {
        let text = |text: &str| self.redactor.redact_text(text);
        Ok(AgentEvent::Response(Box::new(LlmResponse {
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
            report: self.report.clone(),
            request: answer.request,
            step: self.step.to_owned(),
            tokens_cached: answer.tokens_cached,
            tokens_in: answer.tokens_in,
            tokens_out: answer.tokens_out,
            tokens_reasoning: answer.tokens_reasoning,
            tool_calls: self.tool_calls(answer.tool_calls)?,
            unpriced: answer.unpriced,
        })))
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

    fn completed(&self, completion: TaskCompletion) -> Result<AgentEvent, ReportError> {
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

#[cfg(test)]
mod tests;

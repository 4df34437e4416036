//! Events of agents: model calls, decisions, results. Tool events are in [`super::tool`].
//!
//! One (step, item, attempt) is a **task**. Its life, as its runtime reports it: (`llm.request` →
//! `llm.response` → `agent.decided` → tools)* → `llm.request` → `llm.response` → (`agent.decided` →
//! `reflect.started`? → `llm.request` → `llm.response`)? → `agent.finished`. Everything a runtime
//! reports is an input; each frame carries the number and the digest of its report, so that one
//! report is one turn. A task that the engine ends itself gets an `agent.finished` without a
//! report, which is a decision.

use serde::{Deserialize, Serialize};

use super::Role;
use super::report::ReportReference;
use super::tool::{
    ApprovalDecided, ApprovalExpired, ApprovalRequested, ToolCalled, ToolInDoubt, ToolReturned,
};
use crate::canonical::CanonicalJson;

/// A fact about an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEvent {
    /// `llm.request` (input): about to be sent to a model.
    Request(LlmRequest),
    /// `llm.response` (input, or a decision where it repeats a reply): a model answered, or will not.
    Response(Box<LlmResponse>),
    /// `agent.decided` (input): it requests tools, or has a draft and may reflect (decision R2).
    Decided(AgentDecided),
    /// `reflect.started` (decision): the draft is to be reviewed.
    ReflectStarted(ReflectStarted),
    /// `budget.exhausted` (input): a call was requested and refused (decision F4).
    BudgetExhausted(BudgetExhausted),
    /// `tool.called` (input): about to be sent to a tool server.
    ToolCalled(Box<ToolCalled>),
    /// `tool.returned` (input): the result of a call, for the model.
    ToolReturned(Box<ToolReturned>),
    /// `tool.in_doubt`: it is unknown whether a call happened. An input if reported, a decision if
    /// the engine finds out itself.
    ToolInDoubt(ToolInDoubt),
    /// `approval.requested` (input): a person is to decide on a call.
    ApprovalRequested(Box<ApprovalRequested>),
    /// `approval.decided` (input): a person did.
    ApprovalDecided(Box<ApprovalDecided>),
    /// `approval.expired` (input): there was no decision in time.
    ApprovalExpired(ApprovalExpired),
    /// `agent.finished`: the task has ended (decision W7).
    Finished(Box<AgentFinished>),
}

/// One expression for every subject.
macro_rules! each {
    ($on:expr, $event:ident => $value:expr) => {
        match $on {
            AgentEvent::Request($event) => $value,
            AgentEvent::Response($event) => $value,
            AgentEvent::Decided($event) => $value,
            AgentEvent::ReflectStarted($event) => $value,
            AgentEvent::BudgetExhausted($event) => $value,
            AgentEvent::ToolCalled($event) => $value,
            AgentEvent::ToolReturned($event) => $value,
            AgentEvent::ToolInDoubt($event) => $value,
            AgentEvent::ApprovalRequested($event) => $value,
            AgentEvent::ApprovalDecided($event) => $value,
            AgentEvent::ApprovalExpired($event) => $value,
            AgentEvent::Finished($event) => $value,
        }
    };
}

impl AgentEvent {
    /// See [`super::Event::role`].
    pub(super) fn role(&self) -> Role {
        let engine = match self {
            Self::ReflectStarted(_) => true,
            Self::Response(answer) => answer.report.is_none(),
            Self::Finished(finished) => finished.report.is_none(),
            Self::ToolInDoubt(doubt) => doubt.report.is_none(),
            Self::Request(_)
            | Self::Decided(_)
            | Self::BudgetExhausted(_)
            | Self::ToolCalled(_)
            | Self::ToolReturned(_)
            | Self::ApprovalRequested(_)
            | Self::ApprovalDecided(_)
            | Self::ApprovalExpired(_) => false,
        };
        match engine {
            true => Role::Decision,
            false => Role::Input,
        }
    }

    /// The step this is about, in the frame's scope.
    pub fn step(&self) -> &str {
        each!(self, event => &event.step)
    }

    /// The item of a fan-out, counted from 0.
    pub fn item(&self) -> Option<u32> {
        each!(self, event => event.item)
    }

    /// The attempt; for a decision of a person, the attempt that requested it.
    pub fn attempt(&self) -> u32 {
        each!(self, event => event.attempt)
    }

    /// The server and the tool of a call that is made, or that people are asked about.
    pub fn target(&self) -> Option<(&str, &str)> {
        if let Self::ToolCalled(called) = self {
            return Some((&called.server, &called.tool));
        }
        if let Self::ApprovalRequested(asked) = self {
            return Some((&asked.server, &asked.tool));
        }
        None
    }

    /// The report it came with.
    pub fn report(&self) -> Option<&ReportReference> {
        match self {
            Self::Request(event) => Some(&event.report),
            Self::Response(event) => event.report.as_ref(),
            Self::Decided(event) => Some(&event.report),
            Self::BudgetExhausted(event) => Some(&event.report),
            Self::ToolCalled(event) => Some(&event.report),
            Self::ToolReturned(event) => Some(&event.report),
            Self::ApprovalRequested(event) => Some(&event.report),
            Self::ToolInDoubt(event) => event.report.as_ref(),
            Self::Finished(event) => event.report.as_ref(),
            Self::ReflectStarted(_) | Self::ApprovalDecided(_) | Self::ApprovalExpired(_) => None,
        }
    }
}

/// The purpose of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A turn of the loop.
    Turn,
    /// A draft that was not JSON is to be put right (decision R3).
    Repair,
    /// A review of the draft (decision R2).
    Reflect,
}

/// `llm.request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlmRequest {
    /// The task's attempt.
    pub attempt: u32,
    /// The request that this one extends: its messages come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// SHA-256 of the whole request, messages of the base included.
    pub digest: String,
    /// The model group.
    pub group: String,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The most tokens of the reply.
    pub max_tokens: u32,
    /// The new messages: a list of `{role, content}`; content of an earlier frame of the task is
    /// referenced, as `{role: assistant, frame}` and `{role: tool, frame}`.
    pub messages: CanonicalJson,
    /// Its purpose.
    pub purpose: Purpose,
    /// The report.
    pub report: ReportReference,
    /// The digest of how the gateway routes calls of the group. Present where an earlier reply of the
    /// run may answer the request, and its own reply a later one: a reply of other models, or at
    /// another temperature, answers neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<String>,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
    /// The temperature that was asked for, in millionths; absent: the group's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_millionths: Option<u32>,
    /// The tools offered to the model, if they differ from those of the base (without a base: from
    /// none): a list of `{server, tool, name, description, input_schema, digest}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<CanonicalJson>,
}

/// `llm.response`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LlmResponse {
    /// The task's attempt.
    pub attempt: u32,
    /// All attempts of the gateway for this reply, in order, each with its usage, failed ones
    /// included (decision S5); absent if the first model answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<CallAttempt>,
    /// True if no provider was called for it: the gateway had the reply, or the run (`repeats`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The reply's text. Of a repeated reply it is in the frame that is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<CanonicalJson>,
    /// Millionths of a US dollar, rounded half up once an attempt (decision E3): what all attempts
    /// cost. The tokens are those of all attempts, too.
    pub cost_micro_usd: u64,
    /// From sending to answer, in milliseconds.
    pub duration_ms: u64,
    /// The reason why there is no reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
    /// The request's digest (seed 004; decision W6).
    pub input_hash: String,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The model that answered.
    pub model: String,
    /// SHA-256 of the reply's text as JSON (seed 004; decision W6).
    pub output_hash: String,
    /// The version of the table the cost was taken from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prices: String,
    /// The provider that answered.
    pub provider: String,
    /// The frame of the reply that this repeats, to an identical request of the run. No model was
    /// called: `cached` is set, and cost, tokens and duration are 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u64>,
    /// The report; absent from a repeated reply, which is a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportReference>,
    /// The request this answers.
    pub request: u64,
    /// Of a repeated reply: what the reply it repeats used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<CallUsage>,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
    /// Tokens sent that the provider had read before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_cached: u64,
    /// Tokens sent.
    pub tokens_in: u64,
    /// Tokens received.
    pub tokens_out: u64,
    /// Tokens received that were spent on reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_reasoning: u64,
    /// The requested tool calls: a list of `{id, name, arguments}`, with `secret: true` if the
    /// arguments contained one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<CanonicalJson>,
    /// True if the price of one of the models is unknown, so that its cost counts as 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One attempt of the gateway at a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallAttempt {
    /// From request to answer, in milliseconds.
    pub duration_ms: u64,
    /// `provider/model`.
    pub model: String,
    /// `ok`, a word of `retry.on`, or the code of the failure.
    pub status: String,
    /// Its usage, whatever the result.
    pub usage: CallUsage,
}

/// The usage of one attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallUsage {
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Tokens sent that the provider had read before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_cached: u64,
    /// Tokens sent.
    pub tokens_in: u64,
    /// Tokens received.
    pub tokens_out: u64,
    /// Tokens received that were spent on reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_reasoning: u64,
}

/// The reason why a model call has no reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// A code of the gateway: `provider_error`, `unknown_group`.
    pub code: String,
    /// For people.
    pub message: String,
    /// True if another try might succeed.
    pub retryable: bool,
}

/// `agent.decided`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDecided {
    /// The task's attempt.
    pub attempt: u32,
    /// The draft: a JSON object. Absent where it decided to call tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<CanonicalJson>,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The report.
    pub report: ReportReference,
    /// The reply whose tools it decided to call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<u64>,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
}

/// `reflect.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReflectStarted {
    /// The task's attempt.
    pub attempt: u32,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
}

/// `budget.exhausted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetExhausted {
    /// The task's attempt.
    pub attempt: u32,
    /// The cost of the run by then, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The most that it may cost, in millionths of a US dollar.
    pub limit_micro_usd: u64,
    /// The report that requested it.
    pub report: ReportReference,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
}

/// The reason why a task ended (decision W7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It has an output.
    Completed,
    /// It used its turns up.
    MaxTurns,
    /// It called a tool that it may not call.
    ToolNotPermitted,
    /// The run's budget is used up.
    BudgetExceeded,
    /// The time was over.
    Timeout,
    /// The run ended elsewhere.
    Stopped,
    /// Anything else; the outcome has the code.
    Error,
}

impl FinishReason {
    /// The persisted form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::MaxTurns => "max_turns",
            Self::ToolNotPermitted => "tool_not_permitted",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Timeout => "timeout",
            Self::Stopped => "stopped",
            Self::Error => "error",
        }
    }
}

/// `agent.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFinished {
    /// The task's attempt; 0 if none had been dispatched.
    pub attempt: u32,
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The usage of a runtime that reports nothing but its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<ClaimedMetrics>,
    /// `{output, events?, commands?}` or `{error: {code, message, retryable}, raw_output?}`, whole
    /// (decision W5).
    pub outcome: CanonicalJson,
    /// The reason why it ended.
    pub reason: FinishReason,
    /// The report; absent where the engine ended the task itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportReference>,
    /// The step.
    #[serde(alias = "responder")]
    pub step: String,
}

/// Usage claimed by a runtime that reports no frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedMetrics {
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Model calls.
    pub llm_calls: u64,
    /// `provider/model`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Reflections.
    #[serde(default)]
    pub reflect_calls: u64,
    /// Tokens sent.
    pub tokens_in: u64,
    /// Tokens received.
    pub tokens_out: u64,
    /// Tool calls.
    pub tool_calls: u64,
}

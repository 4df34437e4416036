//! The tools a task's last reply asked for, and what became of each (seed 000, invariant 34;
//! decision A1).
//!
//! ```text
//! Asked ─▶ Sent ─▶ Done              approval.requested: Asked ─▶ Waiting ─▶ Allowed ─▶ Sent
//!   └────────────▶ Done (not sent)                                    └────▶ Refused ─▶ Done
//! Sent ─▶ Doubt ─▶ Again ─▶ Sent | Known ─▶ Done | Refused
//! ```

use ktsu_ledger::event::plan::{ApprovalPolicy, OnReject, TimeoutBehavior};
use ktsu_ledger::event::{
    AgentEvent, ApprovalDecided, ApprovalRequested, Decision, DoubtReason, LlmResponse, ToolCalled,
    ToolInDoubt, ToolReturned, UnsentReason,
};
use ktsu_ledger::{CanonicalJson, Hash, Timestamp};
use serde_json::Value;

/// The calls of one reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedCalls {
    /// The `llm.response` that asked for them.
    pub response: u64,
    /// In the order of the reply.
    pub list: Vec<RequestedCall>,
    /// Whether the agent's decision to call them is recorded.
    pub decided: bool,
}

/// A tool that a model asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedCall {
    /// The name the model gave the call.
    pub id: String,
    /// The tool, as the model calls it.
    pub name: String,
    /// The arguments.
    pub arguments: CanonicalJson,
    /// BLAKE3 of them.
    pub digest: String,
    /// Whether a secret stood in the arguments: such a call is never sent.
    pub secret: bool,
    /// What became of it.
    pub state: CallState,
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallState {
    /// Nothing is recorded of it.
    Requested,
    /// People are to decide.
    AwaitingApproval(ApprovalGate),
    /// They allowed it: this call of this tool.
    Approved(ApprovalGate),
    /// They did not, or nobody decided in time, and the agent is told.
    Rejected,
    /// About to be sent, or on its way.
    Sent(SentCall),
    /// Nobody knows whether it happened, and a person is to say.
    InDoubt {
        /// The call.
        sending: SentCall,
        /// The `tool.in_doubt`.
        seq: u64,
    },
    /// It is to be sent again: a person said so, or its runtime is lost.
    ToResend(SentCall),
    /// It happened, as a person knows.
    Confirmed {
        /// The `tool.called`.
        called: u64,
    },
    /// Nobody will ever say whether it happened.
    Unresolved,
    /// The model has its result.
    Returned {
        /// The `tool.returned`.
        seq: u64,
    },
}

/// A call on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentCall {
    /// The last `tool.called`.
    pub called: u64,
    /// The first one, which names the idempotency key.
    pub first: u64,
    /// The attempt that sent it.
    pub attempt: u32,
    /// Whether its server is stateful.
    pub stateful: bool,
    /// The approval it was sent with.
    pub approval: Option<u64>,
    /// The server, by the agent's name.
    pub server: String,
    /// The tool.
    pub tool: String,
}

/// What people are to decide on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalGate {
    /// The `approval.requested`.
    pub request: u64,
    /// What the definition says.
    pub policy: ApprovalPolicy,
    /// When people were asked.
    pub asked_at: Timestamp,
    /// What their time counts from. Moves where the clock jumps.
    pub since: Timestamp,
    /// Who has approved so far.
    pub approved_by: Vec<String>,
    /// The server, by the agent's name.
    pub server: String,
    /// The tool.
    pub tool: String,
}

/// A task that ends because of what people said, or did not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedFailure {
    /// Why.
    pub reason: ForcedFailureReason,
    /// The tool it was about.
    pub tool: String,
}

/// Why people's words end a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForcedFailureReason {
    /// A call was rejected, and its policy is to fail.
    Rejected,
    /// Nobody decided in time, and its policy is to fail.
    TimedOut,
    /// A call in doubt is not to be sent again.
    InDoubt,
}

impl ForcedFailure {
    /// The error code.
    pub fn code(&self) -> &'static str {
        match self.reason {
            ForcedFailureReason::Rejected => "approval_rejected",
            ForcedFailureReason::TimedOut => "approval_timed_out",
            ForcedFailureReason::InDoubt => "tool_in_doubt",
        }
    }

    /// For people.
    pub fn message(&self) -> String {
        let tool = &self.tool;
        match self.reason {
            ForcedFailureReason::Rejected => format!("tool call rejected by reviewer: {tool}"),
            ForcedFailureReason::TimedOut => format!("approval timed out: {tool}"),
            ForcedFailureReason::InDoubt => {
                format!("tool call in doubt, and not to be sent again: {tool}")
            }
        }
    }
}

impl RequestedCalls {
    /// The calls a reply asks for, if there are any.
    pub(super) fn of(seq: u64, answer: &LlmResponse) -> Option<Self> {
        let asked = answer.tool_calls.as_ref()?.to_value();
        let wanted = |call: &Value| {
            let arguments = CanonicalJson::from_value(&call["arguments"]).unwrap_or_default();
            RequestedCall {
                id: call["id"].as_str().unwrap_or_default().to_owned(),
                name: call["name"].as_str().unwrap_or_default().to_owned(),
                digest: Hash::of(arguments.as_str().as_bytes()).to_string(),
                arguments,
                secret: call["secret"] == Value::Bool(true),
                state: CallState::Requested,
            }
        };
        let list: Vec<RequestedCall> = asked.as_array()?.iter().map(wanted).collect();
        (!list.is_empty()).then_some(Self {
            response: seq,
            list,
            decided: false,
        })
    }

    /// One of them.
    pub fn get(&self, response: u64, call: u32) -> Option<&RequestedCall> {
        (response == self.response).then_some(())?;
        self.list.get(call as usize)
    }

    /// Whether the model has all results.
    pub fn are_done(&self) -> bool {
        self.all(|state| matches!(state, CallState::Returned { .. }))
    }

    /// Whether none is on its way.
    pub fn are_at_rest(&self) -> bool {
        self.all(|state| !matches!(state, CallState::Sent(_)))
    }

    /// Whether none waits for a person.
    pub fn are_decided(&self) -> bool {
        self.all(|state| {
            !matches!(
                state,
                CallState::AwaitingApproval(_) | CallState::InDoubt { .. }
            )
        })
    }

    fn all(&self, holds: impl Fn(&CallState) -> bool) -> bool {
        self.list.iter().all(|call| holds(&call.state))
    }

    /// The calls on their way, by their `tool.called`.
    pub fn sent_calls(&self) -> impl Iterator<Item = &SentCall> {
        self.list.iter().filter_map(|call| match &call.state {
            CallState::Sent(sending) => Some(sending),
            CallState::Requested
            | CallState::AwaitingApproval(_)
            | CallState::Approved(_)
            | CallState::Rejected
            | CallState::InDoubt { .. }
            | CallState::ToResend(_)
            | CallState::Confirmed { .. }
            | CallState::Unresolved
            | CallState::Returned { .. } => None,
        })
    }

    /// The call a person is asked about, by the frame that asks.
    pub fn awaiting_decision(&self, request: u64) -> Option<&RequestedCall> {
        let mut calls = self.list.iter();
        calls.find(|call| call.open_request() == Some(request))
    }

    /// The table of calls: whether a frame may follow.
    pub(super) fn accepts(&self, event: &AgentEvent, attempt: u32) -> bool {
        match event {
            AgentEvent::Decided(decided) => {
                decided.response == Some(self.response) && !self.decided
            }
            AgentEvent::ToolCalled(called) => self.accepts_call(called, attempt),
            AgentEvent::ToolReturned(returned) => self.accepts_result(returned),
            AgentEvent::ToolInDoubt(doubt) => {
                let mut sent = self.sent_calls();
                let known = sent.find(|sending| sending.called == doubt.called);
                known.is_some_and(|sending| match doubt.reason {
                    DoubtReason::NoAnswer => sending.attempt == attempt && doubt.report.is_some(),
                    DoubtReason::WorkerLost => sending.stateful && doubt.report.is_none(),
                    DoubtReason::TaskEnded => true,
                })
            }
            AgentEvent::ApprovalRequested(asked) => {
                let wanted = self.get(asked.response, asked.call);
                let fresh = wanted.is_some_and(|call| {
                    call.state == CallState::Requested
                        && !call.secret
                        && call.digest == asked.digest
                        && call.names_tool(&asked.server, &asked.tool)
                });
                fresh && self.decided && self.are_at_rest()
            }
            AgentEvent::ApprovalDecided(decided) => {
                let asked = self.awaiting_decision(decided.request);
                asked.is_some_and(|call| call.may_be_decided(decided))
            }
            AgentEvent::ApprovalExpired(expired) => {
                let asked = self
                    .awaiting_decision(expired.request)
                    .map(|call| &call.state);
                matches!(asked, Some(CallState::AwaitingApproval(gate)) if gate.policy.timeout.is_some())
            }
            AgentEvent::Request(_)
            | AgentEvent::Response(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::BudgetExhausted(_)
            | AgentEvent::Finished(_) => false,
        }
    }

    fn accepts_call(&self, called: &ToolCalled, attempt: u32) -> bool {
        let Some(call) = self.get(called.response, called.call) else {
            return false;
        };
        let same = |server: &str, tool: &str| (server, tool) == (&*called.server, &*called.tool);
        let again = |sending: &SentCall| {
            called.again == Some(sending.first)
                && called.approval == sending.approval
                && same(&sending.server, &sending.tool)
        };
        let follows = match &call.state {
            CallState::Requested => called.again.is_none() && called.approval.is_none(),
            CallState::Approved(gate) => {
                called.again.is_none()
                    && called.approval == Some(gate.request)
                    && same(&gate.server, &gate.tool)
            }
            CallState::ToResend(sending) => again(sending),
            CallState::Sent(sending) => {
                sending.attempt < attempt && !sending.stateful && again(sending)
            }
            CallState::AwaitingApproval(_)
            | CallState::Rejected
            | CallState::InDoubt { .. }
            | CallState::Confirmed { .. }
            | CallState::Unresolved
            | CallState::Returned { .. } => false,
        };
        let meant = call.names_tool(&called.server, &called.tool);
        self.decided && follows && meant && !call.secret && call.digest == called.digest
    }

    fn accepts_result(&self, returned: &ToolReturned) -> bool {
        let Some(call) = self.get(returned.response, returned.call) else {
            return false;
        };
        if returned.recorded.is_some() {
            // What was recorded of it is the task's to say.
            return self.decided && call.state == CallState::Requested && returned.called.is_none();
        }
        let fits = match (&call.state, returned.not_sent) {
            (CallState::Sent(sending), None) => returned.called == Some(sending.called),
            (CallState::Confirmed { called }, None) => returned.called == Some(*called),
            (
                // Also of one that is to be sent again: its server may be held back by now.
                CallState::Requested | CallState::Approved(_) | CallState::ToResend(_),
                Some(
                    UnsentReason::UnknownTool
                    | UnsentReason::InvalidArguments
                    | UnsentReason::SuppressedInBranch,
                ),
            ) => true,
            (CallState::Requested, Some(UnsentReason::SecretInArguments)) => call.secret,
            (CallState::Rejected, Some(UnsentReason::Rejected | UnsentReason::InDoubt)) => true,
            _ => false,
        };
        let whole = returned.not_sent.is_none() || returned.called.is_none();
        self.decided && fits && whole
    }

    /// Applies a frame that [`RequestedCalls::accepts`] allows. Returns how the task ends, if it does.
    pub(super) fn apply(
        &mut self,
        seq: u64,
        at: Timestamp,
        event: &AgentEvent,
        stateful: bool,
    ) -> Option<ForcedFailure> {
        match event {
            AgentEvent::Decided(_) => self.decided = true,
            AgentEvent::ToolCalled(called) => {
                let call = self.list.get_mut(called.call as usize)?;
                call.state = CallState::Sent(SentCall {
                    called: seq,
                    first: called.again.unwrap_or(seq),
                    attempt: called.attempt,
                    stateful,
                    approval: called.approval,
                    server: called.server.clone(),
                    tool: called.tool.clone(),
                });
            }
            AgentEvent::ToolReturned(returned) => {
                let call = self.list.get_mut(returned.call as usize)?;
                call.state = CallState::Returned { seq };
            }
            AgentEvent::ToolInDoubt(doubt) => self.mark_in_doubt(seq, doubt),
            AgentEvent::ApprovalRequested(asked) => self.request_approval(seq, at, asked),
            AgentEvent::ApprovalDecided(decided) => return self.decide(decided),
            AgentEvent::ApprovalExpired(expired) => {
                let call = self.find(expired.request)?;
                let CallState::AwaitingApproval(gate) = &call.state else {
                    return None;
                };
                let behavior = gate.policy.timeout.as_ref().map(|timeout| timeout.behavior);
                let recovers = gate.policy.on_reject == OnReject::Recover;
                let tool = gate.tool.clone();
                call.state = CallState::Rejected;
                let told = behavior == Some(TimeoutBehavior::Reject) && recovers;
                let why = ForcedFailureReason::TimedOut;
                return (!told).then_some(ForcedFailure { reason: why, tool });
            }
            AgentEvent::Request(_)
            | AgentEvent::Response(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::BudgetExhausted(_)
            | AgentEvent::Finished(_) => {}
        }
        None
    }

    fn mark_in_doubt(&mut self, seq: u64, doubt: &ToolInDoubt) {
        for call in &mut self.list {
            if let CallState::Sent(sending) = &call.state
                && sending.called == doubt.called
            {
                call.state = match doubt.reason {
                    DoubtReason::TaskEnded => CallState::Unresolved,
                    DoubtReason::NoAnswer | DoubtReason::WorkerLost => CallState::InDoubt {
                        sending: sending.clone(),
                        seq,
                    },
                };
            }
        }
    }

    /// Gives the people who are asked as much more time.
    pub(super) fn postpone(&mut self, by_ms: u64) {
        for call in &mut self.list {
            if let CallState::AwaitingApproval(gate) = &mut call.state {
                gate.since = gate.since.plus_millis(by_ms);
            }
        }
    }

    fn request_approval(&mut self, seq: u64, at: Timestamp, asked: &ApprovalRequested) {
        let Some(call) = self.list.get_mut(asked.call as usize) else {
            return;
        };
        call.state = CallState::AwaitingApproval(ApprovalGate {
            request: seq,
            policy: asked.policy.clone(),
            asked_at: at,
            since: at,
            approved_by: Vec::new(),
            server: asked.server.clone(),
            tool: asked.tool.clone(),
        });
    }

    fn decide(&mut self, decided: &ApprovalDecided) -> Option<ForcedFailure> {
        let call = self.find(decided.request)?;
        match (&mut call.state, decided.decision) {
            (CallState::AwaitingApproval(gate), Decision::Approved) => {
                gate.approved_by.push(decided.by.id.clone());
                let needed = gate.policy.quorum.max(1) as usize;
                if gate.approved_by.len() >= needed {
                    call.state = CallState::Approved(gate.clone());
                }
            }
            (CallState::AwaitingApproval(gate), Decision::Rejected | Decision::Happened) => {
                let recovers = gate.policy.on_reject == OnReject::Recover;
                let tool = gate.tool.clone();
                call.state = CallState::Rejected;
                let why = ForcedFailureReason::Rejected;
                return (!recovers).then_some(ForcedFailure { reason: why, tool });
            }
            (CallState::InDoubt { sending, .. }, Decision::Approved) => {
                call.state = CallState::ToResend(sending.clone());
            }
            (CallState::InDoubt { sending, .. }, Decision::Happened) => {
                let called = sending.called;
                call.state = CallState::Confirmed { called };
            }
            (CallState::InDoubt { sending, .. }, Decision::Rejected) => {
                let tool = sending.tool.clone();
                call.state = CallState::Rejected;
                let why = ForcedFailureReason::InDoubt;
                return Some(ForcedFailure { reason: why, tool });
            }
            _ => {}
        }
        None
    }

    fn find(&mut self, request: u64) -> Option<&mut RequestedCall> {
        let mut calls = self.list.iter_mut();
        calls.find(|call| call.open_request() == Some(request))
    }

    /// A branch begins: what is not done there has not happened there (decision F1).
    pub(super) fn reset_unreturned(&mut self) {
        for call in &mut self.list {
            if !matches!(call.state, CallState::Returned { .. }) {
                call.state = CallState::Requested;
            }
        }
    }
}

impl CallState {
    /// What people are to decide on before the call.
    pub fn gate(&self) -> Option<&ApprovalGate> {
        if let Self::AwaitingApproval(gate) = self {
            return Some(gate);
        }
        None
    }
}

impl RequestedCall {
    /// Whether this is the tool the model named: by its bare name, or in full (decision A2).
    pub fn names_tool(&self, server: &str, tool: &str) -> bool {
        let in_full = || {
            let rest = self.name.strip_prefix(server)?;
            rest.strip_prefix("__")
        };
        self.name == tool || in_full() == Some(tool)
    }

    /// Whether it is on its way as this `tool.called`.
    pub fn is_sent_as(&self, called: u64) -> bool {
        matches!(&self.state, CallState::Sent(sending) if sending.called == called)
    }

    /// The frame that asks a person about it.
    pub fn open_request(&self) -> Option<u64> {
        match &self.state {
            CallState::AwaitingApproval(gate) => Some(gate.request),
            CallState::InDoubt { seq, .. } => Some(*seq),
            CallState::Requested
            | CallState::Approved(_)
            | CallState::Rejected
            | CallState::Sent(_)
            | CallState::ToResend(_)
            | CallState::Confirmed { .. }
            | CallState::Unresolved
            | CallState::Returned { .. } => None,
        }
    }

    /// Whether a person's word fits: about these arguments, and not a second one of theirs.
    fn may_be_decided(&self, decided: &ApprovalDecided) -> bool {
        let fits = match self.state.gate() {
            Some(gate) => {
                decided.decision != Decision::Happened && !gate.approved_by.contains(&decided.by.id)
            }
            None => matches!(self.state, CallState::InDoubt { .. }),
        };
        let told = decided.result.is_none() || decided.decision == Decision::Happened;
        fits && told && self.digest == decided.digest
    }
}

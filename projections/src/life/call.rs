//! The life of a tool call: its states, and the frames that lead from one to the next (seed 000,
//! invariant 34; decision A1). The run state checks them for the calls of a task's last reply;
//! [`crate::calls`] follows them over whole histories.
//!
//! ```text
//! Requested ─▶ Sent ─▶ Returned
//!   ├────────────────▶ Returned (not sent)
//!   └▶ AwaitingApproval ─▶ Approved ─▶ Sent
//!              └─────────▶ Rejected ─▶ Returned (not sent)
//! Sent ─▶ InDoubt ─▶ ToResend ─▶ Sent
//!            ├─────▶ Confirmed ─▶ Returned
//!            └─────▶ Rejected ─▶ Returned (not sent)
//! Sent ─▶ Unresolved
//! ```

use ktsu_ledger::event::plan::{ApprovalPolicy, OnReject, TimeoutBehavior};
use ktsu_ledger::event::{
    AgentEvent, ApprovalDecided, Decision, DoubtReason, LlmResponse, ToolCalled, ToolReturned,
    UnsentReason,
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
    /// True if the agent's decision to call them is recorded.
    pub decided: bool,
}

/// The key by which a frame names the tool call it is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallKey {
    /// By the `llm.response` that asks for it, and its index there.
    Place(u64, u32),
    /// By an earlier frame about it.
    Frame(u64),
}

/// A tool call that a model asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedCall {
    /// The name the model gave the call.
    pub id: String,
    /// The tool, as the model calls it.
    pub name: String,
    /// The arguments.
    pub arguments: CanonicalJson,
    /// BLAKE3 of them.
    pub digest: String,
    /// True if the arguments contained a secret: such a call is never sent.
    pub secret: bool,
    /// The state of the call.
    pub state: CallState,
}

/// The state of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CallState {
    /// Nothing is recorded of it.
    #[default]
    Requested,
    /// People are to decide.
    AwaitingApproval(ApprovalGate),
    /// They allowed it: this call of this tool.
    Approved(ApprovalGate),
    /// They rejected it, or nobody decided in time, or it is not to be sent again.
    Rejected,
    /// About to be sent, or on its way.
    Sent(SentCall),
    /// It is unknown whether it happened, and a person is to decide.
    InDoubt {
        /// The call.
        sending: SentCall,
        /// The `tool.in_doubt`.
        seq: u64,
    },
    /// A person decided to send it again.
    ToResend(SentCall),
    /// A person confirmed that it happened.
    Confirmed {
        /// The `tool.called`.
        called: u64,
    },
    /// Its task ended, and it stays unknown whether it happened.
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
    /// True if its server is stateful.
    pub stateful: bool,
    /// The approval it was sent with.
    pub approval: Option<u64>,
    /// The server, by the agent's name.
    pub server: String,
    /// The tool.
    pub tool: String,
}

/// The approval that people are asked to give for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalGate {
    /// The `approval.requested`.
    pub request: u64,
    /// The policy of the definition.
    pub policy: ApprovalPolicy,
    /// The time at which people were asked.
    pub asked_at: Timestamp,
    /// The time from which their deadline counts. Moves where the clock jumps, or the run is
    /// paused.
    pub since: Timestamp,
    /// The people who have approved so far.
    pub approved_by: Vec<String>,
    /// The server, by the agent's name.
    pub server: String,
    /// The tool.
    pub tool: String,
}

/// The failure of a task that has to fail: people rejected a call, or did not decide in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedFailure {
    /// The reason.
    pub reason: ForcedFailureReason,
    /// The tool it was about.
    pub tool: String,
}

/// The reason of a [`ForcedFailure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForcedFailureReason {
    /// A call was rejected, and its policy is to fail.
    Rejected,
    /// Nobody decided in time, and its policy is to fail.
    TimedOut,
    /// A call in doubt is not to be sent again.
    InDoubt,
}

impl ForcedFailureReason {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rejected, Self::TimedOut, Self::InDoubt];

    /// The error code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Rejected => "approval_rejected",
            Self::TimedOut => "approval_timed_out",
            Self::InDoubt => "tool_in_doubt",
        }
    }

    /// The reason why a rejected call ends its task, unless the agent may continue without it.
    pub fn of_rejection(policy: &ApprovalPolicy) -> Option<Self> {
        (policy.on_reject == OnReject::Fail).then_some(Self::Rejected)
    }

    /// The reason why a call that was not decided on in time ends its task, unless the agent may
    /// continue without it.
    pub fn of_expiry(policy: &ApprovalPolicy) -> Option<Self> {
        let behavior = policy.timeout.as_ref().map(|timeout| timeout.behavior);
        let rejects = behavior == Some(TimeoutBehavior::Reject);
        let recovers = rejects && policy.on_reject == OnReject::Recover;
        (!recovers).then_some(Self::TimedOut)
    }
}

impl ForcedFailure {
    /// The error code.
    pub fn code(&self) -> &'static str {
        self.reason.code()
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
    pub(crate) fn of(seq: u64, answer: &LlmResponse) -> Option<Self> {
        let calls = answer.tool_calls.as_ref()?.to_value();
        let list: Vec<_> = calls.as_array()?.iter().map(RequestedCall::parse).collect();
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

    /// Returns `true` if the model has all results.
    pub fn are_done(&self) -> bool {
        self.all(|state| matches!(state, CallState::Returned { .. }))
    }

    /// Returns `true` if none is on its way.
    pub fn are_at_rest(&self) -> bool {
        self.all(|state| !matches!(state, CallState::Sent(_)))
    }

    /// Returns `true` if none waits for a person.
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

    /// The calls on their way.
    pub fn sent_calls(&self) -> impl Iterator<Item = &SentCall> {
        self.list.iter().filter_map(|call| call.state.sent())
    }

    /// The call a person is asked about, by the frame that asks.
    pub fn awaiting_decision(&self, request: u64) -> Option<&RequestedCall> {
        let mut calls = self.list.iter();
        calls.find(|call| call.open_request() == Some(request))
    }

    /// The position of the call that a frame is about.
    fn position(&self, event: &AgentEvent) -> Option<usize> {
        match CallKey::of(event)? {
            CallKey::Place(response, call) => (response == self.response).then_some(call as usize),
            CallKey::Frame(seq) => {
                let mut calls = self.list.iter();
                calls.position(|call| call.open_frame() == Some(seq))
            }
        }
    }

    /// Returns `true` if a frame may follow.
    pub(crate) fn accepts(&self, event: &AgentEvent, attempt: u32) -> bool {
        if let AgentEvent::Decided(decided) = event {
            return decided.response == Some(self.response) && !self.decided;
        }
        let gates = matches!(event, AgentEvent::ApprovalRequested(_));
        let call = self.position(event).and_then(|at| self.list.get(at));
        self.decided
            && (!gates || self.are_at_rest())
            && call.is_some_and(|call| call.accepts(event, attempt))
    }

    /// Applies a frame that [`RequestedCalls::accepts`] allows. Returns how the task has to fail,
    /// if it does.
    pub(crate) fn apply(
        &mut self,
        seq: u64,
        at: Timestamp,
        event: &AgentEvent,
        stateful: bool,
    ) -> Option<ForcedFailure> {
        self.decided |= matches!(event, AgentEvent::Decided(_));
        let position = self.position(event)?;
        self.list.get_mut(position)?.apply(seq, at, event, stateful)
    }

    /// Gives the people who are asked as much more time.
    pub(crate) fn postpone(&mut self, by_ms: u64) {
        for call in &mut self.list {
            if let CallState::AwaitingApproval(gate) = &mut call.state {
                gate.since = gate.since.plus_millis(by_ms);
            }
        }
    }

    /// Resets every call without a result: in the branch that begins, it has not happened
    /// (decision F1).
    pub(crate) fn reset_unreturned(&mut self) {
        for call in &mut self.list {
            if !matches!(call.state, CallState::Returned { .. }) {
                call.state = CallState::Requested;
            }
        }
    }
}

impl ApprovalGate {
    /// The time until which people may decide, if there is an end to it.
    pub fn deadline(&self) -> Option<Timestamp> {
        let timeout = self.policy.timeout.as_ref();
        timeout.map(|timeout| self.since.plus_millis(timeout.ms))
    }

    /// The deadline as it was when people were asked. Notices say this, so that one that is sent
    /// again says what it said before.
    pub fn announced_deadline(&self) -> Option<Timestamp> {
        let timeout = self.policy.timeout.as_ref();
        timeout.map(|timeout| self.asked_at.plus_millis(timeout.ms))
    }
}

impl CallState {
    /// The approval that people are asked to give before the call.
    pub fn gate(&self) -> Option<&ApprovalGate> {
        if let Self::AwaitingApproval(gate) = self {
            return Some(gate);
        }
        None
    }

    /// The call on its way.
    pub fn sent(&self) -> Option<&SentCall> {
        if let Self::Sent(sending) = self {
            return Some(sending);
        }
        None
    }
}

impl CallKey {
    /// The call that a frame is about.
    pub(crate) fn of(event: &AgentEvent) -> Option<Self> {
        match event {
            AgentEvent::ToolCalled(called) => Some(Self::Place(called.response, called.call)),
            AgentEvent::ToolReturned(returned) => {
                Some(Self::Place(returned.response, returned.call))
            }
            AgentEvent::ApprovalRequested(asked) => Some(Self::Place(asked.response, asked.call)),
            AgentEvent::ToolInDoubt(doubt) => Some(Self::Frame(doubt.called)),
            AgentEvent::ApprovalDecided(decided) => Some(Self::Frame(decided.request)),
            AgentEvent::ApprovalExpired(expired) => Some(Self::Frame(expired.request)),
            AgentEvent::Request(_)
            | AgentEvent::Response(_)
            | AgentEvent::Decided(_)
            | AgentEvent::ReflectStarted(_)
            | AgentEvent::BudgetExhausted(_)
            | AgentEvent::Finished(_) => None,
        }
    }
}

/// Returns `true` if a model's name for a tool is its full name, `SERVER__TOOL` (decision A2).
pub fn is_full_name(name: &str, server: &str, tool: &str) -> bool {
    let rest = name.strip_prefix(server);
    rest.and_then(|rest| rest.strip_prefix("__")) == Some(tool)
}

impl RequestedCall {
    /// Reads an entry of `llm.response.tool_calls`. What is missing is empty.
    pub fn parse(call: &Value) -> Self {
        let arguments = CanonicalJson::from_value(&call["arguments"]).unwrap_or_default();
        Self {
            id: call["id"].as_str().unwrap_or_default().to_owned(),
            name: call["name"].as_str().unwrap_or_default().to_owned(),
            digest: Hash::of(arguments.as_str().as_bytes()).to_string(),
            arguments,
            secret: call["secret"] == Value::Bool(true),
            state: CallState::Requested,
        }
    }

    /// Returns `true` if this is the tool the model named: by its bare name, or in full (decision
    /// A2).
    pub fn names_tool(&self, server: &str, tool: &str) -> bool {
        self.name == tool || is_full_name(&self.name, server, tool)
    }

    /// Returns `true` if it is on its way as this `tool.called`.
    pub fn is_sent_as(&self, called: u64) -> bool {
        self.state
            .sent()
            .is_some_and(|sending| sending.called == called)
    }

    /// The frame that asks a person about it.
    pub fn open_request(&self) -> Option<u64> {
        if let CallState::InDoubt { seq, .. } = &self.state {
            return Some(*seq);
        }
        self.state.gate().map(|gate| gate.request)
    }

    /// The frame that later frames about it name: the one that sent it or that asks a person.
    fn open_frame(&self) -> Option<u64> {
        let sent = self.state.sent().map(|sending| sending.called);
        sent.or_else(|| self.open_request())
    }

    /// Returns `true` if a frame about it may follow, once the agent has decided to make the call.
    fn accepts(&self, event: &AgentEvent, attempt: u32) -> bool {
        match (event, &self.state) {
            (AgentEvent::ToolCalled(called), _) => self.accepts_call(called, attempt),
            (AgentEvent::ToolReturned(returned), _) => self.accepts_result(returned),
            (AgentEvent::ToolInDoubt(doubt), CallState::Sent(sending)) => match doubt.reason {
                DoubtReason::NoAnswer => sending.attempt == attempt && doubt.report.is_some(),
                DoubtReason::WorkerLost => sending.stateful && doubt.report.is_none(),
                DoubtReason::TaskEnded => true,
            },
            (AgentEvent::ApprovalRequested(asked), CallState::Requested) => {
                !self.secret
                    && self.digest == asked.digest
                    && self.names_tool(&asked.server, &asked.tool)
            }
            (AgentEvent::ApprovalDecided(decided), _) => self.may_be_decided(decided),
            (AgentEvent::ApprovalExpired(_), CallState::AwaitingApproval(gate)) => {
                gate.policy.timeout.is_some()
            }
            _ => false,
        }
    }

    fn accepts_call(&self, called: &ToolCalled, attempt: u32) -> bool {
        let same = |server: &str, tool: &str| (server, tool) == (&*called.server, &*called.tool);
        let again = |sending: &SentCall| {
            called.again == Some(sending.first)
                && called.approval == sending.approval
                && same(&sending.server, &sending.tool)
        };
        let follows = match &self.state {
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
        let named = self.names_tool(&called.server, &called.tool);
        follows && named && !self.secret && self.digest == called.digest
    }

    fn accepts_result(&self, returned: &ToolReturned) -> bool {
        if returned.recorded.is_some() {
            // The task checks the recorded result itself.
            return self.state == CallState::Requested && returned.called.is_none();
        }
        let fits = match (&self.state, returned.not_sent) {
            (CallState::Sent(sending), None) => returned.called == Some(sending.called),
            (CallState::Confirmed { called }, None) => returned.called == Some(*called),
            (
                // A call to be sent again may be withheld, too: its server may be by now.
                CallState::Requested | CallState::Approved(_) | CallState::ToResend(_),
                Some(
                    UnsentReason::UnknownTool
                    | UnsentReason::InvalidArguments
                    | UnsentReason::SuppressedInBranch,
                ),
            ) => true,
            (CallState::Requested, Some(UnsentReason::SecretInArguments)) => self.secret,
            (CallState::Rejected, Some(UnsentReason::Rejected | UnsentReason::InDoubt)) => true,
            _ => false,
        };
        fits && (returned.not_sent.is_none() || returned.called.is_none())
    }

    /// Returns `true` if a person's decision fits: it is about these arguments, and not their
    /// second one.
    fn may_be_decided(&self, decided: &ApprovalDecided) -> bool {
        let fits = match self.state.gate() {
            Some(gate) => {
                decided.decision != Decision::Happened && !gate.approved_by.contains(&decided.by.id)
            }
            None => matches!(self.state, CallState::InDoubt { .. }),
        };
        let result_fits = decided.result.is_none() || decided.decision == Decision::Happened;
        fits && result_fits && self.digest == decided.digest
    }

    /// Applies a frame about it, whether or not it may follow. Returns how the task has to fail, if
    /// it does.
    pub(crate) fn apply(
        &mut self,
        seq: u64,
        at: Timestamp,
        event: &AgentEvent,
        stateful: bool,
    ) -> Option<ForcedFailure> {
        let (state, failure) = match (event, &mut self.state) {
            (AgentEvent::ToolCalled(called), _) => {
                let sending = SentCall {
                    called: seq,
                    first: called.again.unwrap_or(seq),
                    attempt: called.attempt,
                    stateful,
                    approval: called.approval,
                    server: called.server.clone(),
                    tool: called.tool.clone(),
                };
                (CallState::Sent(sending), None)
            }
            (AgentEvent::ToolReturned(_), _) => (CallState::Returned { seq }, None),
            (AgentEvent::ToolInDoubt(doubt), CallState::Sent(sending)) => match doubt.reason {
                DoubtReason::TaskEnded => (CallState::Unresolved, None),
                DoubtReason::NoAnswer | DoubtReason::WorkerLost => {
                    let sending = sending.clone();
                    (CallState::InDoubt { sending, seq }, None)
                }
            },
            (AgentEvent::ApprovalRequested(asked), _) => {
                let gate = ApprovalGate {
                    request: seq,
                    policy: asked.policy.clone(),
                    asked_at: at,
                    since: at,
                    approved_by: Vec::new(),
                    server: asked.server.clone(),
                    tool: asked.tool.clone(),
                };
                (CallState::AwaitingApproval(gate), None)
            }
            (AgentEvent::ApprovalDecided(decided), state) => match (state, decided.decision) {
                (CallState::AwaitingApproval(gate), Decision::Approved) => {
                    gate.approved_by.push(decided.by.id.clone());
                    if gate.approved_by.len() < gate.policy.quorum.max(1) as usize {
                        return None;
                    }
                    (CallState::Approved(gate.clone()), None)
                }
                (CallState::AwaitingApproval(gate), Decision::Rejected | Decision::Happened) => {
                    let reason = ForcedFailureReason::of_rejection(&gate.policy);
                    (CallState::Rejected, reason.zip(Some(gate.tool.clone())))
                }
                (CallState::InDoubt { sending, .. }, Decision::Approved) => {
                    (CallState::ToResend(sending.clone()), None)
                }
                (CallState::InDoubt { sending, .. }, Decision::Happened) => {
                    let called = sending.called;
                    (CallState::Confirmed { called }, None)
                }
                (CallState::InDoubt { sending, .. }, Decision::Rejected) => {
                    let failure = (ForcedFailureReason::InDoubt, sending.tool.clone());
                    (CallState::Rejected, Some(failure))
                }
                _ => return None,
            },
            (AgentEvent::ApprovalExpired(_), CallState::AwaitingApproval(gate)) => {
                let reason = ForcedFailureReason::of_expiry(&gate.policy);
                (CallState::Rejected, reason.zip(Some(gate.tool.clone())))
            }
            _ => return None,
        };
        self.state = state;
        failure.map(|(reason, tool)| ForcedFailure { reason, tool })
    }
}

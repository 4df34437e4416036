//! The calls of one reply: a fold over what is recorded of each.
//!
//! ```text
//! Proposed ─┬──────────────────────────────────────────────────────────────▶ Returned
//!           ├─▶ Called ─▶ (no answer) Lost ─▶ InDoubt ─┬▶ ConfirmedByPerson ─▶ Returned
//!           │      ▲                    │              └▶ Allowed
//!           │      └────────────────────┴──────┐
//!           └─▶ Gated ─┬▶ Allowed ─▶ Called ───┘
//!                      └▶ Rejected ─▶ Returned
//! ```

use serde_json::Value;

use super::frames::{
    ApprovalDecidedData, ApprovalRequestedData, RequestedTool, ToolCalledData, ToolReturnedData,
};
use super::requests::read;
use crate::tools::catalogue::ToolTarget;
use ktsu_contract::gateway::ToolCall;
use ktsu_contract::runtime::RecordedFrame;

/// The calls of a reply, in its order.
#[derive(Debug, Clone)]
pub(super) struct ToolRound {
    /// The number of the reply.
    pub(super) response: u64,
    /// The text of the reply beside them.
    pub(super) text: String,
    /// True if it was the loop's last turn: nothing is called any more.
    pub(super) last: bool,
    /// True if it is reported that they are to be made.
    pub(super) decided: bool,
    pub(super) calls: Vec<RoundCall>,
}

/// A call, and how far it is.
#[derive(Debug, Clone)]
pub(super) struct RoundCall {
    pub(super) asked: ToolCall,
    /// True if its arguments held a secret.
    pub(super) secret: bool,
    pub(super) state: RoundCallState,
}

/// See the module documentation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RoundCallState {
    /// The model asks for it.
    Proposed,
    /// People are asked.
    Gated {
        target: ToolTarget,
        request: u64,
        /// Number of people who still have to approve.
        missing: u32,
    },
    /// It may be sent.
    Allowed(ToolTarget),
    /// It may not, with a person's reason.
    Rejected(Option<String>),
    /// It is announced.
    Called {
        target: ToolTarget,
        called: u64,
        key: Option<String>,
        /// True if this process sent it.
        sent: bool,
    },
    /// It was sent, and there is no answer.
    Lost { target: ToolTarget, called: u64 },
    /// People are asked whether it happened.
    InDoubt { target: ToolTarget, doubt: u64 },
    /// A person says that it happened, and gave this.
    ConfirmedByPerson(String),
    /// The model has its result, in this frame.
    Returned(u64),
}

impl ToolRound {
    /// The calls of a reply; nothing if it asks for none.
    pub(super) fn of(response: u64, text: &str, calls: &Value, last: bool) -> Option<Self> {
        let wanted: Vec<RequestedTool> = read(calls)?;
        if wanted.is_empty() {
            return None;
        }
        let calls = wanted.into_iter().map(|wanted| RoundCall {
            asked: wanted.call,
            secret: wanted.secret,
            state: RoundCallState::Proposed,
        });
        Some(Self {
            response,
            text: text.to_owned(),
            last,
            decided: false,
            calls: calls.collect(),
        })
    }

    /// The calls that the model asked for.
    pub(super) fn asked(&self) -> Vec<ToolCall> {
        self.calls.iter().map(|call| call.asked.clone()).collect()
    }

    /// The calls that are still to be checked: the names the model has for them, and the tools that
    /// are settled.
    pub(super) fn awaiting_check(&self) -> Vec<(&str, Option<&ToolTarget>)> {
        let calls = self.calls.iter().filter_map(|call| {
            let target = match &call.state {
                RoundCallState::Proposed => None,
                RoundCallState::Allowed(target) | RoundCallState::Lost { target, .. } => {
                    Some(target)
                }
                _ => return None,
            };
            Some((call.asked.name.as_str(), target))
        });
        calls.collect()
    }

    /// The frames with the results, in order of the calls, once there are all of them.
    pub(super) fn results(&self) -> Option<Vec<u64>> {
        self.calls.iter().map(|call| call.state.result()).collect()
    }

    /// The calls of which nobody can say yet whether they happened.
    pub(super) fn open(&self) -> Vec<u64> {
        let open = |call: &RoundCall| call.state.open().map(|(called, _)| called);
        self.calls.iter().filter_map(open).collect()
    }

    /// An open call: its place, and where it went.
    pub(super) fn called(&self, number: u64) -> Option<(u32, &ToolTarget)> {
        (0..).zip(&self.calls).find_map(|(at, call)| {
            let (called, target) = call.state.open()?;
            (called == number).then_some((at, target))
        })
    }

    /// That a call went out from here.
    pub(super) fn sent(&mut self, number: u64) {
        for call in &mut self.calls {
            if let RoundCallState::Called { called, sent, .. } = &mut call.state
                && *called == number
            {
                *sent = true;
            }
        }
    }

    /// That there is no answer to these calls, and will be none.
    pub(super) fn mark_lost(&mut self, which: impl Fn(u64) -> bool) {
        for call in &mut self.calls {
            if let RoundCallState::Called { target, called, .. } = &call.state
                && which(*called)
            {
                call.state = RoundCallState::Lost {
                    target: target.clone(),
                    called: *called,
                };
            }
        }
    }

    /// Takes a recorded event about the calls in. False if it changes nothing.
    pub(super) fn feed(&mut self, event: &RecordedFrame) -> bool {
        let data = &event.data;
        match event.kind.as_str() {
            "tool.called" => read(data).is_some_and(|called| self.announced(event.seq, called)),
            "tool.in_doubt" => {
                let called = data.get("called").and_then(Value::as_u64);
                called.is_some_and(|called| self.doubted(event.seq, called))
            }
            "approval.requested" => read(data).is_some_and(|asked| self.gated(event.seq, asked)),
            "approval.decided" => read(data).is_some_and(|decided| self.decided(decided)),
            "approval.expired" => {
                let request = data.get("request").and_then(Value::as_u64);
                let words = "nobody decided in time".to_owned();
                request.is_some_and(|request| self.rejected(request, Some(words)))
            }
            _ => false,
        }
    }

    /// The tool that a call went to which is sent, or may have been.
    pub(super) fn target(&self, call: u32) -> Option<&ToolTarget> {
        let call = self.calls.get(call as usize)?;
        call.state.open().map(|(_, target)| target)
    }

    /// The model has a result.
    pub(super) fn returned(&mut self, seq: u64, result: &ToolReturnedData) -> Option<&ToolCall> {
        let call = self.at(result.response, result.call)?;
        if matches!(call.state, RoundCallState::Returned(_)) {
            return None;
        }
        call.state = RoundCallState::Returned(seq);
        Some(&call.asked)
    }

    fn at(&mut self, response: u64, call: u32) -> Option<&mut RoundCall> {
        let calls = (response == self.response).then_some(&mut self.calls)?;
        calls.get_mut(call as usize)
    }

    fn announced(&mut self, seq: u64, called: ToolCalledData) -> bool {
        let Some(call) = self.at(called.response, called.call) else {
            return false;
        };
        call.state = RoundCallState::Called {
            target: ToolTarget {
                server: called.server,
                tool: called.tool,
            },
            called: seq,
            key: called.idempotency_key.filter(|key| !key.is_empty()),
            sent: false,
        };
        true
    }

    fn gated(&mut self, seq: u64, asked: ApprovalRequestedData) -> bool {
        let Some(call) = self.at(asked.response, asked.call) else {
            return false;
        };
        call.state = RoundCallState::Gated {
            target: ToolTarget {
                server: asked.server,
                tool: asked.tool,
            },
            request: seq,
            missing: asked.policy.quorum.max(1),
        };
        true
    }

    fn doubted(&mut self, seq: u64, number: u64) -> bool {
        self.mark_lost(|called| called == number);
        for call in &mut self.calls {
            if let RoundCallState::Lost { target, called } = &call.state
                && *called == number
            {
                call.state = RoundCallState::InDoubt {
                    target: target.clone(),
                    doubt: seq,
                };
                return true;
            }
        }
        false
    }

    fn decided(&mut self, decided: ApprovalDecidedData) -> bool {
        match decided.decision.as_str() {
            "rejected" => return self.rejected(decided.request, decided.reason),
            "approved" | "happened" => {}
            _ => return false,
        }
        let approved = decided.decision == "approved";
        for call in &mut self.calls {
            let next = match &mut call.state {
                RoundCallState::Gated {
                    target,
                    request,
                    missing,
                } if *request == decided.request && approved => {
                    *missing -= 1;
                    match missing {
                        0 => RoundCallState::Allowed(target.clone()),
                        _ => return true,
                    }
                }
                RoundCallState::InDoubt { target, doubt } if *doubt == decided.request => {
                    match approved {
                        true => RoundCallState::Allowed(target.clone()),
                        false => {
                            RoundCallState::ConfirmedByPerson(decided.result.unwrap_or_default())
                        }
                    }
                }
                _ => continue,
            };
            call.state = next;
            return true;
        }
        false
    }

    fn rejected(&mut self, number: u64, reason: Option<String>) -> bool {
        for call in &mut self.calls {
            if matches!(call.state, RoundCallState::Gated { request, .. } if request == number) {
                call.state = RoundCallState::Rejected(reason);
                return true;
            }
        }
        false
    }
}

impl RoundCallState {
    fn result(&self) -> Option<u64> {
        match self {
            Self::Returned(frame) => Some(*frame),
            _ => None,
        }
    }

    /// Of a call that is sent, or may have been, and is neither answered nor in doubt: its number.
    fn open(&self) -> Option<(u64, &ToolTarget)> {
        match self {
            Self::Called { target, called, .. } | Self::Lost { target, called } => {
                Some((*called, target))
            }
            _ => None,
        }
    }
}

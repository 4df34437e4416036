//! The calls that one reply asks for: a fold over what is recorded of each.
//!
//! ```text
//! Asked ─┬─────────────────────────────────────────────▶ Returned
//!        ├─▶ Called ─▶ (no answer) Lost ─▶ Doubted ─┬▶ Settled ─▶ Returned
//!        │      ▲                    │              └▶ Allowed
//!        │      └────────────────────┴──────┐
//!        └─▶ Gated ─┬▶ Allowed ─▶ Called ───┘
//!                   └▶ Rejected ─▶ Returned
//! ```

use serde_json::Value;

use super::frames::{Called, Decided, Requested, Returned, Wanted};
use super::requests::read;
use crate::tools::catalogue::Target;
use ktsu_contract::gateway::ToolCall;
use ktsu_contract::runtime::Recorded;

/// The calls of a reply, in its order.
#[derive(Debug, Clone)]
pub(super) struct Round {
    /// The number of the reply.
    pub(super) response: u64,
    /// What the reply says beside them.
    pub(super) text: String,
    /// Whether it was the loop's last turn: nothing is called any more.
    pub(super) last: bool,
    /// Whether it is reported that they are to be made.
    pub(super) decided: bool,
    pub(super) calls: Vec<Call>,
}

/// A call, and how far it is.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) asked: ToolCall,
    /// Whether a secret stood in its arguments.
    pub(super) secret: bool,
    pub(super) state: State,
}

/// See the module documentation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    /// The model asks for it.
    Asked,
    /// People are asked.
    Gated {
        target: Target,
        request: u64,
        /// How many of them have to approve, still.
        missing: u32,
    },
    /// It may be sent.
    Allowed(Target),
    /// It may not, with a person's reason.
    Rejected(Option<String>),
    /// It is announced.
    Called {
        target: Target,
        called: u64,
        key: Option<String>,
        /// Whether this process sent it.
        sent: bool,
    },
    /// It was sent, and there is no answer.
    Lost { target: Target, called: u64 },
    /// People are asked whether it happened.
    Doubted { target: Target, doubt: u64 },
    /// A person says that it happened, and gave this.
    Settled(String),
    /// The model has its result, in this frame.
    Returned(u64),
}

impl Round {
    /// The calls of a reply; nothing if it asks for none.
    pub(super) fn of(response: u64, text: &str, calls: &Value, last: bool) -> Option<Self> {
        let wanted: Vec<Wanted> = read(calls)?;
        if wanted.is_empty() {
            return None;
        }
        let calls = wanted.into_iter().map(|wanted| Call {
            asked: wanted.call,
            secret: wanted.secret,
            state: State::Asked,
        });
        Some(Self {
            response,
            text: text.to_owned(),
            last,
            decided: false,
            calls: calls.collect(),
        })
    }

    /// What the model asked for.
    pub(super) fn asked(&self) -> Vec<ToolCall> {
        self.calls.iter().map(|call| call.asked.clone()).collect()
    }

    /// What is still to be judged: the names the model has for it, and the tools that are settled.
    pub(super) fn wanted(&self) -> Vec<(&str, Option<&Target>)> {
        let calls = self.calls.iter().filter_map(|call| {
            let target = match &call.state {
                State::Asked => None,
                State::Allowed(target) | State::Lost { target, .. } => Some(target),
                State::Gated { .. }
                | State::Rejected(_)
                | State::Called { .. }
                | State::Doubted { .. }
                | State::Settled(_)
                | State::Returned(_) => return None,
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
        let open = |call: &Call| call.state.open().map(|(called, _)| called);
        self.calls.iter().filter_map(open).collect()
    }

    /// An open call: its place, and where it went.
    pub(super) fn called(&self, number: u64) -> Option<(u32, &Target)> {
        (0..).zip(&self.calls).find_map(|(at, call)| {
            let (called, target) = call.state.open()?;
            (called == number).then_some((at, target))
        })
    }

    /// That a call went out from here.
    pub(super) fn sent(&mut self, number: u64) {
        for call in &mut self.calls {
            if let State::Called { called, sent, .. } = &mut call.state
                && *called == number
            {
                *sent = true;
            }
        }
    }

    /// That there is no answer to these calls, and will be none.
    pub(super) fn lose(&mut self, which: impl Fn(u64) -> bool) {
        for call in &mut self.calls {
            if let State::Called { target, called, .. } = &call.state
                && which(*called)
            {
                call.state = State::Lost {
                    target: target.clone(),
                    called: *called,
                };
            }
        }
    }

    /// Takes a recorded event about the calls in. False if it changes nothing.
    pub(super) fn feed(&mut self, event: &Recorded) -> bool {
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

    /// The model has a result.
    pub(super) fn returned(&mut self, seq: u64, result: &Returned) -> Option<&ToolCall> {
        let call = self.at(result.response, result.call)?;
        if matches!(call.state, State::Returned(_)) {
            return None;
        }
        call.state = State::Returned(seq);
        Some(&call.asked)
    }

    fn at(&mut self, response: u64, call: u32) -> Option<&mut Call> {
        let calls = (response == self.response).then_some(&mut self.calls)?;
        calls.get_mut(call as usize)
    }

    fn announced(&mut self, seq: u64, called: Called) -> bool {
        let Some(call) = self.at(called.response, called.call) else {
            return false;
        };
        call.state = State::Called {
            target: Target {
                server: called.server,
                tool: called.tool,
            },
            called: seq,
            key: called.idempotency_key.filter(|key| !key.is_empty()),
            sent: false,
        };
        true
    }

    fn gated(&mut self, seq: u64, asked: Requested) -> bool {
        let Some(call) = self.at(asked.response, asked.call) else {
            return false;
        };
        call.state = State::Gated {
            target: Target {
                server: asked.server,
                tool: asked.tool,
            },
            request: seq,
            missing: asked.policy.quorum.max(1),
        };
        true
    }

    fn doubted(&mut self, seq: u64, number: u64) -> bool {
        self.lose(|called| called == number);
        for call in &mut self.calls {
            if let State::Lost { target, called } = &call.state
                && *called == number
            {
                call.state = State::Doubted {
                    target: target.clone(),
                    doubt: seq,
                };
                return true;
            }
        }
        false
    }

    fn decided(&mut self, decided: Decided) -> bool {
        match decided.decision.as_str() {
            "rejected" => return self.rejected(decided.request, decided.reason),
            "approved" | "happened" => {}
            _ => return false,
        }
        let approved = decided.decision == "approved";
        for call in &mut self.calls {
            let next = match &mut call.state {
                State::Gated {
                    target,
                    request,
                    missing,
                } if *request == decided.request && approved => {
                    *missing -= 1;
                    match missing {
                        0 => State::Allowed(target.clone()),
                        _ => return true,
                    }
                }
                State::Doubted { target, doubt } if *doubt == decided.request => match approved {
                    true => State::Allowed(target.clone()),
                    false => State::Settled(decided.result.unwrap_or_default()),
                },
                State::Gated { .. }
                | State::Doubted { .. }
                | State::Asked
                | State::Allowed(_)
                | State::Rejected(_)
                | State::Called { .. }
                | State::Lost { .. }
                | State::Settled(_)
                | State::Returned(_) => continue,
            };
            call.state = next;
            return true;
        }
        false
    }

    fn rejected(&mut self, number: u64, reason: Option<String>) -> bool {
        for call in &mut self.calls {
            if matches!(call.state, State::Gated { request, .. } if request == number) {
                call.state = State::Rejected(reason);
                return true;
            }
        }
        false
    }
}

impl State {
    fn result(&self) -> Option<u64> {
        match self {
            Self::Returned(frame) => Some(*frame),
            Self::Asked
            | Self::Gated { .. }
            | Self::Allowed(_)
            | Self::Rejected(_)
            | Self::Called { .. }
            | Self::Lost { .. }
            | Self::Doubted { .. }
            | Self::Settled(_) => None,
        }
    }

    /// Of a call that is sent, or may have been, and is neither answered nor in doubt: its number.
    fn open(&self) -> Option<(u64, &Target)> {
        match self {
            Self::Called { target, called, .. } | Self::Lost { target, called } => {
                Some((*called, target))
            }
            Self::Asked
            | Self::Gated { .. }
            | Self::Allowed(_)
            | Self::Rejected(_)
            | Self::Doubted { .. }
            | Self::Settled(_)
            | Self::Returned(_) => None,
        }
    }
}

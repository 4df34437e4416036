//! What a task does next, decided from what is recorded of it: the agent loop without the world.
//!
//! The state is a fold over the recorded events, so a task that goes on after a crash, or in
//! another runtime, is the same fold over its history; nothing that was answered is asked again.
//!
//! ```text
//! Turn ──llm.request──▶ Asked ──llm.response──▶ Draft ──agent.decided──▶ Decided ──▶ Finish
//!                         ▲  │                    ▲                         │
//!                         │  └──not JSON──▶ Unreadable ─(repair)            │ reflect.started
//!                         └────────────────────────────────────────────── Reflecting
//! ```
//!
//! Tools will come in where a reply is read ([`Conversation::replied`]): a reply that asks for
//! some leads back to `Turn` with more messages, and `max_turns` bounds how often.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::prompt::Prompt;
use super::reply;
use crate::contract::gateway::Message;
use crate::contract::report::{Failure, Finished, LlmResponse, Outcome, Purpose};
use crate::contract::runtime::Recorded;

/// Turns of a loop that names no bound.
const DEFAULT_TURNS: u32 = 10;

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// Announce a model call.
    Call {
        /// What for.
        purpose: Purpose,
        /// All of its messages.
        messages: Vec<Message>,
    },
    /// Make the call that is announced.
    Ask {
        /// The announcement's number.
        seq: u64,
        /// Its messages, as recorded.
        messages: Vec<Message>,
    },
    /// Report a draft: the agent may reflect on it.
    Decide(Value),
    /// Report the end.
    Finish(Finished),
}

/// A task's state.
#[derive(Debug, Clone)]
pub(super) struct Conversation {
    prompt: Prompt,
    max_turns: u32,
    turns: u32,
    /// The messages of every request, for those that go on from an earlier one.
    requests: BTreeMap<u64, Vec<Message>>,
    stage: Stage,
}

#[derive(Debug, Clone)]
enum Stage {
    /// A turn is due.
    Turn(Vec<Message>),
    /// A call is announced and not answered.
    Asked { seq: u64, purpose: Purpose },
    /// The reply to a turn is no JSON object.
    Unreadable { turn: u64, text: String },
    /// There is a draft.
    Draft(Value),
    /// The draft is reported; without a reflection it is the output.
    Decided(Value),
    /// The draft is to be looked at once more.
    Reflecting(Value),
    /// The end is known.
    Ended(Finished),
}

/// The members of a recorded `llm.request` that matter here.
#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    base: Option<u64>,
    messages: Vec<Message>,
    purpose: Purpose,
}

/// The members of a recorded `llm.response` that matter here.
#[derive(Deserialize)]
struct Response {
    request: u64,
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    error: Option<Failure>,
}

impl Conversation {
    /// A task of which nothing is recorded.
    pub(super) fn new(prompt: Prompt, max_turns: u32) -> Self {
        let stage = Stage::Turn(prompt.first());
        let max_turns = if max_turns == 0 {
            DEFAULT_TURNS
        } else {
            max_turns
        };
        Self {
            prompt,
            max_turns,
            turns: 0,
            requests: BTreeMap::new(),
            stage,
        }
    }

    /// Takes a recorded event in. False if it changed nothing: it is not about the conversation,
    /// is of a type this version does not know, or answers what was not asked.
    pub(super) fn feed(&mut self, event: &Recorded) -> bool {
        match event.kind.as_str() {
            "llm.request" => self.requested(event),
            "llm.response" => match Response::deserialize(&event.data) {
                Ok(response) => self.responded(response),
                Err(_) => false,
            },
            "agent.decided" => match event.data.get("draft") {
                Some(draft) => self.decided(draft),
                None => false,
            },
            "reflect.started" => self.reflect(),
            _ => false,
        }
    }

    /// What to do now. The same state gives the same answer.
    pub(super) fn next(&self) -> Action {
        match &self.stage {
            Stage::Turn(_) if self.turns >= self.max_turns => Action::Finish(failed(
                "max_turns",
                Failure {
                    code: "max_turns_exceeded".to_owned(),
                    message: format!("no output after {} turns", self.max_turns),
                    retryable: false,
                },
                None,
            )),
            Stage::Turn(messages) => Action::Call {
                purpose: Purpose::Turn,
                messages: messages.clone(),
            },
            Stage::Asked { seq, .. } => Action::Ask {
                seq: *seq,
                messages: self.messages(*seq),
            },
            Stage::Unreadable { turn, text } => Action::Call {
                purpose: Purpose::Repair,
                messages: Prompt::repair(&self.messages(*turn), text),
            },
            Stage::Draft(draft) if self.prompt.reflects() => Action::Decide(draft.clone()),
            Stage::Draft(draft) | Stage::Decided(draft) => Action::Finish(completed(draft)),
            Stage::Reflecting(draft) => match self.prompt.reflection(draft) {
                Some(messages) => Action::Call {
                    purpose: Purpose::Reflect,
                    messages,
                },
                // The agent's file lost its reflection between two attempts.
                None => Action::Finish(completed(draft)),
            },
            Stage::Ended(finished) => Action::Finish(finished.clone()),
        }
    }

    /// What to do once this response is recorded as it is, so that both can go in one report.
    pub(super) fn after(&self, response: &LlmResponse) -> Action {
        let mut then = self.clone();
        then.responded(Response {
            request: response.request,
            content: response.content.clone().map(Value::String),
            error: response.error.clone(),
        });
        then.next()
    }

    /// The orchestrator wants the draft looked at once more. False if no draft was reported.
    pub(super) fn reflect(&mut self) -> bool {
        let Stage::Decided(draft) = &self.stage else {
            return false;
        };
        self.stage = Stage::Reflecting(draft.clone());
        true
    }

    fn requested(&mut self, event: &Recorded) -> bool {
        let Ok(request) = Request::deserialize(&event.data) else {
            return false;
        };
        let mut messages = match request.base {
            None => Vec::new(),
            Some(base) => match self.requests.get(&base) {
                Some(messages) => messages.clone(),
                // Half a conversation is none: it will be asked anew.
                None => return false,
            },
        };
        messages.extend(request.messages);
        self.turns += u32::from(request.purpose == Purpose::Turn);
        self.requests.insert(event.seq, messages);
        self.stage = Stage::Asked {
            seq: event.seq,
            purpose: request.purpose,
        };
        true
    }

    fn responded(&mut self, response: Response) -> bool {
        let Stage::Asked { seq, purpose } = self.stage else {
            return false;
        };
        if response.request != seq {
            return false;
        }
        self.stage = match (response.error, response.content) {
            (Some(error), _) => Stage::Ended(refused(error)),
            (None, Some(Value::String(text))) => self.replied(seq, purpose, text),
            (None, content) => {
                let text = content.map(|content| content.to_string());
                self.replied(seq, purpose, text.unwrap_or_default())
            }
        };
        true
    }

    fn replied(&self, seq: u64, purpose: Purpose, text: String) -> Stage {
        match (purpose, reply::object(&text)) {
            (Purpose::Turn | Purpose::Repair, Some(draft)) => Stage::Draft(draft),
            (Purpose::Reflect, Some(output)) => Stage::Ended(completed(&output)),
            (Purpose::Turn, None) => Stage::Unreadable { turn: seq, text },
            (Purpose::Repair, None) => {
                let words = "neither the reply nor its repair is a JSON object";
                Stage::Ended(unusable("output_invalid", words, text))
            }
            (Purpose::Reflect, None) => {
                let words = "the reply of the reflection is not a JSON object";
                Stage::Ended(unusable("reflect_output_invalid", words, text))
            }
        }
    }

    fn decided(&mut self, draft: &Value) -> bool {
        // What is recorded is redacted, and a text can stop being JSON by that: the draft itself is
        // the better witness.
        if !matches!(self.stage, Stage::Draft(_) | Stage::Unreadable { .. }) {
            return false;
        }
        self.stage = Stage::Decided(draft.clone());
        true
    }

    fn messages(&self, seq: u64) -> Vec<Message> {
        self.requests.get(&seq).cloned().unwrap_or_default()
    }
}

/// The end with an output.
fn completed(output: &Value) -> Finished {
    Finished {
        reason: "completed".to_owned(),
        outcome: Outcome {
            output: Some(output.clone()),
            ..Outcome::default()
        },
    }
}

/// The end with an error, for a reason of decision W7.
pub(super) fn failed(reason: &str, error: Failure, raw_output: Option<String>) -> Finished {
    Finished {
        reason: reason.to_owned(),
        outcome: Outcome {
            error: Some(error),
            raw_output,
            ..Outcome::default()
        },
    }
}

/// The end by an error of the gateway, or of the orchestrator that refused a call.
pub(super) fn refused(error: Failure) -> Finished {
    let reason = if error.code == "budget_exceeded" {
        "budget_exceeded"
    } else {
        "error"
    };
    failed(reason, error, None)
}

fn unusable(code: &str, message: &str, text: String) -> Finished {
    let error = Failure {
        code: code.to_owned(),
        message: message.to_owned(),
        retryable: false,
    };
    failed("error", error, Some(text))
}

#[cfg(test)]
mod tests;

//! What a task does next, decided from what is recorded of it: the agent loop without the world.
//!
//! The state is a fold over the recorded events, so a task that goes on after a crash, after people
//! have decided, or in another runtime, is the same fold over its history; nothing that was answered
//! is asked again.
//!
//! ```text
//!  ┌────────────────── all have their results ◀── Calling ◀─┐ (it asks for tools)
//!  ▼                                                        │
//! Turn ──llm.request──▶ Asked ──llm.response──▶ Draft ──agent.decided──▶ Decided ──▶ Finish
//!                         ▲  │                    ▲                         │
//!                         │  └──not JSON──▶ Unreadable ─(repair)            │ reflect.started
//!                         └────────────────────────────────────────────── Reflecting
//! ```
//!
//! `requests` keeps what was told, `round` the calls of the reply that is worked on, `due` says what
//! is due in it, `result` what the model reads of a result, `end` how a task ends.

mod due;
mod end;
mod requests;
mod result;
mod round;

use serde::Deserialize;
use serde_json::Value;

use self::requests::{Request, Requests, assistant, read, text, tool};
use self::round::{Returned, Round};
use super::prompt::Prompt;
use super::reply;
use super::tools::catalogue::Catalogue;
use super::tools::sessions::Sending;
use super::tools::{self, ToolError};
use crate::contract::gateway::{Message, Tool, ToolCall};
use crate::contract::report::{
    Decided, Event, Failure, Finished, LlmResponse, Offered, Purpose, Told, ToolInDoubt,
};
use crate::contract::runtime::Recorded;

pub(super) use due::MAX_DEPTH;
pub(super) use end::{broken, failed, failure, refused};

/// Turns of a loop that names no bound.
const DEFAULT_TURNS: u32 = 10;

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// Announce a model call.
    Call(Box<Announced>),
    /// Make the call that is announced.
    Ask(Box<Asking>),
    /// Report a draft: the agent may reflect on it.
    Decide(Value),
    /// Report this, and go on with what is recorded of it.
    Report(Vec<Event>),
    /// Send these calls, which are announced.
    Send(Vec<Sending>),
    /// Wait for an answer to a call that is under way.
    Wait,
    /// People are asked: end without a word.
    Suspend,
    /// Report the end.
    Finish(Finished),
}

/// A model call to announce.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Announced {
    /// What for.
    pub(super) purpose: Purpose,
    /// The request it goes on from.
    pub(super) base: Option<u64>,
    /// The messages that are new.
    pub(super) messages: Vec<Told>,
    /// The tools, if they are others than those of the base.
    pub(super) tools: Option<Vec<Offered>>,
}

/// A model call to make.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asking {
    /// The announcement's number.
    pub(super) seq: u64,
    /// What for.
    pub(super) purpose: Purpose,
    /// Its messages, as recorded.
    pub(super) messages: Vec<Message>,
    /// Its tools, as recorded.
    pub(super) tools: Vec<Tool>,
}

/// What a task is bound to.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// Turns of the loop; 0: [`DEFAULT_TURNS`].
    pub(super) max_turns: u32,
    /// Whether people can be asked.
    pub(super) people: bool,
}

/// A task's state.
#[derive(Debug, Clone)]
pub(super) struct Conversation {
    prompt: Prompt,
    terms: Terms,
    turns: u32,
    requests: Requests,
    /// The rounds of calls that are over: the reply's frame, and the results'.
    rounds: Vec<(u64, Vec<u64>)>,
    /// The last turn of this attempt, and how many rounds were over when it was asked for.
    base: Option<(u64, usize)>,
    /// Whether the history is read, so that what comes now is of this attempt.
    begun: bool,
    /// The end that is due once no call is under way.
    over: Option<Finished>,
    stage: Stage,
}

#[derive(Debug, Clone)]
enum Stage {
    /// A turn is due.
    Turn,
    /// A call is announced and not answered.
    Asked { seq: u64, purpose: Purpose },
    /// The reply asks for tools.
    Calling(Round),
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

/// The members of a recorded `llm.response` that matter here.
#[derive(Deserialize)]
struct Response {
    request: u64,
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    error: Option<Failure>,
    #[serde(default)]
    tool_calls: Value,
}

impl Conversation {
    /// A task of which this is recorded.
    pub(super) fn new(prompt: Prompt, mut terms: Terms, history: &[Recorded]) -> Self {
        if terms.max_turns == 0 {
            terms.max_turns = DEFAULT_TURNS;
        }
        let mut conversation = Self {
            prompt,
            terms,
            turns: 0,
            requests: Requests::default(),
            rounds: Vec::new(),
            base: None,
            begun: false,
            over: None,
            stage: Stage::Turn,
        };
        for event in history {
            conversation.feed(event);
        }
        // Whoever sent those calls is gone, and their answers with them.
        conversation.lose(|_| true);
        conversation.begun = true;
        conversation
    }

    /// Takes a recorded event in. False if it changed nothing: it is not about the conversation,
    /// is of a type this version does not know, or answers what was not asked.
    pub(super) fn feed(&mut self, event: &Recorded) -> bool {
        match event.kind.as_str() {
            "llm.request" => {
                read(&event.data).is_some_and(|request| self.requested(event.seq, request))
            }
            "llm.response" => {
                read(&event.data).is_some_and(|response| self.responded(event.seq, response))
            }
            "agent.decided" => match (event.data.get("draft"), event.data.get("response")) {
                (Some(draft), _) => self.decided(draft),
                (None, Some(response)) => self.calls_decided(response),
                (None, None) => false,
            },
            "reflect.started" => self.reflect(),
            "tool.returned" => {
                read(&event.data).is_some_and(|result| self.returned(event.seq, &result))
            }
            _ => match &mut self.stage {
                Stage::Calling(round) => round.feed(event),
                Stage::Turn
                | Stage::Asked { .. }
                | Stage::Unreadable { .. }
                | Stage::Draft(_)
                | Stage::Decided(_)
                | Stage::Reflecting(_)
                | Stage::Ended(_) => false,
            },
        }
    }

    /// Whether what is due needs to know what the servers offer.
    pub(super) fn needs_tools(&self) -> bool {
        match &self.stage {
            Stage::Turn => self.turns < self.terms.max_turns,
            Stage::Asked { purpose, .. } => *purpose == Purpose::Turn,
            Stage::Calling(_) => true,
            Stage::Unreadable { .. }
            | Stage::Draft(_)
            | Stage::Decided(_)
            | Stage::Reflecting(_)
            | Stage::Ended(_) => false,
        }
    }

    /// What to do now. The same state gives the same answer.
    pub(super) fn next(&self, catalogue: &Catalogue) -> Action {
        match &self.stage {
            Stage::Turn if self.turns >= self.terms.max_turns => {
                Action::Finish(end::no_turns(self.terms.max_turns, None))
            }
            Stage::Turn => Action::Call(Box::new(self.turn(catalogue))),
            Stage::Asked { seq, purpose } => Action::Ask(Box::new(Asking {
                seq: *seq,
                purpose: *purpose,
                messages: self.requests.messages(*seq),
                tools: self.requests.offered(*seq),
            })),
            Stage::Calling(round) => due::due(round, &self.terms, catalogue, self.over.as_ref()),
            Stage::Unreadable { turn, text } => {
                let messages = Prompt::repair(self.requests.told(*turn), text);
                call(Purpose::Repair, messages)
            }
            Stage::Draft(draft) if self.prompt.reflects() => Action::Decide(draft.clone()),
            Stage::Draft(draft) | Stage::Decided(draft) => Action::Finish(end::completed(draft)),
            Stage::Reflecting(draft) => match self.prompt.reflection(draft) {
                Some(messages) => call(Purpose::Reflect, messages.into_iter().map(text).collect()),
                // The agent's file lost its reflection between two attempts.
                None => Action::Finish(end::completed(draft)),
            },
            Stage::Ended(finished) => Action::Finish(finished.clone()),
        }
    }

    /// What follows from this response if it is recorded as it is, so that both can go in one
    /// report. Nothing where tools are asked for: their frame has to have a number first.
    pub(super) fn after(&self, response: &LlmResponse) -> Option<Event> {
        if !response.tool_calls.is_empty() {
            return None;
        }
        let mut then = self.clone();
        then.responded(
            u64::MAX,
            Response {
                request: response.request,
                content: response.content.clone().map(Value::String),
                error: response.error.clone(),
                tool_calls: Value::Null,
            },
        );
        match then.next(&Catalogue::default()) {
            Action::Finish(end) => Some(Event::Finished(end)),
            Action::Decide(draft) => Some(Event::Decided(Decided {
                draft: Some(draft),
                response: None,
            })),
            Action::Call(_)
            | Action::Ask(_)
            | Action::Report(_)
            | Action::Send(_)
            | Action::Wait
            | Action::Suspend => None,
        }
    }

    /// The orchestrator wants the draft looked at once more. False if no draft was reported.
    pub(super) fn reflect(&mut self) -> bool {
        let Stage::Decided(draft) = &self.stage else {
            return false;
        };
        self.stage = Stage::Reflecting(draft.clone());
        true
    }

    /// That a call went out from here.
    pub(super) fn sent(&mut self, called: u64) {
        if let Stage::Calling(round) = &mut self.stage {
            round.sent(called);
        }
    }

    /// What to report of the answer to a call. Nothing where people have to say whether it
    /// happened, or where nobody waits for it.
    pub(super) fn answered(
        &mut self,
        called: u64,
        answer: Result<tools::Returned, ToolError>,
        catalogue: &Catalogue,
    ) -> Option<Event> {
        let Stage::Calling(round) = &self.stage else {
            return None;
        };
        if let Err(error) = &answer
            && error.drifted
        {
            self.over = Some(broken("tool_drift", error.message.clone()));
        }
        let event = due::answered(round, called, answer, catalogue);
        if event.is_none() {
            self.lose(|lost| lost == called);
        }
        event
    }

    /// What has to be said before the end: that the calls of a reply were decided on, and that of
    /// some nobody knows what became of them.
    pub(super) fn last_words(&self) -> Vec<Event> {
        let Stage::Calling(round) = &self.stage else {
            return Vec::new();
        };
        let doubts = round.open().into_iter();
        let doubts = doubts.map(|called| Event::ToolInDoubt(ToolInDoubt { called }));
        due::decided(round).into_iter().chain(doubts).collect()
    }

    fn lose(&mut self, which: impl Fn(u64) -> bool) {
        if let Stage::Calling(round) = &mut self.stage {
            round.lose(which);
        }
    }

    /// The request of the turn that is due. Whole at the beginning of an attempt, then what is new.
    fn turn(&self, catalogue: &Catalogue) -> Announced {
        let offered = catalogue.offered();
        let calls = !offered.is_empty() || !self.rounds.is_empty();
        let last = calls && self.turns + 1 >= self.terms.max_turns;
        let offered = if last { Vec::new() } else { offered };
        let (base, over) = self.base.unzip();
        let mut messages = match base {
            None => self.prompt.first().into_iter().map(text).collect(),
            Some(_) => Vec::new(),
        };
        for (response, results) in self.rounds.iter().skip(over.unwrap_or(0)) {
            messages.push(assistant(*response));
            messages.extend(results.iter().copied().map(tool));
        }
        if last {
            messages.push(text(Prompt::last_turn()));
        }
        let told = base
            .map(|base| self.requests.tools(base))
            .unwrap_or_default();
        let tools = (told != offered).then_some(offered);
        Announced {
            purpose: Purpose::Turn,
            base,
            messages,
            tools,
        }
    }

    fn requested(&mut self, seq: u64, request: Request) -> bool {
        let purpose = request.purpose;
        if !self.requests.add(seq, request) {
            return false;
        }
        if purpose == Purpose::Turn {
            self.turns += 1;
            self.base = self.begun.then_some((seq, self.rounds.len()));
        }
        self.stage = Stage::Asked { seq, purpose };
        true
    }

    fn responded(&mut self, seq: u64, response: Response) -> bool {
        let Stage::Asked {
            seq: request,
            purpose,
        } = self.stage
        else {
            return false;
        };
        if response.request != request {
            return false;
        }
        self.stage = match (response.error, response.content) {
            (Some(error), _) => Stage::Ended(refused(error)),
            (None, content) => {
                let text = match content {
                    Some(Value::String(text)) => text,
                    Some(other) => other.to_string(),
                    None => String::new(),
                };
                let last = self.turns >= self.terms.max_turns;
                match Round::of(seq, &text, &response.tool_calls, last) {
                    Some(round) if purpose == Purpose::Turn => {
                        self.requests.replied(seq, &text, round.asked());
                        Stage::Calling(round)
                    }
                    Some(_) | None => replied(request, purpose, text),
                }
            }
        };
        true
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

    fn calls_decided(&mut self, response: &Value) -> bool {
        let Stage::Calling(round) = &mut self.stage else {
            return false;
        };
        let meant = response.as_u64() == Some(round.response) && !round.decided;
        round.decided |= meant;
        meant
    }

    fn returned(&mut self, seq: u64, result: &Returned) -> bool {
        let Stage::Calling(round) = &mut self.stage else {
            return false;
        };
        let Some(ToolCall { id, .. }) = round.returned(seq, result) else {
            return false;
        };
        let text = result::text(&result.content, result.structured.as_ref());
        self.requests.returned(seq, id, text, result.is_error);
        if let Some(results) = round.results() {
            self.rounds.push((round.response, results));
            self.stage = match self.over.take() {
                Some(end) => Stage::Ended(end),
                None => Stage::Turn,
            };
        }
        true
    }
}

fn call(purpose: Purpose, messages: Vec<Told>) -> Action {
    Action::Call(Box::new(Announced {
        purpose,
        base: None,
        messages,
        tools: None,
    }))
}

/// Where a reply without calls leads to.
fn replied(request: u64, purpose: Purpose, text: String) -> Stage {
    match (purpose, reply::object(&text)) {
        (Purpose::Turn | Purpose::Repair, Some(draft)) => Stage::Draft(draft),
        (Purpose::Reflect, Some(output)) => Stage::Ended(end::completed(&output)),
        (Purpose::Turn, None) => Stage::Unreadable {
            turn: request,
            text,
        },
        (Purpose::Repair, None) => {
            let words = "neither the reply nor its repair is a JSON object";
            Stage::Ended(end::unusable("output_invalid", words, text))
        }
        (Purpose::Reflect, None) => {
            let words = "the reply of the reflection is not a JSON object";
            Stage::Ended(end::unusable("reflect_output_invalid", words, text))
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tool_tests;

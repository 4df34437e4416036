//! The decision what a task does next, from its record: the agent loop without I/O.
//!
//! The state is a fold over the recorded events. A task that continues after a crash, after people
//! have decided, or in another runtime, is the same fold over its history, so no answered call is
//! repeated.
//!
//! ```text
//!  ┌────────────── all have their results ◀── Calling ◀─┐ (the reply requests tools)
//!  ▼                                                    │
//! Turn ─llm.request─▶ AwaitingResponse ─llm.response─▶ Draft ─agent.decided─▶ Decided ─▶ Finish
//!                         ▲  │                           ▲                      │
//!                         │  └─not JSON─▶ Unreadable ─(repair)                  │ reflect.started
//!                         └───────────────────────────────────────────────── Reflecting
//! ```
//!
//! `fold` applies events; `requests` keeps the recorded requests, `round` the calls of the current
//! reply. `turn` and `due` decide the next `action`; `end` defines how a task ends.

mod action;
mod commanded;
mod due;
mod end;
mod fold;
mod frames;
mod requests;
mod round;
mod turn;

use serde_json::Value;

use self::commanded::AcceptedCommands;
use self::requests::{RequestHistory, read, text};
use self::round::ToolRound;
use super::prompt::AgentPrompt;
use super::tools::catalogue::{Catalogue, ToolTarget};
use super::tools::{self, ToolError, ToolErrorCode};
use ktsu_contract::report::{Decided, Finished, LlmResponse, Purpose, ReportEvent, ToolInDoubt};
use ktsu_contract::runtime::RecordedFrame;

pub(super) use action::{Action, ConversationLimits, ModelCallAnnouncement, ModelCallRequest};
pub(super) use due::MAX_DEPTH;
pub(super) use end::{broken, failed, failure, refused};

/// Turns of a loop that names no bound.
const DEFAULT_TURNS: u32 = 10;

/// A task's state.
#[derive(Debug, Clone)]
pub(super) struct Conversation {
    prompt: AgentPrompt,
    terms: ConversationLimits,
    turns: u32,
    requests: RequestHistory,
    /// The rounds of calls that are over: the reply's frame, and the results'.
    rounds: Vec<(u64, Vec<u64>)>,
    /// The last turn of this attempt, and how many rounds were over when it was asked for.
    base: Option<(u64, usize)>,
    /// True if the history is read, so that what comes now is of this attempt.
    begun: bool,
    /// The end that is due once no call is under way.
    over: Option<Finished>,
    /// The commands of the model: part of the outcome.
    commands: AcceptedCommands,
    stage: ConversationStage,
}

#[derive(Debug, Clone)]
enum ConversationStage {
    /// A turn is due.
    Turn,
    /// A call is announced and not answered.
    AwaitingResponse { seq: u64, purpose: Purpose },
    /// The reply asks for tools.
    Calling(ToolRound),
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

impl Conversation {
    /// A task of which this is recorded.
    pub(super) fn new(
        prompt: AgentPrompt,
        mut terms: ConversationLimits,
        history: &[RecordedFrame],
    ) -> Self {
        if terms.max_turns == 0 {
            terms.max_turns = DEFAULT_TURNS;
        }
        let mut conversation = Self {
            prompt,
            terms,
            turns: 0,
            requests: RequestHistory::default(),
            rounds: Vec::new(),
            base: None,
            begun: false,
            over: None,
            commands: AcceptedCommands::default(),
            stage: ConversationStage::Turn,
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
    pub(super) fn feed(&mut self, event: &RecordedFrame) -> bool {
        match event.kind.as_str() {
            "llm.request" => {
                read(&event.data).is_some_and(|request| self.requested(event.seq, request))
            }
            "llm.response" => self.responded(event.seq, &event.data),
            "agent.decided" => match (event.data.get("draft"), event.data.get("response")) {
                (Some(draft), _) => self.decided(draft),
                (None, Some(response)) => self.calls_decided(response),
                (None, None) => false,
            },
            "reflect.started" => self.reflect(),
            "tool.returned" => {
                read(&event.data).is_some_and(|result| self.returned(event.seq, &result))
            }
            _ => self.round_mut().is_some_and(|round| round.feed(event)),
        }
    }

    /// Returns `true` if the next action depends on the tools that the servers offer.
    pub(super) fn needs_tools(&self) -> bool {
        match &self.stage {
            ConversationStage::Turn => self.turns < self.terms.max_turns,
            ConversationStage::AwaitingResponse { purpose, .. } => *purpose == Purpose::Turn,
            ConversationStage::Calling(_) => true,
            _ => false,
        }
    }

    /// The next thing to do. The same state gives the same answer.
    pub(super) fn next(&self, catalogue: &Catalogue) -> Action {
        match &self.stage {
            ConversationStage::Turn if self.turns >= self.terms.max_turns => {
                Action::Finish(end::no_turns(self.terms.max_turns, None))
            }
            ConversationStage::Turn => Action::Call(Box::new(self.turn(catalogue))),
            ConversationStage::AwaitingResponse { seq, purpose } => {
                Action::Ask(Box::new(ModelCallRequest {
                    seq: *seq,
                    purpose: *purpose,
                    messages: self.requests.messages(*seq),
                    tools: self.requests.offered(*seq),
                }))
            }
            ConversationStage::Calling(round) => {
                due::next_action(round, &self.terms, catalogue, self.over.as_ref())
            }
            ConversationStage::Unreadable { turn, text } => {
                let messages = AgentPrompt::repair(self.requests.message_references(*turn), text);
                Action::alone(Purpose::Repair, messages)
            }
            ConversationStage::Draft(draft) if self.prompt.reflects() => {
                Action::Decide(draft.clone())
            }
            ConversationStage::Draft(draft) | ConversationStage::Decided(draft) => {
                Action::Finish(self.completed(draft))
            }
            ConversationStage::Reflecting(draft) => match self.prompt.reflection(draft) {
                Some(messages) => {
                    Action::alone(Purpose::Reflect, messages.into_iter().map(text).collect())
                }
                // The agent's file lost its reflection between two attempts.
                None => Action::Finish(self.completed(draft)),
            },
            ConversationStage::Ended(finished) => Action::Finish(finished.clone()),
        }
    }

    /// The event that follows from this response if it is recorded as it is, so that both can go in
    /// one report. Nothing where tools are asked for: their frame has to have a number first.
    pub(super) fn after(&self, response: &LlmResponse) -> Option<ReportEvent> {
        let ConversationStage::AwaitingResponse { seq, purpose } = self.stage else {
            return None;
        };
        if response.request != seq || !response.tool_calls.is_empty() {
            return None;
        }
        let stage = match &response.error {
            Some(error) => ConversationStage::Ended(refused(error.clone())),
            None => self.replied(seq, purpose, response.content.clone().unwrap_or_default()),
        };
        match stage {
            ConversationStage::Ended(end) => Some(ReportEvent::Finished(end)),
            ConversationStage::Draft(draft) if self.prompt.reflects() => {
                Some(ReportEvent::Decided(Decided {
                    draft: Some(draft),
                    response: None,
                }))
            }
            ConversationStage::Draft(draft) => Some(ReportEvent::Finished(self.completed(&draft))),
            _ => None,
        }
    }

    /// The orchestrator wants the draft looked at once more. False if no draft was reported.
    pub(super) fn reflect(&mut self) -> bool {
        let ConversationStage::Decided(draft) = &self.stage else {
            return false;
        };
        self.stage = ConversationStage::Reflecting(draft.clone());
        true
    }

    /// That a call went out from here.
    pub(super) fn sent(&mut self, called: u64) {
        if let Some(round) = self.round_mut() {
            round.sent(called);
        }
    }

    /// The event to report of the answer to a call. Nothing where people have to say whether it
    /// happened, or where nothing waits for it.
    pub(super) fn answered(
        &mut self,
        called: u64,
        answer: Result<tools::ToolCallResult, ToolError>,
        catalogue: &Catalogue,
    ) -> Option<ReportEvent> {
        let ConversationStage::Calling(round) = &self.stage else {
            return None;
        };
        if let Err(error) = &answer
            && error.code == ToolErrorCode::ToolsChanged
        {
            self.over = Some(broken("tool_drift", error.message.clone()));
        }
        let event = due::report_answer(round, called, answer, catalogue);
        if event.is_none() {
            self.lose(|lost| lost == called);
        }
        event
    }

    /// The requests of the calls that are still to be checked, each with the tool it is settled on.
    pub(super) fn calls(&self) -> Vec<(&str, Option<&ToolTarget>)> {
        self.round()
            .map(ToolRound::awaiting_check)
            .unwrap_or_default()
    }

    /// Events that have to be reported before the end: that the calls of a reply were decided on,
    /// and that the outcome of some is unknown.
    pub(super) fn final_events(&self) -> Vec<ReportEvent> {
        let Some(round) = self.round() else {
            return Vec::new();
        };
        let doubts = round.open().into_iter();
        let doubts = doubts.map(|called| ReportEvent::ToolInDoubt(ToolInDoubt { called }));
        due::decided(round).into_iter().chain(doubts).collect()
    }

    /// The end with an output and what the model commanded besides it.
    fn completed(&self, output: &Value) -> Finished {
        let mut finished = end::completed(output);
        finished.outcome.commands = self.commands.in_order();
        finished
    }

    fn lose(&mut self, which: impl Fn(u64) -> bool) {
        if let Some(round) = self.round_mut() {
            round.mark_lost(which);
        }
    }

    /// The calls of the current reply, if it requests any.
    fn round(&self) -> Option<&ToolRound> {
        match &self.stage {
            ConversationStage::Calling(round) => Some(round),
            _ => None,
        }
    }

    fn round_mut(&mut self) -> Option<&mut ToolRound> {
        match &mut self.stage {
            ConversationStage::Calling(round) => Some(round),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tool_tests;

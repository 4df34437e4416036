//! Applies recorded events to the state, with one function per event type.

use serde::Deserialize;
use serde_json::Value;

use super::frames::ToolReturnedData;
use super::requests::{LlmRequestData, read};
use super::round::ToolRound;
use super::{Conversation, ConversationStage, end, refused};
use crate::reply;
use ktsu_contract::gateway::ToolCall;
use ktsu_contract::report::{COMMANDS_SERVER, FailureDetails, Purpose};
use ktsu_contract::result;

/// The members of a recorded `llm.response` that matter here.
#[derive(Deserialize)]
struct LlmResponseData {
    request: u64,
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    error: Option<FailureDetails>,
    #[serde(default)]
    tool_calls: Value,
}

impl Conversation {
    pub(super) fn requested(&mut self, seq: u64, request: LlmRequestData) -> bool {
        let purpose = request.purpose;
        if !self.requests.add(seq, request) {
            return false;
        }
        if purpose == Purpose::Turn {
            self.turns += 1;
            self.base = self.begun.then_some((seq, self.rounds.len()));
        }
        self.stage = ConversationStage::AwaitingResponse { seq, purpose };
        true
    }

    pub(super) fn responded(&mut self, seq: u64, data: &Value) -> bool {
        let Some(response) = read::<LlmResponseData>(data) else {
            return false;
        };
        let ConversationStage::AwaitingResponse {
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
            (Some(error), _) => ConversationStage::Ended(refused(error)),
            (None, content) => {
                let text = match content {
                    Some(Value::String(text)) => text,
                    Some(other) => other.to_string(),
                    None => String::new(),
                };
                let last = self.turns >= self.terms.max_turns;
                match ToolRound::of(seq, &text, &response.tool_calls, last) {
                    Some(round) if purpose == Purpose::Turn => {
                        self.requests.replied(seq, &text, round.asked());
                        ConversationStage::Calling(round)
                    }
                    Some(_) | None => self.replied(request, purpose, text),
                }
            }
        };
        true
    }

    pub(super) fn decided(&mut self, draft: &Value) -> bool {
        // What is recorded is redacted, and a text can stop being JSON by that: the draft itself is
        // the better witness.
        if !matches!(
            self.stage,
            ConversationStage::Draft(_) | ConversationStage::Unreadable { .. }
        ) {
            return false;
        }
        self.stage = ConversationStage::Decided(draft.clone());
        true
    }

    pub(super) fn calls_decided(&mut self, response: &Value) -> bool {
        let Some(round) = self.round_mut() else {
            return false;
        };
        let meant = response.as_u64() == Some(round.response) && !round.decided;
        round.decided |= meant;
        meant
    }

    pub(super) fn returned(&mut self, seq: u64, result: &ToolReturnedData) -> bool {
        let ConversationStage::Calling(round) = &mut self.stage else {
            return false;
        };
        let target = round.target(result.call).cloned();
        let Some(ToolCall { id, arguments, .. }) = round.returned(seq, result) else {
            return false;
        };
        let text = result::text(&result.content, result.structured.as_ref());
        self.requests.returned(seq, id, text, result.is_error);
        let target = target.filter(|target| target.server == COMMANDS_SERVER && !result.is_error);
        if let Some(target) = target {
            let place = (result.response, result.call);
            self.commands.accept(place, &target.tool, arguments);
        }
        if let Some(results) = round.results() {
            self.rounds.push((round.response, results));
            self.stage = match self.over.take() {
                Some(end) => ConversationStage::Ended(end),
                None => ConversationStage::Turn,
            };
        }
        true
    }
}

impl Conversation {
    /// The stage that a reply without calls leads to.
    pub(super) fn replied(
        &self,
        request: u64,
        purpose: Purpose,
        text: String,
    ) -> ConversationStage {
        match self.terms.text_reply {
            true => ConversationStage::Ended(self.completed(&Value::String(text))),
            false => self.draft_of(request, purpose, text),
        }
    }

    /// The stage that a reply leads to that should be a JSON object.
    fn draft_of(&self, request: u64, purpose: Purpose, text: String) -> ConversationStage {
        match (purpose, reply::object(&text)) {
            (Purpose::Turn | Purpose::Repair, Some(draft)) => ConversationStage::Draft(draft),
            (Purpose::Reflect, Some(output)) => ConversationStage::Ended(self.completed(&output)),
            (Purpose::Turn, None) => ConversationStage::Unreadable {
                turn: request,
                text,
            },
            (Purpose::Repair, None) => {
                let mut words = "neither the reply nor its repair is a JSON object".to_owned();
                if let Some(number) = reply::unkept_number(&text) {
                    words = format!(
                        "neither the reply nor its repair is kept: {}",
                        number.words()
                    );
                }
                ConversationStage::Ended(end::unusable("output_invalid", &words, text))
            }
            (Purpose::Reflect, None) => {
                let mut words = "the reply of the reflection is not a JSON object".to_owned();
                if let Some(number) = reply::unkept_number(&text) {
                    words = format!(
                        "the reply of the reflection is not kept: {}",
                        number.words()
                    );
                }
                ConversationStage::Ended(end::unusable("reflect_output_invalid", &words, text))
            }
        }
    }
}

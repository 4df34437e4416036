//! The recorded requests to models, and the frames that their messages refer to.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use ktsu_contract::gateway::{ChatMessage, ToolCall, ToolDefinition};
use ktsu_contract::report::{OfferedTool, Purpose, RequestMessage};

/// The members of a recorded `llm.request` that matter here.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct LlmRequestData {
    #[serde(default)]
    pub(super) base: Option<u64>,
    messages: Vec<RequestMessage>,
    pub(super) purpose: Purpose,
    #[serde(default)]
    tools: Option<Vec<OfferedTool>>,
}

/// Everything that was told, by the numbers of the frames.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestHistory {
    all: BTreeMap<u64, LlmRequestData>,
    /// The content of the frames that requests name.
    frame_messages: BTreeMap<u64, ChatMessage>,
}

impl RequestHistory {
    /// Takes a request in. False if it goes on from one that is not known, or names a frame that is
    /// not: half a conversation is none, and will be asked anew.
    pub(super) fn add(&mut self, seq: u64, request: LlmRequestData) -> bool {
        // A base comes before what goes on from it, so that following bases comes to an end.
        let known = |base: u64| base < seq && self.all.contains_key(&base);
        let mut frames = request.messages.iter().filter_map(|told| match told {
            RequestMessage::Frame { frame, .. } => Some(frame),
            RequestMessage::Text(_) => None,
        });
        if !request.base.is_none_or(known)
            || !frames.all(|frame| self.frame_messages.contains_key(frame))
        {
            return false;
        }
        self.all.insert(seq, request);
        true
    }

    /// Takes the content of a reply in.
    pub(super) fn replied(&mut self, seq: u64, content: &str, tool_calls: Vec<ToolCall>) {
        let message = ChatMessage {
            role: "assistant".to_owned(),
            content: content.to_owned(),
            tool_calls,
            ..ChatMessage::default()
        };
        self.frame_messages.insert(seq, message);
    }

    /// Takes the content of the result of a call in.
    pub(super) fn returned(&mut self, seq: u64, id: &str, content: String, is_error: bool) {
        let message = ChatMessage {
            role: "tool".to_owned(),
            content,
            tool_call_id: Some(id.to_owned()),
            is_error,
            ..ChatMessage::default()
        };
        self.frame_messages.insert(seq, message);
    }

    /// All messages of a request, as a later one tells them again.
    pub(super) fn message_references(&self, seq: u64) -> Vec<RequestMessage> {
        let chain: Vec<&LlmRequestData> = self.chain(seq).collect();
        let messages = chain.into_iter().rev();
        messages
            .flat_map(|request| request.messages.iter().cloned())
            .collect()
    }

    /// All messages of a request, whole.
    pub(super) fn messages(&self, seq: u64) -> Vec<ChatMessage> {
        let whole = |told| match told {
            RequestMessage::Text(message) => Some(message),
            RequestMessage::Frame { frame, .. } => self.frame_messages.get(&frame).cloned(),
        };
        self.message_references(seq)
            .into_iter()
            .filter_map(whole)
            .collect()
    }

    /// The tools a request tells of.
    pub(super) fn tools(&self, seq: u64) -> &[OfferedTool] {
        let tools = self.chain(seq).find_map(|request| request.tools.as_deref());
        tools.unwrap_or_default()
    }

    /// As [`Self::tools`], for the gateway.
    pub(super) fn offered(&self, seq: u64) -> Vec<ToolDefinition> {
        let tool = |offered: &OfferedTool| ToolDefinition {
            name: offered.name.clone(),
            description: offered.description.clone(),
            input_schema: offered.input_schema.clone(),
        };
        self.tools(seq).iter().map(tool).collect()
    }

    fn chain(&self, seq: u64) -> impl Iterator<Item = &LlmRequestData> {
        std::iter::successors(self.all.get(&seq), |request| self.all.get(&request.base?))
    }
}

/// A message written out.
pub(super) fn text(message: ChatMessage) -> RequestMessage {
    RequestMessage::Text(message)
}

/// The message that refers to the frame of a reply.
pub(super) fn assistant(frame: u64) -> RequestMessage {
    RequestMessage::Frame {
        frame,
        role: "assistant".to_owned(),
    }
}

/// The message that refers to the frame of a result.
pub(super) fn tool(frame: u64) -> RequestMessage {
    RequestMessage::Frame {
        frame,
        role: "tool".to_owned(),
    }
}

/// Reads what matters of a frame.
pub(super) fn read<'a, T: Deserialize<'a>>(data: &'a Value) -> Option<T> {
    T::deserialize(data).ok()
}

//! Providers: who answers a model call.

pub(super) mod anthropic;
mod names;
pub(super) mod openai;
pub(super) mod scripted;
pub(super) mod wire;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::error::GatewayError;
use ktsu_contract::gateway::{AttemptUsage, ChatMessage, ToolCall, ToolDefinition};
use ktsu_server::body;

/// A call whose model is decided.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProviderCall {
    /// The group it was asked of.
    pub(super) group: String,
    /// The provider's name of the model.
    pub(super) model: String,
    /// The conversation.
    pub(super) messages: Vec<ChatMessage>,
    /// The most tokens of the reply.
    pub(super) max_tokens: u32,
    /// Only if the request or the group gives one.
    pub(super) temperature: Option<f64>,
    /// `{name, description, input_schema}` each.
    pub(super) tools: Vec<ToolDefinition>,
}

/// The answer of a provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ProviderReply {
    /// The text.
    pub(super) content: String,
    /// Its tokens, without their cost.
    pub(super) used: AttemptUsage,
    /// `{id, name, arguments}` each, ids unique.
    pub(super) tool_calls: Vec<ToolCall>,
}

/// The schema of a tool's arguments; of one that names none, any object.
fn schema(tool: &ToolDefinition) -> Value {
    match &tool.input_schema {
        Value::Null => json!({"type": "object"}),
        schema => schema.clone(),
    }
}

/// The arguments of a call, from the text they came as. Not only what is no object is passed on raw:
/// so is what could not be kept exactly, like a whole number beyond 64 bits or a member that stands
/// twice. A tool that is called with something else than was asked for is worse than none.
fn arguments(text: &str) -> Value {
    match body::object(text.as_bytes()) {
        Ok(members) => Value::Object(members),
        Err(_) => raw(text),
    }
}

/// Arguments that are none, as they came.
fn raw(text: &str) -> Value {
    json!({"_raw": text})
}

/// Said of a reply that ran out of tokens before it had any text.
fn cut_short(call: &ProviderCall) -> String {
    let most = call.max_tokens;
    format!("the reply was cut off at {most} tokens before it had any text: raise max_tokens")
}

/// Calls whose ids are unique in a conversation: one that is missing or taken is `call_N`, where N
/// goes on from the calls before.
pub(super) fn numbered(calls: Vec<ToolCall>, messages: &[ChatMessage]) -> Vec<ToolCall> {
    let before = messages.iter().flat_map(|message| &message.tool_calls);
    let mut taken: HashSet<String> = before.map(|call| call.id.clone()).collect();
    let mut own = |call: &ToolCall| !call.id.is_empty() && taken.insert(call.id.clone());
    let own: Vec<bool> = calls.iter().map(&mut own).collect();
    let before = messages.iter().map(|message| message.tool_calls.len());
    let mut number = before.sum::<usize>();
    let calls = calls.into_iter().zip(own).map(|(call, own)| {
        number += 1;
        if own {
            return call;
        }
        let mut id = format!("call_{number}");
        while !taken.insert(id.clone()) {
            number += 1;
            id = format!("call_{number}");
        }
        ToolCall { id, ..call }
    });
    calls.collect()
}

/// A provider, ready to be asked.
#[derive(Debug, Clone)]
pub(super) enum Provider {
    /// Anthropic's messages API.
    Anthropic(Arc<anthropic::Anthropic>),
    /// A provider that speaks the dialect of OpenAI's chat completions.
    OpenAi(Arc<openai::OpenAi>),
    /// A script.
    Scripted(Arc<scripted::Scripted>),
}

impl Provider {
    /// The dialect that it speaks, and its URL: without user, password and query, which may be
    /// secret.
    pub(super) fn place(&self) -> String {
        let (speaks, endpoint) = match self {
            Self::Anthropic(remote) => ("anthropic", &remote.endpoint),
            Self::OpenAi(remote) => ("openai", &remote.endpoint),
            Self::Scripted(_) => return "scripted".to_owned(),
        };
        let Ok(url) = url::Url::parse(&endpoint.base_url) else {
            return speaks.to_owned();
        };
        let origin = url.origin().ascii_serialization();
        format!("{speaks} {origin}{}", url.path())
    }

    /// Returns `true` if it answers by rules or from a record, and no provider is asked.
    pub(super) fn is_script(&self) -> bool {
        matches!(self, Self::Scripted(_))
    }

    /// Asks once. Nobody waits longer than `within`; a provider with a shorter limit keeps to that.
    pub(super) async fn answer(
        &self,
        call: &ProviderCall,
        within: Duration,
    ) -> Result<ProviderReply, GatewayError> {
        match self {
            Self::Anthropic(provider) => provider.answer(call, within).await,
            Self::OpenAi(provider) => provider.answer(call, within).await,
            Self::Scripted(provider) => provider.answer(call).await,
        }
    }
}

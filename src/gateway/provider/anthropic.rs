//! Anthropic's messages API.
//!
//! Two pure conversions, a call to a body and a reply to an answer, with one request between them.
//! The API alternates between `user` and `assistant`, each with a list of blocks: system messages
//! are moved to the top, tool results belong to the user, and consecutive messages of one role are
//! merged.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::names::ProviderNames;
use super::wire::{self, ProviderEndpoint, unusable};
use super::{ProviderCall, ProviderReply, arguments, numbered, raw, schema};
use crate::error::GatewayError;
use ktsu_contract::gateway::{AttemptUsage, ChatMessage, ToolCall, ToolDefinition};

/// The provider's URL, unless the file says otherwise.
pub(crate) const BASE_URL: &str = "https://api.anthropic.com";
const VERSION: &str = "2023-06-01";

/// Words of an account that has nothing left.
const QUOTA_PHRASES: [&str; 2] = ["credit balance", "credit limit"];

/// A provider of this kind.
#[derive(Debug)]
pub(crate) struct Anthropic {
    pub(crate) endpoint: ProviderEndpoint,
}

impl Anthropic {
    /// Asks once.
    pub(super) async fn answer(
        &self,
        call: &ProviderCall,
        within: Duration,
    ) -> Result<ProviderReply, GatewayError> {
        let version = HeaderName::from_static("anthropic-version");
        let version = [(version, HeaderValue::from_static(VERSION))];
        let key = (HeaderName::from_static("x-api-key"), "");
        let body = body(call);
        let reply = self
            .endpoint
            .post("/v1/messages", key, &version, &body, within, spent);
        answer(reply.await?, call)
    }
}

fn spent(error: &Value) -> bool {
    let said = error["message"].as_str().unwrap_or_default();
    let said = said.to_lowercase();
    error["type"] == "billing_error" || QUOTA_PHRASES.iter().any(|words| said.contains(words))
}

/// A call as the provider takes it.
fn body(call: &ProviderCall) -> Value {
    let names = ProviderNames::of(call);
    let mut body = json!({
        "model": call.model,
        "max_tokens": call.max_tokens,
        "messages": messages(&call.messages, &names),
    });
    let system = call.messages.iter().filter(|one| one.role == "system");
    let system: Vec<&str> = system.map(|message| message.content.as_str()).collect();
    if !system.is_empty() {
        body["system"] = json!(system.join("\n\n"));
    }
    if let Some(temperature) = call.temperature {
        body["temperature"] = json!(temperature);
    }
    if !call.tools.is_empty() {
        body["tools"] = call.tools.iter().map(|one| tool(one, &names)).collect();
    } else if let Some(tools) = bygone(&call.messages, &names) {
        body["tools"] = tools;
        body["tool_choice"] = json!({"type": "none"});
    }
    body
}

fn tool(tool: &ToolDefinition, names: &ProviderNames) -> Value {
    json!({
        "name": names.tool(&tool.name),
        "description": tool.description,
        "input_schema": schema(tool),
    })
}

/// The tools that a conversation mentions: without them the API answers with nothing, or not at all,
/// where none is on offer any more.
fn bygone(messages: &[ChatMessage], names: &ProviderNames) -> Option<Value> {
    let calls = messages.iter().flat_map(|message| &message.tool_calls);
    let used: BTreeSet<&str> = calls.map(|call| call.name.as_str()).collect();
    let tool = |name: &&str| json!({"name": names.tool(name), "input_schema": {"type": "object"}});
    (!used.is_empty()).then(|| used.iter().map(tool).collect())
}

fn messages(messages: &[ChatMessage], names: &ProviderNames) -> Value {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages.iter().filter(|one| one.role != "system") {
        let role = match message.role.as_str() {
            "assistant" => "assistant",
            _ => "user",
        };
        let blocks = blocks(message, names);
        match turns.last_mut() {
            Some((last, before)) if *last == role => before.extend(blocks),
            Some(_) | None => turns.push((role, blocks)),
        }
    }
    let turn = |(role, blocks): (&str, Vec<Value>)| json!({"role": role, "content": blocks});
    turns.into_iter().map(turn).collect()
}

fn blocks(message: &ChatMessage, names: &ProviderNames) -> Vec<Value> {
    if let Some(id) = &message.tool_call_id {
        let mut result = json!({
            "type": "tool_result",
            "tool_use_id": names.id(id),
            "content": message.content,
        });
        if message.is_error {
            result["is_error"] = json!(true);
        }
        return vec![result];
    }
    let mut blocks = Vec::new();
    // The API refuses empty texts; a message that has nothing else is left as it is.
    if !message.content.is_empty() || message.tool_calls.is_empty() {
        blocks.push(json!({"type": "text", "text": message.content}));
    }
    let calls = message.tool_calls.iter().map(|call| {
        let (id, name) = (names.id(&call.id), names.tool(&call.name));
        json!({"type": "tool_use", "id": id, "name": name, "input": call.arguments})
    });
    blocks.extend(calls);
    blocks
}

#[derive(Deserialize)]
struct AnthropicReply {
    content: Vec<Block>,
    stop_reason: Option<String>,
    usage: Option<Usage>,
}

/// A block of a reply. Of kinds that are not for us, thinking above all, nothing is read.
enum Block {
    Text(TextBlock),
    ToolUse(ToolUse),
    Other,
}

#[derive(Deserialize)]
struct BlockKind {
    #[serde(rename = "type")]
    name: String,
}

#[derive(Deserialize)]
struct TextBlock {
    text: String,
}

#[derive(Deserialize)]
struct ToolUse {
    #[serde(default)]
    id: String,
    name: String,
    /// As it was written, so that nothing is lost before it is judged.
    input: Option<Box<RawValue>>,
}

impl<'de> Deserialize<'de> for Block {
    /// By hand, since serde reads the members of a tagged enum into a form that has lost their text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = Box::<RawValue>::deserialize(deserializer)?;
        let kind: BlockKind = serde_json::from_str(block.get()).map_err(D::Error::custom)?;
        let block = match kind.name.as_str() {
            "text" => serde_json::from_str(block.get()).map(Self::Text),
            "tool_use" => serde_json::from_str(block.get()).map(Self::ToolUse),
            _ => Ok(Self::Other),
        };
        block.map_err(D::Error::custom)
    }
}

#[derive(Default, Deserialize)]
struct Usage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens_details: Option<Details>,
}

#[derive(Default, Deserialize)]
struct Details {
    #[serde(alias = "reasoning_tokens")]
    thinking_tokens: Option<u64>,
}

impl wire::UsageSource for AnthropicReply {
    fn tokens(usage: &Value) -> AttemptUsage {
        let usage = Option::<Usage>::deserialize(usage).ok().flatten();
        tokens(usage.unwrap_or_default())
    }
}

fn tokens(usage: Usage) -> AttemptUsage {
    let cached = usage.cache_read_input_tokens.unwrap_or_default();
    let details = usage.output_tokens_details.unwrap_or_default();
    AttemptUsage {
        // Here the three are counted apart from one another.
        tokens_in: usage
            .input_tokens
            .unwrap_or_default()
            .saturating_add(cached)
            .saturating_add(usage.cache_creation_input_tokens.unwrap_or_default()),
        tokens_out: usage.output_tokens.unwrap_or_default(),
        tokens_cached: cached,
        tokens_reasoning: details.thinking_tokens.unwrap_or_default(),
        ..AttemptUsage::default()
    }
}

/// Converts the reply into the form that all providers share. What it used counts, whatever that is
/// (decision F4).
fn answer(mut reply: AnthropicReply, call: &ProviderCall) -> Result<ProviderReply, GatewayError> {
    let used = tokens(reply.usage.take().unwrap_or_default());
    let answer = content_reply(&reply, call).map_err(|failure| failure.having_used(used))?;
    Ok(ProviderReply { used, ..answer })
}

fn content_reply(
    reply: &AnthropicReply,
    call: &ProviderCall,
) -> Result<ProviderReply, GatewayError> {
    let names = ProviderNames::of(call);
    let cut = reply.stop_reason.as_deref() == Some("max_tokens");
    let (mut content, mut calls) = (String::new(), Vec::new());
    for block in &reply.content {
        match block {
            Block::Text(TextBlock { text }) => content.push_str(text),
            Block::ToolUse(used) => calls.push(tool_call(used, &names)),
            Block::Other => {}
        }
    }
    let last = reply.content.last();
    if let (true, Some(Block::ToolUse(used)), Some(last)) = (cut, last, calls.last_mut()) {
        // Arguments that may be half are no arguments, even if they read as whole ones.
        last.arguments = raw(used.input.as_ref().map_or("", |input| input.get()));
    }
    if content.is_empty() && calls.is_empty() {
        return Err(empty(reply.stop_reason.as_deref(), call));
    }
    Ok(ProviderReply {
        content,
        tool_calls: numbered(calls, &call.messages),
        ..ProviderReply::default()
    })
}

fn tool_call(used: &ToolUse, names: &ProviderNames) -> ToolCall {
    let input = used.input.as_ref();
    ToolCall {
        id: used.id.clone(),
        name: names.back(&used.name),
        arguments: input.map_or_else(|| json!({}), |input| arguments(input.get())),
    }
}

/// The failure for a reply with nothing in it.
fn empty(stop_reason: Option<&str>, call: &ProviderCall) -> GatewayError {
    unusable(match stop_reason {
        Some("max_tokens") => super::cut_short(call),
        Some("refusal") => "the model refused to reply".to_owned(),
        Some("model_context_window_exceeded") => {
            "the conversation leaves the model no room for a reply".to_owned()
        }
        Some(_) | None => "upstream sent an empty reply".to_owned(),
    })
}

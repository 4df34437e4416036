//! Anthropic's messages API.
//!
//! Two pure conversions, a call to a body and a reply to an answer, with one sending between them.
//! The API takes turns of `user` and `assistant` alone, each a list of blocks: system messages go to
//! the top, results of tools are the user's, and what follows of one role becomes one message.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::names::{Names, sent};
use super::wire::{Endpoint, unusable};
use super::{Answer, Call, numbered, schema};
use crate::contract::gateway::{Message, Tool, ToolCall};
use crate::gateway::error::Failure;

/// Where it is, unless the file says otherwise.
pub(in crate::gateway) const BASE_URL: &str = "https://api.anthropic.com";
const VERSION: &str = "2023-06-01";

/// Words of an account that has nothing left.
const SPENT: [&str; 2] = ["credit balance", "credit limit"];

/// A provider of this kind.
#[derive(Debug)]
pub(in crate::gateway) struct Anthropic {
    pub(in crate::gateway) endpoint: Endpoint,
}

impl Anthropic {
    /// Asks once.
    pub(super) async fn answer(&self, call: &Call, within: Duration) -> Result<Answer, Failure> {
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
    error["type"] == "billing_error" || SPENT.iter().any(|words| said.contains(words))
}

/// A call as the provider takes it.
fn body(call: &Call) -> Value {
    let mut body = json!({
        "model": call.model,
        "max_tokens": call.max_tokens,
        "messages": messages(&call.messages),
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
        body["tools"] = call.tools.iter().map(tool).collect();
    } else if let Some(tools) = bygone(&call.messages) {
        body["tools"] = tools;
        body["tool_choice"] = json!({"type": "none"});
    }
    body
}

fn tool(tool: &Tool) -> Value {
    json!({
        "name": sent(&tool.name),
        "description": tool.description,
        "input_schema": schema(tool),
    })
}

/// The tools that a conversation mentions: without them the API answers with nothing, or not at all,
/// where none is on offer any more.
fn bygone(messages: &[Message]) -> Option<Value> {
    let calls = messages.iter().flat_map(|message| &message.tool_calls);
    let names: BTreeSet<&str> = calls.map(|call| call.name.as_str()).collect();
    let tool = |name: &&str| json!({"name": sent(name), "input_schema": {"type": "object"}});
    (!names.is_empty()).then(|| names.iter().map(tool).collect())
}

fn messages(messages: &[Message]) -> Value {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages.iter().filter(|one| one.role != "system") {
        let role = match message.role.as_str() {
            "assistant" => "assistant",
            _ => "user",
        };
        let blocks = blocks(message);
        match turns.last_mut() {
            Some((last, before)) if *last == role => before.extend(blocks),
            Some(_) | None => turns.push((role, blocks)),
        }
    }
    let turn = |(role, blocks): (&str, Vec<Value>)| json!({"role": role, "content": blocks});
    turns.into_iter().map(turn).collect()
}

fn blocks(message: &Message) -> Vec<Value> {
    if let Some(id) = &message.tool_call_id {
        let mut result = json!({
            "type": "tool_result",
            "tool_use_id": sent(id),
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
        let (id, name) = (sent(&call.id), sent(&call.name));
        json!({"type": "tool_use", "id": id, "name": name, "input": call.arguments})
    });
    blocks.extend(calls);
    blocks
}

#[derive(Deserialize)]
struct Reply {
    content: Vec<Block>,
    stop_reason: Option<String>,
    usage: Option<Usage>,
}

/// A block of a reply. Of kinds that are not for us, thinking above all, nothing is read.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    ToolUse {
        #[serde(default)]
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    #[serde(other)]
    Other,
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

/// What the reply means.
fn answer(reply: Reply, call: &Call) -> Result<Answer, Failure> {
    let names = Names::of(call);
    let cut = reply.stop_reason.as_deref() == Some("max_tokens");
    let last_is_call = matches!(reply.content.last(), Some(Block::ToolUse { .. }));
    let (mut content, mut calls) = (String::new(), Vec::new());
    for block in reply.content {
        match block {
            Block::Text { text } => content.push_str(&text),
            Block::ToolUse { id, name, input } => calls.push(ToolCall {
                id,
                name: names.back(name),
                arguments: arguments(input),
            }),
            Block::Other => {}
        }
    }
    if let (true, Some(last)) = (cut && last_is_call, calls.last_mut()) {
        // Arguments that may be half are no arguments.
        last.arguments = json!({"_raw": last.arguments.to_string()});
    }
    if content.is_empty() && calls.is_empty() {
        return Err(empty(reply.stop_reason.as_deref(), call));
    }
    let usage = reply.usage.unwrap_or_default();
    let cached = usage.cache_read_input_tokens.unwrap_or_default();
    // Here the three are counted apart from one another.
    let tokens_in = usage
        .input_tokens
        .unwrap_or_default()
        .saturating_add(cached)
        .saturating_add(usage.cache_creation_input_tokens.unwrap_or_default());
    let details = usage.output_tokens_details.unwrap_or_default();
    Ok(Answer {
        content,
        tokens_in,
        tokens_out: usage.output_tokens.unwrap_or_default(),
        tokens_cached: cached,
        tokens_reasoning: details.thinking_tokens.unwrap_or_default(),
        tool_calls: numbered(calls, &call.messages),
    })
}

fn arguments(input: Value) -> Value {
    match input {
        Value::Object(members) => Value::Object(members),
        Value::Null => json!({}),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            json!({"_raw": other.to_string()})
        }
    }
}

/// Why there is nothing in the reply.
fn empty(stop_reason: Option<&str>, call: &Call) -> Failure {
    unusable(match stop_reason {
        Some("max_tokens") => super::cut_short(call),
        Some("refusal") => "the model refused to reply".to_owned(),
        Some("model_context_window_exceeded") => {
            "the conversation leaves the model no room for a reply".to_owned()
        }
        Some(_) | None => "upstream sent an empty reply".to_owned(),
    })
}

//! OpenAI's chat completions, and compatible APIs.
//!
//! Two pure conversions, a call to a body and a completion to an answer, with one request between
//! them.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::header;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::names::ProviderNames;
use super::wire::{self, ProviderEndpoint, unusable};
use super::{ProviderCall, ProviderReply, arguments, numbered, raw, schema};
use crate::error::{Code, GatewayError};
use ktsu_contract::gateway::{AttemptUsage, ChatMessage, ToolCall, ToolDefinition};
use ktsu_secret::Redactor;

/// Codes of an account that has nothing left.
const QUOTA_CODES: [&str; 2] = ["billing_hard_limit_reached", "insufficient_quota"];

/// A provider of this kind.
#[derive(Debug)]
pub(crate) struct OpenAi {
    pub(crate) endpoint: ProviderEndpoint,
    /// The name of the bound of a reply's tokens there.
    pub(crate) max_tokens_as: &'static str,
}

impl OpenAi {
    /// Asks once.
    pub(super) async fn answer(
        &self,
        call: &ProviderCall,
        within: Duration,
    ) -> Result<ProviderReply, GatewayError> {
        let body = body(call, self.max_tokens_as);
        let endpoint = &self.endpoint;
        let key = (header::AUTHORIZATION, "Bearer ");
        let completion = endpoint.post("/chat/completions", key, &[], &body, within, spent);
        answer(completion.await?, call, &endpoint.redactor)
    }
}

fn spent(error: &Value) -> bool {
    let is_spent = |word: &Value| {
        word.as_str()
            .is_some_and(|word| QUOTA_CODES.contains(&word))
    };
    is_spent(&error["code"]) || is_spent(&error["type"])
}

/// A call as the provider takes it.
fn body(call: &ProviderCall, max_tokens_as: &str) -> Value {
    let names = ProviderNames::of(call);
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(call.model));
    let messages = call.messages.iter().map(|one| message(one, &names));
    body.insert("messages".to_owned(), messages.collect());
    body.insert(max_tokens_as.to_owned(), json!(call.max_tokens));
    if let Some(temperature) = call.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    if !call.tools.is_empty() {
        let tools = call.tools.iter().map(|one| tool(one, &names));
        body.insert("tools".to_owned(), tools.collect());
    }
    Value::Object(body)
}

fn tool(tool: &ToolDefinition, names: &ProviderNames) -> Value {
    let function = json!({
        "name": names.tool(&tool.name),
        "description": tool.description,
        "parameters": parameters(tool),
    });
    json!({"type": "function", "function": function})
}

/// The schema of the arguments. This API refuses an object that does not say its properties, which
/// JSON Schema lets pass and tools without arguments make use of.
fn parameters(tool: &ToolDefinition) -> Value {
    let mut schema = schema(tool);
    if let Value::Object(members) = &mut schema
        && members.get("type").is_some_and(|kind| kind == "object")
    {
        members.entry("properties").or_insert_with(|| json!({}));
    }
    schema
}

fn message(message: &ChatMessage, names: &ProviderNames) -> Value {
    let (role, content) = (message.role.as_str(), message.content.as_str());
    if let Some(id) = &message.tool_call_id {
        // There is no other place to say so.
        let content = match message.is_error && !says_error(content) {
            true => format!("{ERROR} {content}"),
            false => content.to_owned(),
        };
        return json!({"role": role, "tool_call_id": names.id(id), "content": content});
    }
    if message.tool_calls.is_empty() {
        return json!({"role": role, "content": content});
    }
    let calls = message.tool_calls.iter().map(|call| {
        let name = names.tool(&call.name);
        let function = json!({"name": name, "arguments": call.arguments.to_string()});
        json!({"id": names.id(&call.id), "type": "function", "function": function})
    });
    let mut told = json!({"role": role, "tool_calls": calls.collect::<Value>()});
    if !content.is_empty() {
        told["content"] = json!(content);
    }
    told
}

/// The prefix of the text of a tool's error.
const ERROR: &str = "Error:";

/// Returns `true` if a text says by itself that it is an error: those of ktsu do, and so do many of
/// servers.
fn says_error(text: &str) -> bool {
    let start = text.trim_start().get(..ERROR.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(ERROR))
}

#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    message: ChoiceMessage,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ChoiceMessage {
    content: Option<Content>,
    refusal: Option<String>,
    tool_calls: Option<Vec<RequestedToolCall>>,
}

/// Text, or parts of it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
struct ContentPart {
    text: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct RequestedToolCall {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    /// As it was written, so that nothing is lost before it is judged.
    arguments: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    completion_tokens_details: Option<Details>,
}

#[derive(Default, Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
}

impl wire::UsageSource for Completion {
    fn tokens(usage: &Value) -> AttemptUsage {
        let usage = Option::<Usage>::deserialize(usage).ok().flatten();
        tokens(usage.unwrap_or_default())
    }
}

fn tokens(usage: Usage) -> AttemptUsage {
    let sent = usage.prompt_tokens_details.unwrap_or_default();
    let received = usage.completion_tokens_details.unwrap_or_default();
    AttemptUsage {
        tokens_in: usage.prompt_tokens.unwrap_or_default(),
        tokens_out: usage.completion_tokens.unwrap_or_default(),
        tokens_cached: sent.cached_tokens.unwrap_or_default(),
        tokens_reasoning: received.reasoning_tokens.unwrap_or_default(),
        ..AttemptUsage::default()
    }
}

/// Converts the completion into the form that all providers share. What it used counts, whatever
/// that is (decision F4).
fn answer(
    mut completion: Completion,
    call: &ProviderCall,
    redactor: &Redactor,
) -> Result<ProviderReply, GatewayError> {
    let used = tokens(completion.usage.take().unwrap_or_default());
    let answer = completion_reply(completion, call, redactor);
    let answer = answer.map_err(|failure| failure.having_used(used))?;
    Ok(ProviderReply { used, ..answer })
}

fn completion_reply(
    completion: Completion,
    call: &ProviderCall,
    redactor: &Redactor,
) -> Result<ProviderReply, GatewayError> {
    let Some(choice) = completion.choices.into_iter().next() else {
        return Err(match completion.error {
            Some(error) => error_in_disguise(error, redactor),
            None => unusable("upstream sent no choices"),
        });
    };
    let said = choice.message;
    let mut content = said.content.map_or_else(String::new, text);
    if content.is_empty() {
        content = said.refusal.unwrap_or_default();
    }
    let names = ProviderNames::of(call);
    let asked = said.tool_calls.unwrap_or_default();
    let calls = asked.iter().map(|asked| tool_call(asked, &names));
    let mut tool_calls = numbered(calls.collect(), &call.messages);
    let cut = choice.finish_reason.as_deref() == Some("length");
    if let (true, Some(asked), Some(last)) = (cut, asked.last(), tool_calls.last_mut()) {
        // Arguments that may be half are no arguments, even if they read as whole ones.
        last.arguments = raw(&written(asked));
    }
    if content.is_empty() && tool_calls.is_empty() {
        return Err(empty(choice.finish_reason.as_deref(), call));
    }
    Ok(ProviderReply {
        content,
        tool_calls,
        ..ProviderReply::default()
    })
}

fn text(content: Content) -> String {
    match content {
        Content::Text(text) => text,
        Content::Parts(parts) => {
            let texts = parts
                .into_iter()
                .filter_map(|part| part.text.or(part.refusal));
            texts.collect()
        }
    }
}

fn tool_call(asked: &RequestedToolCall, names: &ProviderNames) -> ToolCall {
    let text = written(asked);
    ToolCall {
        id: asked.id.clone().unwrap_or_default(),
        name: names.back(&asked.function.name),
        arguments: match text.trim() {
            "" => json!({}),
            _ => arguments(&text),
        },
    }
}

/// The text of the arguments. They travel as JSON text within a string; some servers of this dialect
/// send the object itself.
fn written(asked: &RequestedToolCall) -> Cow<'_, str> {
    let Some(arguments) = &asked.function.arguments else {
        return Cow::Borrowed("");
    };
    match serde_json::from_str::<String>(arguments.get()) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(arguments.get()),
    }
}

/// The failure for a reply with nothing in it.
fn empty(finish_reason: Option<&str>, call: &ProviderCall) -> GatewayError {
    unusable(match finish_reason {
        Some("length") => super::cut_short(call),
        Some("content_filter") => "upstream held its reply back: its content filter did".to_owned(),
        Some(_) | None => "upstream sent an empty reply".to_owned(),
    })
}

/// Servers in front of others answer 200 and put the error in the body, with its status as code.
fn error_in_disguise(error: Value, redactor: &Redactor) -> GatewayError {
    let status = error["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let status = status.filter(|status| (400..600).contains(status));
    let body = json!({"error": error});
    let mut failure = wire::error_message(&body, "", status.unwrap_or(200), redactor, spent);
    if status.is_none() && failure.code == Code::ProviderError {
        failure.message =
            failure
                .message
                .replacen("upstream returned 200", "upstream sent an error", 1);
    }
    failure
}

#[cfg(test)]
mod tests;

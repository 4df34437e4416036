//! Tools in a script: the calls that its rules request, and what they can see of earlier results.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::numbered;
use super::template::{ScriptTemplate, ScriptTree, ScriptValues};
use ktsu_contract::gateway::{ChatMessage, ToolCall};

/// A tool that a rule asks for.
#[derive(Debug)]
pub(super) struct ScriptedToolCall {
    pub(super) name: ScriptTemplate,
    /// Otherwise numbered.
    pub(super) id: Option<ScriptTemplate>,
    pub(super) arguments: ScriptTree,
}

/// The calls of a reply to this conversation.
pub(super) fn fill(
    asks: &[ScriptedToolCall],
    names: &ScriptValues,
    messages: &[ChatMessage],
) -> Vec<ToolCall> {
    let calls = asks.iter().map(|asks| ToolCall {
        id: asks
            .id
            .as_ref()
            .map_or_else(String::new, |id| id.text(names)),
        name: asks.name.text(names),
        arguments: match asks.arguments.fill(names) {
            object @ Value::Object(_) => object,
            // As of a model that writes something else.
            Value::String(text) => json!({"_raw": text}),
            other => json!({"_raw": other.to_string()}),
        },
    });
    numbered(calls.collect(), messages)
}

/// The results since the last message of an assistant, one below the other: all of them, or the
/// errors alone. Null if there are none.
pub(super) fn returned(messages: &[ChatMessage], errors: bool) -> Value {
    let last = messages.iter().rposition(|message| message.role != "tool");
    let since = messages.get(last.map_or(0, |last| last + 1)..);
    let results = since.unwrap_or_default().iter();
    let results = results.filter(|message| message.is_error || !errors);
    let texts: Vec<&str> = results.map(|message| message.content.as_str()).collect();
    match texts.is_empty() {
        true => Value::Null,
        false => Value::from(texts.join("\n")),
    }
}

/// The last result of every tool by its name, read as JSON where it is some.
pub(super) fn results(messages: &[ChatMessage]) -> Value {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut results = Map::new();
    for message in messages {
        for call in &message.tool_calls {
            names.insert(&call.id, &call.name);
        }
        let id = message.tool_call_id.as_deref();
        if let Some(name) = id.and_then(|id| names.get(id)) {
            let text = message.content.as_str();
            let result = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
            results.insert((*name).to_owned(), result);
        }
    }
    Value::Object(results)
}

/// Number of characters that calls have.
pub(super) fn written(calls: &[ToolCall]) -> usize {
    let characters =
        |call: &ToolCall| call.name.chars().count() + call.arguments.to_string().chars().count();
    calls.iter().map(characters).sum()
}

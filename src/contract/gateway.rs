//! Runtime → gateway: `POST /invoke`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A model call. The header `idempotency-key`, if there is one, names it: a gateway that has
/// answered a call of that name lately gives the same reply and asks no provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Invoke {
    /// The run, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The step, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// The model group.
    pub group: String,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The most tokens of the reply.
    pub max_tokens: u32,
    /// Only sent on if it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Tools the model may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
}

/// A tool, as a model is told of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tool {
    /// The name the model asks for it by.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    #[serde(default)]
    pub input_schema: Value,
}

/// A message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    #[serde(default)]
    pub content: String,
    /// Of an assistant: the tools it asked for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool: the id of the call whose result this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Of a tool: whether the result is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// A tool that a model asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    /// Unique within its reply.
    pub id: String,
    /// As the model was told it.
    pub name: String,
    /// A JSON object. Text that is none comes as `{"_raw": TEXT}`.
    #[serde(default)]
    pub arguments: Value,
}

/// 200: the model replied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reply {
    /// The text.
    #[serde(default)]
    pub content: String,
    /// `provider/model`.
    #[serde(default)]
    pub model_resolved: String,
    /// Tokens sent.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens received.
    #[serde(default)]
    pub tokens_out: u64,
    /// How many of those sent the provider had read before, and takes less for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_cached: u64,
    /// How many of those received were spent on reasoning, and are not in the text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens_reasoning: u64,
    /// US dollars, for reading.
    #[serde(default)]
    pub cost_usd: f64,
    /// Millionths of a US dollar, rounded half up; where it is absent, taken from `cost_usd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<u64>,
    /// The version of the price table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// Whether no provider was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// Tools the model asks for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The text of a tool's result, as a model gets it: its text blocks, one below the other; a short
/// note for every other block; the structured content where there is no text at all.
pub fn result_text(content: &[Value], structured: Option<&Value>) -> String {
    let is_text = |block: &&Value| block["type"] == "text";
    let mut said: Vec<String> = content.iter().map(block_text).collect();
    if let (None, Some(structured)) = (content.iter().find(is_text), structured) {
        said.push(structured.to_string());
    }
    said.join("\n")
}

fn block_text(block: &Value) -> String {
    let member = |name: &str| block[name].as_str().unwrap_or_default();
    let kind = member("type");
    match (kind, block.get("text"), block.get("data")) {
        ("text", Some(Value::String(text)), _) => text.clone(),
        // Base64: three bytes in four characters.
        (_, _, Some(Value::String(data))) => {
            format!(
                "[{kind} {}, {} bytes]",
                member("mimeType"),
                data.len() / 4 * 3
            )
        }
        _ => match block["uri"].as_str().or(block["resource"]["uri"].as_str()) {
            Some(uri) => format!("[{kind} {uri}]"),
            None => format!("[{kind}]"),
        },
    }
}

/// What a model wrote, without the one Markdown fence that may stand around it.
pub fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```") else {
        return text;
    };
    let inner = inner.strip_suffix("```").unwrap_or(inner);
    let language = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.');
    inner.trim_start_matches(language).trim()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_its_texts_and_a_note_for_the_rest() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image", "mimeType": "image/png", "data": "QUJD"});
        let link = json!({"type": "resource_link", "uri": "file:///a"});
        let resource = json!({"type": "resource", "resource": {"uri": "file:///b", "text": "b"}});
        let structured = json!({"n": 1});
        let told = |content: &[Value]| result_text(content, Some(&structured));
        assert_eq!(told(&[text("a"), text("b")]), "a\nb");
        assert_eq!(
            told(&[image, link, resource, json!({"type": "new"}), text("t")]),
            "[image image/png, 3 bytes]\n[resource_link file:///a]\n[resource file:///b]\n[new]\nt"
        );
        assert_eq!(told(&[]), r#"{"n":1}"#);
        assert_eq!(result_text(&[], None), "");
    }
}

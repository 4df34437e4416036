//! What a model said, read as the JSON object it was asked for.

use serde_json::Value;

/// Levels a draft may have: a report puts some more around it, and has 64 at the most. Whatever is
/// deeper is no draft.
const MAX_DEPTH: usize = 56;

/// The object in a reply: alone, or within one Markdown fence. Nothing if it is none.
pub(super) fn object(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(unfenced(text)).ok()?;
    (value.is_object() && depth(&value) <= MAX_DEPTH).then_some(value)
}

fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```") else {
        return text;
    };
    let inner = inner.strip_suffix("```").unwrap_or(inner);
    let language = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.');
    inner.trim_start_matches(language).trim()
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_found_alone_or_in_one_fence() {
        for text in [
            "{\"a\":1}",
            "  {\"a\":1}\n",
            "```\n{\"a\":1}\n```",
            "```json\n{\"a\":1}\n```\n",
            "```json{\"a\":1}```",
            "\n```JSON5\r\n{\"a\":1}\r\n```",
            "```json\n{\"a\":1}",
        ] {
            assert_eq!(object(text), Some(json!({"a": 1})), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_object_is_no_draft() {
        for text in [
            "",
            "null",
            "[]",
            "1",
            "Here you are: {\"a\":1}",
            "``````{\"a\":1}``````",
            "```json\n```json\n{}\n```\n```",
            "{\"a\":1",
            "{} {}",
        ] {
            assert_eq!(object(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_nested_too_deep_for_a_frame_is_no_draft() {
        let nested =
            |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(object(&nested(MAX_DEPTH - 1)).is_some());
        assert!(object(&nested(MAX_DEPTH)).is_none());
        assert!(object(&nested(200)).is_none());
    }
}

//! Parses a model's reply as the JSON object it should be.

use serde_json::Value;

use ktsu_contract::gateway::strip_code_fence;
use ktsu_server::body::{self, deeper_than};

/// Levels a draft may have: a report puts some more around it, and has 64 at the most. Whatever is
/// deeper is no draft.
const MAX_DEPTH: usize = 56;

/// The object in a reply: alone, or within one Markdown fence. Nothing if it is none, or one that
/// could be read in two ways: with a key twice, or a number that cannot be kept exactly.
pub(super) fn object(text: &str) -> Option<Value> {
    let text = strip_code_fence(text);
    if text.is_empty() {
        return None;
    }
    let value = Value::Object(body::object(text.as_bytes()).ok()?);
    (!deeper_than(&value, MAX_DEPTH)).then_some(value)
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
            " \n",
            "```json\n```",
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
    fn what_could_be_read_in_two_ways_is_no_draft() {
        for text in [
            r#"{"x":1,"ktsu_injection_attempt":true,"ktsu_injection_attempt":false}"#,
            r#"{"a":{"b":1,"b":1}}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":123456789012345678901234567890}"#,
            r#"{"a":1e400}"#,
        ] {
            assert_eq!(object(text), None, "{text}");
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

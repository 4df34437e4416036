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

/// A number in a reply that cannot be kept exactly, with its place as a JSON pointer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnkeptNumber {
    digits: String,
    pointer: String,
}

impl UnkeptNumber {
    /// As a part of a sentence about the reply.
    pub(super) fn words(&self) -> String {
        let (digits, at) = (&self.digits, &self.pointer);
        format!(
            "the number {digits} at {at} is beyond what is kept: whole numbers have 64 bits; have \
             the model give it as text"
        )
    }
}

/// The most characters of a number, or of its place, that are shown.
const MAX_SHOWN: usize = 60;

/// The first number for which a reply is no object, if that is why.
pub(super) fn unkept_number(text: &str) -> Option<UnkeptNumber> {
    let text = strip_code_fence(text);
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if !is_json || !text.starts_with('{') {
        return None;
    }
    let mut rest = text;
    // Where we are: the name or the index within each object or list around.
    let mut path: Vec<PathPart> = Vec::new();
    while let Some(next) = rest.chars().next() {
        let mut length = next.len_utf8();
        match next {
            '{' => path.push(PathPart::Name(String::new())),
            '[' => path.push(PathPart::Index(0)),
            '}' | ']' => drop(path.pop()),
            ',' => {
                if let Some(PathPart::Index(index)) = path.last_mut() {
                    *index += 1;
                }
            }
            '"' => {
                length = string_length(rest)?;
                let (string, after) = (rest.get(..length)?, rest.get(length..)?);
                if let Some(PathPart::Name(name)) = path.last_mut()
                    && after.trim_start().starts_with(':')
                {
                    *name = serde_json::from_str(string).ok()?;
                }
            }
            '-' | '0'..='9' => {
                let part = |c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
                length = rest.find(part).unwrap_or(rest.len());
                let digits = rest.get(..length)?;
                if !is_kept(digits) {
                    let pointer: String = path.iter().map(PathPart::segment).collect();
                    return Some(UnkeptNumber {
                        digits: shortened(digits),
                        pointer: shortened(&pointer),
                    });
                }
            }
            _ => {}
        }
        rest = rest.get(length..)?;
    }
    None
}

enum PathPart {
    Name(String),
    Index(usize),
}

impl PathPart {
    fn segment(&self) -> String {
        match self {
            Self::Name(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            Self::Index(index) => format!("/{index}"),
        }
    }
}

/// Bytes of the JSON string at the beginning of a text, quotes included.
fn string_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn is_kept(digits: &str) -> bool {
    match digits.contains(['.', 'e', 'E']) {
        true => digits.parse::<f64>().is_ok_and(f64::is_finite),
        false => digits.parse::<u64>().is_ok() || digits.parse::<i64>().is_ok(),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
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
    fn a_number_that_cannot_be_kept_is_named_with_its_place() {
        let found = |text: &str| {
            let found = unkept_number(text)?;
            Some((found.digits, found.pointer))
        };
        let of = |digits: &str, at: &str| Some((digits.to_owned(), at.to_owned()));
        let large = "123456789012345680000";
        for (text, expected) in [
            (r#"{"f": 123456789012345680000}"#, of(large, "/f")),
            (
                r#"{"a": "\" 999999999999999999999", "b": [1, {"c/d": -123456789012345680000}]}"#,
                of("-123456789012345680000", "/b/1/c~1d"),
            ),
            ("```json\n{\"a\": [[], 2, 1e400]}\n```", of("1e400", "/a/2")),
            (
                r#"{"a": 18446744073709551615, "b": -9223372036854775808, "c": 1e300}"#,
                None,
            ),
            (r#"{"a": "123456789012345680000"}"#, None),
            ("not {\"json", None),
            ("It is 123456789012345680000.", None),
            (r#"{"f": 123456789012345680000"#, None),
            ("", None),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
        let long = format!("{{\"f\": {}}}", "9".repeat(5_000));
        assert!(unkept_number(&long).unwrap().words().len() < 300);
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

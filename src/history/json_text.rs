//! JSON laid out for people: members in their original order, numbers as they were written, and
//! control characters escaped so that they cannot steer a terminal. The escapes mean the same to
//! every parser.

use std::fmt::Write as _;

/// Indented by two spaces. The text is JSON.
pub fn pretty(json: &str) -> String {
    layout(json, Some("  "))
}

/// On one line, as it was written.
pub fn compact(json: &str) -> String {
    layout(json, None)
}

fn layout(json: &str, indent: Option<&str>) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 4);
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    let mut characters = json.chars().peekable();
    let new_line = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    while let Some(character) = characters.next() {
        if quoted {
            put(&mut out, character);
            quoted = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        match character {
            '"' => {
                quoted = true;
                out.push('"');
            }
            '{' | '[' => {
                out.push(character);
                while characters
                    .next_if(|next| next.is_ascii_whitespace())
                    .is_some()
                {}
                if let Some(end) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                new_line(&mut out, depth);
            }
            ':' => out.push_str(if indent.is_some() { ": " } else { ":" }),
            space if space.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

fn put(out: &mut String, character: char) {
    if !is_control(character) {
        return out.push(character);
    }
    for unit in character.encode_utf16(&mut [0; 2]) {
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// Characters that do something instead of showing something.
pub fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            // Zero-width characters and direction marks; U+200D joins emoji and stays.
            | '\u{200b}' | '\u{200c}' | '\u{200e}' | '\u{200f}'
            // Line and paragraph separators, direction overrides and embeddings.
            | '\u{2028}'..='\u{202e}'
            // Word joiner, invisible operators, direction isolates, deprecated controls.
            | '\u{2060}'..='\u{206f}'
            // Byte order mark, interlinear annotation, tags.
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn members_keep_their_order_and_brackets_in_texts_are_text() {
        let json = r#"{"b":[1,2.50,{}],"a":"x{\"[,:\\","e":[ ],"n":null}"#;
        assert_eq!(
            pretty(json),
            "{\n  \"b\": [\n    1,\n    2.50,\n    {}\n  ],\n  \"a\": \"x{\\\"[,:\\\\\",\n  \"e\": [],\n  \"n\": null\n}"
        );
        assert_eq!(compact(&pretty(json)), json.replace("[ ]", "[]"));
    }

    #[test]
    fn what_steers_a_terminal_is_escaped_and_means_the_same() {
        let value = Value::from("a\u{9b}2J\u{202e}b\u{e0041}\u{7f}\u{1b}[m ü👩\u{200d}🚒");
        let shown = pretty(&value.to_string());
        assert!(!shown.contains(is_control), "{shown:?}");
        assert!(shown.contains("\\u009b2J\\u202eb\\udb40\\udc41\\u007f"));
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}

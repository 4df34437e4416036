//! The text that a model reads of a tool's result: MCP blocks as text. A recorded reply can only be
//! found again if the request has the same text.

use serde_json::Value;

/// The text of a result. Structured content only where no block has a text: a server that gives
/// both says the same twice.
pub fn text(content: &Value, structured: Option<&Value>) -> String {
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = blocks.iter().map(block).collect();
    if let Some(structured) = structured
        && !blocks.iter().any(is_text)
    {
        lines.push(structured.to_string());
    }
    lines.join("\n")
}

fn is_text(block: &Value) -> bool {
    block.get("type").and_then(Value::as_str) == Some("text")
}

fn block(block: &Value) -> String {
    let word = |name: &str| block.get(name).and_then(Value::as_str);
    let kind = word("type").unwrap_or("block");
    match kind {
        "text" => word("text").unwrap_or_default().to_owned(),
        "resource" => resource(block.get("resource").unwrap_or(&Value::Null)),
        "resource_link" => {
            let uri = word("uri").unwrap_or("?");
            match word("name") {
                Some(name) => format!("[resource {uri}: {name}]"),
                None => format!("[resource {uri}]"),
            }
        }
        _ => note(kind, word("mimeType"), word("data").unwrap_or_default()),
    }
}

/// A resource that is a text is what the model asked for; any other is noted.
fn resource(resource: &Value) -> String {
    let word = |name: &str| resource.get(name).and_then(Value::as_str);
    let uri = word("uri").unwrap_or("?");
    match word("text") {
        Some(text) => format!("[resource {uri}]\n{text}"),
        None => note(
            &format!("resource {uri}"),
            word("mimeType"),
            word("blob").unwrap_or_default(),
        ),
    }
}

/// `[image image/png, 1234 bytes]`.
fn note(kind: &str, mime: Option<&str>, base64: &str) -> String {
    let filled = base64.trim_end_matches('=').len();
    let bytes = filled / 4 * 3 + (filled % 4).saturating_sub(1);
    match mime {
        Some(mime) => format!("[{kind} {mime}, {bytes} bytes]"),
        None => format!("[{kind}, {bytes} bytes]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blocks_are_lines_and_what_is_no_text_is_noted() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "image", "mimeType": "image/png", "data": "AAECAw=="},
            {"type": "audio", "mimeType": "audio/wav", "data": "AAEC"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "A"}},
            {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "x/y", "blob": "AAE="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
            {"type": "dream"},
            7,
            {"type": "text", "text": "two"},
        ]);
        let lines = [
            "one",
            "[image image/png, 4 bytes]",
            "[audio audio/wav, 3 bytes]",
            "[resource file:///a]\nA",
            "[resource file:///b x/y, 2 bytes]",
            "[resource file:///c: c]",
            "[dream, 0 bytes]",
            "[block, 0 bytes]",
            "two",
        ];
        assert_eq!(text(&content, None), lines.join("\n"));
    }

    #[test]
    fn structured_content_is_reported_where_there_is_no_text() {
        let structured = json!({"a": 1});
        let said = json!([{"type": "text", "text": "{\"a\": 1}"}]);
        assert_eq!(text(&said, Some(&structured)), "{\"a\": 1}");
        assert_eq!(text(&json!([]), Some(&structured)), "{\"a\":1}");
        let image = json!([{"type": "image", "data": ""}]);
        assert_eq!(
            text(&image, Some(&structured)),
            "[image, 0 bytes]\n{\"a\":1}"
        );
        assert_eq!(text(&Value::Null, None), "");
    }
}

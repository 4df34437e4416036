//! What a server says it offers, read and bounded. Pure.

use std::collections::BTreeSet;

use ktsu_ledger::canonical::Json;
use serde_json::{Value, json};

use super::limits::Limits;
use super::{Tool, ToolError, ToolErrorCode};

/// A list under way.
#[derive(Default)]
pub(super) struct Listing {
    tools: Vec<Tool>,
    names: BTreeSet<String>,
    cursors: BTreeSet<String>,
}

impl Listing {
    /// Takes a page; gives the cursor of the next one.
    pub(super) fn page(
        &mut self,
        page: &Value,
        limits: &Limits,
    ) -> Result<Option<String>, ToolError> {
        let Some(tools) = page.get("tools").and_then(Value::as_array) else {
            return Err(ToolError::protocol("the list of tools has no \"tools\""));
        };
        for tool in tools {
            self.tool(tool, limits)?;
        }
        let cursor = match page.get("nextCursor") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(cursor)) => cursor,
            Some(_) => return Err(ToolError::protocol("nextCursor is no text")),
        };
        if !self.cursors.insert(cursor.clone()) {
            return Err(ToolError::protocol(
                "the list of tools goes round in circles",
            ));
        }
        if self.cursors.len() >= limits.pages {
            let message = format!("the list of tools has more than {} pages", limits.pages);
            return Err(ToolError::sent(ToolErrorCode::TooLarge, message));
        }
        Ok(Some(cursor.clone()))
    }

    /// All of them.
    pub(super) fn end(self) -> Vec<Tool> {
        self.tools
    }

    /// One of them. What cannot be offered to a model is left out, and said so.
    fn tool(&mut self, tool: &Value, limits: &Limits) -> Result<(), ToolError> {
        let Some(name) = tool.get("name").and_then(Value::as_str) else {
            return Err(ToolError::protocol("a tool has no name"));
        };
        if !self.names.insert(name.to_owned()) {
            // Two of one name could be pinned as one and called as the other.
            return Err(ToolError::protocol("two tools have the same name"));
        }
        if self.names.len() > limits.tools {
            let message = format!("the server has more than {} tools", limits.tools);
            return Err(ToolError::sent(ToolErrorCode::TooLarge, message));
        }
        match read(name, tool, limits) {
            Ok(tool) => self.tools.push(tool),
            Err(why) => {
                let shown: String = name.chars().take(limits.name_bytes).collect();
                tracing::warn!(tool = ?shown, why, "a tool is left out");
            }
        }
        Ok(())
    }
}

fn read(name: &str, tool: &Value, limits: &Limits) -> Result<Tool, &'static str> {
    if !is_name(name, limits.name_bytes) {
        return Err("its name is not of letters, digits and . _ / : -, or too long");
    }
    let description = match tool.get("description") {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) if text.len() <= limits.description_bytes => text,
        Some(Value::String(_)) => return Err("its description is too long"),
        Some(_) => return Err("its description is no text"),
    };
    let input_schema = match tool.get("inputSchema") {
        None => json!({"type": "object"}),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(_) => return Err("its inputSchema is no object"),
    };
    let output_schema = match tool.get("outputSchema") {
        None | Some(Value::Null) => None,
        Some(schema @ Value::Object(_)) => Some(schema.clone()),
        Some(_) => return Err("its outputSchema is no object"),
    };
    let digest = digest(name, description, &input_schema).ok_or("its schema is too deep")?;
    Ok(Tool {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema,
        output_schema,
        digest,
    })
}

/// What a lock pins.
fn digest(name: &str, description: &str, input_schema: &Value) -> Option<String> {
    let pinned = json!({"description": description, "input_schema": input_schema, "name": name});
    let canonical = Json::from_value(&pinned).ok()?;
    let hash = blake3::hash(canonical.as_str().as_bytes());
    Some(hash.to_hex().to_string())
}

fn is_name(name: &str, most: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._/:-".contains(&byte);
    !name.is_empty() && name.len() <= most && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_tool_is_that_of_its_name_description_and_schema() {
        let page = json!({"tools": [{
            "name": "read-a", "title": "not pinned", "description": "Reads a.",
            "inputSchema": {"type": "object", "properties": {"b": {}, "a": {}}},
        }]});
        let mut listing = Listing::default();
        assert_eq!(listing.page(&page, &Limits::default()), Ok(None));
        let text = concat!(
            r#"{"description":"Reads a.","input_schema":{"properties":{"a":{},"b":{}},"#,
            r#""type":"object"},"name":"read-a"}"#
        );
        let expected = blake3::hash(text.as_bytes()).to_hex().to_string();
        assert_eq!(listing.end()[0].digest, expected);
    }

    #[test]
    fn names_that_could_be_taken_for_something_else_are_left_out() {
        let long = "x".repeat(129);
        let names = [
            "read a",
            "réad",
            "re\u{200b}ad",
            "",
            "a\nb",
            "a\0",
            "a*",
            &long,
            "A.b_c/d:e-9",
        ];
        let tools: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let mut listing = Listing::default();
        let page = json!({"tools": tools});
        assert_eq!(listing.page(&page, &Limits::default()), Ok(None));
        let kept: Vec<String> = listing.end().into_iter().map(|tool| tool.name).collect();
        assert_eq!(kept, ["A.b_c/d:e-9"]);
    }
}

//! Parses a server's list of tools, within limits. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use ktsu_ledger::canonical::{CanonicalJson, deeper_than};
use serde_json::{Value, json};

use super::limits::SessionLimits;
use super::{ExcludedTool, ServerTool, ToolError, ToolErrorCode, ToolList};

/// A whole list.
#[derive(Clone)]
pub(super) struct ToolListing {
    pub(super) tools: ToolList,
    pub(super) left_out: Arc<[ExcludedTool]>,
}

/// A list under way.
#[derive(Default)]
pub(super) struct ToolListingBuilder {
    tools: Vec<Arc<ServerTool>>,
    left_out: Vec<ExcludedTool>,
    /// Number of tools, those that are left out included.
    count: usize,
    /// Those that can be called.
    names: BTreeSet<String>,
    cursors: BTreeSet<String>,
    /// Bytes of what is kept.
    kept: usize,
}

impl ToolListingBuilder {
    /// Takes a page; gives the cursor of the next one.
    pub(super) fn page(
        &mut self,
        page: &Value,
        limits: &SessionLimits,
    ) -> Result<Option<String>, ToolError> {
        let Some(tools) = page.get("tools").and_then(Value::as_array) else {
            return Err(ToolError::protocol("the list of tools has no \"tools\""));
        };
        for tool in tools {
            self.tool(tool, limits)?;
        }
        let cursor = match page.get("nextCursor") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(cursor)) if cursor.len() <= limits.cursor_bytes => cursor,
            Some(Value::String(_)) => {
                let most = limits.cursor_bytes;
                let message = format!("a cursor of the list has more than {most} bytes");
                return Err(ToolError::sent(ToolErrorCode::TooLarge, message));
            }
            Some(_) => return Err(ToolError::protocol("nextCursor is not a string")),
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
    pub(super) fn end(self) -> ToolListing {
        ToolListing {
            tools: self.tools.into(),
            left_out: self.left_out.into(),
        }
    }

    /// One of them. What cannot be offered to a model is left out, and said so.
    fn tool(&mut self, tool: &Value, limits: &SessionLimits) -> Result<(), ToolError> {
        let Some(name) = tool.get("name").and_then(Value::as_str) else {
            return Err(ToolError::protocol("a tool has no name"));
        };
        self.count += 1;
        if self.count > limits.tools {
            let message = format!("the server has more than {} tools", limits.tools);
            return Err(ToolError::sent(ToolErrorCode::TooLarge, message));
        }
        // A name that is none is not kept: it may be as long as a page.
        let read = match is_name(name, limits.name_bytes) {
            false => Err("its name is not of letters, digits and . _ / : -, or too long"),
            true if !self.names.insert(name.to_owned()) => {
                // Two of one name could be pinned as one and called as the other.
                return Err(ToolError::protocol("two tools have the same name"));
            }
            true => read(name, tool, limits, &mut self.kept),
        };
        match read {
            Ok(tool) => self.tools.push(Arc::new(tool)),
            Err(reason) => {
                let tool: String = name.chars().take(limits.name_bytes).collect();
                // Whether anything may call it is known where there is an allowlist.
                tracing::debug!(?tool, reason, "tool excluded");
                self.left_out.push(ExcludedTool { tool, reason });
            }
        }
        Ok(())
    }
}

/// Reads a tool; `kept` is how much is kept of the others.
fn read(
    name: &str,
    tool: &Value,
    limits: &SessionLimits,
    kept: &mut usize,
) -> Result<ServerTool, &'static str> {
    // A server must refuse a plain call of such a tool, and tasks are not spoken here.
    if tool.pointer("/execution/taskSupport") == Some(&Value::from("required")) {
        return Err("it requires MCP tasks, which ktsu does not support");
    }
    let description = match tool.get("description") {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) if text.len() <= limits.description_bytes => text,
        Some(Value::String(_)) => return Err("its description is too long"),
        Some(_) => return Err("its description is not a string"),
    };
    let object = json!({"type": "object"});
    let input_schema = match tool.get("inputSchema") {
        None => &object,
        Some(schema @ Value::Object(_)) => schema,
        Some(_) => return Err("its inputSchema is not an object"),
    };
    if deeper_than(input_schema, limits.schema_depth) {
        return Err("its inputSchema is nested too deep");
    }
    let written = CanonicalJson::from_value(input_schema)
        .map_err(|_| "its inputSchema is no JSON of ours")?;
    let size = written.as_str().len();
    if size > limits.schema_bytes {
        return Err("its inputSchema is too large");
    }
    let all = *kept + name.len() + description.len() + size;
    if all > limits.kept_bytes {
        return Err("the tools before it are as much as is kept of a server");
    }
    let digest = digest(name, description, input_schema).ok_or("it is no JSON of ours")?;
    *kept = all;
    Ok(ServerTool {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: input_schema.clone(),
        digest,
    })
}

/// The digest that a lock pins.
pub(super) fn digest(name: &str, description: &str, input_schema: &Value) -> Option<String> {
    let pinned = json!({"description": description, "input_schema": input_schema, "name": name});
    let canonical = CanonicalJson::from_value(&pinned).ok()?;
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
        let mut listing = ToolListingBuilder::default();
        assert_eq!(listing.page(&page, &SessionLimits::default()), Ok(None));
        let text = concat!(
            r#"{"description":"Reads a.","input_schema":{"properties":{"a":{},"b":{}},"#,
            r#""type":"object"},"name":"read-a"}"#
        );
        let expected = blake3::hash(text.as_bytes()).to_hex().to_string();
        assert_eq!(listing.end().tools[0].digest, expected);
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
        let mut listing = ToolListingBuilder::default();
        let page = json!({"tools": tools});
        assert_eq!(listing.page(&page, &SessionLimits::default()), Ok(None));
        let kept: Vec<String> = listing
            .end()
            .tools
            .iter()
            .map(|tool| tool.name.clone())
            .collect();
        assert_eq!(kept, ["A.b_c/d:e-9"]);
    }

    #[test]
    fn a_tool_that_demands_to_be_called_as_a_task_is_left_out_with_its_reason() {
        let tool = |name: &str, execution: Value| json!({"name": name, "execution": execution});
        let page = json!({"tools": [
            tool("always", json!({"taskSupport": "required"})),
            tool("maybe", json!({"taskSupport": "optional"})),
            tool("never", json!({"taskSupport": "forbidden"})),
            tool("unsaid", json!({})),
            tool("nonsense", json!(["required"])),
        ]});
        let mut listing = ToolListingBuilder::default();
        assert_eq!(listing.page(&page, &SessionLimits::default()), Ok(None));
        let listed = listing.end();
        let offered: Vec<&str> = listed.tools.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(offered, ["maybe", "never", "unsaid", "nonsense"]);
        let left_out = ExcludedTool {
            tool: "always".to_owned(),
            reason: "it requires MCP tasks, which ktsu does not support",
        };
        assert_eq!(*listed.left_out, [left_out]);
    }

    /// The names that are kept of these tools.
    fn kept(tools: Vec<Value>) -> Vec<String> {
        let mut listing = ToolListingBuilder::default();
        let page = json!({ "tools": tools });
        assert_eq!(listing.page(&page, &SessionLimits::default()), Ok(None));
        let kept = listing.end().tools;
        kept.iter().map(|tool| tool.name.clone()).collect()
    }

    /// A schema of so many levels.
    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!({}), |inner, _| json!({ "not": inner }))
    }

    /// A schema of so many bytes.
    fn sized(bytes: usize) -> Value {
        let frame = json!({"title": ""}).to_string().len();
        json!({"title": "x".repeat(bytes - frame)})
    }

    #[test]
    fn a_schema_that_is_too_deep_or_too_large_costs_its_tool_and_no_other() {
        let tools = [
            ("deep", nested(48)),
            ("deeper", nested(49)),
            ("large", sized(64 << 10)),
            ("larger", sized((64 << 10) + 1)),
            ("last", json!({})),
        ];
        let tools = tools.map(|(name, schema)| json!({"name": name, "inputSchema": schema}));
        assert_eq!(kept(tools.into()), ["deep", "large", "last"]);
    }

    #[test]
    fn all_tools_together_have_a_bound_too() {
        let tool = |n: usize| json!({"name": format!("t{n:03}"), "inputSchema": sized(64 << 10)});
        let mut tools: Vec<Value> = (0..500).map(tool).collect();
        // What is small may still fit.
        tools.push(json!({"name": "small"}));
        let kept = kept(tools);
        assert_eq!(kept.len(), 31 + 1, "31 of 64 KiB and a name, of 2 MiB");
        assert_eq!(kept.last().map(String::as_str), Some("small"));
    }

    #[test]
    fn names_and_cursors_of_any_length_are_not_kept() {
        let mut listing = ToolListingBuilder::default();
        let long = json!({"tools": [{"name": "x".repeat(1 << 20)}], "nextCursor": "next"});
        let next = Ok(Some("next".to_owned()));
        assert_eq!(listing.page(&long, &SessionLimits::default()), next);
        assert!(listing.names.is_empty());
        let cursor = |bytes: usize| json!({"tools": [], "nextCursor": "x".repeat(bytes)});
        assert!(
            listing
                .page(&cursor(1024), &SessionLimits::default())
                .is_ok()
        );
        let refused = listing.page(&cursor(1025), &SessionLimits::default());
        let refused = refused.map_err(|error| error.code);
        assert_eq!(refused, Err(ToolErrorCode::TooLarge));
    }
}

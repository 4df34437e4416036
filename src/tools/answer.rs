//! Parses the result of a call, within limits. Pure.

use serde_json::{Value, json};

use super::{ToolCallResult, ToolError, ToolErrorCode};

/// Reads the result of `tools/call`.
pub(super) fn read(
    result: Value,
    most: usize,
    duration_ms: u64,
) -> Result<ToolCallResult, ToolError> {
    if result.to_string().len() > most {
        return Err(too_large(most));
    }
    let broken = |what: &str| ToolError::protocol(format!("the result is none: {what}"));
    let Value::Object(mut fields) = result else {
        return Err(broken("not an object"));
    };
    let structured = fields.remove("structuredContent");
    let content = match fields.remove("content") {
        Some(Value::Array(blocks)) => blocks,
        None if structured.is_some() => Vec::new(),
        None | Some(_) => return Err(broken("content is not a list")),
    };
    if !content.iter().all(|block| block["type"].is_string()) {
        return Err(broken("a block has no type"));
    }
    let is_error = match fields.get("isError") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(is_error)) => *is_error,
        Some(_) => return Err(broken("isError is neither true nor false")),
    };
    Ok(ToolCallResult {
        content,
        structured,
        is_error,
        duration_ms,
    })
}

/// An error of JSON-RPC: the server understood the call and says no, which is for the model to read.
pub(super) fn refused(
    code: i32,
    message: &str,
    most: usize,
    duration_ms: u64,
) -> Result<ToolCallResult, ToolError> {
    let text = format!("{code}: {message}");
    if text.len() > most {
        return Err(too_large(most));
    }
    Ok(ToolCallResult {
        content: vec![json!({"type": "text", "text": text})],
        structured: None,
        is_error: true,
        duration_ms,
    })
}

fn too_large(most: usize) -> ToolError {
    let message = format!("the result is larger than {most} bytes");
    ToolError::sent(ToolErrorCode::TooLarge, message)
}

//! Parses a server's messages strictly: JSON-RPC 2.0, one message at a time. Pure.

use ktsu_ledger::canonical::parse_strict;
use serde_json::{Map, Value, json};

use super::ToolError;

/// A message of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ServerMessage {
    /// The answer to a request of ours.
    Response {
        /// Of the request; `None` where the server could not read it.
        id: Option<i64>,
        /// The result or the error that it holds.
        outcome: RpcOutcome,
    },
    /// A request of the server.
    Request {
        /// Of the request, as it came.
        id: Value,
        /// The name of the method.
        method: String,
    },
    /// A notification.
    Notification {
        /// The name of the method.
        method: String,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RpcOutcome {
    /// As it came.
    Result(Value),
    /// An error of JSON-RPC: the server understood, and says no.
    Error {
        /// Its number.
        code: i64,
        /// Its words.
        message: String,
    },
}

/// Reads a message.
pub(super) fn read(bytes: &[u8]) -> Result<ServerMessage, ToolError> {
    let value = parse_strict(bytes).map_err(|error| {
        ToolError::protocol(format!("the answer is not a valid message: {error}"))
    })?;
    let broken =
        |what: &str| ToolError::protocol(format!("the answer is not a valid message: {what}"));
    let Value::Object(mut fields) = value else {
        return Err(broken("not an object"));
    };
    if fields.get("jsonrpc") != Some(&Value::from("2.0")) {
        return Err(broken("jsonrpc is not \"2.0\""));
    }
    let id = fields.remove("id");
    match fields.remove("method") {
        Some(Value::String(method)) => Ok(match id {
            Some(id @ (Value::String(_) | Value::Number(_))) => {
                ServerMessage::Request { id, method }
            }
            None => ServerMessage::Notification { method },
            Some(_) => return Err(broken("the id is neither a number nor a text")),
        }),
        Some(_) => Err(broken("the method is not a string")),
        None => {
            let id = match id {
                Some(Value::Null) | None => None,
                Some(id) => Some(id.as_i64().ok_or_else(|| broken("a strange id"))?),
            };
            let outcome = outcome(&mut fields).ok_or_else(|| {
                broken("an answer has either a result or an error with code and message")
            })?;
            Ok(ServerMessage::Response { id, outcome })
        }
    }
}

fn outcome(fields: &mut Map<String, Value>) -> Option<RpcOutcome> {
    match (fields.remove("result"), fields.remove("error")) {
        (Some(result), None) => Some(RpcOutcome::Result(result)),
        (None, Some(Value::Object(mut error))) => {
            let code = error.get("code")?.as_i64()?;
            let Some(Value::String(message)) = error.remove("message") else {
                return None;
            };
            Some(RpcOutcome::Error { code, message })
        }
        (None | Some(_), None | Some(_)) => None,
    }
}

/// The answer to a request of a server: we offer nothing, and are there.
pub(super) fn reply(id: &Value, method: &str) -> Value {
    match method {
        "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => json!({"jsonrpc": "2.0", "id": id,
            "error": {"code": -32601, "message": "method not found"}}),
    }
}

/// That the answer to a request of ours is no longer waited for.
pub(super) fn cancelled(id: i64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": id, "reason": "the client no longer waits for the result"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_refused() {
        for text in [
            "",
            "[]",
            "null",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":""}}"#,
            r#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":7}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}} {}"#,
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}

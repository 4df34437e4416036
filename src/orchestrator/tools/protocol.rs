//! MCP messages to the built-in tool servers: decoding and errors. Independent of runs and of the
//! transport.

use serde_json::{Value, json};

use super::BuiltinServer;

/// Versions of the protocol these servers know, the newest first.
pub(super) const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The versions in which several messages may come as one.
const BATCH_VERSIONS: [&str; 2] = ["2025-03-26", "2024-11-05"];

/// The most messages that come as one.
const MAX_BATCH: usize = 16;

/// The length limit of a message id, which is echoed.
const MAX_ID: usize = 256;

/// The member that holds a call's idempotency key.
const IDEMPOTENCY_KEY: &str = "ktsu/idempotency-key";

const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
/// As of 2026-07-28: a client that knows newer versions reads from it which to fall back to.
const UNSUPPORTED_VERSION: i32 = -32022;

/// The response to a message.
#[derive(Debug, Clone, PartialEq)]
pub enum ProtocolAnswer {
    /// No response.
    Nothing,
    /// This.
    With(Value),
    /// It is no message of MCP, or of no version that is known here.
    Refused(Value),
}

/// A decoded message.
#[derive(Debug, PartialEq)]
pub(super) enum ProtocolMessage<'a> {
    /// Expects a response.
    Request {
        id: &'a Value,
        method: &'a str,
        /// An object or null.
        params: &'a Value,
    },
    /// Expects none: a notification, or a response to no request of ours.
    Notification,
}

/// A tool call as requested.
#[derive(Debug, PartialEq)]
pub(super) struct ToolCallRequest<'a> {
    pub(super) tool: &'a str,
    pub(super) arguments: Value,
    /// Without one it is no call that was recorded.
    pub(super) key: Option<&'a str>,
}

/// The messages that come as one, if they may.
///
/// # Errors
/// The answer to all of them.
pub(super) fn batch<'a>(
    version: Option<&str>,
    messages: &'a [Value],
) -> Result<&'a [Value], Value> {
    // Who names no version has one from before there was the header.
    let permitted = version.is_none_or(|version| BATCH_VERSIONS.contains(&version));
    let greets = messages.iter().any(|one| one["method"] == "initialize");
    let words = match messages.len() {
        _ if !permitted => "this version of the protocol knows single messages only",
        0 => "there is no message",
        count if count > MAX_BATCH => "these are too many messages at once",
        _ if greets => "initialize comes by itself",
        _ => return Ok(messages),
    };
    Err(failure(&Value::Null, INVALID_REQUEST, words))
}

/// Decodes a message, given the protocol version that the client states.
///
/// # Errors
/// The error response for an invalid message or an unsupported version.
pub(super) fn read<'a>(
    version: Option<&str>,
    message: &'a Value,
) -> Result<ProtocolMessage<'a>, Value> {
    let id = &message["id"];
    let shown = if is_id(id) { id } else { &Value::Null };
    let wrong = |words| Err(failure(shown, INVALID_REQUEST, words));
    if message["jsonrpc"] != "2.0" {
        return wrong("jsonrpc is 2.0");
    }
    let method = match message.get("method") {
        Some(Value::String(method)) => method,
        None if is_response(message) => return Ok(ProtocolMessage::Notification),
        _ => return wrong("method is missing, or no text"),
    };
    // The version is settled by the first message itself.
    if method != "initialize"
        && let Some(requested) = version.filter(|requested| !VERSIONS.contains(requested))
    {
        return Err(unsupported(shown, requested));
    }
    if message.get("id").is_none() {
        return Ok(ProtocolMessage::Notification);
    }
    if !is_id(id) {
        return wrong("id is a text of at most 256 characters or a whole number");
    }
    let params = &message["params"];
    if !(params.is_object() || params.is_null()) {
        return Err(failure(id, INVALID_PARAMS, "params are an object"));
    }
    Ok(ProtocolMessage::Request { id, method, params })
}

/// Returns `true` if it answers a question. A client that could not read the question refuses it
/// with the id null.
fn is_response(message: &Value) -> bool {
    let id = message.get("id");
    let refuses = message["error"].is_object();
    match id.is_some_and(Value::is_null) {
        true => refuses,
        false => id.is_some_and(is_id) && (refuses || message["result"].is_object()),
    }
}

/// A whole number is one to JSON Schema however it is written.
fn is_id(id: &Value) -> bool {
    let short = id.as_str().is_some_and(|id| id.chars().count() <= MAX_ID);
    short || id.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// The result of `initialize`: the requested version if supported, otherwise the newest.
///
/// # Errors
/// The error, if the request names no version.
pub(super) fn initialize_result(server: BuiltinServer, params: &Value) -> Result<Value, Value> {
    let requested = params["protocolVersion"].as_str();
    let requested = requested.ok_or_else(|| error(INVALID_PARAMS, "protocolVersion is missing"))?;
    let known = VERSIONS.iter().find(|version| **version == requested);
    Ok(json!({
        "capabilities": {"tools": {}},
        "protocolVersion": known.unwrap_or(&VERSIONS[0]),
        "serverInfo": {"name": server.file(), "version": env!("CARGO_PKG_VERSION")},
    }))
}

/// The result of `tools/list`: a single page.
///
/// # Errors
/// The error, if another page is requested.
pub(super) fn tools_list_result(tools: &Value, params: &Value) -> Result<Value, Value> {
    match params["cursor"].is_null() {
        true => Ok(json!({"tools": tools})),
        false => Err(error(INVALID_PARAMS, "there is no such page")),
    }
}

/// The tool call in a `tools/call` request.
///
/// # Errors
/// The error, if it names no tool of the server.
pub(super) fn tool_call_request<'a>(
    tools: &Value,
    params: &'a Value,
) -> Result<ToolCallRequest<'a>, Value> {
    let name = params["name"].as_str();
    let tool = name.ok_or_else(|| error(INVALID_PARAMS, "name is missing"))?;
    let mut offered = tools.as_array().into_iter().flatten();
    if !offered.any(|one| one["name"] == tool) {
        let words = format!("there is no tool {tool:?} here");
        return Err(error(INVALID_PARAMS, &words));
    }
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => json!({}),
        Some(arguments @ Value::Object(_)) => arguments.clone(),
        Some(_) => return Err(error(INVALID_PARAMS, "arguments are an object")),
    };
    let key = params["_meta"][IDEMPOTENCY_KEY].as_str();
    Ok(ToolCallRequest {
        tool,
        arguments,
        key,
    })
}

/// The error for an unknown method.
pub(super) fn unknown_method(method: &str) -> Value {
    let words = format!("there is no method {method:?} here");
    error(METHOD_NOT_FOUND, &words)
}

/// The message that answers a request.
pub(super) fn answer(id: &Value, result: Result<Value, Value>) -> Value {
    match result {
        Ok(result) => json!({"id": id, "jsonrpc": "2.0", "result": result}),
        Err(error) => json!({"error": error, "id": id, "jsonrpc": "2.0"}),
    }
}

fn error(code: i32, words: &str) -> Value {
    json!({"code": code, "message": words})
}

fn failure(id: &Value, code: i32, words: &str) -> Value {
    answer(id, Err(error(code, words)))
}

fn unsupported(id: &Value, requested: &str) -> Value {
    let mut error = error(UNSUPPORTED_VERSION, "this version is not known here");
    error["data"] = json!({"requested": requested, "supported": VERSIONS});
    answer(id, Err(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(version: Option<&str>, message: &Value) -> Option<(Value, Value)> {
        let refused = read(version, message).err()?;
        Some((refused["id"].clone(), refused["error"]["code"].clone()))
    }

    #[test]
    fn what_is_no_message_is_refused_under_its_own_id_where_it_has_one() {
        let none = Value::Null;
        for (message, id, expected) in [
            (json!({}), &none, -32600),
            (json!({"id": 1, "method": "ping"}), &json!(1), -32600),
            (
                json!({"jsonrpc": "1.0", "id": "a", "method": "ping"}),
                &json!("a"),
                -32600,
            ),
            (json!({"jsonrpc": "2.0", "id": 1}), &json!(1), -32600),
            (
                json!({"jsonrpc": "2.0", "id": 1, "method": 7}),
                &json!(1),
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": null, "method": "ping"}),
                &none,
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}),
                &none,
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": {}, "method": "ping"}),
                &none,
                -32600,
            ),
            (json!({"jsonrpc": "2.0", "result": {}}), &none, -32600),
            (
                json!({"jsonrpc": "2.0", "id": null, "result": {}}),
                &none,
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": 1, "result": 5, "error": "e"}),
                &json!(1),
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": "€".repeat(257), "method": "ping"}),
                &none,
                -32600,
            ),
            (
                json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}),
                &json!(1),
                -32602,
            ),
            (json!("ping"), &none, -32600),
        ] {
            let refused = code(None, &message);
            assert_eq!(refused, Some((id.clone(), json!(expected))), "{message}");
        }
    }

    #[test]
    fn nothing_is_answered_to_what_asks_for_nothing() {
        for message in [
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "method": "whatever", "params": []}),
            json!({"jsonrpc": "2.0", "id": 4, "result": {}}),
            json!({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "m"}}),
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "m"}}),
        ] {
            assert_eq!(
                read(None, &message),
                Ok(ProtocolMessage::Notification),
                "{message}"
            );
        }
    }

    #[test]
    fn a_version_that_is_not_known_is_refused_with_those_that_are() {
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        for version in VERSIONS {
            assert!(read(Some(version), &ping).is_ok(), "{version}");
        }
        assert!(read(None, &ping).is_ok());
        for version in ["2026-07-28", "", "2025-11-25 ", "latest"] {
            let refused = read(Some(version), &ping).unwrap_err();
            assert_eq!(refused["error"]["code"], -32022, "{version}");
            assert_eq!(refused["error"]["data"]["supported"], json!(VERSIONS));
            assert_eq!(refused["id"], 1);
        }
        // The first message settles it, whatever the header says.
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"});
        assert!(read(Some("2026-07-28"), &hello).is_ok());
    }

    #[test]
    fn the_version_is_the_one_asked_for_or_the_newest() {
        let asked = |version: Value| {
            let params = json!({"protocolVersion": version});
            initialize_result(BuiltinServer::Kv, &params)
        };
        for version in VERSIONS {
            assert_eq!(asked(json!(version)).unwrap()["protocolVersion"], version);
        }
        let newer = asked(json!("2099-01-01")).unwrap();
        assert_eq!(newer["protocolVersion"], "2025-11-25");
        assert_eq!(asked(json!(3)).unwrap_err()["code"], -32602);
        assert_eq!(
            initialize_result(BuiltinServer::Kv, &Value::Null).unwrap_err()["code"],
            -32602
        );
    }

    #[test]
    fn several_messages_come_as_one_where_the_version_has_that() {
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize"});
        let two = [ping.clone(), ping.clone()];
        for version in [None, Some("2025-03-26"), Some("2024-11-05")] {
            assert_eq!(batch(version, &two), Ok(&two[..]), "{version:?}");
        }
        let full = vec![ping.clone(); 16];
        assert!(batch(None, &full).is_ok());
        for (version, messages) in [
            (Some("2025-06-18"), two.to_vec()),
            (Some("2025-11-25"), two.to_vec()),
            (None, Vec::new()),
            (None, vec![ping.clone(); 17]),
            (None, vec![ping, hello]),
        ] {
            let refused = batch(version, &messages).unwrap_err();
            assert_eq!(refused["error"]["code"], -32600, "{messages:?}");
        }
    }

    #[test]
    fn a_call_names_a_tool_there_is_and_gives_it_an_object() {
        let tools = json!([{"name": "kv-get"}]);
        let read = |params: Value| {
            tool_call_request(&tools, &params)
                .map(|wanted| (wanted.arguments, wanted.key.map(str::to_owned)))
                .map_err(|error| error["code"].clone())
        };
        let meta = json!({"ktsu/idempotency-key": "k"});
        let whole = json!({"name": "kv-get", "arguments": {"key": "a"}, "_meta": meta});
        let key = Some("k".to_owned());
        assert_eq!(read(whole), Ok((json!({"key": "a"}), key)));
        assert_eq!(read(json!({"name": "kv-get"})), Ok((json!({}), None)));
        for wrong in [
            json!({}),
            json!({"name": 1}),
            json!({"name": "kv-gone"}),
            json!({"name": "kv-get", "arguments": []}),
        ] {
            assert_eq!(read(wrong.clone()), Err(json!(-32602)), "{wrong}");
        }
    }
}

//! A check that messages form a conversation that every provider accepts: known roles, arguments
//! that are objects, and a result for every tool call, directly after it.
//!
//! Providers differ in what they accept. What is refused here is refused for all of them, so that
//! an agent that works with a script does not fail with a real model.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::error::{Code, GatewayError};
use ktsu_contract::gateway::{ChatMessage, ToolCall};

/// Refuses what is no conversation, with the place of the first thing that is wrong. Calls without
/// arguments get none, in the form that every provider takes.
pub(super) fn check(messages: &mut [ChatMessage]) -> Result<(), GatewayError> {
    let mut open = UnansweredCalls::default();
    for (at, message) in messages.iter_mut().enumerate() {
        let found = match message.role.as_str() {
            "tool" => open.answered(message),
            "assistant" => open.none_left().and_then(|()| open.asked(message)),
            "system" | "user" => open.none_left().and_then(|()| without_calls(message)),
            _ => Err(".role must be system, user, assistant or tool".to_owned()),
        };
        found.map_err(|words| refused(&format!("messages[{at}]{words}")))?;
    }
    let left = open.none_left();
    left.map_err(|words| refused(&format!("messages ends{words}")))
}

fn refused(words: &str) -> GatewayError {
    GatewayError::new(Code::InvalidRequest, words)
}

/// Calls whose results are due.
#[derive(Default)]
struct UnansweredCalls(BTreeSet<String>);

impl UnansweredCalls {
    fn asked(&mut self, message: &mut ChatMessage) -> Result<(), String> {
        if message.tool_call_id.is_some() {
            return Err(" is of an assistant and has a tool_call_id".to_owned());
        }
        for (at, call) in message.tool_calls.iter_mut().enumerate() {
            if call.name.is_empty() || call.id.is_empty() {
                return Err(format!(".tool_calls[{at}] needs an id and a name"));
            }
            if !self.0.insert(call.id.clone()) {
                return Err(format!(".tool_calls[{at}] has the id of another call"));
            }
            if !has_arguments(call) {
                return Err(format!(".tool_calls[{at}].arguments must be an object"));
            }
        }
        Ok(())
    }

    fn answered(&mut self, message: &ChatMessage) -> Result<(), String> {
        let Some(id) = &message.tool_call_id else {
            return Err(" is of a tool and has no tool_call_id".to_owned());
        };
        match self.0.remove(id) {
            true if message.tool_calls.is_empty() => Ok(()),
            true => Err(" is of a tool and asks for tools".to_owned()),
            false => Err(" answers no call of the assistant before it".to_owned()),
        }
    }

    fn none_left(&self) -> Result<(), String> {
        match self.0.len() {
            0 => Ok(()),
            one_or_more => Err(format!(" while {one_or_more} tool calls have no result")),
        }
    }
}

fn has_arguments(call: &mut ToolCall) -> bool {
    if call.arguments.is_null() {
        call.arguments = Value::Object(Map::new());
    }
    call.arguments.is_object()
}

fn without_calls(message: &ChatMessage) -> Result<(), String> {
    match message.tool_calls.is_empty() && message.tool_call_id.is_none() {
        true => Ok(()),
        false => Err(format!(" is of a {} and has tool calls", message.role)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(messages: Value) -> Result<(), String> {
        let mut messages: Vec<ChatMessage> = serde_json::from_value(messages).unwrap();
        check(&mut messages).map_err(|failure| failure.message)
    }

    fn calls(ids: &[&str]) -> Value {
        let call = |id: &&str| json!({"id": id, "name": "f", "arguments": {}});
        json!({"role": "assistant", "tool_calls": ids.iter().map(call).collect::<Value>()})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "x"})
    }

    #[test]
    fn a_conversation_with_tools_is_taken() {
        let user = json!({"role": "user", "content": "U"});
        assert_eq!(told(json!([user])), Ok(()));
        let whole = json!([
            user,
            calls(&["a", "b"]),
            result("b"),
            result("a"),
            calls(&["a"]),
            result("a"),
            user
        ]);
        assert_eq!(told(whole), Ok(()), "ids are unique within their reply");
    }

    #[test]
    fn arguments_are_an_object_and_none_are_an_empty_one() {
        let asked = |arguments: Value| {
            let call = json!({"id": "a", "name": "f", "arguments": arguments});
            json!({"role": "assistant", "tool_calls": [call]})
        };
        for other in [json!("{}"), json!([]), json!(1), json!(true)] {
            let said = told(json!([asked(other), result("a")])).unwrap_err();
            let words = "messages[0].tool_calls[0].arguments must be an object";
            assert_eq!(said, words);
        }
        let mut absent = asked(Value::Null);
        let call = absent["tool_calls"][0].as_object_mut().unwrap();
        call.remove("arguments");
        for none in [absent, asked(Value::Null), asked(json!({}))] {
            let mut messages: Vec<ChatMessage> =
                serde_json::from_value(json!([none, result("a")])).unwrap();
            check(&mut messages).unwrap();
            assert_eq!(messages[0].tool_calls[0].arguments, json!({}));
        }
    }

    #[test]
    fn what_a_provider_would_refuse_is_refused_at_its_place() {
        let user = json!({"role": "user", "content": "U"});
        for (messages, words) in [
            (json!([{"role": "robot"}]), "messages[0].role must be"),
            (json!([user, result("a")]), "messages[1] answers no call"),
            (
                json!([user, {"role": "tool"}]),
                "messages[1] is of a tool and has no tool_call_id",
            ),
            (
                json!([calls(&["a"]), result("a"), result("a")]),
                "messages[2] answers no call",
            ),
            (
                json!([calls(&["a", "b"]), result("a"), user]),
                "messages[2] while 1 tool calls",
            ),
            (
                json!([calls(&["a"]), calls(&["b"])]),
                "messages[1] while 1 tool calls",
            ),
            (
                json!([calls(&["a"])]),
                "messages ends while 1 tool calls have no result",
            ),
            (
                json!([calls(&["a", "a"])]),
                "messages[0].tool_calls[1] has the id of another",
            ),
            (
                json!([calls(&[""])]),
                "messages[0].tool_calls[0] needs an id and a name",
            ),
            (
                json!([{"role": "user", "tool_call_id": "a"}]),
                "messages[0] is of a user and has",
            ),
        ] {
            let said = told(messages).unwrap_err();
            assert!(said.starts_with(words), "{said}");
        }
    }
}

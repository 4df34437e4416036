//! The commands that a model gave with tools.

use std::collections::BTreeMap;

use serde_json::Value;

/// The commands that the server accepted, by the place of their calls: the reply, and the position in
/// it. So their order is that of the calls, whichever result came first (decision W5).
#[derive(Debug, Clone, Default)]
pub(super) struct AcceptedCommands(BTreeMap<(u64, u32), Value>);

impl AcceptedCommands {
    /// Takes an accepted call of a tool, as the command that it gives.
    pub(super) fn accept(&mut self, place: (u64, u32), tool: &str, arguments: &Value) {
        let Some(mut command) = arguments.as_object().cloned() else {
            return;
        };
        command.insert("type".to_owned(), Value::from(tool));
        self.0.insert(place, Value::Object(command));
    }

    /// Each command once, at the first place that has it.
    pub(super) fn in_order(&self) -> Vec<Value> {
        let mut commands: Vec<Value> = Vec::with_capacity(self.0.len());
        for command in self.0.values() {
            if !commands.contains(command) {
                commands.push(command.clone());
            }
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use ktsu_contract::report::COMMANDS_SERVER;
    use ktsu_contract::runtime::RecordedFrame;
    use serde_json::json;

    use super::super::{Action, AgentPrompt, Catalogue, Conversation, ConversationLimits};
    use super::*;

    const REPLY: u64 = 2;

    fn frame(seq: u64, kind: &str, data: Value) -> RecordedFrame {
        let kind = kind.to_owned();
        RecordedFrame { seq, kind, data }
    }

    /// A task whose model emitted these payloads in one reply; results came in this order.
    fn commands(payloads: &[u64], returned: &[u64]) -> Vec<Value> {
        let call = |(at, payload): (usize, &u64)| {
            json!({"id": format!("c{at}"), "name": "emit",
                "arguments": {"topic": "t", "payload": payload}})
        };
        let calls: Vec<Value> = payloads.iter().enumerate().map(call).collect();
        let mut history = vec![
            frame(
                1,
                "llm.request",
                json!({"group": "g", "max_tokens": 1, "purpose": "turn", "messages": []}),
            ),
            frame(
                REPLY,
                "llm.response",
                json!({"request": 1, "content": "", "tool_calls": calls}),
            ),
            frame(3, "agent.decided", json!({"response": REPLY})),
        ];
        for at in 0..payloads.len() as u64 {
            let called = json!({"response": REPLY, "call": at, "server": COMMANDS_SERVER,
                "tool": "emit", "idempotency_key": "k"});
            history.push(frame(10 + at, "tool.called", called));
        }
        for (n, at) in returned.iter().enumerate() {
            let result = json!({"response": REPLY, "call": at, "content": [{"type": "text",
                "text": "{}"}], "is_error": false});
            history.push(frame(100 + n as u64, "tool.returned", result));
        }
        let end = vec![
            frame(
                200,
                "llm.request",
                json!({"group": "g", "max_tokens": 1, "purpose": "turn", "messages": []}),
            ),
            frame(
                201,
                "llm.response",
                json!({"request": 200, "content": "{\"ok\": 1}"}),
            ),
        ];
        history.extend(end);
        let task = json!({"run_id": "r", "step_id": "s", "system": "S", "user_message": "U",
            "callback_url": "http://localhost/c", "model": {"group": "g"}});
        let prompt = AgentPrompt::of(&serde_json::from_value(task).unwrap());
        let terms = ConversationLimits {
            max_turns: 5,
            text_reply: false,
            people: true,
        };
        let conversation = Conversation::new(prompt, terms, &history);
        let Action::Finish(end) = conversation.next(&Catalogue::default()) else {
            panic!("the task has an output");
        };
        end.outcome.commands
    }

    #[test]
    fn commands_have_the_order_of_the_calls_in_the_reply() {
        let payloads = |commands: Vec<Value>| -> Vec<u64> {
            let payload = |one: &Value| one["payload"].as_u64().unwrap();
            commands.iter().map(payload).collect()
        };
        assert_eq!(
            payloads(commands(&[5, 6, 7, 8], &[3, 1, 0, 2])),
            [5, 6, 7, 8]
        );
        // The same command twice counts at its first place.
        assert_eq!(payloads(commands(&[5, 6, 5], &[2, 1, 0])), [5, 6]);
    }
}

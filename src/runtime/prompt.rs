//! What a model is told: the messages of each kind of call.

use serde_json::Value;

use ktsu_contract::gateway::Message;
use ktsu_contract::report::Told;
use ktsu_contract::runtime::Invoke;

/// Asks for a draft that is JSON after all (decision R3).
const REPAIR: &str = "Your response was not valid JSON. Please respond with only a valid JSON \
                      object and nothing else.";

/// Asks for an output when no turn is left for tools.
const LAST_TURN: &str = "You have reached the maximum number of tool calls. Provide your final \
                         answer now without requesting any additional tools.";

/// The texts of a task, rendered by the orchestrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prompt {
    system: String,
    user: String,
    reflect: Option<String>,
}

impl Prompt {
    /// The texts of a dispatch.
    pub(super) fn of(task: &Invoke) -> Self {
        Self {
            system: system(&task.system, task.output_schema.as_ref()),
            user: task.user_message.clone(),
            reflect: task.reflect.clone(),
        }
    }

    /// Whether the agent may reflect.
    pub(super) fn reflects(&self) -> bool {
        self.reflect.is_some()
    }

    /// The first turn.
    pub(super) fn first(&self) -> Vec<Message> {
        vec![
            message("system", &self.system),
            message("user", self.user.as_str()),
        ]
    }

    /// That there will be no more tools.
    pub(super) fn last_turn() -> Message {
        message("user", LAST_TURN)
    }

    /// The turn's messages, and what was wrong with the reply to them.
    pub(super) fn repair(mut turn: Vec<Told>, reply: &str) -> Vec<Told> {
        turn.push(Told::Text(message("assistant", reply)));
        turn.push(Told::Text(message("user", REPAIR)));
        turn
    }

    /// The draft, looked at once more; nothing for an agent that does not reflect.
    pub(super) fn reflection(&self, draft: &Value) -> Option<Vec<Message>> {
        let reflect = self.reflect.as_deref()?;
        Some(vec![
            message("system", reflect),
            message("user", self.user.as_str()),
            message("user", draft.to_string()),
        ])
    }
}

fn system(prompt: &str, schema: Option<&Value>) -> String {
    let Some(schema) = schema else {
        return prompt.to_owned();
    };
    format!("{prompt}\n\nYour output MUST conform to this JSON schema:\n{schema:#}")
}

fn message(role: &str, content: impl Into<String>) -> Message {
    Message {
        role: role.to_owned(),
        content: content.into(),
        ..Message::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_follows_the_system_prompt_with_sorted_keys() {
        let schema: Value =
            serde_json::from_str(r#"{"type":"object","a":{"c":1,"b":[2]}}"#).unwrap();
        assert_eq!(
            system("You sort.", Some(&schema)),
            "You sort.\n\nYour output MUST conform to this JSON schema:\n{\n  \"a\": {\n    \
             \"b\": [\n      2\n    ],\n    \"c\": 1\n  },\n  \"type\": \"object\"\n}"
        );
        assert_eq!(system("You sort.", None), "You sort.");
    }
}

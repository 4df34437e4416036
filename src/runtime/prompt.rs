//! Prompts: the messages of each kind of model call.

use serde_json::Value;

use ktsu_contract::gateway::ChatMessage;
use ktsu_contract::report::RequestMessage;
use ktsu_contract::runtime::{InvokeAgent, PromptMessage};

/// Asks for a draft that is JSON after all (decision R3).
const REPAIR: &str = "Your response was not valid JSON. Please respond with only a valid JSON \
                      object and nothing else.";

/// Asks for an output when no turn is left for tools.
const LAST_TURN: &str = "You have reached the maximum number of tool calls. Provide your final \
                         answer now without requesting any additional tools.";

/// The texts of a task, rendered by the orchestrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentPrompt {
    /// The messages of the first turn.
    first: Vec<ChatMessage>,
    user: String,
    reflect: Option<String>,
}

impl AgentPrompt {
    /// The texts of a dispatch.
    pub(super) fn of(task: &InvokeAgent) -> Self {
        let schema = task.output_schema.as_ref();
        let first = match task.messages.is_empty() {
            true => vec![
                message("system", system(&task.system, schema)),
                message("user", task.user_message.as_str()),
            ],
            false => question(&task.messages, schema),
        };
        Self {
            first,
            user: task.user_message.clone(),
            reflect: task.reflect.clone(),
        }
    }

    /// Returns `true` if the agent may reflect.
    pub(super) fn reflects(&self) -> bool {
        self.reflect.is_some()
    }

    /// The first turn.
    pub(super) fn first(&self) -> Vec<ChatMessage> {
        self.first.clone()
    }

    /// That there will be no more tools.
    pub(super) fn last_turn() -> ChatMessage {
        message("user", LAST_TURN)
    }

    /// The turn's messages, and what was wrong with the reply to them.
    pub(super) fn repair(mut turn: Vec<RequestMessage>, reply: &str) -> Vec<RequestMessage> {
        turn.push(RequestMessage::Text(message("assistant", reply)));
        turn.push(RequestMessage::Text(message("user", REPAIR)));
        turn
    }

    /// The draft, looked at once more; nothing for an agent that does not reflect.
    pub(super) fn reflection(&self, draft: &Value) -> Option<Vec<ChatMessage>> {
        let reflect = self.reflect.as_deref()?;
        Some(vec![
            message("system", reflect),
            message("user", self.user.as_str()),
            message("user", draft.to_string()),
        ])
    }
}

/// The messages of a question, with the schema of its reply behind the first instructions.
fn question(messages: &[PromptMessage], schema: Option<&Value>) -> Vec<ChatMessage> {
    let mut first: Vec<ChatMessage> = messages
        .iter()
        .map(|one| message(&one.role, one.content.as_str()))
        .collect();
    if schema.is_some() {
        match first.iter_mut().find(|one| one.role == "system") {
            Some(one) => one.content = system(&one.content, schema),
            None => first.insert(0, message("system", system("", schema).trim_start())),
        }
    }
    first
}

fn system(prompt: &str, schema: Option<&Value>) -> String {
    let Some(schema) = schema else {
        return prompt.to_owned();
    };
    format!("{prompt}\n\nYour output MUST conform to this JSON schema:\n{schema:#}")
}

fn message(role: &str, content: impl Into<String>) -> ChatMessage {
    ChatMessage {
        role: role.to_owned(),
        content: content.into(),
        ..ChatMessage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_question_are_sent_as_they_are_with_the_schema_behind_the_instructions() {
        let said = |role: &str, content: &str| PromptMessage {
            role: role.to_owned(),
            content: content.to_owned(),
        };
        let schema: Value = serde_json::from_str(r#"{"type":"object"}"#).unwrap();
        let asked = [
            said("user", "Is it?"),
            said("assistant", "No."),
            said("system", "Be brief."),
        ];
        let plain = question(&asked, None);
        let contents: Vec<&str> = plain.iter().map(|one| one.content.as_str()).collect();
        assert_eq!(contents, ["Is it?", "No.", "Be brief."]);
        let told = question(&asked, Some(&schema));
        assert!(
            told[2].content.starts_with("Be brief.\n\nYour output MUST"),
            "{told:?}"
        );
        let without = question(&asked[..1], Some(&schema));
        assert_eq!((without.len(), without[0].role.as_str()), (2, "system"));
        assert!(
            without[0].content.starts_with("Your output MUST"),
            "{without:?}"
        );
    }

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

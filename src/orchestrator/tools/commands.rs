//! `ktsu/commands`: what a model commands besides its output (seed 004). A call is judged here and
//! carried out later: its runtime puts what was accepted into the outcome of the step.

use ktsu_ledger::topic::TopicPattern;
use ktsu_workflow::commands::{OutcomeCommand, read_commands};
use serde_json::{Value, json};

use super::CallResult;

/// What it offers. The allowlist of an agent leaves what its file declares.
pub(super) fn tools() -> Value {
    json!([{
        "name": "emit",
        "description": "Tells other systems about a topic, once your answer has been accepted. \
            Calling it again with the same arguments changes nothing.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "topic": {"type": "string", "description": "What it is about: claim.verified"},
                "payload": {"description": "What is told: any JSON value"},
            },
            "required": ["topic", "payload"],
            "additionalProperties": false,
        },
    }])
}

/// Whether a command may stand in the outcome; `emits` are the topics that its agent declares.
pub(super) fn noted(emits: Option<&TopicPattern>, tool: &str, arguments: &Value) -> CallResult {
    let mut command = json!({"type": tool});
    if let (Some(command), Some(arguments)) = (command.as_object_mut(), arguments.as_object()) {
        let members = arguments.iter().filter(|(name, _)| *name != "type");
        command.extend(members.map(|(name, value)| (name.clone(), value.clone())));
    }
    let read = read_commands(Some(&json!([command])))?;
    for command in read {
        let OutcomeCommand::Emit { topic, .. } = command else {
            return Err(format!("{tool} is not offered"));
        };
        if !emits.is_some_and(|emits| emits.matches(&topic)) {
            let declared = emits.map_or_else(|| "nothing".to_owned(), ToString::to_string);
            return Err(format!(
                "the topic {topic:?} is not declared; you may emit {declared}"
            ));
        }
    }
    Ok(json!({"accepted": true}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_accepted_if_it_is_well_formed_and_declared() {
        let emits: TopicPattern = "claim.*".parse().unwrap();
        let noted = |tool: &str, arguments: Value| noted(Some(&emits), tool, &arguments);
        let claim = json!({"topic": "claim.seen", "payload": null});
        assert_eq!(noted("emit", claim.clone()), Ok(json!({"accepted": true})));
        let other = noted("emit", json!({"topic": "other", "payload": 1})).unwrap_err();
        assert_eq!(
            other,
            "the topic \"other\" is not declared; you may emit claim.*"
        );
        for (tool, arguments) in [
            ("emit", json!({"topic": "claim.seen"})),
            ("emit", json!({"topic": "", "payload": 1})),
            ("review", json!({"reason": "r"})),
            ("exec", json!({})),
            (
                "review",
                json!({"type": "emit", "topic": "claim.seen", "payload": 1}),
            ),
        ] {
            assert!(
                noted(tool, arguments.clone()).is_err(),
                "{tool} {arguments}"
            );
        }
    }
}

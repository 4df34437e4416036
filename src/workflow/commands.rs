//! The commands and events of an outcome (seed 004): a closed union, read strictly.
//!
//! ```text
//! {output, events: [{type, payload?, llmTrace?}], commands: [{type: "emit", topic, payload}, …]}
//! ```
//!
//! Reading says what is well formed. What is carried out, and what an agent may command, is decided
//! by whoever settles the outcome.

mod reading;

use ktsu_ledger::topic::is_topic;
use ktsu_schema::message_at;
use serde::Deserialize;
use serde_json::Value;

use crate::rules::DecisionRules;

/// The most commands of an outcome.
pub const MAX_OUTCOME_COMMANDS: usize = 64;
/// The most events of an outcome.
pub const MAX_OUTCOME_EVENTS: usize = 128;
/// The most characters of the type of an event.
const MAX_EVENT_TYPE_CHARS: usize = 128;

/// One command, in the spelling of seed 004.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum OutcomeCommand {
    /// Run another step.
    Invoke {
        /// Its name.
        step: String,
        /// The input of the step.
        input: Value,
    },
    /// Run another step once for each input.
    Fanout {
        /// Its name.
        step: String,
        /// The inputs, one for each time the step runs.
        inputs: Vec<Value>,
    },
    /// Wait for a person's decision.
    Review {
        /// The reason.
        reason: String,
        /// The value that the person is to look at.
        payload: Option<Value>,
    },
    /// Wait for data from outside.
    Suspend {
        /// The reason.
        reason: String,
        /// The data that the step needs in order to continue.
        checkpoint: Value,
        /// The step that goes on.
        #[serde(rename = "resumeStep")]
        resume_step: Option<String>,
    },
    /// Tell other systems.
    Emit {
        /// The topic.
        topic: String,
        /// The content of the message.
        payload: Value,
    },
}

impl OutcomeCommand {
    /// Its `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Invoke { .. } => "invoke",
            Self::Fanout { .. } => "fanout",
            Self::Review { .. } => "review",
            Self::Suspend { .. } => "suspend",
            Self::Emit { .. } => "emit",
        }
    }

    /// The workflow that it runs, and the inputs for it.
    pub fn runs(&self) -> Option<(&str, &[Value])> {
        match self {
            Self::Invoke { step, input } => Some((step, std::slice::from_ref(input))),
            Self::Fanout { step, inputs } => Some((step, inputs)),
            Self::Review { .. } | Self::Suspend { .. } | Self::Emit { .. } => None,
        }
    }

    /// Returns `true` if it runs workflows.
    pub fn invokes(&self) -> bool {
        matches!(self, Self::Invoke { .. } | Self::Fanout { .. })
    }

    /// Returns `true` if the step waits for it.
    pub fn is_blocking(&self) -> bool {
        matches!(self, Self::Review { .. } | Self::Suspend { .. })
    }

    /// The first member that is empty, or not what it should be, and why.
    fn malformed(&self) -> Option<(&'static str, String)> {
        let (name, text) = match self {
            Self::Invoke { step, .. } | Self::Fanout { step, .. } => ("step", step),
            Self::Suspend {
                resume_step: Some(step),
                ..
            } if step.trim().is_empty() => ("resumeStep", step),
            Self::Review { reason, .. } | Self::Suspend { reason, .. } => ("reason", reason),
            Self::Emit { topic, .. } => {
                let words = "its topic has white space, a comma or `*`, or is too long";
                return match topic.is_empty() {
                    true => Some(("topic", "its topic is empty".to_owned())),
                    false => (!is_topic(topic)).then(|| ("topic", words.to_owned())),
                };
            }
        };
        text.trim()
            .is_empty()
            .then(|| (name, format!("its {name} is empty")))
    }
}

/// An event of an outcome.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeEvent {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The content of the event.
    pub payload: Option<Value>,
    /// A model call that it rests on.
    #[serde(rename = "llmTrace")]
    pub llm_trace: Option<LlmTrace>,
}

/// A model call, as a step tells of it. The hashes are there always, the texts where nothing speaks
/// against keeping them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LlmTrace {
    /// The model.
    pub model: String,
    /// Tokens sent.
    pub prompt_tokens: u64,
    /// Tokens received.
    pub completion_tokens: u64,
    /// Milliseconds.
    pub duration_ms: u64,
    /// Of what was sent.
    pub input_hash: String,
    /// Of what was received.
    pub output_hash: String,
    /// The text that was sent.
    pub input: Option<Value>,
    /// The text that was received.
    pub output: Option<Value>,
}

/// Reads the commands of an outcome. Null is none.
///
/// # Errors
/// In words, what the first place is that is not well formed, or why they do not go together.
pub fn read_commands(
    commands: Option<&Value>,
    rules: DecisionRules,
) -> Result<Vec<OutcomeCommand>, String> {
    let list = list(commands, "commands", MAX_OUTCOME_COMMANDS, rules)?;
    let mut all: Vec<OutcomeCommand> = Vec::with_capacity(list.len());
    for (at, value) in list.iter().enumerate() {
        let wrong = |member: &str, why: String| match rules.says_where_outcomes_are_malformed() {
            true => message_at(&why, &format!("/commands/{at}{member}")),
            false => format!("command {at}: {why}"),
        };
        let of_kind = |words: String| match kind_of_command(value) {
            Some(kind) if rules.names_refused_commands() && !words.starts_with(kind) => {
                format!("{kind}: {words}")
            }
            _ => words,
        };
        let command = match rules.says_where_outcomes_are_malformed() {
            true => reading::command(value, format!("/commands/{at}")).map_err(of_kind)?,
            // Recorded runs have the words of a library.
            false => {
                OutcomeCommand::deserialize(value).map_err(|why| wrong("", why.to_string()))?
            }
        };
        if let Some((member, why)) = command.malformed() {
            return Err(of_kind(wrong(&format!("/{member}"), why)));
        }
        if all.contains(&command) {
            let words = "it is the same as one before it";
            return Err(of_kind(wrong("", words.to_owned())));
        }
        all.push(command);
    }
    let mut blocking = all.iter().enumerate().filter(|(_, one)| one.is_blocking());
    let words = "the outcome has more than one command that the step waits for";
    match blocking.nth(1) {
        None => Ok(all),
        Some((at, second)) if rules.names_refused_commands() => {
            let words = format!("{}: {words}", second.name());
            Err(message_at(&words, &format!("/commands/{at}")))
        }
        Some(_) => Err(words.to_owned()),
    }
}

/// The type of a command, whatever else is wrong with it.
fn kind_of_command(value: &Value) -> Option<&'static str> {
    const KINDS: [&str; 5] = ["invoke", "fanout", "review", "suspend", "emit"];
    let kind = value.get("type").and_then(Value::as_str)?;
    KINDS.into_iter().find(|known| *known == kind)
}

/// Reads the events of an outcome. Null is none.
///
/// # Errors
/// In words, what the first place is that is not well formed.
pub fn read_events(
    events: Option<&Value>,
    rules: DecisionRules,
) -> Result<Vec<OutcomeEvent>, String> {
    let list = list(events, "events", MAX_OUTCOME_EVENTS, rules)?;
    let placed = rules.says_where_outcomes_are_malformed();
    let read = |(at, value): (usize, &Value)| {
        let event = match placed {
            true => reading::event(value, format!("/events/{at}"))?,
            // Recorded runs have the words of a library.
            false => {
                OutcomeEvent::deserialize(value).map_err(|why| format!("event {at}: {why}"))?
            }
        };
        let chars = event.kind.chars().count();
        let right = (1..=MAX_EVENT_TYPE_CHARS).contains(&chars)
            && !event.kind.chars().any(char::is_control);
        match (right, placed) {
            (true, _) => Ok(event),
            (false, false) => Err(format!("event {at}: its type is empty or too long")),
            (false, true) => {
                let words = format!(
                    "the type of an event has 1 to {MAX_EVENT_TYPE_CHARS} characters, none of \
                     which controls anything"
                );
                Err(message_at(&words, &format!("/events/{at}/type")))
            }
        }
    };
    list.iter().enumerate().map(read).collect()
}

fn list<'a>(
    value: Option<&'a Value>,
    name: &str,
    most: usize,
    rules: DecisionRules,
) -> Result<&'a [Value], String> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) if list.len() <= most => Ok(list),
        Some(Value::Array(list)) => Err(format!(
            "the outcome has {} {name}, and may have {most}",
            list.len()
        )),
        Some(other) if rules.says_where_outcomes_are_malformed() => {
            let words = format!("expected an array, got {}", reading::kind_of(other));
            Err(message_at(&words, &format!("/{name}")))
        }
        Some(_) => Err(format!("the {name} of the outcome are no list")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: DecisionRules = DecisionRules::NEWEST;

    fn before() -> DecisionRules {
        DecisionRules::from_recorded(5).unwrap()
    }

    fn wrong(commands: Value) -> String {
        read_commands(Some(&commands), NOW).unwrap_err()
    }

    #[test]
    fn what_is_malformed_is_said_in_our_words_with_its_place() {
        let review = |at: &str| json!({"type": "review", "reason": at});
        for (command, words) in [
            (
                json!("x"),
                "a command is an object, and not a string at /commands/1",
            ),
            (
                json!({"topic": "a"}),
                "a command has no member \"type\" at /commands/1",
            ),
            (
                json!({"type": 1}),
                "expected a string, got a number at /commands/1/type",
            ),
            (
                json!({"type": "exec"}),
                "there is no command \"exec\", only invoke, fanout, review, suspend or emit at \
                 /commands/1/type",
            ),
            (
                json!({"type": "emit", "topic": "a"}),
                "emit has no member \"payload\" at /commands/1",
            ),
            (
                json!({"type": "emit", "topic": "a", "payload": 1, "t/o": 2}),
                "emit has no such member; it has type, topic, payload at /commands/1/t~1o",
            ),
            (
                json!({"type": "emit", "topic": "", "payload": 1}),
                "emit: its topic is empty at /commands/1/topic",
            ),
            (
                json!({"type": "fanout", "step": "a", "inputs": {}}),
                "fanout: expected an array, got an object at /commands/1/inputs",
            ),
            (
                json!({"type": "suspend", "reason": "r", "checkpoint": 1, "resumeStep": " "}),
                "suspend: its resumeStep is empty at /commands/1/resumeStep",
            ),
            (
                review("r"),
                "review: it is the same as one before it at /commands/1",
            ),
        ] {
            assert_eq!(wrong(json!([review("r"), command])), words);
        }
        assert_eq!(
            wrong(json!("x")),
            "expected an array, got a string at /commands"
        );
        let event = |event: Value| read_events(Some(&json!([event])), NOW).unwrap_err();
        for (given, words) in [
            (
                json!(1),
                "an event is an object, and not a number at /events/0",
            ),
            (
                json!({"type": ""}),
                "the type of an event has 1 to 128 characters, none of which \
                 controls anything at /events/0/type",
            ),
            (
                json!({"type": "a", "at": 1}),
                "an event has no such member; it has type, payload, llmTrace at /events/0/at",
            ),
            (
                json!({"type": "a", "llmTrace": {"model": "m"}}),
                "llmTrace has no member \"promptTokens\" at /events/0/llmTrace",
            ),
        ] {
            assert_eq!(event(given), words);
        }
        assert_eq!(read_commands(Some(&Value::Null), NOW), Ok(Vec::new()));
        assert_eq!(read_events(Some(&Value::Null), NOW), Ok(Vec::new()));
    }

    #[test]
    fn runs_of_earlier_rules_keep_their_words() {
        let exec = json!([{"type": "exec"}]);
        let why = read_commands(Some(&exec), before()).unwrap_err();
        assert!(why.starts_with("command 0: unknown variant"), "{why}");
        let why = read_commands(Some(&json!(1)), before()).unwrap_err();
        assert_eq!(why, "the commands of the outcome are no list");
    }

    #[test]
    fn the_five_commands_are_read_in_the_spelling_of_the_seed() {
        let commands = json!([
            {"type": "invoke", "step": "verify", "input": {"a": 1}},
            {"type": "fanout", "step": "verify", "inputs": [1, 2]},
            {"type": "suspend", "reason": "waits", "checkpoint": {}, "resumeStep": "go"},
            {"type": "emit", "topic": "claim.verified", "payload": null},
        ]);
        let read = read_commands(Some(&commands), NOW).unwrap();
        let names: Vec<_> = read.iter().map(OutcomeCommand::name).collect();
        assert_eq!(names, ["invoke", "fanout", "suspend", "emit"]);
        let review = json!([{"type": "review", "reason": "r"}]);
        assert!(read_commands(Some(&review), NOW).unwrap()[0].is_blocking());
        assert_eq!(read_commands(None, NOW), Ok(Vec::new()));
    }

    #[test]
    fn whatever_is_not_one_of_them_is_refused() {
        for command in [
            json!("emit"),
            json!({"topic": "a", "payload": 1}),
            json!({"type": "exec", "step": "a"}),
            json!({"type": "emit", "topic": "a"}),
            json!({"type": "emit", "topic": "", "payload": 1}),
            json!({"type": "emit", "topic": "a b", "payload": 1}),
            json!({"type": "emit", "topic": 1, "payload": 1}),
            json!({"type": "emit", "topic": "a", "payload": 1, "to": "b"}),
            json!({"type": "invoke", "step": " ", "input": 1}),
            json!({"type": "fanout", "step": "a", "inputs": 1}),
            json!({"type": "review"}),
            json!({"type": "review", "reason": " "}),
            json!({"type": "suspend", "reason": "r"}),
            json!({"type": "suspend", "reason": "r", "checkpoint": 1, "resumeStep": ""}),
        ] {
            let why = wrong(json!([command]));
            assert!(why.contains(" at /commands/0"), "{command}: {why}");
            assert!(read_commands(Some(&json!([command])), before()).is_err());
        }
        let emit = |at: usize| json!({"type": "emit", "topic": "a", "payload": at});
        let many = |count: usize| Value::from((0..count).map(emit).collect::<Vec<_>>());
        assert!(read_commands(Some(&many(MAX_OUTCOME_COMMANDS)), NOW).is_ok());
        assert!(wrong(many(MAX_OUTCOME_COMMANDS + 1)).contains("may have 64"));
    }

    #[test]
    fn siblings_are_not_identical_and_one_of_them_blocks_at_most() {
        let emit = json!({"type": "emit", "topic": "a", "payload": {"b": 1}});
        let why = wrong(json!([emit, emit]));
        assert_eq!(why, "emit: it is the same as one before it at /commands/1");
        let why = wrong(json!([
            {"type": "review", "reason": "r"},
            {"type": "suspend", "reason": "s", "checkpoint": {}},
        ]));
        assert!(why.contains("more than one"), "{why}");
    }

    #[test]
    fn an_event_has_a_type_and_what_the_seed_says_and_nothing_else() {
        let trace = json!({"model": "m", "promptTokens": 1, "completionTokens": 2, "durationMs": 3,
            "inputHash": "a", "outputHash": "b"});
        let events = json!([{"type": "claims_extracted", "payload": {"count": 2}},
            {"type": "asked", "llmTrace": trace}]);
        let read = read_events(Some(&events), NOW).unwrap();
        assert_eq!(read[1].llm_trace.as_ref().unwrap().completion_tokens, 2);
        for event in [
            json!({}),
            json!({"type": ""}),
            json!({"type": "a", "at": 1}),
            json!({"type": "a", "llmTrace": {"model": "m"}}),
        ] {
            assert!(read_events(Some(&json!([event])), NOW).is_err(), "{event}");
            assert!(read_events(Some(&json!([event])), before()).is_err());
        }
        let many = vec![json!({"type": "a"}); MAX_OUTCOME_EVENTS + 1];
        assert!(read_events(Some(&Value::from(many)), NOW).is_err());
    }
}

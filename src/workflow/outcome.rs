//! The outcome that a runtime reports at the end of a task: why it is no output, and what it asks
//! for besides.

use ktsu_ledger::topic::TopicPattern;
use serde_json::Value;

use crate::commands::{OutcomeCommand, read_commands, read_events};
use crate::rules::DecisionRules;

/// The longest error code that is taken from a runtime.
const MAX_CODE: usize = 64;

/// The message for a task of a recompute that has no output because it asks for data.
pub(crate) const WAITS_FOR_DATA: &str = "the outcome asks for data, and a recompute asks no one";

/// The most commands that are named.
const MAX_COMMANDS: usize = 16;

/// The reason why an outcome has no output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutcomeRefusal {
    /// A stable error code.
    pub(crate) code: String,
    /// For people.
    pub(crate) message: String,
    /// The place of the refused output in the frame, if there is one.
    pub(crate) raw: Option<&'static str>,
}

impl OutcomeRefusal {
    /// The same, with the command that is refused.
    fn of_command(mut self, at: usize, command: &OutcomeCommand) -> Self {
        self.message = format!("{} at /commands/{at}: {}", command.name(), self.message);
        self
    }
}

/// The events and commands of an outcome beside its output, once it is known to be carried out.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OutcomeExtras {
    /// The types of its events, in order.
    pub(crate) events: Vec<String>,
    /// Its commands, in order.
    pub(crate) commands: Vec<OutcomeCommand>,
}

impl OutcomeExtras {
    /// Returns `true` if its step waits for a person or for data.
    pub(crate) fn blocks(&self) -> bool {
        self.commands.iter().any(OutcomeCommand::is_blocking)
    }

    /// Returns `true` if its step waits for data, so that it has no output.
    pub(crate) fn suspends(&self) -> bool {
        let suspends = |one: &OutcomeCommand| matches!(one, OutcomeCommand::Suspend { .. });
        self.commands.iter().any(suspends)
    }
}

/// The events and commands that an outcome has besides its output; `emits` has the topics that its
/// agent may emit. Every other command is judged by `judge`.
///
/// # Errors
/// Its events or commands are not well formed, not permitted, or such as nothing carries out.
pub(crate) fn extras(
    outcome: &Value,
    rules: DecisionRules,
    emits: Option<&TopicPattern>,
    judge: impl Fn(&OutcomeCommand) -> Result<(), OutcomeRefusal>,
) -> Result<OutcomeExtras, OutcomeRefusal> {
    let malformed = |words: String| refused(outcome, "outcome_invalid", words);
    let events = read_events(outcome.get("events"), rules).map_err(malformed)?;
    let read = read_commands(outcome.get("commands"), rules).map_err(malformed)?;
    for (at, command) in read.iter().enumerate() {
        let judged = match command {
            OutcomeCommand::Emit { topic, .. } if emits.is_some_and(|all| all.matches(topic)) => {
                Ok(())
            }
            OutcomeCommand::Emit { topic, .. } => {
                let words = format!("the agent does not declare that it emits {topic:?}");
                Err(refused(outcome, "command_not_permitted", words))
            }
            OutcomeCommand::Invoke { .. }
            | OutcomeCommand::Fanout { .. }
            | OutcomeCommand::Review { .. }
            | OutcomeCommand::Suspend { .. } => judge(command),
        };
        judged.map_err(|refused| match rules.names_refused_commands() {
            true => refused.of_command(at, command),
            false => refused,
        })?;
    }
    Ok(OutcomeExtras {
        events: events.into_iter().map(|event| event.kind).collect(),
        commands: read,
    })
}

/// The events and commands of an outcome that was judged before its commands were recorded.
pub(crate) fn recorded_extras(outcome: &Value, rules: DecisionRules) -> OutcomeExtras {
    let events = read_events(outcome.get("events"), rules).unwrap_or_default();
    OutcomeExtras {
        events: events.into_iter().map(|event| event.kind).collect(),
        commands: read_commands(outcome.get("commands"), rules).unwrap_or_default(),
    }
}

/// The refusal of an outcome that has commands which the engine does not carry out.
pub(crate) fn not_supported(outcome: &Value) -> OutcomeRefusal {
    let commands = outcome.get("commands").unwrap_or(&Value::Null);
    let words = unsupported_commands(commands).unwrap_or_default();
    refused(outcome, "command_not_supported", words)
}

/// The reason why an outcome has no output to check, which must be of a certain kind. No commands
/// are accepted.
pub(crate) fn refusal(
    outcome: &Value,
    is_output: impl Fn(&Value) -> bool,
) -> Option<OutcomeRefusal> {
    let commands = outcome.get("commands").unwrap_or(&Value::Null);
    error_of(outcome)
        .or_else(|| {
            let words = unsupported_commands(commands)?;
            Some(refused(outcome, "command_not_supported", words))
        })
        .or_else(|| output_refusal(outcome, is_output))
}

/// The error that an outcome is, if it is one.
pub(crate) fn error_of(outcome: &Value) -> Option<OutcomeRefusal> {
    let error = outcome.get("error").filter(|error| !error.is_null())?;
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = match text("code") {
        code if is_code(code) => code,
        _ => "agent_failed",
    };
    let message = match error.as_str().unwrap_or_else(|| text("message")) {
        "" => "the agent failed",
        message => message,
    };
    Some(OutcomeRefusal {
        code: code.to_owned(),
        message: message.to_owned(),
        raw: outcome.get("raw_output").map(|_| "/outcome/raw_output"),
    })
}

/// The reason why the output of an outcome is not one of a certain kind.
pub(crate) fn output_refusal(
    outcome: &Value,
    is_output: impl Fn(&Value) -> bool,
) -> Option<OutcomeRefusal> {
    let words = "the output is no JSON object".to_owned();
    match outcome.get("output") {
        Some(output) if is_output(output) => None,
        _ => Some(refused(outcome, "output_invalid", words)),
    }
}

/// A refusal of what has an output, perhaps.
pub(crate) fn refused(outcome: &Value, code: &str, message: String) -> OutcomeRefusal {
    OutcomeRefusal {
        code: code.to_owned(),
        message,
        raw: outcome.get("output").map(|_| "/outcome/output"),
    }
}

/// Returns `true` if a text can be an error code.
fn is_code(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=MAX_CODE).contains(&text.len()) && text.bytes().all(plain)
}

/// The message about the commands of an outcome, if it has any (decision W5).
fn unsupported_commands(commands: &Value) -> Option<String> {
    let list = match commands {
        Value::Null => return None,
        Value::Array(list) if list.is_empty() => return None,
        Value::Array(list) => list,
        _ => return Some("the commands of the outcome are no list".to_owned()),
    };
    let kind = |one: &Value| match one.get("type").and_then(Value::as_str) {
        Some(kind) => kind.to_owned(),
        None => "?".to_owned(),
    };
    let kinds: Vec<String> = list.iter().take(MAX_COMMANDS).map(kind).collect();
    let more = if list.len() > MAX_COMMANDS {
        ", …"
    } else {
        ""
    };
    let kinds = kinds.join(", ");
    Some(format!(
        "the outcome has commands that nothing executes: {kinds}{more}"
    ))
}

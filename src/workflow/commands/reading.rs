//! The commands and events of an outcome, read member by member: what is wrong is said in our words,
//! with its place in the outcome (decision E3).

use ktsu_schema::message_at;
use serde_json::{Map, Value};

use super::{LlmTrace, OutcomeCommand, OutcomeEvent};

/// The types of commands.
const KINDS: &str = "invoke, fanout, review, suspend or emit";
/// The longest name of a member that is repeated in a message, in characters.
const MAX_NAME: usize = 64;

/// An object of an outcome, and its place.
struct EventMembers<'v> {
    members: &'v Map<String, Value>,
    place: String,
    /// The name for the object in messages.
    name: &'static str,
}

impl<'v> EventMembers<'v> {
    fn of(value: &'v Value, place: String, name: &'static str) -> Result<Self, String> {
        match value.as_object() {
            Some(members) => Ok(Self {
                members,
                place,
                name,
            }),
            None => Err(message_at(
                &format!("{name} is an object, and not {}", kind_of(value)),
                &place,
            )),
        }
    }

    fn wrong<T>(&self, member: &str, words: &str) -> Result<T, String> {
        let place = format!("{}/{}", self.place, escaped(member));
        Err(message_at(words, &place))
    }

    /// A member that has to be there; null is a value.
    fn required(&self, member: &str) -> Result<&'v Value, String> {
        self.members.get(member).ok_or_else(|| {
            let words = format!("{} has no member {member:?}", self.name);
            message_at(&words, &self.place)
        })
    }

    /// A member that may be absent; null is absence.
    fn optional(&self, member: &str) -> Option<&'v Value> {
        self.members.get(member).filter(|value| !value.is_null())
    }

    fn as_text(&self, member: &str, value: &'v Value) -> Result<String, String> {
        match value.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => self.wrong(
                member,
                &format!("expected a string, got {}", kind_of(value)),
            ),
        }
    }

    fn text(&self, member: &str) -> Result<String, String> {
        self.as_text(member, self.required(member)?)
    }

    fn number(&self, member: &str) -> Result<u64, String> {
        let value = self.required(member)?;
        match value.as_u64() {
            Some(number) => Ok(number),
            None => self.wrong(
                member,
                &format!("expected a whole number, got {}", kind_of(value)),
            ),
        }
    }

    fn list(&self, member: &str) -> Result<Vec<Value>, String> {
        let value = self.required(member)?;
        match value.as_array() {
            Some(list) => Ok(list.clone()),
            None => self.wrong(
                member,
                &format!("expected an array, got {}", kind_of(value)),
            ),
        }
    }

    /// That it has no members but these.
    fn only(&self, known: &[&str]) -> Result<(), String> {
        let other = self
            .members
            .keys()
            .find(|name| !known.contains(&name.as_str()));
        match other {
            None => Ok(()),
            Some(name) => self.wrong(
                name,
                &format!(
                    "{} has no such member; it has {}",
                    self.name,
                    known.join(", ")
                ),
            ),
        }
    }
}

/// A command at a place.
pub(super) fn command(value: &Value, place: String) -> Result<OutcomeCommand, String> {
    let command = EventMembers::of(value, place, "a command")?;
    let kind = command.text("type")?;
    let named = |name: &'static str, known: &[&str]| {
        let members = EventMembers {
            members: command.members,
            place: command.place.clone(),
            name,
        };
        members.only(known).map(|()| members)
    };
    Ok(match kind.as_str() {
        "invoke" => {
            let all = named("invoke", &["type", "step", "input"])?;
            OutcomeCommand::Invoke {
                step: all.text("step")?,
                input: all.required("input")?.clone(),
            }
        }
        "fanout" => {
            let all = named("fanout", &["type", "step", "inputs"])?;
            OutcomeCommand::Fanout {
                step: all.text("step")?,
                inputs: all.list("inputs")?,
            }
        }
        "review" => {
            let all = named("review", &["type", "reason", "payload"])?;
            OutcomeCommand::Review {
                reason: all.text("reason")?,
                payload: all.optional("payload").cloned(),
            }
        }
        "suspend" => {
            let all = named("suspend", &["type", "reason", "checkpoint", "resumeStep"])?;
            let step = all.optional("resumeStep");
            OutcomeCommand::Suspend {
                reason: all.text("reason")?,
                checkpoint: all.required("checkpoint")?.clone(),
                resume_step: step
                    .map(|step| all.as_text("resumeStep", step))
                    .transpose()?,
            }
        }
        "emit" => {
            let all = named("emit", &["type", "topic", "payload"])?;
            OutcomeCommand::Emit {
                topic: all.text("topic")?,
                payload: all.required("payload")?.clone(),
            }
        }
        other => {
            let words = format!("there is no command {:?}, only {KINDS}", short(other));
            return command.wrong("type", &words);
        }
    })
}

/// An event at a place.
pub(super) fn event(value: &Value, place: String) -> Result<OutcomeEvent, String> {
    let event = EventMembers::of(value, place, "an event")?;
    event.only(&["type", "payload", "llmTrace"])?;
    let trace = event.optional("llmTrace");
    Ok(OutcomeEvent {
        kind: event.text("type")?,
        payload: event.optional("payload").cloned(),
        llm_trace: trace
            .map(|trace| llm_trace(trace, format!("{}/llmTrace", event.place)))
            .transpose()?,
    })
}

fn llm_trace(value: &Value, place: String) -> Result<LlmTrace, String> {
    let trace = EventMembers::of(value, place, "llmTrace")?;
    trace.only(&[
        "model",
        "promptTokens",
        "completionTokens",
        "durationMs",
        "inputHash",
        "outputHash",
        "input",
        "output",
    ])?;
    Ok(LlmTrace {
        model: trace.text("model")?,
        prompt_tokens: trace.number("promptTokens")?,
        completion_tokens: trace.number("completionTokens")?,
        duration_ms: trace.number("durationMs")?,
        input_hash: trace.text("inputHash")?,
        output_hash: trace.text("outputHash")?,
        input: trace.optional("input").cloned(),
        output: trace.optional("output").cloned(),
    })
}

/// The kind of a value, in words.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A name as a segment of a pointer.
fn escaped(name: &str) -> String {
    short(name).replace('~', "~0").replace('/', "~1")
}

/// A text from outside, short enough for a message.
fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

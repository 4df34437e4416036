//! Why what a runtime reports as the end of a task is no output.

use serde_json::Value;

/// The longest error code that is taken from a runtime.
const MAX_CODE: usize = 64;

/// The most commands that are named.
const MAX_COMMANDS: usize = 16;

/// Why an outcome has no output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutcomeRefusal {
    /// A stable error code.
    pub(crate) code: String,
    /// For people.
    pub(crate) message: String,
    /// Where in the frame the refused output is, if there is one.
    pub(crate) raw: Option<&'static str>,
}

/// Why an outcome has no output to check, which must be of a certain kind.
pub(crate) fn refusal(
    outcome: &Value,
    is_output: impl Fn(&Value) -> bool,
) -> Option<OutcomeRefusal> {
    let refused = |code: &str, message: String, raw: &'static str| {
        let raw = outcome
            .pointer(raw.trim_start_matches("/outcome"))
            .map(|_| raw);
        Some(OutcomeRefusal {
            code: code.to_owned(),
            message,
            raw,
        })
    };
    if let Some(error) = outcome.get("error").filter(|error| !error.is_null()) {
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let code = match text("code") {
            code if is_code(code) => code,
            _ => "agent_failed",
        };
        let message = match error.as_str().unwrap_or_else(|| text("message")) {
            "" => "the agent failed".to_owned(),
            message => message.to_owned(),
        };
        return refused(code, message, "/outcome/raw_output");
    }
    if let Some(words) = unsupported_commands(outcome.get("commands").unwrap_or(&Value::Null)) {
        return refused("command_not_supported", words, "/outcome/output");
    }
    match outcome.get("output") {
        Some(output) if is_output(output) => None,
        _ => {
            let words = "the output is no JSON object".to_owned();
            refused("output_invalid", words, "/outcome/output")
        }
    }
}

/// Whether a text can be an error code.
fn is_code(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=MAX_CODE).contains(&text.len()) && text.bytes().all(plain)
}

/// What is commanded, if anything is: nothing executes commands yet (decision W5).
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

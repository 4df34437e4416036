//! The answer of a tool: a JSON object of a limited size. A failure is an answer, too: `{"error"}`,
//! with a hint if there is something to do about it.

use rmcp::model::{self, CallToolResult, ErrorData};
use serde_json::{Map, Value, json};

use ktsu_codes::ErrorCode;
use ktsu_opening::Failure;

/// The most bytes of an answer's JSON text; longer ones are cut, with a notice. A model reads it
/// whole.
pub(super) const MAX_ANSWER_BYTES: usize = 128 * 1024;
/// The numbers of items of a list, and of characters of a text, that remain in the first attempt to
/// cut an answer. Each further attempt halves both.
const FIRST_CUT: (usize, usize) = (1024, 16 * 1024);

/// The code of the protocol for a request that its sender may not make.
const REFUSED: model::ErrorCode = model::ErrorCode(-32001);

/// The result of a tool.
pub(super) type ToolAnswer = Result<Value, AnswerError>;

/// The reason why a tool gives nothing, as the agent reads it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AnswerError {
    failure: Failure,
    /// True if it may name kits, files or paths of this machine.
    is_private: bool,
    /// Further members, such as `available_events`.
    members: Map<String, Value>,
}

impl AnswerError {
    /// With these words, which any caller may read.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            is_private: false,
            ..Self::private(message)
        }
    }

    /// With these words, which name kits, files or paths: for callers that may start runs.
    pub(super) fn private(message: impl Into<String>) -> Self {
        Failure::could_not_run(message).into()
    }

    /// With something to do about it.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.failure = self.failure.hint(hint);
        self
    }

    /// With another member.
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        self.members.insert(name.to_owned(), value);
        self
    }

    /// The code that an engine answered with.
    pub(super) fn code(&self) -> Option<ErrorCode> {
        self.failure.problem()
    }

    /// As callers may read it that may not start runs: without what names kits, files or paths.
    /// That is logged instead.
    pub(super) fn without_details(self, tool: &str) -> Self {
        if !self.is_private {
            return self;
        }
        self.log(tool);
        let code = self.failure.problem();
        let words = match code {
            Some(code) => code.title(),
            None => "the server could not do this",
        };
        let failure = Failure::could_not_run(words).with_problem(code);
        Self::from(failure.hint("an operator of the server finds the reason in its log"))
    }

    /// Logs it, with everything that it names.
    pub(super) fn log(&self, about: &str) {
        tracing::warn!(about, "{}", self.failure.message());
    }

    /// As an error of the protocol, for what is no call of a tool.
    pub(super) fn into_protocol_error(self) -> ErrorData {
        let words = self.failure.message().to_owned();
        ErrorData::new(REFUSED, words, Some(self.into_value()))
    }

    fn into_value(self) -> Value {
        let mut body = self.members;
        body.insert("error".to_owned(), json!(self.failure.message()));
        if let Some(code) = self.failure.problem() {
            body.insert("code".to_owned(), json!(code.as_str()));
        }
        if let Some(hint) = self.failure.hint_text() {
            body.insert("hint".to_owned(), json!(hint));
        }
        Value::Object(body)
    }
}

/// A failure of this machine may name anything.
impl From<Failure> for AnswerError {
    fn from(failure: Failure) -> Self {
        // What an engine answers is what it answers to the same caller over HTTP.
        let is_private = match failure.problem() {
            Some(ErrorCode::Internal | ErrorCode::Unreadable) | None => true,
            Some(_) => false,
        };
        Self {
            failure,
            is_private,
            members: Map::new(),
        }
    }
}

/// The result of a call: the answer as text and as structured content. An error is marked as an
/// error of the tool, which is no error of the protocol.
pub(super) fn result(answer: ToolAnswer) -> CallToolResult {
    match answer {
        Ok(value) => CallToolResult::structured(limited(value)),
        Err(error) => CallToolResult::structured_error(limited(error.into_value())),
    }
}

/// The answer, cut if it is too long: the members of the answer itself remain, and `notice` says
/// what was cut.
fn limited(value: Value) -> Value {
    let bytes = size(&value);
    if bytes <= MAX_ANSWER_BYTES {
        return value;
    }
    let (mut items, mut characters) = FIRST_CUT;
    while items > 0 {
        let mut cut = shortened(&value, items, characters);
        cut["notice"] = json!(format!(
            "cut: the whole answer has {bytes} bytes; lists have at most {items} items here, and \
             texts at most {characters} characters. Ask for less at a time"
        ));
        if size(&cut) <= MAX_ANSWER_BYTES {
            return cut;
        }
        (items, characters) = (items / 2, characters / 2);
    }
    json!({"notice": format!("left out: the answer has {bytes} bytes. Ask for less at a time")})
}

fn size(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
}

/// A copy with fewer items and shorter texts. Recorded values are nested at most 96 levels deep.
fn shortened(value: &Value, items: usize, characters: usize) -> Value {
    match value {
        Value::String(text) => match text.char_indices().nth(characters) {
            Some((end, _)) => Value::String(format!("{}…", &text[..end])),
            None => value.clone(),
        },
        Value::Array(list) => {
            let kept = list.iter().take(items);
            kept.map(|one| shortened(one, items, characters)).collect()
        }
        Value::Object(members) => {
            let kept = members.iter().take(items.max(MIN_MEMBERS));
            let kept = kept.map(|(name, one)| (name.clone(), shortened(one, items, characters)));
            Value::Object(kept.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The fewest members that a shortened object keeps: more than any answer of ours has.
const MIN_MEMBERS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_ordinary_size_is_left_as_it_is() {
        let answer = json!({"run_id": "run_1", "objects": [1, 2, 3]});
        assert_eq!(limited(answer.clone()), answer);
    }

    #[test]
    fn whatever_is_too_long_is_cut_until_it_fits_and_says_so() {
        let long =
            json!({"a": "x".repeat(1_000_000), "list": vec![json!({"t": "ä".repeat(500)}); 5000]});
        let many: Map<String, Value> = (0..50_000)
            .map(|n| (format!("name-{n}"), json!("x".repeat(50))))
            .collect();
        for answer in [long, json!({"object": many}), Value::Object(many.clone())] {
            let cut = limited(answer);
            assert!(size(&cut) <= MAX_ANSWER_BYTES);
            assert!(
                cut["notice"]
                    .as_str()
                    .is_some_and(|words| words.starts_with("cut"))
            );
        }
    }

    #[test]
    fn what_cannot_be_cut_is_left_out() {
        let members: Map<String, Value> = (0..24)
            .map(|n| (format!("{n}{}", "k".repeat(20_000)), Value::Null))
            .collect();
        let cut = limited(Value::Object(members));
        let words = cut["notice"].as_str().unwrap_or_default();
        assert!(words.starts_with("left out"), "{words}");
        assert_eq!(cut.as_object().map(Map::len), Some(1));
    }

    #[test]
    fn an_error_is_a_value_with_its_hint_and_its_code() {
        let failure = Failure::could_not_run("there is no run")
            .with_problem(Some(ErrorCode::RunNotFound))
            .hint("look for it");
        let error = AnswerError::from(failure).with("available_events", json!(["a#0"]));
        let result = result(Err(error));
        assert_eq!(result.is_error, Some(true));
        assert_eq!(
            result.structured_content,
            Some(json!({"error": "there is no run", "code": "run_not_found",
                "hint": "look for it", "available_events": ["a#0"]}))
        );
    }
}

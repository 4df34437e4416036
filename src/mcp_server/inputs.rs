//! The inputs that an agent sends to a tool, checked against what the tool takes.

use serde_json::{Map, Value, json};

use super::answer::AnswerError;
use ktsu_codes::nearest;

/// The largest whole number that JSON parsers agree on.
pub(super) const MAX_NUMBER: u64 = 9_007_199_254_740_991;

/// One input of a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputSpec {
    /// The name.
    pub(super) name: &'static str,
    /// The kind of values that it takes.
    pub(super) kind: InputKind,
    /// True if it must be given.
    pub(super) is_required: bool,
    description: &'static str,
}

/// The values that an input takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum InputKind {
    /// A text that is not empty, of at most this many characters.
    Text(usize),
    /// A whole number between two bounds, both included.
    Number(u64, u64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A JSON object.
    Object,
    /// Any JSON value but null.
    Json,
}

impl InputSpec {
    /// One that must be given.
    pub(super) const fn required(
        name: &'static str,
        kind: InputKind,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            is_required: true,
            description,
        }
    }

    /// One that may be left out.
    pub(super) const fn optional(
        name: &'static str,
        kind: InputKind,
        description: &'static str,
    ) -> Self {
        Self {
            is_required: false,
            ..Self::required(name, kind, description)
        }
    }

    /// Its JSON Schema.
    pub(super) fn schema(&self) -> Value {
        let mut schema = match self.kind {
            InputKind::Text(most) => json!({"type": "string", "minLength": 1, "maxLength": most}),
            InputKind::Number(least, most) => {
                json!({"type": "integer", "minimum": least, "maximum": most})
            }
            InputKind::Words(words) => json!({"type": "string", "enum": words}),
            InputKind::Object => json!({"type": "object"}),
            InputKind::Json => json!({}),
        };
        schema["description"] = json!(self.description);
        schema
    }

    /// The reason why a value is none of this input.
    fn problem(&self, value: &Value) -> Option<String> {
        let name = self.name;
        match self.kind {
            InputKind::Text(most) => match value.as_str() {
                Some("") => Some(format!("{name} is empty")),
                Some(text) if text.chars().nth(most).is_some() => {
                    Some(format!("{name} has more than {most} characters"))
                }
                Some(_) => None,
                None => Some(format!("{name} is not a text")),
            },
            InputKind::Number(least, most) => match whole(value) {
                Some(number) if (least..=most).contains(&number) => None,
                Some(_) | None => Some(format!(
                    "{name} is not a whole number from {least} to {most}"
                )),
            },
            InputKind::Words(words) => {
                let is_one = value.as_str().is_some_and(|word| words.contains(&word));
                (!is_one).then(|| format!("{name} must be one of {}", words.join(", ")))
            }
            InputKind::Object => {
                (!value.is_object()).then(|| format!("{name} is not a JSON object"))
            }
            InputKind::Json => None,
        }
    }
}

/// A whole number, also if it is written `5.0`.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0)?;
        // The range was checked, so that nothing is lost.
        (0.0..=MAX_NUMBER as f64)
            .contains(&float)
            .then_some(float as u64)
    })
}

/// The inputs that were sent, known to fit.
#[derive(Debug)]
pub(super) struct ToolInputs(Map<String, Value>);

impl ToolInputs {
    /// Checks what was sent. An optional input that is null counts as left out.
    ///
    /// # Errors
    /// What does not fit, and what the tool takes.
    pub(super) fn read(
        specs: &[InputSpec],
        mut sent: Map<String, Value>,
    ) -> Result<Self, AnswerError> {
        sent.retain(|_, value| !value.is_null());
        let refused = |words: String| AnswerError::new(words).hint(takes(specs));
        for (name, value) in &sent {
            let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
                let near = nearest(name, specs.iter().map(|spec| spec.name));
                let near = near.map(|near| format!(": did you mean {near}?"));
                let short: String = name.chars().take(64).collect();
                let near = near.unwrap_or_default();
                return Err(refused(format!("the tool takes no {short:?}{near}")));
            };
            if let Some(problem) = spec.problem(value) {
                return Err(refused(problem));
            }
        }
        let missing = |spec: &&InputSpec| spec.is_required && !sent.contains_key(spec.name);
        match specs.iter().find(missing) {
            Some(spec) => Err(refused(format!("{} is missing", spec.name))),
            None => Ok(Self(sent)),
        }
    }

    /// A required text.
    pub(super) fn text(&self, name: &str) -> &str {
        self.optional_text(name).unwrap_or_default()
    }

    /// A text, if it was sent.
    pub(super) fn optional_text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// A number, if it was sent.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(whole)
    }

    /// A value, if it was sent.
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

fn takes(specs: &[InputSpec]) -> String {
    let names = specs.iter().map(|spec| match spec.is_required {
        true => spec.name.to_owned(),
        false => format!("{}?", spec.name),
    });
    format!("it takes {}", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: [InputSpec; 4] = [
        InputSpec::required("goal", InputKind::Text(5), ""),
        InputSpec::optional("at", InputKind::Number(1, 10), ""),
        InputSpec::optional("status", InputKind::Words(&["pending", "all"]), ""),
        InputSpec::optional("params", InputKind::Object, ""),
    ];

    fn read(sent: Value) -> Result<ToolInputs, String> {
        let Value::Object(sent) = sent else {
            panic!("not an object")
        };
        let read = ToolInputs::read(&SPECS, sent);
        read.map_err(|error| {
            let content = super::super::answer::result(Err(error)).structured_content;
            let words = &content.unwrap_or_default()["error"];
            words.as_str().unwrap_or_default().to_owned()
        })
    }

    #[test]
    fn what_fits_is_read_and_null_counts_as_left_out() {
        let sent = json!({"goal": "ëëëëë", "at": 5.0, "status": null, "params": {"x": 1}});
        let read = read(sent).unwrap();
        assert_eq!(read.text("goal"), "ëëëëë");
        assert_eq!(read.number("at"), Some(5));
        assert_eq!(read.optional_text("status"), None);
        assert_eq!(read.value("params"), Some(&json!({"x": 1})));
    }

    #[test]
    fn what_does_not_fit_is_refused_in_words() {
        for (sent, words) in [
            (json!({}), "goal is missing"),
            (json!({"goal": null}), "goal is missing"),
            (json!({"goal": ""}), "goal is empty"),
            (json!({"goal": "123456"}), "goal has more than 5 characters"),
            (json!({"goal": 1}), "goal is not a text"),
            (
                json!({"goal": "g", "at": 0}),
                "at is not a whole number from 1 to 10",
            ),
            (
                json!({"goal": "g", "at": 11}),
                "at is not a whole number from 1 to 10",
            ),
            (
                json!({"goal": "g", "at": 1.5}),
                "at is not a whole number from 1 to 10",
            ),
            (
                json!({"goal": "g", "at": -1}),
                "at is not a whole number from 1 to 10",
            ),
            (
                json!({"goal": "g", "at": "1"}),
                "at is not a whole number from 1 to 10",
            ),
            (
                json!({"goal": "g", "status": "x"}),
                "status must be one of pending, all",
            ),
            (
                json!({"goal": "g", "params": []}),
                "params is not a JSON object",
            ),
            (
                json!({"goal": "g", "statuss": 1}),
                "the tool takes no \"statuss\": did you mean status?",
            ),
        ] {
            assert_eq!(read(sent.clone()).unwrap_err(), words, "{sent}");
        }
    }
}

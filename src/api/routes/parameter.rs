//! The parameters of queries and headers: declared once, both for validation and for
//! `/openapi.json`.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use axum::http::HeaderMap;
use regex::Regex;
use utoipa::IntoParams;
use utoipa::openapi::path::{self, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Required, Schema};

use crate::ids::RunPath;
use ktsu_codes::ErrorCode;
use ktsu_delivery::PATTERN_SYNTAX;
use ktsu_ledger::Timestamp;
use ktsu_server::ProblemDetails;

/// The largest integer that every JSON library reads exactly.
pub(super) const MAX_NUMBER: u64 = (1 << 53) - 1;
/// The most characters of an idempotency key.
const MAX_KEY: u64 = 255;

/// The error for an invalid query.
pub(super) fn invalid(words: impl Into<String>) -> ProblemDetails {
    ProblemDetails::new(ErrorCode::InvalidQuery, words)
}

/// A parameter.
pub(super) struct Parameter {
    /// Its name.
    pub(super) name: &'static str,
    kind: ParameterKind,
    about: &'static str,
    required: bool,
}

/// The values that a parameter may have.
pub(super) enum ParameterKind {
    /// Any text.
    Any,
    /// Any text that is not empty.
    Text,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number within bounds.
    Number(RangeInclusive<u64>),
    /// `true` or `false`.
    Flag,
    /// A run, or an inline child.
    Run,
    /// The cursor from the previous page.
    Cursor,
    /// Visible ASCII characters.
    Key,
    /// Types of frames.
    Pattern,
    /// A time, down to whole fields.
    Time,
}

/// The syntax of a run, or of an inline child.
static RUN: LazyLock<String> = LazyLock::new(RunPath::pattern);
/// A time, a stream and, in lists within a run, a frame number.
const CURSOR: &str =
    "^[0-9]{1,19}~(run|branch|recompute):[A-Za-z0-9][A-Za-z0-9._-]{0,63}(#[0-9]{1,15})?$";
static CURSOR_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(CURSOR).expect("the pattern is valid"));
/// A time, down to whole fields, without those that few years have.
const TIME: &str = "^(19[7-9][0-9]|[2-9][0-9]{3})(-((0[1-9]|1[0-2])|((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])\
     |(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))\
     (T([01][0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9]([.][0-9]{6}Z)?)?)?)?))?$";
const KEY: &str = "^[!-~]+$";
static FRAME_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(PATTERN_SYNTAX).expect("the pattern is valid"));

impl Parameter {
    /// One that may be left out.
    pub(super) const fn new(name: &'static str, kind: ParameterKind, about: &'static str) -> Self {
        Self {
            name,
            kind,
            about,
            required: false,
        }
    }

    /// One without which the route does nothing.
    pub(super) const fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    /// Returns `true` if a value is one of this parameter.
    pub(super) fn fits(&self, value: &str) -> bool {
        match &self.kind {
            ParameterKind::Any => true,
            ParameterKind::Text => !value.is_empty(),
            ParameterKind::Words(words) => words.contains(&value),
            ParameterKind::Number(bounds) => {
                whole(value).is_some_and(|number| bounds.contains(&number))
            }
            ParameterKind::Flag => matches!(value, "true" | "false"),
            ParameterKind::Run => RunPath::parse(value).is_some(),
            ParameterKind::Cursor => CURSOR_PATTERN.is_match(value),
            ParameterKind::Pattern => FRAME_PATTERN.is_match(value),
            ParameterKind::Time => Timestamp::beginning(value).is_some(),
            ParameterKind::Key => {
                let visible = value.bytes().all(|byte| byte.is_ascii_graphic());
                visible && (1..=MAX_KEY).contains(&(value.len() as u64))
            }
        }
    }

    /// The requirement on the parameter, as an error message.
    pub(super) fn words(&self) -> String {
        let name = self.name;
        match &self.kind {
            ParameterKind::Any => format!("{name} may be any text"),
            ParameterKind::Text => format!("{name} is empty: give it a value or omit it"),
            ParameterKind::Words(words) => format!("{name} must be one of {}", words.join(", ")),
            ParameterKind::Number(bounds) => match (*bounds.start(), *bounds.end()) {
                (0, MAX_NUMBER) => format!("{name} must be an integer"),
                (least, most) => format!("{name} must be an integer from {least} to {most}"),
            },
            ParameterKind::Flag => format!("{name} must be true or false"),
            ParameterKind::Run => format!("{name} must be a run"),
            ParameterKind::Cursor => format!("{name} must be the `next` of another page"),
            ParameterKind::Pattern => {
                format!("{name} must be a type of frames, object.*, * or some of these with commas")
            }
            ParameterKind::Time => {
                format!("{name} must be a time such as 2026-11, 2026-11-20 or 2026-11-20T10:00")
            }
            ParameterKind::Key => {
                format!("{name} must have 1 to {MAX_KEY} visible ASCII characters and no spaces")
            }
        }
    }

    /// The value of a header, if the request has it.
    ///
    /// # Errors
    /// [`ktsu_codes::ErrorCode::InvalidQuery`].
    pub(super) fn header<'h>(
        &self,
        headers: &'h HeaderMap,
    ) -> Result<Option<&'h str>, ProblemDetails> {
        let mut values = headers.get_all(self.name).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(invalid(format!(
                "{} appears twice in the request",
                self.name
            )));
        }
        let value = value.to_str().ok().filter(|value| self.fits(value));
        value.map(Some).ok_or_else(|| invalid(self.words()))
    }

    /// The description of a segment of a path.
    pub(super) fn in_path(name: &'static str, about: &'static str) -> path::Parameter {
        let segment = Self::new(name, ParameterKind::Any, about).required();
        segment.described(ParameterIn::Path)
    }

    /// The parameter as the description has it.
    pub(super) fn described(&self, place: ParameterIn) -> path::Parameter {
        ParameterBuilder::new()
            .name(self.name)
            .parameter_in(place)
            .required(match self.required {
                true => Required::True,
                false => Required::False,
            })
            .description(Some(self.about))
            .schema(Some(RefOr::T(Schema::Object(self.schema().build()))))
            .build()
    }

    fn schema(&self) -> ObjectBuilder {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        match &self.kind {
            ParameterKind::Any => text(),
            ParameterKind::Text => text().min_length(Some(1)),
            ParameterKind::Words(words) => text().enum_values(Some(words.iter().copied())),
            ParameterKind::Number(bounds) => ObjectBuilder::new()
                .schema_type(Type::Integer)
                .minimum(usize::try_from(*bounds.start()).ok())
                .maximum(usize::try_from(*bounds.end()).ok()),
            ParameterKind::Flag => ObjectBuilder::new().schema_type(Type::Boolean),
            ParameterKind::Run => text().pattern(Some(RUN.as_str())),
            ParameterKind::Cursor => text().pattern(Some(CURSOR)),
            ParameterKind::Pattern => text().pattern(Some(PATTERN_SYNTAX)),
            ParameterKind::Time => text().pattern(Some(TIME)),
            ParameterKind::Key => text()
                .min_length(Some(1))
                .max_length(usize::try_from(MAX_KEY).ok())
                .pattern(Some(KEY)),
        }
    }
}

/// A whole number as text: digits, and as JSON Schema has it a fraction of nothing but zeros.
pub(super) fn whole(text: &str) -> Option<u64> {
    let digits = match text.split_once('.') {
        None => text,
        Some((digits, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => {
            digits
        }
        Some(_) => return None,
    };
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// Requests with the same key and body start one run.
pub(super) struct IdempotencyKey;

impl IdempotencyKey {
    pub(super) const PARAMETER: Parameter = Parameter::new(
        "Idempotency-Key",
        ParameterKind::Key,
        "Requests with the same key and body start one run",
    );
}

/// The last frame that a client knows of.
pub(super) struct IfMatch;

impl IfMatch {
    pub(super) const PARAMETER: Parameter = Parameter::new(
        "If-Match",
        ParameterKind::Number(0..=MAX_NUMBER),
        "The number of the last frame known",
    );
}

/// Requests with the same key and events are one post.
pub(super) struct PostKey;

impl PostKey {
    pub(super) const PARAMETER: Parameter = Parameter::new(
        "Idempotency-Key",
        ParameterKind::Key,
        "Requests of a principal with the same key and events are recorded once in a run",
    );
}

/// The last frame about something that a client knows of.
pub(super) struct SubjectIfMatch;

impl SubjectIfMatch {
    pub(super) const PARAMETER: Parameter = Parameter::new(
        "If-Match",
        ParameterKind::Number(0..=MAX_NUMBER),
        "The number of the last frame known about the object or the relation",
    );
}

/// The header with the position at which a stream of events was left.
pub(super) struct LastEventId;

impl LastEventId {
    pub(super) const PARAMETER: Parameter = Parameter::new(
        "Last-Event-ID",
        ParameterKind::Number(0..=MAX_NUMBER),
        "Of a stream of events: the number of the last frame that was received",
    );
}

macro_rules! headers {
    ($($name:ident),*) => {
        $(impl IntoParams for $name {
            fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<path::Parameter> {
                vec![Self::PARAMETER.described(ParameterIn::Header)]
            }
        })*
    };
}

headers!(
    IdempotencyKey,
    IfMatch,
    LastEventId,
    PostKey,
    SubjectIfMatch
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::string::string_regex;

    use super::*;

    /// Texts of a pattern.
    fn of(pattern: &str) -> impl Strategy<Value = String> + use<> {
        string_regex(pattern.trim_matches(['^', '$'])).unwrap()
    }

    #[test]
    fn a_whole_number_may_have_a_fraction_of_zeros() {
        for (text, number) in [
            ("5", Some(5)),
            ("5.0", Some(5)),
            ("5.000", Some(5)),
            ("05", Some(5)),
            ("5.", None),
            (".0", None),
            ("5.1", None),
            ("5.0.0", None),
            ("+5", None),
            ("-5", None),
            ("5e0", None),
            ("", None),
        ] {
            assert_eq!(whole(text), number, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        /// The parser takes exactly what the description says of runs, cursors and keys.
        #[test]
        fn patterns_say_what_is_taken(
            text in prop_oneof![
                "[A-Za-z0-9._~#:/ -]{0,12}",
                of(&RUN),
                "R(/(a|a[.](0|[+]?[0-9]{1,10})|@[a-z]{0,2}[.][0-9a-g]{15,17})){0,2}(/a){0,34}",
                of(CURSOR),
                "[0-9]{1,21}~(run|kv|branch):[A-Za-z0-9.]{0,4}(#[0-9]{0,17})?",
                of(KEY),
            ]
        ) {
            static RUNS: LazyLock<Regex> = LazyLock::new(|| Regex::new(&RUN).unwrap());
            static KEYS: LazyLock<Regex> = LazyLock::new(|| Regex::new(KEY).unwrap());
            for (kind, pattern) in [(ParameterKind::Run, &RUNS), (ParameterKind::Cursor, &CURSOR_PATTERN)] {
                let matches = pattern.is_match(&text);
                prop_assert_eq!(Parameter::new("p", kind, "").fits(&text), matches, "{}", pattern.as_str());
            }
            let length = (1..=255).contains(&text.len());
            let key = length && KEYS.is_match(&text);
            prop_assert_eq!(Parameter::new("p", ParameterKind::Key, "").fits(&text), key);
        }
    }
}

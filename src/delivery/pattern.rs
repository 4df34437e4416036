//! Patterns of frame types: `run.completed`, `object.*`, `*`, or several of them.

use std::fmt;
use std::str::FromStr;

use ktsu_codes::nearest;
use ktsu_ledger::Event;

/// The most types and prefixes of a pattern: more are better written as `*` and sorted out by the
/// receiver.
const MAX_ALTERNATIVES: usize = 32;
/// The most parts of a type, between its dots.
const MAX_PARTS: usize = 8;
/// The most characters of a part.
const MAX_PART: usize = 64;

/// The syntax of a pattern, as a regular expression for descriptions.
pub const PATTERN_SYNTAX: &str = r"^(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}(\.\*)?)(,(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}(\.\*)?)){0,31}$";

/// The prefixes of the types of frames that are in no run: such frames cannot be followed.
const OUTSIDE_RUNS: [&str; 7] = [
    "checkpoint.",
    "delivery.",
    "kv.",
    "run.head",
    "signing_key.",
    "store.",
    "subscription.",
];

/// The frames that are wanted, by their types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramePattern {
    alternatives: Vec<Alternative>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Alternative {
    /// `*`: of any type.
    All,
    /// `object.*`: of a type that begins like this, the dot included.
    Prefix(String),
    /// `run.completed`.
    Exact(String),
}

/// The reason why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing, or nothing between two commas.
    #[error("the pattern has an empty entry")]
    Empty,
    /// More than [`MAX_ALTERNATIVES`].
    #[error("the pattern has more than {MAX_ALTERNATIVES} entries")]
    TooMany,
    /// Not a type, and not the beginning of one followed by `.*`.
    #[error(
        "a type has letters, digits, '_', '-' and dots, and `*` is alone or after its last dot"
    )]
    Malformed,
    /// No frame of a run has such a type.
    #[error("no frame of a run has a type like {given:?}{}", suggested(.nearest))]
    Unknown {
        /// The entry.
        given: String,
        /// A type with a similar name.
        nearest: Option<&'static str>,
    },
}

fn suggested(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"))
}

impl FramePattern {
    /// Every frame of every run.
    pub fn all() -> Self {
        Self {
            alternatives: vec![Alternative::All],
        }
    }

    /// Returns `true` if frames of a type are wanted.
    pub fn matches(&self, kind: &str) -> bool {
        self.alternatives.iter().any(|one| match one {
            Alternative::All => true,
            Alternative::Prefix(prefix) => kind.starts_with(prefix),
            Alternative::Exact(exact) => kind == exact,
        })
    }

    /// Reads a pattern given as a list: each entry may itself be a list with commas.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn of_list<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, PatternError> {
        let mut alternatives = Vec::new();
        for entry in entries.into_iter().flat_map(|entry| entry.split(',')) {
            if alternatives.len() == MAX_ALTERNATIVES {
                return Err(PatternError::TooMany);
            }
            alternatives.push(Alternative::parse(entry)?);
        }
        match alternatives.is_empty() {
            true => Err(PatternError::Empty),
            false => Ok(Self { alternatives }),
        }
    }
}

impl FromStr for FramePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::of_list([text])
    }
}

impl fmt::Display for FramePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, one) in self.alternatives.iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            match one {
                Alternative::All => f.write_str("*")?,
                Alternative::Prefix(prefix) => write!(f, "{prefix}*")?,
                Alternative::Exact(exact) => f.write_str(exact)?,
            }
        }
        Ok(())
    }
}

impl Alternative {
    fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text == "*" {
            return Ok(Self::All);
        }
        let (name, one) = match text.strip_suffix(".*") {
            Some(name) => (name, Self::Prefix(format!("{name}."))),
            None => (text, Self::Exact(text.to_owned())),
        };
        if !is_type(name) {
            return Err(PatternError::Malformed);
        }
        match one.is_possible() {
            true => Ok(one),
            false => Err(PatternError::Unknown {
                given: text.to_owned(),
                nearest: nearest(text, types_of_runs()),
            }),
        }
    }

    /// Returns `true` if a frame of a run may have such a type. Kits name their own: `x.KIT.NAME`.
    fn is_possible(&self) -> bool {
        match self {
            Self::All => true,
            Self::Prefix(prefix) => {
                prefix.starts_with("x.") || types_of_runs().any(|kind| kind.starts_with(prefix))
            }
            Self::Exact(exact) => {
                exact.starts_with("x.") || types_of_runs().any(|kind| kind == exact)
            }
        }
    }
}

fn types_of_runs() -> impl Iterator<Item = &'static str> {
    let is_outside = |kind: &str| OUTSIDE_RUNS.iter().any(|prefix| kind.starts_with(prefix));
    Event::KINDS
        .iter()
        .copied()
        .filter(move |kind| !is_outside(kind))
}

fn is_type(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_part = |part: &str| (1..=MAX_PART).contains(&part.len()) && part.bytes().all(is_plain);
    text.split('.').count() <= MAX_PARTS && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, kind: &str) -> bool {
        pattern.parse::<FramePattern>().unwrap().matches(kind)
    }

    #[test]
    fn a_pattern_names_types_prefixes_or_everything() {
        assert!(matches("*", "run.completed"));
        assert!(matches("run.completed", "run.completed"));
        assert!(!matches("run.completed", "run.created"));
        assert!(matches("object.*", "object.patched"));
        assert!(!matches("object.*", "objects.patched"));
        assert!(!matches("run.*", "note"));
        assert!(matches("note", "note"));
        assert!(matches("run.failed,object.*", "object.created"));
        assert!(!matches("run.failed,object.*", "run.completed"));
        assert!(matches("x.desk.*", "x.desk.closed"));
        assert!(!matches("x.desk.*", "x.desks.closed"));
        assert!(matches("budget.exhausted", "budget.exhausted"));
    }

    #[test]
    fn a_pattern_is_written_as_it_is_read() {
        for text in ["*", "run.completed", "object.*,relation.created,x.a.b"] {
            let pattern: FramePattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), text);
        }
        let list = FramePattern::of_list(["object.*", "run.failed,note"]).unwrap();
        assert_eq!(list.to_string(), "object.*,run.failed,note");
    }

    #[test]
    fn what_no_frame_of_a_run_can_match_is_refused_with_a_suggestion() {
        let error = |text: &str| text.parse::<FramePattern>().unwrap_err();
        for text in ["", "run.completed,", ",*"] {
            assert_eq!(error(text), PatternError::Empty, "{text:?}");
        }
        for text in [
            "run*",
            "*.created",
            "run..x",
            "run.*.x",
            "a b",
            "run.failed, note",
            "run.é",
            ".",
        ] {
            assert_eq!(error(text), PatternError::Malformed, "{text:?}");
        }
        let long = format!("x.{}", "a".repeat(MAX_PART + 1));
        assert_eq!(error(&long), PatternError::Malformed);
        let deep = ["x"; MAX_PARTS + 1].join(".");
        assert_eq!(error(&deep), PatternError::Malformed);
        for text in [
            "store.opened",
            "kv.*",
            "run.head",
            "checkpoint.signed",
            "objekt.*",
        ] {
            assert!(
                matches!(error(text), PatternError::Unknown { .. }),
                "{text}"
            );
        }
        let words = error("run.complete").to_string();
        assert!(words.ends_with("did you mean run.completed?"), "{words}");
        let many = vec!["*"; MAX_ALTERNATIVES + 1].join(",");
        assert_eq!(error(&many), PatternError::TooMany);
        assert!(many[2..].parse::<FramePattern>().is_ok());
    }

    proptest::proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        /// A pattern that the syntax allows is refused only for types that no run has, and no other
        /// is taken.
        #[test]
        fn the_syntax_says_what_is_taken(text in "(\\*|[a-z_.*, -]{0,6}|run\\.(created|\\*))(,(\\*|note|[a-z.]{0,4}))?") {
            let syntax = regex::Regex::new(PATTERN_SYNTAX).unwrap();
            let parsed = text.parse::<FramePattern>();
            let is_taken = matches!(parsed, Ok(_) | Err(PatternError::Unknown { .. }));
            // Which of two entries is refused first is of no account.
            if syntax.is_match(&text) {
                proptest::prop_assert!(is_taken, "{text:?}: {parsed:?}");
            } else {
                proptest::prop_assert!(parsed.is_err(), "{text:?}");
            }
        }
    }
}

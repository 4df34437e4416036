//! Names of streams and of those who act, checked once where they enter.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most characters of one name (decision S1).
pub const MAX_NAME: usize = 64;

/// Returns `true` if a text is a name: a letter or digit, then letters, digits, `.`, `_`, `-`
/// (decision S1).
pub fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Returns `true` if a pattern covers a name: it is the name itself, or a beginning of the name and
/// a `*`.
#[inline]
pub fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

/// The name of a stream: `KIND:NAME`, or `store`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(Arc<str>);

/// The kinds of stream that have a name of their own after the colon.
const KINDS: [&str; 7] = [
    "run",
    "branch",
    "eval",
    "recompute",
    "kv",
    "subscription",
    "delivery",
];

/// The prefix of the ids of recomputes: they are addressed as runs are.
pub const RECOMPUTE: &str = "recompute_";

/// The prefix of the ids of branches.
pub const BRANCH: &str = "branch_";

impl StreamId {
    /// The stream of what concerns the whole ledger.
    pub fn store() -> Self {
        Self(Arc::from("store"))
    }

    /// The stream of a run, a branch or a recompute, by its id; refused if `run` is not a valid
    /// name.
    pub fn run(run: &str) -> Result<Self, ParseStreamIdError> {
        let kind = if run.starts_with(RECOMPUTE) {
            "recompute"
        } else if run.starts_with(BRANCH) {
            "branch"
        } else {
            "run"
        };
        format!("{kind}:{run}").parse()
    }

    /// The persisted form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the colon.
    pub fn kind(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// Returns `true` if it is that of a run, a branch or a recompute.
    pub fn is_run(&self) -> bool {
        matches!(self.kind(), "run" | "branch" | "recompute")
    }

    /// Returns `true` if it is that of an eval.
    pub fn is_eval(&self) -> bool {
        self.kind() == "eval"
    }

    /// The part after the colon: `run_0192…`; for the store stream, `store`.
    pub fn name(&self) -> &str {
        self.0.split(':').next_back().unwrap_or_default()
    }
}

/// The text does not name a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not name a stream")]
pub struct ParseStreamIdError(String);

impl FromStr for StreamId {
    type Err = ParseStreamIdError;

    fn from_str(text: &str) -> Result<Self, ParseStreamIdError> {
        let known = match text.split_once(':') {
            Some((kind, name)) => KINDS.contains(&kind) && is_name(name),
            None => text == "store",
        };
        if known {
            Ok(Self(Arc::from(text)))
        } else {
            Err(ParseStreamIdError(text.chars().take(100).collect()))
        }
    }
}

/// The author of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    /// The engine itself.
    Orchestrator,
    /// An agent runtime.
    Runtime,
    /// The LLM gateway.
    Gateway,
    /// The command line, working on the ledger as a whole.
    Cli,
    /// A kit's responder.
    Responder(String),
    /// A person or an API client.
    Principal(String),
}

impl Actor {
    /// Returns `true` if its text reads back: names of people and responders come from outside.
    pub(crate) fn is_written_plainly(&self) -> bool {
        match self {
            Self::Orchestrator | Self::Runtime | Self::Gateway | Self::Cli => true,
            Self::Responder(name) | Self::Principal(name) => is_name(name),
        }
    }
}

/// The text does not name an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an actor")]
pub struct ParseActorError;

impl FromStr for Actor {
    type Err = ParseActorError;

    fn from_str(text: &str) -> Result<Self, ParseActorError> {
        match text.split_once(':') {
            None => match text {
                "orchestrator" => Ok(Self::Orchestrator),
                "runtime" => Ok(Self::Runtime),
                "gateway" => Ok(Self::Gateway),
                "cli" => Ok(Self::Cli),
                _ => Err(ParseActorError),
            },
            Some(("responder", name)) if is_name(name) => Ok(Self::Responder(name.to_owned())),
            Some(("principal", name)) if is_name(name) => Ok(Self::Principal(name.to_owned())),
            Some(_) => Err(ParseActorError),
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Orchestrator => f.write_str("orchestrator"),
            Self::Runtime => f.write_str("runtime"),
            Self::Gateway => f.write_str("gateway"),
            Self::Cli => f.write_str("cli"),
            Self::Responder(name) => write!(f, "responder:{name}"),
            Self::Principal(name) => write!(f, "principal:{name}"),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A frame that another frame follows from (seed 001: `source_frame_id`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A frame of the same (effective) stream, by its number.
    Here(u64),
    /// A frame of another stream, which was durable before.
    There(StreamId, u64),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(seq) => write!(f, "{seq}"),
            Self::There(stream, seq) => write!(f, "{stream}#{seq}"),
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Here(seq) => serializer.serialize_u64(*seq),
            Self::There(..) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CauseVisitor)
    }
}

struct CauseVisitor;

impl serde::de::Visitor<'_> for CauseVisitor {
    type Value = Cause;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame number or STREAM#NUMBER")
    }

    fn visit_u64<E>(self, seq: u64) -> Result<Cause, E> {
        Ok(Cause::Here(seq))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Cause, E> {
        text.rsplit_once('#')
            .and_then(|(stream, seq)| Some(Cause::There(stream.parse().ok()?, seq.parse().ok()?)))
            .ok_or_else(|| E::custom("a cause is a frame number or STREAM#NUMBER"))
    }
}

macro_rules! text_serde {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::parse(deserializer)
            }
        }
    )*};
}
text_serde!(StreamId, Actor);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_checked_segment_by_segment() {
        for text in ["store", "run:run_0192", "kv:a.b-c"] {
            assert_eq!(
                text.parse::<StreamId>().map(|id| id.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in [
            "", "run:", "run:../x", "run:_a", "walk:a", "store:x", "run:a:b",
        ] {
            assert!(text.parse::<StreamId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_cause_is_a_number_here_and_a_text_elsewhere() {
        let causes: Result<Vec<Cause>, _> = serde_json::from_str(r#"[3,"run:a#7"]"#);
        let causes = causes.unwrap_or_default();
        assert_eq!(
            serde_json::to_string(&causes).ok(),
            Some(r#"[3,"run:a#7"]"#.to_owned())
        );
        assert!(serde_json::from_str::<Cause>(r#""run:a""#).is_err());
    }
}

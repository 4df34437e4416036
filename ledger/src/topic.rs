//! Topics of what is told to other systems, and patterns of them: `claim.verified`, `claim.*`, `*`.

use std::fmt;
use std::str::FromStr;

use crate::id::covers;

/// The most characters of a topic.
pub const MAX_TOPIC_CHARS: usize = 200;
/// The most entries of a pattern.
pub const MAX_TOPIC_ALTERNATIVES: usize = 32;

/// Returns `true` if a text can be a topic: 1 to [`MAX_TOPIC_CHARS`] characters, no white space, no
/// control characters, no comma and no `*`, which mean something in patterns.
pub fn is_topic(text: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != ',' && c != '*';
    (1..=MAX_TOPIC_CHARS).contains(&text.chars().count()) && text.chars().all(plain)
}

/// The topics that are wanted, or permitted: whole topics, beginnings followed by `.*`, or `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPattern(Vec<String>);

/// The reason why a text is no pattern of topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TopicPatternError {
    /// Nothing, or nothing between two commas.
    #[error("the pattern has an empty entry")]
    Empty,
    /// More than [`MAX_TOPIC_ALTERNATIVES`].
    #[error("the pattern has more than {MAX_TOPIC_ALTERNATIVES} entries")]
    TooMany,
    /// Neither a topic, nor the beginning of one followed by `.*`.
    #[error(
        "a topic has 1 to {MAX_TOPIC_CHARS} characters without white space, and `*` is alone or after its last dot"
    )]
    Malformed,
}

impl TopicPattern {
    /// Returns `true` if a topic is one of them.
    pub fn matches(&self, topic: &str) -> bool {
        self.0.iter().any(|entry| covers(entry, topic))
    }

    /// Reads a pattern given as a list: each entry may itself be a list with commas.
    ///
    /// # Errors
    /// [`TopicPatternError`].
    pub fn of_list<'a>(
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, TopicPatternError> {
        let mut all = Vec::new();
        for entry in entries.into_iter().flat_map(|entry| entry.split(',')) {
            if all.len() == MAX_TOPIC_ALTERNATIVES {
                return Err(TopicPatternError::TooMany);
            }
            if entry.is_empty() {
                return Err(TopicPatternError::Empty);
            }
            let name = entry.strip_suffix(".*").unwrap_or(entry);
            if entry != "*" && !is_topic(name) {
                return Err(TopicPatternError::Malformed);
            }
            all.push(entry.to_owned());
        }
        match all.is_empty() {
            true => Err(TopicPatternError::Empty),
            false => Ok(Self(all)),
        }
    }
}

impl FromStr for TopicPattern {
    type Err = TopicPatternError;

    fn from_str(text: &str) -> Result<Self, TopicPatternError> {
        Self::of_list([text])
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_topics_beginnings_or_everything() {
        let matches = |pattern: &str, topic: &str| {
            let pattern: TopicPattern = pattern.parse().unwrap();
            pattern.matches(topic)
        };
        assert!(matches("*", "claim.verified"));
        assert!(matches("claim.*", "claim.verified"));
        assert!(!matches("claim.*", "claim"));
        assert!(!matches("claim.*", "claims.verified"));
        assert!(matches("a,claim", "claim"));
        assert!(!matches("claim", "claim.verified"));
    }

    #[test]
    fn a_pattern_is_written_as_it_is_read_and_nothing_else_is_one() {
        for text in ["*", "a.b", "a.*,Ordre/é:1"] {
            assert_eq!(text.parse::<TopicPattern>().unwrap().to_string(), text);
        }
        let error = |text: &str| text.parse::<TopicPattern>().unwrap_err();
        assert_eq!(error(""), TopicPatternError::Empty);
        assert_eq!(error("a,,b"), TopicPatternError::Empty);
        for text in ["a*", "*.a", "a b", "a\n", ".*", &"x".repeat(201)] {
            assert_eq!(error(text), TopicPatternError::Malformed, "{text:?}");
        }
        assert_eq!(error(&["a"; 33].join(",")), TopicPatternError::TooMany);
    }
}

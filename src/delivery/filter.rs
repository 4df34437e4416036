//! The content that a subscriber wants: frames by their types, or messages of steps and responders,
//! by topic.

use ktsu_ledger::topic::TopicPattern;

use super::pattern::FramePattern;

/// The syntax of a pattern of topics, as a regular expression for descriptions; the limit on the
/// length of a topic comes on top.
pub const TOPIC_PATTERN_SYNTAX: &str =
    r"^(\*|[^\s\x00-\x1f\x7f-\x9f,*]+(\.\*)?)(,(\*|[^\s\x00-\x1f\x7f-\x9f,*]+(\.\*)?)){0,31}$";

/// The type of the frames that tell something to other systems.
pub const COMMAND_REQUESTED: &str = "command.requested";

/// The content that a subscription sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryFilter {
    /// Frames of these types, as they are.
    Frames(FramePattern),
    /// The messages that are emitted about these topics, without their frames.
    Topics(TopicPattern),
}

impl DeliveryFilter {
    /// Reads what is recorded of a subscription; nothing if it cannot be read.
    pub fn recorded(pattern: &str, topics: Option<&str>) -> Option<Self> {
        match topics {
            Some(topics) => topics.parse().ok().map(Self::Topics),
            None => pattern.parse().ok().map(Self::Frames),
        }
    }

    /// As it is recorded: the pattern of types, and that of topics.
    pub fn to_recorded(&self) -> (String, Option<String>) {
        match self {
            Self::Frames(pattern) => (pattern.to_string(), None),
            Self::Topics(topics) => (COMMAND_REQUESTED.to_owned(), Some(topics.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_as_it_was_recorded() {
        let frames = DeliveryFilter::Frames("run.*".parse().unwrap());
        let topics = DeliveryFilter::Topics("claim.*,a".parse().unwrap());
        for filter in [frames, topics] {
            let (pattern, topics) = filter.to_recorded();
            let read = DeliveryFilter::recorded(&pattern, topics.as_deref());
            assert_eq!(read, Some(filter));
        }
        assert_eq!(DeliveryFilter::recorded("run.*", Some("a b")), None);
    }

    proptest::proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn the_syntax_says_what_is_taken(text in "[a.*, \\x07é]{0,8}") {
            let syntax = regex::Regex::new(TOPIC_PATTERN_SYNTAX).unwrap();
            proptest::prop_assert_eq!(syntax.is_match(&text), text.parse::<TopicPattern>().is_ok());
        }
    }
}

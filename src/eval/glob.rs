//! Globs: texts in which `*` covers any characters.

/// The most bytes of a glob.
pub(crate) const MAX_GLOB_BYTES: usize = 500;

/// A text, or a pattern with `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob(Box<str>);

impl Glob {
    /// A pattern as it is written.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// As it is written.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The most searches of a text that it takes.
    pub(crate) fn cost(&self) -> u64 {
        1 + self.0.bytes().filter(|byte| *byte == b'*').count() as u64
    }

    /// Returns `true` if it covers a text.
    pub(crate) fn covers(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else {
            return *self.0 == *text;
        };
        let Some(mut text) = text.strip_prefix(first) else {
            return false;
        };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in middle.split('*') {
            match text.find(part) {
                Some(at) => text = text.get(at + part.len()..).unwrap_or_default(),
                None => return false,
            }
        }
        text.ends_with(last)
    }
}

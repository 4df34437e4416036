//! Regular expressions of checks, with a bound on the work that they take.

use std::fmt;

use regex::{Regex, RegexBuilder};

/// The sizes of programs that are tried, in KiB; a larger pattern is refused.
const SIZES_KIB: [u64; 4] = [4, 16, 64, 256];

/// The most bytes of text times KiB of program that the patterns of a run of checks look at: a few
/// seconds at the worst.
pub(crate) const MAX_MATCHING: u64 = 32 << 20;

/// The most patterns of a file: all of them are compiled before the first check is made.
pub(crate) const MAX_PATTERNS: usize = 200;

/// A regular expression, and how large its program is.
#[derive(Debug, Clone)]
pub(crate) struct TextPattern {
    regex: Regex,
    size_kib: u64,
}

impl TextPattern {
    /// Compiles a pattern; none if it is none, or too large.
    pub(crate) fn compile(text: &str) -> Option<Self> {
        SIZES_KIB.into_iter().find_map(|size_kib| {
            let bytes = usize::try_from(size_kib << 10).unwrap_or(usize::MAX);
            let regex = RegexBuilder::new(text).size_limit(bytes).build();
            regex.ok().map(|regex| Self { regex, size_kib })
        })
    }

    /// Returns `true` if it matches anywhere in a text.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The cost of looking at a text, counted against [`MAX_MATCHING`].
    pub(crate) fn cost(&self, text: &str) -> u64 {
        self.size_kib.saturating_mul(text.len() as u64)
    }
}

impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.regex.fmt(f)
    }
}

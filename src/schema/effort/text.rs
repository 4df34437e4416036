//! The cost of a pattern for the text that it is held against.
//!
//! Patterns are matched in time that is linear in the text, by an engine that is, at each byte, at as
//! many places of the pattern as can match there. How many that may be is read off the pattern's
//! text, so that it is the same whatever the engine makes of it.

/// The cost of holding a text against a pattern, at the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatternCost {
    /// Characters and classes of the pattern, those that are repeated so many times counted as often.
    places: u64,
    /// Of a pattern that begins with the text and ends, the bytes after which no match is left.
    most_bytes: Option<u64>,
}

/// Bytes of one character, at the most.
const MAX_CHARACTER_BYTES: u64 = 4;

impl PatternCost {
    /// The cost of looking at each character: a length, a format.
    pub(super) const SCAN: Self = Self {
        places: 1,
        most_bytes: None,
    };

    pub(super) fn of(pattern: &str) -> Self {
        let read = PatternReader::read(pattern);
        let begins = pattern.starts_with('^') && !read.alternatives && !read.unbounded;
        Self {
            places: read.places.max(1),
            most_bytes: begins.then(|| read.places.saturating_mul(MAX_CHARACTER_BYTES)),
        }
    }

    /// Steps for each byte of a text, at the most.
    pub(super) fn places(self) -> u64 {
        self.places
    }

    /// Steps for a text of so many bytes.
    pub(super) fn steps(self, bytes: u64) -> u64 {
        self.steps_of_texts(1, bytes)
    }

    /// Steps for so many texts that have so many bytes together.
    pub(super) fn steps_of_texts(self, texts: u64, bytes: u64) -> u64 {
        let most = self.most_bytes.unwrap_or(u64::MAX).saturating_add(1);
        let read = bytes.min(most.saturating_mul(texts));
        self.places.saturating_mul(read)
    }
}

/// Reads the places of a pattern.
#[derive(Default)]
struct PatternReader {
    places: u64,
    /// True if a part may be repeated without end.
    unbounded: bool,
    /// There are alternatives outside of all groups.
    alternatives: bool,
}

impl PatternReader {
    fn read(pattern: &str) -> Self {
        let mut reader = Self::default();
        // The places before each open group, and the places of the last part.
        let (mut around, mut last) = (Vec::new(), 0);
        let mut rest = pattern;
        while let Some(next) = rest.chars().next() {
            rest = &rest[next.len_utf8()..];
            match next {
                '(' => {
                    around.push(std::mem::take(&mut reader.places));
                    rest = after_group_kind(rest);
                    last = 0;
                }
                ')' => {
                    last = reader.places;
                    reader.places = around.pop().unwrap_or(0).saturating_add(last);
                }
                '|' => {
                    reader.alternatives |= around.is_empty();
                    last = 0;
                }
                '^' | '$' => last = 0,
                '*' | '+' => reader.unbounded = true,
                '?' => {}
                '{' => match repetition(rest) {
                    Some((least, most, after)) => {
                        reader.unbounded |= most.is_none();
                        let times = most.unwrap_or(least).max(1);
                        let more = last.saturating_mul(times - 1);
                        reader.places = reader.places.saturating_add(more);
                        last = last.saturating_add(more);
                        rest = after;
                    }
                    None => last = reader.one(),
                },
                '[' => {
                    rest = after_class(rest);
                    last = reader.one();
                }
                '\\' => {
                    rest = after_escape(rest);
                    last = reader.one();
                }
                _ => last = reader.one(),
            }
        }
        let open = around.into_iter().fold(0, u64::saturating_add);
        reader.places = reader.places.saturating_add(open);
        reader
    }

    fn one(&mut self) -> u64 {
        self.places = self.places.saturating_add(1);
        1
    }
}

/// The text after `?:`, `?<name>` and their like.
fn after_group_kind(rest: &str) -> &str {
    let Some(kind) = rest.strip_prefix('?') else {
        return rest;
    };
    let named = kind.strip_prefix('<').or_else(|| kind.strip_prefix("P<"));
    match named.and_then(|named| named.split_once('>')) {
        Some((_, after)) => after,
        None => kind.strip_prefix([':', '=', '!']).unwrap_or(kind),
    }
}

/// The least and the most of `{2,5}`, from behind the brace, and what follows.
fn repetition(rest: &str) -> Option<(u64, Option<u64>, &str)> {
    let (within, after) = rest.split_once('}')?;
    let (least, most) = match within.split_once(',') {
        None => (within, Some(within)),
        Some((least, "")) => (least, None),
        Some((least, most)) => (least, Some(most)),
    };
    let number = |digits: &str| digits.parse::<u64>().ok();
    let most = match most {
        Some(most) => Some(number(most)?),
        None => None,
    };
    Some((number(least)?, most, after))
}

/// The text after a class; `rest` begins behind its bracket.
fn after_class(rest: &str) -> &str {
    let (mut escaped, mut open) = (false, 1u32);
    for (at, character) in rest.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => open += 1,
            ']' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return &rest[at + 1..];
        }
    }
    ""
}

/// The text after an escape; `rest` begins behind its backslash.
fn after_escape(rest: &str) -> &str {
    let mut characters = rest.chars();
    let Some(kind) = characters.next() else {
        return "";
    };
    let after = characters.as_str();
    let braced = after
        .strip_prefix('{')
        .and_then(|rest| rest.split_once('}'));
    match (kind, braced) {
        ('p' | 'P' | 'u' | 'x', Some((_, after))) => after,
        ('u', None) => after.get(4..).unwrap_or(after),
        ('x', None) => after.get(2..).unwrap_or(after),
        ('c', _) => after.get(1..).unwrap_or(after),
        _ => after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_costs_what_can_match_at_the_same_time() {
        for (pattern, places) in [
            ("", 1),
            ("^a+$", 1),
            ("[a-z]{10}", 10),
            ("[a\\]b]x", 2),
            ("\\p{L}", 1),
            ("\\p{L}{20}\\u0041\\x41\\u{1F600}", 23),
            ("(a|b|[0-9]{2,4}){3}", 18),
            ("(?:ab){2,}(?<n>c)", 5),
            ("([a-z]{100}){100}", 10_000),
            ("((a{1000}){1000}){1000}", 1_000_000_000),
            ("a{,2}", 5),
            ("é{3}", 3),
        ] {
            assert_eq!(PatternCost::of(pattern).places(), places, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_begins_with_the_text_reads_no_more_than_it_can_match() {
        let steps = |pattern| PatternCost::of(pattern).steps(1 << 20);
        assert_eq!(steps("^[a-z]{1,64}$"), 64 * 257);
        assert_eq!(steps("[a-z]{1,64}$"), 64 << 20);
        assert_eq!(steps("^[a-z]+$"), 1 << 20);
        assert_eq!(steps("^a{2}|b"), 3 << 20);
    }
}

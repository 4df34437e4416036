//! Searches for many texts at once: one pass over the input, however many secrets there are.
//!
//! ```text
//! two bytes of the text -> does any pattern begin with them? -> the longest pattern that stands here
//! ```

use zeroize::Zeroizing;

/// One bit for each pair of bytes.
const WORDS: usize = 256 * 256 / 64;

/// See the module documentation.
#[derive(Clone, Default)]
pub(super) struct Patterns {
    /// In the order of their bytes, each once.
    sorted: Vec<Zeroizing<String>>,
    /// The pairs of bytes patterns begin with: most places of a text are passed over by this alone.
    begins: Vec<u64>,
}

impl Patterns {
    /// Takes what is to be looked for. Empty texts are left out: they stand everywhere.
    pub(super) fn new(patterns: impl IntoIterator<Item = Zeroizing<String>>) -> Self {
        let mut sorted: Vec<_> = patterns.into_iter().filter(|one| !one.is_empty()).collect();
        sorted.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        sorted.dedup();
        let mut begins = vec![0; WORDS];
        for pattern in &sorted {
            match pattern.as_bytes() {
                [first, second, ..] => mark(&mut begins, *first, *second),
                // Whatever follows a single byte, and at the end of a text that is nothing.
                [first] => (0..=u8::MAX).for_each(|second| mark(&mut begins, *first, second)),
                [] => {}
            }
        }
        Self { sorted, begins }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns `true` if any of them is in a text.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.find_all(text).next().is_some()
    }

    /// Their places in a text, in order of their beginnings; places may overlap. Of those that
    /// begin at one place the longest is given.
    pub(super) fn find_all<'a>(
        &'a self,
        text: &'a str,
    ) -> impl Iterator<Item = (usize, usize)> + 'a {
        let bytes = text.as_bytes();
        let places = match self.is_empty() {
            true => 0,
            false => bytes.len(),
        };
        (0..places).filter_map(move |at| {
            let rest = &bytes[at..];
            let second = rest.get(1).copied().unwrap_or_default();
            let begun = self.begins(rest[0], second).then(|| self.longest(rest));
            begun.flatten().map(|length| (at, at + length))
        })
    }

    /// The start of an unfinished one at the end of a text that was cut: the first place from which
    /// all that is left is the beginning of one. Fewer than `least` bytes do not count.
    pub(super) fn unfinished_start(&self, text: &str, least: usize) -> Option<usize> {
        let longest = self.sorted.iter().map(|one| one.len()).max()?;
        let from = text.ceil_char_boundary(text.len().saturating_sub(longest));
        let upto = text.len().saturating_sub(least);
        (from..=upto).find(|at| {
            let rest = text.get(*at..).filter(|rest| rest.len() >= least);
            rest.is_some_and(|rest| {
                let next = self.sorted.partition_point(|one| one.as_str() < rest);
                let next = self.sorted.get(next);
                next.is_some_and(|one| one.starts_with(rest))
            })
        })
    }

    fn begins(&self, first: u8, second: u8) -> bool {
        let (word, bit) = place(first, second);
        self.begins[word] >> bit & 1 == 1
    }

    /// The length of the longest pattern a text begins with.
    ///
    /// The last pattern that is not after the text either begins it, or has this much in common
    /// with it; what begins the text and stands before that pattern is no longer than that.
    fn longest(&self, mut text: &[u8]) -> Option<usize> {
        loop {
            let upto = self.sorted.partition_point(|one| one.as_bytes() <= text);
            let last = self.sorted.get(upto.checked_sub(1)?)?.as_bytes();
            let common = last.iter().zip(text).take_while(|(a, b)| a == b).count();
            if common == last.len() {
                return Some(common);
            }
            text = &text[..common];
        }
    }
}

fn place(first: u8, second: u8) -> (usize, u32) {
    let pair = usize::from(first) * 256 + usize::from(second);
    (pair / 64, u32::from(second) % 64)
}

fn mark(begins: &mut [u64], first: u8, second: u8) {
    let (word, bit) = place(first, second);
    begins[word] |= 1 << bit;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every pattern looked for at every place.
    fn plainly(patterns: &[String], text: &str) -> Vec<(usize, usize)> {
        let longest = |at: usize| {
            let begun = patterns
                .iter()
                .filter(|one| !one.is_empty() && text.as_bytes()[at..].starts_with(one.as_bytes()));
            begun.map(String::len).max()
        };
        let places = 0..text.len();
        places
            .filter_map(|at| longest(at).map(|length| (at, at + length)))
            .collect()
    }

    proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn one_pass_finds_what_looking_for_each_finds(
            patterns in proptest::collection::vec("[abé]{0,5}", 0..12),
            text in "[abcé]{0,40}",
        ) {
            let found = Patterns::new(patterns.iter().cloned().map(Zeroizing::new));
            let found: Vec<_> = found.find_all(&text).collect();
            prop_assert_eq!(found, plainly(&patterns, &text));
        }
    }
}

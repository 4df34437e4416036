//! The differences of two texts, word by word: the shortest list of changes (Myers, O(ND)), within bounds.
//!
//! Beyond a bound, the first text as a whole is changed to the second.

use std::collections::HashMap;
use std::ops::Range;

/// The most bytes of two texts that are compared by words.
const MAX_TEXT: usize = 512 * 1024;
/// The most words by which two texts may differ: the search keeps half of its square as numbers.
const MAX_CHANGES: usize = 1_000;
/// The most steps of the search in all comparisons of a page.
const MAX_STEPS: u64 = 20_000_000;

/// The steps that comparisons may still take.
#[derive(Debug)]
pub(crate) struct WordBudget(u64);

impl WordBudget {
    /// That of a page.
    pub(crate) fn of_page() -> Self {
        Self(MAX_STEPS)
    }

    fn spend(&mut self, steps: usize) -> Option<()> {
        self.0 = self.0.checked_sub(steps as u64)?;
        Some(())
    }
}

/// A stretch that both texts have, and what follows it in each up to the next such stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordHunk<'t> {
    /// In both.
    pub(crate) equal: &'t str,
    /// In the first only.
    pub(crate) removed: &'t str,
    /// In the second only.
    pub(crate) added: &'t str,
}

/// The differences of two texts. All `equal` and `removed` are the first, all `equal` and `added` the second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WordDiff<'t> {
    /// In order.
    pub(crate) hunks: Vec<WordHunk<'t>>,
    /// False if the texts are too long, or too different, to be compared by words.
    pub(crate) is_by_words: bool,
}

/// The differences of two texts.
pub(crate) fn word_diff<'t>(a: &'t str, b: &'t str, budget: &mut WordBudget) -> WordDiff<'t> {
    let by_words = match a.len() + b.len() <= MAX_TEXT {
        true => changes_by_words(a, b, budget),
        false => None,
    };
    let is_by_words = by_words.is_some();
    let changes = by_words.unwrap_or_else(|| vec![(0..a.len(), 0..b.len())]);
    let (mut hunks, mut from) = (Vec::new(), 0);
    for (removed, added) in joined(a, changes) {
        hunks.push(WordHunk {
            equal: part(a, from..removed.start),
            removed: part(a, removed.clone()),
            added: part(b, added),
        });
        from = removed.end;
    }
    if from < a.len() || hunks.is_empty() {
        hunks.push(WordHunk {
            equal: part(a, from..a.len()),
            removed: "",
            added: "",
        });
    }
    WordDiff { hunks, is_by_words }
}

/// A change: the bytes of the first text, and those of the second in their place.
type TextChange = (Range<usize>, Range<usize>);

fn part(text: &str, range: Range<usize>) -> &str {
    text.get(range).unwrap_or_default()
}

/// Changes between which there is only white space are one.
fn joined(a: &str, changes: Vec<TextChange>) -> Vec<TextChange> {
    let mut joined: Vec<TextChange> = Vec::new();
    for (removed, added) in changes {
        match joined.last_mut() {
            Some(last) if part(a, last.0.end..removed.start).trim().is_empty() => {
                last.0.end = removed.end;
                last.1.end = added.end;
            }
            _ => joined.push((removed, added)),
        }
    }
    joined
}

fn changes_by_words(a: &str, b: &str, budget: &mut WordBudget) -> Option<Vec<TextChange>> {
    budget.spend(a.len() + b.len())?;
    let (a, b) = (Words::of(a), Words::of(b));
    let same = |(one, other): &(&&str, &&str)| one == other;
    let shared = a.words.iter().zip(&b.words).take_while(same).count();
    let (rest_a, rest_b) = (a.words.get(shared..)?, b.words.get(shared..)?);
    let at_end = rest_a.iter().rev().zip(rest_b.iter().rev());
    let at_end = at_end.take_while(same).count();
    let mut numbers = HashMap::new();
    let mut number = |word: &&'_ str| {
        let next = numbers.len();
        *numbers.entry((*word).to_owned()).or_insert(next)
    };
    let of_a: Vec<usize> = rest_a
        .get(..rest_a.len() - at_end)?
        .iter()
        .map(&mut number)
        .collect();
    let of_b: Vec<usize> = rest_b
        .get(..rest_b.len() - at_end)?
        .iter()
        .map(&mut number)
        .collect();
    let changes = shortest_edit(&of_a, &of_b, budget)?.into_iter();
    let bytes = |words: &Words<'_>, range: Range<usize>| {
        words.start(shared + range.start)..words.start(shared + range.end)
    };
    let changes = changes.map(|(of_a, of_b)| (bytes(&a, of_a), bytes(&b, of_b)));
    Some(changes.collect())
}

/// A text in words, in runs of white space, and in other characters one by one.
struct Words<'t> {
    words: Vec<&'t str>,
    /// Where each begins, and where the text ends.
    starts: Vec<usize>,
}

impl<'t> Words<'t> {
    fn of(text: &'t str) -> Self {
        let (mut words, mut starts) = (Vec::new(), vec![0]);
        let (mut from, mut before) = (0, None);
        for (at, c) in text.char_indices() {
            let kind = match c {
                c if c.is_alphanumeric() || c == '_' => Some('w'),
                c if c.is_whitespace() => Some(' '),
                _ => None,
            };
            if at > from && (kind.is_none() || kind != before) {
                words.push(part(text, from..at));
                starts.push(at);
                from = at;
            }
            before = kind;
        }
        if from < text.len() {
            words.push(part(text, from..text.len()));
            starts.push(text.len());
        }
        Self { words, starts }
    }

    fn start(&self, word: usize) -> usize {
        self.starts.get(word).copied().unwrap_or_default()
    }
}

/// The shortest list of changes that makes `b` of `a`; none where the search comes to a bound.
///
/// On the diagonal `k`, `x` words of `a` and `x - k` words of `b` are behind. Row `d` has the furthest `x` that
/// `d` changes reach on each of its diagonals `-d, -d + 2, … d`.
fn shortest_edit(a: &[usize], b: &[usize], budget: &mut WordBudget) -> Option<Vec<TextChange>> {
    let mut rows: Vec<Vec<usize>> = Vec::new();
    for d in 0..=MAX_CHANGES.min(a.len() + b.len()) {
        let mut row = Vec::with_capacity(d + 1);
        budget.spend(d + 1)?;
        for at in 0..=d {
            let (_, mut x) = reached(rows.last(), at);
            // `k` is `2 * at - d`, so this is `x - k`.
            let mut y = x + d - 2 * at;
            let from = x;
            while x < a.len() && a.get(x) == b.get(y) {
                (x, y) = (x + 1, y + 1);
            }
            budget.spend(x - from)?;
            row.push(x);
            if x >= a.len() && y >= b.len() {
                rows.push(row);
                return Some(traced_back(&rows, at, (a.len(), b.len())));
            }
        }
        rows.push(row);
    }
    None
}

/// Where the path to a diagonal comes from, by its place in the row before, and the `x` to which one more change
/// brings it; the place is none where nothing changed yet.
fn reached(before: Option<&Vec<usize>>, at: usize) -> (Option<usize>, usize) {
    let Some(before) = before else {
        return (None, 0);
    };
    let left = at
        .checked_sub(1)
        .and_then(|left| Some((left, *before.get(left)?)));
    let right = before.get(at).map(|x| (at, *x));
    match (left, right) {
        (Some((_, x_left)), Some((place, x))) if x_left < x => (Some(place), x),
        (Some((place, x)), _) => (Some(place), x + 1),
        (None, Some((place, x))) => (Some(place), x),
        (None, None) => (None, 0),
    }
}

/// The changes on the path that the search found, from its end.
fn traced_back(rows: &[Vec<usize>], end: usize, (x, y): (usize, usize)) -> Vec<TextChange> {
    let (mut at, mut x, mut y) = (end, x, y);
    let mut changes: Vec<TextChange> = Vec::new();
    for d in (1..rows.len()).rev() {
        let (place, changed) = reached(rows.get(d - 1), at);
        let Some(place) = place else { break };
        let start = x.min(changed);
        y -= x - start;
        // One word of `a` is left out where the path comes from the left, else one of `b` is put in.
        let (removed, added) = match place < at {
            true => (start - 1..start, y..y),
            false => (start..start, y - 1..y),
        };
        (x, y) = (removed.start, added.start);
        match changes.last_mut() {
            Some((of_a, of_b)) if of_a.start == removed.end && of_b.start == added.end => {
                (of_a.start, of_b.start) = (removed.start, added.start);
            }
            _ => changes.push((removed, added)),
        }
        at = place;
    }
    changes.reverse();
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff<'t>(a: &'t str, b: &'t str) -> WordDiff<'t> {
        word_diff(a, b, &mut WordBudget::of_page())
    }

    fn marked(a: &str, b: &str) -> String {
        let hunks = diff(a, b).hunks.into_iter();
        let hunks = hunks.map(|one| match (one.removed, one.added) {
            ("", "") => one.equal.to_owned(),
            (removed, added) => format!("{}[{removed}|{added}]", one.equal),
        });
        hunks.collect()
    }

    /// What the differences make of the first text, and what they take as the first.
    fn patched(diff: &WordDiff<'_>) -> (String, String) {
        let side = |pick: fn(&WordHunk<'_>) -> String| diff.hunks.iter().map(pick).collect();
        (
            side(|one| format!("{}{}", one.equal, one.removed)),
            side(|one| format!("{}{}", one.equal, one.added)),
        )
    }

    #[test]
    fn words_that_differ_are_marked_and_all_else_is_equal() {
        for (a, b, expected) in [
            ("", "", ""),
            ("same text", "same text", "same text"),
            ("", "new", "[|new]"),
            ("old", "", "[old|]"),
            (
                "Say hello to Ann.",
                "Say hello to Bob.",
                "Say hello to [Ann|Bob].",
            ),
            ("a b c d", "a c d e", "a [b |]c d[| e]"),
            ("one two three", "one 2 3", "one [two three|2 3]"),
            ("{\"x\":1}", "{\"x\":12}", "{\"x\":[1|12]}"),
            ("grüße, ok", "grüsse, ok", "[grüße|grüsse], ok"),
        ] {
            assert_eq!(marked(a, b), expected, "{a} / {b}");
        }
    }

    /// Texts of few words, so that they have much in common; a fixed sequence.
    fn texts() -> impl Iterator<Item = String> {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let words = ["a", "b", "word", " ", " ", "\n", ".", "é", "\u{202e}", "{"];
        std::iter::from_fn(move || {
            let length = next(40);
            Some((0..length).map(|_| words[next(10) as usize]).collect())
        })
    }

    #[test]
    fn the_differences_make_the_second_text_of_the_first_whatever_they_are() {
        let texts: Vec<String> = texts().take(2_000).collect();
        for pair in texts.windows(2) {
            let [a, b] = pair else { unreachable!() };
            let diff = diff(a, b);
            assert!(diff.is_by_words);
            assert_eq!(patched(&diff), (a.clone(), b.clone()), "{a:?} / {b:?}");
        }
    }

    #[test]
    fn texts_that_are_too_long_or_too_different_are_one_change() {
        let word = "x".repeat(1024 * 1024);
        let many: String = (0..400_000).map(|n| format!("{n} ")).collect();
        let (even, odd): (Vec<u32>, Vec<u32>) = (0..20_000).partition(|n| n % 2 == 0);
        let text = |numbers: Vec<u32>| {
            let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
            words.join(" ")
        };
        let (even, odd) = (text(even), text(odd));
        for (a, b) in [(&word, &many), (&many, &word), (&even, &odd)] {
            let diff = diff(a, b);
            assert!(!diff.is_by_words);
            assert_eq!(diff.hunks.len(), 1);
            assert_eq!(patched(&diff), (a.clone(), b.clone()));
        }
        // A long text in which one word differs is none of them.
        let long: String = (0..30_000).map(|n| format!("{n} ")).collect();
        let other = long.replace(" 15000 ", " fifteen ");
        assert_eq!(diff(&long, &other).hunks.len(), 2);
    }

    #[test]
    fn all_comparisons_of_a_page_together_are_bounded() {
        let mut budget = WordBudget(1_000);
        let (a, b) = ("a b c ".repeat(40), "a c b ".repeat(40));
        assert!(word_diff("one", "two", &mut budget).is_by_words);
        let mut last = true;
        for _ in 0..10 {
            last = word_diff(&a, &b, &mut budget).is_by_words;
        }
        assert!(!last, "{budget:?}");
    }
}

//! The name that somebody probably meant, for hints.

/// The candidate a misspelt word probably means.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().min(word.len()) / 3 + 1)
        // Of two that are as far, the one that differs in case alone.
        .min_by_key(|(distance, candidate)| {
            (*distance, !candidate.eq_ignore_ascii_case(word), *candidate)
        })
        .map(|(_, candidate)| candidate)
}

/// Edits between two words; long words are cut, hints are for slips of the finger.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

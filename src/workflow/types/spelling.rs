//! The check whether a name is a misspelling of another one, with enough certainty for a warning
//! where nothing forbids the name: stricter than the hints of faults, which only suggest.

/// The declared name that was probably meant, if one is close.
pub fn likely_typo<'a>(name: &str, declared: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut close: Vec<(usize, &str)> = declared
        .into_iter()
        .filter(|one| *one != name)
        .filter_map(|one| Some((closeness(name, one)?, one)))
        .collect();
    close.sort_unstable();
    close.first().map(|(_, one)| *one)
}

/// The distance between two names, if they are close.
fn closeness(name: &str, declared: &str) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (
        name.chars().take(MAX_NAME).collect(),
        declared.chars().take(MAX_NAME).collect(),
    );
    if bare(&a) == bare(&b) {
        return Some(0);
    }
    // `line1` and `line2` are meant to differ.
    let digits = |name: &[char]| -> Vec<char> {
        let letters = name.iter().filter(|one| !one.is_ascii_digit());
        letters.copied().collect()
    };
    if digits(&a) == digits(&b) {
        return None;
    }
    let shorter = a.len().min(b.len());
    let most = match shorter {
        0..=2 => return None,
        3..=7 => 1,
        _ => 2,
    };
    let far = edits(&a, &b);
    (far <= most).then_some(far)
}

const MAX_NAME: usize = 64;

/// Without what naming conventions differ in.
fn bare(name: &[char]) -> String {
    let letters = name.iter().filter(|one| !matches!(one, '_' | '-'));
    letters.flat_map(|one| one.to_lowercase()).collect()
}

/// Letters put in, left out, replaced, or swapped with their neighbour.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = above[j] + usize::from(x != y);
            let mut best = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::likely_typo;

    #[test]
    fn a_slip_of_the_finger_is_distinguished_from_another_name() {
        for (name, meant) in [
            ("subjct", "subject"),
            ("sbuject", "subject"),
            ("subjects", "subject"),
            ("openedAt", "opened_at"),
            ("first_reply_ta", "first_reply_at"),
            ("tag", "tags"),
        ] {
            assert_eq!(likely_typo(name, ["zzz", meant]), Some(meant), "{name}");
        }
        for (name, other) in [
            ("in", "n"),
            ("id", "ip"),
            ("line1", "line2"),
            ("created_at", "updated_at"),
            ("subject", "subject"),
            ("message", "number"),
        ] {
            assert_eq!(likely_typo(name, [other]), None, "{name}");
        }
    }
}

//! Names that look like the name of a tool, or try to be taken for it, and are not.

use std::collections::BTreeSet;

/// Names of tools.
pub(crate) const NAMES: [&str; 4] = ["read", "write_file", "crm-get", "a.b/c:d"];

/// Characters that show little or nothing, end a text for some, or mean something to others.
const BETWEEN: [&str; 22] = [
    " ", "\u{a0}", "\u{2003}", "\t", "\n", "\r", "\0", "\u{7f}", "\u{8}", "\u{200b}", "\u{200d}",
    "\u{2060}", "\u{feff}", "\u{ad}", "\u{301}", "\u{202e}", "*", "?", "%", "\\", "\"", "'",
];

/// Other letters of the same looks.
const LOOKALIKES: [(char, &[char]); 8] = [
    ('a', &['\u{430}', '\u{ff41}', '\u{251}', 'A', '\u{1d41a}']),
    ('c', &['\u{441}', '\u{ff43}', 'C']),
    ('d', &['\u{501}', '\u{ff44}', 'D']),
    ('e', &['\u{435}', '\u{ff45}', 'E', '\u{e9}']),
    (
        'i',
        &['\u{456}', '\u{ff49}', 'I', '\u{131}', '\u{130}', 'l'],
    ),
    ('r', &['\u{433}', '\u{ff52}', 'R']),
    ('-', &['\u{2010}', '\u{2011}', '\u{2013}', '\u{2212}', '_']),
    ('_', &['\u{ff3f}', '\u{203f}', '-']),
];

/// Lookalikes of one name, each once, the name itself not among them.
fn of(name: &str) -> BTreeSet<String> {
    let places: Vec<usize> = name
        .char_indices()
        .map(|(at, _)| at)
        .chain([name.len()])
        .collect();
    let mut all = BTreeSet::new();
    for at in &places {
        let (before, after) = name.split_at(*at);
        all.extend(BETWEEN.map(|between| format!("{before}{between}{after}")));
        // Cut short, on either side.
        all.extend([before.to_owned(), after.to_owned()]);
    }
    for (at, letter) in name.char_indices() {
        let (before, after) = (&name[..at], &name[at + letter.len_utf8()..]);
        let others = LOOKALIKES.iter().find(|(known, _)| *known == letter);
        let others = others.map_or(&[][..], |(_, others)| others);
        all.extend(others.iter().map(|other| format!("{before}{other}{after}")));
        // A pattern instead of the letter, its escape, and nothing.
        all.extend(["*", "?", "."].map(|any| format!("{before}{any}{after}")));
        all.insert(format!("{before}[{letter}]{after}"));
        all.insert(format!("{before}%{:02x}{after}", u32::from(letter)));
        all.insert(format!("{before}\\u{:04x}{after}", u32::from(letter)));
        all.insert(format!("{before}{after}"));
        all.insert(format!("{before}{}{after}", letter.to_ascii_uppercase()));
    }
    all.extend([
        name.to_uppercase(),
        format!("{name}{name}"),
        format!("{name}s"),
        format!("x{name}"),
        format!("{name}/"),
        format!("/{name}"),
        format!("./{name}"),
        format!("other__{name}"),
        format!("^{name}$"),
        format!("{name}|drop"),
        format!("{name},drop"),
        format!("{{{name},drop}}"),
        format!("{name}\0drop"),
        format!("{name}{}", "x".repeat(10_240)),
        format!("{name}{}", "\0".repeat(10_240)),
        format!("{}{name}", " ".repeat(10_240)),
    ]);
    all.remove(name);
    all
}

/// All of them, with the name they are taken for.
pub(crate) fn all() -> Vec<(&'static str, String)> {
    let pairs = NAMES
        .iter()
        .flat_map(|name| of(name).into_iter().map(move |other| (*name, other)));
    pairs.collect()
}

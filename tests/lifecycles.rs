//! How many files know the events of lives. The tables in `projections/src/life` are to know them,
//! and what follows a life is to ask `life::changes` or a fold; so the counts may fall, and not
//! rise. `KTSU_COUNTS=1 cargo test --test architecture lifecycles` shows them, with the files.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::circles::tokens;
use super::{bare, collect, test_files, without_tests};

/// The events, the tables, and the claims of the verifier, which read lives apart from them
/// (docs/adr/0025-verifiers-read-lives-apart.md).
const HOMES: [&str; 3] = ["ledger/", "projections/src/life/", "src/evidence/check/"];

/// Files that say something of one frame at a time, and follow nothing.
const OF_ONE_FRAME: [(&str, &[&str]); 4] = [
    (
        "what a reader sees of a frame",
        &[
            "projections/src/lineage.rs",
            "projections/src/lineage/agents.rs",
            "projections/src/world/describe.rs",
            "src/cli/content.rs",
            "src/cli/content/tools.rs",
            "src/cli/content/webhooks.rs",
            "src/cli/frames.rs",
            "src/history/step_record/inputs.rs",
            "src/history/step_record/mod.rs",
        ],
    ),
    ("the log line of a frame", &["src/telemetry/milestone.rs"]),
    (
        "what a frame is compared by",
        &["projections/src/normalize.rs"],
    ),
    (
        "the numbers that a frame names",
        &["src/workflow/simulate/renumber.rs"],
    ),
];

/// The most files, apart from those, that match on events.
const MAX_MATCHING: usize = 85;
/// The most files that match on `branch.created`.
const MAX_FORKS: usize = 6;
/// The most lines of or-patterns of events, outside the homes.
const MAX_ALTERNATIVES: usize = 122;

/// The groups of events, as `Event::GROUP` and `GROUPEvent::…` name them.
const GROUPS: [&str; 13] = [
    "Run",
    "Recompute",
    "Step",
    "Item",
    "Agent",
    "Worker",
    "Webhook",
    "Person",
    "World",
    "Kv",
    "Delivery",
    "Eval",
    "Store",
];

#[test]
fn the_events_of_lives_are_matched_in_few_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut matching = BTreeMap::new();
    let (mut forks, mut alternatives) = (Vec::new(), 0);
    for path in sources(root) {
        let text = std::fs::read_to_string(root.join(&path)).expect("a source");
        let code = without_tests(&bare(&text));
        let found = patterns(&tokens(&code));
        if found.is_empty() || HOMES.iter().any(|home| path.starts_with(home)) {
            continue;
        }
        if found.iter().any(|variant| variant == "Branched") {
            forks.push(path.clone());
        }
        alternatives += code.lines().filter(|line| is_alternative(line)).count();
        matching.insert(path, found.len());
    }
    let one_frame = OF_ONE_FRAME.iter().flat_map(|(_, files)| *files);
    let stale: Vec<&&str> = one_frame
        .filter(|file| matching.remove(**file).is_none())
        .collect();
    let counts = [matching.len(), forks.len(), alternatives];
    let listed = matching
        .iter()
        .map(|(path, count)| format!("{count:4} {path}\n"));
    let listed: String = listed.collect();
    let words = "files, files with branch.created, lines of or-patterns";
    let shown = format!("{listed}{words}: {counts:?}\n{forks:?}");
    if std::env::var_os("KTSU_COUNTS").is_some() {
        writeln!(std::io::stdout(), "{shown}").expect("standard output");
    }
    assert!(stale.is_empty(), "match on no event any more: {stale:?}");
    let most = [MAX_MATCHING, MAX_FORKS, MAX_ALTERNATIVES];
    let within = counts.iter().zip(most).all(|(count, most)| *count <= most);
    assert!(within, "more than {most:?}\n{shown}");
}

/// The sources that are no tests, from the root.
pub(super) fn sources(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for folder in ["src", "ledger/src", "projections/src"] {
        collect(&root.join(folder), &mut files);
    }
    let tests: Vec<PathBuf> = files.iter().flat_map(|file| test_files(file)).collect();
    let is_test = |file: &PathBuf| {
        let of = |test: &PathBuf| file == test || file.starts_with(test.with_extension(""));
        tests.iter().any(of) || file.to_string_lossy().ends_with("_tests.rs")
    };
    files.retain(|file| !is_test(file));
    let name = |file: &PathBuf| {
        file.strip_prefix(root)
            .expect("below")
            .display()
            .to_string()
    };
    let mut names: Vec<String> = files.iter().map(name).collect();
    names.sort();
    names
}

fn is_group(word: &str) -> bool {
    GROUPS.contains(&word) || word == "Foreign"
}

/// Whether a line is one alternative of a pattern.
fn is_alternative(line: &str) -> bool {
    let rest = line.trim_start().strip_prefix("| ");
    rest.is_some_and(|rest| !patterns_anywhere(&tokens(rest)).is_empty())
}

/// The variants of events that a text names, as patterns or as values, with their places.
fn patterns_anywhere(tokens: &[String]) -> Vec<(usize, String)> {
    let named = |at: usize| {
        let [enumeration, colons, variant] = [0, 1, 2].map(|next| word(tokens, at + next));
        let of_group = enumeration.strip_suffix("Event");
        let event = match of_group {
            Some("") => is_group(variant),
            Some(group) => GROUPS.contains(&group) && variant.starts_with(char::is_uppercase),
            None => false,
        };
        (event && colons == "::").then(|| (at, variant.to_owned()))
    };
    (0..tokens.len()).filter_map(named).collect()
}

/// The variants of events that are matched on.
fn patterns(tokens: &[String]) -> Vec<String> {
    let named = patterns_anywhere(tokens).into_iter();
    let matched = named.filter(|(at, _)| is_matched(tokens, *at));
    matched.map(|(_, variant)| variant).collect()
}

/// Whether what a path begins at a token is part of a pattern: an arm, a `let`, or a `matches!`.
fn is_matched(tokens: &[String], at: usize) -> bool {
    if in_matches(tokens, at) {
        return true;
    }
    let mut next = at + 3;
    loop {
        match word(tokens, next) {
            "(" | "{" => next = closing(tokens, next) + 1,
            ")" => next += 1,
            "," => match enclosing_end(tokens, next) {
                Some(end) => next = end + 1,
                None => return false,
            },
            "|" => return word(tokens, next + 1) != "|",
            "=" => return word(tokens, next + 1) != "=",
            "if" => return true,
            _ => return false,
        }
    }
}

/// Whether a token stands behind the comma of a `matches!(…, …)`.
fn in_matches(tokens: &[String], at: usize) -> bool {
    let (mut depth, mut comma) = (0usize, false);
    for back in (0..at).rev() {
        match word(tokens, back) {
            ")" | "]" | "}" => depth += 1,
            "(" | "[" | "{" if depth > 0 => depth -= 1,
            "(" => {
                let called = back.checked_sub(2).map(|before| word(tokens, before));
                if comma && called == Some("matches") && word(tokens, back - 1) == "!" {
                    return true;
                }
                comma = false;
            }
            "," if depth == 0 => comma = true,
            ";" if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

/// Where the parenthesis that opens at a token closes.
fn closing(tokens: &[String], at: usize) -> usize {
    let mut depth = 0usize;
    for next in at..tokens.len() {
        match word(tokens, next) {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return next;
        }
    }
    tokens.len()
}

/// Where the group around a token closes.
fn enclosing_end(tokens: &[String], at: usize) -> Option<usize> {
    let mut next = at;
    while next < tokens.len() {
        match word(tokens, next) {
            "(" | "[" | "{" => next = closing(tokens, next) + 1,
            ")" | "]" | "}" => return Some(next),
            _ => next += 1,
        }
    }
    None
}

fn word(tokens: &[String], at: usize) -> &str {
    tokens.get(at).map_or("", String::as_str)
}

#[test]
fn patterns_are_distinguished_from_values() {
    let found = |code: &str| patterns(&tokens(code)).len();
    assert_eq!(
        found("match e { Event::Run(RunEvent::Paused(_)) => 1, _ => 2 }"),
        2
    );
    assert_eq!(found("if let Event::Run(event) = &frame.event {}"), 1);
    assert_eq!(
        found("let Some(Event::Kv(event)) = one else { return };"),
        1
    );
    assert_eq!(found("matches!(event, AgentEvent::Request(_)) && more"), 1);
    assert_eq!(
        found("(StepEvent::Noted(_), _) | (StepEvent::Started(_), 1) => 2"),
        2
    );
    assert_eq!(
        found("unit.push(Event::Run(RunEvent::Started(started)), vec![0]);"),
        0
    );
    assert_eq!(
        found("let event = Event::Agent(AgentEvent::Finished(end));"),
        0
    );
    assert_eq!(
        found("Some(one) => Event::Store(StoreEvent::Opened(one)),"),
        0
    );
    assert!(is_alternative("            | Event::Kv(_)") && !is_alternative("a | b"));
}

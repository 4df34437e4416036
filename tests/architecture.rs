//! What the borders of crates cannot say: who must never depend on whom, which words belong to some
//! crates only, and that the architecture page shows the crates as they are. Words are read from the
//! text of the sources: comments, strings and test code do not count.

mod circles;
mod lifecycles;
mod names;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Longer than this, a file holds two things.
const MAX_LINES: usize = 600;

/// Crates that a crate must not depend on, whatever the page says. The compiler holds everything
/// else: what is no dependency cannot be imported.
const FORBIDDEN: [(&str, &[&str]); 6] = [
    (
        "schema",
        &["orchestrator", "runtime", "gateway", "workflow", "kit"],
    ),
    ("orchestrator", &["runtime", "gateway"]),
    (
        "runtime",
        &["orchestrator", "gateway", "workflow", "ledger"],
    ),
    (
        "gateway",
        &["orchestrator", "runtime", "workflow", "ledger", "kit"],
    ),
    ("history", &["peer", "egress", "orchestrator"]),
    (
        "telemetry",
        &["orchestrator", "workflow", "kit", "server", "history"],
    ),
];

/// What the pure crates may depend on.
const PURE: [(&str, &[&str]); 6] = [
    ("codes", &[]),
    ("delivery", &["codes", "ledger"]),
    (
        "eval",
        &[
            "codes",
            "config",
            "ledger",
            "projections",
            "schema",
            "workflow",
        ],
    ),
    ("schema", &["codes", "ledger"]),
    ("projections", &["ledger"]),
    ("workflow", &["codes", "ledger", "projections", "schema"]),
];

/// Words that belong to some crates only.
const WORDS: [(&[&str], &[&str], &str); 2] = [
    (
        &["reqwest", "TcpStream::connect", "TcpSocket", "UdpSocket"],
        &["egress", "peer"],
        "goes out",
    ),
    (
        &["println", "print", "eprintln", "eprint", "anstream"],
        &["cli"],
        "prints",
    ),
];

/// Words of the world, which pure parts do not know.
const IMPURE: [&str; 11] = [
    "SystemTime",
    "Instant",
    "std::env",
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "tokio",
    "rand",
    "thread",
    "OsRng",
];

#[test]
fn every_file_is_short_and_keeps_to_its_own_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "ledger/src", "projections/src"] {
        collect(&root.join(folder), &mut files);
    }
    assert!(files.len() > 10, "only {} sources found", files.len());
    let of_tests: BTreeSet<PathBuf> = files.iter().flat_map(|file| test_files(file)).collect();
    let mut faults = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a source");
        let path = file
            .strip_prefix(root)
            .expect("below the root")
            .to_string_lossy()
            .into_owned();
        if text.lines().count() > MAX_LINES {
            faults.push(format!("{path}: more than {MAX_LINES} lines"));
        }
        if !of_tests
            .iter()
            .any(|test| file == test || file.starts_with(test.with_extension("")))
        {
            faults.extend(check(&path, &text));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_crates_and_what_they_use_are_those_of_the_architecture_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/architecture.md")).expect("the page");
    let written: BTreeSet<&str> = page
        .lines()
        .filter(|line| line.starts_with("| [`"))
        .collect();
    let rows: BTreeSet<String> = manifests(root)
        .iter()
        .map(|(name, folder, manifest)| row(name, folder, manifest))
        .collect();
    let missing: Vec<_> = rows
        .iter()
        .filter(|row| !written.contains(row.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/architecture.md lacks\n{missing:#?}"
    );
    assert_eq!(
        written.len(),
        rows.len(),
        "docs/architecture.md has rows of no crate"
    );
}

#[test]
fn no_crate_depends_on_one_that_it_must_not_know() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = manifests(root);
    assert!(crates.len() > 20, "{}", crates.len());
    let faults: Vec<String> = crates
        .iter()
        .flat_map(|(name, _, manifest)| not_allowed(name, &uses(manifest)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let uses = ["ledger".to_owned()];
    assert_eq!(not_allowed("runtime", &uses).len(), 1);
    assert_eq!(not_allowed("codes", &uses).len(), 1);
    assert_eq!(not_allowed("kit", &uses).len(), 0);
}

fn not_allowed(name: &str, uses: &[String]) -> Vec<String> {
    let forbidden = FORBIDDEN.iter().filter(|(who, _)| *who == name);
    let forbidden: Vec<&str> = forbidden
        .flat_map(|(_, what)| what.iter().copied())
        .collect();
    let pure = PURE.iter().find(|(who, _)| *who == name);
    let leaves = |used: &str| pure.is_some_and(|(_, allowed)| !allowed.contains(&used));
    let faults = uses
        .iter()
        .filter(|used| forbidden.contains(&used.as_str()) || leaves(used));
    faults
        .map(|used| format!("{name} must not depend on {used}"))
        .collect()
}

/// Every crate of the workspace but the root, with its folder and its manifest.
fn manifests(root: &Path) -> Vec<(String, String, String)> {
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace");
    let (_, members) = workspace.split_once("members = [").expect("members");
    let (members, _) = members.split_once(']').expect("the end of members");
    let folders = members.split(',').map(|one| one.trim().trim_matches('"'));
    let folders = folders.filter(|folder| !folder.is_empty());
    let crates = folders.map(|folder| {
        let manifest = root.join(folder).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).expect("a manifest");
        let name = value(&manifest, "name")
            .trim_start_matches("ktsu-")
            .to_owned();
        (name, folder.to_owned(), manifest)
    });
    crates.collect()
}

fn value<'m>(manifest: &'m str, key: &str) -> &'m str {
    let start = format!("{key} = \"");
    let line = manifest.lines().find_map(|line| line.strip_prefix(&start));
    line.and_then(|line| line.strip_suffix('"'))
        .expect("a value")
}

/// The crates of the workspace that a crate depends on outside of its tests.
fn uses(manifest: &str) -> Vec<String> {
    let (_, dependencies) = manifest.split_once("[dependencies]").expect("dependencies");
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    let names = dependencies.lines().filter_map(|line| {
        let name = line.strip_prefix("ktsu-")?;
        name.split(['.', ' ']).next().map(str::to_owned)
    });
    names.collect()
}

/// The row of a crate in the table of the architecture page.
fn row(name: &str, folder: &str, manifest: &str) -> String {
    let uses: Vec<String> = uses(manifest)
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    let about = value(manifest, "description");
    format!("| [`{name}`](../{folder}) | {about} | {} |", uses.join(" "))
}

#[test]
fn every_property_has_the_seed_and_the_size_of_the_campaign() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "ledger", "projections", "tests"] {
        collect(&root.join(folder), &mut files);
    }
    let opening = concat!("proptest", "! {");
    let mut properties = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        for (at, _) in text.match_indices(opening) {
            properties += 1;
            let inside = text[at + opening.len()..].trim_start();
            assert!(
                inside.starts_with("#![proptest_config(ktsu_campaign::config("),
                "{}: a property without ktsu_campaign::config",
                file.display()
            );
        }
    }
    assert!(properties > 20, "only {properties} properties found");
}

#[test]
fn the_checker_bites() {
    for (path, text) in [
        (
            "src/workflow/next.rs",
            "use std::{collections::BTreeMap, fs};",
        ),
        ("src/workflow/next.rs", "fn f(at: std::time::Instant) {}"),
        (
            "projections/src/run.rs",
            "fn f<'a>(c: char) { c == '\"'; std::env::var(\"X\"); }",
        ),
        ("src/receiver/lib.rs", "TcpStream::connect(address)"),
        ("src/api/lib.rs", "println!(\"{x}\")"),
        ("ledger/src/appender.rs", "tokio::spawn(f)"),
        ("ledger/src/lib.rs", "unsafe { x() }"),
    ] {
        assert_eq!(
            check(path, text).len(),
            1,
            "{path}: {text}: {:?}",
            check(path, text)
        );
    }
}

#[test]
fn comments_strings_and_tests_do_not_count() {
    for (path, text) in [
        (
            "src/workflow/a.rs",
            "// std::env\n/* std::net /* x */ tokio */ //! std::fs",
        ),
        (
            "src/workflow/a.rs",
            "let a = (\"tokio \\\" std::fs\", r#\"rand \" thread\"#, b\"Instant\");",
        ),
        (
            "src/workflow/a.rs",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n",
        ),
        (
            "src/workflow/a.rs",
            "use std::time::Duration; let operand = random; let größe = 1;",
        ),
        ("src/peer/lib.rs", "reqwest::Client::new()"),
        ("src/cli/run.rs", "println!()"),
        ("src/server/lib.rs", "fn f(stream: TcpStream) {}"),
    ] {
        assert_eq!(check(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

/// What is wrong with one source.
fn check(path: &str, text: &str) -> Vec<String> {
    let code = without_tests(&bare(text));
    let module = path.strip_prefix("src/").unwrap_or(path);
    let module = module.split(['/', '.']).next().unwrap_or_default();
    let mut faults = Vec::new();
    for (words, modules, what) in WORDS {
        if words.iter().any(|word| has(&code, word)) && !modules.contains(&module) {
            faults.push(format!("{path}: {what}"));
        }
    }
    let pure = PURE.iter().any(|(name, _)| *name == module);
    let std: Vec<String> = heads(&code, "std")
        .iter()
        .map(|head| format!("std::{head}"))
        .collect();
    let impure = |word: &&&str| has(&code, word) || std.iter().any(|head| head == **word);
    if let Some(word) = IMPURE.iter().find(impure).filter(|_| pure) {
        faults.push(format!("{path}: knows {word}"));
    }
    if path.starts_with("ledger/") && has(&code, "tokio") {
        faults.push(format!("{path}: knows tokio"));
    }
    if has(&code, "unsafe") {
        faults.push(format!("{path}: is unsafe"));
    }
    faults
}

/// The first names after `root::`, in groups too.
fn heads(code: &str, root: &str) -> BTreeSet<String> {
    let mut heads = BTreeSet::new();
    let start = format!("{root}::");
    for (at, _) in code.match_indices(&start) {
        // Neither `mycrate::` nor one more `super::` before these.
        if code[..at].ends_with(|c: char| is_word(c) || c == ':') || root.is_empty() {
            continue;
        }
        let rest = code[at + start.len()..].trim_start();
        let Some(group) = rest.strip_prefix('{') else {
            heads.insert(rest.chars().take_while(|c| is_word(*c)).collect());
            continue;
        };
        let mut depth = 0;
        let member = |c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && c == ','
        };
        let end = end_of_group(group);
        for item in group[..end].split(member) {
            heads.insert(
                item.trim_start()
                    .chars()
                    .take_while(|c| is_word(*c))
                    .collect(),
            );
        }
    }
    heads
}

fn end_of_group(text: &str) -> usize {
    let mut depth = 1;
    let closes = |(_, c): &(usize, char)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth == 0
    };
    text.char_indices()
        .find(closes)
        .map_or(text.len(), |(at, _)| at)
}

/// Whether a word, or a path, stands in the code.
fn has(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        !code[..at].ends_with(is_word) && !code[at + word.len()..].starts_with(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The code without comments and without what stands in quotes.
fn bare(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let hashes = if c == 'r' {
            rest[1..].chars().take_while(|c| *c == '#').count()
        } else {
            0
        };
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if c == 'r' && rest[1 + hashes..].starts_with('"') && !code.ends_with(is_word_but_b)
        {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = 2 + hashes;
            rest[body..]
                .find(&end)
                .map_or(rest.len(), |at| body + at + end.len())
        } else if c == '"' {
            quoted(rest, '"')
        } else if c == '\'' && is_char_literal(rest) {
            quoted(rest, '\'')
        } else {
            0
        };
        if skipped > 0 {
            code.push(' ');
        } else {
            code.push(c);
        }
        rest = &rest[if skipped > 0 { skipped } else { c.len_utf8() }..];
    }
    code
}

fn is_word_but_b(c: char) -> bool {
    is_word(c) && c != 'b'
}

/// A lifetime has no quote two characters on, a character has; an escape is a character.
fn is_char_literal(text: &str) -> bool {
    let mut after = text.chars().skip(1);
    after.next() == Some('\\') || after.next() == Some('\'')
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    let ends = |(_, c): &(usize, char)| {
        let end = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        end
    };
    let end = text.char_indices().skip(1).find(ends);
    end.map_or(text.len(), |(at, _)| at + 1)
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// Without items marked `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("#[cfg(test)]") {
        kept.push_str(before);
        let end = after.find(['{', ';', ',']).unwrap_or(after.len());
        rest = &after[end..];
        if let Some(body) = rest.strip_prefix('{') {
            rest = &body[end_of_group(body)..];
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    kept + rest
}

/// The files a source declares with `#[cfg(test)] mod NAME;`.
fn test_files(file: &Path) -> Vec<PathBuf> {
    let code = bare(&std::fs::read_to_string(file).expect("a source"));
    let stem = file
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let folder = match stem {
        "mod" | "lib" | "main" => file.with_file_name(""),
        _ => file.with_extension(""),
    };
    let declared = code.split("#[cfg(test)]").skip(1).filter_map(|after| {
        let after = after.trim_start().trim_start_matches("pub(crate) ");
        let (name, _) = after.strip_prefix("mod ")?.split_once(';')?;
        name.chars()
            .all(is_word)
            .then(|| folder.join(format!("{name}.rs")))
    });
    declared.collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

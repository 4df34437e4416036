//! Who may import what, and which words do not belong where. Read from the text of the sources:
//! comments, strings and test code do not count.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Longer than this, a file holds two things.
const MAX_LINES: usize = 600;

/// Modules of the crate that a module must not import.
const FORBIDDEN: [(&str, &[&str]); 6] = [
    (
        "schema",
        &["orchestrator", "runtime", "gateway", "workflow", "kit"],
    ),
    ("orchestrator", &["runtime", "gateway"]),
    (
        "runtime",
        &["orchestrator", "gateway", "workflow", "ktsu_ledger"],
    ),
    (
        "gateway",
        &["orchestrator", "runtime", "workflow", "ktsu_ledger"],
    ),
    ("history", &["peer", "egress"]),
    (
        "telemetry",
        &["orchestrator", "workflow", "kit", "http", "history"],
    ),
];

/// Modules that only some others may import.
const RESERVED: [(&str, &[&str]); 2] = [
    ("orchestrator", &["orchestrator", "assemble", "http", "cli"]),
    ("history", &["history", "assemble", "http", "cli"]),
];

/// Words that belong to some modules only.
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
fn every_file_keeps_the_rules_of_import() {
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
fn every_file_has_its_sentence_in_the_architecture() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("docs/architecture.md")).expect("the page");
    let mut missing = Vec::new();
    for folder in ["ledger/src", "projections/src", "src"] {
        let mut files = Vec::new();
        collect(&root.join(folder), &mut files);
        for file in files {
            let path = file
                .strip_prefix(root.join(folder))
                .expect("below the folder");
            let is_test =
                path.ends_with("cases.rs") || path.to_string_lossy().ends_with("tests.rs");
            let row = format!("| `{}` | ", path.display());
            if !is_test && !document.contains(&row) {
                missing.push(format!("{folder}/{}", path.display()));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "docs/architecture.md leaves out\n{}",
        missing.join("\n")
    );
}

#[test]
fn the_checker_bites() {
    for (path, text) in [
        ("src/workflow/next.rs", "use crate::kit::Kit;"),
        ("src/workflow/mod.rs", "fn f() { super::egress::g() }"),
        ("src/workflow/a/b.rs", "use super::super::super::secret;"),
        (
            "src/workflow/next.rs",
            "use std::{collections::BTreeMap, fs};",
        ),
        ("src/workflow/next.rs", "fn f(at: std::time::Instant) {}"),
        (
            "projections/src/run.rs",
            "fn f<'a>(c: char) { c == '\"'; std::env::var(\"X\"); }",
        ),
        (
            "src/orchestrator/run.rs",
            "use crate::{contract, gateway::Route};",
        ),
        ("src/runtime.rs", "use ktsu_ledger::Frame;"),
        ("src/gateway/mod.rs", "use crate::workflow;"),
        (
            "src/history/trace.rs",
            "use crate::{\n    history::x,\n    peer,\n};",
        ),
        ("src/kit/mod.rs", "crate::orchestrator::start();"),
        ("src/receiver.rs", "TcpStream::connect(address)"),
        ("src/http/mod.rs", "println!(\"{x}\")"),
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
fn comments_strings_tests_and_allowed_imports_do_not_count() {
    for (path, text) in [
        (
            "src/workflow/a.rs",
            "// use crate::kit;\n/* crate::kit /* x */ tokio */ //! std::fs",
        ),
        (
            "src/workflow/a.rs",
            "let a = (\"tokio \\\" std::fs\", r#\"rand \" thread\"#, b\"Instant\");",
        ),
        (
            "src/workflow/a.rs",
            "use crate::workflow::x; use ktsu_ledger::Json; use super::b;",
        ),
        (
            "src/workflow/a.rs",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n",
        ),
        (
            "src/workflow/a.rs",
            "use std::time::Duration; let operand = random; let größe = 1;",
        ),
        ("src/peer.rs", "reqwest::Client::new()"),
        ("src/cli/run.rs", "use crate::orchestrator; println!()"),
        ("src/http/server.rs", "fn f(stream: TcpStream) {}"),
    ] {
        assert_eq!(check(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

/// What is wrong with one source.
fn check(path: &str, text: &str) -> Vec<String> {
    let code = without_tests(&bare(text));
    let mut parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    parts.retain(|part| !matches!(*part, "src" | "mod" | "lib" | "main"));
    let crate_of_its_own =
        matches!(parts.first(), Some(&"ledger" | &"projections")) && !path.starts_with("src/");
    let module = if crate_of_its_own {
        ""
    } else {
        parts.first().copied().unwrap_or_default()
    };
    let mut imports = heads(&code, "crate");
    imports.extend(heads(&code, &vec!["super"; parts.len()].join("::")));
    imports.extend(
        ["ktsu_ledger"]
            .iter()
            .filter(|name| has(&code, name))
            .map(|&name| name.into()),
    );
    let mut faults = Vec::new();
    if !crate_of_its_own {
        for import in &imports {
            let forbids =
                |(who, what): &(&str, &[&str])| *who == module && what.contains(&&**import);
            let reserves = |(what, who): &(&str, &[&str])| what == import && !who.contains(&module);
            let leaves =
                module == "workflow" && !["workflow", "schema", "ktsu_ledger"].contains(&&**import);
            if leaves || FORBIDDEN.iter().any(forbids) || RESERVED.iter().any(reserves) {
                faults.push(format!("{path}: imports {import}"));
            }
        }
    }
    for (words, modules, what) in WORDS {
        if words.iter().any(|word| has(&code, word)) && !modules.contains(&module) {
            faults.push(format!("{path}: {what}"));
        }
    }
    let pure = ["workflow", "schema"].contains(&module) || path.starts_with("projections/");
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

//! Every reference in the kits of this repository, misspelt: each slip is found at its line.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use ktsu_config::fault::{Fault, Severity};
use ktsu_kit as kit;

use super::sound::{ktsu, written};
use crate::support::campaign;

/// How many slips there are at the least in a full campaign.
const LEAST: usize = 300;

/// Set to anything, each reference is misspelt in every way; otherwise each in one of them.
const EVERY: &str = "KTSU_TEST_EVERY_SLIP";

#[test]
fn every_misspelt_reference_of_the_shipped_kits_is_found_at_its_line() {
    let mut tried = 0;
    let mut errors = 0;
    let mut missed = Vec::new();
    for (name, files) in shipped() {
        let dir = written(&files);
        for (path, text) in &files {
            for (at, slip) in slips(path, text).into_iter().step_by(campaign(3, 1)) {
                let mutated = format!("{}{slip}{}", &text[..at.start], &text[at.end..]);
                std::fs::write(dir.path().join(path), &mutated).unwrap();
                let line = text[..at.start].matches('\n').count() + 1;
                let found = faults(dir.path());
                let found: Vec<&Fault> = found
                    .iter()
                    .filter(|fault| fault.file == Path::new(path) && fault.line == line)
                    .collect();
                tried += 1;
                let error = found.iter().any(|fault| fault.severity == Severity::Error);
                errors += usize::from(error);
                let row = text.lines().nth(line - 1).unwrap_or_default();
                // What an agent leaves for its next attempt, and is given for it, has no shape here.
                let is_open = row.contains("{{ resume.");
                if found.is_empty() && !is_open {
                    missed.push(format!("{name}/{path}:{line}: {slip} in {}", row.trim()));
                }
            }
            std::fs::write(dir.path().join(path), text).unwrap();
        }
    }
    assert!(
        missed.is_empty(),
        "{} of {tried}:\n{}",
        missed.len(),
        missed.join("\n")
    );
    assert!(tried * campaign(3, 1) >= LEAST, "{tried}");
    // Warnings are for schemas that stay open: the params of hello, the rows of an export.
    assert!(errors * 5 >= tried * 4, "{errors} of {tried} are errors");
}

/// A slip is not only told: the command ends with 1, and where a schema is open with 0 and a warning.
#[test]
fn validate_ends_with_1_for_a_field_that_cannot_exist_and_with_0_for_one_that_might() {
    let (_, files) = shipped()
        .into_iter()
        .find(|(name, _)| name == "hello")
        .unwrap();
    let path = "workflows/hello.workflow.yaml";
    for (from, to, code, word) in [
        (
            "step.greet.result",
            "step.greet.reslt",
            1,
            "did you mean result?",
        ),
        (
            "{name: name, text",
            "{name: nmae, text",
            0,
            "did you mean name?",
        ),
    ] {
        let mut files = files.clone();
        let text = files.get_mut(path).unwrap();
        assert!(text.contains(from), "{from}");
        *text = text.replace(from, to);
        let dir = written(&files);
        let told = ktsu().arg("validate").arg(dir.path()).output().unwrap();
        let words = format!(
            "{}{}",
            String::from_utf8_lossy(&told.stdout),
            String::from_utf8_lossy(&told.stderr)
        );
        assert_eq!(told.status.code(), Some(code), "{words}");
        assert!(words.contains(word), "{words}");
    }
}

fn faults(dir: &Path) -> Vec<Fault> {
    match kit::load(dir) {
        Ok(kit) => kit.warnings.faults,
        Err(faults) => faults.faults,
    }
}

/// The YAML files of each kit, by its name.
fn shipped() -> Vec<(String, BTreeMap<String, String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits");
    let mut kits = Vec::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let mut files = BTreeMap::new();
        super::kits::gather(&path, &path, &mut files);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        kits.push((name, files));
    }
    kits.sort();
    kits
}

/// Every reference of a file, each misspelt in several ways.
fn slips(path: &str, text: &str) -> Vec<(Range<usize>, String)> {
    let expressions = match path.split('/').next() {
        Some("workflows") => [templates(text), bare(text)].concat(),
        Some("agents") => templates(text),
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    for region in expressions {
        found.extend(names(text, region));
    }
    found.extend(listed(text));
    found.sort_by_key(|at| at.start);
    found.dedup();
    let every = std::env::var_os(EVERY).is_some();
    let misspelt = found.into_iter().enumerate().flat_map(|(number, at)| {
        let ways = misspellings(&text[at.clone()]);
        let (from, most) = if every {
            (0, ways.len())
        } else {
            (number % ways.len(), 1)
        };
        let ways = ways.into_iter().skip(from).take(most);
        ways.map(move |slip| (at.clone(), slip))
    });
    misspelt.collect()
}

/// One letter too few, two in the wrong order, one twice.
fn misspellings(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let middle = letters.len() / 2;
    let mut fewer = letters.clone();
    fewer.remove(middle);
    let mut swapped = letters.clone();
    if let Some(at) = (1..letters.len()).find(|at| letters[*at] != letters[at - 1]) {
        swapped.swap(at, at - 1);
    }
    let mut more = letters.clone();
    more.insert(middle, letters[middle]);
    let mut all: Vec<String> = [fewer, swapped, more]
        .into_iter()
        .filter(|slip| *slip != letters && !slip.is_empty() && !slip[0].is_ascii_digit())
        .map(|slip| slip.into_iter().collect())
        .collect();
    all.dedup();
    all
}

/// Where `{{ … }}` stands.
fn templates(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find("{{").map(|found| at + found) {
        let end = open + text[open..].find("}}").unwrap();
        found.push(open + 2..end);
        at = end;
    }
    found
}

/// Where expressions stand without braces around them.
fn bare(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for key in ["condition:", "expr:", "field:", "from:"] {
        for (at, _) in text.match_indices(key) {
            let begins = text[..at].ends_with([' ', '{', '\n']);
            if begins {
                found.extend(value(text, at + key.len()));
            }
        }
    }
    for key in ["merge:", "inputs:"] {
        for (at, _) in text.match_indices(key) {
            let line = &text[at..at + text[at..].find('\n').unwrap()];
            if let (Some(open), Some(close)) = (line.find('['), line.find(']')) {
                found.push(at + open + 1..at + close);
            }
        }
    }
    found
}

/// The text of a value: in quotes, over several lines, or until the end of its line or map.
fn value(text: &str, after: usize) -> Option<Range<usize>> {
    let line = &text[after..after + text[after..].find('\n')?];
    let start = after + line.len() - line.trim_start().len();
    let rest = &text[start..];
    if rest.starts_with(">-") {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let begun = text[..after].rfind('\n').map_or(0, |at| at + 1);
        let own = indent(&text[begun..]);
        let mut end = start;
        for line in rest.split_inclusive('\n') {
            if end > start && !line.trim().is_empty() && indent(line.trim_end()) <= own {
                break;
            }
            end += line.len();
        }
        return Some(start + 2..end);
    }
    if let Some(quoted) = rest.strip_prefix('"') {
        return Some(start + 1..start + 1 + quoted.find('"')?);
    }
    let end = rest.find(['}', ',', '\n'])?;
    Some(start..start + end)
}

/// The names in an expression: not text, not the keys of what it makes, not null.
fn names(text: &str, region: Range<usize>) -> Vec<Range<usize>> {
    let source = &text[region.clone()];
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(one) = source[at..].chars().next() {
        match one {
            '\'' | '`' => {
                let end = source[at + 1..]
                    .find(one)
                    .map_or(source.len(), |end| at + end + 2);
                at = end;
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                let length = source[at..].find(|c| !is_part(c));
                let end = length.map_or(source.len(), |length| at + length);
                let is_key = source[end..].trim_start().starts_with(':');
                if !is_key && &source[at..end] != "null" {
                    found.push(region.start + at..region.start + end);
                }
                at = end;
            }
            other => at += other.len_utf8(),
        }
    }
    found
}

/// The steps that are waited for by name.
fn listed(text: &str) -> Vec<Range<usize>> {
    let lists = text.match_indices("depends_on: [").map(|(at, key)| {
        let start = at + key.len();
        start..start + text[start..].find(']').unwrap()
    });
    lists.flat_map(|list| names(text, list)).collect()
}

#[test]
fn the_references_of_a_file_are_what_they_are_taken_for() {
    let text = "pipeline:\n  - id: a\n    depends_on: [b-c]\n    condition: \"x.y == 'no' && `1`\"\n    \
                transform:\n      inputs: [step.q]\n      ops:\n        - map:\n            expr: >-\n              \
                {\n                key: value\n              }\n        - sort: {field: age}\n    more: \"{{ params.w }} {{ length(v) }}\"\n";
    let mut found: Vec<&str> = Vec::new();
    let mut last = 0..0;
    for (at, _) in slips("workflows/w.workflow.yaml", text) {
        if at != last {
            found.push(&text[at.clone()]);
        }
        last = at;
    }
    assert_eq!(
        found,
        [
            "b-c", "x", "y", "step", "q", "value", "age", "params", "w", "length", "v"
        ]
    );
    assert_eq!(misspellings("subject"), ["subect", "usbject", "subjject"]);
}

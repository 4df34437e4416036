//! Broken projects as fixtures: the reported faults, their locations, and the printed report.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::kit;
use crate::{CheckWith, check};
use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::render;
use ktsu_config::yaml::SourceSpan;
use ktsu_environment::{Environment, Principals};
use ktsu_kit::file_names;

/// Files under `tests/broken`, whole projects: `--- PATH` begins another file of the same one. A
/// marker below a line says what that line gets: `# ^ CODE` somewhere in it; with the caret
/// anywhere else (`#    ^ CODE`, or without the `#` where the column is one of the first three)
/// in the very column under which it stands.
#[test]
fn broken_kits_are_reported_where_they_are_broken() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/broken");
    let cases = file_names(&folder);
    assert!(cases.len() >= 130, "{}", cases.len());
    let mut wrong = Vec::new();
    let (mut markers, mut columns, mut refused) = (0, 0, 0);
    for case in &cases {
        let text = fs::read_to_string(folder.join(case)).unwrap();
        let (files, expected) = fixture(&text);
        markers += expected.len();
        columns += expected.iter().filter(|one| one.column.is_some()).count();
        let borrowed: Vec<_> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let dir = kit(&borrowed);
        let judged = check(dir.path(), CheckWith::Nothing, &BTreeMap::new(), false);
        refused += usize::from(!judged.is_sound());
        let mut faults = judged.faults;
        boot(&mut faults, dir.path(), &files);
        assert!(!faults.faults.is_empty(), "{case} passes");
        if let Some(words) = mismatch(expected, &faults) {
            wrong.push(format!("{case}: {words}\n{faults}"));
        }
        wrong.extend(unrendered(&faults).map(|words| format!("{case}: {words}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused >= 120, "{refused}");
    assert!(markers > 250 && columns > 80, "{markers} {columns}");
}

/// What an environment lacks to start with: values come from its own `variables` alone.
fn boot(faults: &mut Faults, dir: &Path, files: &[(String, String)]) {
    let paths = files.iter().map(|(path, _)| Path::new(path));
    for path in paths.filter(|path| path.starts_with("environments")) {
        let environment = Environment::load_in(dir, path).ok();
        let found = environment.and_then(|environment| {
            Principals::resolve(Some(&environment), &BTreeMap::new()).err()
        });
        for mut fault in found.into_iter().flat_map(|found| found.faults) {
            fault.file = path.to_owned();
            faults.add(fault);
        }
        let text = fs::read_to_string(dir.join(path)).unwrap();
        faults.sources.insert(path.to_owned(), text);
    }
    faults.sort();
}

/// What a marker says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marker {
    file: String,
    line: usize,
    column: Option<usize>,
    code: String,
}

/// Every marker has its fault, and every fault its marker.
fn mismatch(mut expected: Vec<Marker>, faults: &Faults) -> Option<String> {
    // Those that say most choose first.
    expected.sort_by_key(|marker| marker.column.is_none());
    let mut told: Vec<_> = faults.faults.iter().collect();
    let mut missing = Vec::new();
    for marker in expected {
        let found = told.iter().position(|fault| {
            fault.file == Path::new(&marker.file)
                && fault.line == marker.line
                && marker.column.is_none_or(|column| column == fault.column)
                && fault.code.text() == marker.code
        });
        match found {
            Some(at) => drop(told.remove(at)),
            None => missing.push(marker),
        }
    }
    let told = told.iter().map(|fault| {
        let file = fault.file.display();
        format!(
            "{file}:{}:{} {}",
            fault.line,
            fault.column,
            fault.code.text()
        )
    });
    let told: Vec<_> = told.collect();
    let all = missing.is_empty() && told.is_empty();
    (!all).then(|| format!("not told {missing:?}, not expected {told:?}"))
}

/// What people see has the place and a caret under it; what programs see has the page.
fn unrendered(faults: &Faults) -> Option<String> {
    let shown = render::text(faults, false);
    let is_caret = |line: &str| line.trim_start().starts_with("| ") && line.contains('^');
    let carets = shown.lines().filter(|line| is_caret(line)).count();
    let places = faults.faults.iter().all(|fault| {
        let file = fault.file.display();
        shown.contains(&format!("--> {file}:{}:{}\n", fault.line, fault.column))
    });
    let json = render::json(faults);
    let pages = json.as_array().unwrap();
    let paged = pages.iter().all(|one| {
        let page = one["page"].as_str().unwrap();
        page == format!("docs/errors/{}.md", one["code"].as_str().unwrap())
    });
    let whole =
        places && paged && carets >= faults.faults.len() && pages.len() == faults.faults.len();
    (!whole).then(|| format!("without place, caret or page:\n{shown}"))
}

fn fixture(text: &str) -> (Vec<(String, String)>, Vec<Marker>) {
    let mut files: Vec<(String, String)> =
        vec![("workflows/w.workflow.yaml".into(), String::new())];
    let mut expected = Vec::new();
    let mut line = 0;
    for row in text.lines() {
        let (path, file) = files.last_mut().unwrap();
        if let Some(next) = row.strip_prefix("--- ") {
            files.push((next.to_owned(), String::new()));
            line = 0;
        } else if let Some((column, codes)) = marker(row) {
            expected.extend(codes.split_whitespace().map(|code| Marker {
                file: path.clone(),
                line: line.max(1),
                column,
                code: code.to_owned(),
            }));
        } else {
            line += 1;
            file.push_str(row);
            file.push('\n');
        }
    }
    files.retain(|(_, text)| !text.is_empty());
    (files, expected)
}

/// The column a marker asserts, if it does, and its codes.
fn marker(row: &str) -> Option<(Option<usize>, &str)> {
    let bare = row.strip_prefix('#').unwrap_or(row);
    let (before, codes) = bare.split_once("^ ")?;
    let is_marker = before.chars().all(|c| c == ' ');
    let column = row.chars().position(|c| c == '^')? + 1;
    let exact = !row.starts_with("# ^ ");
    is_marker.then_some((exact.then_some(column), codes))
}

#[test]
fn a_marker_in_the_wrong_place_is_noticed() {
    let place = SourceSpan {
        line: 2,
        column: 5,
        length: 1,
        offset: 9,
    };
    let fault = Fault::new(FaultCode::UnknownKey, place, "x")
        .in_file(Path::new("workflows/w.workflow.yaml"));
    let faults = Faults {
        faults: vec![fault],
        sources: BTreeMap::new(),
    };
    for (text, fits) in [
        ("a\nb\n# ^ unknown-key\n", true),
        ("a\nb\n#   ^ unknown-key\n", true),
        ("a\nb\n    ^ unknown-key\n", true),
        ("a\nb\n#  ^ unknown-key\n", false),
        ("a\n# ^ unknown-key\nb\n", false),
        ("a\nb\n# ^ unknown-op\n", false),
        ("a\nb\n# ^ unknown-key unknown-key\n", false),
        ("a\nb\n", false),
        ("a\nb\n--- kit.yaml\nc\nd\n# ^ unknown-key\n", false),
    ] {
        let (_, expected) = fixture(text);
        assert_eq!(mismatch(expected, &faults).is_none(), fits, "{text}");
    }
}

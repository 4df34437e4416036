//! Renders faults for people (location, caret, hint) and for programs (JSON).

use std::collections::BTreeMap;
use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};

use super::fault::{Fault, Faults, Severity};
use super::mask::Mask;

/// The most faults that are shown to people. Finding the lines of tens of thousands would take
/// minutes.
pub const MAX_SHOWN: usize = 100;

/// Faults as reports with the line each stands in; colours only if asked.
pub fn text(faults: &Faults, colour: bool) -> String {
    reports(faults, colour, false)
}

/// As [`text`], with a heading for each file.
pub fn by_file(faults: &Faults, colour: bool) -> String {
    reports(faults, colour, true)
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&text(self, false))
    }
}

impl std::error::Error for Faults {}

fn reports(faults: &Faults, colour: bool, headings: bool) -> String {
    let renderer = if colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    let mut out = String::new();
    let mut file = None;
    let masks = masks(faults);
    for fault in faults.faults.iter().take(MAX_SHOWN) {
        if headings && file != Some(&fault.file) && !fault.file.as_os_str().is_empty() {
            out.push_str(&heading(&fault.file, faults));
            file = Some(&fault.file);
        }
        let line = line(fault, faults, &masks);
        out.push_str(&renderer.render(&report(fault, line.as_deref())));
        out.push_str("\n\n");
    }
    let more = faults.faults.len().saturating_sub(MAX_SHOWN);
    if more > 0 {
        out.push_str(&format!("and {more} more; --json lists all of them\n\n"));
    }
    out
}

/// A file and how much is wrong with it.
fn heading(file: &Path, faults: &Faults) -> String {
    let count = |severity, word: &str| {
        let here = faults.faults.iter().filter(|fault| fault.file == file);
        match here.filter(|fault| fault.severity == severity).count() {
            0 => None,
            1 => Some(format!("1 {word}")),
            several => Some(format!("{several} {word}s")),
        }
    };
    let counts = [
        count(Severity::Error, "error"),
        count(Severity::Warning, "warning"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    format!("{}: {}\n\n", file.display(), counts.join(", "))
}

/// Every fault as an array of objects, each with the page that explains its code.
pub fn json(faults: &Faults) -> Value {
    let fault = |fault: &Fault| {
        let mut value = json!(fault);
        value["page"] = json!(format!("docs/errors/{}.md", fault.code.text()));
        value
    };
    faults.faults.iter().map(fault).collect()
}

/// The lines around a fault, as they may be shown, each with its number; none without the file's text.
pub type FaultExcerpt = Vec<(usize, String)>;

/// The excerpt of each of the faults that people are shown, in order, with so many lines before and after.
pub fn excerpts(faults: &Faults, around: usize) -> Vec<FaultExcerpt> {
    let masks = masks(faults);
    let shown = faults.faults.iter().take(MAX_SHOWN);
    let excerpt = |fault: &Fault| {
        let Some(text) = faults.sources.get(&fault.file) else {
            return FaultExcerpt::new();
        };
        let mask = masks.get(fault.file.as_path());
        let lines = fault.line.saturating_sub(around).max(1)..=fault.line.saturating_add(around);
        let lines = lines.map_while(|line| Some((line, mask?.line(text, line)?)));
        lines.collect()
    };
    shown.map(excerpt).collect()
}

/// The mask of each file.
fn masks(faults: &Faults) -> BTreeMap<&Path, Mask> {
    let sources = faults.sources.iter();
    let masks = sources.map(|(file, text)| {
        let here = faults.faults.iter().filter(|fault| fault.file == *file);
        (file.as_path(), Mask::of(text, here))
    });
    masks.collect()
}

fn report<'a>(fault: &'a Fault, line: Option<&'a str>) -> Vec<Group<'a>> {
    let level = match fault.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level
        .primary_title(fault.message.as_str())
        .id(fault.code.text());
    let path = fault.file.to_string_lossy().into_owned();
    let first = match line {
        Some(line) => {
            let start = offset(line, fault.column - 1);
            let end = offset(line, fault.column - 1 + fault.length).max(start);
            let snippet = Snippet::source(line)
                .line_start(fault.line)
                .path(path)
                .annotation(AnnotationKind::Primary.span(start..end));
            title.element(snippet)
        }
        None => title.element(annotate_snippets::Origin::path(path)),
    };
    let hint = fault.hint.as_deref();
    let hint = hint.map(|hint| Group::with_title(Level::HELP.secondary_title(hint)));
    std::iter::once(first).chain(hint).collect()
}

/// The line a fault stands in, as it may be shown.
fn line(fault: &Fault, faults: &Faults, masks: &BTreeMap<&Path, Mask>) -> Option<String> {
    let text = faults.sources.get(&fault.file)?;
    masks.get(fault.file.as_path())?.line(text, fault.line)
}

/// The byte at which a character of a line stands, or the end of the line.
fn offset(line: &str, characters: usize) -> usize {
    line.char_indices()
        .nth(characters)
        .map_or(line.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::fault::FaultCode;
    use super::super::yaml::SourceSpan;
    use super::*;

    fn faults() -> Faults {
        let place = SourceSpan {
            line: 2,
            column: 5,
            length: 3,
            offset: 9,
        };
        let fault = Fault::new(FaultCode::UnknownKey, place, "unknown key \"nam\"")
            .hint("did you mean name?")
            .in_file(Path::new("workflows/w.workflow.yaml"));
        let sources = [(
            PathBuf::from("workflows/w.workflow.yaml"),
            "a: 1\né:  nam: x\n".to_owned(),
        )];
        Faults {
            faults: vec![fault],
            sources: sources.into(),
        }
    }

    #[test]
    fn a_caret_is_under_the_place_and_a_hint_below() {
        let text = text(&faults(), false);
        assert_eq!(
            text,
            "error[unknown-key]: unknown key \"nam\"\n --> workflows/w.workflow.yaml:2:5\n  |\n2 | é:  nam: x\n  |     ^^^\n  |\nhelp: did you mean name?\n\n"
        );
        assert!(!text.contains('\u{1b}'));
        assert!(super::text(&faults(), true).contains('\u{1b}'));
    }

    #[test]
    fn an_excerpt_has_the_lines_around_a_fault_without_secrets() {
        let mut faults = faults();
        let source = "a: 1\né:  nam: x\nb: 2\ntoken: abcdef\nlast: 1\n".to_owned();
        faults
            .sources
            .insert(PathBuf::from("workflows/w.workflow.yaml"), source);
        let line = |number, text: &str| (number, text.to_owned());
        let near = [line(1, "a: 1"), line(2, "é:  nam: x"), line(3, "b: 2")];
        assert_eq!(excerpts(&faults, 1), [near.to_vec()]);
        let wide = excerpts(&faults, 9).remove(0);
        assert_eq!(wide.len(), 5, "the file ends there: {wide:?}");
        assert!(!wide[3].1.contains("abcdef"), "{wide:?}");
        faults.sources.clear();
        assert_eq!(excerpts(&faults, 1), [FaultExcerpt::new()]);
    }

    #[test]
    fn programs_get_every_field() {
        assert_eq!(json(&faults())[0]["code"], "unknown-key");
        assert_eq!(json(&faults())[0]["line"], 2);
    }
}

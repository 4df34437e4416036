//! What a check found in the files of a kit: each fault at its line.

use maud::{Markup, html};

use crate::text::{Verbatim, beginning};
use crate::units::counted;

/// The most faults on a page.
const MAX_FAULTS: usize = 100;
/// The most lines of an excerpt.
const MAX_LINES: usize = 9;
/// The most characters of a line of an excerpt.
const MAX_LINE: usize = 200;
/// The most characters before a fault in its line.
const MAX_BEFORE: usize = 120;

/// The last check of the files of a kit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownCheck {
    /// True if what it found does not hinder a start, so that the kit is that of the files.
    pub is_sound: bool,
    /// True if the engine has a kit, from a check before.
    pub is_loaded: bool,
    /// The first of the faults, by file and place.
    pub faults: Vec<ShownFault>,
    /// The number of all faults.
    pub count: usize,
    /// The variables without a usable value, in words.
    pub unset: Vec<String>,
}

/// A fault of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownFault {
    /// The file, relative to the kit; empty if it is about none.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// In characters.
    pub length: usize,
    /// True if the kit can be used in spite of it.
    pub is_warning: bool,
    /// The kind of fault.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// Something to do about it.
    pub hint: Option<String>,
    /// The lines around it with their numbers; empty if they are not shown.
    pub excerpt: Vec<(usize, String)>,
}

/// What a check found; nothing of a check that found nothing.
pub(crate) fn check_of(check: &ShownCheck) -> Markup {
    let more = check
        .count
        .saturating_sub(check.faults.len().min(MAX_FAULTS));
    let is_empty = check.is_sound && check.faults.is_empty() && check.unset.is_empty();
    html! {
        @if !is_empty {
            section class="faults" aria-label="Faults" {
                @if !check.is_sound {
                    p class="note error" role="status" {
                        @if check.is_loaded {
                            "The files were saved with faults: this page shows the kit as it was before. "
                            "It is loaded again once they are mended."
                        } @else {
                            "The files have faults: nothing is run. The kit is loaded once they are mended."
                        }
                    }
                }
                @for words in check.unset.iter().take(MAX_FAULTS) { p class="error" { (Verbatim(words)) } }
                @for fault in check.faults.iter().take(MAX_FAULTS) { (fault_of(fault)) }
                @if more > 0 { p class="dim" { "and " (counted(more as u64, "fault")) " more; " code { "ktsu validate KIT" } " shows them" } }
            }
        }
    }
}

fn fault_of(fault: &ShownFault) -> Markup {
    let kind = if fault.is_warning { "warning" } else { "error" };
    html! {
        article class={ "fault " (kind) } {
            h2 { (kind) ": " (Verbatim(&fault.message)) }
            @if !fault.file.is_empty() {
                p class="id" { (Verbatim(&fault.file)) ":" (fault.line) ":" (fault.column) }
            }
            @if !fault.excerpt.is_empty() {
                pre tabindex="0" {
                    @for (number, line) in fault.excerpt.iter().take(MAX_LINES) { (line_of(fault, *number, line)) }
                }
            }
            @if let Some(hint) = &fault.hint { p { (Verbatim(hint)) } }
            p class="dim" { code { "ktsu explain " (fault.code) } }
        }
    }
}

/// A line with its number; the part that is wrong is marked.
fn line_of(fault: &ShownFault, number: usize, line: &str) -> Markup {
    let before_fault = fault.column.saturating_sub(1);
    let from = match number == fault.line {
        true => before_fault.saturating_sub(MAX_BEFORE),
        false => 0,
    };
    let shown = after(line, from);
    let (shown, left_out) = beginning(shown, MAX_LINE);
    html! {
        span class="line" { (format!("{number:>5} │ ")) }
        @if from > 0 { "…" }
        @if number == fault.line {
            @let (before, _) = beginning(shown, before_fault - from);
            @let rest = after(shown, before_fault - from);
            @let (wrong, _) = beginning(rest, fault.length);
            (Verbatim(before))
            strong { (Verbatim(wrong)) @if wrong.is_empty() { "▏" } }
            (Verbatim(after(rest, fault.length)))
        } @else { (Verbatim(shown)) }
        @if left_out > 0 { "…" }
        "\n"
    }
}

/// The characters of a text after so many.
fn after(text: &str, skipped: usize) -> &str {
    let (start, _) = beginning(text, skipped);
    text.get(start.len()..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(column: usize, length: usize, line: &str) -> ShownFault {
        ShownFault {
            file: "workflows/<a>.workflow.yaml".to_owned(),
            line: 2,
            column,
            length,
            is_warning: false,
            code: "unknown-key",
            message: "unknown key \"nam\"".to_owned(),
            hint: Some("did you mean name?".to_owned()),
            excerpt: vec![(1, "a: 1".to_owned()), (2, line.to_owned())],
        }
    }

    #[test]
    fn a_fault_is_marked_in_its_line_with_its_place_and_what_to_do() {
        let shown = fault_of(&fault(5, 3, "é:  nam: <x>")).into_string();
        for part in [
            "workflows/&lt;a&gt;.workflow.yaml:2:5",
            "é:  <strong>nam</strong>: &lt;x&gt;",
            "did you mean name?",
            "ktsu explain unknown-key",
            "error: unknown key",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let at_no_column = fault_of(&fault(0, 3, "short")).into_string();
        assert!(
            at_no_column.contains("<strong>sho</strong>rt"),
            "{at_no_column}"
        );
        let at_the_end = fault_of(&fault(99, 3, "short")).into_string();
        assert!(
            at_the_end.contains("short<strong>▏</strong>"),
            "{at_the_end}"
        );
    }

    #[test]
    fn lines_and_faults_are_bounded_and_what_is_left_out_is_said() {
        let long = format!("{}nam{}", "x".repeat(1_000), "y".repeat(100_000));
        let shown = fault_of(&fault(1_001, 3, &long)).into_string();
        assert!(shown.contains("x<strong>nam</strong>y"), "{shown}");
        assert!(shown.len() < 2_000, "{}", shown.len());
        let check = ShownCheck {
            is_loaded: true,
            faults: vec![fault(1, 1, "a"); 150],
            count: 1_200,
            ..ShownCheck::default()
        };
        let shown = check_of(&check).into_string();
        assert_eq!(shown.matches("<article").count(), MAX_FAULTS);
        assert!(shown.contains("and 1100 faults more"), "{shown}");
        assert!(shown.contains("as it was before"), "{shown}");
        let sound = ShownCheck {
            is_loaded: true,
            is_sound: true,
            ..ShownCheck::default()
        };
        assert_eq!(check_of(&sound).into_string(), "");
    }
}

//! The device that output is printed on: its width, and the symbols that it can show.

use std::io::IsTerminal as _;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use terminal_size::{Width, terminal_size_of};

use super::layout::{columns, fit, fold};
use super::symbols::Symbols;

/// Between two columns without a line.
pub(super) const BETWEEN: &str = "  ";

/// An output device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terminal {
    /// The number of columns of a line; a pipe has no bounds.
    pub(super) width: Option<usize>,
    /// The symbols that can be shown.
    pub(super) symbols: Symbols,
}

impl Terminal {
    /// Returns `true` if lists of frames have to omit what is shown elsewhere.
    pub(super) fn is_narrow(&self) -> bool {
        self.width.is_some_and(|width| width < 80)
    }

    /// A line that fits. Colours stay.
    pub(super) fn fit(&self, text: &str) -> String {
        match self.width {
            Some(width) => fit(text, width, self.symbols.ellipsis()),
            None => text.to_owned(),
        }
    }

    /// Words in as many lines as they take, those behind the first indented.
    pub(super) fn folded(&self, words: &str, indent: usize) -> Vec<String> {
        let Some(width) = self.width.filter(|width| columns(words) > *width) else {
            return vec![words.to_owned()];
        };
        let indent = indent.min(width / 2);
        let mut lines = fold(words, width.max(1));
        let first = lines.drain(..1).next().unwrap_or_default();
        let rest = words.get(first.len()..).unwrap_or_default();
        let rest = fold(rest, width.saturating_sub(indent).max(1));
        let spaces = " ".repeat(indent);
        let rest = rest.iter().map(|line| format!("{spaces}{line}"));
        std::iter::once(first).chain(rest).collect()
    }

    /// Words followed by an id that is never cut, on a second line if there is no space.
    pub(super) fn beside(&self, words: &str, id: &str) -> Vec<String> {
        let both = format!("{words}{BETWEEN}{id}");
        match self.width {
            Some(width) if columns(&both) > width => {
                vec![self.fit(words), format!("{BETWEEN}{id}")]
            }
            Some(_) | None => vec![both],
        }
    }
}

pub(super) fn columns_variable() -> Option<usize> {
    let width = std::env::var("COLUMNS").ok()?.parse().ok();
    width.filter(|width| *width > 0)
}

/// The terminal or pipe that standard output is printed on.
pub(super) fn sheet() -> Terminal {
    let out = std::io::stdout();
    match out.is_terminal() {
        true => terminal_sheet(columns_variable().or_else(|| width_of(out))),
        false => PIPE,
    }
}

/// The device behind standard error, queried every time because a terminal may change its size.
pub(super) fn note_sheet() -> Terminal {
    let err = std::io::stderr();
    match err.is_terminal() {
        true => terminal_sheet(width_of(err).or_else(columns_variable)),
        false => PIPE,
    }
}

/// A pipe has no bounds, and is UTF-8 as all data is.
const PIPE: Terminal = Terminal {
    width: None,
    symbols: Symbols::Unicode,
};

fn terminal_sheet(width: Option<usize>) -> Terminal {
    static SYMBOLS: OnceLock<Symbols> = OnceLock::new();
    let of_locale = || Symbols::of_locale(|name| std::env::var(name).ok());
    Terminal {
        width,
        symbols: *SYMBOLS.get_or_init(of_locale),
    }
}

/// The width of a terminal, if it knows it.
fn width_of(terminal: impl AsFd) -> Option<usize> {
    terminal_size_of(terminal).map(|(Width(width), _)| usize::from(width))
}

/// The symbols for standard output.
pub(super) fn symbols() -> Symbols {
    sheet().symbols
}

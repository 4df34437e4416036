//! Printing, and failing.
//!
//! The answer to a command goes to standard output; what is said beside it, to standard error.
//! Colours are written always and taken out on the way where nobody wants them: no terminal,
//! `NO_COLOR`, `TERM=dumb`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::builder::styling::{AnsiColor, Style};

use super::text;
use crate::error::{EXIT_COULD_NOT_RUN, EXIT_VERDICT, ErrorCode};

/// For what is fine.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// For what is not.
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
/// For what needs attention.
pub(super) const ODD: Style = AnsiColor::Yellow.on_default();
/// For what matters less.
pub(super) const DIM: Style = Style::new().dimmed();
/// For what matters more.
pub(super) const BOLD: Style = Style::new().bold();

/// Why a command could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
    /// The code of the problem that an engine answered with.
    problem: Option<ErrorCode>,
}

impl Failure {
    /// It could not run: exit code 2.
    pub fn could_not_run(message: impl Into<String>) -> Self {
        Self {
            code: EXIT_COULD_NOT_RUN,
            message: message.into(),
            hint: None,
            problem: None,
        }
    }

    /// It ran, and the answer is no: exit code 1.
    pub fn verdict(message: impl Into<String>) -> Self {
        Self {
            code: EXIT_VERDICT,
            ..Self::could_not_run(message)
        }
    }

    /// An engine answered with this.
    pub(super) fn answered(mut self, problem: Option<ErrorCode>) -> Self {
        self.problem = problem;
        self
    }

    /// What an engine answered with.
    pub(super) fn problem(&self) -> Option<ErrorCode> {
        self.problem
    }

    /// With something to type, unless there is something already.
    #[must_use]
    pub fn or_hint(self, hint: impl FnOnce() -> Option<String>) -> Self {
        match self.hint {
            Some(_) => self,
            None => Self {
                hint: hint(),
                ..self
            },
        }
    }

    /// With something to type.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A system that does not do what it always does.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::could_not_run(error.to_string())
    }
}

/// Says why, on standard error. Messages may quote data.
pub(super) fn fail(failure: &Failure) -> ExitCode {
    note(&format!(
        "{}: {}",
        painted(BAD, "error"),
        text::clean(&failure.message)
    ));
    if let Some(hint) = &failure.hint {
        note(&format!("{}: {}", painted(GOOD, "hint"), text::clean(hint)));
    }
    if let Some(code) = failure.problem.map(ErrorCode::as_str) {
        note(&painted(DIM, &format!("  ktsu explain {code}")));
    }
    ExitCode::from(failure.code)
}

/// Prints a line on standard output. A reader that went away is no error; the answer tells.
pub(super) fn line(text: &str) -> bool {
    if is_coloured() {
        return writeln!(anstream::stdout().lock(), "{text}").is_ok();
    }
    // What was padded and then coloured ends in spaces once the colours are gone.
    let plain = anstream::adapter::strip_str(text).to_string();
    writeln!(std::io::stdout().lock(), "{}", plain.trim_end()).is_ok()
}

/// Prints a line on standard error: what is not the answer itself.
pub(super) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Puts words in place of the last line of a terminal, without ending the line.
pub(super) fn transient(text: &str) {
    let mut out = anstream::stderr().lock();
    let _ = write!(out, "\r\u{1b}[K{text}");
    let _ = out.flush();
}

/// Text in a style. The text is clean already.
pub(super) fn painted(style: Style, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("{style}{text}{style:#}")
}

/// Whether somebody reads standard output.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// How many characters fit on a line of standard output: what `COLUMNS` says, else the terminal;
/// a pipe is taken for a narrow one.
pub(super) fn width() -> usize {
    const NARROW: usize = 80;
    let told = std::env::var("COLUMNS").ok();
    let told = told.and_then(|columns| columns.parse().ok());
    told.unwrap_or_else(|| match terminal_size::terminal_size() {
        Some((terminal_size::Width(width), _)) if is_terminal() => usize::from(width),
        _ => NARROW,
    })
}

/// Whether somebody reads standard error, on something that obeys cursor movements.
pub(super) fn is_live() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stderr().is_terminal() && !dumb
}

/// Whether standard output takes colours.
pub(super) fn is_coloured() -> bool {
    static COLOURED: OnceLock<bool> = OnceLock::new();
    *COLOURED.get_or_init(|| {
        let choice = anstream::AutoStream::choice(&std::io::stdout());
        choice != anstream::ColorChoice::Never
    })
}

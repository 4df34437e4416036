//! Printing, and failing.

use std::io::Write as _;
use std::process::ExitCode;

/// Why a command could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// It could not run: exit code 2.
    pub fn could_not_run(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            message: message.into(),
            hint: None,
        }
    }

    /// With something to type.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Says why, on standard error.
pub(super) fn fail(failure: &Failure) -> ExitCode {
    let mut out = anstream::stderr().lock();
    let _ = writeln!(out, "error: {}", failure.message);
    if let Some(hint) = &failure.hint {
        let _ = writeln!(out, "hint: {hint}");
    }
    ExitCode::from(failure.code)
}

/// Prints a line on standard output. A reader that went away is no error.
pub(super) fn line(text: &str) {
    let _ = writeln!(anstream::stdout().lock(), "{text}");
}

/// Prints a line on standard error: what is not the answer itself.
pub(super) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

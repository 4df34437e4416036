//! The failures of commands.

use ktsu_codes::{EXIT_COULD_NOT_RUN, EXIT_VERDICT, ErrorCode};
use ktsu_peer::PeerError;

/// The reason why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
    /// The code of the problem that an engine answered with.
    problem: Option<ErrorCode>,
    /// True if an engine was lost before it answered.
    is_lost: bool,
}

impl Failure {
    /// It could not run: exit code 2.
    pub fn could_not_run(message: impl Into<String>) -> Self {
        Self {
            code: EXIT_COULD_NOT_RUN,
            message: message.into(),
            hint: None,
            problem: None,
            is_lost: false,
        }
    }

    /// An engine was lost before it answered.
    pub fn lost(message: impl Into<String>) -> Self {
        Self {
            is_lost: true,
            ..Self::could_not_run(message)
        }
    }

    /// Returns `true` if the same request may be answered later, by this engine or by another one that owns the
    /// ledger.
    pub fn may_pass(&self) -> bool {
        let passing = [
            ErrorCode::Draining,
            ErrorCode::LedgerStopped,
            ErrorCode::Unavailable,
        ];
        self.is_lost || self.problem.is_some_and(|code| passing.contains(&code))
    }

    /// The failure for an error of which the message is all there is to say.
    pub fn of(error: impl std::fmt::Display) -> Self {
        Self::could_not_run(error.to_string())
    }

    /// It ran, and the answer is no: exit code 1.
    pub fn verdict(message: impl Into<String>) -> Self {
        Self {
            code: EXIT_VERDICT,
            ..Self::could_not_run(message)
        }
    }

    /// An engine answered with this.
    pub fn with_problem(mut self, problem: Option<ErrorCode>) -> Self {
        self.problem = problem;
        self
    }

    /// Prefixes the message with what it is about.
    pub fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The exit code of the command.
    pub fn exit_code(&self) -> u8 {
        self.code
    }

    /// The words, without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Something to type, if there is anything.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The code of the problem that an engine answered with.
    pub fn problem(&self) -> Option<ErrorCode> {
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

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::of(error)
    }
}

impl From<PeerError> for Failure {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::NoResponse { .. } => Self::lost(error.to_string()),
            PeerError::InvalidUrl(_) => Self::of(error),
        }
    }
}

//! The reasons why a call has no result.

use std::fmt;

use ktsu_egress::{self as egress, EgressErrorCode};

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolErrorCode {
    /// The URL or its address is not allowed.
    Refused,
    /// No connection, or one that broke.
    Unreachable,
    /// No whole answer within the time.
    Timeout,
    /// The server wants other credentials, or none of us: 401, 403.
    Unauthorized,
    /// The server has forgotten the session: 404 or 400 within one.
    SessionExpired,
    /// The server answered with another HTTP status that is no success.
    Status,
    /// The answer is larger than allowed.
    TooLarge,
    /// The answer is not MCP.
    Protocol,
    /// The server's tools are not those that were agreed on: nothing is called any more.
    ToolsChanged,
    /// The session offers no such tool.
    UnknownTool,
    /// The session is over.
    Closed,
}

impl ToolErrorCode {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Unauthorized => "unauthorized",
            Self::SessionExpired => "session_expired",
            Self::Status => "status",
            Self::TooLarge => "too_large",
            Self::Protocol => "protocol",
            Self::ToolsChanged => "tools_changed",
            Self::UnknownTool => "unknown_tool",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for ToolErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No result. The message is in our words, with the server's name and host at the most; whoever
/// reads it sees the kind of the failure behind it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct ToolError {
    /// The kind of failure.
    pub code: ToolErrorCode,
    /// The description of the failure.
    pub message: String,
    /// True if the server may have acted on the call. False only where it certainly did not:
    /// nothing reached it, or it refused the call because it has forgotten the session (decision
    /// A5).
    pub sent: bool,
    /// The time between the sending of the call and its failure; 0 where nothing was sent.
    pub duration_ms: u64,
}

impl ToolError {
    /// A failure that left the call unsent.
    pub fn unsent(code: ToolErrorCode, message: impl Into<String>) -> Self {
        Self::new(code, message, false)
    }

    /// A failure after the call, or some of it, was sent.
    pub fn sent(code: ToolErrorCode, message: impl Into<String>) -> Self {
        Self::new(code, message, true)
    }

    fn new(code: ToolErrorCode, message: impl Into<String>, sent: bool) -> Self {
        let message = message.into();
        Self {
            code,
            message,
            sent,
            duration_ms: 0,
        }
    }

    /// The same, of a call that was under way so long.
    pub(super) fn after(self, duration_ms: u64) -> Self {
        Self {
            duration_ms,
            ..self
        }
    }

    /// An answer that breaks the protocol.
    pub(super) fn protocol(message: impl Into<String>) -> Self {
        Self::sent(ToolErrorCode::Protocol, message)
    }

    /// The same, of a server that is named.
    pub(super) fn of(mut self, server: &str) -> Self {
        self.message = format!("tool server {server}: {}", self.message);
        self
    }
}

impl From<egress::EgressError> for ToolError {
    fn from(failure: egress::EgressError) -> Self {
        let code = match failure.code {
            EgressErrorCode::Refused => ToolErrorCode::Refused,
            EgressErrorCode::Timeout => ToolErrorCode::Timeout,
            EgressErrorCode::Unreachable => ToolErrorCode::Unreachable,
        };
        Self::new(code, failure.message, failure.sent)
    }
}

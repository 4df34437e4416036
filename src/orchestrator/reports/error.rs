//! The reasons why a report is not taken.

/// The reason why a report changes nothing (decision W2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The token is missing, or of another task.
    #[error("the token is not one of this task")]
    Unauthorized,
    /// Another attempt, an end, other bytes under a used number.
    #[error("the task is not waiting for this report")]
    Stale,
    /// It does not follow from earlier reports, or is empty.
    #[error("{0}")]
    Malformed(String),
    /// The run cannot go on here just now.
    #[error("{0}")]
    Unavailable(String),
}

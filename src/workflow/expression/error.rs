//! The limits of expressions and the errors of parsing and evaluating them.

/// The most characters of an expression (decision T2).
pub const MAX_SOURCE: usize = 1_000;
/// The most levels of brackets in an expression, and of arrays and objects in its result.
pub const MAX_NESTING: usize = 64;
/// The most bytes of a result, as compact JSON.
pub const MAX_RESULT: usize = 1 << 20;

/// The reason why a text is not an expression: a boot error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// A lower-case fragment.
    pub message: String,
    /// Byte offset in the source.
    pub offset: usize,
    /// Something to type instead.
    pub hint: Option<String>,
    /// It is `!step.a`, which is read as `(!step).a`.
    pub negated_path: bool,
}

/// The reason why an expression has no value. The words are ours and may enter a frame (decision
/// E3).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvaluationError {
    /// `expression_type`, `expression_number`, `expression_cost`, `result_size` or `result_depth`.
    pub code: &'static str,
    /// A lower-case fragment.
    pub message: String,
}

impl EvaluationError {
    /// Returns `true` if it would have taken too much work or room.
    pub(crate) fn is_about_size(&self) -> bool {
        matches!(self.code, "expression_cost" | "result_size")
    }
}

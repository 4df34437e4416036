//! The end of an agent's task, or of a responder's question.

use ktsu_ledger::event::Violation;
use serde_json::{Value, json};

/// The end of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskEnd {
    /// With an output, without its reserved fields.
    Output(Value),
    /// Its agent asked to skip it.
    Skipped(String),
    /// Badly.
    Failed {
        /// A stable error code.
        code: String,
        /// For people.
        message: String,
        /// The output that was refused, if there was one.
        raw: Option<Value>,
        /// The places where it breaks its schema, if that is the reason.
        violations: Vec<Violation>,
    },
}

impl TaskEnd {
    /// The value it comes to, if to any: of a skip, its marker.
    pub fn value(&self) -> Option<Value> {
        match self {
            Self::Output(value) => Some(value.clone()),
            Self::Skipped(words) => Some(json!({"skipped": true, "reason": words})),
            Self::Failed { .. } => None,
        }
    }
}

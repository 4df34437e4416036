//! How the task of an agent, or a question of a responder, ended.

use ktsu_ledger::event::Violation;
use serde_json::{Value, json};

/// How a task ended.
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
        /// Where it breaks its schema, if that is why.
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

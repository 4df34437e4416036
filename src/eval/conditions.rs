//! Conditions on a value.

use ktsu_schema::Schema;
use ktsu_workflow::expression::Expression;
use serde_json::{Number, Value};

use crate::pattern::TextPattern;

/// Conditions on a value of the envelope. All given conditions must hold.
#[derive(Debug, Clone)]
pub struct OutputCheck {
    /// Over the whole envelope; `output` unless the file has another.
    pub expression: Expression,
    /// A JSON Schema that it fits.
    pub schema: Option<Schema>,
    /// The value that it has to equal.
    pub equals: Option<Value>,
    /// The value that it must not equal.
    pub not_equals: Option<Value>,
    /// The least number.
    pub min: Option<Number>,
    /// The largest number.
    pub max: Option<Number>,
    /// A part of the text, or an element of the list.
    pub contains: Option<Value>,
    /// A pattern that matches within the text.
    pub(crate) pattern: Option<TextPattern>,
}

impl OutputCheck {
    /// Returns `true` if no condition is given.
    pub(crate) fn is_bare(&self) -> bool {
        self.schema.is_none()
            && self.equals.is_none()
            && self.not_equals.is_none()
            && self.min.is_none()
            && self.max.is_none()
            && self.contains.is_none()
            && self.pattern.is_none()
    }
}

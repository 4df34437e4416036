//! JSON Schemas compiled once, checked often, told in our own words (decision E3): of outputs, of
//! params, and of what a model wants to call a tool with.
//!
//! A schema reads neither network nor files (decision K6), its patterns run in linear time, and
//! one that would expand without end is refused before it is compiled.

mod bounds;
mod words;

pub(crate) use words::kind_of;

use std::fmt;
use std::sync::Arc;

use jsonschema::{PatternOptions, Retrieve, Uri, Validator};
use ktsu_ledger::Json;
use serde_json::Value;

/// The most violations that are told at once.
pub const MAX_VIOLATIONS: usize = 16;

/// A compiled JSON Schema, cheap to clone.
#[derive(Clone)]
pub struct Schema {
    validator: Arc<Validator>,
}

/// Why a schema cannot be used: a boot error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SchemaError {
    /// JSON pointer into the schema.
    pub pointer: String,
    /// A lower-case fragment.
    pub message: String,
}

/// One rule that a value breaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Violation {
    /// JSON pointer into the value.
    pub pointer: String,
    /// The keyword of JSON Schema: `required`, `type`, `enum`, …
    pub rule: String,
    /// A lower-case fragment.
    pub message: String,
}

/// What is wrong, with its place behind it as a JSON pointer; without one where it is the whole value.
/// Wherever people read of a violation, it looks like this.
pub fn placed(message: &str, pointer: &str) -> String {
    match pointer {
        "" => message.to_owned(),
        pointer => format!("{message} at {pointer}"),
    }
}

impl Schema {
    /// Compiles a schema as it stands.
    pub fn compile(schema: &Json) -> Result<Self, SchemaError> {
        Self::of_value(&schema.to_value())
    }

    /// As [`Schema::compile`], of a value.
    pub fn of_value(schema: &Value) -> Result<Self, SchemaError> {
        Self::within(schema, bounds::OWN)
    }

    /// As [`Schema::of_value`], of a schema that a stranger sent: less of everything, so that it is
    /// compiled soon and takes little room.
    pub fn of_stranger(schema: &Value) -> Result<Self, SchemaError> {
        Self::within(schema, bounds::STRANGERS)
    }

    fn within(schema: &Value, bounds: bounds::Bounds) -> Result<Self, SchemaError> {
        if !schema.is_object() && !schema.is_boolean() {
            let message = "a schema is an object or a boolean".to_owned();
            return Err(SchemaError {
                pointer: String::new(),
                message,
            });
        }
        let most = bounds::check(schema, bounds)?;
        let patterns = PatternOptions::regex().size_limit(most);
        let validator = jsonschema::options()
            .with_retriever(Closed)
            .with_pattern_options(patterns)
            .build(schema)
            .map_err(|error| SchemaError {
                pointer: error.instance_path().as_str().to_owned(),
                message: words::of_schema(&error),
            })?;
        Ok(Self {
            validator: Arc::new(validator),
        })
    }

    /// Every rule the value breaks, at most [`MAX_VIOLATIONS`], in order of their places.
    pub fn check(&self, value: &Value) -> Vec<Violation> {
        let errors = self.validator.iter_errors(value).take(MAX_VIOLATIONS);
        let mut violations: Vec<_> = errors.map(|error| words::of_value(&error, value)).collect();
        violations.sort();
        violations.dedup();
        violations
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

/// Answers every request for another document with no.
struct Closed;

impl Retrieve for Closed {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("references outside the schema are not read".into())
    }
}

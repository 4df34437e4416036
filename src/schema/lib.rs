//! JSON Schemas, compiled once, used often, with error messages of our own (decision E3): for
//! outputs, for params, and for the arguments of tool calls.
//!
//! A schema reads neither network nor files (decision K6), its patterns run in linear time, and one
//! that would expand without end is refused before it is compiled.

mod bounds;
mod effort;
mod messages;

pub use effort::{MAX_STEPS, MAX_VISITS, MAX_VISITS_PER_PAIR, TwoWays};
pub use messages::kind_of;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use effort::{Effort, Measure};
use jsonschema::{PatternOptions, Retrieve, Uri, ValidationError, Validator};
use ktsu_ledger::CanonicalJson;
use serde_json::Value;

/// The most violations that are told at once.
pub const MAX_VIOLATIONS: usize = 16;

/// The rule that a value breaks which would take too much to check: the one violation there is then.
/// It is also the code of the error.
pub const TOO_EXPENSIVE: &str = "schema_too_expensive";

/// A compiled JSON Schema, cheap to clone.
#[derive(Clone)]
pub struct Schema {
    validator: Arc<Validator>,
    effort: Arc<Effort>,
}

/// The reason why a schema cannot be used: a boot error.
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
pub struct SchemaViolation {
    /// JSON pointer into the value.
    pub pointer: String,
    /// The keyword of JSON Schema: `required`, `type`, `enum`, …
    pub rule: String,
    /// A lower-case fragment.
    pub message: String,
}

/// A message, with its place behind it as a JSON pointer; without one where it is the whole value.
/// Wherever people read of a violation, it looks like this.
pub fn message_at(message: &str, pointer: &str) -> String {
    match pointer {
        "" => message.to_owned(),
        pointer => format!("{message} at {pointer}"),
    }
}

/// The schemas that describe the same value as one: what its `$ref` names in the document, and the
/// branches of combinations.
pub fn parts<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let target = schema.get("$ref").and_then(Value::as_str);
    let target = target
        .and_then(|target| target.strip_prefix('#'))
        .and_then(|at| document.pointer(at));
    let mut parts: Vec<&Value> = target.into_iter().collect();
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = schema.get(name).and_then(Value::as_array);
        parts.extend(list.into_iter().flatten());
    }
    let conditional = ["if", "then", "else"].iter();
    parts.extend(conditional.filter_map(|name| schema.get(name)));
    parts
}

/// Returns `true` if any part of a schema that describes the whole value declares a property.
pub fn declares(document: &Value, name: &str) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![document];
    while let Some(schema) = open.pop() {
        if !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        if schema
            .get("properties")
            .and_then(|all| all.get(name))
            .is_some()
        {
            return true;
        }
        open.extend(parts(document, schema));
    }
    false
}

/// Returns `true` if keywords beside a `$ref` count: not before the draft of 2019-09.
pub fn applies_reference_siblings(document: &Value) -> bool {
    let draft = document.get("$schema").and_then(Value::as_str);
    draft.is_none_or(|draft| draft.contains("2020-12") || draft.contains("2019-09"))
}

impl Schema {
    /// Compiles a schema as it stands.
    pub fn compile(schema: &CanonicalJson) -> Result<Self, SchemaError> {
        Self::of_value(&schema.to_value())
    }

    /// Compiles the schema of an output: reserved `ktsu_*` names are dropped from the top level's
    /// `required` first, since they are stripped before the check (decision R5).
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn compile_output(schema: &CanonicalJson) -> Result<Self, SchemaError> {
        let mut schema = schema.to_value();
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.retain(|name| !name.as_str().is_some_and(|name| name.starts_with("ktsu_")));
        }
        Self::of_value(&schema)
    }

    /// As [`Schema::compile`], of a value.
    pub fn of_value(schema: &Value) -> Result<Self, SchemaError> {
        Self::within(schema, bounds::TRUSTED)
    }

    /// As [`Schema::of_value`], of a schema that a stranger sent: less of everything, so that it is
    /// compiled soon and takes little room.
    pub fn compile_untrusted(schema: &Value) -> Result<Self, SchemaError> {
        Self::within(schema, bounds::UNTRUSTED)
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
        let validator = build(schema, most).map_err(|error| SchemaError {
            pointer: error.instance_path().as_str().to_owned(),
            message: messages::of_schema(&error),
        })?;
        let single = |schema: &Value| build(schema, most).ok();
        Ok(Self {
            validator: Arc::new(validator),
            effort: Arc::new(Effort::of(schema, &single)),
        })
    }

    /// Every rule the value breaks, at most [`MAX_VIOLATIONS`], in order of their places. A value
    /// that would take too much to check breaks [`TOO_EXPENSIVE`] and is not checked.
    pub fn check(&self, value: &Value) -> Vec<SchemaViolation> {
        self.check_within_bounds(value, &|_| false)
    }

    /// As [`Schema::check`], where some fields of the value itself may be missing, whatever part of the
    /// schema requires them. Of a value that may break very many, one is named, so that the
    /// others need no room.
    pub fn check_within_bounds(
        &self,
        value: &Value,
        may_lack: &dyn Fn(&str) -> bool,
    ) -> Vec<SchemaViolation> {
        if let Some(refused) = self.too_expensive(value) {
            return vec![refused];
        }
        if self.effort.may_fail_too_often(value) {
            match self.validator.validate(value) {
                Ok(()) => return Vec::new(),
                Err(error) if !messages::missing(&error).is_some_and(may_lack) => {
                    return vec![messages::of_value(&error, value)];
                }
                // What may be missing is no fault; whether there is another is in the list alone.
                Err(_) => {}
            }
        }
        self.check_at_any_cost(value, may_lack)
    }

    /// As [`Schema::check_within_bounds`] was under decision rules 6: every rule is named, and the names
    /// and values that a schema lists do not count.
    pub fn check_unlisted(
        &self,
        value: &Value,
        may_lack: &dyn Fn(&str) -> bool,
    ) -> Vec<SchemaViolation> {
        match self.refusal(value, Measure::Unlisted) {
            Some(refused) => vec![refused],
            None => self.check_at_any_cost(value, may_lack),
        }
    }

    /// As [`Schema::check_within_bounds`], whatever it takes: for values that were once recorded as
    /// checked.
    pub fn check_at_any_cost(
        &self,
        value: &Value,
        may_lack: &dyn Fn(&str) -> bool,
    ) -> Vec<SchemaViolation> {
        let errors = self.validator.iter_errors(value);
        let errors = errors.filter(|error| !messages::missing(error).is_some_and(may_lack));
        let errors = errors.take(MAX_VIOLATIONS);
        let mut violations: Vec<_> = errors
            .map(|error| messages::of_value(&error, value))
            .collect();
        violations.sort();
        violations.dedup();
        violations
    }

    /// The reason why a value is not checked, if it would take too much. It follows from schema and
    /// value alone.
    pub fn too_expensive(&self, value: &Value) -> Option<SchemaViolation> {
        self.refusal(value, Measure::Listed)
    }

    fn refusal(&self, value: &Value, measure: Measure) -> Option<SchemaViolation> {
        let message = self.effort.refusal(value, measure)?;
        Some(SchemaViolation {
            pointer: String::new(),
            rule: TOO_EXPENSIVE.to_owned(),
            message,
        })
    }

    /// Returns `true` if the cost of checking a value can grow faster than the value does.
    pub fn is_counted(&self) -> bool {
        self.effort.is_counted()
    }

    /// Returns `true` if checking a value makes more than so many visits of its subschemas.
    pub fn exceeds(&self, value: &Value, visits: u64) -> bool {
        self.effort.exceeds(value, visits)
    }
}

/// The recursions of a schema that come to one definition at one place of a value by two ways: the
/// cost of checking such a value doubles with each level.
pub fn recursions_with_two_ways(schema: &Value) -> Vec<TwoWays> {
    let single = |schema: &Value| build(schema, bounds::MAX_PATTERN_BYTES).ok();
    effort::two_ways(schema, &single)
}

/// The validator of a schema, each of whose patterns may take so many bytes.
fn build(schema: &Value, pattern_bytes: usize) -> Result<Validator, ValidationError<'_>> {
    let patterns = PatternOptions::regex().size_limit(pattern_bytes);
    jsonschema::options()
        .with_retriever(NoExternalReferences)
        .with_pattern_options(patterns)
        .build(schema)
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

/// Answers every request for another document with no.
struct NoExternalReferences;

impl Retrieve for NoExternalReferences {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("references outside the schema are not read".into())
    }
}

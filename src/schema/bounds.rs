//! Refuses schemas whose checking would not end, or not soon.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::SchemaError;

/// The most schemas that may apply, references followed.
const MAX_EXPANDED: u64 = 100_000;
/// The most schemas inside one another, references followed.
const MAX_OPEN: usize = 256;

/// Keywords whose schemas judge the same value again.
const IN_PLACE: [&str; 9] = [
    "$ref",
    "allOf",
    "anyOf",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "oneOf",
    "then",
];
/// Keywords that hold data, or schemas that count only where something refers to them.
const NOT_APPLIED: [&str; 7] = [
    "$defs",
    "const",
    "default",
    "definitions",
    "enum",
    "examples",
    "required",
];

pub(super) fn check(schema: &Value) -> Result<(), SchemaError> {
    let mut walk = Walk {
        document: schema,
        sizes: HashMap::new(),
        open: Vec::new(),
        ending: HashSet::new(),
    };
    walk.size(schema)?;
    Ok(())
}

struct Walk<'a> {
    document: &'a Value,
    /// Sizes of schemas seen, by their place in memory.
    sizes: HashMap<*const Value, u64>,
    /// The schemas we are inside of.
    open: Vec<*const Value>,
    /// Schemas known not to come back to themselves on the same value.
    ending: HashSet<*const Value>,
}

fn refuse<T>(message: &str) -> Result<T, SchemaError> {
    Err(SchemaError {
        pointer: String::new(),
        message: message.to_owned(),
    })
}

impl<'a> Walk<'a> {
    /// How many schemas apply at the most, recursion down into the value counted once.
    fn size(&mut self, schema: &'a Value) -> Result<u64, SchemaError> {
        let place = std::ptr::from_ref(schema);
        if let Some(size) = self.sizes.get(&place) {
            return Ok(*size);
        }
        if self.open.contains(&place) {
            return Ok(1);
        }
        if self.open.len() > MAX_OPEN {
            return refuse("the references of the schema are nested too deeply");
        }
        self.ends(schema, &mut Vec::new())?;
        self.open.push(place);
        let mut size = 1u64;
        for (_, inner) in self.inner(schema) {
            size = size.saturating_add(self.size(inner)?);
        }
        self.open.pop();
        if size > MAX_EXPANDED {
            return refuse("the schema grows too large when its references are followed");
        }
        self.sizes.insert(place, size);
        Ok(size)
    }

    /// Whether judging one value comes to an end.
    fn ends(&mut self, schema: &'a Value, open: &mut Vec<*const Value>) -> Result<(), SchemaError> {
        let place = std::ptr::from_ref(schema);
        if self.ending.contains(&place) {
            return Ok(());
        }
        if open.contains(&place) || open.len() > MAX_OPEN {
            return refuse("the schema refers to itself without end");
        }
        open.push(place);
        for (keyword, inner) in self.inner(schema) {
            if IN_PLACE.contains(&keyword) {
                self.ends(inner, open)?;
            }
        }
        open.pop();
        self.ending.insert(place);
        Ok(())
    }

    /// The schemas that a schema applies, with the keyword that does.
    fn inner(&self, schema: &'a Value) -> Vec<(&'a str, &'a Value)> {
        let mut found = Vec::new();
        for (keyword, member) in schema.as_object().into_iter().flatten() {
            let keyword = keyword.as_str();
            match (keyword, member) {
                (keyword, _) if NOT_APPLIED.contains(&keyword) => {}
                ("$ref" | "$dynamicRef", Value::String(target)) => {
                    let target = target.strip_prefix('#');
                    let target = target.and_then(|target| self.document.pointer(target));
                    found.extend(target.map(|target| ("$ref", target)));
                }
                ("properties" | "patternProperties" | "dependentSchemas", Value::Object(inner)) => {
                    found.extend(inner.values().map(|schema| (keyword, schema)));
                }
                (_, Value::Array(inner)) => {
                    found.extend(inner.iter().map(|schema| (keyword, schema)));
                }
                (_, Value::Object(_)) => found.push((keyword, member)),
                (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {}
            }
        }
        found
    }
}

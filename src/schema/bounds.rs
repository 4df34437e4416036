//! Refuses schemas whose validation would take too long, or not end.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::SchemaError;

/// The bounds on a schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The most schemas that may apply, references followed.
    expanded: u64,
    /// Bytes that all its patterns may take when they are compiled, references followed; `None` for
    /// as many patterns as there are.
    patterns: Option<usize>,
}

/// Of a file of ours.
pub(super) const TRUSTED: Bounds = Bounds {
    expanded: 100_000,
    patterns: None,
};

/// Of a stranger.
pub(super) const UNTRUSTED: Bounds = Bounds {
    expanded: 10_000,
    patterns: Some(8 << 20),
};

/// Bytes that one pattern may take when it is compiled.
pub(super) const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The most schemas inside one another, references followed.
const MAX_OPEN: usize = 256;

/// Keywords whose schemas check the same value again.
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

/// Checks a schema, and gives how many bytes each of its patterns may take.
pub(super) fn check(schema: &Value, bounds: Bounds) -> Result<usize, SchemaError> {
    let mut walk = BoundsCheck {
        document: schema,
        most: bounds.expanded,
        sizes: HashMap::new(),
        open: Vec::new(),
        ending: HashSet::new(),
    };
    let size = walk.size(schema)?;
    let share = |all: usize| match usize::try_from(size.patterns) {
        Ok(0) => MAX_PATTERN_BYTES,
        Ok(patterns) => MAX_PATTERN_BYTES.min(all / patterns),
        Err(_) => 0,
    };
    Ok(bounds.patterns.map_or(MAX_PATTERN_BYTES, share))
}

/// The size of a schema, references followed.
#[derive(Clone, Copy)]
struct Size {
    schemas: u64,
    patterns: u64,
}

struct BoundsCheck<'a> {
    document: &'a Value,
    /// The most schemas.
    most: u64,
    /// Sizes of schemas seen, by their place in memory.
    sizes: HashMap<*const Value, Size>,
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

impl<'a> BoundsCheck<'a> {
    /// The most schemas and patterns that apply, recursion down into the value counted once.
    fn size(&mut self, schema: &'a Value) -> Result<Size, SchemaError> {
        let place = std::ptr::from_ref(schema);
        if let Some(size) = self.sizes.get(&place) {
            return Ok(*size);
        }
        if self.open.contains(&place) {
            return Ok(Size {
                schemas: 1,
                patterns: 0,
            });
        }
        if self.open.len() > MAX_OPEN {
            return refuse("the references of the schema are nested too deeply");
        }
        self.ends(schema, &mut Vec::new())?;
        self.open.push(place);
        let mut size = Size {
            schemas: 1,
            patterns: patterns(schema),
        };
        for (_, inner) in self.inner(schema) {
            let inner = self.size(inner)?;
            size.schemas = size.schemas.saturating_add(inner.schemas);
            size.patterns = size.patterns.saturating_add(inner.patterns);
        }
        self.open.pop();
        if size.schemas > self.most {
            return refuse("the schema grows too large when its references are followed");
        }
        self.sizes.insert(place, size);
        Ok(size)
    }

    /// Refuses a schema with which checking a value does not come to an end.
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

/// The patterns of a schema itself.
fn patterns(schema: &Value) -> u64 {
    let of_names = schema.get("patternProperties").and_then(Value::as_object);
    let of_names = of_names.map_or(0, |names| names.len() as u64);
    of_names + u64::from(schema.get("pattern").is_some_and(Value::is_string))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Schema;

    /// An object of so many properties, each with this schema.
    fn object(count: usize, each: &Value) -> Value {
        let properties = (0..count).map(|at| (format!("p{at}"), each.clone()));
        let properties: serde_json::Map<String, Value> = properties.collect();
        json!({ "properties": properties })
    }

    #[test]
    fn the_patterns_of_a_stranger_share_what_one_file_of_ours_may_take_for_each() {
        let large = json!({"pattern": "^\\p{L}{20}$"});
        assert!(Schema::of_value(&object(1, &large)).is_ok());
        assert!(Schema::compile_untrusted(&object(4, &large)).is_ok());
        for many in [
            object(400, &large),
            json!({"patternProperties": {"^\\p{L}{20}$": object(400, &json!({"pattern": "a"}))}}),
            // Named by reference, each is compiled again.
            json!({"$defs": {"l": large}, "allOf": [object(400, &json!({"$ref": "#/$defs/l"}))]}),
        ] {
            assert!(Schema::compile_untrusted(&many).is_err(), "{many}");
        }
        // What people write.
        let small = json!({"pattern": "^[a-z0-9_-]{1,64}$"});
        assert!(Schema::compile_untrusted(&object(200, &small)).is_ok());
    }

    #[test]
    fn the_schema_of_a_stranger_does_not_grow_as_far_as_one_of_ours() {
        let doubled = (0..13).fold(json!({}), |inner, at| {
            let next = format!("d{at}");
            let two = json!({"$ref": format!("#/$defs/{next}")});
            let mut defs = inner["$defs"].as_object().cloned().unwrap_or_default();
            let mut last = inner;
            if let Some(fields) = last.as_object_mut() {
                fields.remove("$defs");
            }
            defs.insert(next, last);
            json!({"$defs": defs, "properties": {"a": two, "b": two}})
        });
        assert!(Schema::of_value(&doubled).is_ok());
        let refused = Schema::compile_untrusted(&doubled).unwrap_err();
        assert!(refused.message.contains("grows too large"), "{refused}");
    }
}

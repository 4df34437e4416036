//! The defaults of a JSON Schema, filled in where a value leaves something out.

use serde_json::{Map, Value};

/// Defaults that create objects with defaults end here.
const MAX_DEPTH: usize = 64;

/// Adds to a value what it leaves out and its schema has a default for, at every level.
pub fn fill(document: &Value, value: &mut Value) {
    Filling { document }.fill(document, value, 0);
}

struct Filling<'a> {
    /// What `$ref` points into.
    document: &'a Value,
}

impl Filling<'_> {
    fn fill(&self, schema: &Value, value: &mut Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = target
                .strip_prefix('#')
                .and_then(|at| self.document.pointer(at));
            if let Some(target) = target {
                self.fill(target, value, depth + 1);
            }
        }
        for part in schema
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            self.fill(part, value, depth + 1);
        }
        match value {
            Value::Object(members) => self.fill_object(schema, members, depth),
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    for item in items {
                        self.fill(schema, item, depth + 1);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn fill_object(&self, schema: &Value, members: &mut Map<String, Value>, depth: usize) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            if let Some(default) = property.get("default")
                && !members.contains_key(name)
            {
                members.insert(name.clone(), default.clone());
            }
            if let Some(member) = members.get_mut(name) {
                self.fill(property, member, depth + 1);
            }
        }
    }
}

//! JSON Schemas for request bodies, as in `/openapi.json`: adds what the Rust declarations cannot
//! express, and words the errors for bodies that do not fit.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use ktsu_schema::Schema;
use ktsu_server::FieldViolation;
use ktsu_server::pointer_errors::integer;

/// The schema of a type, as `/openapi.json` describes it.
pub(super) struct DtoSchema {
    name: fn() -> Cow<'static, str>,
    compiled: OnceLock<Option<Schema>>,
}

impl DtoSchema {
    pub(super) const fn of<T: ToSchema>() -> Self {
        Self {
            name: T::name,
            compiled: OnceLock::new(),
        }
    }

    /// The violations of the schema in a body.
    pub(super) fn check(&self, body: &Value) -> Vec<FieldViolation> {
        let compiled = self.compiled.get_or_init(|| {
            let mut whole = self.schema();
            let all = &super::openapi_document()["components"]["schemas"];
            whole["components"] = json!({"schemas": referred_to(&whole, all)});
            Schema::of_value(&whole).ok()
        });
        let found = compiled.as_ref().map(|schema| schema.check(body));
        let violation = |one: ktsu_schema::SchemaViolation| FieldViolation {
            path: one.pointer,
            message: one.message,
            rule: one.rule,
        };
        found.into_iter().flatten().map(violation).collect()
    }

    /// A body that fits, with every integer written as one: `5.0` is an integer to JSON Schema.
    pub(super) fn with_integers(&self, mut body: Value) -> Value {
        write_integers(&self.schema(), &mut body);
        body
    }

    fn schema(&self) -> Value {
        json!({"$ref": format!("{SHAPES}{}", (self.name)())})
    }
}

pub(super) const SHAPES: &str = "#/components/schemas/";

/// Those of all shapes that one refers to, however many steps away: a compiled schema keeps its
/// document, and that of all shapes is a megabyte.
fn referred_to(schema: &Value, all: &Value) -> Map<String, Value> {
    let mut found = Map::new();
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                let reference = members.get("$ref").and_then(Value::as_str);
                let name = reference.and_then(|reference| reference.strip_prefix(SHAPES));
                let shape = name.and_then(|name| Some((name, all.get(name)?)));
                if let Some((name, shape)) = shape.filter(|(name, _)| !found.contains_key(*name)) {
                    found.insert(name.to_owned(), shape.clone());
                    open.push(shape);
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

/// The first thing a body breaks, and how many more there are.
pub(super) fn in_words(found: &[FieldViolation]) -> String {
    let Some(first) = found.first() else {
        return String::new();
    };
    let place = match first.path.as_str() {
        "" => String::new(),
        path => format!("{path}: "),
    };
    match found.len() {
        1 => format!("{place}{}", first.message),
        count => format!("{place}{} (and {} more)", first.message, count - 1),
    }
}

/// Converts numbers to integers wherever a schema asks for one. Bodies are at most 64 levels deep,
/// and a reference is followed only once per level of the body.
fn write_integers(schema: &Value, value: &mut Value) {
    let schema = resolved(schema);
    if asks_for_integer(schema)
        && let Some(number) = integer(value)
    {
        *value = Value::from(number);
        return;
    }
    for choice in ["anyOf", "allOf", "oneOf"] {
        for one in schema[choice].as_array().into_iter().flatten() {
            write_integers(one, value);
        }
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                write_integers(&schema["properties"][name], member);
            }
        }
        Value::Array(items) => {
            for item in items {
                write_integers(&schema["items"], item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn asks_for_integer(schema: &Value) -> bool {
    match &schema["type"] {
        Value::String(kind) => kind == "integer",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "integer"),
        _ => false,
    }
}

fn resolved(schema: &Value) -> &Value {
    let name = schema["$ref"]
        .as_str()
        .and_then(|at| at.strip_prefix(SHAPES));
    match name {
        Some(name) => &super::openapi_document()["components"]["schemas"][name],
        None => schema,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_brings_what_it_refers_to_at_any_distance_and_nothing_else() {
        let reference = |name: &str| json!({"$ref": format!("{SHAPES}{name}")});
        let all = json!({
            "A": {"properties": {"b": {"items": reference("B")}}},
            "B": {"anyOf": [reference("C"), reference("A")]},
            "C": {"type": "string"},
            "D": {"type": "object"},
        });
        let found = referred_to(&reference("A"), &all);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["A", "B", "C"]);
        assert!(referred_to(&reference("E"), &all).is_empty());
    }

    #[test]
    fn every_reference_of_a_shape_leads_to_a_shape_that_is_brought_along() {
        let all = &crate::routes::openapi_document()["components"]["schemas"];
        for name in all.as_object().unwrap().keys() {
            let whole = json!({"$ref": format!("{SHAPES}{name}")});
            let brought = referred_to(&whole, all);
            let text = Value::Object(brought.clone()).to_string();
            for rest in text.split("\"#/").skip(1) {
                let name = rest.split('"').next().unwrap();
                let name = name.strip_prefix("components/schemas/").unwrap();
                assert!(brought.contains_key(name), "{name}");
            }
            let whole = json!({"$ref": whole["$ref"], "components": {"schemas": brought}});
            assert!(Schema::of_value(&whole).is_ok(), "{name}");
        }
    }
}

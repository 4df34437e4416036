//! JSON Schema (draft 2020-12) of a shape.

use serde_json::{Map, Value, json};

use super::{FieldType, KeyShape, MapShape};

/// The schema of a whole file.
pub fn document(title: &str, shape: &MapShape) -> Value {
    let mut schema = of_shape(shape);
    if let Value::Object(members) = &mut schema {
        let dialect = "https://json-schema.org/draft/2020-12/schema";
        members.insert("$schema".to_owned(), dialect.into());
        members.insert("title".to_owned(), title.into());
    }
    schema
}

fn of_shape(shape: &MapShape) -> Value {
    let properties: Map<String, Value> = shape
        .keys
        .iter()
        .map(|key| (key.name.to_owned(), of_key(key)))
        .collect();
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    let required = shape.keys.iter().filter(|key| key.required);
    let required: Vec<&str> = required.map(|key| key.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    let groups = shape.one_of.iter().map(|group| {
        let group: Vec<Value> = group.iter().map(|key| needs(key)).collect();
        json!({ "oneOf": group })
    });
    let groups: Vec<Value> = groups.collect();
    if !groups.is_empty() {
        schema["allOf"] = groups.into();
    }
    if !shape.any_of.is_empty() {
        schema["anyOf"] = shape.any_of.iter().map(|key| needs(key)).collect();
    }
    let bound: Map<String, Value> = shape
        .keys
        .iter()
        .filter(|key| !key.with.is_empty())
        .map(|key| {
            let any: Vec<Value> = key.with.iter().map(|other| needs(other)).collect();
            (key.name.to_owned(), json!({ "anyOf": any }))
        })
        .collect();
    if !bound.is_empty() {
        schema["dependentSchemas"] = Value::Object(bound);
    }
    schema
}

fn needs(key: &str) -> Value {
    json!({ "required": [key] })
}

fn of_key(key: &KeyShape) -> Value {
    let mut schema = of(&key.of);
    schema["description"] = key.doc.into();
    schema
}

fn of(kind: &FieldType) -> Value {
    match kind {
        FieldType::Any => json!({}),
        FieldType::Text | FieldType::Note => json!({"type": "string"}),
        FieldType::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
        FieldType::Keywords(words) => json!({ "enum": words }),
        FieldType::Flag => json!({"type": "boolean"}),
        FieldType::Number(least, most) => {
            json!({"type": "number", "minimum": least, "maximum": most})
        }
        FieldType::Integer(least, most) => {
            json!({"type": "integer", "minimum": least, "maximum": most})
        }
        FieldType::Schema => json!({"type": ["object", "boolean"]}),
        FieldType::List(item) => json!({"type": "array", "items": of(item)}),
        FieldType::Filled(item) => json!({"type": "array", "items": of(item), "minItems": 1}),
        FieldType::Each(member) => json!({"type": "object", "additionalProperties": of(member)}),
        FieldType::Map(shape) => of_shape(shape),
        FieldType::Either(kinds) => {
            let any: Vec<Value> = kinds.iter().map(of).collect();
            json!({ "anyOf": any })
        }
    }
}

//! Params: defaults filled in, then judged by JSON Schema, before a run exists (decision K4).

use ktsu_ledger::Json;
use serde_json::{Map, Value};

use super::airlock::{Schema, SchemaError, Violation};

/// Defaults that create objects with defaults end here.
const MAX_DEPTH: usize = 64;

/// A compiled `params.schema`.
#[derive(Debug, Clone)]
pub struct ParamsSchema {
    document: Value,
    schema: Schema,
}

impl ParamsSchema {
    /// Compiles a schema. The keyword `secret` means nothing here.
    pub fn compile(schema: &Json) -> Result<Self, SchemaError> {
        Ok(Self {
            document: schema.to_value(),
            schema: Schema::compile(schema)?,
        })
    }

    /// The names listed as required at the top level that have no default.
    pub fn required(&self) -> Vec<&str> {
        let listed = self.document.get("required").and_then(Value::as_array);
        let names = listed.into_iter().flatten().filter_map(Value::as_str);
        names.filter(|name| !self.has_default(name)).collect()
    }

    /// The names of the top level's `properties`.
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        let properties = self.document.get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flat_map(|map| map.keys().map(String::as_str))
    }

    /// Whether fields beside [`ParamsSchema::properties`] are refused.
    pub fn is_closed(&self) -> bool {
        self.document.get("additionalProperties") == Some(&Value::Bool(false))
            && self.document.get("patternProperties").is_none()
    }

    /// The one type that the schema declares for a param.
    pub fn type_of(&self, name: &str) -> Option<&str> {
        self.property(name)?.get("type")?.as_str()
    }

    /// What is wrong with the value of one param, whatever the others are.
    pub fn check_one(&self, name: &str, value: Value) -> Vec<Violation> {
        if self.property(name).is_none() {
            return Vec::new();
        }
        let below = format!("/{}", escaped(name));
        let alone = Value::Object(Map::from_iter([(name.to_owned(), value)]));
        let found = self.schema.check(&alone).into_iter();
        let within = |pointer: &str| {
            pointer
                .strip_prefix(&below)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        found.filter(|one| within(&one.pointer)).collect()
    }

    fn property(&self, name: &str) -> Option<&Value> {
        self.document.get("properties")?.get(name)
    }

    fn has_default(&self, name: &str) -> bool {
        self.property(name)
            .is_some_and(|property| property.get("default").is_some())
    }

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

/// A name as a segment of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The params a run starts with: the body with every default of the schema that it left out.
///
/// Refuses a body that is no object and whatever breaks the schema. A default counts as present;
/// an optional param without one stays absent.
pub fn resolve(schema: Option<&ParamsSchema>, mut body: Value) -> Result<Value, Vec<Violation>> {
    if !body.is_object() {
        return Err(vec![Violation {
            pointer: String::new(),
            rule: "type".to_owned(),
            message: "expected object".to_owned(),
        }]);
    }
    let Some(params) = schema else {
        return Ok(body);
    };
    params.fill(&params.document, &mut body, 0);
    let violations = params.schema.check(&body);
    if violations.is_empty() {
        Ok(body)
    } else {
        Err(violations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(schema: Value, body: Value) -> Result<Value, Vec<Violation>> {
        let schema = ParamsSchema::compile(&Json::from_value(&schema).unwrap()).unwrap();
        resolve(Some(&schema), body)
    }

    #[test]
    fn defaults_are_filled_in_at_every_level() {
        // K4
        let schema = json!({"required": ["a"], "$defs": {"d": {"properties": {"z": {"default": 9}}}},
            "properties": {
                "a": {"default": {}, "properties": {"b": {"default": [1]}}},
                "l": {"items": {"$ref": "#/$defs/d"}},
                "p": {"secret": true}, "n": {"default": null}}});
        assert_eq!(
            run(schema, json!({"l": [{}, {"z": 1}]})),
            Ok(json!({"a": {"b": [1]}, "l": [{"z": 9}, {"z": 1}], "n": null}))
        );
    }

    #[test]
    fn types_and_unknown_fields_are_refused() {
        let schema =
            json!({"additionalProperties": false, "properties": {"n": {"type": "integer"}}});
        assert_eq!(
            run(schema.clone(), json!({"n": "x"})).unwrap_err()[0].pointer,
            "/n"
        );
        assert_eq!(
            run(schema.clone(), json!({"m": 1})).unwrap_err()[0].rule,
            "additionalProperties"
        );
        assert_eq!(
            run(schema, json!([])).unwrap_err()[0].message,
            "expected object"
        );
        assert_eq!(resolve(None, json!({"x": 1})), Ok(json!({"x": 1})));
    }

    #[test]
    fn a_default_that_holds_itself_ends() {
        let schema = json!({"properties": {"a": {"$ref": "#", "default": {}}}});
        assert!(run(schema, json!({})).is_ok());
    }
}

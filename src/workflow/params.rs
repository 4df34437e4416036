//! Params: defaults filled in, then judged by JSON Schema, before a run exists (decision K4).

use std::collections::HashSet;

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

    /// Whether the schema names params and says nothing of any others: they are let through unseen.
    pub fn is_left_open(&self) -> bool {
        const SAID: [&str; 9] = [
            "$ref",
            "additionalProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "patternProperties",
            "propertyNames",
            "then",
            "unevaluatedProperties",
        ];
        let names = self.properties().next().is_some();
        names && SAID.iter().all(|name| self.document.get(name).is_none())
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

    /// What breaks the schema of a param in its own default, defaults within it filled in.
    pub fn check_default(&self, name: &str) -> Vec<Violation> {
        let default = self
            .property(name)
            .and_then(|property| property.get("default"));
        let Some(default) = default else {
            return Vec::new();
        };
        let mut alone = Value::Object(Map::from_iter([(name.to_owned(), default.clone())]));
        self.fill(&self.document, &mut alone, 0);
        let filled = alone.get(name).cloned().unwrap_or_default();
        self.check_one(name, filled)
    }

    /// The params marked `secret: true` that a value holds. A secret is recorded nowhere, so it can
    /// come from a variable alone (seed 000, invariant 10).
    pub fn secrets_in(&self, value: &Value) -> Vec<Violation> {
        let mut looking = Looking::default();
        self.secrets_at(&self.document, value, 0, &mut looking);
        looking.found.dedup();
        looking.found
    }

    fn secrets_at(&self, schema: &Value, value: &Value, depth: usize, looking: &mut Looking) {
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        if depth > 4 * MAX_DEPTH || !looking.seen.insert(pair) {
            return;
        }
        if schema.get("secret") == Some(&Value::Bool(true)) {
            looking.found.push(Violation {
                pointer: looking.at.clone(),
                rule: "secret".to_owned(),
                message: "a secret is not sent by value".to_owned(),
            });
            return;
        }
        for part in self.parts(schema) {
            self.secrets_at(part, value, depth + 1, looking);
        }
        let length = looking.at.len();
        let mut below = |schema: &Value, segment: &str, value: &Value| {
            looking.at.push('/');
            looking.at.push_str(&escaped(segment));
            self.secrets_at(schema, value, depth + 1, looking);
            looking.at.truncate(length);
        };
        match value {
            Value::Object(members) => {
                let properties = schema.get("properties").and_then(Value::as_object);
                for (name, property) in properties.into_iter().flatten() {
                    if let Some(member) = members.get(name) {
                        below(property, name, member);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    for (index, item) in items.iter().enumerate() {
                        below(schema, &index.to_string(), item);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Schemas that describe the same value: what `$ref` names, and the branches of combinations.
    fn parts<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        let target = schema.get("$ref").and_then(Value::as_str);
        let target = target
            .and_then(|target| target.strip_prefix('#'))
            .and_then(|at| self.document.pointer(at));
        let mut parts: Vec<&Value> = target.into_iter().collect();
        for name in ["allOf", "anyOf", "oneOf"] {
            let list = schema.get(name).and_then(Value::as_array);
            parts.extend(list.into_iter().flatten());
        }
        parts.extend(
            ["if", "then", "else"]
                .iter()
                .filter_map(|name| schema.get(name)),
        );
        parts
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

/// Where one looks for secrets, and what was found.
#[derive(Default)]
struct Looking {
    at: String,
    found: Vec<Violation>,
    /// Schemas held against values: a schema within itself is looked at once a value.
    seen: HashSet<(*const Value, *const Value)>,
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
    fn a_secret_by_value_is_found_wherever_the_schema_marks_it() {
        let schema = json!({"$defs": {"k": {"secret": true}},
            "properties": {"key": {"type": "string", "secret": true}, "plain": {"secret": false},
                "a/b": {"items": {"properties": {"t": {"$ref": "#/$defs/k"}}}}},
            "anyOf": [{"properties": {"other": {"secret": true}}}]});
        let schema = ParamsSchema::compile(&Json::from_value(&schema).unwrap()).unwrap();
        let places = |body: Value| -> Vec<String> {
            let found = schema.secrets_in(&body);
            assert!(found.iter().all(|one| !one.message.contains("hunter2")));
            found.into_iter().map(|one| one.pointer).collect()
        };
        let body = json!({"key": "hunter2", "plain": 1, "other": 2, "a/b": [{}, {"t": "hunter2"}]});
        assert_eq!(places(body), ["/other", "/a~1b/1/t", "/key"]);
        assert_eq!(places(json!({"plain": "hunter2"})), Vec::<String>::new());
        assert_eq!(places(json!({"key": null})), ["/key"]);
    }

    #[test]
    fn a_schema_within_itself_ends() {
        let schema = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]});
        let compiled = ParamsSchema::compile(&Json::from_value(&schema).unwrap());
        if let Ok(schema) = compiled {
            assert_eq!(schema.secrets_in(&json!({})), []);
        }
    }

    #[test]
    fn a_default_that_holds_itself_ends() {
        let schema = json!({"properties": {"a": {"$ref": "#", "default": {}}}});
        assert!(run(schema, json!({})).is_ok());
    }
}

//! Params: defaults are filled in, then the result is validated by JSON Schema, before a run exists
//! (decision K4).

use std::collections::HashSet;

use ktsu_ledger::CanonicalJson;
use serde_json::{Map, Value};

use super::airlock::{self, Schema, SchemaError, SchemaViolation};
use super::defaults::{self, segment};
use super::rules::DecisionRules;
use ktsu_schema::{applies_reference_siblings, parts};

/// Schemas within each other are looked into so far.
const MAX_DEPTH: usize = 64;

/// The most nulls that are left out to see whether the whole is accepted without them.
const MAX_TRIES: usize = 64;

/// A compiled `params.schema`.
#[derive(Debug, Clone)]
pub struct ParamsSchema {
    document: Value,
    schema: Schema,
    /// True if any part of it is marked `secret: true`.
    has_secrets: bool,
}

impl ParamsSchema {
    /// Compiles a schema. The keyword `secret` means nothing here.
    pub fn compile(schema: &CanonicalJson) -> Result<Self, SchemaError> {
        let document = schema.to_value();
        Ok(Self {
            has_secrets: has_secrets(&document),
            schema: Schema::compile(schema)?,
            document,
        })
    }

    /// The compiled schema itself.
    pub fn schema(&self) -> &Schema {
        &self.schema
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

    /// Returns `true` if fields beside [`ParamsSchema::properties`] are refused.
    pub fn is_closed(&self) -> bool {
        let read =
            self.document.get("$ref").is_none() || applies_reference_siblings(&self.document);
        read && self.document.get("additionalProperties") == Some(&Value::Bool(false))
            && self.document.get("patternProperties").is_none()
    }

    /// Returns `true` if the schema names params and says nothing of any others: they are let
    /// through unseen.
    pub fn is_left_open(&self) -> bool {
        const ADDITIONAL_KEYWORDS: &str = "\
            $dynamicRef $ref additionalProperties allOf anyOf dependentSchemas else oneOf \
            patternProperties propertyNames then unevaluatedProperties";
        let mut keywords = ADDITIONAL_KEYWORDS.split(' ');
        let names = self.properties().next().is_some();
        names && keywords.all(|name| self.document.get(name).is_none())
    }

    /// The one type that the schema declares for a param.
    pub fn type_of(&self, name: &str) -> Option<&str> {
        self.property(name)?.get("type")?.as_str()
    }

    /// The violations by the value of one param, whatever the others are.
    pub fn check_one(&self, name: &str, value: Value) -> Vec<SchemaViolation> {
        if self.property(name).is_none() {
            return Vec::new();
        }
        let below = format!("/{}", segment(name));
        let alone = Value::Object(Map::from_iter([(name.to_owned(), value)]));
        let found = self.schema.check(&alone).into_iter();
        let within = |pointer: &str| {
            pointer
                .strip_prefix(&below)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        found.filter(|one| within(&one.pointer)).collect()
    }

    /// The violations of the schema of a param by its own default, defaults within it filled in.
    pub fn check_default(&self, name: &str) -> Vec<SchemaViolation> {
        let default = self
            .property(name)
            .and_then(|property| property.get("default"));
        let Some(default) = default else {
            return Vec::new();
        };
        let mut alone = Value::Object(Map::from_iter([(name.to_owned(), default.clone())]));
        if let Err(refused) = defaults::fill(&self.document, &mut alone, DecisionRules::NEWEST) {
            return vec![refused];
        }
        let filled = alone.get(name).cloned().unwrap_or_default();
        self.check_one(name, filled)
    }

    /// The params marked `secret: true` that a value holds. A secret is recorded nowhere, so it can
    /// come from a variable alone (seed 000, invariant 10). A value that would take too much to check
    /// is not searched: that it would is the one violation then.
    pub fn secrets_in(&self, value: &Value) -> Vec<SchemaViolation> {
        let mut looking = SecretScan::default();
        if !self.has_secrets {
            return looking.found;
        }
        if let Some(refused) = self.schema.too_expensive(value) {
            return vec![refused];
        }
        self.secrets_at(&self.document, value, 0, &mut looking);
        looking.found.dedup();
        looking.found
    }

    fn secrets_at(&self, schema: &Value, value: &Value, depth: usize, looking: &mut SecretScan) {
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        if depth > 4 * MAX_DEPTH || !looking.seen.insert(pair) {
            return;
        }
        if schema.get("secret") == Some(&Value::Bool(true)) {
            looking.found.push(SchemaViolation {
                pointer: looking.at.clone(),
                rule: "secret".to_owned(),
                message: "a secret is not sent by value".to_owned(),
            });
            return;
        }
        for part in parts(&self.document, schema) {
            self.secrets_at(part, value, depth + 1, looking);
        }
        let length = looking.at.len();
        let mut below = |schema: &Value, name: &str, value: &Value| {
            looking.at.push('/');
            looking.at.push_str(&segment(name));
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
            _ => {}
        }
    }

    fn property(&self, name: &str) -> Option<&Value> {
        self.document.get("properties")?.get(name)
    }

    fn has_default(&self, name: &str) -> bool {
        self.property(name)
            .is_some_and(|property| property.get("default").is_some())
    }
}

/// Returns `true` if any part of a document has `secret: true`.
fn has_secrets(document: &Value) -> bool {
    let mut open = vec![document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                if members.get("secret") == Some(&Value::Bool(true)) {
                    return true;
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    false
}

/// Leaves out the nulls of a child's params that count as absence. Under rules 1 these are the
/// required params that are null and have no default.
pub fn without_nulls(
    schema: Option<&ParamsSchema>,
    body: &mut Value,
    filled: &[String],
    rules: DecisionRules,
) {
    if rules.nulls_are_absence() {
        return without_refused_nulls(schema, body, filled, rules);
    }
    if let (Some(schema), Value::Object(members)) = (schema, body) {
        let required = schema.required();
        members.retain(|name, value| !(value.is_null() && required.contains(&name.as_str())));
    }
}

/// Leaves out the nulls that a template gives where the schema does not allow null, so that a
/// default can take their place (decision K4). `filled`: where the template has expressions; the
/// top level is looked at as a whole. Within arrays nothing is left out.
///
/// A rule that names the place of a null does not allow it. Where the schema has alternatives, none
/// does, and what counts is whether the whole is refused with a null and not without it.
pub fn without_refused_nulls(
    schema: Option<&ParamsSchema>,
    body: &mut Value,
    filled: &[String],
    rules: DecisionRules,
) {
    let (Some(schema), Value::Object(members)) = (schema, &mut *body) else {
        return;
    };
    let unknown = |name: &str| schema.is_closed() && schema.property(name).is_none();
    members.retain(|name, value| !(value.is_null() && unknown(name)));
    let top = members.keys().map(|name| format!("/{}", segment(name)));
    let mut nulls: Vec<String> = top.chain(filled.iter().cloned()).collect();
    nulls.retain(|at| body.pointer(at) == Some(&Value::Null));
    // A schema tells of so many violations at a time; each round leaves out at least one null.
    while !nulls.is_empty() {
        let found = airlock::check(&schema.schema, body, rules);
        if airlock::code_of_first(&found, "") == airlock::TOO_EXPENSIVE {
            return;
        }
        let refused = |at: &String| found.iter().any(|one| one.pointer == **at);
        let (out, rest): (Vec<_>, Vec<_>) = nulls.into_iter().partition(refused);
        nulls = rest;
        if out.into_iter().filter(|at| remove(body, at)).count() == 0 {
            break;
        }
    }
    try_without(schema, body, nulls, rules);
}

/// Leaves out nulls with which the whole is refused and without which it is not.
fn try_without(
    schema: &ParamsSchema,
    body: &mut Value,
    mut nulls: Vec<String>,
    rules: DecisionRules,
) {
    nulls.truncate(MAX_TRIES);
    if nulls.is_empty() {
        return;
    }
    let broken = |body: &Value| {
        let resolved = resolve_within(Some(schema), body.clone(), DecisionRules::NEWEST, rules);
        resolved.map_or_else(|found| found.len(), |_| 0)
    };
    let mut most = broken(body);
    nulls.retain(|at| {
        let mut without = body.clone();
        if most == 0 || !remove(&mut without, at) {
            return false;
        }
        let left = broken(&without);
        if left < most {
            (*body, most) = (without, left);
            return false;
        }
        true
    });
    // Several that break one rule: all of them, and then each again that may be there.
    let mut without = body.clone();
    for at in &nulls {
        remove(&mut without, at);
    }
    if most == 0 || broken(&without) > 0 {
        return;
    }
    for at in &nulls {
        let mut with = without.clone();
        if insert_null(&mut with, at) && broken(&with) == 0 {
            without = with;
        }
    }
    *body = without;
}

/// Removes the member of an object; whether there was one.
fn remove(body: &mut Value, at: &str) -> bool {
    let member = members_around(body, at);
    member.is_some_and(|(members, name)| members.remove(&name).is_some())
}

/// Puts a null where one was removed.
fn insert_null(body: &mut Value, at: &str) -> bool {
    let member = members_around(body, at);
    member.is_some_and(|(members, name)| members.insert(name, Value::Null).is_none())
}

/// The object around a place, and the name in it.
fn members_around<'b>(
    body: &'b mut Value,
    at: &str,
) -> Option<(&'b mut Map<String, Value>, String)> {
    let (around, name) = at.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    Some((body.pointer_mut(around)?.as_object_mut()?, name))
}

/// A search for secrets: the current place, and what was found.
#[derive(Default)]
struct SecretScan {
    at: String,
    found: Vec<SchemaViolation>,
    /// Schemas held against values: a schema within itself is looked at once a value.
    seen: HashSet<(*const Value, *const Value)>,
}

/// The params a run starts with: the body with every default of the schema that it left out.
///
/// Refuses a body that is no object and whatever breaks the schema. A default counts as present;
/// an optional param without one stays absent.
///
/// # Errors
/// What breaks the schema.
pub fn resolve(
    schema: Option<&ParamsSchema>,
    body: Value,
    rules: DecisionRules,
) -> Result<Value, Vec<SchemaViolation>> {
    resolve_within(schema, body, rules, rules)
}

/// As [`resolve`], of params that come from outside just now: whatever rules the run has, they are
/// refused if they would take too much to check.
///
/// # Errors
/// What breaks the schema.
pub fn resolve_given(
    schema: Option<&ParamsSchema>,
    body: Value,
    rules: DecisionRules,
) -> Result<Value, Vec<SchemaViolation>> {
    resolve_within(schema, body, rules, DecisionRules::NEWEST)
}

/// As [`resolve`], checked under rules of its own.
fn resolve_within(
    schema: Option<&ParamsSchema>,
    mut body: Value,
    rules: DecisionRules,
    checked_under: DecisionRules,
) -> Result<Value, Vec<SchemaViolation>> {
    if !body.is_object() {
        return Err(vec![SchemaViolation {
            pointer: String::new(),
            rule: "type".to_owned(),
            message: "expected object".to_owned(),
        }]);
    }
    let Some(params) = schema else {
        return Ok(body);
    };
    // Looking for defaults takes as much as a check does.
    let refused = checked_under.bounds_violations();
    let refused = refused.then(|| params.schema.too_expensive(&body));
    if let Some(refused) = refused.flatten() {
        return Err(vec![refused]);
    }
    defaults::fill(&params.document, &mut body, rules).map_err(|refused| vec![refused])?;
    let violations = airlock::check(&params.schema, &body, checked_under);
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

    fn run(schema: Value, body: Value) -> Result<Value, Vec<SchemaViolation>> {
        let schema = ParamsSchema::compile(&CanonicalJson::from_value(&schema).unwrap()).unwrap();
        resolve(Some(&schema), body, DecisionRules::NEWEST)
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
    fn a_body_that_brings_too_many_defaults_is_refused_at_their_place() {
        let large = json!({"type": "array", "default": vec![0; 1_000]});
        let schema = json!({"properties": {"rows": {"items": {"properties": {"l": large}}}}});
        let rows = |count: usize| json!({"rows": vec![json!({}); count]});
        assert!(run(schema.clone(), rows(90)).is_ok());
        let found = run(schema, rows(110)).unwrap_err();
        let first = (found[0].pointer.as_str(), found[0].rule.as_str());
        assert_eq!((first, found.len()), (("/rows/99/l", "default"), 1));
    }

    #[test]
    fn a_body_that_takes_too_much_to_check_is_refused_before_defaults_are_looked_for() {
        let n = json!({"$ref": "#/$defs/n"});
        let twice = json!({"properties": {"a": {"allOf": [n, n]}}});
        let schema = json!({"$defs": {"n": twice}, "properties": {"x": n}});
        let deep = (0..40).fold(json!(1), |inner, _| json!({"a": inner}));
        let found = run(schema, json!({"x": deep})).unwrap_err();
        let first = (found[0].pointer.as_str(), found[0].rule.as_str());
        assert_eq!((first, found.len()), (("", airlock::TOO_EXPENSIVE), 1));
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
        assert_eq!(
            resolve(None, json!({"x": 1}), DecisionRules::NEWEST),
            Ok(json!({"x": 1}))
        );
    }

    #[test]
    fn a_secret_by_value_is_found_wherever_the_schema_marks_it() {
        let schema = json!({"$defs": {"k": {"secret": true}},
            "properties": {"key": {"type": "string", "secret": true}, "plain": {"secret": false},
                "a/b": {"items": {"properties": {"t": {"$ref": "#/$defs/k"}}}}},
            "anyOf": [{"properties": {"other": {"secret": true}}}]});
        let schema = ParamsSchema::compile(&CanonicalJson::from_value(&schema).unwrap()).unwrap();
        let places = |body: Value| -> Vec<String> {
            let found = schema.secrets_in(&body);
            assert!(found.iter().all(|one| !one.message.contains("hunter2")));
            found.into_iter().map(|one| one.pointer).collect()
        };
        let body = json!({"key": "hunter2", "plain": 1, "other": 2, "a/b": [{}, {"t": "hunter2"}]});
        assert_eq!(places(body), ["/other", "/a~1b/1/t", "/key"]);
        assert_eq!(places(json!({"plain": "hunter2"})), Vec::<String>::new());
        assert_eq!(places(json!({"key": null})), ["/key"]);
        assert!(schema.has_secrets);
        let names: Vec<String> = (0..900).map(|n| format!("n{n}")).collect();
        let mark = json!({"secret": true});
        let marked = Value::Object(names.into_iter().map(|name| (name, mark.clone())).collect());
        let wide = json!({"properties": {"rows": {"items": {"properties": marked}}}});
        let wide = ParamsSchema::compile(&CanonicalJson::from_value(&wide).unwrap()).unwrap();
        let rows = json!({"rows": vec![json!({}); 30_000]});
        assert_eq!(wide.secrets_in(&rows)[0].rule, airlock::TOO_EXPENSIVE);
        let none = json!({"properties": {"secret": {"type": "boolean"}}});
        let none = ParamsSchema::compile(&CanonicalJson::from_value(&none).unwrap()).unwrap();
        assert!(!none.has_secrets, "a property of that name is no mark");
    }

    #[test]
    fn a_null_is_left_out_where_its_schema_does_not_allow_it() {
        let schema = json!({"additionalProperties": false, "$defs": {"n": {"type": "integer"}},
            "properties": {
                "whole": {"type": "integer"}, "any": {}, "list": {"items": {"type": "integer"}},
                "maybe": {"type": ["string", "null"]}, "one": {"enum": ["a", "b"]},
                "two": {"enum": ["a", null]}, "ref": {"$ref": "#/$defs/n"},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "in": {"properties": {"a/b": {"type": "integer"}, "c": {"type": "integer"}}}}});
        let schema = ParamsSchema::compile(&CanonicalJson::from_value(&schema).unwrap()).unwrap();
        let mut body = json!({"whole": null, "any": null, "list": [1, null], "maybe": null,
            "one": null, "two": null, "ref": null, "either": null, "undeclared": null,
            "in": {"a/b": null, "c": null}});
        let filled = ["/in/a~1b", "/list/1", "/whole"].map(str::to_owned);
        without_refused_nulls(Some(&schema), &mut body, &filled, DecisionRules::NEWEST);
        // The null at `c` was written by nobody's template: it is part of a value.
        let left = json!({"any": null, "list": [1, null], "maybe": null, "two": null,
            "in": {"c": null}});
        assert_eq!(body, left);
    }

    #[test]
    fn more_nulls_than_a_schema_names_at_a_time_are_left_out() {
        let names: Vec<String> = (0..200).map(|n| format!("p{n}")).collect();
        let integers = names
            .iter()
            .map(|name| (name.clone(), json!({"type": "integer"})));
        let properties: Map<String, Value> = integers.collect();
        let schema = CanonicalJson::from_value(&json!({"properties": properties})).unwrap();
        let schema = ParamsSchema::compile(&schema).unwrap();
        let nulls: Map<String, Value> = names.into_iter().map(|name| (name, Value::Null)).collect();
        let mut body = Value::Object(nulls);
        without_refused_nulls(Some(&schema), &mut body, &[], DecisionRules::NEWEST);
        assert_eq!(body, json!({}));
    }

    #[test]
    fn a_null_is_left_out_where_no_alternative_allows_it() {
        let left = |schema: Value, body: Value, filled: &[&str]| {
            let schema =
                ParamsSchema::compile(&CanonicalJson::from_value(&schema).unwrap()).unwrap();
            let filled: Vec<String> = filled.iter().map(|at| (*at).to_owned()).collect();
            let mut body = body;
            without_refused_nulls(Some(&schema), &mut body, &filled, DecisionRules::NEWEST);
            body
        };
        let string = json!({"type": "string"});
        let either = json!({"anyOf": [
            {"properties": {"a": string, "b": string}},
            {"properties": {"a": {"type": "integer"}, "b": string}}]});
        let body = json!({"a": null, "c": null});
        assert_eq!(left(either.clone(), body, &[]), json!({"c": null}));
        // Each alone is not enough.
        let body = json!({"a": null, "b": null, "c": null});
        assert_eq!(left(either.clone(), body, &[]), json!({"c": null}));
        let inner = json!({"properties": {"in": either}});
        let body = json!({"in": {"a": null, "b": null, "d": null}});
        let given = left(inner, body, &["/in/a", "/in/d"]);
        let unchanged = json!({"in": {"a": null, "b": null, "d": null}});
        assert_eq!(given, unchanged, "the null at b is part of a value");
        let closed = json!({"properties": {"a": {}}, "unevaluatedProperties": false});
        let body = json!({"a": null, "x": null, "y": null});
        assert_eq!(left(closed, body, &[]), json!({"a": null}));
        // A default takes its place.
        let default = json!({"required": ["a"], "properties": {"a": {"default": "x"}},
            "oneOf": [{"properties": {"a": string}}, {"properties": {"a": {"type": "integer"}}}]});
        assert_eq!(left(default, json!({"a": null}), &[]), json!({}));
        // What is refused without it, too, stays as it was given.
        let never = json!({"required": ["z"], "properties": {"a": {"type": ["integer", "null"]}}});
        assert_eq!(left(never, json!({"a": null}), &[]), json!({"a": null}));
    }

    #[test]
    fn a_schema_within_itself_ends() {
        let schema = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]});
        let compiled = ParamsSchema::compile(&CanonicalJson::from_value(&schema).unwrap());
        if let Ok(schema) = compiled {
            assert_eq!(schema.secrets_in(&json!({})), []);
        }
    }
}

//! Fills in the defaults of a JSON Schema where a value omits something.
//!
//! A default can be an object that has defaults in turn, so a short schema can expand to more than
//! fits into memory, or without end. [`check`] detects this before any run, as far as it depends on
//! the schema alone; [`fill`] is bounded for any value.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::airlock::{SchemaError, SchemaViolation};
use super::rules::DecisionRules;

/// The most values that defaults add to a value, those within each of them counted.
const MAX_VALUES: usize = 100_000;
/// The most bytes of text in them, names included: as many as the result of an expression has.
const MAX_BYTES: usize = 1 << 20;
/// The most levels of a value with its defaults.
const MAX_LEVELS: usize = 64;
/// The most schemas within each other that are looked into.
const MAX_DEPTH: usize = 512;
/// The most schemas that are held against values, defaults or not.
const MAX_LOOKS: usize = 10_000_000;

/// Rules 1 had no bounds but a depth at which filling in ended in silence; these are beyond what has
/// been recorded.
const MAX_VALUES_1: usize = 1_000_000;
const MAX_BYTES_1: usize = 64 << 20;
const MAX_DEPTH_1: usize = 64;

/// Adds to a value what it leaves out and its schema has a default for, at every level.
///
/// # Errors
/// Names the place whose defaults are too many, nested too deeply or without end. The value is then
/// filled in part.
pub fn fill(
    document: &Value,
    value: &mut Value,
    rules: DecisionRules,
) -> Result<(), SchemaViolation> {
    DefaultFiller::new(document, rules).fill(document, value, 0)
}

/// Refuses a schema whose own defaults are too many, nested too deeply or without end: each default
/// filled in by itself, and all of them where nothing is given.
///
/// # Errors
/// Points to the default.
pub fn check(document: &Value) -> Result<(), SchemaError> {
    let mut filling = DefaultFiller::new(document, DecisionRules::NEWEST);
    let refused = |pointer: String, found: SchemaViolation| SchemaError {
        pointer,
        message: found.message,
    };
    for (property, pointer) in with_defaults(document) {
        filling.reset();
        let filled = filling.default_of(property, 0);
        filled.map_err(|found| refused(format!("{pointer}/default"), found))?;
    }
    filling.reset();
    let filled = filling.fill(document, &mut json!({}), 0);
    filled.map_err(|found| refused(String::new(), found))
}

/// The properties with a default that filling in can come to, with their pointers.
fn with_defaults(document: &Value) -> Vec<(&Value, String)> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut open = vec![(document, String::new())];
    while let Some((schema, pointer)) = open.pop() {
        if !seen.insert(std::ptr::from_ref(schema)) {
            continue;
        }
        if let Some((target, at)) = target(document, schema) {
            open.push((target, at.to_owned()));
        }
        for keyword in ["allOf", "prefixItems"] {
            let parts = schema.get(keyword).and_then(Value::as_array);
            for (index, part) in parts.into_iter().flatten().enumerate() {
                open.push((part, format!("{pointer}/{keyword}/{index}")));
            }
        }
        if let Some(items) = schema.get("items") {
            open.push((items, format!("{pointer}/items")));
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let at = format!("{pointer}/properties/{}", segment(name));
            if property.get("default").is_some() {
                found.push((property, at.clone()));
            }
            open.push((property, at));
        }
    }
    found
}

/// The part of a document that the `$ref` of a schema names, with the pointer.
fn target<'a>(document: &'a Value, schema: &'a Value) -> Option<(&'a Value, &'a str)> {
    let at = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    Some((document.pointer(at)?, at))
}

/// A name as a segment of a JSON pointer.
pub(crate) fn segment(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

struct DefaultFiller<'a> {
    /// The document that `$ref` points into.
    document: &'a Value,
    rules: DecisionRules,
    /// The rest of each bound.
    values: usize,
    bytes: usize,
    looks: usize,
    /// The current place in the value, and the number of levels down to it.
    at: String,
    level: usize,
    /// The defaults we are within, outermost first: whose they are, and how long `at` was.
    within: Vec<(*const Value, usize)>,
}

impl<'a> DefaultFiller<'a> {
    fn new(document: &'a Value, rules: DecisionRules) -> Self {
        let mut filling = Self {
            document,
            rules,
            values: 0,
            bytes: 0,
            looks: MAX_LOOKS,
            at: String::new(),
            level: 0,
            within: Vec::new(),
        };
        filling.reset();
        filling
    }

    /// For another value: what may be filled in counts from the beginning.
    fn reset(&mut self) {
        (self.values, self.bytes) = match self.rules.bounds_defaults() {
            true => (MAX_VALUES, MAX_BYTES),
            false => (MAX_VALUES_1, MAX_BYTES_1),
        };
    }

    fn fill(
        &mut self,
        schema: &'a Value,
        value: &mut Value,
        depth: usize,
    ) -> Result<(), SchemaViolation> {
        let bounded = self.rules.bounds_defaults();
        match bounded {
            false if depth > MAX_DEPTH_1 => return Ok(()),
            true if depth > MAX_DEPTH => return self.refuse("its schema is nested too deeply"),
            _ => {}
        }
        match self.looks.checked_sub(1) {
            Some(left) => self.looks = left,
            None => return self.refuse("its schema takes too long to fill in defaults"),
        }
        if let Some((target, _)) = target(self.document, schema) {
            self.fill(target, value, depth + 1)?;
        }
        let parts = schema.get("allOf").and_then(Value::as_array);
        for part in parts.into_iter().flatten() {
            self.fill(part, value, depth + 1)?;
        }
        match value {
            Value::Object(members) => self.fill_object(schema, members, depth),
            Value::Array(items) => self.fill_items(schema, items, depth),
            _ => Ok(()),
        }
    }

    fn fill_object(
        &mut self,
        schema: &'a Value,
        members: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), SchemaViolation> {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let length = self.enter(name);
            match members.get_mut(name) {
                Some(member) => self.fill(property, member, depth + 1)?,
                None if property.get("default").is_some() => {
                    self.bytes = self.bytes.saturating_sub(name.len());
                    let default = self.default_of(property, depth + 1)?;
                    members.insert(name.clone(), default);
                }
                None => {}
            }
            self.leave(length);
        }
        Ok(())
    }

    fn fill_items(
        &mut self,
        schema: &'a Value,
        items: &mut [Value],
        depth: usize,
    ) -> Result<(), SchemaViolation> {
        // Under rules 1 `items` was taken for all elements, and nothing for the first ones.
        let first = schema.get("prefixItems").and_then(Value::as_array);
        let first = first.filter(|_| self.rules.first_items_have_defaults_of_their_own());
        let rest = schema.get("items");
        for (index, item) in items.iter_mut().enumerate() {
            let first = first.and_then(|first| first.get(index));
            let Some(schema) = first.or(rest) else {
                break;
            };
            let length = self.enter(&index.to_string());
            self.fill(schema, item, depth + 1)?;
            self.leave(length);
        }
        Ok(())
    }

    /// The default of a property, with those within it.
    fn default_of(&mut self, property: &'a Value, depth: usize) -> Result<Value, SchemaViolation> {
        let mut default = property.get("default").cloned().unwrap_or_default();
        let place = std::ptr::from_ref(property);
        let bounded = self.rules.bounds_defaults();
        let again = bounded && self.within.iter().any(|(open, _)| *open == place);
        self.within.push((place, self.at.len()));
        if again {
            return self.refuse("the default never ends: it holds itself");
        }
        let size = Size::of(&default);
        if bounded && self.level + size.levels > MAX_LEVELS {
            let words = format!("its defaults are nested deeper than {MAX_LEVELS} levels");
            return self.refuse(&words);
        }
        let values = self.values.checked_sub(size.values);
        let bytes = self.bytes.checked_sub(size.bytes);
        let (Some(values), Some(bytes)) = (values, bytes) else {
            let words = "its defaults come to too much: more than 100,000 values, or 1 MiB of text";
            return self.refuse(words);
        };
        (self.values, self.bytes) = (values, bytes);
        self.fill(property, &mut default, depth)?;
        self.within.pop();
        Ok(default)
    }

    /// One level down; what was there before is for [`Self::leave`].
    fn enter(&mut self, name: &str) -> usize {
        let length = self.at.len();
        self.at.push('/');
        self.at.push_str(&segment(name));
        self.level += 1;
        length
    }

    fn leave(&mut self, length: usize) {
        self.at.truncate(length);
        self.level -= 1;
    }

    /// Told of the outermost default: what is within it is not what anybody gave.
    fn refuse<T>(&self, message: &str) -> Result<T, SchemaViolation> {
        let length = self.within.first().map_or(self.at.len(), |(_, at)| *at);
        Err(SchemaViolation {
            pointer: self.at.get(..length).unwrap_or_default().to_owned(),
            rule: "default".to_owned(),
            message: message.to_owned(),
        })
    }
}

/// The size of a value.
struct Size {
    values: usize,
    /// Of its texts and names.
    bytes: usize,
    levels: usize,
}

impl Size {
    fn of(value: &Value) -> Self {
        let mut size = Self {
            values: 0,
            bytes: 0,
            levels: 0,
        };
        let mut open = vec![(value, 0)];
        while let Some((value, level)) = open.pop() {
            size.values += 1;
            size.levels = size.levels.max(level);
            match value {
                Value::Object(members) => {
                    size.bytes += members.keys().map(String::len).sum::<usize>();
                    open.extend(members.values().map(|member| (member, level + 1)));
                }
                Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
                Value::String(text) => size.bytes += text.len(),
                _ => {}
            }
        }
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(schema: &Value, value: Value, rules: u32) -> Result<Value, SchemaViolation> {
        let mut value = value;
        let rules = DecisionRules::from_recorded(rules).unwrap();
        fill(schema, &mut value, rules).map(|()| value)
    }

    /// A tree whose branches are its defaults.
    fn tree() -> Value {
        let branch = json!({"$ref": "#/$defs/n", "default": {}});
        json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}},
            "$defs": {"n": {"type": "object", "properties": {"l": branch, "r": branch}}}})
    }

    /// An object of as many levels, each with twice the values of the next.
    fn doubled(levels: usize) -> Value {
        let mut defs = Map::new();
        for level in 0..levels {
            let two = json!({"$ref": format!("#/$defs/d{}", level + 1), "default": {}});
            defs.insert(
                format!("d{level}"),
                json!({"properties": {"l": two, "r": two}}),
            );
        }
        json!({"properties": {"n": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    }

    #[test]
    fn a_default_that_holds_itself_is_refused_before_any_run_and_in_one() {
        let mut whole = tree();
        whole["properties"]["n"]["default"] = json!({});
        for schema in [
            tree(),
            whole,
            json!({"properties": {"a": {"$ref": "#", "default": {}}}}),
            json!({"items": {"allOf": [{"$ref": "#/$defs/x"}]}, "$defs": {"x":
                {"properties": {"n": {"$ref": "#/$defs/x", "default": {}}}}}}),
        ] {
            let found = check(&schema).unwrap_err();
            assert_eq!(found.message, "the default never ends: it holds itself");
            assert!(schema.pointer(&found.pointer).is_some(), "{found:?}");
        }
        // A definition that was recorded is used as it stands.
        let refused = filled(&tree(), json!({"n": {}}), 2).unwrap_err();
        assert_eq!(refused.pointer, "/n/l");
        assert_eq!(refused.rule, "default");
        let (tree, mut value) = (tree(), json!({"n": {}}));
        let mut filling = DefaultFiller::new(&tree, DecisionRules::from_recorded(1).unwrap());
        filling.values = 10_000;
        let refused = filling.fill(&tree, &mut value, 0).unwrap_err();
        assert!(refused.message.contains("too much"), "{refused:?}");
    }

    #[test]
    fn defaults_that_come_to_too_much_are_refused_before_any_run_and_in_one() {
        assert_eq!(check(&doubled(12)), Ok(()));
        let one = filled(&doubled(12), json!({"n": {}}), 2).unwrap();
        assert_eq!(Size::of(&one).values, 1 << 13);
        let found = check(&doubled(20)).unwrap_err();
        assert!(found.message.contains("too much"), "{found}");
        let refused = filled(&doubled(20), json!({"n": {}}), 2).unwrap_err();
        assert_eq!(refused.pointer, "/n/l");
        let text = json!({"items": {"properties": {"t": {"default": "x".repeat(50_000)}}}});
        assert_eq!(check(&text), Ok(()), "one of them is not too much");
        assert!(filled(&text, json!([{}, {}]), 2).is_ok());
        let refused = filled(&text, json!(vec![json!({}); 30]), 2).unwrap_err();
        assert_eq!(refused.pointer, "/20/t");
        let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
        let deep = json!({"properties": {"a": {"default": {}, "properties": {"b": {"default": deep,
            "items": {}}}}}});
        assert_eq!(check(&deep), Ok(()));
        let deep = (0..60).fold(deep, |inner, _| json!({"items": inner}));
        let value = (0..60).fold(json!({}), |inner, _| json!([inner]));
        assert!(filled(&deep, value, 2).unwrap_err().message.contains("64"));
    }

    #[test]
    fn a_deep_value_without_defaults_is_no_fault() {
        let schema = json!({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"n":
            {"allOf": [{"$ref": "#/$defs/n"}]}}}}});
        let value = (0..62).fold(json!({}), |inner, _| json!({"n": inner}));
        assert_eq!(filled(&schema, value.clone(), 2), Ok(value));
    }

    #[test]
    fn schemas_that_double_over_a_deep_value_come_to_an_end() {
        let both = json!({"properties": {"n": {"$ref": "#"}}});
        let schema = json!({"allOf": [both, both]});
        let mut value = (0..60).fold(json!({}), |inner, _| json!({"n": inner}));
        let mut filling = DefaultFiller::new(&schema, DecisionRules::NEWEST);
        filling.looks = 10_000;
        let refused = filling.fill(&schema, &mut value, 0).unwrap_err();
        assert!(refused.message.contains("too long"), "{refused:?}");
    }

    #[test]
    fn defaults_of_items_are_for_those_that_prefix_items_does_not_describe() {
        let schema = json!({"prefixItems": [{"properties": {"a": {"default": 1}}}, {}],
            "items": {"properties": {"b": {"default": 2}}}});
        let value = json!([{}, {}, {}]);
        assert_eq!(
            filled(&schema, value.clone(), 2),
            Ok(json!([{"a": 1}, {}, {"b": 2}]))
        );
        let before = json!([{"b": 2}, {"b": 2}, {"b": 2}]);
        assert_eq!(filled(&schema, value, 1), Ok(before), "rules 1");
    }
}

//! JSON Schema as a type: what it certainly forbids, and nothing more.
//!
//! Supported are `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`,
//! `patternProperties` (which opens an object), `items`, `prefixItems`, plain references within the
//! same document, `allOf`, `anyOf` and `oneOf`. Every other keyword can only forbid more, so
//! ignoring it is safe.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_projections::life::reserved::is_reserved;
use serde_json::{Map, Value};

use super::{KindSet, Member, Members, ValueType};
use ktsu_schema::applies_reference_siblings;

/// The most schemas that are looked at, references followed.
const MAX_SCHEMAS: usize = 4_096;
/// The most levels of schemas, references followed.
const MAX_SCHEMA_DEPTH: usize = 64;

/// The values that fit a schema.
pub fn of_schema(schema: &Value) -> ValueType {
    SchemaReader::new(schema).schema(schema, false, 0)
}

/// The values that fit the schema of params, once its defaults are filled in (decision K4); without
/// a schema, any object.
pub fn of_params(schema: Option<&Value>) -> ValueType {
    let Some(schema) = schema else {
        return ValueType::open_object();
    };
    let read = SchemaReader::new(schema).schema(schema, true, 0);
    read.only(KindSet::OBJECT)
}

/// The values that fit the schema of an output, from which the fields that are for the engine were
/// taken (decisions R1, R5).
pub fn of_output(schema: &Value) -> ValueType {
    let read = of_schema(schema);
    let Some(mut members) = read.members().cloned() else {
        return read;
    };
    for (name, member) in &mut members.named {
        member.always &= !is_reserved(name);
    }
    read.with_members(Some(Arc::new(members)))
}

impl ValueType {
    /// Without the fields that are taken from every output of an agent.
    pub fn stripped(&self) -> Self {
        let mut members = match self.members() {
            Some(members) => members.clone(),
            None => Members {
                named: BTreeMap::new(),
                rest: Some(Self::any()),
            },
        };
        members.named.retain(|name, _| !is_reserved(name));
        for name in RESERVED {
            let gone = Member {
                value: Self::never(),
                always: false,
            };
            members.named.insert(name.to_owned(), gone);
        }
        Self::object(members).only(self.kinds())
    }
}

/// Fields that are never part of an output, however open it is.
pub(super) const RESERVED: [&str; 8] = [
    "ktsu_confidence",
    "ktsu_flags",
    "ktsu_injection_attempt",
    "ktsu_low_quality",
    "ktsu_needs_human",
    "ktsu_rationale",
    "ktsu_skip_reason",
    "ktsu_untrusted_content",
];

struct SchemaReader<'s> {
    document: &'s Value,
    left: usize,
    /// True if a reference means the place it names: not where parts have names of their own.
    follows: bool,
    /// True if keywords beside a reference count: not before the draft of 2019-09.
    beside: bool,
}

impl<'s> SchemaReader<'s> {
    fn new(document: &'s Value) -> Self {
        Self {
            document,
            left: MAX_SCHEMAS,
            follows: !names_itself(document),
            beside: applies_reference_siblings(document),
        }
    }

    /// `filled`: whether defaults below this schema are filled in.
    fn schema(&mut self, schema: &'s Value, filled: bool, depth: usize) -> ValueType {
        let left = self
            .left
            .checked_sub(1)
            .filter(|_| depth < MAX_SCHEMA_DEPTH);
        let (Some(left), Some(members)) = (left, schema.as_object()) else {
            return match schema {
                Value::Bool(false) => ValueType::never(),
                _ => ValueType::any(),
            };
        };
        self.left = left;
        let mut found = ValueType::any();
        if let Some(target) = members.get("$ref") {
            found = self.target(target, filled, depth);
            if !self.beside {
                return found;
            }
        }
        for (keyword, value) in members {
            let read = self.keyword(keyword, value, members, filled, depth);
            if let Some(read) = read {
                found = found.meet(&read);
            }
        }
        found
    }

    fn target(&mut self, target: &Value, filled: bool, depth: usize) -> ValueType {
        let pointer = target.as_str().and_then(|target| target.strip_prefix('#'));
        let pointer = pointer.filter(|_| self.follows);
        let target = pointer.and_then(|pointer| self.document.pointer(pointer));
        match target {
            Some(target) => self.schema(target, filled, depth + 1),
            None => ValueType::any(),
        }
    }

    fn keyword(
        &mut self,
        keyword: &str,
        value: &'s Value,
        members: &'s Map<String, Value>,
        filled: bool,
        depth: usize,
    ) -> Option<ValueType> {
        match keyword {
            "type" => Some(ValueType::any().only(kinds(value)?)),
            "const" => Some(ValueType::of_value(value)),
            "enum" => {
                let values = value.as_array()?;
                Some(ValueType::union(values.iter().map(ValueType::of_value)))
            }
            "properties" => Some(self.object(members, filled, depth)),
            "required" | "additionalProperties" if !members.contains_key("properties") => {
                let other = "required";
                let second = keyword != other && members.contains_key(other);
                (!second).then(|| self.object(members, filled, depth))
            }
            "items" => Some(self.items(members, filled, depth)),
            "prefixItems" if !members.contains_key("items") => {
                Some(self.items(members, filled, depth))
            }
            "allOf" => {
                let all = value.as_array()?.iter();
                let all = all.map(|one| self.schema(one, filled, depth + 1));
                Some(all.fold(ValueType::any(), |all, one| all.meet(&one)))
            }
            "anyOf" | "oneOf" => {
                let any = value.as_array()?.iter();
                let any: Vec<ValueType> =
                    any.map(|one| self.schema(one, false, depth + 1)).collect();
                Some(ValueType::union(any))
            }
            _ => None,
        }
    }

    /// The values that the keywords about objects allow; they exclude no value that is not an
    /// object.
    fn object(&mut self, schema: &'s Map<String, Value>, filled: bool, depth: usize) -> ValueType {
        let rest = match schema.get("additionalProperties") {
            None => Some(ValueType::any()),
            Some(rest) => Some(self.schema(rest, false, depth + 1)).filter(|one| !one.is_never()),
        };
        let open = schema.contains_key("patternProperties");
        let rest = match open {
            true => Some(ValueType::any()),
            false => rest,
        };
        let mut named = BTreeMap::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let member = Member {
                value: self.schema(property, filled, depth + 1),
                always: filled && property.get("default").is_some(),
            };
            named.insert(name.clone(), member);
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            let other = || Member {
                value: rest.clone().unwrap_or_else(ValueType::any),
                always: true,
            };
            named.entry(name.to_owned()).or_insert_with(other).always = true;
        }
        let mut all = ValueType::object(Members { named, rest });
        all.kinds = KindSet::ALL;
        all
    }

    fn items(&mut self, schema: &'s Map<String, Value>, filled: bool, depth: usize) -> ValueType {
        // A list was what `prefixItems` is now.
        let (first, rest) = match (schema.get("items"), schema.get("prefixItems")) {
            (Some(Value::Array(first)), _) => (first.as_slice(), None),
            (rest, Some(Value::Array(first))) => (first.as_slice(), rest),
            (rest, _) => (&[][..], rest),
        };
        let alone = filled && first.is_empty();
        let mut all = match rest {
            Some(rest) => self.schema(rest, alone, depth + 1),
            None => ValueType::any(),
        };
        for one in first {
            all = all.join(&self.schema(one, false, depth + 1));
        }
        ValueType::any().with_items(Some(Arc::new(all)))
    }
}

fn kinds(value: &Value) -> Option<KindSet> {
    let one = |word: &Value| {
        Some(match word.as_str()? {
            "null" => KindSet::NULL,
            "boolean" => KindSet::BOOL,
            "number" | "integer" => KindSet::NUMBER,
            "string" => KindSet::STRING,
            "array" => KindSet::ARRAY,
            "object" => KindSet::OBJECT,
            _ => return None,
        })
    };
    match value {
        Value::Array(words) => words
            .iter()
            .try_fold(KindSet::NONE, |all, word| Some(all.or(one(word)?))),
        word => one(word),
    }
}

/// Returns `true` if a part of the document has a name that references below it count from.
fn names_itself(document: &Value) -> bool {
    let mut open = vec![document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                if members.get("$id").is_some_and(Value::is_string) {
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

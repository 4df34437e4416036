//! Indexes on single fields, kept by the fold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::world::WorldPlan;
use rpds::RedBlackTreeMapSync;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Number, Value};

/// Ids in order of creation.
pub(super) type Listing = RedBlackTreeMapSync<u64, Arc<str>>;

/// A scalar by which objects are found. Equal are what expressions call equal: 1 and 1.0 are, and
/// integers are exact. Null, arrays and objects have none: they match nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexValue(Arc<str>);

impl IndexValue {
    /// The value that finds what equals this.
    pub fn of(value: &Value) -> Option<Self> {
        let text = match value {
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
            Value::Bool(flag) => format!("b{flag}"),
            Value::Number(number) => format!("n{}", canonical(number)),
            Value::String(text) => format!("s{text}"),
        };
        Some(Self(text.into()))
    }
}

impl fmt::Debug for IndexValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One text for numbers that are equal.
fn canonical(number: &Number) -> String {
    let float = number.as_f64().filter(|_| number.is_f64());
    // The bounds are powers of two, so that the comparison is exact.
    let whole = float.filter(|float| {
        let fits = (-9_223_372_036_854_775_808.0..18_446_744_073_709_551_616.0).contains(float);
        fits && float.fract() == 0.0
    });
    match whole {
        // Adding nought makes one of the two zeros of the other.
        Some(whole) => format!("{:.0}", whole + 0.0),
        None => number.to_string(),
    }
}

/// The (type, field) pairs that an index is kept for: those that look-ups name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexedFields(BTreeMap<String, Vec<String>>);

impl IndexedFields {
    /// From pairs of a type and a field.
    pub fn new<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Arc<Self> {
        let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (kind, field) in pairs {
            let of_type = fields.entry(kind.to_owned()).or_default();
            of_type.insert(field.to_owned());
        }
        let fields = fields.into_iter();
        Arc::new(Self(
            fields
                .map(|(kind, fields)| (kind, fields.into_iter().collect()))
                .collect(),
        ))
    }

    /// Those of the worlds of a run.
    pub fn of_plans<'p>(worlds: impl IntoIterator<Item = &'p WorldPlan>) -> Arc<Self> {
        Self::new(worlds.into_iter().flat_map(WorldPlan::indexed_fields))
    }

    /// The fields of a type, ascending.
    pub fn of_type(&self, kind: &str) -> &[String] {
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }

    /// The values that an index holds of an object's data.
    pub(super) fn values(&self, kind: &str, data: &CanonicalJson) -> Box<[Option<IndexValue>]> {
        let fields = self.of_type(kind);
        if fields.is_empty() {
            return Box::default();
        }
        let mut deserializer = serde_json::Deserializer::from_str(data.as_str());
        let values = deserializer.deserialize_map(FieldVisitor(fields));
        let none = || vec![None; fields.len()];
        values.unwrap_or_else(|_| none()).into_boxed_slice()
    }
}

/// Reads the wanted members of an object, and passes over the others.
struct FieldVisitor<'f>(&'f [String]);

impl<'de> Visitor<'de> for FieldVisitor<'_> {
    type Value = Vec<Option<IndexValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = vec![None; self.0.len()];
        while let Some(key) = map.next_key::<String>()? {
            let at = self.0.binary_search(&key).ok();
            match at.and_then(|at| values.get_mut(at)) {
                Some(value) => *value = IndexValue::of(&map.next_value()?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_scalars_have_one_value_and_null_has_none() {
        let of = |value: Value| IndexValue::of(&value);
        assert_eq!(of(json!(1)), of(json!(1.0)));
        assert_eq!(of(json!(0)), of(json!(-0.0)));
        assert_ne!(of(json!(1)), of(json!("1")));
        assert_ne!(of(json!(true)), of(json!("true")));
        assert_ne!(of(json!(u64::MAX)), of(json!(u64::MAX - 1)));
        assert_ne!(of(json!(1.5)), of(json!(1)));
        for nothing in [json!(null), json!([1]), json!({"a": 1})] {
            assert_eq!(of(nothing), None);
        }
    }

    #[test]
    fn only_indexed_members_are_taken() {
        let fields = IndexedFields::new([("T", "b"), ("T", "a"), ("U", "c")]);
        let data = CanonicalJson::parse(br#"{"a":"x","b":[1],"c":1}"#).unwrap();
        let values = fields.values("T", &data);
        assert_eq!(&*values, [IndexValue::of(&json!("x")), None]);
        assert!(fields.values("V", &data).is_empty());
    }
}

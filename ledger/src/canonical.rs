//! The canonical text of a value, and the strict parser for every value from outside.
//!
//! A [`CanonicalJson`] holds compact JSON whose object keys are sorted by their UTF-8 bytes and
//! whose numbers are printed as they will be read back. Two equal values have equal text, so a text
//! can be hashed, compared and stored without being parsed. It is shared, never copied: a step's
//! output that ten later steps read exists once in memory.
//!
//! Values enter frames only through [`CanonicalJson::parse`] (text from outside) or
//! [`CanonicalJson::from_value`] (a computed value). Both refuse what could not be read back: more
//! than [`MAX_DEPTH`] levels, a duplicate key in an object, an integer beyond 64 bits.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// The most levels of arrays and objects a value may have (a scalar has none).
pub const MAX_DEPTH: usize = 64;

/// Compact JSON text with sorted keys, shared. See the module documentation.
#[derive(Clone)]
pub struct CanonicalJson(Arc<RawValue>);

/// The reason why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON, or is JSON we refuse to read (a key twice, a lone surrogate).
    #[error("{reason} at line {line} column {column}")]
    Syntax {
        /// The fault, in a few words.
        reason: String,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in bytes.
        column: usize,
    },
    /// Arrays and objects are nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    Depth,
}

impl CanonicalJson {
    /// Reads text from outside: strictly, into canonical form.
    pub fn parse(text: &[u8]) -> Result<Self, JsonError> {
        Self::from_value(&parse_strict(text)?)
    }

    /// The canonical text of a value that was computed.
    pub fn from_value(value: &Value) -> Result<Self, JsonError> {
        if deeper_than(value, MAX_DEPTH) {
            return Err(JsonError::Depth);
        }
        serde_json::value::to_raw_value(value)
            .map(|raw| Self(Arc::from(raw)))
            .map_err(|error| JsonError::Syntax {
                reason: error.to_string(),
                line: 0,
                column: 0,
            })
    }

    /// A JSON string.
    pub fn string(text: &str) -> Self {
        Self::from_value(&Value::from(text)).unwrap_or_default()
    }

    /// JSON null.
    pub fn null() -> Self {
        Self(Arc::from(RawValue::NULL.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Returns `true` if this is JSON null.
    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }

    /// The value as a tree. Canonical text always parses.
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.as_str()).unwrap_or(Value::Null)
    }

    /// The value at a JSON pointer (RFC 6901), if there is one.
    pub fn pointer(&self, path: &str) -> Option<Value> {
        if path.is_empty() {
            return Some(self.to_value());
        }
        let mut value = self.to_value();
        value.pointer_mut(path).map(Value::take)
    }
}

impl From<Box<RawValue>> for CanonicalJson {
    /// Takes text this crate wrote; it is not checked again.
    fn from(raw: Box<RawValue>) -> Self {
        Self(Arc::from(raw))
    }
}

impl Default for CanonicalJson {
    fn default() -> Self {
        Self::null()
    }
}

impl PartialEq for CanonicalJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for CanonicalJson {}

impl fmt::Debug for CanonicalJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for CanonicalJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for CanonicalJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The text passes through untouched: this is what makes frames cheap to write.
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CanonicalJson {
    /// Keeps the text unchanged. For text that this crate wrote; use [`CanonicalJson::parse`] for
    /// text from outside.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self(Arc::from(raw)))
    }
}

/// Parses JSON, refusing what would not survive being written and read again: a key twice in one
/// object, more than [`MAX_DEPTH`] levels, an integer beyond 64 bits, a lone surrogate.
pub fn parse_strict(text: &[u8]) -> Result<Value, JsonError> {
    if let Some(at) = beyond_64_bits(text) {
        return Err(too_large_at(text, at));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = StrictValue { depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| {
        let said = error.to_string();
        if said.starts_with(TOO_DEEP) || said.starts_with("recursion limit") {
            return JsonError::Depth;
        }
        let reason = said.split(" at line ").next().unwrap_or_default();
        JsonError::Syntax {
            reason: reason.to_owned(),
            line: error.line(),
            column: error.column(),
        }
    })
}

/// The position of an integer that does not fit into 64 bits: written with digits only it claims to
/// be exact, but readers would round it. A number with a point or an exponent may have any size.
pub(crate) fn beyond_64_bits(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    let mut in_string = false;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'-' | b'0'..=b'9' if !in_string => {
                let rest = text.get(at..).unwrap_or_default();
                let part =
                    |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let token = rest
                    .get(..rest.iter().take_while(part).count())
                    .unwrap_or_default();
                if !fits(token) {
                    return Some(at);
                }
                at += token.len().saturating_sub(1);
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn fits(token: &[u8]) -> bool {
    let Ok(token) = std::str::from_utf8(token) else {
        return true;
    };
    token.len() < 19
        || token.contains(['.', 'e', 'E'])
        || token.parse::<u64>().is_ok()
        || token.parse::<i64>().is_ok()
}

pub(crate) fn too_large_at(text: &[u8], at: usize) -> JsonError {
    let before = text.get(..at).unwrap_or_default();
    let line_start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    JsonError::Syntax {
        reason: "a whole number beyond 64 bits cannot be kept exactly".to_owned(),
        line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
        column: 1 + at - line_start,
    }
}

/// Returns `true` if more arrays and objects are nested in one another than so many levels.
pub fn deeper_than(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => {
            levels == 0 || items.iter().any(|item| deeper_than(item, levels - 1))
        }
        Value::Object(members) => {
            levels == 0 || members.values().any(|item| deeper_than(item, levels - 1))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

const TOO_DEEP: &str = "nested too deep";

/// A value under construction at a depth.
#[derive(Clone, Copy)]
struct StrictValue {
    depth: usize,
}

impl StrictValue {
    fn inner<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(TOO_DEEP));
        }
        Ok(Self {
            depth: self.depth + 1,
        })
    }
}

impl<'de> DeserializeSeed<'de> for StrictValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key {key:?} twice")));
            }
            let value = members.next_value_seed(inner)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_out_sorted_and_numbers_exact() {
        let json = CanonicalJson::parse(br#" {"b":1, "a":[ 9007199254740993, 0.1, 1e2, -0] } "#);
        assert_eq!(
            json.map(|json| json.to_string()),
            Ok(r#"{"a":[9007199254740993,0.1,100.0,-0.0],"b":1}"#.to_owned())
        );
    }

    #[test]
    fn what_could_not_be_read_back_is_refused() {
        for text in [
            r#"{"a":1,"a":2}"#,
            r#""\ud800""#,
            "18446744073709551616",
            "1e400",
            "[1] 2",
            "",
        ] {
            assert!(CanonicalJson::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rounded_number_may_be_large_and_reads_back() {
        for text in [
            "1e21",
            "1.0e20",
            "1.5e300",
            "-9.3e18",
            r#""18446744073709551616""#,
        ] {
            let json = CanonicalJson::parse(text.as_bytes()).unwrap();
            assert_eq!(
                CanonicalJson::parse(json.as_str().as_bytes()),
                Ok(json.clone()),
                "{text}"
            );
            assert_eq!(crate::strict::check_value(json.as_str()), Ok(()), "{json}");
        }
        let exact = CanonicalJson::parse(b"[18446744073709551615,-9223372036854775808]");
        assert!(exact.is_ok());
        let at = CanonicalJson::parse(b"{\"a\":\n [99999999999999999999]}");
        assert!(
            matches!(
                at,
                Err(JsonError::Syntax {
                    line: 2,
                    column: 3,
                    ..
                })
            ),
            "{at:?}"
        );
    }

    #[test]
    fn sixty_four_levels_pass_and_sixty_five_do_not() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(CanonicalJson::parse(nested(64).as_bytes()).is_ok());
        assert_eq!(
            CanonicalJson::parse(nested(65).as_bytes()),
            Err(JsonError::Depth)
        );
        assert_eq!(
            CanonicalJson::parse(nested(4000).as_bytes()),
            Err(JsonError::Depth)
        );
    }

    #[test]
    fn a_pointer_reaches_into_the_text() {
        let json = CanonicalJson::parse(br#"{"a":{"b/c":[1,2]}}"#).unwrap_or_default();
        assert_eq!(json.pointer("/a/b~1c/1"), Some(Value::from(2)));
        assert_eq!(json.pointer("/a/x"), None);
    }
}

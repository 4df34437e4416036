//! Deserialization with error locations, worded as schema violations.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::shape::integer;
use ktsu_schema::kind_of;
use ktsu_server::FieldViolation;

/// Reads a value at a JSON pointer of a body.
///
/// # Errors
/// The first mismatch.
pub(super) fn read<T: DeserializeOwned>(mut value: Value, at: &str) -> Result<T, FieldViolation> {
    write_whole(&mut value);
    serde_path_to_error::deserialize(&value).map_err(|error| {
        let place = pointer(&value, error.path());
        let (rule, message) = mismatch(&error.inner().to_string(), value.pointer(&place));
        FieldViolation {
            path: format!("{at}{place}"),
            message,
            rule: rule.to_owned(),
        }
    })
}

/// Writes `1.0` as `1`, which is the same number in JSON, and in canonical JSON the same text.
fn write_whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = integer(value) {
                *value = Value::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole),
        Value::Object(members) => members.values_mut().for_each(write_whole),
        _ => {}
    }
}

/// The JSON pointer to the innermost value on a path.
fn pointer(value: &Value, path: &Path) -> String {
    let mut place = String::new();
    for segment in path {
        let below = match segment {
            Segment::Seq { index } => format!("{place}/{index}"),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            Segment::Unknown => break,
        };
        if value.pointer(&below).is_none() {
            break;
        }
        place = below;
    }
    place
}

/// The rule and the message for an error of serde about a value.
fn mismatch(error: &str, value: Option<&Value>) -> (&'static str, String) {
    if let Some(field) = error.strip_prefix("missing field ") {
        let message = format!("missing required field: {}", field.trim_matches('`'));
        return ("required", message);
    }
    let (found, expected) = error.rsplit_once("expected ").unwrap_or_default();
    if let Some(name) = found.strip_prefix("unknown field `") {
        let name = name.trim_end_matches("`, ");
        return ("additionalProperties", format!("unknown member {name:?}"));
    }
    if error.starts_with("unknown variant ") {
        return ("enum", format!("expected {}", expected.replace('`', "")));
    }
    let value = value.unwrap_or(&Value::Null);
    let expected = match expected {
        "u32" if value.is_number() => return whole_number(u32::MAX.into()),
        "u64" if value.is_number() => return whole_number(u64::MAX),
        "u32" | "u64" | "i64" => "integer",
        "a sequence" => "array",
        "unit" => "null",
        "string or map" => "string or object",
        "a map" | "map with a single key" | "newtype variant" | "struct variant" => "object",
        other if other.starts_with("struct ") => "object",
        "" => "another form",
        other => other.trim_start_matches("a "),
    };
    let message = format!("expected {expected}, got {}", kind_of(value));
    ("type", message)
}

fn whole_number(most: u64) -> (&'static str, String) {
    ("type", format!("expected a whole number, 0 to {most}"))
}

#[cfg(test)]
#[path = "placed_tests.rs"]
mod tests;

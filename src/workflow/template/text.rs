//! The text of a value inside mixed text (decision T1).

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Number, Value};

use crate::rules::DecisionRules;

/// The text of a value inside mixed text: strings as they are, numbers as `number` has them, null
/// as nothing, arrays and objects as compact JSON.
pub fn text_of(value: &Value, rules: DecisionRules) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(one) => number(one, rules),
        Value::Array(_) | Value::Object(_) if rules.whole_numbers_are_plain_text() => json(value),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Whole numbers of 64 bits without exponent, other numbers in the shortest form that reads back.
fn number(number: &Number, rules: DecisionRules) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    if rules.whole_numbers_are_plain_text() {
        return plain(float).unwrap_or_else(|| number.to_string());
    }
    match float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 {
        true => format!("{float:.0}"),
        false => number.to_string(),
    }
}

/// The digits of a float that is an integer of 64 bits, signed or unsigned.
fn plain(float: f64) -> Option<String> {
    // The bounds are powers of two, so that the comparison is exact.
    let fits = (-9_223_372_036_854_775_808.0..18_446_744_073_709_551_616.0).contains(&float);
    // Adding nought makes one of the two zeros of the other.
    (fits && float.fract() == 0.0).then(|| format!("{:.0}", float + 0.0))
}

/// Compact JSON with whole numbers as [`plain`] has them.
fn json(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PlainNumbers);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => value.to_string(),
    }
}

struct PlainNumbers;

impl Formatter for PlainNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, float: f64) -> io::Result<()> {
        match plain(float) {
            Some(digits) => writer.write_all(digits.as_bytes()),
            None => write!(writer, "{}", Value::from(float)),
        }
    }
}

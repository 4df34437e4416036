//! Numbers of JSON, compared by what they are: a whole number of 64 bits is not rounded to compare it
//! with a decimal.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// Equality of JSON: numbers by their value, so 1 equals 1.0.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b) == Ordering::Equal,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| equal(a, b));
            a.len() == b.len() && a.iter().all(same)
        }
        (a, b) => a == b,
    }
}

/// Compares two numbers.
pub(crate) fn compare(a: &Number, b: &Number) -> Ordering {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => with_decimal(a, decimal(b)),
        (None, Some(b)) => with_decimal(b, decimal(a)).reverse(),
        (None, None) => decimal(a).total_cmp(&decimal(b)),
    }
}

/// A whole number, also one that is written as a decimal.
fn whole(number: &Number) -> Option<i128> {
    /// Decimals below this are exact as whole numbers.
    const EXACT: f64 = 1e30;
    if let Some(whole) = number.as_i128() {
        return Some(whole);
    }
    let decimal = decimal(number);
    #[expect(clippy::cast_possible_truncation, reason = "whole, and below 2^127")]
    let whole = decimal as i128;
    (decimal.fract() == 0.0 && decimal.abs() < EXACT).then_some(whole)
}

fn decimal(number: &Number) -> f64 {
    number.as_f64().unwrap_or_default()
}

/// A whole number against a decimal that is not one, or is beyond every whole number of JSON here.
fn with_decimal(whole: i128, decimal: f64) -> Ordering {
    #[expect(clippy::cast_possible_truncation, reason = "saturates beyond them all")]
    let below = decimal.floor() as i128;
    match whole.cmp(&below) {
        Ordering::Greater => Ordering::Greater,
        Ordering::Less | Ordering::Equal => Ordering::Less,
    }
}

/// Returns `true` if two texts are the same number, of any length.
pub(crate) fn is_same_decimal(a: &str, b: &str) -> bool {
    let a = parts(a);
    a.is_some() && a == parts(b)
}

/// The parts of a number: whether it is negative, its digits without zeros at either end, and the
/// power of ten of the last one.
fn parts(text: &str) -> Option<(bool, String, i64)> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, text),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let after = i64::try_from(fraction.len()).ok()?;
    let exponent: i64 = exponent.parse().ok()?;
    let power = exponent.checked_add(zeros)?.checked_sub(after)?;
    Some(match significant.trim_start_matches('0') {
        "" => (false, String::new(), 0),
        significant => (is_negative, significant.to_owned(), power),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn decimals_are_the_same_if_all_their_digits_are() {
        for (a, b) in [
            ("0", "-0.000"),
            ("1", "1.00"),
            ("1200", "1.2e3"),
            ("-0.10", "-0.1"),
            ("1e+21", "1000000000000000000000"),
        ] {
            assert!(is_same_decimal(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("1", "-1"),
            ("0.1", "0.1000000000000000055"),
            ("12", "1.2"),
            ("9007199254740993", "9007199254740992"),
            ("-", "-"),
            ("1-2", "1-2"),
            ("2024-01-01", "2024"),
        ] {
            assert!(!is_same_decimal(a, b), "{a} {b}");
        }
    }

    #[test]
    fn numbers_are_compared_by_what_they_are() {
        let ascending = [
            "-1e300",
            "-9007199254740993",
            "-9007199254740992.0",
            "-1.5",
            "-1",
            "-0.5",
            "0",
            "0.25",
            "1",
            "1.5",
            "2",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551615",
            "1.8446744073709552e19",
            "1e300",
        ];
        let numbers = ascending.map(number);
        for (at, a) in numbers.iter().enumerate() {
            for (other, b) in numbers.iter().enumerate() {
                assert_eq!(compare(a, b), at.cmp(&other), "{a} {b}");
            }
        }
        for (a, b) in [
            ("1", "1.0"),
            ("0", "-0.0"),
            ("9007199254740992", "9007199254740992.0"),
        ] {
            assert_eq!(compare(&number(a), &number(b)), Ordering::Equal, "{a} {b}");
        }
    }
}

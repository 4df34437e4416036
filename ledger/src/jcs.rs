//! The canonical text of a value across systems: RFC 8785, and its SHA-256 (decision F7).
//!
//! Only for content identity across systems; frames have their own form, in which integers are
//! exact. Here every number is a double, printed as ECMAScript does. A missing value is null at the
//! top and in arrays, and absent in objects; callers have to handle that, because JSON has no such
//! value.
//!
//! Two habits of JavaScript objects are not followed: keys that look like array indices are not
//! sorted first, and a key `__proto__` does not vanish.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The canonical text.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// `sha256:` and 64 hexadecimal digits.
pub fn digest(value: &Value) -> String {
    let mut digest = "sha256:".to_owned();
    for byte in Sha256::digest(text(value).as_bytes()) {
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => out.push_str(&number_text(number.as_f64().unwrap_or(f64::NAN))),
        Value::String(text) => string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            // By UTF-16 code units: U+1F600 before U+FFFD.
            members.sort_by(|(left, _), (right, _)| left.encode_utf16().cmp(right.encode_utf16()));
            out.push('{');
            for (place, (name, member)) in members.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                string(name, out);
                out.push(':');
                write(member, out);
            }
            out.push('}');
        }
    }
}

/// Quoted, with the escapes of RFC 8785, which are those serde_json writes.
fn string(text: &str, out: &mut String) {
    out.push_str(&Value::from(text).to_string());
}

/// `Number::toString` of ECMAScript: the shortest digits that read back as the same double.
fn number_text(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    if !number.is_finite() {
        return "null".to_owned();
    }
    let sign = if number < 0.0 { "-" } else { "" };
    let scientific = format!("{:e}", number.abs());
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = digits.chars().filter(|one| *one != '.').collect();
    let digits = even(digits, number.abs());
    // The position of the point, counted from the first digit.
    let point = exponent.parse::<i32>().unwrap_or_default() + 1;
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or_default());
    let cut = |at: i32| digits.split_at(usize::try_from(at).unwrap_or_default());
    let text = if count <= point && point <= 21 {
        format!("{digits}{}", zeros(point - count))
    } else if 0 < point && point <= 21 {
        let (whole, part) = cut(point);
        format!("{whole}.{part}")
    } else if -6 < point && point <= 0 {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let (first, rest) = cut(1);
        let point_and_rest = if rest.is_empty() {
            String::new()
        } else {
            format!(".{rest}")
        };
        format!("{first}{point_and_rest}e{:+}", point - 1)
    };
    format!("{sign}{text}")
}

/// More digits than any double has.
const ALL_DIGITS: usize = 780;

/// Of two shortest texts that are equally near, ECMAScript takes the one whose last digit is even.
fn even(digits: String, number: f64) -> String {
    // Fewer digits than this are never one of two.
    if digits.len() < 15 {
        return digits;
    }
    let exact = format!("{number:.ALL_DIGITS$e}");
    let (exact, exponent) = exact.split_once('e').unwrap_or((&exact, "0"));
    let exact: String = exact.chars().filter(|one| *one != '.').collect();
    let exact = exact.trim_end_matches('0');
    let Some(lower) = exact
        .strip_suffix('5')
        .filter(|it| it.len() == digits.len())
    else {
        return digits;
    };
    let is_even = lower.ends_with(['0', '2', '4', '6', '8']);
    let (first, rest) = lower.split_at(1);
    let reads_back = format!("{first}.{rest}e{exponent}").parse() == Ok(number);
    match is_even && reads_back {
        true => lower.to_owned(),
        false => digits,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_the_texts_and_hashes_that_others_make_of_them() {
        let number = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let numbers = r#"{"a":1.0,"b":1e21,"c":-0.0,"d":0.1,"e":1e-7,"f":123456789012345680000}"#;
        for (value, canonical, hash) in [
            (json!(null), "null", "74234e98afe7498f"),
            (json!({}), "{}", "44136fa355b3678a"),
            (json!([]), "[]", "4f53cda18c2baa0c"),
            (json!(true), "true", "b5bea41b6c623f7c"),
            (
                json!({"name": "test"}),
                r#"{"name":"test"}"#,
                "7d9fd2051fc32b32",
            ),
            (
                json!({"z": 1, "a": 2}),
                r#"{"a":2,"z":1}"#,
                "c2985c5ba6f7d2a5",
            ),
            // What is missing is absent from an object, and null in an array.
            (json!({"b": 1}), r#"{"b":1}"#, "eb8ed3ccb5023093"),
            (json!([1, null, 2]), "[1,null,2]", "1c23fa80cb2ff873"),
            (
                json!({"z": {"b": 1, "a": 2}, "a": [{"d": 1, "c": 2}]}),
                r#"{"a":[{"c":2,"d":1}],"z":{"a":2,"b":1}}"#,
                "30c7456111a65570",
            ),
            (
                number(numbers),
                r#"{"a":1,"b":1e+21,"c":0,"d":0.1,"e":1e-7,"f":123456789012345680000}"#,
                "69a4f7d1ac5a4499",
            ),
        ] {
            assert_eq!(text(&value), canonical);
            let prefix = format!("sha256:{hash}");
            assert!(
                digest(&value).starts_with(&prefix),
                "{value}: {}",
                digest(&value)
            );
        }
    }

    #[test]
    fn keys_are_ordered_by_utf_16_code_units() {
        let value = json!({"é": 1, "z": 2, "\u{1f600}": 3, "\u{fffd}": 4});
        let expected = "{\"z\":2,\"é\":1,\"\u{1f600}\":3,\"\u{fffd}\":4}";
        assert_eq!(text(&value), expected);
        assert!(digest(&value).starts_with("sha256:ad7b5900616ea51b"));
    }

    #[test]
    fn habits_of_a_javascript_object_are_not_followed() {
        let value = json!({"9": 1, "10": 2, "b": 3, "__proto__": 4});
        assert_eq!(text(&value), r#"{"10":2,"9":1,"__proto__":4,"b":3}"#);
    }

    #[test]
    fn numbers_are_printed_as_ecmascript_prints_them() {
        // The table of RFC 8785, appendix B, and integers that no double holds.
        for (bits, printed) in [
            (0x0000_0000_0000_0001_u64, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            assert_eq!(number_text(f64::from_bits(bits)), printed);
        }
        assert_eq!(text(&json!(9_007_199_254_740_993_u64)), "9007199254740992");
        assert_eq!(text(&json!(u64::MAX)), "18446744073709552000");
        assert_eq!(text(&json!(i64::MIN)), "-9223372036854776000");
    }

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        let value = json!("\u{8}\t\n\u{c}\r\"\\\u{1}\u{1f}\u{7f}é/\u{20ac}");
        let expected = "\"\\b\\t\\n\\f\\r\\\"\\\\\\u0001\\u001f\u{7f}é/\u{20ac}\"";
        assert_eq!(text(&value), expected);
    }
}

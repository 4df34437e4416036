//! The canonical text of a JSON value under RFC 8785, and its SHA-256 (decision F7).
//!
//! It identifies content across systems; frames have their own form, in which integers are exact.
//! Here every number is a double and is printed as ECMAScript prints it. Two habits of JavaScript
//! objects are not followed: keys that look like array indices are not moved to the front, and a key
//! `__proto__` is kept.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The canonical text.
pub fn text(value: &Value) -> String {
    serde_json_canonicalizer::to_string(value).expect("keys are strings and numbers are finite")
}

/// `sha256:` and 64 hexadecimal digits.
pub fn digest(value: &Value) -> String {
    let mut digest = "sha256:".to_owned();
    for byte in Sha256::digest(text(value).as_bytes()) {
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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
            assert_eq!(text(&json!(f64::from_bits(bits))), printed);
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

    proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn a_number_reads_back_and_is_laid_out_by_its_exponent(bits in any::<u64>(), small in -400..400i32) {
            for number in [f64::from_bits(bits), f64::from(small) * 10f64.powi(small / 16)] {
                prop_assume!(number.is_finite());
                let printed = text(&json!(number));
                prop_assert_eq!(printed.parse::<f64>().unwrap(), number);
                let size = number.abs();
                prop_assert_eq!(printed.contains('e'), size != 0.0 && !(1e-6..1e21).contains(&size));
                prop_assert!(!printed.starts_with("-0") || printed.starts_with("-0."));
                prop_assert!(!printed.contains('.') || !printed.ends_with('0') || printed.contains('e'));
            }
        }

        #[test]
        fn keys_are_sorted_and_a_text_is_its_own_canonical_text(
            members in proptest::collection::btree_map(any::<String>(), any::<String>(), 0..8),
        ) {
            let value = json!(members);
            let printed = text(&value);
            let read: Value = serde_json::from_str(&printed).unwrap();
            prop_assert_eq!(&read, &value);
            prop_assert_eq!(text(&read), printed.clone());
            let mut keys: Vec<&String> = members.keys().collect();
            keys.sort_by_key(|key| key.encode_utf16().collect::<Vec<_>>());
            let parts = keys.iter().map(|key| format!("{}:{}", json!(key), json!(members[*key])));
            prop_assert_eq!(printed, format!("{{{}}}", parts.collect::<Vec<_>>().join(",")));
        }
    }
}

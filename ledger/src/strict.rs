//! Checks stored text without building anything from it.
//!
//! The text that [`crate::canonical`] writes has no duplicate keys, keys in ascending order, a
//! bounded depth and numbers that survive reading and writing. This module checks text against
//! those rules, so that even a forged frame with a correct hash cannot be read differently by two
//! readers.

mod fast_path;

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use crate::canonical::{JsonError, MAX_DEPTH, beyond_64_bits, too_large_at};

/// The most levels of a body: a value's own and those of the frame around it.
pub const MAX_BODY_DEPTH: usize = 96;

/// Holds a value against the rules.
///
/// # Errors
/// [`JsonError`].
pub fn check_value(text: &str) -> Result<(), JsonError> {
    check(text, Check::new(MAX_DEPTH, true))
}

/// Holds the body of a frame against the rules; its own members have an order of their own, which
/// reading it as a frame checks.
///
/// # Errors
/// [`JsonError`].
pub fn check_body(text: &str) -> Result<(), JsonError> {
    check(text, Check::new(MAX_BODY_DEPTH, false))
}

const TOO_DEEP: &str = "nested too deep";

fn check(text: &str, seed: Check) -> Result<(), JsonError> {
    if fast_path::is_plain(text, seed.levels, seed.sorted) {
        return Ok(());
    }
    check_slowly(text, seed)
}

/// The full check. Text on the fast path would pass it, too, at five times the cost.
fn check_slowly(text: &str, seed: Check) -> Result<(), JsonError> {
    if let Some(at) = beyond_64_bits(text.as_bytes()) {
        return Err(too_large_at(text.as_bytes(), at));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let checked = seed.deserialize(&mut reader).and_then(|()| reader.end());
    checked.map_err(|error| {
        let said = error.to_string();
        if said.starts_with(TOO_DEEP) || said.starts_with("recursion limit") {
            return JsonError::Depth;
        }
        JsonError::Syntax {
            reason: said
                .split(" at line ")
                .next()
                .unwrap_or_default()
                .to_owned(),
            line: error.line(),
            column: error.column(),
        }
    })
}

/// The bounds on the value that is read next.
#[derive(Clone, Copy)]
struct Check {
    levels: usize,
    sorted: bool,
}

impl Check {
    fn new(levels: usize, sorted: bool) -> Self {
        Self { levels, sorted }
    }

    fn inner<E: de::Error>(self) -> Result<Self, E> {
        let levels = self.levels.checked_sub(1);
        let levels = levels.ok_or_else(|| E::custom(TOO_DEEP))?;
        Ok(Self::new(levels, true))
    }
}

impl<'de> DeserializeSeed<'de> for Check {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Check {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        let mut last: Option<Cow<'de, str>> = None;
        while let Some(key) = members.next_key_seed(Key)? {
            if self.sorted && last.as_ref().is_some_and(|last| *last >= key) {
                return Err(de::Error::custom(format_args!(
                    "the key {key:?} twice or out of order"
                )));
            }
            last = Some(key);
            members.next_value_seed(inner)?;
        }
        Ok(())
    }
}

/// A key, borrowed where it needs no unescaping.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text_passes_and_anything_else_does_not() {
        for text in [
            r#"{"a":[1,{"b":null}],"b":"x"}"#,
            "0.5",
            r#""\ud83d\ude00""#,
        ] {
            assert_eq!(check_value(text), Ok(()), "{text}");
        }
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"b":1,"a":1}"#,
            r#"[{"a":1,"\u0061":1}]"#,
            "18446744073709551616",
            r#""\ud800""#,
            "1 2",
        ] {
            assert!(check_value(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_body_may_be_deeper_than_a_value_and_orders_its_own_members() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(check_value(&nested(64)), Ok(()));
        assert_eq!(check_value(&nested(65)), Err(JsonError::Depth));
        assert_eq!(check_body(&nested(96)), Ok(()));
        assert_eq!(check_body(&nested(97)), Err(JsonError::Depth));
        assert_eq!(check_body(r#"{"v":1,"data":{"a":1}}"#), Ok(()));
        assert!(check_body(r#"{"v":1,"data":{"b":1,"a":1}}"#).is_err());
    }
}

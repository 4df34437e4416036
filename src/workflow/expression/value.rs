//! Values as expressions see them: conversion, truth, equality, order and size.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use jmespath::{Rcvar, Variable};
use ktsu_ledger::CanonicalJson;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::error::{EvaluationError, MAX_NESTING, MAX_RESULT};

/// The form expressions work on, made once per value and shared.
pub fn from_json(json: &CanonicalJson) -> Rcvar {
    // Canonical text always parses.
    serde_json::from_str(json.as_str()).map_or_else(|_| null(), |Read(value)| value)
}

/// A value as it is read, without a tree in between.
struct Read(Rcvar);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadVisitor)
    }
}

struct ReadVisitor;

impl ReadVisitor {
    fn made<E>(value: Variable) -> Result<Read, E> {
        #[cfg(test)]
        count::one();
        Ok(Read(Rcvar::new(value)))
    }
}

impl<'de> Visitor<'de> for ReadVisitor {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Read, E> {
        Self::made(Variable::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Read, E> {
        Self::made(Variable::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Read, E> {
        Self::made(Variable::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Read, E> {
        Self::made(Variable::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Read, E> {
        Self::made(Number::from_f64(number).map_or(Variable::Null, Variable::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Read, E> {
        Self::made(Variable::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Read, A::Error> {
        let mut array = Vec::new();
        while let Some(Read(item)) = items.next_element()? {
            array.push(item);
        }
        Self::made(Variable::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Read, A::Error> {
        let mut object = BTreeMap::new();
        while let Some((key, Read(value))) = members.next_entry()? {
            object.insert(key, value);
        }
        Self::made(Variable::Object(object))
    }
}

/// As [`from_json`], from a tree. Integers stay exact.
pub fn from_value(value: &Value) -> Rcvar {
    #[cfg(test)]
    count::one();
    Rcvar::new(match value {
        Value::Null => Variable::Null,
        Value::Bool(flag) => Variable::Bool(*flag),
        Value::Number(number) => Variable::Number(number.clone()),
        Value::String(text) => Variable::String(text.clone()),
        Value::Array(items) => Variable::Array(items.iter().map(from_value).collect()),
        Value::Object(members) => Variable::Object(
            members
                .iter()
                .map(|(key, member)| (key.clone(), from_value(member)))
                .collect(),
        ),
    })
}

/// The way back. Integers stay exact.
pub fn to_value(value: &Rcvar) -> Value {
    match &**value {
        Variable::Null | Variable::Expref(_) => Value::Null,
        Variable::Bool(flag) => Value::Bool(*flag),
        Variable::Number(number) => Value::Number(number.clone()),
        Variable::String(text) => Value::String(text.clone()),
        Variable::Array(items) => Value::Array(items.iter().map(to_value).collect()),
        Variable::Object(members) => Value::Object(
            members
                .iter()
                .map(|(key, member)| (key.clone(), to_value(member)))
                .collect(),
        ),
    }
}

/// As [`to_value`], without copies of what nothing else holds.
pub fn into_value(value: Rcvar) -> Value {
    match Rcvar::try_unwrap(value) {
        Ok(Variable::String(text)) => Value::String(text),
        Ok(Variable::Array(items)) => Value::Array(items.into_iter().map(into_value).collect()),
        Ok(Variable::Object(members)) => {
            let members = members.into_iter();
            Value::Object(
                members
                    .map(|(key, member)| (key, into_value(member)))
                    .collect(),
            )
        }
        Ok(Variable::Null | Variable::Expref(_)) => Value::Null,
        Ok(Variable::Bool(flag)) => Value::Bool(flag),
        Ok(Variable::Number(number)) => Value::Number(number),
        Err(shared) => to_value(&shared),
    }
}

/// JMESPath null.
pub fn null() -> Rcvar {
    Rcvar::new(Variable::Null)
}

/// A boolean.
pub(super) fn flag(value: bool) -> Rcvar {
    Rcvar::new(Variable::Bool(value))
}

/// JMESPath's truth (decision T3): null, false, `""`, `[]` and `{}` are false; 0 is true.
pub fn truthy(value: &Rcvar) -> bool {
    value.is_truthy()
}

/// The word for a value's kind: `null`, `boolean`, `number`, `string`, `array`, `object`.
pub fn kind(value: &Rcvar) -> &'static str {
    match &**value {
        Variable::Null | Variable::Expref(_) => "null",
        Variable::Bool(_) => "boolean",
        Variable::Number(_) => "number",
        Variable::String(_) => "string",
        Variable::Array(_) => "array",
        Variable::Object(_) => "object",
    }
}

fn integer(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

/// Integers by their exact value, anything else as floats.
pub fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_) | None, _) => {
            let float = |number: &Number| number.as_f64().unwrap_or_default();
            float(a).partial_cmp(&float(b)).unwrap_or(Ordering::Equal)
        }
    }
}

/// The number of a float; whole ones become integers where that is exact. None: not finite.
pub(super) fn number(float: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if float.fract() == 0.0 && float.abs() < EXACT {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole and below 2^53: the cast is exact"
        )]
        return Some(Number::from(float as i64));
    }
    Number::from_f64(float)
}

/// The number of an integer, exact where JSON numbers of 64 bits are.
pub(super) fn whole(integer: i128) -> Option<Number> {
    i64::try_from(integer)
        .map(Number::from)
        .or_else(|_| u64::try_from(integer).map(Number::from))
        .ok()
}

pub(super) fn as_whole(number: &Number) -> Option<i128> {
    integer(number)
}

/// Deep equality; `spend` is asked once a node and may end the comparison.
pub(super) fn equal<E>(
    a: &Rcvar,
    b: &Rcvar,
    spend: &mut dyn FnMut() -> Result<(), E>,
) -> Result<bool, E> {
    spend()?;
    if Rcvar::ptr_eq(a, b) {
        return Ok(true);
    }
    Ok(match (&**a, &**b) {
        (Variable::Null, Variable::Null) => true,
        (Variable::Bool(a), Variable::Bool(b)) => a == b,
        (Variable::Number(a), Variable::Number(b)) => compare_numbers(a, b) == Ordering::Equal,
        (Variable::String(a), Variable::String(b)) => a == b,
        (Variable::Array(a), Variable::Array(b)) => {
            a.len() == b.len() && all_equal(a.iter().zip(b), spend)?
        }
        (Variable::Object(a), Variable::Object(b)) => {
            a.len() == b.len()
                && a.keys().eq(b.keys())
                && all_equal(a.values().zip(b.values()), spend)?
        }
        _ => false,
    })
}

fn all_equal<'a, E>(
    pairs: impl Iterator<Item = (&'a Rcvar, &'a Rcvar)>,
    spend: &mut dyn FnMut() -> Result<(), E>,
) -> Result<bool, E> {
    for (a, b) in pairs {
        if !equal(a, b, spend)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number of bytes of the compact JSON of a value; an error over [`MAX_RESULT`] bytes or
/// [`MAX_NESTING`] levels. Stops as soon as either is passed, so shared subtrees cannot hurt.
pub(super) fn measure(value: &Rcvar) -> Result<usize, EvaluationError> {
    measure_within(value, 0, MAX_RESULT)
}

/// As `measure`, at a depth and with a limit of one's own.
pub fn measure_within(value: &Rcvar, depth: usize, limit: usize) -> Result<usize, EvaluationError> {
    let mut bytes = 0;
    add(value, depth, limit, &mut bytes)?;
    Ok(bytes)
}

fn add(
    value: &Rcvar,
    depth: usize,
    limit: usize,
    bytes: &mut usize,
) -> Result<(), EvaluationError> {
    match &**value {
        Variable::Null | Variable::Expref(_) | Variable::Bool(true) => *bytes += 4,
        Variable::Bool(false) => *bytes += 5,
        Variable::Number(number) => *bytes += digits(number),
        Variable::String(text) => *bytes += quoted(text),
        Variable::Array(items) => {
            *bytes += 2 + items.len().saturating_sub(1);
            for item in items {
                add(item, deeper(depth)?, limit, bytes)?;
            }
        }
        Variable::Object(members) => {
            *bytes += 2 + members.len().saturating_sub(1);
            for (key, member) in members {
                *bytes += quoted(key) + 1;
                add(member, deeper(depth)?, limit, bytes)?;
            }
        }
    }
    if *bytes > limit {
        return Err(EvaluationError {
            code: "result_size",
            message: format!("the result is larger than {limit} bytes"),
        });
    }
    Ok(())
}

fn deeper(depth: usize) -> Result<usize, EvaluationError> {
    if depth + 1 > MAX_NESTING {
        return Err(EvaluationError {
            code: "result_depth",
            message: format!("the result is nested deeper than {MAX_NESTING} levels"),
        });
    }
    Ok(depth + 1)
}

fn digits(number: &Number) -> usize {
    match (number.as_u64(), number.as_i64()) {
        (Some(n), _) => n.checked_ilog10().unwrap_or(0) as usize + 1,
        (None, Some(n)) => n.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 2,
        (None, None) => number.to_string().len(),
    }
}

fn quoted(text: &str) -> usize {
    let escapes = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 1,
        0..=31 => 5,
        _ => 0,
    };
    2 + text.len() + text.bytes().map(escapes).sum::<usize>()
}

/// A count of the values that this thread has converted, which tests use instead of time.
#[cfg(test)]
pub(crate) mod count {
    use std::cell::Cell;

    thread_local! {
        static CONVERTED: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn one() {
        CONVERTED.set(CONVERTED.get() + 1);
    }

    pub(crate) fn converted() -> u64 {
        CONVERTED.get()
    }
}

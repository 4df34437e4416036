//! `sort: {field, order}`: a stable order over any keys.

use std::cmp::Ordering;

use jmespath::{Rcvar, Variable};

use super::{array, canonical, type_error};
use crate::expression::{EvaluationError, Expression, Meter, compare_numbers};

/// Booleans come before numbers, then strings, arrays and objects; within a class by value.
/// Null and missing keys are last in both orders, and equal keys keep their places (decision S8).
pub(super) fn apply(
    field: &Expression,
    descending: bool,
    value: &Rcvar,
    meter: &mut Meter,
) -> Result<Rcvar, EvaluationError> {
    let Some(items) = value.as_array() else {
        return Err(type_error("an array", value));
    };
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        let key = field.evaluate_on_within(item, meter)?;
        keyed.push((SortKey::of(&key), item.clone()));
    }
    keyed.sort_by(|(a, _), (b, _)| order(a, b, descending));
    Ok(array(keyed.into_iter().map(|(_, item)| item).collect()))
}

pub(super) enum SortKey {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    String(String),
    Array(String),
    Object(String),
}

impl SortKey {
    pub(super) fn of(value: &Rcvar) -> Self {
        match &**value {
            Variable::Null | Variable::Expref(_) => Self::Null,
            Variable::Bool(flag) => Self::Bool(*flag),
            Variable::Number(number) => Self::Number(number.clone()),
            Variable::String(text) => Self::String(text.clone()),
            Variable::Array(_) => Self::Array(canonical(value)),
            Variable::Object(_) => Self::Object(canonical(value)),
        }
    }

    fn class(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Number(_) => 1,
            Self::String(_) => 2,
            Self::Array(_) => 3,
            Self::Object(_) => 4,
            Self::Null => 5,
        }
    }
}

pub(super) fn order(a: &SortKey, b: &SortKey, descending: bool) -> Ordering {
    let forward = match (a, b) {
        (SortKey::Null, _) | (_, SortKey::Null) => return a.class().cmp(&b.class()),
        (SortKey::Bool(a), SortKey::Bool(b)) => a.cmp(b),
        (SortKey::Number(a), SortKey::Number(b)) => compare_numbers(a, b),
        (SortKey::String(a), SortKey::String(b))
        | (SortKey::Array(a), SortKey::Array(b))
        | (SortKey::Object(a), SortKey::Object(b)) => a.cmp(b),
        (a, b) => a.class().cmp(&b.class()),
    };
    if descending {
        forward.reverse()
    } else {
        forward
    }
}

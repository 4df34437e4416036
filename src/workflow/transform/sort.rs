//! `sort: {field, order}`: a stable order over any keys.

use std::cmp::Ordering;

use jmespath::{Rcvar, Variable};

use super::values::{canonical, taken};
use crate::expression::{
    EvaluatedValue, EvaluationError, Evaluator, Expression, compare_numbers, kind,
};

/// Booleans come before numbers, then strings, arrays and objects; within a class by value.
/// Null and missing keys are last in both orders, and equal keys keep their places (decision S8).
pub(super) fn apply<V: EvaluatedValue>(
    field: &Expression,
    descending: bool,
    value: &V,
    evaluator: &mut Evaluator<'_, V>,
) -> Result<V, EvaluationError> {
    evaluator.inspect(value.shape());
    let items = value.items().ok_or_else(|| EvaluationError {
        code: "transform_type",
        message: format!("needs an array, got {}", kind(value.value())),
    })?;
    let (mut keyed, mut why) = (Vec::with_capacity(items.len()), Vec::new());
    for item in items.iter() {
        let key = field.evaluate_on(item, evaluator)?;
        why.push(key.dependencies());
        keyed.push((SortKey::of(key.value()), item.clone()));
    }
    keyed.sort_by(|(a, _), (b, _)| order(a, b, descending));
    let sorted = keyed.into_iter().map(|(_, item)| item).collect();
    Ok(taken(value, sorted, &why))
}

enum SortKey {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    String(String),
    Array(String),
    Object(String),
}

impl SortKey {
    fn of(value: &Rcvar) -> Self {
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

fn order(a: &SortKey, b: &SortKey, descending: bool) -> Ordering {
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

//! `filter: {expr}`: the elements for which the expression is true stay.

use super::values::{elements, taken};
use crate::expression::{EvaluatedValue, EvaluationError, Evaluator, Expression, truthy};

/// Truth is JMESPath's (decision T3); null elements never stay.
pub(super) fn apply<V: EvaluatedValue>(
    expr: &Expression,
    value: &V,
    evaluator: &mut Evaluator<'_, V>,
) -> Result<V, EvaluationError> {
    let (mut kept, mut why) = (Vec::new(), Vec::new());
    if !value.value().is_array() {
        why.push(value.shape());
    }
    for item in elements(value).iter() {
        if item.value().is_null() {
            why.push(item.shape());
            continue;
        }
        let holds = expr.evaluate_on(item, evaluator)?;
        why.push(holds.shape());
        if !item.value().is_array() && !item.value().is_object() {
            why.push(item.shape());
        }
        if truthy(holds.value()) {
            kept.push(item.clone());
        }
    }
    Ok(taken(value, kept, &why))
}

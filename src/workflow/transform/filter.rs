//! `filter: {expr}`: the elements for which the expression is true stay.

use jmespath::Rcvar;

use super::{array, elements};
use crate::expression::{EvaluationError, Expression, Meter, truthy};

/// Truth is JMESPath's (decision T3); null elements never stay.
pub(super) fn apply(
    expr: &Expression,
    value: &Rcvar,
    meter: &mut Meter,
) -> Result<Rcvar, EvaluationError> {
    let mut kept = Vec::new();
    for item in elements(value) {
        if !item.is_null() && truthy(&expr.evaluate_on_within(&item, meter)?) {
            kept.push(item);
        }
    }
    Ok(array(kept))
}

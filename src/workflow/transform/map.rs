//! `map: {expr}`: each element becomes the value of the expression on it.

use jmespath::Rcvar;

use super::{array, elements};
use crate::expression::{EvaluationError, Expression, Meter};

/// One result an element; where the expression finds nothing, null.
pub(super) fn apply(
    expr: &Expression,
    value: &Rcvar,
    meter: &mut Meter,
) -> Result<Rcvar, EvaluationError> {
    let items = elements(value);
    let made = items
        .iter()
        .map(|item| expr.evaluate_on_within(item, meter));
    made.collect::<Result<_, _>>().map(array)
}

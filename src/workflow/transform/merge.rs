//! `merge: [a, b]`: folds values into the current one.

use jmespath::{Rcvar, Variable};

use crate::expression::{EvaluationError, Expression, Meter, NameLookup, measure_within};

/// Objects merge at every level, arrays are joined, anything else is replaced by the later value.
/// An argument that is null brings nothing.
pub(super) fn apply(
    from: &[Expression],
    value: &Rcvar,
    names: &dyn NameLookup,
    meter: &mut Meter,
) -> Result<Rcvar, EvaluationError> {
    let mut merged = value.clone();
    for expression in from {
        let next = expression.evaluate_within(names, meter)?;
        if !next.is_null() {
            merged = deep(&merged, &next);
            measure_within(&merged, 0, Meter::MAX_BYTES)?;
        }
    }
    Ok(merged)
}

fn deep(before: &Rcvar, next: &Rcvar) -> Rcvar {
    match (&**before, &**next) {
        (Variable::Object(before), Variable::Object(next)) => {
            let mut merged = before.clone();
            for (key, value) in next {
                let value = match merged.get(key) {
                    Some(old) => deep(old, value),
                    None => value.clone(),
                };
                merged.insert(key.clone(), value);
            }
            Rcvar::new(Variable::Object(merged))
        }
        (Variable::Array(before), Variable::Array(next)) => Rcvar::new(Variable::Array(
            before.iter().chain(next).cloned().collect(),
        )),
        _ => next.clone(),
    }
}

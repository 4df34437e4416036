//! `deduplicate: {field}`: of each key the first element stays.

use std::collections::HashSet;

use jmespath::Rcvar;

use super::{array, canonical};
use crate::expression::{EvaluationError, Expression, Meter};

/// Keys are compared as canonical JSON; a missing key and null are the same key. What is no array
/// passes unchanged (decision S8).
pub(super) fn apply(
    field: &Expression,
    value: &Rcvar,
    meter: &mut Meter,
) -> Result<Rcvar, EvaluationError> {
    let Some(items) = value.as_array() else {
        return Ok(value.clone());
    };
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for item in items {
        let key = field.evaluate_on_within(item, meter)?;
        if seen.insert(canonical(&key)) {
            kept.push(item.clone());
        }
    }
    Ok(array(kept))
}

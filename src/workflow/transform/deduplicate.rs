//! `deduplicate: {field}`: of each key the first element stays.

use std::collections::HashSet;

use super::values::{canonical, taken};
use crate::expression::{EvaluatedValue, EvaluationError, Evaluator, Expression};

/// Keys are compared as canonical JSON; a missing key and null are the same key. What is no array
/// passes unchanged (decision S8).
pub(super) fn apply<V: EvaluatedValue>(
    field: &Expression,
    value: &V,
    evaluator: &mut Evaluator<'_, V>,
) -> Result<V, EvaluationError> {
    let Some(items) = value.items() else {
        return Ok(value.clone());
    };
    let (mut seen, mut kept, mut why) = (HashSet::new(), Vec::new(), Vec::new());
    for item in items.iter() {
        let key = field.evaluate_on(item, evaluator)?;
        why.push(key.dependencies());
        if seen.insert(canonical(key.value())) {
            kept.push(item.clone());
        }
    }
    Ok(taken(value, kept, &why))
}

//! `merge: [a, b]`: folds values into the current one.

use std::collections::BTreeMap;

use crate::expression::{
    EvaluatedValue, EvaluationError, Evaluator, Expression, MAX_BYTES, NameLookup, measure_within,
};

/// Objects merge at every level, arrays are joined, anything else is replaced by the later value.
/// An argument that is null brings nothing.
pub(super) fn apply<V: EvaluatedValue>(
    from: &[Expression],
    value: &V,
    names: &dyn NameLookup<V>,
    evaluator: &mut Evaluator<'_, V>,
) -> Result<V, EvaluationError> {
    let mut merged = value.clone();
    for expression in from {
        let next = expression.evaluate_within(names, evaluator)?;
        if next.value().is_null() {
            merged = merged.chosen_by(&next.shape());
        } else {
            merged = deep(&merged, &next);
            measure_within(merged.value(), 0, MAX_BYTES)?;
        }
    }
    Ok(merged)
}

fn deep<V: EvaluatedValue>(before: &V, next: &V) -> V {
    if let (Some(merged), Some(members)) = (before.members(), next.members()) {
        let mut merged = merged.into_owned();
        for (key, value) in members.iter() {
            let value = match merged.get(key) {
                Some(old) => deep(old, value),
                None => value.clone(),
            };
            merged.insert(key.clone(), value);
        }
        return of_both(before, next, merged);
    }
    if let (Some(items), Some(more)) = (before.items(), next.items()) {
        let items = items.iter().chain(more.iter()).cloned().collect();
        let list = V::list(items, V::union([&before.source(), &next.source()]));
        return list.chosen_by(before.chosen()).chosen_by(next.chosen());
    }
    next.clone()
}

/// An object with members of two.
pub(super) fn of_both<V: EvaluatedValue>(before: &V, next: &V, members: BTreeMap<String, V>) -> V {
    let map = V::map(members, V::union([&before.source(), &next.source()]));
    map.chosen_by(before.chosen()).chosen_by(next.chosen())
}

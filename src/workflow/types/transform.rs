//! The effect of the six operations on a type (decision S8).

use super::{KindSet, ValueType};

/// The type that a transform begins with: nothing is null; of several inputs objects are merged one
/// level deep, and anything else replaces what was before it.
pub fn start(inputs: &[ValueType]) -> ValueType {
    let mut inputs = inputs.iter();
    let first = inputs.next().cloned().unwrap_or_else(ValueType::null);
    inputs.fold(first, |before, next| {
        let objects = before.clone().only(KindSet::OBJECT);
        let later = next.clone().only(KindSet::OBJECT);
        let both = match objects.is_never() || later.is_never() {
            true => ValueType::never(),
            false => objects.overlaid(&later),
        };
        let replaces = match before.kinds().without(KindSet::OBJECT).is_none() {
            true => next.clone().only(KindSet::ALL.without(KindSet::OBJECT)),
            false => next.clone(),
        };
        both.join(&replaces)
    })
}

/// The type of what `map` and `filter` go over: the items of an array, nothing for null, otherwise
/// the value.
pub fn elements(value: &ValueType) -> ValueType {
    let alone = KindSet::ALL.without(KindSet::ARRAY.or(KindSet::NULL));
    value.items().join(&value.clone().only(alone))
}

/// The elements of an array alone; of what is no array there are none.
pub fn array_elements(value: &ValueType) -> ValueType {
    value.items()
}

/// The type of what `filter` keeps.
pub fn filtered(value: &ValueType) -> ValueType {
    ValueType::array(elements(value).without_null())
}

/// The type that `flatten` makes: one level less of an array, anything else as it is.
pub fn flattened(value: &ValueType) -> ValueType {
    if value.is_any() {
        return ValueType::any();
    }
    let others = value.clone().only(KindSet::ALL.without(KindSet::ARRAY));
    if !value.kinds().meets(KindSet::ARRAY) {
        return others;
    }
    let items = value.items();
    let inner = items.items();
    let beside = items.only(KindSet::ALL.without(KindSet::ARRAY));
    ValueType::array(inner.join(&beside)).join(&others)
}

/// The type that `merge` makes of a value and one argument; null brings nothing.
pub fn merged(value: &ValueType, argument: &ValueType) -> ValueType {
    let brought = value.merged(&argument.clone().without_null());
    match argument.kinds().meets(KindSet::NULL) {
        true => brought.join(value),
        false => brought,
    }
}

/// Returns `true` if `sort` can have a value: it takes arrays alone.
pub fn sorts(value: &ValueType) -> bool {
    !value.is_informative() || value.kinds().meets(KindSet::ARRAY)
}

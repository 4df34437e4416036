//! Operations on values that several transforms share.

use std::borrow::Cow;

use jmespath::Rcvar;

use crate::expression::{EvaluatedValue, to_value};

/// The values that `map` and `filter` go over: an array's items, nothing for null, otherwise the
/// one value.
pub(super) fn elements<V: EvaluatedValue>(value: &V) -> Cow<'_, [V]> {
    match value.items() {
        Some(items) => items,
        None if value.value().is_null() => Cow::Borrowed(&[]),
        None => Cow::Borrowed(std::slice::from_ref(value)),
    }
}

/// The elements that were taken of a value, and what took them.
pub(super) fn taken<V: EvaluatedValue>(value: &V, items: Vec<V>, why: &[V::Provenance]) -> V {
    value.with_items(items).chosen_by(&V::union(why))
}

/// The canonical text of a value, by which values are told apart.
pub(super) fn canonical(value: &Rcvar) -> String {
    to_value(value).to_string()
}

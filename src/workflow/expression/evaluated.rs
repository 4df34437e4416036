//! The values that expressions, transforms and templates are generic over.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jmespath::{Rcvar, Variable};

use super::value::null;

/// A value under evaluation: a plain [`Rcvar`], or a [`Tracked`](super::provenance::Tracked) one
/// that knows its provenance. A plain value has `()` as its provenance, which costs nothing.
pub trait EvaluatedValue: Clone {
    /// A set of places that values were made of, or chosen by.
    type Provenance: Clone + Default;

    /// The union of several sets.
    fn union<'a>(sets: impl IntoIterator<Item = &'a Self::Provenance>) -> Self::Provenance
    where
        Self::Provenance: 'a;
    /// Returns `true` if a set has no places.
    fn is_empty(set: &Self::Provenance) -> bool;
    /// The result of `find`, which is called only where provenance is tracked.
    fn trace(find: impl FnOnce() -> Self::Provenance) -> Self::Provenance;
    /// A value computed from places.
    fn computed(value: Rcvar, sources: Self::Provenance) -> Self;
    /// An array of such values.
    fn list(items: Vec<Self>, source: Self::Provenance) -> Self;
    /// An object of such values.
    fn map(members: BTreeMap<String, Self>, source: Self::Provenance) -> Self;
    /// The same, chosen by more.
    fn chosen_by(self, more: &Self::Provenance) -> Self;
    /// The value.
    fn value(&self) -> &Rcvar;
    /// The places that chose it.
    fn chosen(&self) -> &Self::Provenance;
    /// The places that it was made of; of an array or object with parts of their own, those that
    /// made it as such.
    fn source(&self) -> Self::Provenance;
    /// Calls `visit` with it and all of its parts that have a provenance of their own.
    fn visit_parts(&self, visit: &mut dyn FnMut(&Self));
    /// The elements, if it is an array. What chose the array is not repeated on them.
    fn items(&self) -> Option<Cow<'_, [Self]>>;
    /// The members, if it is an object. What chose the object is not repeated on them.
    fn members(&self) -> Option<Cow<'_, BTreeMap<String, Self>>>;
    /// One element, chosen by what chose the array.
    fn item(&self, at: usize) -> Option<Self>;
    /// One member, chosen by what chose the object.
    fn member(&self, name: &str) -> Option<Self>;

    /// A value that is part of the definition.
    fn literal(value: Rcvar) -> Self {
        Self::computed(value, Self::Provenance::default())
    }

    /// Null, because of what these are.
    fn missing(chosen: Self::Provenance) -> Self {
        Self::literal(null()).chosen_by(&chosen)
    }

    /// A list made from the elements of this one, and chosen by what chose this one.
    fn with_items(&self, items: Vec<Self>) -> Self {
        Self::list(items, self.source()).chosen_by(self.chosen())
    }

    /// The places that its kind, its length and its truth rest on.
    fn shape(&self) -> Self::Provenance {
        Self::union([&self.source(), self.chosen()])
    }

    /// The places that it and all of its parts were made of.
    fn sources(&self) -> Self::Provenance {
        let mut found = Vec::new();
        self.visit_parts(&mut |part| found.push(part.source()));
        Self::union(&found)
    }

    /// The places that chose it and its parts.
    fn choosers(&self) -> Self::Provenance {
        let mut found = Vec::new();
        self.visit_parts(&mut |part| found.push(part.chosen().clone()));
        Self::union(&found)
    }

    /// Everything it rests on: its sources, those of its parts, and what chose them.
    fn dependencies(&self) -> Self::Provenance {
        let mut found = Vec::new();
        self.visit_parts(&mut |part| found.extend([part.source(), part.chosen().clone()]));
        Self::union(&found)
    }
}

impl EvaluatedValue for Rcvar {
    type Provenance = ();

    fn union<'a>(_: impl IntoIterator<Item = &'a ()>) {}

    fn is_empty((): &()) -> bool {
        true
    }

    fn trace(_: impl FnOnce()) {}

    fn computed(value: Rcvar, (): ()) -> Self {
        value
    }

    fn list(items: Vec<Self>, (): ()) -> Self {
        Self::new(Variable::Array(items))
    }

    fn map(members: BTreeMap<String, Self>, (): ()) -> Self {
        Self::new(Variable::Object(members))
    }

    fn chosen_by(self, (): &()) -> Self {
        self
    }

    fn value(&self) -> &Rcvar {
        self
    }

    fn chosen(&self) -> &() {
        &()
    }

    fn source(&self) {}

    fn visit_parts(&self, _: &mut dyn FnMut(&Self)) {}

    fn items(&self) -> Option<Cow<'_, [Self]>> {
        self.as_array().map(|items| Cow::Borrowed(items.as_slice()))
    }

    fn members(&self) -> Option<Cow<'_, BTreeMap<String, Self>>> {
        self.as_object().map(Cow::Borrowed)
    }

    fn item(&self, at: usize) -> Option<Self> {
        self.as_array()?.get(at).cloned()
    }

    fn member(&self, name: &str) -> Option<Self> {
        self.as_object()?.get(name).cloned()
    }
}

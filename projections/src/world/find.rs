//! Look-ups by type and fields. Their cost grows with what they look at, never with the world: the
//! rarest of the wanted values is walked, and the others are checked in its objects alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::graph::World;
use super::index::{IndexValue, Listing};
use super::object::WorldObject;

/// A condition: a field has to equal one of these values. Without values it holds for no object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Condition {
    /// A member of the data, which is indexed for the type.
    pub field: String,
    /// The values.
    pub values: BTreeSet<IndexValue>,
}

impl World {
    /// The objects of a type for which all conditions hold, in order of creation. A field that is
    /// not indexed holds for none.
    pub fn find<'w>(
        &'w self,
        kind: &str,
        conditions: &[Condition],
    ) -> Box<dyn Iterator<Item = &'w Arc<WorldObject>> + 'w> {
        let ids = self.find_ids(kind, conditions);
        Box::new(ids.filter_map(|id| self.object(id)))
    }

    /// The ids of the objects that [`World::find`] gives, read from the index alone. The id of an object
    /// is one shared text, in every version of it and in every world that shares its history.
    pub fn find_ids<'w>(
        &'w self,
        kind: &str,
        conditions: &[Condition],
    ) -> Box<dyn Iterator<Item = &'w Arc<str>> + 'w> {
        let Some(found) = self.candidates(kind, conditions) else {
            return Box::new(std::iter::empty());
        };
        let Matches { walked, checked } = found;
        let ids: Box<dyn Iterator<Item = (&'w u64, &'w Arc<str>)>> = match walked.as_slice() {
            [one] => Box::new(one.iter()),
            // Values of one field exclude each other, so that no object comes twice.
            many => {
                let merged: BTreeMap<&u64, &Arc<str>> =
                    many.iter().flat_map(|listing| listing.iter()).collect();
                Box::new(merged.into_iter())
            }
        };
        let holds = move |order: &u64| {
            let mut checked = checked.iter();
            checked.all(|any| any.iter().any(|listing| listing.contains_key(order)))
        };
        let ids = ids.filter(move |(order, _)| holds(order));
        Box::new(ids.map(|(_, id)| id))
    }

    /// Number of objects that [`World::find`] finds. With at most one condition this is read from
    /// the index.
    pub fn count(&self, kind: &str, conditions: &[Condition]) -> usize {
        if conditions.len() > 1 {
            return self.find(kind, conditions).count();
        }
        let found = self.candidates(kind, conditions);
        found.map_or(0, |found| {
            found.walked.iter().map(|listing| listing.size()).sum()
        })
    }

    /// The objects that can match, or nothing if there are none.
    fn candidates(&self, kind: &str, conditions: &[Condition]) -> Option<Matches<'_>> {
        let mut checked = Vec::with_capacity(conditions.len());
        for condition in conditions {
            let values = condition.values.iter();
            let listings: Vec<&Listing> = values
                .filter_map(|value| self.listing(kind, Some((&condition.field, value))))
                .collect();
            if listings.is_empty() {
                return None;
            }
            checked.push(listings);
        }
        let size = |listings: &Vec<&Listing>| listings.iter().map(|one| one.size()).sum::<usize>();
        let rarest = (0..checked.len()).min_by_key(|at| checked.get(*at).map(size));
        let walked = match rarest {
            Some(at) => checked.swap_remove(at),
            None => vec![self.listing(kind, None)?],
        };
        Some(Matches { walked, checked })
    }
}

struct Matches<'w> {
    /// Together, what is looked at.
    walked: Vec<&'w Listing>,
    /// In each of these, one has to have it.
    checked: Vec<Vec<&'w Listing>>,
}

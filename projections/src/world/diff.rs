//! The differences between two worlds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::graph::World;
use super::object::{WorldObject, WorldRelation};

/// Ids, ascending, of what differs in the second of two worlds (seed 002).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldDiff {
    /// Objects that only the second has.
    pub added_objects: Vec<String>,
    /// Objects that only the first has.
    pub removed_objects: Vec<String>,
    /// Objects of both whose type or data differ.
    pub patched_objects: Vec<String>,
    /// Relations that only the second has.
    pub added_relations: Vec<String>,
    /// Relations that only the first has.
    pub removed_relations: Vec<String>,
    /// Relations of both whose type, ends or data differ.
    pub patched_relations: Vec<String>,
}

impl WorldDiff {
    /// From one world to another.
    pub fn between(a: &World, b: &World) -> Self {
        let same = |a: &Arc<WorldObject>, b: &Arc<WorldObject>| {
            Arc::ptr_eq(a, b) || (a.kind == b.kind && a.data == b.data)
        };
        let objects = |world: &World| -> BTreeMap<String, Arc<WorldObject>> {
            let all = world.objects().into_iter();
            all.map(|one| (one.id.to_string(), Arc::clone(one)))
                .collect()
        };
        let [added_objects, removed_objects, patched_objects] =
            compare(&objects(a), &objects(b), same);
        let same = |a: &Arc<WorldRelation>, b: &Arc<WorldRelation>| {
            let ends = a.source_id == b.source_id && a.target_id == b.target_id;
            Arc::ptr_eq(a, b) || (ends && a.kind == b.kind && a.data == b.data)
        };
        let relations = |world: &World| -> BTreeMap<String, Arc<WorldRelation>> {
            let all = world.relations().into_iter();
            all.map(|one| (one.id.to_string(), Arc::clone(one)))
                .collect()
        };
        let [added_relations, removed_relations, patched_relations] =
            compare(&relations(a), &relations(b), same);
        Self {
            added_objects,
            removed_objects,
            patched_objects,
            added_relations,
            removed_relations,
            patched_relations,
        }
    }

    /// Returns `true` if the two are the same.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// `+N objects, -N objects, ~N objects patched, …`, or `no changes`.
impl fmt::Display for WorldDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("+", &self.added_objects, "objects"),
            ("-", &self.removed_objects, "objects"),
            ("~", &self.patched_objects, "objects patched"),
            ("+", &self.added_relations, "relations"),
            ("-", &self.removed_relations, "relations"),
            ("~", &self.patched_relations, "relations patched"),
        ];
        let parts = parts.iter().filter(|(_, ids, _)| !ids.is_empty());
        let parts: Vec<String> = parts
            .map(|(sign, ids, what)| format!("{sign}{} {what}", ids.len()))
            .collect();
        match parts.is_empty() {
            true => f.write_str("no changes"),
            false => f.write_str(&parts.join(", ")),
        }
    }
}

/// The ids that are only in the second, only in the first, and in both with different content.
fn compare<T>(
    a: &BTreeMap<String, T>,
    b: &BTreeMap<String, T>,
    same: impl Fn(&T, &T) -> bool,
) -> [Vec<String>; 3] {
    let missing = |from: &BTreeMap<String, T>, other: &BTreeMap<String, T>| {
        let ids = from.keys().filter(|id| !other.contains_key(*id));
        ids.cloned().collect()
    };
    let both = a.iter().filter_map(|(id, one)| Some((id, one, b.get(id)?)));
    let changed = both.filter(|(_, one, other)| !same(one, other));
    [
        missing(b, a),
        missing(a, b),
        changed.map(|(id, ..)| id.clone()).collect(),
    ]
}

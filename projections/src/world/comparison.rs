//! Two worlds side by side: what only one of them has, and what differs in both, field by field.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::diff::WorldDiff;
use super::graph::World;
use super::object::{WorldObject, WorldRelation};
use crate::value_diff::{self, ValueDifference};

/// How the second of two worlds differs from the first. Ids ascend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldComparison {
    /// Objects that only the second has.
    pub added_objects: Vec<String>,
    /// Objects that only the first has.
    pub removed_objects: Vec<String>,
    /// Objects of both that differ.
    pub patched_objects: Vec<PatchedEntry>,
    /// Relations that only the second has.
    pub added_relations: Vec<String>,
    /// Relations that only the first has.
    pub removed_relations: Vec<String>,
    /// Relations of both that differ.
    pub patched_relations: Vec<PatchedEntry>,
}

/// An object or a relation that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchedEntry {
    /// Its id.
    pub id: String,
    /// Its type, its ends and its data, place by place.
    pub changes: Vec<ValueDifference>,
}

impl WorldComparison {
    /// From one world to another.
    pub fn between(a: &World, b: &World) -> Self {
        let ids = WorldDiff::between(a, b);
        let objects = ids.patched_objects.into_iter().map(|id| {
            let side = |world: &World| world.object(&id).map(|one| object_content(one));
            let sides = [a, b].map(|world| side(world).unwrap_or_default());
            entry(id, &sides)
        });
        let relations = ids.patched_relations.into_iter().map(|id| {
            let side = |world: &World| world.relation(&id).map(|one| relation_content(one));
            let sides = [a, b].map(|world| side(world).unwrap_or_default());
            entry(id, &sides)
        });
        Self {
            patched_objects: objects.collect(),
            patched_relations: relations.collect(),
            added_objects: ids.added_objects,
            removed_objects: ids.removed_objects,
            added_relations: ids.added_relations,
            removed_relations: ids.removed_relations,
        }
    }

    /// Returns `true` if the two are the same.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The ids alone, which print as a summary.
    pub fn ids(&self) -> WorldDiff {
        let ids = |entries: &[PatchedEntry]| entries.iter().map(|one| one.id.clone()).collect();
        WorldDiff {
            added_objects: self.added_objects.clone(),
            removed_objects: self.removed_objects.clone(),
            patched_objects: ids(&self.patched_objects),
            added_relations: self.added_relations.clone(),
            removed_relations: self.removed_relations.clone(),
            patched_relations: ids(&self.patched_relations),
        }
    }
}

fn entry(id: String, [a, b]: &[Value; 2]) -> PatchedEntry {
    let changes = value_diff::diff(a, b);
    PatchedEntry { id, changes }
}

/// The part of an object that is compared: `{data, type}`.
pub fn object_content(object: &WorldObject) -> Value {
    json!({"data": object.data.to_value(), "type": &*object.kind})
}

/// The part of a relation that is compared: `{data, source_id, target_id, type}`.
pub fn relation_content(relation: &WorldRelation) -> Value {
    json!({
        "data": relation.data.to_value(),
        "source_id": &*relation.source_id,
        "target_id": &*relation.target_id,
        "type": &*relation.kind,
    })
}

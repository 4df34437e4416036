//! The identity of a world (decision F7).

use ktsu_ledger::jcs;
use serde_json::{Map, Value, json};

use super::graph::World;

impl World {
    /// `sha256:` and the digest of [`World::to_value`] under RFC 8785. Neither the order of frames
    /// nor their numbers enter.
    pub fn hash(&self) -> String {
        jcs::digest(&self.to_value())
    }

    /// `{objects: {ID: {data, type}}, relations: {ID: {data, source_id, target_id, type}}}`.
    pub fn to_value(&self) -> Value {
        let objects = self.objects().into_iter().map(|object| {
            let shown = json!({ "data": object.data.to_value(), "type": *object.kind });
            (object.id.to_string(), shown)
        });
        let relations = self.relations().into_iter().map(|relation| {
            let shown = json!({
                "data": relation.data.to_value(),
                "source_id": *relation.source_id,
                "target_id": *relation.target_id,
                "type": *relation.kind,
            });
            (relation.id.to_string(), shown)
        });
        let objects: Map<String, Value> = objects.collect();
        let relations: Map<String, Value> = relations.collect();
        json!({ "objects": objects, "relations": relations })
    }
}

//! The identity of a world (decision F7).

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::graph::World;
use super::object::{WorldObject, WorldRelation};

impl World {
    /// `sha256:` and the digest of [`World::to_value`] under RFC 8785. Neither the order of frames
    /// nor their numbers enter.
    pub fn hash(&self) -> String {
        let objects = sorted(self.objects(), |one| &one.id);
        let objects = objects.iter().map(|one| object_text(one));
        let relations = sorted(self.relations(), |one| &one.id);
        let relations = relations.iter().map(|one| relation_text(one));
        let mut digest = Sha256::new();
        digest.update("{\"objects\":{");
        add(&mut digest, objects);
        digest.update("},\"relations\":{");
        add(&mut digest, relations);
        digest.update("}}");
        let mut hash = "sha256:".to_owned();
        for byte in digest.finalize() {
            let _ = write!(hash, "{byte:02x}");
        }
        hash
    }

    /// `{objects: {ID: {data, type}}, relations: {ID: {data, source_id, target_id, type}}}`.
    pub fn to_value(&self) -> Value {
        let objects = self.objects().into_iter();
        let objects = objects.map(|one| (one.id.to_string(), object_value(one)));
        let relations = self.relations().into_iter();
        let relations = relations.map(|one| (one.id.to_string(), relation_value(one)));
        let objects: Map<String, Value> = objects.collect();
        let relations: Map<String, Value> = relations.collect();
        json!({ "objects": objects, "relations": relations })
    }
}

fn object_value(object: &WorldObject) -> Value {
    json!({ "data": object.data.to_value(), "type": *object.kind })
}

fn relation_value(relation: &WorldRelation) -> Value {
    json!({
        "data": relation.data.to_value(),
        "source_id": *relation.source_id,
        "target_id": *relation.target_id,
        "type": *relation.kind,
    })
}

fn object_text(object: &WorldObject) -> &str {
    object.text.of(&object.id, || object_value(object))
}

fn relation_text(relation: &WorldRelation) -> &str {
    relation.text.of(&relation.id, || relation_value(relation))
}

fn add<'t>(digest: &mut Sha256, texts: impl Iterator<Item = &'t str>) {
    for (at, text) in texts.enumerate() {
        if at > 0 {
            digest.update(",");
        }
        digest.update(text);
    }
}

/// In the order of the members of a canonical object.
fn sorted<T>(mut all: Vec<&Arc<T>>, id: impl Fn(&T) -> &str) -> Vec<&Arc<T>> {
    all.sort_unstable_by(|a, b| member_order(id(a), id(b)));
    all
}

/// Members are ordered by UTF-16 code units.
fn member_order(a: &str, b: &str) -> Ordering {
    match a.is_ascii() && b.is_ascii() {
        true => a.cmp(b),
        false => a.encode_utf16().cmp(b.encode_utf16()),
    }
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::CanonicalJson;
    use ktsu_ledger::event::{ObjectCreated, ObjectPatched, RelationCreated, WorldEvent};
    use ktsu_ledger::jcs;

    use super::*;

    fn canonical(value: &Value) -> CanonicalJson {
        CanonicalJson::from_value(value).unwrap()
    }

    fn object(id: &str, data: &Value) -> WorldEvent {
        WorldEvent::ObjectCreated(ObjectCreated {
            by: None,
            data: canonical(data),
            derived: None,
            id: id.to_owned(),
            key: None,
            kind: "T\u{e9}".to_owned(),
            post: None,
        })
    }

    #[test]
    fn the_hash_is_that_of_the_canonical_text_of_the_world_whatever_was_hashed_before() {
        let mut world = World::default();
        let mut events = vec![
            object("b", &json!({"z": 1.0, "a": [1, {"y": null, "x": 1e21}]})),
            object("\u{fffd}", &json!({})),
            object(
                "\u{1f600}",
                &json!({"\u{1f600}": 1, "\u{fffd}": "\u{8}\"\\"}),
            ),
            object("a\"/~", &json!({"n": 123456789012345678_u64})),
        ];
        events.push(WorldEvent::RelationCreated(RelationCreated {
            by: None,
            data: canonical(&json!({"w": -0.0})),
            derived: None,
            id: "r".to_owned(),
            kind: "of".to_owned(),
            post: None,
            source_id: "a".to_owned(),
            target_id: "b".to_owned(),
        }));
        events.push(WorldEvent::ObjectPatched(ObjectPatched {
            by: None,
            derived: None,
            id: "b".to_owned(),
            patch: canonical(&json!({"z": null, "k": "v"})),
            post: None,
            withheld: CanonicalJson::null(),
        }));
        events.push(object("b", &json!({"again": true})));
        let mut hashes = vec![world.hash()];
        for (seq, event) in (0u64..).zip(&events) {
            world.apply_event(seq, event);
            assert_eq!(world.hash(), jcs::digest(&world.to_value()), "{seq}");
            hashes.push(world.clone().hash());
        }
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), events.len() + 1);
    }
}

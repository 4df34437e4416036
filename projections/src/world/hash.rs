//! The identity of a world (decision F7).

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::graph::World;
use super::object::{WorldObject, WorldRelation};

/// Least number of bytes that are hashed at once.
const HELD_BYTES: usize = 16 << 10;

impl World {
    /// `sha256:` and the digest of [`World::to_value`] under RFC 8785. Neither the order of frames
    /// nor their numbers enter.
    pub fn hash(&self) -> String {
        let objects = in_member_order(self.object_values().map(|one| (&*one.id, one)));
        let objects = objects.into_iter().map(|one| object_text(one));
        let relations = in_member_order(self.relation_values().map(|one| (&*one.id, one)));
        let relations = relations.into_iter().map(|one| relation_text(one));
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

/// Adds texts with commas between them. They are short: many of them are hashed at once.
fn add<'t>(digest: &mut Sha256, texts: impl Iterator<Item = &'t str>) {
    let mut held = Vec::with_capacity(2 * HELD_BYTES);
    for (at, text) in texts.enumerate() {
        if at > 0 {
            held.push(b',');
        }
        held.extend_from_slice(text.as_bytes());
        if held.len() >= HELD_BYTES {
            digest.update(&held);
            held.clear();
        }
    }
    digest.update(&held);
}

/// Values by their ids, in the order of the members of a canonical object: that of UTF-16 code units.
fn in_member_order<'w, T>(all: impl Iterator<Item = (&'w str, T)>) -> Vec<T> {
    let all: Vec<(&str, T)> = all.collect();
    let begins = shared_beginning(all.iter().map(|(id, _)| *id));
    // Sixteen bytes of each id are read once; they decide nearly every comparison. As text in ASCII is
    // ordered by its bytes, and text that ends by itself before any that continues, zeroes fill them up.
    let mut keyed: Vec<(u128, &str, T)> = all
        .into_iter()
        .map(|(id, value)| (key(id, begins), id, value))
        .collect();
    match keyed.iter().all(|(_, id, _)| id.is_ascii()) {
        true => keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1))),
        false => keyed.sort_unstable_by(|a, b| a.1.encode_utf16().cmp(b.1.encode_utf16())),
    }
    keyed.into_iter().map(|(_, _, value)| value).collect()
}

/// Number of bytes at the beginning that all of these share.
fn shared_beginning<'t>(mut ids: impl Iterator<Item = &'t str>) -> usize {
    let first = ids.next().unwrap_or_default().as_bytes();
    ids.fold(first.len(), |length, id| {
        let both = first.iter().take(length).zip(id.as_bytes());
        both.take_while(|(a, b)| a == b).count()
    })
}

/// The sixteen bytes of an id from this one on, as a number of the same order.
fn key(id: &str, from: usize) -> u128 {
    let mut bytes = [0; 16];
    let rest = id.as_bytes().get(from..).unwrap_or_default();
    for (byte, given) in bytes.iter_mut().zip(rest) {
        *byte = *given;
    }
    u128::from_be_bytes(bytes)
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
    fn ids_are_in_the_order_of_members_whatever_they_begin_with() {
        let long = "a".repeat(40);
        let sets: [&[&str]; 5] = [
            &["b", "a", "", "a\0", "ab", "a\0b"],
            &[
                "Claim-0b",
                "Claim-0a",
                "Claim-0",
                "Claim-",
                "Claim-0a0000000000000000001",
            ],
            &[
                "Claim-0000000000000000z",
                "Claim-0000000000000000a",
                "Claim-0000000000000000",
            ],
            &["\u{fffd}", "\u{1f600}", "a"],
            &[&long, "a", "\u{e9}"],
        ];
        for ids in sets {
            let mut wanted: Vec<&str> = ids.to_vec();
            wanted.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
            let all = ids.iter().map(|id| (*id, *id));
            assert_eq!(in_member_order(all), wanted);
        }
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

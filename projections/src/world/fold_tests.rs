//! Properties of the fold, of look-ups, and of snapshots.

use std::collections::BTreeSet;
use std::sync::Arc;

use ktsu_ledger::event::{
    Derivation, ObjectCreated, ObjectPatched, RelationCreated, RelationRemoved, WorldEvent,
};
use ktsu_ledger::{
    Actor, CanonicalJson, Cause, Draft, Event, Frame, Hash, Link, StreamId, Timestamp,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Activity, Condition, IndexValue, IndexedFields, World, WorldDiff};

fn text(value: &Value) -> CanonicalJson {
    CanonicalJson::from_value(value).unwrap()
}

fn object(id: &str, kind: &str, data: &Value) -> WorldEvent {
    WorldEvent::ObjectCreated(ObjectCreated {
        by: None,
        data: text(data),
        derived: Some(Derivation::default()),
        id: id.to_owned(),
        key: None,
        kind: kind.to_owned(),
        post: None,
    })
}

fn patch(id: &str, patch: &Value) -> WorldEvent {
    WorldEvent::ObjectPatched(ObjectPatched {
        by: None,
        derived: Some(Derivation::default()),
        id: id.to_owned(),
        patch: text(patch),
        post: None,
        withheld: CanonicalJson::null(),
    })
}

fn relation(id: &str, kind: &str, from: &str, to: &str) -> WorldEvent {
    WorldEvent::RelationCreated(RelationCreated {
        by: None,
        data: CanonicalJson::null(),
        derived: Some(Derivation::default()),
        id: id.to_owned(),
        kind: kind.to_owned(),
        post: None,
        source_id: from.to_owned(),
        target_id: to.to_owned(),
    })
}

fn removed(id: &str) -> WorldEvent {
    WorldEvent::RelationRemoved(RelationRemoved {
        by: None,
        derived: Some(Derivation::default()),
        id: id.to_owned(),
        post: None,
    })
}

fn fields() -> Arc<IndexedFields> {
    IndexedFields::new([("A", "x"), ("A", "y"), ("B", "x")])
}

fn fold(events: &[WorldEvent]) -> World {
    let mut world = World::new(fields());
    for (seq, event) in events.iter().enumerate() {
        world.apply_event(seq as u64, event);
    }
    world
}

fn equals(field: &str, values: &[Value]) -> Condition {
    Condition {
        field: field.to_owned(),
        values: values.iter().filter_map(IndexValue::of).collect(),
    }
}

fn ids<'w>(found: impl Iterator<Item = &'w Arc<super::WorldObject>>) -> Vec<String> {
    found.map(|object| object.id.to_string()).collect()
}

#[test]
fn an_object_repeated_is_replaced_whole_in_its_place() {
    let world = fold(&[
        object("a", "A", &json!({"x": 1, "z": 2})),
        object("b", "A", &json!({"x": 1})),
        object("a", "B", &json!({"x": 3})),
        object("c", "B", &Value::Null),
    ]);
    assert_eq!(ids(world.of_type("A")), ["b"]);
    assert_eq!(ids(world.of_type("B")), ["a", "c"]);
    assert_eq!(ids(world.find("A", &[equals("x", &[json!(1)])])), ["b"]);
    assert_eq!(ids(world.find("B", &[equals("x", &[json!(3.0)])])), ["a"]);
    assert_eq!(world.object("a").unwrap().data, text(&json!({"x": 3})));
    assert_eq!(world.object("c").unwrap().data, text(&json!({})));
}

#[test]
fn a_patch_of_a_missing_object_is_counted_and_changes_nothing() {
    // F8
    let world = fold(&[object("a", "A", &json!({"cfg": {"a": 0, "b": 2}}))]);
    let mut patched = world.clone();
    patched.apply_event(1, &patch("no", &json!({"x": 1})));
    assert_eq!(
        (patched.ignored_patches(), patched.hash()),
        (1, world.hash())
    );
    patched.apply_event(2, &patch("a", &json!({"cfg": {"a": 1}, "x": true})));
    let data = &patched.object("a").unwrap().data;
    assert_eq!(*data, text(&json!({"cfg": {"a": 1}, "x": true})));
    assert_eq!(patched.count("A", &[equals("x", &[json!(true)])]), 1);
    assert_eq!(world.count("A", &[equals("x", &[json!(true)])]), 0);
}

#[test]
fn relations_are_found_from_both_ends_and_may_dangle() {
    let mut world = fold(&[
        object("a", "A", &Value::Null),
        relation("r", "likes", "a", "nobody"),
        relation("s", "knows", "b", "a"),
        relation("t", "likes", "a", "a"),
    ]);
    let of = |world: &World, id: &str, kind: Option<&str>| -> Vec<String> {
        let found = world.relations_of(id, kind);
        found.map(|relation| relation.id.to_string()).collect()
    };
    assert_eq!(of(&world, "a", None), ["r", "s", "t"]);
    assert_eq!(of(&world, "a", Some("likes")), ["r", "t"]);
    assert_eq!(of(&world, "nobody", None), ["r"]);
    assert!(of(&world, "c", None).is_empty());
    world.apply_event(4, &relation("r", "likes", "b", "nobody"));
    world.apply_event(5, &removed("t"));
    world.apply_event(6, &removed("never"));
    assert_eq!(of(&world, "a", None), ["s"]);
    assert_eq!(of(&world, "b", None), ["r", "s"]);
    assert_eq!(world.relation_count(), 2);
}

#[test]
fn a_difference_in_type_or_in_ends_is_a_difference() {
    let a = fold(&[
        object("a", "A", &json!({"x": 1})),
        object("b", "A", &Value::Null),
        relation("r", "likes", "a", "b"),
        relation("s", "likes", "a", "b"),
    ]);
    let b = fold(&[
        object("a", "B", &json!({"x": 1})),
        object("c", "A", &Value::Null),
        relation("r", "likes", "b", "a"),
    ]);
    let diff = WorldDiff::between(&a, &b);
    let list = |id: &str| vec![id.to_owned()];
    assert_eq!(diff.added_objects, list("c"));
    assert_eq!(diff.removed_objects, list("b"));
    assert_eq!(diff.patched_objects, list("a"));
    assert_eq!(diff.removed_relations, list("s"));
    assert_eq!(diff.patched_relations, list("r"));
    assert_eq!(
        diff.to_string(),
        "+1 objects, -1 objects, ~1 objects patched, -1 relations, ~1 relations patched"
    );
    let back = WorldDiff::between(&b, &a);
    assert_eq!(back.added_objects, diff.removed_objects);
    assert!(WorldDiff::between(&a, &a).is_empty());
    assert_eq!(WorldDiff::between(&a, &a.clone()).to_string(), "no changes");
}

/// Persisted: what a terminal frame says of a world.
#[test]
fn the_hash_is_that_of_the_documented_text() {
    let world = fold(&[
        object("b", "A", &json!({"n": 1.0})),
        relation("r", "likes", "a", "b"),
    ]);
    let shown = json!({
        "objects": {"b": {"data": {"n": 1}, "type": "A"}},
        "relations": {"r": {"data": {}, "source_id": "a", "target_id": "b", "type": "likes"}},
    });
    assert_eq!(world.hash(), ktsu_ledger::jcs::digest(&shown));
    let empty = ktsu_ledger::jcs::digest(&json!({"objects": {}, "relations": {}}));
    assert_eq!(World::default().hash(), empty);
}

fn frame(seq: u64, cause: Vec<Cause>, event: Event) -> Frame {
    let link = Link {
        stream: "run:r".parse::<StreamId>().unwrap(),
        seq,
        prev: Hash::ZERO,
    };
    let draft = Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause,
        event,
    };
    draft.seal(link, Timestamp::from_micros(0)).unwrap().frame
}

#[test]
fn depth_is_that_of_the_deepest_cause_and_goes_through_other_frames() {
    // F5
    let fact = || Event::World(object("a", "A", &Value::Null));
    let other = || Event::Foreign {
        kind: "unknown".to_owned(),
        data: CanonicalJson::null(),
    };
    let mut activity = Activity::default();
    let here = |seq: &[u64]| seq.iter().map(|seq| Cause::Here(*seq)).collect::<Vec<_>>();
    for (seq, cause, event) in [
        (0, vec![], other()),
        (1, here(&[0]), fact()),
        (2, here(&[1]), fact()),
        (3, here(&[2]), other()),
        (4, here(&[1, 3]), fact()),
        (5, here(&[99]), fact()),
    ] {
        activity.apply(&frame(seq, cause, event));
    }
    let depths: Vec<_> = (0..6).map(|seq| activity.depth_of(seq)).collect();
    assert_eq!(depths[1..3], [Some(0), Some(1)]);
    assert_eq!(depths[4..], [Some(2), Some(1)]);
    assert_eq!((activity.events(), activity.deepest()), (4, Some(2)));
    assert_eq!(activity.depth_below(&here(&[4])), 3);
    assert_eq!(activity.depth_below(&[]), 0);
}

/// Small worlds in which ids, types and values meet often.
fn events() -> impl Strategy<Value = Vec<WorldEvent>> {
    let id = prop::sample::select(vec!["a", "b", "c", "d"]);
    let kind = prop::sample::select(vec!["A", "B"]);
    let value = prop::sample::select(vec![
        json!(1),
        json!(1.0),
        json!("1"),
        json!(null),
        json!([1]),
    ]);
    let data = (value.clone(), value).prop_map(|(x, y)| json!({"x": x, "y": y}));
    let event = prop_oneof![
        3 => (id.clone(), kind, data.clone()).prop_map(|(id, kind, data)| object(id, kind, &data)),
        3 => (id.clone(), data).prop_map(|(id, data)| patch(id, &data)),
        2 => (id.clone(), id.clone(), id.clone())
            .prop_map(|(id, from, to)| relation(id, "r", from, to)),
        1 => id.prop_map(removed),
    ];
    prop::collection::vec(event, 0..24)
}

proptest! {
    #![proptest_config(ktsu_campaign::config(256))]

    #[test]
    fn look_ups_find_what_a_scan_finds_in_the_order_of_creation(
        events in events(),
        wanted in prop::collection::vec(prop::sample::select(vec![json!(1), json!("1")]), 1..3),
        both in any::<bool>(),
    ) {
        let world = fold(&events);
        let mut conditions = vec![equals("x", &wanted)];
        if both {
            conditions.push(equals("y", &[json!(1)]));
        }
        let holds = |object: &super::WorldObject| {
            let data = object.data.to_value();
            let holds = |one: &Condition| {
                let value = IndexValue::of(&data[&one.field]);
                value.is_some_and(|value| one.values.contains(&value))
            };
            *object.kind == *"A" && conditions.iter().all(holds)
        };
        let scanned = ids(world.objects().into_iter().filter(|object| holds(object)));
        prop_assert_eq!(ids(world.find("A", &conditions)), scanned.clone());
        prop_assert_eq!(world.count("A", &conditions), scanned.len());
        let all = ids(world.objects().into_iter().filter(|object| *object.kind == *"A"));
        prop_assert_eq!(world.count("A", &[]), all.len());
        prop_assert_eq!(ids(world.find("A", &[])), all);
        prop_assert_eq!(ids(world.find("A", &[equals("x", &[Value::Null])])), Vec::<String>::new());
        let unindexed = [equals("z", &[json!(1)])];
        prop_assert_eq!(world.find("A", &unindexed).count(), 0);
    }

    #[test]
    fn a_snapshot_is_the_fold_up_to_it_and_stays_what_it_was(events in events()) {
        let mut world = World::new(fields());
        let mut snapshots = vec![world.clone()];
        for (seq, event) in events.iter().enumerate() {
            world.apply_event(seq as u64, event);
            snapshots.push(world.clone());
        }
        for (length, snapshot) in snapshots.iter().enumerate() {
            let folded = fold(&events[..length]);
            prop_assert_eq!(snapshot.hash(), folded.hash());
            prop_assert!(WorldDiff::between(snapshot, &folded).is_empty());
            prop_assert_eq!(ids(snapshot.find("A", &[])), ids(folded.find("A", &[])));
            let one = [equals("x", &[json!(1)])];
            prop_assert_eq!(ids(snapshot.find("A", &one)), ids(folded.find("A", &one)));
            prop_assert_eq!(snapshot.ignored_patches(), folded.ignored_patches());
        }
    }

    #[test]
    fn a_world_that_follows_the_changes_of_another_becomes_equal(events in events()) {
        let (mut world, mut behind) = (World::new(fields()), World::new(fields()));
        for (seq, event) in events.iter().enumerate() {
            let change = world.apply_event(seq as u64, event);
            behind.follow(&change);
        }
        prop_assert_eq!(behind.hash(), world.hash());
        let one = [equals("x", &[json!("1")])];
        prop_assert_eq!(ids(behind.find("A", &one)), ids(world.find("A", &one)));
        let reindexed = world.reindexed(&IndexedFields::new([("A", "y")]));
        prop_assert_eq!(reindexed.hash(), world.hash());
        let other = [equals("y", &[json!("1")])];
        prop_assert_eq!(ids(reindexed.find("A", &other)), ids(world.find("A", &other)));
    }

    #[test]
    fn creations_that_are_folded_again_change_nothing(
        events in events(),
        again in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut made = BTreeSet::new();
        let created: Vec<WorldEvent> = events.into_iter().filter(|event| {
            if let WorldEvent::ObjectCreated(created) = event {
                return made.insert(created.id.clone());
            }
            let mut is_new = |created: &RelationCreated| made.insert(format!("r {}", created.id));
            matches!(event, WorldEvent::RelationCreated(created) if is_new(created))
        }).collect();
        let once = fold(&created);
        let mut world = fold(&created);
        let again = again.iter().filter(|_| !created.is_empty());
        let twice = created.iter().chain(again.map(|at| at.get(&created)));
        for (seq, event) in (created.len() as u64..).zip(twice) {
            world.apply_event(seq, event);
        }
        prop_assert_eq!(world.hash(), once.hash());
        prop_assert_eq!(ids(world.find("A", &[])).len(), ids(once.find("A", &[])).len());
        prop_assert_eq!(world.object_count(), once.object_count());
        prop_assert_eq!(world.relation_count(), once.relation_count());
    }

    #[test]
    fn the_order_of_creations_does_not_matter(
        (events, shuffled) in prop::collection::btree_set(0..50u32, 0..12).prop_flat_map(|ids| {
            let made = |id: u32| match id % 3 {
                0 => relation(&format!("r{id}"), "r", "o1", "o2"),
                _ => object(&format!("o{id}"), "A", &json!({"x": id})),
            };
            let events: Vec<_> = ids.into_iter().map(made).collect();
            (Just(events.clone()), Just(events).prop_shuffle())
        }),
    ) {
        prop_assert_eq!(fold(&events).hash(), fold(&shuffled).hash());
        let seen: BTreeSet<_> = fold(&events).objects().iter().map(|one| one.id.to_string()).collect();
        prop_assert_eq!(seen.len(), fold(&shuffled).object_count());
    }
}

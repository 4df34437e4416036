//! Recorded worlds held against changed kits: what a later frame covers is named, too.

use std::sync::Arc;

use ktsu_workflow::definition::Definition;
use ktsu_workflow::simulate::{Divergence, compare, simulate};
use serde_json::{Value, json};

use crate::world_tests::WorldRun;

/// A ticket is opened, worked on and closed; what it was on the way is covered in the end.
fn world() -> Value {
    let made = |data: Value| json!({"make": {"object": {"type": "Ticket", "data": data}}});
    let patch = |data: Value| json!({"make": {"patch": {"id": "{{ object.id }}", "data": data}}});
    json!({
        "name": "w", "version": "1.0.0",
        "budget": {"max_events": 1000, "max_llm_cost_micro_usd": 1_000_000,
            "max_recursion_depth": 1000, "max_wall_ms": 100_000_000},
        "goal": [made(json!({"state": "new", "text": "{{ goal }}", "note": "none"}))],
        "objects": {"Ticket": {}, "Log": {}},
        "relations": {"about": {}},
        "responders": [
            {"name": "opens", "on": ["object.created"], "type": ["Ticket"], "work": {"emit": [
                patch(json!({"state": "open", "note": "seen"})),
                {"as": "log", "make": {"object": {"type": "Log", "data": {"of": "{{ object.id }}"}}}},
                {"make": {"relation": {"type": "about", "from": "{{ log.id }}",
                    "to": "{{ object.id }}", "id": "link-1"}}}]},
                "publish": {"topic": "ticket.opened", "payload": {"state": "open"}}},
            {"name": "works", "on": ["object.patched"], "type": ["Ticket"], "changed": ["note"],
                "when": "object.data.state == 'open'", "work": {"emit": [
                patch(json!({"state": "busy", "note": "read"}))]}},
            {"name": "closes", "on": ["object.patched"], "type": ["Ticket"], "changed": ["note"],
                "when": "object.data.state == 'busy'", "work": {"emit": [
                patch(json!({"state": "closed"})), {"make": {"remove": {"relation": "link-1"}}}]}},
            {"name": "reminds", "on": ["object.created"], "type": ["Ticket"], "after_ms": 60_000,
                "when": "object.data.state == 'new'", "work": {"emit": [
                patch(json!({"state": "late"}))]}},
        ],
    })
}

fn definition(world: &Value) -> Arc<Definition> {
    let main = json!({"name": "main", "steps": [], "version": "1.0.0", "visibility": "root",
        "webhooks": "execute"});
    let plan = json!({"agents": {}, "format": 1, "root": "main",
        "workflows": {"main": main}, "worlds": {"worlds/w.world.yaml": world}});
    Arc::new(Definition::compile(serde_json::from_value(plan).unwrap()).unwrap())
}

fn against(run: &WorldRun, world: &Value, changed: &Value) -> Vec<Divergence> {
    let (old, new) = (definition(world), definition(changed));
    let as_recorded = simulate(&run.frames, &old, &old).unwrap();
    let decided = simulate(&run.frames, &old, &new).unwrap();
    compare(&run.frames, &as_recorded, &decided).unwrap()
}

#[test]
fn every_change_of_what_responders_make_is_named_with_the_first_frame_that_would_differ() {
    let recorded = world();
    let run = WorldRun::of(recorded.clone(), json!({}));
    assert_eq!(against(&run, &recorded, &recorded), []);
    let first = |kind: &str| {
        let of_kind = |frame: &&ktsu_ledger::Frame| frame.event.kind() == kind;
        run.frames.iter().find(of_kind).map(|frame| frame.seq)
    };
    let nth = |kind: &str, nth: usize| {
        let mut of_kind = run.frames.iter().filter(|frame| frame.event.kind() == kind);
        of_kind.nth(nth).map(|frame| frame.seq)
    };
    let ticket = run.id("Ticket", 0);
    let data = |field: &str| format!("/objects/{ticket}/data/{field}");
    let entries = |place: usize| format!("/responders/{place}/work/emit");
    let patched = |place: usize, at: usize| format!("{}/{at}/make/patch/data", entries(place));
    let removed = Value::Null;
    let opened = "/responders/opens/object.created";
    for (at, value, (what, field), frame) in [
        // Data that a later patch overwrites.
        (
            "/goal/0/make/object/data/note".to_owned(),
            json!("some"),
            ("object", data("note")),
            first("object.created"),
        ),
        // A patch with other data, which a later one overwrites.
        (
            format!("{}/note", patched(0, 0)),
            json!("noticed"),
            ("object", data("note")),
            nth("object.patched", 0),
        ),
        (
            format!("{}/state", patched(1, 0)),
            json!("idle"),
            ("object", data("state")),
            nth("object.patched", 1),
        ),
        // A patch that is gone.
        (
            format!("{}/0", entries(2)),
            removed.clone(),
            ("object", data("state")),
            nth("object.patched", 2),
        ),
        // A relation that was removed later is of another type, or is not made.
        (
            format!("{}/2/make/relation/type", entries(0)),
            json!("of"),
            ("relation", "/relations/link-1/type".to_owned()),
            first("relation.created"),
        ),
        (
            format!("{}/2", entries(0)),
            removed.clone(),
            ("relation", "/relations/link-1".to_owned()),
            first("relation.created"),
        ),
        // Another topic, another payload.
        (
            "/responders/0/publish/topic".to_owned(),
            json!("ticket.seen"),
            ("publish", format!("{opened} {ticket}/topic")),
            first("command.requested"),
        ),
        (
            "/responders/0/publish/payload/state".to_owned(),
            json!("new"),
            ("publish", format!("{opened} {ticket}/payload/state")),
            first("command.requested"),
        ),
        // Another time to wait.
        (
            "/responders/3/after_ms".to_owned(),
            json!(90_000),
            (
                "firing",
                format!("/responders/reminds/object.created {ticket}/after_ms"),
            ),
            first("responder.fired"),
        ),
    ] {
        let mut changed = recorded.clone();
        changed["relations"]["of"] = json!({});
        match (value.is_null(), at.rsplit_once('/')) {
            (true, Some((list, place))) => {
                let list = changed.pointer_mut(list).unwrap().as_array_mut().unwrap();
                list.remove(place.parse().unwrap());
            }
            _ => *changed.pointer_mut(&at).unwrap() = value,
        }
        let found = against(&run, &recorded, &changed);
        let named = found
            .iter()
            .find(|one| one.what.name() == what && one.field == field);
        let named = named.unwrap_or_else(|| panic!("{at}: {field} is not in {found:#?}"));
        assert_eq!(named.frame, frame, "{at}: {named:?}");
        let earliest = found.iter().filter_map(|one| one.frame).min();
        assert_eq!(
            (earliest, found[0].frame),
            (frame, frame),
            "{at}: {found:#?}"
        );
    }
}

use ktsu_ledger::event::plan::Plan;
use serde_json::{Value, json};

use super::wire;
use ktsu_server::pointer_errors::read;

/// A definition with something of everything.
fn definition() -> Value {
    json!({
        "format": 1,
        "root": "main",
        "agents": {"a~/b": {
            "group": "std", "max_turns": 3, "name": "a", "version": "1.0.0",
            "output": {"type": "object"}, "params": {"type": "object"},
            "prompt": {"system": "s", "user": "u", "reflect": "r"},
            "servers": [{
                "file": "s.server.yaml", "name": "s", "version": "1.0.0", "timeout_ms": 5,
                "stateful": true, "params": {"p": {"value": "v", "secret": true}},
                "auth": {"header": "h", "param": "p", "scheme": "bearer"},
                "tools": [{"pattern": "*", "approval": {
                    "on_reject": "recover", "quorum": 1, "timeout": {"behavior": "fail", "ms": 9},
                }}],
            }],
        }},
        "workflows": {"main": {
            "name": "main", "version": "1.0.0", "visibility": "root", "webhooks": "execute",
            "env": [{"name": "E", "secret": false, "default": "d"}],
            "invoke": {"header": "h", "scheme": "raw", "secret": "{{ env.S }}"},
            "output": {"map": {"x": "{{ step.a }}"}, "schema": {"type": "object"}},
            "policy": {"cost_budget_micro_usd": 7, "group_map": {"a": "b"}, "unpriced": "allow"},
            "steps": [
                {"id": "t", "condition": "params.x", "schema": {}, "work": {"transform": {
                    "inputs": ["params.x"],
                    "ops": ["flatten", {"map": {"expr": "@"}}, {"merge": {"from": ["step.a"]}},
                            {"sort": {"field": "@", "descending": true}}],
                }}},
                {"id": "w", "needs": [0], "work": {"webhook": {
                    "method": "POST", "timeout_ms": 1, "url": "http://x", "body": [1, {"n": 2}],
                    "retry": {"attempts": 2, "backoff_ms": 3, "on": ["timeout"]},
                }}},
                {"id": "c", "work": {"workflow": {
                    "workflow": "main", "webhooks": "suppress", "params": {"x": 1},
                }}},
                {"id": "f", "work": {"agent": {
                    "agent": "a", "file": "a", "max_tokens": 9, "group": "g",
                    "for_each": {"concurrency": 0, "from": "params.list", "max_failures": -1},
                }}},
            ],
        }},
    })
}

/// Every place of a value.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                places(member, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is read here is what the type itself reads, and what is refused is told with its place.
#[track_caller]
fn agree(spoilt: &Value) -> bool {
    let theirs = serde_json::from_value::<Plan>(spoilt.clone());
    match (read::<Plan>(spoilt, "/definition"), theirs) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(ours, theirs);
            true
        }
        (Err(told), Err(_)) => {
            let below = told.path.strip_prefix("/definition").unwrap();
            assert!(spoilt.pointer(below).is_some(), "{told:?}");
            for theirs in [
                "invalid type",
                "variant",
                "missing field `",
                "struct",
                "a map",
            ] {
                assert!(!told.message.contains(theirs), "{told:?}");
            }
            false
        }
        // Written by position, which nobody does.
        (Err(told), Ok(_)) if told.message == "expected object, got array" => false,
        (ours, theirs) => panic!("{spoilt}: {ours:?}, {theirs:?}"),
    }
}

#[test]
fn a_definition_is_read_as_its_type_reads_it_wherever_it_is_broken() {
    let whole = definition();
    assert!(agree(&whole));
    let mut found = Vec::new();
    places(&whole, "", &mut found);
    let (mut taken, mut refused) = (0, 0);
    for place in &found {
        for with in [
            json!(null),
            json!(true),
            json!(-1),
            json!(7),
            json!(1.5),
            json!(u64::MAX),
            json!("perhaps"),
            json!([]),
            json!({}),
            json!({"zzz": 1}),
            json!({"flatten": {}}),
            json!("map"),
        ] {
            let mut spoilt = whole.clone();
            *spoilt.pointer_mut(place).unwrap() = with;
            match agree(&spoilt) {
                true => taken += 1,
                false => refused += 1,
            }
        }
        let mut less = whole.clone();
        let (around, name) = place.rsplit_once('/').unwrap_or_default();
        let name = name.replace("~1", "/").replace("~0", "~");
        if let Some(Value::Object(members)) = less.pointer_mut(around) {
            members.remove(&name);
            agree(&less);
        }
    }
    assert!(taken > 100 && refused > 500, "{taken}, {refused}");
}

#[test]
fn what_does_not_fit_is_reported_with_its_place_and_in_our_words() {
    let told = |place: &str, with: Value| {
        let mut spoilt = definition();
        *spoilt.pointer_mut(place).unwrap() = with;
        let told = read::<Plan>(&spoilt, "/definition").unwrap_err();
        (told.path, told.message, told.rule)
    };
    let steps = "/workflows/main/steps";
    for (place, with, at, message, rule) in [
        (
            "",
            json!({"format": 1}),
            "",
            "missing required field: root",
            "required",
        ),
        (
            "/root",
            json!(5),
            "/root",
            "expected string, got integer",
            "type",
        ),
        (
            "/agents/a~0~1b/max_turns",
            json!(-1),
            "/agents/a~0~1b/max_turns",
            "expected a whole number, 0 to 4294967295",
            "type",
        ),
        (
            "/workflows/main/visibility",
            json!("everywhere"),
            "/workflows/main/visibility",
            "expected one of root, sub-workflow",
            "enum",
        ),
        (
            "/workflows/main/steps/0/work",
            json!({"dance": {}}),
            "/workflows/main/steps/0/work",
            "expected one of agent, transform, webhook, workflow",
            "enum",
        ),
        (
            "/workflows/main/steps/1/work/webhook",
            json!({}),
            "/workflows/main/steps/1/work/webhook",
            "missing required field: method",
            "required",
        ),
        (
            "/workflows/main/steps",
            json!({}),
            steps,
            "expected array, got object",
            "type",
        ),
        (
            "/workflows/main/steps/0/work/transform/ops/0",
            json!("map"),
            "/workflows/main/steps/0/work/transform/ops/0",
            "missing required field: map",
            "required",
        ),
    ] {
        let expected = (
            format!("/definition{at}"),
            message.to_owned(),
            rule.to_owned(),
        );
        assert_eq!(told(place, with), expected, "{place}");
    }
}

#[test]
fn a_whole_number_may_be_written_with_a_fraction_of_zeros() {
    let mut written = definition();
    written["format"] = json!(1.0);
    assert_eq!(read::<Plan>(&written, "").unwrap().format, 1);
}

#[test]
fn json_inside_a_body_stays_as_it_was_written() {
    let value = json!([1.0, -0.0, 1e19, 2.5, {"least": 0.0}]);
    let body = json!({"step": "a", "field": "b", "reason": "c", "value": value});
    let overlay: wire::Overlay = read(&body, "").unwrap();
    assert_eq!(overlay.value.to_string(), value.to_string());
}

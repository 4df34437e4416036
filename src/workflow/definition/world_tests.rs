//! Worlds of a definition: what compiles, who reacts to what, and what is refused.

use ktsu_projections::run::{Outline, PlanError};
use serde_json::{Value, json};

use super::{CompileErrors, Definition};
use crate::plans_tests::{plan, transform, workflow};

fn world(more: Value) -> Value {
    let mut world = json!({
        "name": "w", "version": "1.0.0",
        "budget": {"max_events": 100, "max_llm_cost_micro_usd": 1, "max_recursion_depth": 5,
            "max_wall_ms": 1000},
        "objects": {"Claim": {}, "Evidence": {"schema": {"type": "object"}}},
        "relations": {"supports": {"from": ["Evidence"], "to": ["Claim"]}},
    });
    crate::plans_tests::merge(&mut world, more);
    world
}

fn responder(name: &str, on: &str, more: Value) -> Value {
    let mut responder = json!({"name": name, "on": [on], "work": {"emit": []}});
    crate::plans_tests::merge(&mut responder, more);
    responder
}

fn compile(worlds: Value) -> Result<Definition, CompileErrors> {
    let mut plan = plan(json!({"main": workflow("main", json!([]))}));
    plan["workflows"]["main"]["env"] = json!([
        {"name": "REGION", "secret": false}, {"name": "KEY", "secret": true}]);
    plan["worlds"] = worlds;
    Definition::compile(serde_json::from_value(plan).unwrap())
}

fn refused(responder: Value) -> Vec<String> {
    let found = compile(json!({"w": world(json!({"responders": [responder]}))}));
    let found = found.err().unwrap_or_default();
    found
        .into_iter()
        .map(|(place, words)| format!("{place}: {words}"))
        .collect()
}

#[test]
fn a_definition_without_worlds_has_no_member_for_them() {
    let steps = json!([transform("a", json!([]), "params.x")]);
    let plan = plan(json!({"main": workflow("main", steps)}));
    let definition = Definition::compile(serde_json::from_value(plan).unwrap()).unwrap();
    assert!(!definition.json.as_str().contains("worlds"));
    assert!(definition.worlds().is_none());
}

#[test]
fn edges_of_all_worlds_come_first_and_then_all_others_in_the_order_of_worlds() {
    let edge = |name: &str| responder(name, "relation.created", json!({"type": ["supports"]}));
    let claim = |name: &str| responder(name, "object.created", json!({"type": ["Claim"]}));
    let all = |name: &str| responder(name, "*", json!({}));
    let definition = compile(json!({
        "a": world(json!({"edges": [edge("a-edge")], "responders": [claim("a-claim")]})),
        "b": world(json!({"edges": [edge("b-edge")],
            "responders": [all("b-all"), claim("b-claim")]})),
    }))
    .unwrap();
    let worlds = definition.worlds().unwrap();
    let of = |event: &str, kind: Option<&str>| -> Vec<&str> {
        let found = worlds.candidates(event, kind).iter();
        found
            .map(|at| worlds.responders()[*at as usize].plan.name.as_str())
            .collect()
    };
    assert_eq!(
        of("relation.created", Some("supports")),
        ["a-edge", "b-edge", "b-all"]
    );
    assert_eq!(of("relation.created", Some("other")), ["b-all"]);
    assert_eq!(
        of("object.created", Some("Claim")),
        ["a-claim", "b-all", "b-claim"]
    );
    assert_eq!(of("object.created", None), ["b-all"]);
    assert_eq!(of("x.kit.event", None), ["b-all"]);
    assert_eq!(worlds.responder("b-claim").unwrap().0, 4);
    let resting = definition.at_rest();
    assert_eq!(resting.worlds().unwrap().responders().len(), 5);
}

#[test]
fn an_index_is_kept_for_each_field_that_a_look_up_compares() {
    let find = json!({"objects": {"type": "Claim", "where": {"a": {"equals": "{{ object.id }}"}},
        "without": {"type": "Evidence", "where": {"b": {"in": "{{ [item.id] }}"}}}}});
    let with = json!({"with": [{"name": "open", "find": find}], "when": "open"});
    let world = world(json!({"responders": [responder("r", "object.created", with)]}));
    let definition = compile(json!({"w": world})).unwrap();
    let fields = definition.worlds().unwrap().indexed_fields();
    assert_eq!(Vec::from_iter(fields), [("Claim", "a"), ("Evidence", "b")]);
}

#[test]
fn the_lowest_of_each_limit_counts_and_a_goal_becomes_one_object_unless_a_world_says_otherwise() {
    let mut low = world(json!({"name": "low"}));
    low["budget"]["max_events"] = json!(3);
    let definition = compile(json!({"w": world(json!({})), "low": low})).unwrap();
    let worlds = definition.worlds().unwrap();
    assert_eq!(worlds.budget.max_events, 3);
    assert_eq!(worlds.budget.max_wall_ms, 1000);
    assert_eq!(worlds.goal().len(), 1);
    assert_eq!(
        worlds.object("Goal").map(|schema| schema.is_some()),
        Some(false)
    );
    let reads = json!({"with": [{"name": "g", "find": {"first": {"type": "Goal"}}}]});
    let reads = json!({"responders": [responder("r", "object.created", reads)]});
    assert!(compile(json!({"w": world(reads.clone())})).is_ok());
    let mut silent = reads;
    silent["goal"] = json!([]);
    assert!(
        compile(json!({"w": world(silent)})).is_err(),
        "nothing makes a Goal"
    );
    let silent = compile(json!({"w": world(json!({"goal": []}))})).unwrap();
    let worlds = silent.worlds().unwrap();
    assert!(worlds.goal().is_empty());
    assert!(worlds.object("Goal").is_none());
    assert!(worlds.object("Evidence").unwrap().is_some());
}

#[test]
fn an_expression_knows_the_names_of_its_trigger_and_those_before_it() {
    let object = |name: &str, make: Value| json!({"as": name, "make": {"object": make}});
    let entries = json!([
        object("one", json!({"type": "Claim", "data": {"a": "{{ item }} {{ env.REGION }}"}})),
        {"make": {"relation": {"type": "supports", "from": "{{ object.id }}", "to": "{{ one.id }}"}}},
    ]);
    let more = json!({"for_each": {"from": "before.data.list"}, "work": {"emit": entries}});
    assert!(refused(responder("r", "object.patched", more.clone())).is_empty());
    assert_eq!(
        refused(responder("r", "object.created", more)),
        ["w/responders/r/for_each/from: there is no name \"before\" here"]
    );
    for (more, words) in [
        (
            json!({"when": "step.a"}),
            "when: there is no name \"step\" here",
        ),
        (
            json!({"when": "reply"}),
            "when: there is no name \"reply\" here",
        ),
        (
            json!({"when": "item"}),
            "when: there is no name \"item\" here",
        ),
        (
            json!({"when": "!object.data.a"}),
            "when: !object.data.a is read as (!object).data.a, which is never there",
        ),
        (
            json!({"with": [{"name": "object", "find": {"object": "x"}}]}),
            "with/object: \"object\" cannot be a name",
        ),
        (
            json!({"then": [{"make": {"remove": {"relation": "x"}}}]}),
            "then: there is no reply to react to",
        ),
        (
            json!({"on": ["object.deleted"]}),
            "on: there is no event \"object.deleted\"",
        ),
    ] {
        let found = refused(responder("r", "object.created", more));
        assert_eq!(found, [format!("w/responders/r/{words}")]);
    }
}

#[test]
fn secrets_unknown_types_and_workflows_that_are_not_there_are_refused() {
    let entry = json!({"make": {"object": {"type": "Cliam"}}});
    for (more, words) in [
        (
            json!({"when": "env.KEY"}),
            "worlds: a responder sees env.KEY, which is a secret",
        ),
        (
            json!({"work": {"emit": [entry]}}),
            "w: there is no type of objects \"Cliam\"",
        ),
        (
            json!({"work": {"run": {"webhooks": "execute", "workflow": "no"}}}),
            "w: no is not in the plan",
        ),
    ] {
        assert_eq!(refused(responder("r", "object.created", more)), [words]);
    }
}

#[test]
fn the_outline_of_a_recorded_definition_has_its_worlds_and_every_workflow_they_run() {
    let run = |workflow: &str| {
        let run = json!({"run": {"webhooks": "execute", "workflow": workflow}});
        let responders = json!([responder("r", "object.created", json!({"work": run}))]);
        let mut plan = plan(json!({"main": workflow_of("main"), "other": workflow_of("other")}));
        plan["worlds"] = json!({"w": world(json!({"responders": responders}))});
        Outline::of(serde_json::from_value(plan).unwrap())
    };
    let outline = run("other").unwrap();
    assert_eq!(Vec::from_iter(outline.worlds().keys()), ["w"]);
    assert_eq!(run("no").unwrap_err(), PlanError::Missing("no".to_owned()));
}

fn workflow_of(name: &str) -> Value {
    workflow(name, json!([]))
}

#[test]
fn what_responders_ask_counts_among_the_groups_of_a_definition() {
    let ask = json!({"ask": {"group": "fast", "max_tokens": 10,
        "messages": [{"role": "user", "content": "{{ object.id }}"}]}});
    let then = json!([{"make": {"patch": {"id": "{{ object.id }}",
        "data": {"text": "{{ reply.text }}"}}}}]);
    let asks = responder("r", "object.created", json!({"work": ask, "then": then}));
    let definition = compile(json!({"w": world(json!({"responders": [asks]}))})).unwrap();
    assert_eq!(Vec::from_iter(definition.groups()), ["fast"]);
}

//! Workflows that the commands of an outcome run.

use serde_json::{Value, json};

use crate::driven_tests::Driven;
use crate::plans_tests::{agent, merge, plan, workflow};

/// A run whose step `a` may invoke `verify`, which has an agent step `v`.
fn run(more: Value, steps: &[Value]) -> Driven {
    Driven::invoke(run_plan(more, steps), json!({}))
}

fn run_plan(more: Value, steps: &[Value]) -> Value {
    let mut invoke = json!({"child": {"webhooks": "suppress", "workflow": "verify"},
        "concurrency": 2, "max_items": 3});
    merge(&mut invoke, more);
    let may = json!({"may_invoke": {"verify": invoke}});
    let mut all = vec![agent("a", json!([]), "plain", may)];
    all.extend_from_slice(steps);
    let given = json!({"params": {"x": "{{ params.claim }}"}});
    let mut verify = workflow("verify", json!([agent("v", json!([]), "plain", given)]));
    verify["params"] = json!({"required": ["claim"],
        "properties": {"claim": {"type": "string"}, "deep": {"default": 1}}});
    let mut plan = plan(json!({"main": workflow("main", json!(all)), "verify": verify}));
    plan["agents"]["plain"]["commands"] = json!({"invoke": ["ver*", "other"]});
    plan
}

fn fanout(claims: &[&str]) -> Value {
    let inputs: Vec<Value> = claims.iter().map(|claim| json!({"claim": claim})).collect();
    json!({"output": {"ok": true, "ktsu_invoked": "mine"},
        "commands": [{"type": "fanout", "step": "verify", "inputs": inputs}]})
}

#[test]
fn a_fanout_runs_a_workflow_for_each_input_and_its_step_ends_with_the_last() {
    let see = json!({"x": "{{ step.a.ktsu_invoked[1].said }}", "n": "{{ step.a.ktsu_invoked }}"});
    let after = agent("b", json!([0]), "plain", json!({"params": see}));
    let mut run = run(json!({}), &[after]);
    run.completes_with("a", fanout(&["p", "q", "r"]), Default::default());
    assert!(run.state.scope_at("a/verify.1").is_some());
    assert!(run.state.scope_at("a/verify.2").is_none(), "two at once");
    for (child, said) in [(1, "Q"), (0, "P"), (2, "R")] {
        run.finishes(&format!("a/verify.{child}/v"), json!({"said": said}));
    }
    assert_eq!(
        run.envelope_of("a/verify.1")["params"],
        json!({"claim": "q", "deep": 1})
    );
    let step = run.step("a");
    assert_eq!(step["output"], json!({"ok": true}));
    let said: Vec<&Value> = step["invoked"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["output"]["said"])
        .collect();
    assert_eq!(said, ["P", "Q", "R"]);
    let given = &run.last("step.started b")["input"];
    assert_eq!(given["/params/x"]["ref"]["path"], "/outcome/output/said");
    assert_eq!(given["/params/n"]["value"]["value"][2]["said"], "R");
    run.finishes("b", json!({}));
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn an_empty_fanout_and_several_commands_run_in_their_order() {
    let mut run = run(json!({}), &[]);
    let one = json!({"type": "invoke", "step": "verify", "input": {"claim": "z", "deep": 5}});
    let none = json!({"type": "fanout", "step": "verify", "inputs": []});
    let outcome = json!({"output": {}, "commands": [none, one]});
    run.completes_with("a", outcome, Default::default());
    run.finishes("a/verify.0/v", json!({"said": 1}));
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn a_child_that_fails_fails_its_step_and_stops_its_siblings() {
    let mut run = run(json!({}), &[]);
    run.completes_with("a", fanout(&["p", "q", "r"]), Default::default());
    run.errs("a/verify.1/v", "agent_failed", "no");
    let error = run.step("a")["error"].clone();
    assert_eq!(error["code"], "invoke_failed");
    assert_eq!(
        error["message"],
        "the invoked verify.1 failed: agent_failed: no"
    );
    assert_eq!(run.envelope_of("a/verify.0")["error"]["code"], "stopped");
    assert!(
        !run.kinds()
            .iter()
            .any(|kind| kind.starts_with("command.completed"))
    );
    run.holds_together();
}

#[test]
fn runs_of_rules_4_run_nothing() {
    let mut run = Driven::invoke_under(4, run_plan(json!({}), &[]), json!({}));
    run.completes_with("a", fanout(&["p"]), Default::default());
    assert_eq!(run.step("a")["error"]["code"], "command_not_supported");
    run.holds_together();
}

#[test]
fn what_is_not_declared_or_does_not_fit_commits_nothing() {
    let wrong = json!({"output": {}, "commands": [
        {"type": "fanout", "step": "verify", "inputs": [{"claim": "a"}, {"claim": 1}]}]});
    let other = json!({"output": {}, "commands": [
        {"type": "invoke", "step": "other", "input": {}}]});
    for (outcome, code) in [
        (wrong, "invalid_params"),
        (other, "command_not_permitted"),
        (fanout(&["a", "b", "c", "d"]), "outcome_invalid"),
    ] {
        let mut run = run(json!({}), &[]);
        run.completes_with("a", outcome, Default::default());
        assert_eq!(run.step("a")["error"]["code"], code);
        assert!(!run.kinds().iter().any(|kind| kind.starts_with("command.")));
        run.holds_together();
    }
}

#[test]
fn an_item_runs_its_children_within_itself() {
    let each = json!({"for_each": {"concurrency": 0, "max_failures": -1, "from": "params.list"},
        "params": {"x": "{{ item }}"}, "may_invoke": {"verify": {"concurrency": 1, "max_items": 3,
            "child": {"webhooks": "suppress", "workflow": "verify"}}}});
    let verify = workflow("verify", json!([agent("v", json!([]), "plain", json!({}))]));
    let main = workflow("main", json!([agent("f", json!([]), "plain", each)]));
    let mut plan = plan(json!({"main": main, "verify": verify}));
    plan["agents"]["plain"]["commands"] = json!({"invoke": ["*"]});
    for fails in [false, true] {
        let mut run = Driven::invoke(plan.clone(), json!({"list": [1, 2]}));
        run.completes_with("f.1", fanout(&["p"]), Default::default());
        run.finishes("f.0", json!({}));
        match fails {
            false => run.finishes("f.1/verify.0/v", json!({"said": 1})),
            true => run.errs("f.1/verify.0/v", "agent_failed", "no"),
        }
        let step = run.step("f");
        let status = if fails { "failed" } else { "complete" };
        assert_eq!(step["items"][1]["status"], status);
        assert_eq!(step["invoked"][0]["run"], "f.1/verify.0");
        if fails {
            assert_eq!(step["error"]["code"], "invoke_failed");
            assert_eq!(step["items"][1]["error"]["code"], "invoke_failed");
        }
        run.holds_together();
    }
}

//! Workflows that the commands of an outcome run.

use serde_json::{Value, json};

use ktsu_ledger::event::Sameness;
use ktsu_ledger::event::plan::StepWork;

use crate::commands::read_commands;
use crate::driven_tests::{Driven, data};
use crate::permitted::check_inputs;
use crate::plans_tests::{agent, merge, plan, workflow};
use crate::recompute::{RecordedRun, compare};
use crate::rules::DecisionRules;

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

/// What `b` gets of a run whose step `a` ran three workflows, or none.
fn seen(rules: u32, ran: bool, template: Value) -> Value {
    let after = agent("b", json!([0]), "plain", json!({"params": {"x": template}}));
    let mut run = Driven::invoke_under(rules, run_plan(json!({}), &[after]), json!({}));
    match ran {
        true => {
            run.completes_with("a", fanout(&["p", "q", "r"]), Default::default());
            for (child, said) in [(0, "P"), (1, "Q"), (2, "R")] {
                run.finishes(&format!("a/verify.{child}/v"), json!({"said": said}));
            }
        }
        false => run.finishes("a", json!({"ok": true})),
    }
    let spec = run.spec("b", &run.memo);
    let given: Value = serde_json::from_str(&spec.user).unwrap();
    run.finishes("b", json!({}));
    run.holds_together();
    given["x"].clone()
}

#[test]
fn what_commands_ran_is_an_array_to_every_expression() {
    for (path, ran, none) in [
        (
            "step.a.ktsu_invoked[*].said",
            json!(["P", "Q", "R"]),
            json!([]),
        ),
        ("a.ktsu_invoked[].said", json!(["P", "Q", "R"]), json!([])),
        ("step.a.ktsu_invoked[1:].said", json!(["Q", "R"]), json!([])),
        ("step.a.ktsu_invoked[-1].said", json!("R"), Value::Null),
        (
            "step.a.ktsu_invoked[?said == 'Q'].said",
            json!(["Q"]),
            json!([]),
        ),
        (
            "step.a.ktsu_invoked.[[0].said, [2].said]",
            json!(["P", "R"]),
            json!([null, null]),
        ),
        (
            "step.a.{n: length(ktsu_invoked), ok: ok}",
            json!({"n": 3, "ok": true}),
            json!({"n": 0, "ok": true}),
        ),
        ("[step.a][].ktsu_invoked[-1].said", json!(["R"]), json!([])),
        ("step.a.ktsu_invoked | [0].said", json!("P"), Value::Null),
        ("length(step.a.ktsu_invoked)", json!(3), json!(0)),
        (
            "step.a.ktsu_invoked",
            json!([{"said": "P"}, {"said": "Q"}, {"said": "R"}]),
            json!([]),
        ),
    ] {
        let template = json!(format!("{{{{ {path} }}}}"));
        assert_eq!(seen(6, true, template.clone()), ran, "{path}");
        assert_eq!(seen(6, false, template), none, "{path}");
    }
    let under_5 = |path: &str| seen(5, true, json!(format!("{{{{ {path} }}}}")));
    assert_eq!(under_5("step.a.ktsu_invoked[*].said"), Value::Null);
    assert_eq!(under_5("step.a.ktsu_invoked[-1].said"), Value::Null);
}

#[test]
fn an_expression_that_takes_a_step_as_it_is_gets_its_output_alone() {
    let both = json!({"a": "{{ step.a }}", "n": "{{ length(step.a.ktsu_invoked) }}"});
    assert_eq!(seen(6, true, both), json!({"a": {"ok": true}, "n": 3}));
}

#[test]
fn a_fan_out_over_what_commands_ran_has_no_items_where_nothing_ran() {
    let each = json!({"from": "step.a.ktsu_invoked", "concurrency": 0, "max_failures": 0});
    let params = json!({"for_each": each, "params": {"x": "{{ item.said }}"}});
    let mut run = run(json!({}), &[agent("f", json!([0]), "plain", params)]);
    run.finishes("a", json!({"ok": true}));
    assert_eq!(run.step("f")["output"], json!({"results": []}));
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

/// An outcome that tells before it runs something.
fn tells_and_runs() -> Value {
    let one = |claim: &str| json!({"type": "invoke", "step": "verify", "input": {"claim": claim}});
    let emit = |n: u64| json!({"type": "emit", "topic": "t", "payload": n});
    json!({"output": {"ok": true}, "events": [{"type": "looked"}],
        "commands": [emit(0), one("p"), emit(2), one("q")]})
}

/// A run whose step `a` emits and invokes, under these rules.
fn telling(rules: u32) -> Driven {
    let mut plan = run_plan(json!({}), &[]);
    plan["agents"]["plain"]["commands"] = json!({"emit": ["t"], "invoke": ["verify"]});
    Driven::invoke_under(rules, plan, json!({}))
}

/// What became of the outcome of `a`: types of frames, with the place of a command.
fn told(run: &Driven) -> Vec<String> {
    let shown = run.frames.iter().filter_map(|frame| {
        let data = data(frame);
        let own = frame.scope.is_empty() && data["step"] == "a";
        match frame.event.kind() {
            "command.requested" | "command.completed" if own => {
                Some(format!("{} {}", frame.event.kind(), data["index"]))
            }
            "note" | "step.completed" if own => Some(frame.event.kind().to_owned()),
            "run.started" | "run.completed" if !frame.scope.is_empty() => {
                Some(format!("{} {}", frame.event.kind(), frame.scope))
            }
            _ => None,
        }
    });
    shown.collect()
}

#[test]
fn an_outcome_counts_as_a_whole_and_emits_after_its_last_child() {
    let mut run = telling(6);
    run.completes_with("a", tells_and_runs(), Default::default());
    run.finishes("a/verify.0/v", json!({}));
    let before = run.frames.len();
    run.finishes("a/verify.1/v", json!({}));
    assert_eq!(
        told(&run),
        [
            "command.requested 1",
            "command.requested 3",
            "run.started a/verify.0",
            "run.completed a/verify.0",
            "command.completed 1",
            "run.started a/verify.1",
            "run.completed a/verify.1",
            "command.completed 3",
            "note",
            "command.requested 0",
            "command.requested 2",
            "step.completed",
        ]
    );
    let last: Vec<&str> = run.frames[before..]
        .iter()
        .map(|one| one.event.kind())
        .collect();
    let end = [
        "note",
        "command.requested",
        "command.requested",
        "step.completed",
    ];
    assert!(last.windows(4).any(|frames| frames == end), "{last:?}");
    run.holds_together();
    let mut run = telling(5);
    run.completes_with("a", tells_and_runs(), Default::default());
    assert_eq!(
        told(&run)[..3],
        ["note", "command.requested 0", "command.requested 1"]
    );
    run.finishes("a/verify.0/v", json!({}));
    run.finishes("a/verify.1/v", json!({}));
    run.holds_together();
}

#[test]
fn a_step_whose_child_fails_emits_nothing() {
    let mut run = telling(6);
    run.completes_with("a", tells_and_runs(), Default::default());
    run.errs("a/verify.0/v", "agent_failed", "no");
    assert_eq!(run.step("a")["error"]["code"], "invoke_failed");
    let told = told(&run);
    assert_eq!(told[..2], ["command.requested 1", "command.requested 3"]);
    assert!(
        !told
            .iter()
            .any(|one| one == "note" || one == "command.requested 0"),
        "{told:?}"
    );
    run.holds_together();
}

#[test]
fn a_recompute_records_every_command_and_runs_none() {
    let mut run = telling(6);
    run.completes_with("a", tells_and_runs(), Default::default());
    run.finishes("a/verify.0/v", json!({}));
    run.finishes("a/verify.1/v", json!({}));
    let mut again = run.recompute();
    let step = &again.definition.root().unwrap().plan.steps[0];
    let StepWork::Agent(agent) = &step.work else {
        panic!("an agent step");
    };
    // Its tools answer as those of the run did.
    let judged = |claim: Value| {
        let input = json!({"type": "invoke", "step": "verify", "input": {"claim": claim}});
        let rules = DecisionRules::NEWEST;
        let command = &read_commands(Some(&json!([input])), rules).unwrap()[0];
        check_inputs(&again.definition, agent, rules, command)
    };
    assert_eq!(judged(json!("p")), Ok(()));
    assert_eq!(judged(json!(1)).unwrap_err().0, "invalid_params");
    again.completes_with("a.0", tells_and_runs(), Default::default());
    assert_eq!(
        told(&again),
        [
            "command.requested 1",
            "command.requested 3",
            "note",
            "command.requested 0",
            "command.requested 2",
            "step.completed",
        ]
    );
}

#[test]
fn a_recompute_names_commands_that_were_dropped_changed_or_added() {
    let mut run = telling(6);
    run.completes_with("a", tells_and_runs(), Default::default());
    run.finishes("a/verify.0/v", json!({}));
    run.finishes("a/verify.1/v", json!({}));
    let recorded = RecordedRun::from_frames(&run.frames).unwrap();
    let compared = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut outcome = tells_and_runs();
        change(outcome["commands"].as_array_mut().unwrap());
        let mut again = run.recompute();
        again.completes_with("a.0", outcome, Default::default());
        let compared = compare(&recorded, &again.frames).unwrap();
        let task = compared
            .tasks
            .into_iter()
            .find(|task| task.step == "a")
            .unwrap();
        let paths: Vec<String> = task.diff.into_iter().map(|one| one.path).collect();
        (task.status, paths)
    };
    // No model was asked, so there is nothing else to compare.
    assert_eq!(compared(&|_| {}), (Sameness::NotComparable, Vec::new()));
    let changed = |place: &str| (Sameness::ValueChanged, vec![place.to_owned()]);
    let payload = |all: &mut Vec<Value>| all[2]["payload"] = json!("other");
    assert_eq!(compared(&payload), changed("/ktsu_commands/2/payload"));
    assert_eq!(
        compared(&|all| drop(all.pop())),
        changed("/ktsu_commands/3")
    );
    let more = json!({"type": "emit", "topic": "t", "payload": 9});
    assert_eq!(
        compared(&|all| all.push(more.clone())),
        changed("/ktsu_commands/4")
    );
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
    for (rules, fails) in [(6, false), (5, false), (5, true)] {
        let mut run = Driven::invoke_under(rules, plan.clone(), json!({"list": [1, 2]}));
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

/// A fan-out over three items, each of which may invoke `verify`, of two steps and a child.
fn items(max_failures: i64) -> Driven {
    let each = json!({"for_each": {"concurrency": 0, "max_failures": max_failures,
        "from": "params.list"},
        "params": {"x": "{{ item }}"}, "may_invoke": {"verify": {"concurrency": 3, "max_items": 3,
            "child": {"webhooks": "suppress", "workflow": "verify"}}}});
    let verify = json!([
        agent("v", json!([]), "plain", json!({})),
        agent("w", json!([0]), "plain", json!({})),
    ]);
    let main = json!([
        agent("f", json!([]), "plain", each),
        agent(
            "g",
            json!([0]),
            "plain",
            json!({"params": {"x": "{{ step.f.results }}"}})
        )
    ]);
    let mut plan =
        plan(json!({"main": workflow("main", main), "verify": workflow("verify", verify)}));
    plan["agents"]["plain"]["commands"] = json!({"invoke": ["*"]});
    Driven::invoke(plan, json!({"list": [1, 2, 3]}))
}

#[test]
fn an_item_whose_invoked_child_fails_is_one_of_the_failures_that_are_tolerated() {
    let mut run = items(1);
    run.completes_with("f.1", fanout(&["p", "q"]), Default::default());
    run.completes_with("f.2", fanout(&["r"]), Default::default());
    run.errs("f.1/verify.0/v", "agent_failed", "no");
    let words = "the invoked verify.0 failed: agent_failed: no";
    let failed = run.last("item.failed f.1");
    assert_eq!(
        (&failed["code"], &failed["message"]),
        (&json!("invoke_failed"), &json!(words))
    );
    assert_eq!(run.envelope_of("f.1/verify.1")["error"]["code"], "stopped");
    assert_eq!(run.envelope()["status"], "running");
    // The others are untouched.
    run.finishes("f.2/verify.0/v", json!({}));
    run.finishes("f.2/verify.0/w", json!({}));
    run.finishes("f.0", json!({"n": 0}));
    let results = run.step("f")["output"]["results"].clone();
    assert_eq!(
        results,
        json!([{"n": 0}, {"ktsu_error": format!("invoke_failed: {words}"), "item_index": 1},
            {"ok": true}])
    );
    run.finishes("g", json!({}));
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn more_failed_items_than_are_tolerated_fail_the_run_whatever_they_failed_by() {
    let mut run = items(0);
    run.completes_with("f.1", fanout(&["p"]), Default::default());
    run.completes_with("f.2", fanout(&["r"]), Default::default());
    run.errs("f.1/verify.0/v", "agent_failed", "no");
    assert_eq!(run.step("f")["error"]["code"], "max_failures_exceeded");
    assert_eq!(run.envelope()["status"], "failed");
    assert_eq!(run.envelope_of("f.2/verify.0")["status"], "failed");
    run.holds_together();
}

#[test]
fn an_injection_in_what_an_item_runs_ends_the_run_whatever_is_tolerated() {
    let mut run = items(-1);
    run.completes_with("f.1", fanout(&["p"]), Default::default());
    run.does("f.1/verify.0/v", json!({"ktsu_injection_attempt": true}));
    assert_eq!(run.envelope()["status"], "failed");
    assert_eq!(run.step("f")["error"]["code"], "invoke_failed");
    run.holds_together();
}

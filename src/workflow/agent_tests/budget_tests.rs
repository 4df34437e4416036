//! What a run may cost, which group it asks, and what children share with it.

use ktsu_ledger::event::{AgentEvent, BudgetExhausted, FinishReason, Purpose, Report};
use ktsu_ledger::{Actor, Draft, Event};
use serde_json::{Value, json};

use crate::workflow::admit::report::Reported;
use crate::workflow::driven_tests::{Driven, Say, error, output};
use crate::workflow::next::told;
use crate::workflow::plans_tests::{
    agent, child, fan_out, merge, plan, run_under, transform, workflow,
};

fn two(limit: u64) -> Driven {
    run_under(
        json!({"cost_budget_micro_usd": limit}),
        json!([
            agent("a", json!([]), "plain", json!({})),
            agent("b", json!([]), "plain", json!({}))
        ]),
        json!({}),
    )
}

fn ask() -> Vec<Say> {
    vec![Say::Ask(Purpose::Turn)]
}

#[test]
fn a_call_is_refused_once_the_cost_has_reached_the_limit() {
    let mut run = two(100);
    run.asks("a");
    run.replies("a", 99);
    run.asks("a");
    run.replies("a", 1);
    let before = run.frames.len();
    run.says("b", &ask());
    assert_eq!(run.kinds_from(before), ["budget.exhausted b"]);
    let said = run.last("budget.exhausted b");
    assert_eq!(
        (&said["cost_micro_usd"], &said["limit_micro_usd"]),
        (&json!(100), &json!(100))
    );
    let again = run.reports("b", 1, 1, &ask());
    assert!(
        matches!(again, Reported::Repeated { first, last } if first == last),
        "{again:?}"
    );
    run.finishes("a", json!({"v": 1}));
    let outcome = json!({"error": {"code": "budget_exceeded", "message": "m"}});
    run.says(
        "b",
        &[Say::End(FinishReason::BudgetExceeded, outcome, None)],
    );
    assert_eq!(run.envelope()["error"]["code"], "budget_exceeded");
    assert_eq!(
        run.step("a")["status"],
        "complete",
        "what was paid for may end"
    );
    run.holds_together();
}

#[test]
fn a_call_waits_while_those_under_way_may_use_the_budget_up() {
    let mut run = two(100);
    run.asks("a");
    run.replies("a", 40);
    run.asks("a");
    // 40 + 1 × 40 < 100.
    run.asks("b");
    run.replies("b", 20);
    // 60 + 1 × 40 = 100.
    let held = run.reports("b", 1, 3, &ask());
    assert!(matches!(held, Reported::Held(_)), "{held:?}");
    run.replies("a", 10);
    run.says("b", &ask());
    run.says("b", &[Say::Reply { cost: 1 }, output(json!({}))]);
    run.finishes("a", json!({}));
    assert_eq!(run.envelope()["totals"]["cost_micro_usd"], 71);
    run.holds_together();
}

#[test]
fn a_lost_call_is_still_under_way_and_an_ended_task_has_none() {
    let mut run = two(100);
    run.asks("a");
    run.replies("a", 60);
    run.asks("a");
    run.loses("a", ktsu_ledger::event::LostReason::Heartbeat, true);
    let held = run.reports("b", 1, 1, &ask());
    assert!(matches!(held, Reported::Held(_)), "{held:?}");
    run.says("a", &[error("provider_error", "gone")]);
    assert_eq!(run.state.spend().open, 0);
    run.holds_together();
}

#[test]
fn a_forged_refusal_is_refused_by_the_table() {
    let run = two(100);
    let forged = |cost: u64, limit: u64| {
        let event = AgentEvent::BudgetExhausted(BudgetExhausted {
            attempt: 1,
            cost_micro_usd: cost,
            item: None,
            limit_micro_usd: limit,
            report: Report {
                digest: "d".to_owned(),
                n: 1,
            },
            step: "a".to_owned(),
        });
        let draft = Draft {
            scope: String::new(),
            actor: Actor::Runtime,
            cause: Vec::new(),
            event: Event::Agent(event),
        };
        let sealed = draft.seal(run.state.link(), run.state.at()).unwrap();
        run.state.check(&sealed.frame)
    };
    for (cost, limit) in [(0, 100), (100, 100), (0, 0)] {
        assert!(forged(cost, limit).is_err(), "{cost} {limit}");
    }
}

#[test]
fn a_run_without_a_budget_refuses_nothing_and_one_of_nothing_everything() {
    let steps = json!([agent("a", json!([]), "plain", json!({}))]);
    let mut run = run_under(json!({"force_group": "g"}), steps.clone(), json!({}));
    run.asks("a");
    run.says("a", &[Say::Reply { cost: u64::MAX }]);
    run.asks("a");
    run.says("a", &[Say::Reply { cost: 9 }, output(json!({}))]);
    assert_eq!(run.state.spend().cost_micro_usd, u64::MAX);
    run.holds_together();
    let mut run = run_under(json!({"cost_budget_micro_usd": 0}), steps, json!({}));
    run.says("a", &ask());
    assert_eq!(run.kinds().last().unwrap(), "budget.exhausted a");
    run.errs("a", "budget_exceeded", "m");
    run.holds_together();
}

#[test]
fn the_policy_of_the_root_chooses_the_group_and_bounds_the_cost_in_children_too() {
    let of_step = json!({"group": "of_step"});
    let run = |policy: Value, more: Value| {
        let inner = || {
            let mut inner = workflow(
                "inner",
                json!([agent("i", json!([]), "plain", more.clone())]),
            );
            inner["policy"] = json!({"force_group": "of_the_child", "cost_budget_micro_usd": 1});
            inner
        };
        let mut main = workflow("main", json!([child("c", json!([]), "inner", json!({}))]));
        main["policy"] = policy;
        Driven::invoke(plan(json!({"main": main, "inner": inner()})), json!({}))
    };
    let mapped = json!({"group_map": {"std": "mapped", "of_step": "mapped_step"}});
    let mut forced = mapped.clone();
    merge(&mut forced, json!({"force_group": "forced"}));
    for (policy, more, group) in [
        (json!({"timeout_ms": 9_000}), json!({}), "std"),
        (json!({"timeout_ms": 9_000}), of_step.clone(), "of_step"),
        (mapped.clone(), json!({}), "mapped"),
        (mapped, of_step.clone(), "mapped_step"),
        (forced, of_step, "forced"),
    ] {
        let run = run(policy, more);
        let told = told(
            &run.definition,
            &run.state,
            &crate::workflow::next::Memo::default(),
            1,
            0,
            None,
        )
        .unwrap();
        assert_eq!(told.group, group);
    }
    let mut run = run(json!({"cost_budget_micro_usd": 50}), json!({}));
    run.asks("c/i");
    run.replies("c/i", 50);
    run.says("c/i", &ask());
    assert_eq!(run.last("c:budget.exhausted i")["limit_micro_usd"], 50);
    run.errs("c/i", "budget_exceeded", "m");
    run.holds_together();
}

#[test]
fn a_child_of_agents_hands_its_output_up_by_reference_and_counts_once() {
    let inner = workflow(
        "inner",
        json!([
            fan_out(
                "g",
                json!([]),
                json!({"from": "params.items", "concurrency": 1})
            ),
            agent(
                "i",
                json!([0]),
                "plain",
                json!({"params": {"x": "{{ step.g.results[1].y }}"}})
            ),
        ]),
    );
    let steps = json!([
        child(
            "c",
            json!([]),
            "inner",
            json!({"items": "{{ params.items }}"})
        ),
        fan_out("f", json!([0]), json!({"from": "step.c.list"})),
        transform("z", json!([1]), "step.f.results"),
    ]);
    let plan = plan(json!({"main": workflow("main", steps), "inner": inner}));
    let mut run = Driven::invoke(plan, json!({"items": [5, 6]}));
    let given = run.last("c:item.started g.0")["input"]["/params/x"]["ref"].clone();
    assert_eq!(
        given,
        json!({"frame": 0, "path": "/params/items/0"}),
        "through the child"
    );
    run.does("c/g.0", json!({"y": 0}));
    run.does("c/g.1", json!({"y": 1}));
    let told_user = told(
        &run.definition,
        &run.state,
        &crate::workflow::next::Memo::default(),
        1,
        1,
        None,
    )
    .unwrap()
    .user;
    assert_eq!(told_user, r#"{"x":1}"#);
    run.does("c/i", json!({"list": ["p", "q"], "ktsu_flags": ["f"]}));
    let place = run.last("step.completed c")["output_from"].clone();
    assert_eq!(place["path"], "/outcome/output");
    assert_eq!(run.step("c")["output"], json!({"list": ["p", "q"]}));
    run.does("f.0", json!({"k": 1}));
    run.does("f.1", json!({"k": 2}));
    assert_eq!(
        run.envelope()["output"],
        json!({"result": [{"k": 1}, {"k": 2}]})
    );
    let totals = |path: &str| {
        let totals = run.envelope_of(path)["totals"].clone();
        (
            totals["llm_calls"].clone(),
            totals["cost_micro_usd"].clone(),
        )
    };
    assert_eq!(totals(""), (json!(5), json!(50)));
    assert_eq!(totals("c"), (json!(3), json!(30)));
    assert_eq!(run.step("c")["metrics"]["llm_calls"], 3);
    assert_eq!(run.step("c/g")["metrics"]["llm_calls"], 2);
    run.holds_together();
}

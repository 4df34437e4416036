//! What a run may cost, which model group it uses, and what it shares with its children.

use ktsu_ledger::event::{AgentEvent, BudgetExhausted, FinishReason, Purpose, ReportReference};
use ktsu_ledger::{Actor, Draft, Event};
use serde_json::{Value, json};

use crate::admit::report::{ReportAdmission, report};
use crate::driven_tests::{Driven, Say, error, output};
use crate::next::Memo;
use crate::plans_tests::{agent, child, fan_out, merge, plan, run_under, transform, workflow};

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
        matches!(again, ReportAdmission::Repeated { first, last } if first == last),
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
    assert!(matches!(held, ReportAdmission::Deferred(_)), "{held:?}");
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
    assert!(matches!(held, ReportAdmission::Deferred(_)), "{held:?}");
    run.says("a", &[error("provider_error", "gone")]);
    assert_eq!(run.state.spend().open(), 0);
    run.holds_together();
}

/// A fan-out over five items, all of which are sent out at once.
fn wave(rules: u32, limit: u64) -> Driven {
    let mut main = workflow(
        "main",
        json!([fan_out(
            "f",
            json!([]),
            json!({"from": "params.items", "concurrency": 5, "max_failures": -1})
        )]),
    );
    main["policy"] = json!({"cost_budget_micro_usd": limit});
    let items = json!({"items": [1, 2, 3, 4, 5]});
    Driven::invoke_under(rules, plan(json!({"main": main})), items)
}

/// Asks for every item that has no call, and gives those whose request was recorded.
fn ask_all(run: &mut Driven) -> Vec<String> {
    let names = (0..5).map(|item| format!("f.{item}"));
    let asked = names.filter(|name| {
        let n = 1 + run
            .task(name)
            .reports
            .last()
            .map_or(0, |seen| seen.report.n);
        matches!(
            run.reports(name, 1, n, &ask()),
            ReportAdmission::Accepted(_)
        )
    });
    asked.collect()
}

/// Decision F4: nobody knows what a call of a group costs before one has ended.
#[test]
fn the_first_call_goes_alone_and_then_as_many_as_the_dearest_so_far_leaves_room_for() {
    let mut run = wave(2, 100);
    assert_eq!(ask_all(&mut run), ["f.0"]);
    run.says("f.0", &[Say::Reply { cost: 30 }, output(json!({}))]);
    // 30 + 2 × 30 < 100, 30 + 3 × 30 is not.
    assert_eq!(ask_all(&mut run), ["f.1", "f.2", "f.3"]);
    run.says("f.1", &[Say::Reply { cost: 40 }, output(json!({}))]);
    // 70 + 2 × 40 ≥ 100.
    assert_eq!(ask_all(&mut run), Vec::<String>::new());
    run.says("f.2", &[Say::Reply { cost: 20 }, output(json!({}))]);
    run.says("f.3", &[Say::Reply { cost: 9 }, output(json!({}))]);
    assert_eq!(
        ask_all(&mut run),
        ["f.4"],
        "99 < 100 and nothing is under way"
    );
    run.says("f.4", &[Say::Reply { cost: 40 }, output(json!({}))]);
    assert_eq!(run.envelope()["totals"]["cost_micro_usd"], 139);
    run.holds_together();
}

#[test]
fn a_run_of_the_first_rules_lets_its_first_wave_go_as_it_did() {
    let mut run = wave(1, 100);
    assert_eq!(ask_all(&mut run).len(), 5);
    for item in 0..5 {
        let name = format!("f.{item}");
        run.says(&name, &[Say::Reply { cost: 30 }, output(json!({}))]);
    }
    assert_eq!(run.envelope()["totals"]["cost_micro_usd"], 150);
    run.holds_together();
}

/// What is refused live is refused where it is read.
#[test]
fn a_request_that_was_to_be_held_is_no_frame_that_may_follow() {
    for (rules, allowed) in [(1, true), (2, false)] {
        let mut run = wave(rules, 100);
        run.asks("f.0");
        let mut event = run.events("f.1", 1, 1, &ask()).remove(0);
        if let AgentEvent::Request(request) = &mut event {
            request.digest = "d".to_owned();
        }
        let draft = Draft {
            scope: String::new(),
            actor: Actor::Runtime,
            cause: Vec::new(),
            event: Event::Agent(event),
        };
        let sealed = draft.seal(run.state.link(), run.state.at()).unwrap();
        assert_eq!(run.state.check(&sealed.frame).is_ok(), allowed, "{rules}");
    }
}

#[test]
fn a_call_of_a_group_that_has_shown_no_price_reserves_all_that_is_left() {
    let mut run = wave(2, 1_000);
    assert_eq!(ask_all(&mut run), ["f.0"]);
    run.replies("f.0", 1);
    // The same task asks another group: nobody knows what that costs.
    let mut events = run.events("f.1", 1, 1, &ask());
    if let Some(AgentEvent::Request(request)) = events.first_mut() {
        request.group = "dear".to_owned();
    }
    let ReportAdmission::Accepted(drafts) = report(&run.state, "", events, &Default::default())
    else {
        panic!("nothing is under way");
    };
    run.inputs(drafts);
    assert_eq!(ask_all(&mut run), Vec::<String>::new());
    run.says("f.1", &[Say::Reply { cost: 50 }, output(json!({}))]);
    assert_eq!(
        ask_all(&mut run).len(),
        4,
        "both groups have shown their prices"
    );
}

#[test]
fn what_a_call_without_a_reply_cost_counts_and_shows_the_price() {
    let mut run = wave(2, 100);
    assert_eq!(ask_all(&mut run), ["f.0"]);
    run.says(
        "f.0",
        &[Say::NoReply { cost: 60 }, error("internal_error", "m")],
    );
    assert_eq!(run.state.spend().cost_micro_usd, 60);
    assert_eq!(ask_all(&mut run), ["f.1"]);
    run.says(
        "f.1",
        &[Say::NoReply { cost: 60 }, error("internal_error", "m")],
    );
    assert_eq!(ask_all(&mut run).len(), 3);
    assert_eq!(run.last("budget.exhausted f.4")["cost_micro_usd"], 120);
    for item in 2..5 {
        run.errs(&format!("f.{item}"), "budget_exceeded", "m");
    }
    let totals = run.envelope()["totals"].clone();
    assert_eq!(
        (&totals["cost_micro_usd"], &totals["tokens_in"]),
        (&json!(120), &json!(20))
    );
    run.holds_together();
}

#[test]
fn a_call_that_failed_before_anything_was_charged_shows_no_price() {
    let mut run = wave(2, 100);
    assert_eq!(ask_all(&mut run), ["f.0"]);
    run.says(
        "f.0",
        &[Say::NoReply { cost: 0 }, error("provider_error", "m")],
    );
    assert_eq!(ask_all(&mut run), ["f.1"], "the next goes alone, too");
    run.says("f.1", &[Say::Reply { cost: 0 }, output(json!({}))]);
    assert_eq!(
        ask_all(&mut run),
        ["f.2", "f.3", "f.4"],
        "this one was free"
    );
}

/// A call that was made may be paid for: it is asked again, whatever the budget says by then.
#[test]
fn a_recorded_call_without_an_answer_is_answered_after_a_loss_neither_refused_nor_held() {
    let mut run = wave(2, 100);
    run.asks("f.0");
    run.says("f.0", &[Say::Reply { cost: 30 }]);
    run.asks("f.0");
    run.asks("f.1");
    run.loses("f.1", ktsu_ledger::event::LostReason::Heartbeat, true);
    run.says("f.0", &[Say::Reply { cost: 90 }, output(json!({}))]);
    let asked = run
        .kinds()
        .iter()
        .filter(|kind| *kind == "llm.request f.1")
        .count();
    // The budget is used up, and the open call is answered all the same.
    run.says("f.1", &[Say::Reply { cost: 5 }, output(json!({}))]);
    assert_eq!(asked, 1);
    assert_eq!(run.state.spend().cost_micro_usd, 125);
    assert_eq!(run.state.spend().open(), 0);
    run.says("f.2", &ask());
    assert_eq!(run.kinds().last().unwrap(), "budget.exhausted f.2");
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
            report: ReportReference {
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
fn another_group_takes_the_place_of_the_one_that_would_be_used() {
    for (policy, wanted, groups) in [
        (json!({}), "std", ["other"]),
        (json!({"group_map": {"std": "mapped"}}), "mapped", ["other"]),
        (json!({"group_map": {"std": "mapped"}}), "std", ["mapped"]),
        (json!({"group_map": {"x": "std"}}), "std", ["other"]),
        (json!({"force_group": "forced"}), "forced", ["other"]),
        (json!({"force_group": "forced"}), "std", ["forced"]),
    ] {
        let steps = json!([agent("a", json!([]), "plain", json!({}))]);
        let definition = run_under(policy.clone(), steps, json!({})).definition;
        let others = [(wanted.to_owned(), "other".to_owned())].into();
        let changed = definition.with_groups(&others).unwrap();
        assert!(changed.groups().iter().eq(groups), "{policy}, {wanted}");
        // All else is as it was.
        assert_eq!(changed.plan.agents, definition.plan.agents);
    }
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
        let spec = run.spec("c/i", &Memo::default());
        assert_eq!(spec.group, group);
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
    let spec = run.spec("c/i", &Memo::default());
    assert_eq!(spec.user, r#"{"x":1}"#);
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

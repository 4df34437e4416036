//! Random inputs in random order: every run ends, and follows from its inputs.

use ktsu_ledger::event::{LostReason, Purpose};
use ktsu_projections::run::TaskId;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::driven_tests::{Driven, Say, error, output};
use crate::effects::tasks_due;
use crate::expression::converted;
use crate::next::Memo;
use crate::plans_tests::{agent, child, fan_out, merge, plan, run_of, workflow};

fn a_run(concurrency: u32, max_failures: i64) -> Driven {
    let each = json!({"from": "params.items", "concurrency": concurrency,
        "max_failures": max_failures});
    let mut main = workflow(
        "main",
        json!([
            agent("a", json!([]), "reflects", json!({})),
            fan_out("f", json!([]), each),
            agent(
                "b",
                json!([0, 1]),
                "plain",
                json!({"params": {"x": "{{ step.f.results[0] }}"}})
            ),
            child(
                "c",
                json!([0]),
                "inner",
                json!({"list": "{{ params.items }}"})
            ),
        ]),
    );
    let inner = workflow(
        "inner",
        json!([
            agent(
                "d",
                json!([]),
                "doubts",
                json!({"confidence_threshold_millionths": 500_000})
            ),
            fan_out(
                "g",
                json!([]),
                json!({"from": "params.list", "concurrency": 2, "max_items": 3})
            ),
        ]),
    );
    main["policy"] = json!({"timeout_ms": 60_000, "cost_budget_micro_usd": 90});
    Driven::invoke(
        plan(json!({"main": main, "inner": inner})),
        json!({"items": [1, 2, 3, 4]}),
    )
}

/// What the world does to one of the tasks that are under way.
fn act(run: &mut Driven, which: usize, what: u8) {
    let live: Vec<TaskId> = tasks_due(&run.state).collect();
    if live.is_empty() {
        return;
    }
    let TaskId { step, item } = live[which % live.len()];
    let scope = run.state.scope_of(step).unwrap();
    let path = scope.path_of(step.position().unwrap());
    let name = ktsu_projections::lineage::item_name(&path, item);
    let (attempt, n) = {
        let task = run.task(&name);
        (
            task.attempt,
            1 + task.reports.last().map_or(0, |seen| seen.report.n),
        )
    };
    let reply = Say::Reply { cost: 7 };
    // What does not follow is refused and changes nothing.
    let says = match what {
        0 => vec![Say::Ask(Purpose::Turn)],
        1 => vec![Say::Ask(Purpose::Reflect)],
        2 => vec![reply],
        3 => vec![reply, Say::Draft(json!({"v": 1}))],
        4 => vec![Say::Draft(json!({"ktsu_low_quality": true}))],
        5 | 6 => vec![output(json!({"v": 1, "ktsu_rationale": "r"}))],
        7 => vec![reply, output(json!({"v": 2}))],
        8 => vec![output(json!({"ktsu_skip_reason": "s"}))],
        9 => vec![error("provider_error", "no")],
        10 => vec![output(json!({"ktsu_injection_attempt": true}))],
        11 => {
            run.loses(&name, LostReason::Heartbeat, true);
            return;
        }
        12 => {
            run.loses(&name, LostReason::Heartbeat, which.is_multiple_of(2));
            return;
        }
        13 => return run.restarts(),
        14 => vec![output(
            json!({"ktsu_needs_human": "?", "ktsu_low_quality": 1}),
        )],
        16 => vec![Say::Ask(Purpose::Repair)],
        17 => vec![error("stopped", "says the runtime")],
        18 => vec![output(json!({"v": 1, "ktsu_confidence": 0.9}))],
        // A runtime that has shown a draft cannot end with something else.
        _ if run.task(&name).draft.is_some() => return,
        _ => return run.completes(&name, json!({"v": 3}), Default::default()),
    };
    run.reports(&name, attempt, n, &says);
}

proptest! {
    #![proptest_config(ktsu_campaign::config(48))]

    #[test]
    fn every_run_ends_with_every_step_ended(
        concurrency in 0u32..4,
        max_failures in -1i64..3,
        acts in prop::collection::vec((0usize..8, 0u8..20), 0..60),
        cut in 0usize..1000,
    ) {
        let mut run = a_run(concurrency, max_failures);
        for (which, what) in acts {
            if what == 15 && which == 7 {
                run.times_out();
            }
            act(&mut run, which, what);
            run.shows_what_its_frames_show();
        }
        run.times_out();
        prop_assert!(run.frames.len() < 600);
        run.is_whole();
        run.holds_together_every(7 + cut % 13);
    }
}

fn many(items: u32, concurrency: u32) -> Driven {
    let tone: Vec<Value> = (0..items).map(|n| json!({"n": n})).collect();
    let mut each = json!({"from": "params.items", "concurrency": 0, "max_failures": -1});
    merge(&mut each, json!({"concurrency": concurrency}));
    let params = json!({"x": "{{ item.n }}", "tone": "{{ params.tone }}"});
    let step = agent(
        "f",
        json!([]),
        "plain",
        json!({"for_each": each, "params": params}),
    );
    let mut run = run_of(json!([step]), json!({"items": tone, "tone": "dry"}));
    for item in 0..items {
        // As the task of a run does whenever it waits.
        run.memo.clear();
        run.says(&format!("f.{item}"), &[output(json!({"n": item}))]);
    }
    run
}

#[test]
fn five_thousand_items_cost_no_more_than_ten_times_five_hundred() {
    let cost = |items: u32, concurrency: u32| {
        let before = converted();
        let run = many(items, concurrency);
        let ended = run.state.scopes()[0].steps[0]
            .tasks
            .as_ref()
            .unwrap()
            .succeeded;
        assert_eq!(
            (ended, run.envelope()["status"].as_str()),
            (items, Some("complete"))
        );
        ktsu_projections::run::RunState::fold(&run.frames).unwrap();
        assert_eq!(
            run.step("f")["output"]["results"][items as usize - 1]["n"],
            items - 1
        );
        let memo = Memo::default();
        for item in 0..items {
            let spec = run.spec(&format!("f.{item}"), &memo);
            assert!(
                spec.user.contains(&format!(r#""x":{item}"#)),
                "{}",
                spec.user
            );
        }
        converted() - before
    };
    // Few items first, so that a square is found before it takes long.
    for (items, concurrency) in [(50, 0), (50, 10), (500, 0), (500, 10)] {
        let (few, many) = (cost(items, concurrency), cost(10 * items, concurrency));
        assert!(
            many < 11 * few,
            "{few} values for {items} items, {many} for ten times as many"
        );
    }
}

//! Fan-outs: items are started, checked and combined.

use serde_json::{Value, json};

use crate::driven_tests::Driven;
use crate::effects::tasks_due;
use crate::next::Memo;
use crate::plans_tests::{agent, fan_out, merge, run_of, transform};

fn fan(each: Value, items: Value) -> Driven {
    let mut for_each = json!({"from": "params.items"});
    merge(&mut for_each, each);
    let steps = json!([
        fan_out("f", json!([]), for_each),
        transform("z", json!([0]), "step.f.results[0].x"),
    ]);
    run_of(steps, json!({"items": items}))
}

fn count(run: &Driven, kind: &str) -> usize {
    run.kinds()
        .iter()
        .filter(|one| one.starts_with(kind))
        .count()
}

#[test]
fn an_item_is_started_sent_out_reported_on_and_ended() {
    let mut run = fan(json!({}), json!([[7]]));
    assert_eq!(
        run.kinds()[2..],
        [
            "step.started f",
            "item.started f.0",
            "worker.dispatched f.0"
        ]
    );
    let given = json!({"ref": {"frame": 0, "path": "/params/items/0"}});
    assert_eq!(run.last("item.started f.0")["input"]["/params/x"], given);
    run.does("f.0", json!({"x": [1, [2]], "ktsu_flags": ["a"]}));
    assert_eq!(
        run.kinds()[5..],
        [
            "llm.request f.0",
            "llm.response f.0",
            "agent.finished f.0",
            "reserved.evaluated f.0",
            "step.output_checked f.0",
            "item.completed f.0",
            "step.completed f",
            "step.started z",
            "step.completed z",
            "run.completed"
        ]
    );
    assert_eq!(
        run.last("item.completed f.0")["stripped"],
        json!(["ktsu_flags"])
    );
    assert_eq!(
        run.last("item.completed f.0")["output_from"]["path"],
        "/outcome/output"
    );
    assert_eq!(
        run.step("f")["output"],
        json!({"results": [{"x": [1, [2]]}]})
    );
    assert_eq!(
        run.envelope()["output"],
        json!({"result": [1, 2]}),
        "read by a later step"
    );
    run.holds_together();
}

#[test]
fn nothing_to_do_is_done_without_a_call() {
    for (items, each) in [
        (json!([]), json!({})),
        (json!([1, 2]), json!({"max_items": 0})),
    ] {
        let steps = json!([fan_out("f", json!([]), {
            let mut from = json!({"from": "params.items"});
            merge(&mut from, each);
            from
        })]);
        let run = run_of(steps, json!({"items": items}));
        assert_eq!(run.step("f")["output"], json!({"results": []}));
        assert_eq!(run.envelope()["status"], "complete");
        run.holds_together();
    }
}

#[test]
fn what_is_no_array_fails_the_step_in_words() {
    for (from, kind) in [("params.items", "string"), ("params.none", "null")] {
        let run = run_of(
            json!([fan_out("f", json!([]), json!({"from": from}))]),
            json!({"items": "text"}),
        );
        let message = run.step("f")["error"]["message"].clone();
        let words = format!("for_each from \"{from}\": expected array, got {kind}");
        assert_eq!(message, words);
        assert!(!run.kinds().iter().any(|kind| kind.starts_with("worker")));
        run.holds_together();
    }
}

#[test]
fn max_items_cuts_the_list_first() {
    let mut run = fan(json!({"max_items": 2}), json!([1, 2, 3]));
    run.finishes("f.0", json!({"x": []}));
    run.finishes("f.1", json!({"x": []}));
    assert_eq!(
        run.step("f")["output"]["results"].as_array().unwrap().len(),
        2
    );
    run.holds_together();
}

#[test]
fn as_many_items_run_at_once_as_the_file_says() {
    for (concurrency, at_once) in [(1, 1), (2, 2), (0, 5), (9, 5)] {
        let mut run = fan(json!({"concurrency": concurrency}), json!([1, 2, 3, 4, 5]));
        for done in 0..5 {
            let live = tasks_due(&run.state).count();
            assert_eq!(live, at_once.min(5 - done), "{concurrency} after {done}");
            run.does(&format!("f.{done}"), json!({"x": [done]}));
        }
        run.holds_together();
    }
}

#[test]
fn results_are_in_input_order_however_the_items_end() {
    let mut run = fan(json!({"max_failures": 1}), json!(["a", "b", "c", "d"]));
    run.finishes("f.3", json!({"x": [3]}));
    run.finishes("f.1", json!({"ktsu_skip_reason": "seen"}));
    run.errs("f.2", "provider_error", "boom");
    run.finishes("f.0", json!({"x": [0]}));
    assert_eq!(
        run.step("f")["output"]["results"],
        json!([
            {"x": [0]},
            {"skipped": true, "reason": "seen", "item_index": 1},
            {"ktsu_error": "boom", "item_index": 2},
            {"x": [3]}
        ])
    );
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn more_failures_than_the_file_bears_stop_what_runs_and_start_nothing_more() {
    let mut run = fan(
        json!({"concurrency": 3, "max_failures": 1}),
        json!([0, 1, 2, 3, 4, 5]),
    );
    run.asks("f.2");
    run.errs("f.1", "provider_error", "first");
    assert_eq!(
        tasks_due(&run.state).count(),
        3,
        "one more was started in its place"
    );
    let before = run.frames.len();
    run.errs("f.0", "provider_error", "second");
    assert_eq!(
        run.kinds_from(before),
        [
            "agent.finished f.0",
            "item.failed f.0",
            "agent.finished f.2",
            "item.failed f.2",
            "agent.finished f.3",
            "item.failed f.3",
            "step.failed f",
            "step.skipped z",
            "run.failed"
        ]
    );
    assert_eq!(run.last("agent.finished f.2")["reason"], "stopped");
    assert_eq!(run.last("item.failed f.2")["code"], "stopped");
    assert_eq!(
        count(&run, "item.started"),
        4,
        "what never started has no frame"
    );
    let error = run.step("f")["error"].clone();
    assert_eq!(error["code"], "max_failures_exceeded");
    assert_eq!(
        error["message"],
        "fanout: 2 items failed (max_failures: 1); item 0: second"
    );
    run.holds_together();
}

#[test]
fn the_first_failure_fails_a_fan_out_that_bears_none_and_none_fails_one_that_bears_any() {
    let mut run = fan(json!({"concurrency": 1}), json!([0, 1]));
    run.errs("f.0", "provider_error", "boom");
    assert_eq!(run.envelope()["status"], "failed");
    assert_eq!(count(&run, "item.started"), 1);
    run.holds_together();
    let mut run = fan(json!({"max_failures": -1}), json!([0, 1]));
    run.errs("f.0", "provider_error", "boom");
    run.errs("f.1", "provider_error", "boom");
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn what_no_fan_out_tolerates_fails_the_run_from_an_item() {
    for (field, code, tolerated) in [
        ("ktsu_injection_attempt", "injection_attempt", false),
        ("ktsu_needs_human", "needs_human_review", false),
        ("ktsu_untrusted_content", "untrusted_content", true),
        ("ktsu_low_quality", "low_quality_output", true),
    ] {
        let mut run = fan(
            json!({"max_failures": -1, "concurrency": 2}),
            json!([0, 1, 2]),
        );
        run.asks("f.1");
        run.finishes("f.0", json!({"x": [], field: true}));
        assert_eq!(run.last("item.failed f.0")["code"], code);
        assert_eq!(
            run.last("item.failed f.0")["raw_from"]["path"],
            "/outcome/output"
        );
        if tolerated {
            run.replies("f.1", 1);
            run.finishes("f.1", json!({"x": []}));
            run.finishes("f.2", json!({"x": []}));
            assert_eq!(run.envelope()["status"], "complete");
        } else {
            assert_eq!(run.envelope()["error"]["code"], code);
            assert_eq!(run.last("item.failed f.1")["code"], "stopped");
        }
        run.holds_together();
    }
}

#[test]
fn a_code_of_a_runtime_is_not_a_reserved_field() {
    let mut run = fan(json!({"max_failures": -1}), json!([0]));
    run.errs("f.0", "needs_human_review", "the runtime says so");
    assert_eq!(
        run.envelope()["status"],
        "complete",
        "a person is asked by the field alone"
    );
    run.holds_together();
}

#[test]
fn low_confidence_fails_the_item_and_the_air_lock_asks_the_agents_schema() {
    let each = json!({"from": "params.items", "concurrency": 0, "max_failures": -1});
    let more = json!({"for_each": each, "params": {"msg": "{{ item }}"},
        "confidence_threshold_millionths": 500_000});
    let mut step = agent("f", json!([]), "strict", more);
    step["schema"] = json!({"properties": {"results": {"minItems": 4}}});
    for (items, status) in [
        (json!([1, 2, 3, 4]), "complete"),
        (json!([1, 2, 3]), "failed"),
    ] {
        let mut run = run_of(json!([step]), json!({"items": items}));
        run.finishes("f.0", json!({"v": 1, "ktsu_confidence": 0.4}));
        run.finishes("f.1", json!({"v": "x", "ktsu_confidence": 0.6}));
        assert_eq!(
            run.last("item.failed f.0")["code"],
            "confidence_below_threshold"
        );
        assert_eq!(run.last("item.failed f.1")["code"], "schema_violation");
        for left in 2..items.as_array().unwrap().len() {
            run.finishes(
                &format!("f.{left}"),
                json!({"v": 1, "ktsu_confidence": 0.6}),
            );
        }
        assert_eq!(
            run.step("f")["status"],
            status,
            "the step's schema judges the results"
        );
        run.holds_together();
    }
}

/// What the model of a task is asked.
fn user(run: &Driven, name: &str) -> String {
    run.spec(name, &Memo::default()).user
}

#[test]
fn items_keep_their_types_in_params() {
    let each = json!({"from": "params.items", "concurrency": 0, "max_failures": -1});
    let params = json!({"msg": "{{ item.m }}", "who": "{{ item.w }}", "n": "{{ item_index }}"});
    let step = agent(
        "f",
        json!([]),
        "strict",
        json!({"for_each": each, "params": params}),
    );
    let items = json!([{"m": 12, "w": {"a": [1]}}, {"m": "t", "w": "text"}, {"m": {"o": 1}}]);
    let mut run = run_of(json!([step]), json!({"items": items}));
    assert_eq!(user(&run, "f.0"), r#"{"msg":"12","n":0,"who":{"a":[1]}}"#);
    let given = run.last("item.started f.0")["input"].clone();
    assert_eq!(
        given["/params/who"]["ref"],
        json!({"frame": 0, "path": "/params/items/0/w"})
    );
    assert_eq!(given["/params/n"]["value"]["value"], 0);
    assert_eq!(run.last("item.failed f.1")["code"], "invalid_params");
    assert_eq!(run.last("item.failed f.2")["code"], "invalid_params");
    assert_eq!(run.last("item.failed f.2")["attempt"], 0);
    run.finishes("f.0", json!({"v": 1, "ktsu_confidence": 1}));
    run.holds_together();
}

#[test]
fn computed_items_are_in_the_step_and_are_pointed_at_there() {
    let from = "params.items[?n > `1`].n";
    let mut run = run_of(
        json!([
            fan_out("f", json!([]), json!({"from": from})),
            fan_out("g", json!([0]), json!({"from": "step.f.results"})),
        ]),
        json!({"items": [{"n": 1}, {"n": 2}, {"n": 3}]}),
    );
    let given = run.last("item.started f.1")["input"]["/params/x"]["ref"].clone();
    assert_eq!(given["path"], "/input/~1for_each~1from/value/value/1");
    assert_eq!(user(&run, "f.1"), r#"{"x":3}"#);
    run.finishes("f.1", json!({"b": 1}));
    run.finishes("f.0", json!({"a": 1}));
    assert_eq!(
        user(&run, "g.0"),
        r#"{"x":{"a":1}}"#,
        "results are items in their turn"
    );
    run.finishes("g.0", json!({}));
    run.finishes("g.1", json!({}));
    run.holds_together();
}

#[test]
fn reports_of_two_items_may_interleave() {
    let mut run = fan(json!({}), json!([0, 1]));
    run.asks("f.1");
    run.asks("f.0");
    run.replies("f.1", 5);
    run.asks("f.1");
    run.replies("f.0", 5);
    run.finishes("f.0", json!({"x": [0]}));
    run.replies("f.1", 5);
    run.finishes("f.1", json!({"x": [1]}));
    assert_eq!(run.envelope()["totals"]["llm_calls"], 3);
    assert_eq!(run.envelope()["totals"]["cost_micro_usd"], 15);
    run.holds_together();
}

#[test]
fn three_hundred_items_at_once_pass_the_bound_of_a_turn_and_continue() {
    let items: Vec<u32> = (0..300).collect();
    let mut run = fan(json!({"max_failures": 2}), json!(items));
    assert!(count(&run, "run.continued") >= 2);
    assert_eq!(tasks_due(&run.state).count(), 300);
    for item in (0..299).rev() {
        run.finishes(&format!("f.{item}"), json!({"x": [item]}));
    }
    run.errs("f.299", "provider_error", "boom");
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together_every(211);
}

#[test]
fn three_hundred_running_items_are_stopped_in_one_append() {
    let items: Vec<u32> = (0..300).collect();
    let mut run = fan(json!({}), json!(items));
    let before = run.frames.len();
    run.errs("f.7", "provider_error", "boom");
    let after = run.kinds_from(before);
    assert!(
        !after.iter().any(|kind| kind == "run.continued"),
        "a failure is not divided"
    );
    assert_eq!(after.last().unwrap(), "run.failed");
    run.holds_together_every(173);
}

#[test]
fn an_injection_attempt_is_not_hidden_by_what_else_is_wrong() {
    for more in [
        json!({"commands": [{"type": "tell"}]}),
        json!({"error": {"code": "provider_error", "message": "m"}}),
    ] {
        let mut run = fan(json!({"max_failures": -1}), json!([0, 1]));
        let mut outcome = json!({"output": {"ktsu_injection_attempt": true}});
        merge(&mut outcome, more);
        run.completes_with("f.0", outcome, Default::default());
        assert_eq!(run.envelope()["error"]["code"], "injection_attempt");
        run.holds_together();
    }
    let mut run = fan(json!({"max_failures": -1}), json!([0]));
    let outcome = json!({"output": {"ktsu_skip_reason": "s"}, "commands": [{"type": "tell"}]});
    run.completes_with("f.0", outcome, Default::default());
    assert_eq!(run.last("item.failed f.0")["code"], "outcome_invalid");
    run.holds_together();
}

#[test]
fn items_are_counted_and_those_that_never_started_count_as_skipped() {
    let counts = |run: &Driven| {
        let tasks = run.state.scopes()[0].steps[0].tasks.clone().unwrap();
        let counts = tasks.counts();
        (counts.succeeded, counts.failed, counts.skipped)
    };
    let each = json!({"concurrency": 2, "max_failures": 0});
    let mut run = fan(each, json!([0, 1, 2, 3, 4]));
    run.finishes("f.0", json!({"ktsu_skip_reason": "s"}));
    run.finishes("f.1", json!({"x": []}));
    run.errs("f.2", "provider_error", "no");
    assert_eq!(
        counts(&run),
        (1, 2, 2),
        "one failed, one was stopped, one never started"
    );
    run.holds_together();
}

#[test]
fn a_runtime_that_says_stopped_has_failed() {
    let mut run = fan(json!({"max_failures": 0}), json!([0, 1]));
    run.errs("f.0", "stopped", "says the runtime");
    assert_eq!(run.step("f")["error"]["code"], "max_failures_exceeded");
    run.holds_together();
}

#[test]
fn a_person_is_asked_for_even_where_another_field_decides_first() {
    let mut run = fan(json!({"max_failures": -1}), json!([0, 1]));
    run.finishes(
        "f.0",
        json!({"ktsu_low_quality": true, "ktsu_needs_human": true}),
    );
    assert_eq!(run.last("item.failed f.0")["code"], "low_quality_output");
    assert_eq!(
        run.envelope()["status"],
        "failed",
        "a verdict of fail_run is kept"
    );
    run.holds_together();
}

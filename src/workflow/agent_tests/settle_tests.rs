//! Plain agent steps: what follows from the end of their task.

use ktsu_ledger::event::{FinishReason, Purpose};
use serde_json::{Value, json};

use crate::driven_tests::Driven;
use crate::driven_tests::{Say, output};
use crate::plans_tests::{agent, child, fan_out, plan, run_of, transform, webhook, workflow};

fn one(more: Value) -> Driven {
    run_of(json!([agent("a", json!([]), "plain", more)]), json!({}))
}

fn reserved(run: &Driven) -> Vec<String> {
    let of = |frame: &&ktsu_ledger::Frame| frame.event.kind() == "reserved.evaluated";
    let frames = run.frames.iter().filter(of).map(crate::driven_tests::data);
    let words = |data: Value| {
        let text = |name: &str| data[name].as_str().unwrap().to_owned();
        format!("{} {}", text("field"), text("verdict"))
    };
    frames.map(words).collect()
}

#[test]
fn an_agent_step_is_sent_out_reported_on_judged_and_ended() {
    let mut run = run_of(
        json!([
            agent("a", json!([]), "plain", json!({})),
            transform("z", json!([0]), "step.a.list"),
        ]),
        json!({}),
    );
    assert_eq!(run.kinds()[2..], ["step.started a", "worker.dispatched a"]);
    run.asks("a");
    let said = json!({"list": [[1], 2], "ktsu_flags": ["f"], "ktsu_rationale": "r", "ktsu_x": 1});
    run.says("a", &[Say::Reply { cost: 10 }, output(said)]);
    assert_eq!(
        run.kinds()[4..],
        [
            "llm.request a",
            "llm.response a",
            "agent.finished a",
            "reserved.evaluated a",
            "reserved.evaluated a",
            "step.output_checked a",
            "step.completed a",
            "step.started z",
            "step.completed z",
            "run.completed"
        ]
    );
    let done = run.last("step.completed a");
    assert_eq!(
        done["output_from"],
        json!({"frame": 6, "path": "/outcome/output"})
    );
    assert_eq!(
        done["stripped"],
        json!(["ktsu_flags", "ktsu_rationale", "ktsu_x"])
    );
    assert_eq!(done.get("output"), None, "no value twice");
    assert_eq!(run.step("a")["output"], json!({"list": [[1], 2]}));
    let given = run.last("step.started z");
    let list = json!({"ref": {"frame": 6, "path": "/outcome/output/list"}});
    assert_eq!(given["input"]["/inputs/0"], list);
    assert_eq!(run.envelope()["output"], json!({"result": [1, 2]}));
    assert_eq!(run.envelope()["totals"]["llm_calls"], 1);
    run.holds_together();
}

#[test]
fn a_reserved_field_is_null_to_later_steps_and_recorded_as_null() {
    let steps = json!([
        agent("a", json!([]), "plain", json!({})),
        agent(
            "b",
            json!([0]),
            "plain",
            json!({"params": {"f": "{{ step.a.ktsu_flags }}", "v": "{{ step.a.v }}"}})
        ),
        child("c", json!([0]), "inner", json!({"a": "{{ step.a }}"})),
    ]);
    let inner = workflow(
        "inner",
        json!([agent(
            "i",
            json!([]),
            "plain",
            json!({"params": {"f": "{{ params.a.ktsu_flags }}"}})
        ),]),
    );
    let mut run = Driven::invoke(
        plan(json!({"main": workflow("main", steps), "inner": inner})),
        json!({}),
    );
    run.finishes("a", json!({"v": 1, "ktsu_flags": ["secret thought"]}));
    let given = run.last("step.started b")["input"].clone();
    assert_eq!(given["/params/v"]["ref"]["path"], "/outcome/output/v");
    assert_eq!(given["/params/f"]["value"]["value"], json!(null), "{given}");
    let inside = run.last("c:step.started i")["input"].clone();
    assert_eq!(
        inside["/params/f"]["value"]["value"],
        json!(null),
        "{inside}"
    );
    run.finishes("b", json!({}));
    run.finishes("c/i", json!({}));
    run.holds_together();
}

#[test]
fn every_reserved_field_is_evaluated_in_order_and_the_first_that_ends_the_step_decides() {
    let all = json!({"ktsu_rationale": "r", "ktsu_flags": [], "ktsu_skip_reason": "s",
        "ktsu_confidence": 0.1, "ktsu_needs_human": true, "ktsu_low_quality": true,
        "ktsu_untrusted_content": true, "ktsu_injection_attempt": true});
    let mut run = one(json!({"confidence_threshold_millionths": 500_000}));
    run.finishes("a", all);
    assert_eq!(
        reserved(&run),
        [
            "ktsu_injection_attempt fail_run",
            "ktsu_untrusted_content fail",
            "ktsu_low_quality fail",
            "ktsu_needs_human fail_run",
            "ktsu_confidence fail",
            "ktsu_skip_reason skip",
            "ktsu_flags noted",
            "ktsu_rationale noted"
        ]
    );
    assert_eq!(run.step("a")["error"]["code"], "injection_attempt");
    assert_eq!(
        run.last("step.failed a")["raw_from"]["path"],
        "/outcome/output"
    );
    run.holds_together();
}

#[test]
fn each_fatal_field_fails_the_run_with_its_own_code() {
    for (field, code) in [
        ("ktsu_injection_attempt", "injection_attempt"),
        ("ktsu_untrusted_content", "untrusted_content"),
        ("ktsu_low_quality", "low_quality_output"),
        ("ktsu_needs_human", "needs_human_review"),
    ] {
        for (value, fails) in [
            (json!(true), true),
            (json!("yes"), true),
            (json!(0), true),
            (json!(null), false),
            (json!(false), false),
        ] {
            let mut run = one(json!({}));
            run.finishes("a", json!({"v": 1, field: value}));
            let envelope = run.envelope();
            match fails {
                true => assert_eq!(envelope["error"]["code"], code, "{field} {value}"),
                false => assert_eq!(envelope["status"], "complete", "{field} {value}"),
            }
            assert_eq!(reserved(&run).len(), 1);
            run.holds_together();
        }
    }
}

#[test]
fn a_confidence_below_the_threshold_or_none_fails_the_step() {
    for (said, passes) in [
        (json!({"ktsu_confidence": 0.69}), false),
        (json!({"ktsu_confidence": 0.7}), true),
        (json!({"ktsu_confidence": 0.71}), true),
        (json!({"ktsu_confidence": "0.9"}), false),
        (json!({"ktsu_confidence": null}), false),
        (json!({}), false),
    ] {
        let mut run = one(json!({"confidence_threshold_millionths": 700_000}));
        run.finishes("a", said.clone());
        let code = run.step("a")["error"]["code"].clone();
        let wanted = if passes {
            json!(null)
        } else {
            json!("confidence_below_threshold")
        };
        assert_eq!(code, wanted, "{said}");
        assert_eq!(
            reserved(&run).len(),
            1,
            "one verdict, even on what is missing"
        );
        run.holds_together();
    }
}

#[test]
fn a_skip_comes_before_the_air_lock_and_reaches_whatever_waits_for_it() {
    let mut asked = agent("d", json!([0]), "plain", json!({}));
    asked["condition"] = json!("step.a.nothing");
    let steps = json!([
        agent("a", json!([]), "strict", json!({"params": {"msg": "m"}})),
        webhook("w", json!([0]), "http://x/"),
        child("c", json!([1]), "inner", json!({})),
        asked,
        transform("z", json!([2, 3]), "step.c"),
        transform("free", json!([]), "params.list"),
    ]);
    let inner = workflow("inner", json!([agent("i", json!([]), "plain", json!({}))]));
    let plan = plan(json!({"main": workflow("main", steps), "inner": inner}));
    let mut run = Driven::invoke(plan, json!({"list": [1], "n": 1}));
    run.finishes("a", json!({"ktsu_skip_reason": "nothing new"}));
    let envelope = run.envelope();
    assert_eq!(envelope["status"], "complete", "{envelope}");
    assert_eq!(run.step("a")["status"], "skipped");
    assert_eq!(run.step("a")["skip_reason"], "nothing new");
    assert_eq!(
        run.step("a")["output"],
        json!({"skipped": true, "reason": "nothing new"})
    );
    for id in ["w", "c", "d", "z"] {
        assert_eq!(run.step(id)["skip_reason"], "dependency_skipped", "{id}");
    }
    assert_eq!(run.step("free")["status"], "complete");
    assert_eq!(run.state.scopes().len(), 1, "no child was opened");
    assert!(
        !run.kinds()
            .iter()
            .any(|kind| kind == "step.output_checked a")
    );
    run.holds_together();
}

#[test]
fn an_empty_reason_skips_nothing() {
    for reason in [json!(""), json!(null), json!(7)] {
        let mut run = one(json!({}));
        run.finishes("a", json!({"ktsu_skip_reason": reason}));
        assert_eq!(run.step("a")["status"], "complete");
        run.holds_together();
    }
}

#[test]
fn the_air_lock_asks_the_agents_schema_and_then_the_steps() {
    let steps = || {
        let mut step = agent("a", json!([]), "strict", json!({"params": {"msg": "m"}}));
        step["schema"] = json!({"required": ["w", "ktsu_flags"]});
        json!([step])
    };
    for (said, problem) in [
        (json!({"w": 1}), Some("missing required field: v")),
        (
            json!({"v": "x", "w": 1}),
            Some("expected integer, got string at /v"),
        ),
        (json!({"v": 1}), Some("missing required field: w")),
        (json!({"v": 1, "w": 2, "extra": {"any": []}}), None),
    ] {
        let mut run = run_of(steps(), json!({}));
        run.finishes("a", said.clone());
        let step = run.step("a");
        match problem {
            None => assert_eq!(step["output"], said),
            Some(words) => {
                assert_eq!(step["error"]["code"], "schema_violation");
                let message = step["error"]["message"].as_str().unwrap();
                assert!(message.contains(words), "{message}");
                let raw = run.last("step.failed a")["raw_from"].clone();
                assert_eq!(raw["path"], "/outcome/output");
                assert_eq!(run.last("step.output_checked a")["valid"], false);
            }
        }
        run.holds_together();
    }
}

#[test]
fn an_outcome_without_an_output_fails_the_step_with_its_code() {
    let long = "x".repeat(65);
    for (outcome, code, words) in [
        (
            json!({"error": {"code": "provider_error", "message": "no", "retryable": true}}),
            "provider_error",
            "no",
        ),
        (
            json!({"error": {"code": "", "message": ""}}),
            "agent_failed",
            "the agent failed",
        ),
        (
            json!({"error": {"code": long, "message": "m"}}),
            "agent_failed",
            "m",
        ),
        (
            json!({"error": {"code": "Not a\ncode", "message": "m"}}),
            "agent_failed",
            "m",
        ),
        (json!({"error": "in a word"}), "agent_failed", "in a word"),
        (json!({"error": {}}), "agent_failed", "the agent failed"),
        (
            json!({"output": {}, "commands": [{"type": "review", "reason": "r"}]}),
            "command_not_permitted",
            "review",
        ),
        (
            json!({"output": {}, "commands": [{"type": "suspend", "reason": "r", "checkpoint": 1}]}),
            "command_not_permitted",
            "suspend",
        ),
        (
            json!({"output": {}, "commands": [{"type": "ask"}]}),
            "outcome_invalid",
            "/commands/0/type",
        ),
        (
            json!({"output": {}, "commands": {"type": "ask"}}),
            "outcome_invalid",
            "expected an array, got an object at /commands",
        ),
        (
            json!({"output": {}, "commands": [{"type": "review", "reason": "r"},
                {"type": "suspend", "reason": "s", "checkpoint": {}}]}),
            "outcome_invalid",
            "more than one",
        ),
        (
            json!({"output": {}, "commands": [{"type": "emit", "topic": "t", "payload": 1}]}),
            "command_not_permitted",
            "\"t\"",
        ),
        (
            json!({"output": {}, "events": [{"payload": 1}]}),
            "outcome_invalid",
            "/events/0",
        ),
        (json!({"output": [1]}), "output_invalid", "no JSON object"),
        (
            json!({"output": "text"}),
            "output_invalid",
            "no JSON object",
        ),
        (json!({}), "output_invalid", "no JSON object"),
    ] {
        let mut run = one(json!({}));
        run.says("a", &[Say::End(FinishReason::Error, outcome.clone(), None)]);
        let step = run.step("a");
        assert_eq!(step["error"]["code"], code, "{outcome}");
        let message = step["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
        assert_eq!(run.envelope()["error"]["step"], "a");
        run.holds_together();
    }
    let mut run = one(json!({}));
    let outcome = json!({"output": {}, "commands": [], "error": null, "events": [{"type": "e"}]});
    run.says("a", &[Say::End(FinishReason::Completed, outcome, None)]);
    assert_eq!(run.step("a")["status"], "complete");
}

#[test]
fn an_unusable_text_is_pointed_at() {
    let mut run = one(json!({}));
    let outcome = json!({"error": {"code": "output_invalid", "message": "m"}, "raw_output": "{"});
    run.says("a", &[Say::End(FinishReason::Error, outcome, None)]);
    let raw = run.last("step.failed a")["raw_from"].clone();
    assert_eq!(raw["path"], "/outcome/raw_output");
}

#[test]
fn a_draft_is_reflected_on_by_the_table() {
    let sure = json!({"ktsu_confidence": 0.8});
    let unsure = json!({"ktsu_confidence": 0.2});
    let fatal = json!({"ktsu_low_quality": true});
    for (file, threshold, draft, again) in [
        ("reflects", None, &sure, true),
        ("reflects", Some(500_000), &sure, true),
        ("doubts", None, &sure, true),
        ("doubts", Some(500_000), &sure, false),
        ("doubts", Some(800_000), &sure, false),
        ("doubts", Some(500_000), &unsure, true),
        ("doubts", Some(500_000), &json!({}), true),
        (
            "doubts",
            Some(500_000),
            &json!({"ktsu_confidence": "0.9"}),
            true,
        ),
        ("reflects", None, &fatal, false),
        ("plain", None, &sure, false),
    ] {
        let mut more = json!({});
        if let Some(threshold) = threshold {
            more["confidence_threshold_millionths"] = json!(threshold);
        }
        let mut run = run_of(json!([agent("a", json!([]), file, more)]), json!({}));
        run.asks("a");
        run.says("a", &[Say::Reply { cost: 1 }, Say::Draft(draft.clone())]);
        let told = run.kinds().last().unwrap() == "reflect.started a";
        assert_eq!(told, again, "{file} {threshold:?} {draft}");
        if again {
            run.says("a", &[Say::Ask(Purpose::Reflect)]);
            let better = json!({"v": 2, "ktsu_confidence": 0.9});
            run.says("a", &[Say::Reply { cost: 1 }, output(better)]);
            assert_eq!(run.step("a")["output"], json!({"v": 2}));
        } else {
            run.finishes("a", draft.clone());
        }
        run.holds_together();
    }
}

#[test]
fn the_threshold_judges_what_the_reflection_gave() {
    for (confidence, status) in [(0.9, "complete"), (0.1, "failed")] {
        let more = json!({"confidence_threshold_millionths": 500_000});
        let mut run = run_of(json!([agent("a", json!([]), "doubts", more)]), json!({}));
        run.says("a", &[Say::Draft(json!({"ktsu_confidence": 0.3}))]);
        run.says("a", &[Say::Ask(Purpose::Reflect)]);
        run.says(
            "a",
            &[
                Say::Reply { cost: 1 },
                output(json!({"ktsu_confidence": confidence})),
            ],
        );
        assert_eq!(run.step("a")["status"], status);
        run.holds_together();
    }
}

#[test]
fn params_that_cannot_be_made_fail_the_step_before_anything_is_sent_out() {
    for params in [json!({}), json!({"msg": "m", "n": "{{ params.text }}"})] {
        let step = agent("a", json!([]), "strict", json!({"params": params}));
        let run = run_of(json!([step]), json!({"text": "no number"}));
        assert_eq!(run.step("a")["error"]["code"], "invalid_params");
        assert!(!run.kinds().iter().any(|kind| kind.starts_with("worker")));
        run.holds_together();
    }
}

#[test]
fn an_output_at_the_edge_of_depth_is_kept_or_refused_in_words() {
    let nested = |levels: usize| {
        let mut value = json!(1);
        for _ in 0..levels {
            value = json!([value]);
        }
        json!({"deep": value})
    };
    // The outcome around it is one level, a list of results two.
    let mut run = one(json!({}));
    run.finishes("a", nested(62));
    assert_eq!(run.step("a")["output"], nested(62));
    run.holds_together();
    let each = json!({"from": "params.items"});
    for (levels, code) in [(61, json!(null)), (62, json!("max_failures_exceeded"))] {
        let step = crate::plans_tests::fan_out("f", json!([]), each.clone());
        let mut run = run_of(json!([step]), json!({"items": [1]}));
        run.finishes("f.0", nested(levels));
        assert_eq!(run.step("f")["error"]["code"], code);
        run.holds_together();
    }
}

#[test]
fn a_large_output_moves_out_of_its_frame_and_is_read_back() {
    let steps = json!([
        agent("a", json!([]), "plain", json!({})),
        agent(
            "b",
            json!([0]),
            "plain",
            json!({"params": {"t": "re: {{ step.a.text }}"}})
        ),
    ]);
    let mut run = run_of(steps, json!({}));
    let text = "x".repeat(300 * 1024);
    run.does("a", json!({"text": text, "ktsu_rationale": text}));
    let message = "y".repeat(300 * 1024);
    run.errs("b", "provider_error", &message);
    assert_eq!(run.step("a")["output"]["text"], text);
    let told = run.step("b")["error"]["message"].as_str().unwrap().len();
    assert!(
        (8_000..9_000).contains(&told),
        "the whole stands in agent.finished: {told}"
    );
    run.holds_together_every(3);
    // Texts and names of any length, wherever an agent may put them.
    let names: serde_json::Map<String, Value> = (0..4_500)
        .map(|n| (format!("ktsu_name_{n}"), json!(1)))
        .collect();
    let long = "é".repeat(100 * 1024);
    for said in [
        json!({"ktsu_skip_reason": long}),
        json!({"ktsu_flags": [long]}),
        json!(names),
    ] {
        for item in [false, true] {
            let step = match item {
                true => fan_out("f", json!([]), json!({"from": "params.items"})),
                false => agent("f", json!([]), "plain", json!({})),
            };
            let mut run = run_of(json!([step]), json!({"items": [1]}));
            run.finishes(if item { "f.0" } else { "f" }, said.clone());
            assert_eq!(run.envelope()["status"], "complete");
            run.holds_together_every(4);
        }
    }
}

//! Lost workers, reports that come late or twice, and the end of the run's time.

use ktsu_ledger::event::{AgentEvent, LostReason, Purpose};
use serde_json::{Value, json};

use crate::admit::report::ReportAdmission;
use crate::driven_tests::history_tests::refolded;
use crate::driven_tests::{Driven, Say, output};
use crate::effects::tasks_due;
use crate::plans_tests::{agent, child, fan_out, plan, run_of, run_under, webhook, workflow};

const HEARTBEAT: LostReason = LostReason::Heartbeat;

fn one() -> Driven {
    run_of(
        json!([agent("a", json!([]), "plain", json!({}))]),
        json!({}),
    )
}

fn ask() -> Vec<Say> {
    vec![Say::Ask(Purpose::Turn)]
}

#[test]
fn a_lost_task_is_sent_out_again_with_its_call_unanswered() {
    let mut run = one();
    run.asks("a");
    let asked = run.task("a").open_call.clone().unwrap();
    assert!(run.loses("a", HEARTBEAT, true));
    assert_eq!(run.kinds()[5..], ["worker.lost a", "worker.dispatched a"]);
    assert_eq!(run.task("a").attempt, 2);
    assert_eq!(
        run.task("a").open_call,
        Some(asked),
        "to be answered, not asked again"
    );
    let again = run.reports("a", 2, 1, &ask());
    assert!(matches!(again, ReportAdmission::Malformed(_)), "{again:?}");
    run.says("a", &[Say::Reply { cost: 3 }]);
    assert_eq!(run.last("llm.response a")["request"], 4);
    run.finishes("a", json!({"v": 1}));
    assert_eq!(run.step("a")["attempt"], 2);
    assert_eq!(run.envelope()["totals"]["llm_calls"], 1);
    run.holds_together();
}

#[test]
fn a_new_attempt_begins_its_requests_afresh() {
    let mut run = one();
    run.asks("a");
    run.replies("a", 1);
    run.loses("a", HEARTBEAT, true);
    run.asks("a");
    assert_eq!(run.last("llm.request a").get("base"), None);
    run.replies("a", 1);
    run.asks("a");
    assert_eq!(run.last("llm.request a")["base"], 8);
    run.says("a", &[Say::Reply { cost: 1 }, output(json!({}))]);
    run.holds_together();
}

#[test]
fn the_fourth_loss_is_the_last_and_restarts_are_not_counted() {
    for name in ["a", "f.0"] {
        let steps = match name {
            "a" => json!([agent("a", json!([]), "plain", json!({}))]),
            _ => json!([fan_out("f", json!([]), json!({"from": "params.items"}))]),
        };
        let mut run = run_of(steps, json!({"items": [1]}));
        for _ in 0..3 {
            assert!(run.loses(name, HEARTBEAT, true));
            assert!(run.loses(name, LostReason::Restart, true));
        }
        assert_eq!(run.task(name).attempt, 7);
        run.loses(name, LostReason::Instance, true);
        assert_eq!(
            run.last(&format!("agent.finished {name}"))["reason"],
            "error"
        );
        let code = run.envelope()["error"]["code"].clone();
        match name {
            "a" => assert_eq!(code, "heartbeat_timeout"),
            _ => assert_eq!(run.last("item.failed f.0")["code"], "heartbeat_timeout"),
        }
        run.is_whole();
    }
}

#[test]
fn without_a_runtime_that_is_alive_the_first_loss_is_the_last() {
    let mut run = one();
    run.asks("a");
    run.loses("a", HEARTBEAT, false);
    assert_eq!(run.step("a")["error"]["code"], "heartbeat_timeout");
    assert_eq!(run.envelope()["status"], "failed");
    run.holds_together();
}

#[test]
fn a_loss_that_is_no_news_is_dropped() {
    let mut run = one();
    run.finishes("a", json!({}));
    assert!(!run.loses("a", HEARTBEAT, true));
    let state = run.state.clone();
    let (scope, news) = {
        let mut run = one();
        run.asks("a");
        crate::admit::report::losses(&run.state).remove(0)
    };
    assert!(crate::admit::report::lost(&state, &scope, news).is_none());
}

#[test]
fn a_draft_that_waits_for_its_answer_gets_it_in_the_next_attempt() {
    let steps = json!([agent("a", json!([]), "reflects", json!({}))]);
    let mut run = run_of(steps, json!({}));
    run.says("a", &[Say::Draft(json!({"v": 1}))]);
    assert_eq!(run.kinds().last().unwrap(), "reflect.started a");
    // Between the draft and the answer the log is cut, and the loss comes first.
    let cut = run.frames.len() - 1;
    let (state, details) = refolded(&run.frames[..cut]);
    let mut again = Driven {
        state,
        details,
        frames: run.frames[..cut].to_vec(),
        ..run_of(
            json!([agent("a", json!([]), "reflects", json!({}))]),
            json!({}),
        )
    };
    again.now = run.now;
    let (scope, news) = crate::admit::report::losses(&again.state).remove(0);
    let draft = crate::admit::report::lost(&again.state, &scope, news).unwrap();
    again.input(draft);
    assert_eq!(
        again.kinds().last().unwrap(),
        "reflect.started a",
        "{:?}",
        again.kinds()
    );
    run.says("a", &[Say::Ask(Purpose::Reflect)]);
    run.loses("a", HEARTBEAT, true);
    run.says("a", &[Say::Reply { cost: 1 }, output(json!({"v": 2}))]);
    run.holds_together();
}

#[test]
fn a_report_is_taken_once_and_answered_again_as_it_was() {
    let mut run = one();
    run.asks("a");
    let end = [Say::Reply { cost: 1 }, output(json!({}))];
    let again = run.reports("a", 1, 1, &ask());
    assert!(
        matches!(again, ReportAdmission::Repeated { first: 4, last: 4 }),
        "{again:?}"
    );
    let other = run.reports("a", 1, 1, &end);
    assert!(
        matches!(other, ReportAdmission::Stale),
        "other bytes: {other:?}"
    );
    let early = run.reports("a", 2, 1, &end);
    assert!(
        matches!(early, ReportAdmission::Stale),
        "another attempt: {early:?}"
    );
    run.says("a", &end);
    let again = run.reports("a", 1, 2, &end);
    assert!(
        matches!(again, ReportAdmission::Repeated { first: 5, last: 6 }),
        "{again:?}"
    );
    let late = run.reports("a", 1, 3, &end);
    assert!(
        matches!(late, ReportAdmission::Stale),
        "after the end: {late:?}"
    );
    run.holds_together();
}

#[test]
fn reports_of_a_lost_attempt_are_stale() {
    let mut run = one();
    run.asks("a");
    run.loses("a", HEARTBEAT, true);
    for (n, says) in [(1, ask()), (2, vec![Say::Reply { cost: 1 }])] {
        let judged = run.reports("a", 1, n, &says);
        assert!(matches!(judged, ReportAdmission::Stale), "{judged:?}");
    }
    run.says("a", &[Say::Reply { cost: 1 }, output(json!({}))]);
    run.is_whole();
}

#[test]
fn a_report_about_nothing_is_stale() {
    let mut run = run_of(
        json!([fan_out(
            "f",
            json!([]),
            json!({"from": "params.items", "concurrency": 1})
        )]),
        json!({"items": [1, 2]}),
    );
    let drafts = |run: &Driven, scope: &str, change: &dyn Fn(&mut Value)| {
        let mut data = json!({"attempt": 1, "draft": {}, "item": 0, "step": "f",
            "report": {"digest": "d", "n": 1}});
        change(&mut data);
        let event = ktsu_ledger::event::AgentEvent::Decided(serde_json::from_value(data).unwrap());
        crate::admit::report::report(&run.state, scope, vec![event], &Default::default())
    };
    for (scope, name, value) in [
        ("", "item", json!(1)),
        ("", "item", json!(9)),
        ("", "item", json!(null)),
        ("", "step", json!("g")),
        ("c", "step", json!("f")),
        ("", "attempt", json!(0)),
    ] {
        let judged = drafts(&run, scope, &|data| data[name] = value.clone());
        assert!(
            matches!(judged, ReportAdmission::Stale),
            "{scope} {name} {value}: {judged:?}"
        );
    }
    let judged = drafts(&run, "", &|_| {});
    assert!(matches!(judged, ReportAdmission::Accepted(_)), "{judged:?}");
    let empty = crate::admit::report::report(&run.state, "", Vec::new(), &Default::default());
    assert!(matches!(empty, ReportAdmission::Malformed(_)));
    run.finishes("f.0", json!({}));
    run.finishes("f.1", json!({}));
    run.is_whole();
}

#[test]
fn what_does_not_follow_is_refused_in_words_and_changes_nothing() {
    let mut run = run_of(
        json!([agent("a", json!([]), "reflects", json!({}))]),
        json!({}),
    );
    let draft = || Say::Draft(json!({"v": 1}));
    let reply = || Say::Reply { cost: 1 };
    for says in [
        vec![reply()],
        vec![Say::Ask(Purpose::Turn), reply()],
        vec![Say::Ask(Purpose::Reflect)],
        vec![output(json!({})), output(json!({}))],
        vec![draft(), draft()],
        vec![draft(), output(json!({}))],
    ] {
        let judged = run.reports("a", 1, 1, &says);
        assert!(
            matches!(judged, ReportAdmission::Malformed(_)),
            "{says:?}: {judged:?}"
        );
    }
    run.asks("a");
    for says in [ask(), vec![draft()]] {
        let judged = run.reports("a", 1, 2, &says);
        assert!(
            matches!(judged, ReportAdmission::Malformed(_)),
            "{says:?}: {judged:?}"
        );
    }
    run.says("a", &[reply(), draft()]);
    for says in [ask(), vec![Say::Ask(Purpose::Repair)], vec![draft()]] {
        let judged = run.reports("a", 1, 3, &says);
        assert!(
            matches!(judged, ReportAdmission::Malformed(_)),
            "{says:?}: {judged:?}"
        );
    }
    run.says("a", &[Say::Ask(Purpose::Reflect)]);
    run.says("a", &[reply()]);
    let twice = run.reports("a", 1, 5, &[Say::Ask(Purpose::Reflect)]);
    assert!(
        matches!(twice, ReportAdmission::Malformed(_)),
        "one reflection: {twice:?}"
    );
    run.finishes("a", json!({"v": 2}));
    run.holds_together();
}

#[test]
fn a_name_that_no_frame_would_hold_is_refused() {
    let mut run = one();
    let request = |length: usize| {
        let data = json!({"attempt": 1, "digest": "", "group": "g".repeat(length),
            "max_tokens": 1, "messages": [], "purpose": "turn", "step": "a",
            "report": {"digest": "d", "n": 1}});
        AgentEvent::Request(serde_json::from_value(data).unwrap())
    };
    for (length, taken) in [(256, true), (257, false), (100_000, false)] {
        let judged = crate::admit::report::report(
            &run.state,
            "",
            vec![request(length)],
            &Default::default(),
        );
        assert_eq!(
            matches!(judged, ReportAdmission::Accepted(_)),
            taken,
            "{length}"
        );
        assert_eq!(
            matches!(judged, ReportAdmission::Malformed(_)),
            !taken,
            "{length}"
        );
    }
    run.finishes("a", json!({}));
    run.is_whole();
}

#[test]
fn a_report_that_mixes_tasks_is_refused() {
    let mut run = run_of(
        json!([
            agent("a", json!([]), "plain", json!({})),
            agent("b", json!([]), "plain", json!({}))
        ]),
        json!({}),
    );
    let event = |step: &str| {
        let data = json!({"attempt": 1, "outcome": {}, "reason": "error", "step": step,
            "report": {"digest": "d", "n": 1}});
        let end = serde_json::from_value(data).unwrap();
        ktsu_ledger::event::AgentEvent::Finished(Box::new(end))
    };
    let AgentEvent::Finished(end) = event("b") else {
        panic!("it is the end of b");
    };
    let answer = json!({"attempt": 1, "cost_micro_usd": 0, "duration_ms": 0, "input_hash": "",
        "model": "", "output_hash": "", "provider": "", "report": {"digest": "d", "n": 2},
        "request": 5, "step": "a", "tokens_in": 0, "tokens_out": 0});
    run.asks("a");
    let mut end = end;
    end.report = Some(serde_json::from_value(json!({"digest": "d", "n": 2})).unwrap());
    let answer = AgentEvent::Response(Box::new(serde_json::from_value(answer).unwrap()));
    assert_eq!(
        run.task("a").open_call.as_ref().map(|call| call.seq),
        Some(6)
    );
    let AgentEvent::Response(mut answer) = answer else {
        panic!("it is an answer");
    };
    answer.request = 6;
    let events = vec![AgentEvent::Response(answer), AgentEvent::Finished(end)];
    let judged = crate::admit::report::report(&run.state, "", events, &Default::default());
    assert!(
        matches!(judged, ReportAdmission::Malformed(_)),
        "{judged:?}"
    );
    run.finishes("a", json!({}));
    run.finishes("b", json!({}));
    run.is_whole();
}

#[test]
fn a_complete_means_a_whole_task() {
    let mut run = one();
    let metrics = ktsu_ledger::event::ClaimedMetrics {
        cost_micro_usd: 40,
        llm_calls: 2,
        tokens_in: 7,
        ..Default::default()
    };
    run.completes("a", json!({"v": 1, "ktsu_flags": []}), metrics);
    assert_eq!(run.envelope()["totals"]["llm_calls"], 2);
    assert_eq!(run.envelope()["totals"]["cost_micro_usd"], 40);
    assert_eq!(run.state.spend().cost_micro_usd, 40);
    assert_eq!(run.step("a")["output"], json!({"v": 1}));
    let outcome = json!({"output": {"v": 1, "ktsu_flags": []}});
    let other = run.reports(
        "a",
        1,
        0,
        &[Say::End(
            ktsu_ledger::event::FinishReason::Completed,
            outcome,
            None,
        )],
    );
    assert!(
        matches!(other, ReportAdmission::Stale),
        "other metrics: {other:?}"
    );
    run.holds_together();
}

fn everywhere() -> Driven {
    let inner = workflow(
        "inner",
        json!([
            agent("i", json!([]), "plain", json!({})),
            fan_out(
                "g",
                json!([]),
                json!({"from": "params.items", "concurrency": 1})
            ),
        ]),
    );
    let steps = json!([
        agent("a", json!([]), "plain", json!({})),
        fan_out("f", json!([]), json!({"from": "params.items"})),
        child(
            "c",
            json!([]),
            "inner",
            json!({"items": "{{ params.items }}"})
        ),
        webhook("w", json!([]), "http://x/"),
        agent("late", json!([0]), "plain", json!({})),
    ]);
    let mut main = workflow("main", steps);
    main["policy"] = json!({"timeout_ms": 60_000});
    let plan = plan(json!({"main": main, "inner": inner}));
    Driven::invoke(plan, json!({"items": [1, 2], "n": 1}))
}

#[test]
fn when_the_time_is_over_everything_under_way_ends() {
    let mut run = everywhere();
    run.asks("a");
    run.finishes("f.1", json!({}));
    run.asks("c/g.0");
    let before = run.frames.len();
    run.times_out();
    for task in [
        "agent.finished a",
        "agent.finished f.0",
        "c:agent.finished i",
        "c:agent.finished g.0",
    ] {
        assert_eq!(run.last(task)["reason"], "timeout", "{task}");
    }
    let error = &run.envelope()["error"];
    assert_eq!(error["code"], "run_timeout");
    let words = "the run took longer than its model_policy.timeout_s of 60";
    assert_eq!(error["message"], words);
    assert_eq!(run.step("late")["skip_reason"], "run_failed");
    let after = run.kinds_from(before);
    assert_eq!(after.last().unwrap(), "run.failed");
    assert!(
        !after.contains(&"agent.finished f.1".to_owned()),
        "it had ended"
    );
    for (task, n) in [("a", 2), ("c/g.0", 2)] {
        let late = run.reports(task, 1, n, &[Say::Reply { cost: 1 }]);
        assert!(matches!(late, ReportAdmission::Stale), "{late:?}");
    }
    run.holds_together();
}

#[test]
fn a_failure_elsewhere_stops_what_is_under_way() {
    let mut run = everywhere();
    run.asks("f.0");
    run.errs("c/i", "provider_error", "no");
    for task in [
        "agent.finished a",
        "agent.finished f.0",
        "agent.finished f.1",
        "c:agent.finished g.0",
    ] {
        assert_eq!(run.last(task)["reason"], "stopped", "{task}");
    }
    assert_eq!(run.last("c:item.failed g.0")["code"], "stopped");
    assert_eq!(run.step("a")["error"]["code"], "stopped");
    assert_eq!(run.envelope()["error"]["step"], "c/i");
    assert_eq!(run.step("c")["error"]["code"], "provider_error");
    run.holds_together();
}

#[test]
fn losses_that_are_many_stay_within_the_turns() {
    let items: Vec<u32> = (0..200).collect();
    let each = json!({"from": "params.items", "max_failures": -1});
    let mut run = run_under(
        json!({"timeout_ms": 1_000_000}),
        json!([fan_out("f", json!([]), each)]),
        json!({"items": items}),
    );
    run.restarts();
    assert_eq!(tasks_due(&run.state).count(), 200);
    for item in 0..200 {
        assert_eq!(run.task(&format!("f.{item}")).attempt, 2);
    }
    run.times_out();
    run.is_whole();
}

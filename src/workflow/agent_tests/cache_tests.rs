//! Which recorded reply answers a request, and what becomes of requests under way.

use ktsu_ledger::event::Effects;
use ktsu_ledger::event::{AgentEvent, LlmRequest, LostReason, Purpose};
use ktsu_ledger::{CanonicalJson, Event};
use ktsu_projections::run::RunState;
use serde_json::{Value, json};

use crate::admit::intervention::resume;
use crate::admit::report::{ReportAdmission, report};
use crate::driven_tests::{Driven, Say, data, output};
use crate::plans_tests::{agent, fan_out, merge, run_of, run_under};

fn cached(id: &str, needs: Value) -> Value {
    agent(id, needs, "plain", json!({"cache": true}))
}

fn cached_fan_out(id: &str, each: Value) -> Value {
    let mut step = fan_out(id, json!([]), each);
    merge(&mut step["work"]["agent"], json!({"cache": true}));
    step
}

/// Two steps after each other whose model requests are identical.
fn two() -> Driven {
    run_of(
        json!([cached("a", json!([])), cached("b", json!([0]))]),
        json!({}),
    )
}

fn ask() -> [Say; 1] {
    [Say::Ask(Purpose::Turn)]
}

/// The number of the last frame of a type.
fn seq(run: &Driven, wanted: &str) -> u64 {
    let kinds = run.kinds();
    kinds.iter().rposition(|kind| kind == wanted).unwrap() as u64
}

/// Reports a request that is changed before.
fn asks_for(run: &mut Driven, name: &str, change: impl Fn(&mut LlmRequest)) {
    let (attempt, n) = (run.task(name).attempt, 1);
    let mut events = run.events(name, attempt, n, &ask());
    if let [AgentEvent::Request(request)] = events.as_mut_slice() {
        change(request);
    }
    match report(&run.state, "", events, &Default::default()) {
        ReportAdmission::Accepted(drafts) => run.inputs(drafts),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_identical_request_is_answered_in_its_turn_by_the_frame_of_the_first_reply() {
    let mut run = two();
    run.does("a", json!({"v": 1}));
    let first = seq(&run, "llm.response a");
    let before = run.frames.len();
    run.asks("b");
    assert_eq!(run.kinds_from(before), ["llm.request b", "llm.response b"]);
    let response = run.last("llm.response b");
    let original = run.last("llm.response a");
    let saved = json!({"cost_micro_usd": 10, "tokens_in": 10, "tokens_out": 5});
    for (member, value) in [
        ("cached", json!(true)),
        ("repeats", json!(first)),
        ("cost_micro_usd", json!(0)),
        ("tokens_in", json!(0)),
        ("saved", saved),
        ("output_hash", original["output_hash"].clone()),
        ("report", Value::Null),
        ("content", Value::Null),
    ] {
        assert_eq!(response[member], value, "{member}");
    }
    run.finishes("b", json!({"v": 1}));
    let totals = &run.envelope()["totals"];
    let seen = [
        "llm_calls",
        "cached_calls",
        "cost_micro_usd",
        "saved_micro_usd",
    ];
    assert_eq!(
        seen.map(|name| totals[name].as_u64()),
        [2, 1, 10, 10].map(Some)
    );
    run.holds_together();
}

#[test]
fn a_step_that_declares_nothing_asks_and_its_frames_say_nothing_of_it() {
    let steps = json!([
        agent("a", json!([]), "plain", json!({})),
        agent("b", json!([0]), "plain", json!({}))
    ]);
    let mut run = run_of(steps, json!({}));
    run.does("a", json!({}));
    run.does("b", json!({}));
    for (kind, members) in [
        ("llm.request b", ["routing", "cached"]),
        ("llm.response b", ["repeats", "saved"]),
    ] {
        let data = run.last(kind);
        assert!(
            members.iter().all(|name| data.get(name).is_none()),
            "{data}"
        );
    }
    let totals = &run.envelope()["totals"];
    assert_eq!(totals.get("cached_calls"), None);
    run.holds_together();
}

#[test]
fn a_request_that_differs_in_anything_asks_for_itself() {
    let text = |text: &str| CanonicalJson::parse(text.as_bytes()).unwrap();
    let hot = r#"[{"role":"user","content":"ho"}]"#;
    let tools = r#"[{"digest":"d","name":"t","server":"s","tool":"t"}]"#;
    type Change<'a> = Box<dyn Fn(&mut LlmRequest) + 'a>;
    let changes: [(&str, Change<'_>); 6] = [
        ("group", Box::new(|one| one.group = "large".to_owned())),
        ("tokens", Box::new(|one| one.max_tokens = 101)),
        ("messages", Box::new(|one| one.messages = text(hot))),
        ("tools", Box::new(|one| one.tools = Some(text(tools)))),
        (
            "routing",
            Box::new(|one| one.routing = Some("hotter".to_owned())),
        ),
        ("unknown routing", Box::new(|one| one.routing = None)),
    ];
    for (what, change) in changes {
        let mut run = two();
        run.does("a", json!({}));
        asks_for(&mut run, "b", change);
        assert!(run.task("b").open_call.is_some(), "{what}");
        run.replies("b", 1);
        assert_eq!(run.last("llm.response b").get("repeats"), None, "{what}");
    }
    let mut same = two();
    same.does("a", json!({}));
    asks_for(&mut same, "b", |_| {});
    assert_eq!(
        same.task("b").open_call,
        None,
        "what is changed above decides"
    );
}

#[test]
fn an_error_is_never_repeated() {
    let mut run = run_of(
        json!([cached_fan_out(
            "f",
            json!({"concurrency": 1, "from": "params.items", "max_failures": -1})
        )]),
        json!({"items": [1, 2, 3]}),
    );
    run.asks("f.0");
    run.says("f.0", &[Say::NoReply { cost: 1 }]);
    run.errs("f.0", "internal_error", "m");
    run.does("f.1", json!({"v": 1}));
    assert_eq!(run.last("llm.response f.1").get("repeats"), None);
    let first = seq(&run, "llm.response f.1");
    run.asks("f.2");
    assert_eq!(run.last("llm.response f.2")["repeats"], json!(first));
    run.finishes("f.2", json!({"v": 1}));
    run.holds_together();
}

#[test]
fn a_request_waits_while_an_identical_one_is_under_way_and_asks_if_that_fails() {
    let each = json!({"from": "params.items", "max_failures": -1});
    let mut run = run_of(
        json!([cached_fan_out("f", each)]),
        json!({"items": [1, 2, 3]}),
    );
    run.asks("f.0");
    for waits in ["f.1", "f.2"] {
        let held = run.reports(waits, 1, 1, &ask());
        assert!(matches!(held, ReportAdmission::Deferred(_)), "{held:?}");
    }
    let before = run.state.replies().generation();
    run.says("f.0", &[Say::NoReply { cost: 1 }]);
    assert_ne!(
        run.state.replies().generation(),
        before,
        "they are looked at again"
    );
    run.asks("f.1");
    let held = run.reports("f.2", 1, 1, &ask());
    assert!(matches!(held, ReportAdmission::Deferred(_)), "{held:?}");
    run.replies("f.1", 7);
    run.asks("f.2");
    assert_eq!(run.last("llm.response f.2")["saved"]["cost_micro_usd"], 7);
    run.errs("f.0", "internal_error", "m");
    run.finishes("f.1", json!({}));
    run.finishes("f.2", json!({}));
    run.holds_together();
}

/// Whoever waits for a request must not wait for one that nobody makes any more.
#[test]
fn a_request_does_not_wait_for_one_whose_task_has_ended() {
    let each = json!({"from": "params.items", "max_failures": -1});
    let mut run = run_of(json!([cached_fan_out("f", each)]), json!({"items": [1, 2]}));
    run.asks("f.0");
    run.errs("f.0", "timeout", "m");
    run.asks("f.1");
    assert!(run.task("f.1").open_call.is_some());
    run.replies("f.1", 1);
    run.finishes("f.1", json!({}));
    run.holds_together();
}

#[test]
fn a_budget_that_is_used_up_does_not_refuse_what_a_recorded_reply_answers() {
    let steps = json!([cached("a", json!([])), cached("b", json!([0]))]);
    let mut run = run_under(json!({"cost_budget_micro_usd": 10}), steps, json!({}));
    run.does("a", json!({}));
    run.asks("b");
    assert_eq!(run.last("llm.response b")["cached"], json!(true));
    run.finishes("b", json!({}));
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn tools_that_a_repeated_reply_asks_for_are_called_for_its_own_task() {
    let acts = |id: &str, needs: Value| agent(id, needs, "acts", json!({"cache": true}));
    let mut run = run_of(
        json!([acts("a", json!([])), acts("b", json!([0]))]),
        json!({}),
    );
    let call = || Say::Call(0, "s".to_owned(), "read-x".to_owned());
    let tools = vec![("s", "read-x")];
    run.says("a", &[Say::Offer(tools.clone())]);
    run.says("a", &[Say::Wants(vec!["read-x"])]);
    run.says("a", &[call()]);
    run.says("a", &[Say::Result(0)]);
    run.does("a", json!({"v": 1}));
    run.says("b", &[Say::Offer(tools)]);
    let again = run.last("llm.response b");
    let first = again["repeats"].as_u64().unwrap() as usize;
    assert_eq!(again["tool_calls"], data(&run.frames[first])["tool_calls"]);
    run.says("b", &[Say::Decide]);
    run.says("b", &[call()]);
    let own = run.last("tool.called b");
    let other = run.last("tool.called a");
    assert_ne!(own["idempotency_key"], other["idempotency_key"]);
    run.says("b", &[Say::Result(0)]);
    // The result is the same, and so the next request is: its context is known by digests.
    run.asks("b");
    assert!(run.last("llm.response b")["repeats"].is_u64());
    run.finishes("b", json!({"v": 1}));
    run.is_whole();
}

#[test]
fn a_task_that_a_runtime_lost_asks_for_itself_and_one_after_a_restart_does_not() {
    for (reason, repeats) in [(LostReason::Heartbeat, false), (LostReason::Restart, true)] {
        let mut run = two();
        run.does("a", json!({}));
        assert!(run.loses("b", reason, true));
        run.asks("b");
        assert_eq!(run.task("b").open_call.is_none(), repeats, "{reason:?}");
    }
}

#[test]
fn a_step_that_a_person_begins_again_asks_for_itself() {
    let mut run = two();
    run.does("a", json!({}));
    run.asks("b");
    run.finishes("b", json!({}));
    let by = run.state.created().principal.clone();
    let at = run.state.at();
    let again = resume(&run.state, Some("b".to_owned()), by, None, at);
    run.input(again.unwrap());
    run.asks("b");
    assert!(run.task("b").open_call.is_some());
}

#[test]
fn a_recompute_and_a_run_without_cache_ask_every_time() {
    let mut run = two();
    run.does("a", json!({}));
    run.asks("b");
    run.finishes("b", json!({}));
    let mut again = run.recompute();
    again.asks("a.0");
    again.replies("a.0", 3);
    again.asks("b.0");
    assert!(again.task("b.0").open_call.is_some());
    let mut off = run.frames[0].clone();
    if let Event::Run(ktsu_ledger::event::RunEvent::Created(created)) = &mut off.event {
        created.no_cache = true;
    }
    let state = RunState::fold([&off]).unwrap();
    assert!(!state.repeats_replies() && run.state.repeats_replies());
}

#[test]
fn a_branch_has_the_replies_it_shares_and_its_own_which_no_one_else_has() {
    let steps = json!([
        cached("a", json!([])),
        cached("b", json!([0])),
        cached("c", json!([1]))
    ]);
    let mut run = run_of(steps, json!({}));
    run.does("a", json!({}));
    // b of the branch is asked something new, c the same as b.
    let fork = run.frames.len();
    let other = |one: &mut LlmRequest| one.max_tokens = 7;
    let branch = |run: &Driven| run.branch(fork, Effects::Suppress);
    let (mut one, mut two) = (branch(&run), branch(&run));
    for sibling in [&mut one, &mut two] {
        asks_for(sibling, "b", other);
        assert!(
            sibling.task("b").open_call.is_some(),
            "the other branch's is its own"
        );
        sibling.replies("b", 5);
        sibling.finishes("b", json!({}));
        asks_for(sibling, "c", other);
        assert_eq!(sibling.last("llm.response c")["saved"]["cost_micro_usd"], 5);
    }
    asks_for(&mut run, "b", other);
    assert!(
        run.task("b").open_call.is_some(),
        "nor does the run have it"
    );
    let mut third = branch(&run);
    third.asks("b");
    assert!(
        third.last("llm.response b")["repeats"].is_u64(),
        "what it shares answers"
    );
}

#[test]
fn a_repeated_reply_that_names_another_frame_does_not_follow() {
    let mut run = two();
    run.does("a", json!({}));
    run.asks("b");
    let (response, before) = run.frames.split_last().unwrap();
    let state = RunState::fold(before).unwrap();
    assert!(state.clone().apply(response).is_ok());
    type Change = fn(&mut ktsu_ledger::event::LlmResponse);
    let changes: [Change; 5] = [
        |one| one.repeats = Some(1),
        |one| one.output_hash = "sha256:0".to_owned(),
        |one| one.cost_micro_usd = 1,
        |one| one.saved = None,
        |one| one.content = Some(CanonicalJson::string("other")),
    ];
    for change in changes {
        let mut forged = response.clone();
        if let Event::Agent(AgentEvent::Response(response)) = &mut forged.event {
            change(response);
        }
        assert!(state.clone().apply(&forged).is_err());
    }
}

#[test]
fn a_runtime_that_answers_a_request_by_itself_is_refused_where_a_reply_is_repeated() {
    let mut run = two();
    run.does("a", json!({}));
    run.asks("b");
    let own = run.reports("b", 1, 2, &[Say::Reply { cost: 1 }, output(json!({}))]);
    assert!(matches!(own, ReportAdmission::Malformed(_)), "{own:?}");
}

//! Runs whose responders ask models and have workflows do something.

use ktsu_ledger::Frame;
use ktsu_ledger::event::{AgentEvent, LostReason, Purpose};
use ktsu_projections::world::activity::is_world_frame;
use serde_json::{Value, json};

use super::admit::report::{ReportAdmission, report};
use super::driven_tests::{Driven, Say, data, output};
use super::plans_tests::{agent, merge, plan, transform, workflow};

/// A goal becomes a topic, about which a model is asked. What it says is put into the topic.
fn asking(ask: Value, more: Value) -> Value {
    let mut question = json!({"group": "std", "max_tokens": 10, "messages": [
        {"role": "system", "content": "You know the sea."},
        {"role": "user", "content": "What are {{ object.data.text }}?"}]});
    merge(&mut question, ask);
    let mut asks = json!({"name": "asks", "on": ["object.created"], "type": ["Topic"],
        "work": {"ask": question},
        "then": [{"make": {"patch": {"id": "{{ object.id }}",
            "data": {"known": "{{ reply.text }}"}}}}]});
    merge(&mut asks, more);
    asks
}

fn world(responders: Value, budget: Value) -> Value {
    let mut world = json!({
        "name": "w", "version": "1.0.0",
        "budget": {"max_events": 1000, "max_llm_cost_micro_usd": 1_000_000,
            "max_recursion_depth": 50, "max_wall_ms": 100_000},
        "goal": [{"make": {"object": {"type": "Topic", "data": {"text": "{{ goal }}"}}}}],
        "objects": {"Topic": {}, "Note": {}},
        "responders": responders,
    });
    merge(&mut world["budget"], budget);
    world
}

fn run_of(world: Value, workflows: Value) -> Driven {
    let mut all = json!({"main": workflow("main", json!([]))});
    merge(&mut all, workflows);
    let mut plan = plan(all);
    plan["worlds"] = json!({"worlds/w.world.yaml": world});
    Driven::invoke(plan, json!({"goal": "tides", "x": [1]}))
}

fn run(responders: Value) -> Driven {
    run_of(world(responders, json!({})), json!({}))
}

/// Addresses of what is asked and has not ended.
fn open(run: &Driven) -> Vec<String> {
    let tasks = run.state.responding().unwrap().tasks();
    tasks.map(|task| task.context.address.to_string()).collect()
}

fn the_topic(run: &Driven) -> Value {
    let head = run.state.responding().unwrap().head();
    head.of_type("Topic").next().unwrap().data.to_value()
}

fn world_frames(run: &Driven) -> Vec<&str> {
    let frames = run.frames.iter().filter(|frame| is_world_frame(frame));
    frames.map(|frame| frame.event.kind()).collect()
}

fn ends(run: &Driven, count: usize) -> Vec<String> {
    let kinds = run.kinds();
    kinds[kinds.len() - count..].to_vec()
}

#[test]
fn a_model_is_asked_and_its_reply_is_reacted_to() {
    let mut run = run(json!([asking(json!({}), json!({}))]));
    let [address] = &open(&run)[..] else {
        panic!("{:?}", run.kinds());
    };
    assert!(address.starts_with("@asks."), "{address}");
    run.does(address, json!("the breath of the sea"));
    assert_eq!(
        world_frames(&run),
        [
            "object.created",
            "llm.request",
            "llm.response",
            "object.patched"
        ]
    );
    assert_eq!(
        the_topic(&run),
        json!({"text": "tides", "known": "the breath of the sea"})
    );
    assert_eq!(ends(&run, 3)[0], "responder.completed");
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.holds_together();
}

#[test]
fn frames_about_what_a_responder_asks_name_the_responder_and_no_step() {
    let mut run = run(json!([asking(json!({}), json!({}))]));
    let address = open(&run).remove(0);
    run.does(&address, json!("yes"));
    for kind in [
        "worker.dispatched",
        "llm.request",
        "llm.response",
        "agent.finished",
    ] {
        let frame = run.frames.iter().find(|frame| frame.event.kind() == kind);
        let data = super::driven_tests::data(frame.unwrap());
        assert_eq!(data["responder"], json!(address), "{data}");
        assert_eq!(data.get("step"), None);
    }
}

#[test]
fn a_reply_with_a_schema_passes_reserved_fields_and_the_air_lock() {
    let schema = json!({"output": {"type": "object", "required": ["tide"],
        "properties": {"tide": {"type": "string"}}}});
    let then = json!({"then": [{"make": {"patch": {"id": "{{ object.id }}",
        "data": {"known": "{{ reply.output.tide }}"}}}}]});
    let asked = || {
        let run = run(json!([asking(schema.clone(), then.clone())]));
        let address = open(&run).remove(0);
        (run, address)
    };
    let (mut good, address) = asked();
    good.does(&address, json!({"tide": "high", "ktsu_flags": ["old"]}));
    assert_eq!(the_topic(&good)["known"], "high");
    assert_eq!(
        good.last(&format!("step.output_checked {address}"))["valid"],
        true
    );
    good.holds_together();
    let (mut wrong, address) = asked();
    wrong.does(&address, json!({"tide": 1}));
    assert_eq!(wrong.last("responder.failed")["code"], "schema_violation");
    assert_eq!(ends(&wrong, 2), ["responder.failed", "run.failed"]);
    wrong.holds_together();
    let (mut fatal, address) = asked();
    fatal.does(
        &address,
        json!({"tide": "high", "ktsu_injection_attempt": true}),
    );
    assert_eq!(fatal.last("responder.failed")["code"], "injection_attempt");
    fatal.holds_together();
    let (mut skipped, address) = asked();
    skipped.does(
        &address,
        json!({"tide": "high", "ktsu_skip_reason": "too early"}),
    );
    assert_eq!(
        skipped.last("responder.completed")["skipped"][0]["reason"],
        "too early"
    );
    assert_eq!(the_topic(&skipped).get("known"), None);
    skipped.holds_together();
}

#[test]
fn a_failed_question_fails_the_run_unless_its_responder_may_continue() {
    let asked = |more: Value| {
        let mut run = run(json!([asking(json!({}), more)]));
        let address = open(&run).remove(0);
        run.errs(&address, "provider_error", "no");
        run
    };
    let failed = asked(json!({}));
    assert_eq!(failed.state.failing().unwrap().code, "provider_error");
    assert!(failed.envelope().get("warnings").is_none());
    failed.holds_together();
    let goes_on = asked(json!({"on_error": "continue"}));
    assert_eq!(goes_on.kinds().last().unwrap(), "run.completed");
    let warned = json!([{"code": "provider_error", "message": "failed: no", "responder": "asks"}]);
    assert_eq!(goes_on.envelope()["warnings"], warned);
    goes_on.holds_together();
}

#[test]
fn what_a_for_each_cannot_go_through_fails_the_run_or_is_a_warning() {
    let wrong = json!({"for_each": {"from": "object.data.text"}});
    let failed = run(json!([asking(json!({}), wrong.clone())]));
    let words = "for_each needs a list, and has a value of type string";
    assert_eq!(failed.state.failing().unwrap().code, "expression_failed");
    assert_eq!(failed.last("responder.failed")["message"], words);
    failed.holds_together();
    let too_many = json!({"for_each": {"items": vec![0; 10_001]}});
    let failed = run(json!([asking(json!({}), too_many)]));
    let words = failed.last("responder.failed")["message"].to_string();
    assert!(words.contains("10001 items"), "{words}");
    let mut goes_on = wrong;
    goes_on["on_error"] = json!("continue");
    let twice = json!([asking(json!({}), goes_on), {"name": "second", "on": ["object.created"],
        "type": ["Topic"], "work": {"emit": [{"key": "one", "make": {"object": {"type": "Topic",
            "data": {"text": "more"}}}}]}}]);
    let goes_on = run(twice);
    assert_eq!(goes_on.kinds().last().unwrap(), "run.completed");
    let warned = &goes_on.envelope()["warnings"];
    let told = "failed 2 times, at first: for_each needs a list, and has a value of type string";
    assert_eq!(warned[0]["message"], told, "{warned}");
    goes_on.holds_together();
}

#[test]
fn a_question_for_a_group_that_no_gateway_knows_stays_open_and_the_run_completes() {
    let mut run = run(json!([asking(json!({}), json!({}))]));
    let address = open(&run).remove(0);
    run.asks(&address);
    run.errs(&address, "unknown_group", "there is no group std");
    assert_eq!(world_frames(&run), ["object.created", "llm.request"]);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.holds_together();
}

#[test]
fn a_lost_question_is_asked_again_with_what_is_recorded_of_it() {
    let mut run = run(json!([asking(json!({}), json!({}))]));
    let address = open(&run).remove(0);
    run.asks(&address);
    assert!(run.loses(&address, LostReason::Heartbeat, true));
    assert_eq!(run.task(&address).attempt, 2);
    run.says(&address, &[Say::Reply { cost: 10 }, output(json!("again"))]);
    assert_eq!(the_topic(&run)["known"], "again");
    run.holds_together();
}

#[test]
fn a_question_that_cannot_be_evaluated_fails_its_responder() {
    let ask = json!({"messages": [{"role": "user", "content": "{{ abs(object.data.text) }}"}]});
    let run = run(json!([asking(ask, json!({}))]));
    assert_eq!(ends(&run, 2), ["responder.failed", "run.failed"]);
    assert_eq!(run.last("responder.failed")["code"], "expression_failed");
    run.holds_together();
}

#[test]
fn no_more_is_asked_at_once_than_a_responder_allows() {
    let more = json!({"concurrency": 1, "for_each": {"from": "[`\"a\"`, `\"b\"`]"}});
    let then = json!({"then": [{"make": {"object": {"type": "Note",
        "data": {"item": "{{ item }}", "says": "{{ reply.text }}"}}}}]});
    let mut asks = asking(json!({}), more);
    merge(&mut asks, then);
    let mut run = run(json!([asks]));
    let dispatched = |run: &Driven| {
        let kinds = run.kinds();
        kinds
            .iter()
            .filter(|kind| kind.starts_with("worker.dispatched"))
            .count()
    };
    assert_eq!((open(&run).len(), dispatched(&run)), (2, 1));
    let [first, second] = &open(&run)[..] else {
        panic!()
    };
    run.does(first, json!("one"));
    assert_eq!(dispatched(&run), 2);
    run.does(second, json!("two"));
    let head = run.state.responding().unwrap().head();
    let notes: Vec<Value> = head
        .of_type("Note")
        .map(|note| note.data.to_value())
        .collect();
    assert_eq!(
        notes,
        [
            json!({"item": "a", "says": "one"}),
            json!({"item": "b", "says": "two"})
        ]
    );
    run.holds_together();
}

#[test]
fn replies_that_exceed_the_budget_are_recorded_and_end_the_run() {
    let budget = json!({"max_events": 2});
    let mut run = run_of(
        world(json!([asking(json!({}), json!({}))]), budget),
        json!({}),
    );
    let address = open(&run).remove(0);
    run.asks(&address);
    run.replies(&address, 5);
    assert_eq!(
        world_frames(&run),
        ["object.created", "llm.request", "llm.response"]
    );
    let kinds = ends(&run, 3);
    assert_eq!(kinds[0], "budget.exhausted");
    assert!(kinds[1].starts_with("agent.finished @asks."), "{kinds:?}");
    assert_eq!(kinds[2], "run.failed");
    run.holds_together();
}

#[test]
fn a_question_that_would_exceed_the_budget_is_not_asked() {
    let budget = json!({"max_events": 1});
    let run = run_of(
        world(json!([asking(json!({}), json!({}))]), budget),
        json!({}),
    );
    assert_eq!(ends(&run, 2), ["budget.exhausted", "run.failed"]);
    assert_eq!(world_frames(&run), ["object.created"]);
    let dropped = json!({"outputs": 1, "triggers": 0});
    assert_eq!(run.last("budget.exhausted")["dropped"], dropped);
    run.holds_together();
}

#[test]
fn the_end_of_a_budget_counts_what_a_reaction_to_a_reply_would_have_made() {
    let patch =
        |entry: u32| json!({"make": {"patch": {"id": "{{ object.id }}", "data": {"n": entry}}}});
    // The reply exceeds, or what comes of it: nothing of three, or one of them is made.
    for (limit, left) in [(2, 3), (3, 3), (4, 2), (5, 1)] {
        let then = json!({"then": [patch(1), patch(2), patch(3)]});
        let asks = world(
            json!([asking(json!({}), then)]),
            json!({"max_events": limit}),
        );
        let mut run = run_of(asks, json!({}));
        let address = open(&run).remove(0);
        run.does(&address, json!("yes"));
        let dropped = json!({"outputs": left, "triggers": 0});
        assert_eq!(run.last("budget.exhausted")["dropped"], dropped, "{limit}");
        run.holds_together();
    }
}

/// A goal becomes a topic, for which a workflow is run.
fn running(params: Value) -> Value {
    json!({"name": "digs", "on": ["object.created"], "type": ["Topic"],
        "work": {"run": {"workflow": "dig", "webhooks": "suppress", "params": params}},
        "then": [{"make": {"object": {"type": "Note", "data": {"found": "{{ result }}"}}}}]})
}

/// A run whose responder runs a workflow of one agent, and the address of that workflow.
fn run_with_an_agent() -> (Driven, String) {
    let look = agent("look", json!([]), "strict", json!({"params": {"msg": "m"}}));
    let dig = workflow("dig", json!([look]));
    let world = world(json!([running(json!({}))]), json!({}));
    let run = run_of(world, json!({"dig": dig}));
    let address = open(&run).remove(0);
    (run, address)
}

#[test]
fn a_workflow_runs_inline_for_a_responder_which_reacts_to_its_output() {
    let dig = workflow(
        "dig",
        json!([transform("double", json!([]), "params.what")]),
    );
    let run = run_of(
        world(
            json!([running(json!({"what": ["{{ object.data.text }}"]}))]),
            json!({}),
        ),
        json!({"dig": dig}),
    );
    let head = run.state.responding().unwrap().head();
    let notes: Vec<Value> = head
        .of_type("Note")
        .map(|note| note.data.to_value())
        .collect();
    assert_eq!(
        notes,
        [json!({"found": {"result": ["tides"]}})],
        "{:?}",
        run.kinds()
    );
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.holds_together();
}

#[test]
fn webhooks_of_what_a_responder_runs_are_sent_where_both_sides_say_execute() {
    let sends = |rules: u32, own: &str, child: &str| {
        let mut dig = workflow("dig", json!([]));
        dig["webhooks"] = json!(child);
        let mut digs = running(json!({}));
        digs["work"]["run"]["webhooks"] = json!(own);
        let mut plan = plan(json!({"main": workflow("main", json!([])), "dig": dig}));
        plan["worlds"] = json!({"worlds/w.world.yaml": world(json!([digs]), json!({}))});
        let run = Driven::invoke_under(rules, plan, json!({"goal": "tides", "x": [1]}));
        run.holds_together();
        let opens = |frame: &&Frame| frame.scope.starts_with('@');
        let opened = run.frames.iter().find(opens).map(data).unwrap();
        opened["webhooks"] == json!("execute")
    };
    for (own, child, either, both) in [
        ("execute", "execute", true, true),
        ("execute", "suppress", true, false),
        ("suppress", "execute", true, false),
        ("suppress", "suppress", false, false),
    ] {
        assert_eq!(sends(5, own, child), either, "{own} {child}");
        assert_eq!(sends(6, own, child), both, "{own} {child}");
    }
}

#[test]
fn an_agent_works_in_what_a_responder_runs() {
    let (mut run, address) = run_with_an_agent();
    run.does(
        &format!("{address}/look"),
        json!({"v": 1, "ktsu_confidence": 1}),
    );
    assert_eq!(
        run.kinds().last().unwrap(),
        "run.completed",
        "{:?}",
        run.kinds()
    );
    run.holds_together();
}

#[test]
fn a_failure_in_what_a_responder_runs_fails_the_run() {
    let (mut run, address) = run_with_an_agent();
    run.says(&format!("{address}/look"), &[output(json!({"v": "no"}))]);
    assert_eq!(run.kinds().last().unwrap(), "run.failed");
    run.holds_together();
}

/// A goal becomes a topic, about which two responders ask the same.
#[test]
fn an_identical_question_is_answered_by_the_earlier_reply_without_any_declaration() {
    let named = |name: &str| asking(json!({}), json!({ "name": name }));
    let mut run = run(json!([named("one"), named("two")]));
    let addresses = open(&run);
    let asks = |run: &Driven, address: &str| {
        let mut events = run.events(address, 1, 1, &[Say::Ask(Purpose::Turn)]);
        if let [AgentEvent::Request(request)] = events.as_mut_slice() {
            request.routing = Some("routed".to_owned());
        }
        report(&run.state, "", events, &Default::default())
    };
    let [first, second] = &addresses[..] else {
        panic!("{addresses:?}");
    };
    let ReportAdmission::Accepted(drafts) = asks(&run, first) else {
        panic!("nobody asked before");
    };
    run.inputs(drafts);
    let held = asks(&run, second);
    assert!(matches!(held, ReportAdmission::Deferred(_)), "{held:?}");
    run.says(first, &[Say::Reply { cost: 5 }, output(json!("deep"))]);
    let ReportAdmission::Accepted(drafts) = asks(&run, second) else {
        panic!("the first is answered");
    };
    run.inputs(drafts);
    let reply = run.last(&format!("llm.response {second}"));
    assert_eq!(
        (&reply["cached"], &reply["cost_micro_usd"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(reply["responder"], json!(second));
    assert_eq!(reply["saved"]["cost_micro_usd"], 5);
    run.says(second, &[output(json!("deep"))]);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.is_whole();
}

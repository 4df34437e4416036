//! Runs that are created with their effects suppressed: what they hold back, and what they do all the
//! same.

use ktsu_ledger::event::{Decision, Effects, UnsentReason};
use serde_json::{Value, json};

use crate::admit::report::ReportAdmission;
use crate::driven_tests::{Driven, Say, data, output};
use crate::plans_tests::{agent, child, plan, webhook, workflow};

/// A step that emits and runs `verify`, one that calls tools, a webhook, and a child with a webhook.
/// Everybody agrees to every webhook.
fn everything() -> Value {
    let may = json!({"may_invoke": {"verify": {"child": {"webhooks": "execute", "workflow": "verify"},
        "concurrency": 1, "max_items": 2}}});
    let main = workflow(
        "main",
        json!([
            agent("a", json!([]), "tells", may),
            agent("b", json!([0]), "acts", json!({})),
            webhook("w", json!([1]), "http://127.0.0.1:9/w"),
            child("c", json!([2]), "part", json!({"n": 1})),
        ]),
    );
    let called = || json!([webhook("h", json!([]), "http://127.0.0.1:9/h")]);
    let part = workflow("part", called());
    let verify = workflow("verify", called());
    let mut plan = plan(json!({"main": main, "part": part, "verify": verify}));
    plan["agents"]["tells"]["commands"] = json!({"emit": ["claim.*"], "invoke": ["verify"]});
    plan
}

fn outcome() -> Value {
    json!({"output": {}, "commands": [
        {"type": "emit", "topic": "claim.seen", "payload": 1},
        {"type": "invoke", "step": "verify", "input": {"n": 2}}]})
}

/// Steps `a` and `b`: the commands, and a call of what changes something lasting.
fn works(run: &mut Driven) {
    run.completes_with("a", outcome(), Default::default());
    run.asks("b");
    run.says("b", &[Say::Wants(vec!["write"])]);
}

fn calls_and_ends(run: &mut Driven) {
    run.says("b", &[Say::Call(0, "w".to_owned(), "write".to_owned())]);
    run.says("b", &[Say::Result(0)]);
    run.asks("b");
    run.says("b", &[Say::Reply { cost: 1 }, output(json!({"v": 1}))]);
}

/// Which commands are suppressed.
fn suppressed(run: &Driven) -> Vec<(String, bool)> {
    let frames = run.frames.iter();
    let commands = frames.filter(|frame| frame.event.kind() == "command.requested");
    let found = commands.map(|frame| {
        let data = data(frame);
        let kind = data["type"].as_str().unwrap().to_owned();
        (kind, data["suppressed"] == true)
    });
    found.collect()
}

fn is_held_back(run: &Driven, scope: &str, step: &str) -> bool {
    let envelope = match scope {
        "" => run.envelope(),
        scope => run.envelope_of(scope),
    };
    let steps = envelope["steps"].as_array().unwrap();
    let step = steps.iter().find(|one| one["id"] == step).unwrap();
    step["skip_reason"] == "webhooks_suppressed"
}

#[test]
fn it_sends_no_webhook_and_no_message_anywhere_and_does_all_else() {
    let mut run = Driven::invoke_suppressed(everything(), json!({"n": 1}));
    assert_eq!(data(&run.frames[0])["effects"], "suppress");
    works(&mut run);
    calls_and_ends(&mut run);
    let commands = [("invoke".to_owned(), false), ("emit".to_owned(), true)];
    assert_eq!(suppressed(&run), commands);
    for (scope, step) in [("", "w"), ("c", "h"), ("a/verify.0", "h")] {
        assert!(is_held_back(&run, scope, step), "{scope}/{step}");
    }
    let envelope = run.envelope();
    assert_eq!(envelope["status"], "complete");
    assert_eq!(envelope["effects"], "suppress");
    assert!(run.envelope_of("c").get("effects").is_none());
    // Its inputs lead to it again.
    run.is_whole();
}

#[test]
fn the_same_run_sends_them_if_nothing_is_said() {
    let mut run = Driven::invoke(everything(), json!({"n": 1}));
    assert!(data(&run.frames[0]).get("effects").is_none());
    run.completes_with("a", outcome(), Default::default());
    run.answer("a/verify.0", "h", 1, 200);
    run.asks("b");
    run.says("b", &[Say::Wants(vec!["write"])]);
    calls_and_ends(&mut run);
    run.answer("", "w", 1, 200);
    run.answer("c", "h", 1, 200);
    assert!(suppressed(&run).iter().all(|(_, suppressed)| !suppressed));
    assert!(run.envelope().get("effects").is_none());
    run.is_whole();
}

#[test]
fn cut_anywhere_it_continues_as_it_was_created() {
    let mut plan = everything();
    plan["workflows"]["main"]["steps"][1]["work"]["agent"]["agent"] = json!("plain");
    plan["workflows"]["main"]["steps"][1]["work"]["agent"]["file"] = json!("plain");
    let mut run = Driven::invoke_suppressed(plan, json!({"n": 1}));
    run.completes_with("a", outcome(), Default::default());
    run.finishes("b", json!({}));
    assert_eq!(run.envelope()["status"], "complete");
    run.holds_together();
}

#[test]
fn a_branch_of_it_holds_back_what_every_branch_does_unless_it_was_forked_to_execute() {
    let mut run = Driven::invoke_suppressed(everything(), json!({"n": 1}));
    works(&mut run);
    let at = run.frames.len();

    let mut silent = run.branch(at, Effects::Suppress);
    let call = [Say::Call(0, "w".to_owned(), "write".to_owned())];
    let (attempt, n) = (silent.task("b").attempt, 2);
    let refused = silent.reports("b", attempt, n, &call);
    assert!(matches!(refused, ReportAdmission::Malformed(_)));
    silent.says("b", &[Say::NotSent(0, UnsentReason::SuppressedInBranch)]);
    silent.asks("b");
    silent.says("b", &[Say::Reply { cost: 1 }, output(json!({"v": 1}))]);
    assert!(is_held_back(&silent, "", "w") && is_held_back(&silent, "c", "h"));
    assert_eq!(silent.envelope()["effects"], "suppress");
    silent.is_whole();

    let mut loud = run.branch(at, Effects::Execute);
    calls_and_ends(&mut loud);
    loud.answer("", "w", 1, 200);
    loud.answer("c", "h", 1, 200);
    assert!(loud.envelope().get("effects").is_none());
    loud.is_whole();

    let mut anew = run.branch(4, Effects::Execute);
    anew.completes_with("a", outcome(), Default::default());
    anew.answer("a/verify.0", "h", 1, 200);
    let commands = [("invoke".to_owned(), false), ("emit".to_owned(), false)];
    assert_eq!(suppressed(&anew), commands);
}

#[test]
fn it_asks_people_and_sends_no_notification_of_it() {
    let notice = json!({"id": "t", "needs": [], "work": {"webhook": {"method": "POST",
        "on_approval": true, "timeout_ms": 1000, "url": "http://127.0.0.1:9/t"}}});
    let steps = json!([agent("a", json!([]), "acts", json!({})), notice]);
    let sent = |kinds: Vec<String>| kinds.iter().any(|kind| kind.starts_with("webhook.sent"));
    let asks = |run: &mut Driven| {
        run.asks("a");
        run.says("a", &[Say::Wants(vec!["delete-a"])]);
        run.says("a", &[Say::Gate(0, "s".to_owned(), "delete-a".to_owned())]);
    };
    let plan = plan(json!({"main": workflow("main", steps)}));
    let mut run = Driven::invoke(plan.clone(), json!({}));
    asks(&mut run);
    assert!(sent(run.kinds()), "{:?}", run.kinds());
    let mut run = Driven::invoke_suppressed(plan, json!({}));
    asks(&mut run);
    assert!(!sent(run.kinds()), "{:?}", run.kinds());
    run.decides("a", "ann", Decision::Approved, None).unwrap();
    run.says("a", &[Say::Call(0, "s".to_owned(), "delete-a".to_owned())]);
    run.says("a", &[Say::Result(0)]);
    run.asks("a");
    run.says("a", &[Say::Reply { cost: 3 }, output(json!({"v": 1}))]);
    run.holds_together();
}

//! Outcomes that ask for data and count nevertheless, and what is discarded, noted or begun in another
//! order than it has to be: both verifiers find each.

use serde_json::{Value, json};

use super::super::mutants::with;
use super::super::reviews::forge::{Forge, any, command, find, missed, of_judge};
use super::NONE;
use crate::support::scenarios::suspensions::{Suspended, Word};

async fn forge(suspended: Suspended) -> Forge {
    Forge::of_run(suspended.record().await)
}

/// A command of the outcome that asks for data, as it would be carried out.
fn carried_out(forge: &Forge, at: usize) -> Value {
    let finished = of_judge(&forge.all, "agent.finished");
    let told = &forge.all[finished]["data"]["outcome"]["commands"][at];
    let mut data = forge.all[command(&forge.all, "suspend")]["data"].clone();
    let path = format!("/outcome/commands/{at}");
    data["command"] = json!({"frame": finished, "path": path});
    (data["index"], data["type"]) = (json!(at), told["type"].clone());
    match told.get("topic") {
        Some(topic) => data["topic"] = topic.clone(),
        None => data["target"] = told["step"].clone(),
    }
    data
}

#[tokio::test]
async fn commands_that_were_discarded_and_ran_anyway_are_found_by_both_verifiers() {
    let resumed = forge(Suspended::resumed()).await;
    let discarded = find(&resumed.all, "command.discarded", any);
    let asked = find(&resumed.all, "suspend.requested", any);
    let suspends = command(&resumed.all, "suspend");
    let finished = of_judge(&resumed.all, "agent.finished");
    let mut sent = resumed.all.clone();
    sent[discarded]["type"] = json!("command.requested");
    sent[discarded]["data"] = carried_out(&resumed, 0);
    let place = json!({"frame": finished, "path": "/outcome/commands/2/input/claim"});
    let child = json!({"input": {"/params/claim": {"ref": place}}, "plan": "verify",
        "webhooks": "suppress"});
    let child = resumed.with_more(discarded, "run.started", child);
    let mut bodies = super::super::mutants::bodies(&child);
    bodies[discarded + 1]["scope"] = json!("a/verify.0");
    let child = with(&child, &bodies);
    let indexes = |to: Value| {
        assert_eq!(
            resumed.data("command.discarded")["indexes"],
            json!([0, 2, 3])
        );
        resumed.told("command.discarded", |data| data["indexes"] = to)
    };
    let more = |behind: usize, at: usize| {
        let data = carried_out(&resumed, at);
        resumed.with_more(behind, "command.requested", data)
    };
    let lost = missed(vec![
        (
            "a discarded emit that was sent",
            "outputs",
            with(&resumed.run, &sent),
        ),
        (
            "an emit after it was discarded",
            "outputs",
            more(discarded, 0),
        ),
        (
            "an emit before it is discarded",
            "outputs",
            more(suspends, 0),
        ),
        ("an emit after the question", "outputs", more(asked, 3)),
        (
            "an invoke after it was discarded",
            "outputs",
            more(discarded, 2),
        ),
        (
            "an invoke before it is discarded",
            "outputs",
            more(suspends, 2),
        ),
        ("a child of a discarded invoke", "outputs", child),
        (
            "nothing discarded",
            "outputs",
            resumed.without(&[discarded]),
        ),
        ("less discarded", "outputs", indexes(json!([0, 2]))),
        ("more discarded", "outputs", indexes(json!([0, 1, 2, 3]))),
        (
            "discarded by another frame",
            "outputs",
            resumed.told("command.discarded", |data| data["decision"] = json!(1)),
        ),
        (
            "discarded twice",
            "outputs",
            resumed.with_more(
                discarded,
                "command.discarded",
                resumed.data("command.discarded"),
            ),
        ),
        (
            "discarded after the question",
            "outputs",
            resumed.moved(discarded, asked + 1),
        ),
        (
            "said to be suppressed",
            "outputs",
            resumed.changed(|all| all[suspends]["data"]["suppressed"] = json!(true)),
        ),
        (
            "asked by another command",
            "outputs",
            resumed.told("suspend.requested", |data| data["command"] = json!(1)),
        ),
        (
            "asked for another attempt",
            "outputs",
            resumed.told("suspend.requested", |data| data["attempt"] = json!(2)),
        ),
        (
            "asked by another actor",
            "outputs",
            resumed.changed(|all| all[asked]["actor"] = json!("runtime")),
        ),
        (
            "asked twice",
            "outputs",
            resumed.with_more(
                asked,
                "suspend.requested",
                resumed.data("suspend.requested"),
            ),
        ),
    ]);
    assert_eq!(lost, NONE);
}

#[tokio::test]
async fn notes_that_are_missing_or_in_another_order_are_found_by_both_verifiers() {
    let resumed = forge(Suspended::resumed()).await;
    let first = find(&resumed.all, "note", any);
    let asked = find(&resumed.all, "suspend.requested", any);
    let discarded = find(&resumed.all, "command.discarded", any);
    let alone = Suspended {
        siblings: false,
        ..Suspended::resumed()
    };
    let alone = forge(alone).await;
    let only = find(&alone.all, "note", any);
    let lost = missed(vec![
        ("no first note", "outputs", resumed.without(&[first])),
        ("no last note", "outputs", resumed.without(&[first + 1])),
        ("no notes", "outputs", resumed.without(&[first, first + 1])),
        (
            "no notes, alone",
            "outputs",
            alone.without(&[only, only + 1]),
        ),
        (
            "notes turned around",
            "outputs",
            resumed.moved(first, first + 2),
        ),
        (
            "a note after the question",
            "outputs",
            resumed.moved(first + 1, asked + 1),
        ),
        (
            "a note before the others are discarded",
            "outputs",
            resumed.moved(first, discarded),
        ),
    ]);
    assert_eq!(lost, NONE);
}

#[tokio::test]
async fn a_step_that_does_not_wait_is_found_by_both_verifiers() {
    let resumed = forge(Suspended::resumed()).await;
    let alone = Suspended {
        siblings: false,
        events: false,
        ..Suspended::resumed()
    };
    let alone = forge(alone).await;
    let left = forge(Suspended::with(&[Word::Leave])).await;
    let late = Suspended {
        resume: "{timeout: 1s}",
        ..Suspended::with(&[Word::Wait])
    };
    let late = forge(late).await;
    let invoked = Suspended {
        workflow: "invoking",
        ..Suspended::resumed()
    };
    let invoked = forge(invoked).await;
    let finished = of_judge(&alone.all, "agent.finished");
    let ended = json!({"attempt": 1, "step": "a",
        "output_from": {"frame": finished, "path": "/outcome/output"}});
    // In place of the question; what follows stays.
    let completes = |kinds: &[&str]| {
        let kinds: Vec<usize> = kinds
            .iter()
            .map(|kind| find(&alone.all, kind, any))
            .collect();
        let run = alone.changed(|all| {
            let asked = find(all, "suspend.requested", any);
            all[asked]["type"] = json!("step.completed");
            all[asked]["data"] = ended.clone();
        });
        let kept = Forge::of_run(run);
        match kinds.is_empty() {
            true => kept.run,
            false => kept.without(&kinds),
        }
    };
    let field = |name: &str, to: Value| {
        resumed.changed(|all| {
            let end = of_judge(all, "agent.finished");
            all[end]["data"]["outcome"]["output"][name] = to;
        })
    };
    let failed = resumed.changed(|all| {
        let end = of_judge(all, "agent.finished");
        all[end]["data"]["outcome"]["error"] = json!({"code": "down", "message": "m"});
    });
    let reset = find(&resumed.all, "step.reset", any);
    let begun = find(&resumed.all, "step.started", |one| {
        one["data"]["attempt"] == 2
    });
    let fired = find(&late.all, "timer.fired", any);
    let again = json!({"attempt": 1, "step": "a"});
    let asked = find(&left.all, "suspend.requested", any);
    let skipped = json!({"reason": "agent_skipped", "step": "a"});
    // The step of an agent that does not declare it.
    let end_of_b = find(&resumed.all, "agent.finished", |one| {
        one["data"]["step"] == "b"
    });
    let mut suspends = resumed.all[command(&resumed.all, "suspend")]["data"].clone();
    suspends["step"] = json!("b");
    suspends["attempt"] = resumed.all[end_of_b]["data"]["attempt"].clone();
    suspends["index"] = json!(0);
    suspends["command"] = json!({"frame": end_of_b, "path": "/outcome/commands/0"});
    let undeclared = Forge::of_run(resumed.changed(|all| {
        all[end_of_b]["data"]["outcome"]["commands"] =
            json!([{"type": "suspend", "reason": "r", "checkpoint": 1}]);
    }));
    let undeclared = undeclared.with_more(end_of_b, "command.requested", suspends);
    let item = resumed.changed(|all| {
        let (end, at) = (of_judge(all, "agent.finished"), command(all, "suspend"));
        all[end]["data"]["item"] = json!(0);
        all[at]["data"]["item"] = json!(0);
    });
    let lost = missed(vec![
        ("an outcome that counts", "outputs", completes(&[])),
        (
            "an outcome that counts, without its data",
            "outputs",
            completes(&["suspend.resumed", "step.reset"]),
        ),
        (
            "a skip",
            "outputs",
            field("ktsu_skip_reason", json!("nothing to do")),
        ),
        (
            "a fatal field",
            "outputs",
            field("ktsu_needs_human", json!(true)),
        ),
        (
            "another fatal field",
            "outputs",
            field("ktsu_low_quality", json!(0)),
        ),
        ("an error", "outputs", failed),
        ("no step.reset", "outputs", resumed.without(&[reset])),
        (
            "another cause",
            "outputs",
            resumed.changed(|all| all[reset]["cause"] = json!([reset - 2])),
        ),
        (
            "an attempt before the data",
            "outputs",
            resumed.moved(begun, reset),
        ),
        (
            "an attempt after the time",
            "outputs",
            late.with_more(fired, "step.reset", again.clone()),
        ),
        (
            "an attempt while it waits",
            "outputs",
            left.with_more(asked, "step.reset", again),
        ),
        (
            "the end of the run while a step waits",
            "outputs",
            left.with_more(asked, "run.completed", json!({})),
        ),
        (
            "a skip while a step waits",
            "outputs",
            left.with_more(asked, "step.skipped", skipped),
        ),
        ("an agent that does not declare it", "outputs", undeclared),
        ("an item of a fan-out", "outputs", item),
        (
            "no data within what a command runs",
            "outputs",
            invoked.without(&[find(&invoked.all, "suspend.resumed", any)]),
        ),
    ]);
    assert_eq!(lost, NONE);
}

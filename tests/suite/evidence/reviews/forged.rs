//! Reviews that were dropped, turned, decided by others or passed over: both verifiers find each by the
//! claim that it belongs to.

use ktsu_evidence::check::ClaimVerdict;
use serde_json::{Value, json};

use super::super::forgeries::claim;
use super::super::mutants::{bodies, with};
use super::forge::{Forge, any, command, find, judged, missed, of_judge};
use super::overlay;
use crate::support::scenarios::reviews::Reviewed;

/// No forgery.
const NONE: [String; 0] = [];

#[tokio::test]
async fn a_review_that_is_dropped_or_turned_is_found_by_both_verifiers() {
    let approved = Forge::of(&Reviewed::approved()).await;
    let overlaid = Forge::of(&Reviewed::with(&[("ann", "approved", overlay())])).await;
    let alone = Reviewed {
        siblings: false,
        ..Reviewed::approved()
    };
    let alone = Forge::of(&alone).await;
    let rejected = Forge::of(&Reviewed::with(&[("ann", "rejected", json!({}))])).await;
    let refused = Reviewed {
        siblings: false,
        ..Reviewed::with(&[("ann", "rejected", json!({}))])
    };
    let refused = Forge::of(&refused).await;
    let late = Forge::of(&Reviewed {
        policy: "{timeout: 1s}",
        ..Reviewed::with(&[])
    })
    .await;
    let frames = |forge: &Forge| -> Vec<usize> {
        let kinds = ["command.deferred", "review.requested", "review.decided"];
        let all = forge.all.iter().enumerate();
        let about = all.filter(|(_, one)| {
            kinds.iter().any(|kind| one["type"] == *kind) || one["data"]["type"] == "review"
        });
        about.map(|(at, _)| at).collect()
    };
    let undecided = |forge: &Forge| vec![find(&forge.all, "review.decided", any)];
    let hidden = approved.told("command.requested", |data| data["suppressed"] = json!(true));
    // The command itself, too, and the commands have other numbers.
    let mut untold = bodies(&alone.without(&frames(&alone)));
    let end = of_judge(&untold, "agent.finished");
    untold[end]["data"]["outcome"]
        .as_object_mut()
        .unwrap()
        .remove("commands");
    let untold = with(&alone.without(&frames(&alone)), &untold);
    let turned =
        |forge: &Forge, to: &str| forge.told("review.decided", |data| data["decision"] = json!(to));
    // With the end of its step; the end of the run stays.
    let counts = refused.changed(|all| {
        let at = find(all, "review.decided", any);
        all[at]["data"]["decision"] = json!("approved");
        let (end, at) = (
            of_judge(all, "agent.finished"),
            of_judge(all, "step.failed"),
        );
        all[at]["type"] = json!("step.completed");
        let place = json!({"frame": end, "path": "/outcome/output"});
        all[at]["data"] = json!({"attempt": 1, "output_from": place, "step": "a"});
    });
    let fails = alone.changed(|all| {
        let at = find(all, "review.decided", any);
        all[at]["data"]["decision"] = json!("rejected");
        let at = of_judge(all, "step.completed");
        all[at]["type"] = json!("step.failed");
        all[at]["data"] = json!({"attempt": 1, "code": "review_rejected", "message": "rejected by ann", "step": "a"});
    });
    let rejects = late.changed(|all| {
        let at = of_judge(all, "step.failed");
        all[at]["data"]["code"] = json!("review_rejected");
        let at = find(all, "run.failed", any);
        all[at]["data"]["code"] = json!("review_rejected");
    });
    let lost = missed(vec![
        (
            "a review dropped",
            "outputs",
            approved.without(&frames(&approved)),
        ),
        (
            "a review with an overlay dropped",
            "outputs",
            overlaid.without(&frames(&overlaid)),
        ),
        (
            "a review alone dropped",
            "outputs",
            alone.without(&frames(&alone)),
        ),
        ("a review dropped with its command", "outputs", untold),
        ("a review that is said to be suppressed", "outputs", hidden),
        (
            "no decision",
            "outputs",
            approved.without(&undecided(&approved)),
        ),
        (
            "no decision, alone",
            "outputs",
            alone.without(&undecided(&alone)),
        ),
        (
            "no rejection",
            "outputs",
            rejected.without(&undecided(&rejected)),
        ),
        (
            "an approval turned",
            "outputs",
            turned(&approved, "rejected"),
        ),
        (
            "an approval alone turned",
            "outputs",
            turned(&alone, "rejected"),
        ),
        (
            "a rejection turned",
            "outputs",
            turned(&rejected, "approved"),
        ),
        (
            "a rejection alone turned",
            "outputs",
            turned(&refused, "approved"),
        ),
        ("a rejection turned with its step", "outputs", counts),
        ("an approval turned with its step", "outputs", fails),
        ("the end of the time as a rejection", "outputs", rejects),
    ]);
    assert_eq!(lost, NONE);
}

#[tokio::test]
async fn people_who_may_not_decide_and_other_policies_are_found_by_both_verifiers() {
    let policy = "{quorum: 2, not_by_proposer: true, roles: [approver, admin], timeout: 2h}";
    let words = [
        ("ann", "approved", json!({})),
        ("bob", "approved", json!({})),
    ];
    let quorum = Reviewed {
        policy,
        ..Reviewed::with(&words)
    };
    let voted = [
        ("ann", "approved", overlay()),
        ("bob", "approved", json!({})),
    ];
    let voted = Forge::of(&Reviewed {
        policy,
        ..Reviewed::with(&voted)
    })
    .await;
    let quorum = Forge::of(&quorum).await;
    let late = Forge::of(&Reviewed {
        policy: "{timeout: 1s}",
        ..Reviewed::with(&[])
    })
    .await;
    let refused = Forge::of(&Reviewed::with(&[("ann", "rejected", json!({}))])).await;
    let last = find(&quorum.all, "review.decided", |one| {
        one["data"]["by"]["id"] == "bob"
    });
    let by = |who: &str, named: &str| {
        quorum.changed(|all| {
            all[last]["data"]["by"]["id"] = json!(who);
            all[last]["actor"] = json!(format!("principal:{named}"));
        })
    };
    let policy = |change: fn(&mut Value)| {
        quorum.told("review.requested", |data| change(&mut data["policy"]))
    };
    let asked = find(&late.all, "review.requested", any);
    let early = late.changed(|all| {
        let fired = find(all, "timer.fired", any);
        all[fired]["at"] = all[asked]["at"].clone();
    });
    let late = quorum.changed(|all| {
        for one in &mut all[last..] {
            let at = one["at"].as_str().unwrap().replacen("20", "21", 1);
            one["at"] = json!(at);
        }
    });
    let lost = missed(vec![
        (
            "the person who started the run",
            "approvals",
            by("pia", "pia"),
        ),
        ("one person twice", "approvals", by("ann", "ann")),
        ("another name", "approvals", by("eva", "bob")),
        ("another actor", "approvals", by("bob", "eva")),
        (
            "another quorum",
            "approvals",
            policy(|one| one["quorum"] = json!(1)),
        ),
        (
            "other roles",
            "approvals",
            policy(|one| one["roles"] = json!(["operator"])),
        ),
        (
            "another timeout",
            "approvals",
            policy(|one| one["timeout"]["ms"] = json!(1)),
        ),
        (
            "another end",
            "approvals",
            policy(|one| one["timeout"]["behavior"] = json!("reject")),
        ),
        (
            "the proposer may approve",
            "approvals",
            policy(|one| drop(one.as_object_mut().unwrap().remove("not_by_proposer"))),
        ),
        (
            "one of two approvals dropped",
            "outputs",
            quorum.without(&[last]),
        ),
        ("the end of the time too early", "approvals", early),
        ("a decision when the time was over", "approvals", late),
        (
            "a decision of another review",
            "approvals",
            quorum.told("review.decided", |data| data["request"] = json!(1)),
        ),
        (
            "a rejection that replaces something",
            "approvals",
            refused.told("review.decided", |data| data["overlay"] = overlay()),
        ),
        (
            "a vote that replaces what another replaced otherwise",
            "approvals",
            voted.changed(|all| {
                let second = all.iter().rposition(|one| one["type"] == "review.decided");
                all[second.unwrap()]["data"]["overlay"] = json!({"verdict": "maybe"});
            }),
        ),
        (
            "a reserved field that is replaced",
            "approvals",
            quorum.told("review.decided", |data| {
                data["overlay"] = json!({"ktsu_flags": 1})
            }),
        ),
    ]);
    assert_eq!(lost, NONE);
}

#[tokio::test]
async fn what_people_replaced_cannot_be_put_in_taken_out_or_passed_over() {
    let plain = Forge::of(&Reviewed::approved()).await;
    let overlaid = Reviewed::with(&[("ann", "approved", overlay())]);
    let last = Forge::of(&Reviewed {
        workflow: "last",
        ..overlaid.clone()
    })
    .await;
    let overlaid = Forge::of(&overlaid).await;
    let started = |forge: &Forge, step: &str| {
        find(&forge.all, "step.started", |one| {
            one["data"]["step"] == step
        })
    };
    let decided = |forge: &Forge| find(&forge.all, "review.decided", any);
    let finished = |forge: &Forge| of_judge(&forge.all, "agent.finished");
    let input = |forge: &Forge, step: &str, to: Value| {
        let at = started(forge, step);
        forge.changed(|all| {
            let inputs = all[at]["data"]["input"].as_object_mut().unwrap();
            inputs.values_mut().for_each(|one| *one = to.clone());
        })
    };
    let place = |frame: usize, path: &str| json!({"ref": {"frame": frame, "path": path}});
    let computed = place(finished(&overlaid), "/outcome/output/verdict");
    let replaced = place(decided(&plain), "/overlay/verdict");
    let whole = place(finished(&overlaid), "/outcome/output");
    let passed = started(&overlaid, "c");
    let passed = overlaid.changed(|all| {
        let at = decided(&overlaid);
        let inputs = all[passed]["data"]["input"].as_object_mut().unwrap();
        for one in inputs.values_mut() {
            let from = one["value"]["from"].as_array_mut().unwrap();
            from.retain(|seq| *seq != json!(at));
        }
    });
    let end = find(&last.all, "run.completed", |one| one["scope"] == "");
    let computed_end = last.changed(|all| {
        let data = all[end]["data"].as_object_mut().unwrap();
        assert!(data.remove("output").is_some(), "{data:?}");
        let place = json!({"frame": finished(&last), "path": "/outcome/output"});
        data.insert("output_from".to_owned(), place);
    });
    let taken = |data: &mut Value| drop(data.as_object_mut().unwrap().remove("overlay"));
    let put = |data: &mut Value| data["overlay"] = overlay();
    let other = |data: &mut Value| data["overlay"] = json!({"sure": 4});
    let lost = missed(vec![
        (
            "an overlay put in",
            "outputs",
            plain.told("review.decided", put),
        ),
        (
            "an overlay taken out",
            "outputs",
            overlaid.told("review.decided", taken),
        ),
        (
            "an overlay of another field",
            "outputs",
            overlaid.told("review.decided", other),
        ),
        (
            "the computed value as input",
            "outputs",
            input(&overlaid, "b", computed),
        ),
        (
            "a value that was not replaced as input",
            "outputs",
            input(&plain, "b", replaced),
        ),
        (
            "the computed output as input",
            "outputs",
            input(&overlaid, "c", whole),
        ),
        (
            "what is replaced left out of what is computed",
            "outputs",
            passed,
        ),
        (
            "the computed output as that of the run",
            "outputs",
            computed_end,
        ),
    ]);
    assert_eq!(lost, NONE);
}

#[tokio::test]
async fn another_value_in_a_decision_is_found_where_expressions_use_it() {
    let overlaid = Forge::of(&Reviewed::with(&[("ann", "approved", overlay())])).await;
    let other = overlaid.told("review.decided", |data| {
        data["overlay"] = json!({"verdict": "maybe"});
    });
    let (outcome, _) = judged(&other);
    assert_eq!(
        claim(&outcome, "replay"),
        ClaimVerdict::Failed,
        "{outcome:?}"
    );
}

#[tokio::test]
async fn commands_that_waited_in_vain_or_not_at_all_are_found_by_both_verifiers() {
    let approved = Forge::of(&Reviewed::approved()).await;
    let rejected = Forge::of(&Reviewed::with(&[("ann", "rejected", json!({}))])).await;
    let late = Forge::of(&Reviewed {
        policy: "{timeout: 1s}",
        ..Reviewed::with(&[])
    })
    .await;
    let all = &approved.all;
    let [invoke, emit] = ["invoke", "emit"].map(|kind| command(all, kind));
    let place = |kind: &str| find(all, kind, any);
    let discarded = find(&rejected.all, "command.discarded", any);
    let fired = find(&late.all, "timer.fired", any);
    let mut sent = rejected.all.clone();
    sent[discarded]["type"] = json!("command.requested");
    sent[discarded]["data"] = rejected.emit();
    let discards = json!({"attempt": 1, "decision": fired, "indexes": [0, 2, 3], "step": "a"});
    let indexes = |forge: &Forge, kind: &str, to: Value| {
        assert_eq!(forge.data(kind)["indexes"], json!([0, 2, 3]));
        forge.told(kind, |data| data["indexes"] = to)
    };
    let lost = missed(vec![
        (
            "an invoke before the decision",
            "outputs",
            approved.moved(invoke, place("review.decided")),
        ),
        (
            "an invoke before the question",
            "outputs",
            approved.moved(invoke, place("review.requested")),
        ),
        (
            "an invoke before it is deferred",
            "outputs",
            approved.moved(invoke, place("command.deferred")),
        ),
        (
            "an emit before the decision",
            "outputs",
            approved.moved(emit, place("review.decided")),
        ),
        (
            "a child before the decision",
            "outputs",
            approved.moved(
                find(all, "run.started", |one| one["scope"] == "a/verify.0"),
                place("review.decided"),
            ),
        ),
        (
            "the step before the decision",
            "outputs",
            approved.moved(of_judge(all, "step.completed"), place("review.decided")),
        ),
        (
            "nothing deferred",
            "outputs",
            approved.without(&[place("command.deferred")]),
        ),
        (
            "less deferred",
            "outputs",
            indexes(&approved, "command.deferred", json!([0, 2])),
        ),
        (
            "deferred by another command",
            "outputs",
            approved.told("command.deferred", |data| data["request"] = json!(1)),
        ),
        (
            "asked by another command",
            "outputs",
            approved.told("review.requested", |data| data["command"] = json!(1)),
        ),
        (
            "less discarded",
            "outputs",
            indexes(&rejected, "command.discarded", json!([0])),
        ),
        (
            "discarded by another decision",
            "outputs",
            rejected.told("command.discarded", |data| data["decision"] = json!(1)),
        ),
        (
            "nothing discarded",
            "outputs",
            rejected.without(&[discarded]),
        ),
        (
            "discarded where the time only fails",
            "outputs",
            late.with_more(fired, "command.discarded", discards),
        ),
        (
            "a discarded emit that was sent",
            "outputs",
            with(&rejected.run, &sent),
        ),
        (
            "an emit sent after it was discarded",
            "outputs",
            rejected.with_more(discarded, "command.requested", rejected.emit()),
        ),
        (
            "an emit sent after the time",
            "outputs",
            late.with_more(fired, "command.requested", late.emit()),
        ),
    ]);
    assert_eq!(lost, NONE);
}

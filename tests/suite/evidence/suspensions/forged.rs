//! Data that were dropped, changed, given by others or too late, and suspensions that ended otherwise:
//! both verifiers find each by the claim that it belongs to.

use serde_json::{Value, json};

use super::super::reviews::forge::{Forge, any, find, judged, missed, of_judge};
use super::NONE;
use crate::support::ledgers::Recorded;
use crate::support::scenarios::suspensions::{Suspended, Word};

/// A late run.
fn late() -> Suspended {
    Suspended {
        resume: "{timeout: 1s}",
        ..Suspended::with(&[Word::Wait])
    }
}

async fn forge(suspended: Suspended) -> Forge {
    Forge::of_run(suspended.record().await)
}

fn place(forge: &Forge, kind: &str) -> usize {
    find(&forge.all, kind, any)
}

/// With other inputs of the last attempt of the step that waited.
fn with_input(forge: &Forge, name: &str, change: impl FnOnce(&mut Value)) -> Recorded {
    let of_step = |one: &Value| one["type"] == "step.started" && one["data"]["step"] == "a";
    let at = forge.all.iter().rposition(of_step).unwrap();
    forge.changed(|all| change(&mut all[at]["data"]["input"][name]))
}

#[tokio::test]
async fn data_that_are_dropped_or_changed_are_found_by_both_verifiers() {
    let resumed = forge(Suspended::resumed()).await;
    let alone = Suspended {
        siblings: false,
        events: false,
        ..Suspended::resumed()
    };
    let alone = forge(alone).await;
    let data = |to: Value| resumed.told("suspend.resumed", |data| data["data"] = to);
    let more = resumed.data("suspend.resumed");
    let given = place(&resumed, "suspend.resumed");
    let all_of = |member: &'static str, to: Value| {
        with_input(&resumed, "/params/all", |input| {
            assert!(input["value"]["value"][member].is_object(), "{input}");
            input["value"]["value"][member] = to;
        })
    };
    let of_step = |one: &Value| one["data"]["step"] == "a" && one["scope"] == "";
    let first = resumed.all.iter().position(of_step).unwrap();
    let reset = place(&resumed, "step.reset");
    let attempt: Vec<usize> = (first..=reset).collect();
    let checkpoint = |to: Value| {
        resumed.changed(|all| {
            let end = of_judge(all, "agent.finished");
            all[end]["data"]["outcome"]["commands"][1]["checkpoint"] = to;
        })
    };
    let lost = missed(vec![
        ("no data", "outputs", resumed.without(&[given])),
        (
            "no data, alone",
            "outputs",
            alone.without(&[place(&alone, "suspend.resumed")]),
        ),
        (
            "no question",
            "outputs",
            resumed.without(&[place(&resumed, "suspend.requested")]),
        ),
        (
            "no question, as an approval",
            "approvals",
            resumed.without(&[place(&resumed, "suspend.requested")]),
        ),
        ("no suspension at all", "outputs", resumed.without(&attempt)),
        ("other data", "outputs", data(json!({"text": "clause 9"}))),
        (
            "more data",
            "outputs",
            data(json!({"text": "clause 7", "x": 1})),
        ),
        (
            "other data as a param",
            "outputs",
            all_of("data", json!({"text": "clause 9"})),
        ),
        (
            "another checkpoint as a param",
            "outputs",
            all_of("checkpoint", json!({"page": 4})),
        ),
        (
            "another checkpoint in the outcome",
            "outputs",
            checkpoint(json!({"page": 4})),
        ),
        (
            "data that the schema does not allow",
            "approvals",
            data(json!({"text": 5})),
        ),
        (
            "data without what the schema requires",
            "approvals",
            data(json!({})),
        ),
        (
            "data that are there twice",
            "approvals",
            resumed.with_more(given, "suspend.resumed", more.clone()),
        ),
        (
            "data that are there twice, as outputs",
            "outputs",
            resumed.with_more(given, "suspend.resumed", more),
        ),
        (
            "data of another suspension",
            "approvals",
            resumed.told("suspend.resumed", |data| data["request"] = json!(1)),
        ),
        (
            "data for another attempt",
            "outputs",
            resumed.told("suspend.resumed", |data| data["attempt"] = json!(2)),
        ),
    ]);
    assert_eq!(lost, NONE);
}

#[tokio::test]
async fn data_by_others_or_too_late_and_other_policies_are_found_by_both_verifiers() {
    let resumed = forge(Suspended::resumed()).await;
    let link = forge(Suspended::with(&[Word::Link("clause 7")])).await;
    let child = Suspended {
        workflow: "outer",
        ..Suspended::resumed()
    };
    let child = forge(child).await;
    let late = forge(late()).await;
    let given = place(&resumed, "suspend.resumed");
    let by = |who: &str, named: &str| {
        resumed.changed(|all| {
            all[given]["data"]["by"]["id"] = json!(who);
            all[given]["actor"] = json!(format!("principal:{named}"));
        })
    };
    let policy = |change: fn(&mut Value)| {
        resumed.told("suspend.requested", |data| change(&mut data["policy"]))
    };
    let agents = json!({"roles": ["operator"], "timeout_ms": 7_200_000});
    let passed = resumed.changed(|all| {
        for one in &mut all[given..] {
            let at = one["at"].as_str().unwrap().replacen("20", "21", 1);
            one["at"] = json!(at);
        }
    });
    let asked = place(&late, "suspend.requested");
    let early = late.changed(|all| {
        let fired = find(all, "timer.fired", any);
        all[fired]["at"] = all[asked]["at"].clone();
    });
    let lost = missed(vec![
        ("another name", "approvals", by("eva", "ann")),
        ("another actor", "approvals", by("ann", "eva")),
        (
            "a person in place of a link",
            "approvals",
            link.told("suspend.resumed", |data| {
                data["by"] = json!({"auth": "token", "id": "ann"});
            }),
        ),
        (
            "other roles",
            "approvals",
            policy(|one| one["roles"] = json!(["operator"])),
        ),
        (
            "no roles",
            "approvals",
            policy(|one| drop(one.as_object_mut().unwrap().remove("roles"))),
        ),
        (
            "another time",
            "approvals",
            policy(|one| one["timeout_ms"] = json!(7_200_000)),
        ),
        (
            "another schema",
            "approvals",
            policy(|one| one["schema"]["required"] = json!(["other"])),
        ),
        (
            "no schema",
            "approvals",
            policy(|one| drop(one.as_object_mut().unwrap().remove("schema"))),
        ),
        (
            "what the agent says, and not its step",
            "approvals",
            resumed.told("suspend.requested", |data| data["policy"] = agents),
        ),
        (
            "another policy in a child",
            "approvals",
            child.told("suspend.requested", |data| {
                data["policy"]["timeout_ms"] = json!(1);
            }),
        ),
        ("data when the time was over", "approvals", passed),
        ("the end of the time too early", "approvals", early),
        (
            "no end of the time",
            "outputs",
            late.without(&[place(&late, "timer.fired")]),
        ),
    ]);
    assert_eq!(lost, NONE);
}

#[tokio::test]
async fn what_a_step_takes_of_another_suspension_is_found_by_both_verifiers() {
    let twice = [Word::Data("ann", "more"), Word::Data("bob", "clause 8")];
    let twice = forge(Suspended::with(&twice)).await;
    let failed = [Word::Data("ann", "fail"), Word::Data("ann", "clause 7")];
    let of = |again| Suspended {
        again: Some(again),
        ..Suspended::with(&failed)
    };
    let (kept, lost) = (forge(of("a")).await, forge(of("first")).await);
    let given = place(&twice, "suspend.resumed");
    let first_end = of_judge(&twice.all, "agent.finished");
    let data = |frame: usize| json!({"ref": {"frame": frame, "path": "/data/text"}});
    let page = |frame: usize, at: usize| {
        let path = format!("/outcome/commands/{at}/checkpoint/page");
        json!({"ref": {"frame": frame, "path": path}})
    };
    let last_end = twice.all.iter().rposition(|one| {
        one["type"] == "agent.finished" && one["data"]["outcome"]["commands"].is_array()
    });
    let other = |name: &str, to: Value| with_input(&twice, name, |input| *input = to);
    let of_b = |forge: &Forge, to: Value| {
        let at = find(&forge.all, "step.started", |one| one["data"]["step"] == "b");
        forge.changed(|all| all[at]["data"]["input"]["/params/claim"] = to)
    };
    let stale = place(&lost, "suspend.resumed");
    let again = |one: &Value| {
        one["type"] == "step.started" && one["data"]["step"] == "a" && one["data"]["attempt"] == 3
    };
    let again = lost.all.iter().position(again).unwrap();
    let computed = json!({"value": {"from": [given], "value": "clause 8"}});
    let nothing = json!({"value": {"from": [], "value": null}});
    let forgeries = vec![
        (
            "the data before",
            "outputs",
            other("/params/text", data(given)),
        ),
        (
            "the checkpoint before",
            "outputs",
            other("/params/page", page(first_end, 1)),
        ),
        (
            "the checkpoint of another command",
            "outputs",
            other("/params/page", page(last_end.unwrap(), 2)),
        ),
        (
            "what is computed of it",
            "outputs",
            other("/params/text", computed),
        ),
        ("no data", "outputs", other("/params/text", nothing.clone())),
        (
            "the data of another step",
            "outputs",
            of_b(&twice, data(given)),
        ),
        (
            "the checkpoint of another step",
            "outputs",
            of_b(&twice, page(first_end, 1)),
        ),
        (
            "data that a step kept, and does not have",
            "outputs",
            with_input(&kept, "/params/text", |input| *input = nothing),
        ),
        (
            "data that a step has, and did not keep",
            "outputs",
            lost.changed(|all| all[again]["data"]["input"]["/params/text"] = data(stale)),
        ),
    ];
    assert_eq!(missed(forgeries), NONE);
}

/// Nothing contradicts it but a checkpoint that is kept elsewhere: `docs/evidence.md` says so.
#[tokio::test]
async fn other_data_in_every_frame_that_has_them_are_not_found() {
    let resumed = forge(Suspended::resumed()).await;
    let of_step = |one: &Value| one["type"] == "step.started" && one["data"]["step"] == "a";
    let again = resumed.all.iter().rposition(of_step).unwrap();
    let given = place(&resumed, "suspend.resumed");
    let run = resumed.changed(|all| {
        let data = json!({"text": "clause 9"});
        let input = &mut all[again]["data"]["input"]["/params/all"];
        input["value"]["value"]["data"] = data.clone();
        all[given]["data"]["data"] = data;
    });
    let (outcome, said) = judged(&run);
    assert!(outcome.is_sound(), "{outcome:?}");
    assert!(said.is_none_or(|said| said["sound"] == true));
}

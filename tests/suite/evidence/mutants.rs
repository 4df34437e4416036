//! Every frame about tools and people, changed in every way that can be thought of by a machine, by
//! somebody who makes the chain whole again: both verifiers find it, but for what no record can show.

use std::collections::BTreeMap;

use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, EvidenceReport, verify};
use ktsu_ledger::Record;
use serde_json::{Value, json};

use super::book::{Book, rechained};
use super::{Python, put};
use crate::golden::{goldens, written};
use crate::support::campaign;
use crate::support::ledgers::Recorded;

/// Members of `data` that name frames.
const NAMES: [&str; 12] = [
    "again", "approval", "base", "called", "children", "command", "decision", "frame", "from",
    "request", "response", "seq",
];

/// A run that was changed, and how.
pub(super) struct Mutant {
    pub(super) told: String,
    pub(super) run: Recorded,
}

pub(super) fn bodies(run: &Recorded) -> Vec<Value> {
    let body = |record: &Record| serde_json::from_str(&record.body).unwrap();
    run.records.iter().map(body).collect()
}

/// The run with these frames, the chain made whole.
pub(super) fn with(run: &Recorded, bodies: &[Value]) -> Recorded {
    let mut run = run.clone();
    // A branch begins behind what it shares.
    let bodies = (run.records[0].seq..).zip(bodies);
    run.records = bodies.map(|(seq, body)| written(seq, body)).collect();
    rechained(&run, |_, body| body)
}

/// The run with its frames in another order, or without some: whatever names a frame names it where
/// it is now, and what is gone is the frame before it.
pub(super) fn arranged(run: &Recorded, order: &[usize]) -> Recorded {
    fn moved(value: &mut Value, named: bool, place: &BTreeMap<u64, u64>) {
        match value {
            Value::Object(members) => members.iter_mut().for_each(|(name, member)| {
                moved(
                    member,
                    NAMES.contains(&name.as_str()) || name == "cause",
                    place,
                );
            }),
            Value::Array(items) => items.iter_mut().for_each(|item| moved(item, named, place)),
            Value::Number(number) if named => {
                let to = place.range(..=number.as_u64().unwrap()).next_back();
                *value = json!(to.map_or(0, |(_, to)| *to));
            }
            _ => {}
        }
    }
    let bodies = bodies(run);
    let place = (0..).zip(order).map(|(to, from)| (*from as u64, to));
    let place: BTreeMap<u64, u64> = place.collect();
    let kept = (0u64..).zip(order).map(|(seq, from)| {
        let mut body = bodies[*from].clone();
        moved(&mut body, false, &place);
        body["seq"] = json!(seq);
        for cause in body["cause"].as_array_mut().unwrap() {
            *cause = json!(cause.as_u64().unwrap().min(seq.saturating_sub(1)));
        }
        body
    });
    with(run, &kept.collect::<Vec<_>>())
}

/// Whether a frame is about reviews of outcomes, and what waits for them.
fn is_about_reviews(body: &Value) -> bool {
    let kind = body["type"].as_str().unwrap();
    let timer = kind == "timer.fired" && body["data"]["timer"] == "review";
    timer || kind.starts_with("review.") || kind.starts_with("command.")
}

/// Whether a frame is about tools and people.
fn is_about(body: &Value) -> bool {
    let kind = body["type"].as_str().unwrap();
    let asks = kind == "llm.response" && body["data"].get("tool_calls").is_some();
    let calls = kind == "agent.decided" && body["data"].get("response").is_some();
    asks || calls || kind.starts_with("tool.") || kind.starts_with("approval.")
}

/// Whether a member of a frame has anything to do with calls.
fn is_judged(kind: &str, place: &str) -> bool {
    let of_calls = ["/data/tool_calls/", "/data/request"];
    kind != "llm.response" || of_calls.iter().any(|one| place.starts_with(one))
}

/// The places of values within a value, as pointers.
pub(super) fn leaves(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                leaves(member, format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                leaves(item, format!("{at}/{place}"), found);
            }
        }
        _ => found.push(at),
    }
}

/// What could stand in a place instead: what stands in such a place elsewhere in the run, and
/// whatever is next to it.
pub(super) fn others(value: &Value, name: &str, all: &[Value]) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for body in all {
        let mut places = Vec::new();
        leaves(body, String::new(), &mut places);
        let same = places
            .iter()
            .filter(|place| place.ends_with(&format!("/{name}")));
        found.extend(same.filter_map(|place| body.pointer(place).cloned()));
    }
    found.retain(|one| one != value && one.is_string() == value.is_string());
    found.sort_by_key(Value::to_string);
    found.dedup();
    found.truncate(3);
    match value {
        Value::Number(number) => {
            // Whole numbers: others are nobody's place in a run.
            let number = number.as_u64().unwrap_or_default();
            found.extend([json!(number + 1), json!(number.saturating_sub(1))]);
        }
        Value::String(text) => found.push(json!(format!("{text}0"))),
        Value::Bool(yes) => found.push(json!(!yes)),
        _ => {}
    }
    found.retain(|one| one != value);
    found
}

/// Every mutant of a run.
fn mutants(name: &str, run: &Recorded, about: fn(&Value) -> bool) -> Vec<Mutant> {
    let all = bodies(run);
    let mut found = Vec::new();
    let mut add = |told: String, run: Recorded| found.push(Mutant { told, run });
    let every: Vec<usize> = (0..all.len()).collect();
    for (at, body) in all.iter().enumerate().filter(|(_, body)| about(body)) {
        let kind = body["type"].as_str().unwrap();
        let mut places = Vec::new();
        leaves(&body["data"], "/data".to_owned(), &mut places);
        places.extend(["/actor", "/scope"].map(str::to_owned));
        for place in places.iter().filter(|place| is_judged(kind, place)) {
            let old = body.pointer(place).unwrap();
            let last = place.rsplit('/').next().unwrap();
            for new in others(old, last, &all) {
                let told = format!("{name} {at} {kind} {place}: {old} to {new}");
                let mut bodies = all.clone();
                *bodies[at].pointer_mut(place).unwrap() = new;
                add(told, with(run, &bodies));
            }
        }
        for member in [
            "again", "approval", "called", "item", "not_sent", "report", "result",
        ] {
            if body["data"].get(member).is_some() {
                let mut bodies = all.clone();
                bodies[at]["data"].as_object_mut().unwrap().remove(member);
                let told = format!("{name} {at} {kind} without {member}");
                add(told, with(run, &bodies));
            }
        }
        let gone = every.iter().copied().filter(|one| *one != at);
        let gone: Vec<usize> = gone.collect();
        add(
            format!("{name} {at} {kind} taken out"),
            arranged(run, &gone),
        );
        let mut twice = every.clone();
        twice.insert(at, at);
        add(format!("{name} {at} {kind} twice"), arranged(run, &twice));
        let report = &body["data"]["report"];
        for to in at + 1..(at + 5).min(all.len() - 1) {
            // Within a report the order is the runtime's.
            let mut passed = all[at + 1..=to].iter();
            if passed.all(|one| report.is_object() && one["data"]["report"] == *report) {
                continue;
            }
            let mut order = gone.clone();
            order.insert(to, at);
            let told = format!("{name} {at} {kind} moved behind {to}");
            add(told, arranged(run, &order));
        }
    }
    found
}

/// Whether a claim other than that of deciding again has failed.
fn is_found(outcome: &EvidenceReport) -> bool {
    let mut claims = outcome.claims.iter();
    claims.any(|one| one.claim != "replay" && one.verdict == ClaimVerdict::Failed)
}

/// What no record can show: whoever writes all of it anew writes what they like here. Everything
/// else about calls and decisions hangs together (docs/evidence.md, "What is not provable").
const BEYOND: [(&str, &str); 13] = [
    ("tool.called", "/data/report/"),
    ("tool.returned", "/data/report/"),
    ("approval.requested", "/data/report/"),
    ("tool.returned", "/data/duration_ms"),
    ("approval.decided", "/data/reason"),
    ("approval.decided", "/data/by/auth"),
    ("review.decided", "/data/reason"),
    ("suspend.resumed", "/data/reason"),
    ("suspend.resumed", "/data/by/auth"),
    ("review.decided", "/data/by/auth"),
    // Where expressions use it, deciding again finds another value.
    ("review.decided", "/data/overlay/"),
    // Why a call was not sent, where neither model nor person has a say in it.
    (
        "tool.returned",
        "/data/not_sent: \"unknown_tool\" to \"invalid_arguments\"",
    ),
    (
        "tool.returned",
        "/data/not_sent: \"invalid_arguments\" to \"unknown_tool\"",
    ),
];

fn is_beyond(told: &str) -> bool {
    let mut all = BEYOND.iter();
    all.any(|(kind, place)| told.contains(&format!(" {kind} {place}")))
}

/// Whatever is changed is found by both, and both say the same of each claim.
fn every_mutant_is_found(golden: &str, about: fn(&Value) -> bool) {
    let run = goldens().into_iter().find(|(one, _)| *one == golden);
    every_mutant_of_is_found(golden, &run.unwrap().1, about);
}

/// The same of any run.
pub(super) fn every_mutant_of_is_found(name: &str, run: &Recorded, about: fn(&Value) -> bool) {
    let folder = tempfile::tempdir().unwrap();
    let (mut judged, mut archives, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    let every = campaign(5, 1);
    for mutant in mutants(name, run, about).into_iter().step_by(every) {
        // What is no frame is found as such.
        let mut records = mutant.run.records.iter();
        if records.any(|record| record.decode_bare().is_err()) {
            continue;
        }
        let bytes = Book::unsigned(&mutant.run).export_all();
        let outcome = verify(&bytes, &ArchiveVerifyOptions::default()).unwrap();
        if !is_found(&outcome) && !is_beyond(&mutant.told) {
            missed.push(format!("{} sound {}", mutant.told, outcome.is_sound()));
        }
        archives.push(put(folder.path(), &judged.len().to_string(), &bytes));
        judged.push((mutant.told, outcome));
    }
    assert!(judged.len() * every > 50, "{name}: {}", judged.len());
    if let Some(python) = Python::find() {
        for ((told, outcome), said) in judged.iter().zip(python.verify(&archives, &[])) {
            python.agrees(&outcome.claims, &said, told);
        }
    }
    assert_eq!(missed, Vec::<String>::new());
}

macro_rules! changed {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                every_mutant_is_found(concat!("v1-tool-", $name), is_about);
            }
        )*

        #[test]
        fn every_golden_run_with_tools_is_changed() {
            let all = goldens().into_iter().map(|(name, _)| name);
            let all: Vec<String> = all.filter(|name| name.starts_with("v1-tool-")).collect();
            let mut changed = [$(format!("v1-tool-{}", $name)),*];
            changed.sort();
            assert_eq!(all, changed);
        }
    };
}

changed! {
    a_call_sent_again_cannot_be_changed: "again";
    an_approved_call_cannot_be_changed: "approved";
    calls_cannot_be_changed: "calls";
    a_doubt_and_another_sending_cannot_be_changed: "doubt-again";
    a_doubt_that_ends_a_task_cannot_be_changed: "doubt-ends";
    a_doubt_that_a_person_settles_cannot_be_changed: "doubt-happened";
    a_wait_that_ends_a_task_cannot_be_changed: "late";
    the_word_of_several_people_cannot_be_changed: "quorum";
    a_rejection_that_a_task_recovers_from_cannot_be_changed: "recovers";
    a_rejection_that_ends_a_task_cannot_be_changed: "rejected";
    a_wait_that_a_task_recovers_from_cannot_be_changed: "soft";
    two_gates_cannot_be_changed: "two-gates";
}

macro_rules! reviewed {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                every_mutant_is_found(concat!("v7-review-", $name), is_about_reviews);
            }
        )*

        #[test]
        fn every_golden_run_with_reviews_is_changed() {
            let all = goldens().into_iter().map(|(name, _)| name);
            let all: Vec<String> = all.filter(|name| name.starts_with("v7-review-")).collect();
            let mut changed = [$(format!("v7-review-{}", $name)),*];
            changed.sort();
            assert_eq!(all, changed);
        }
    };
}

reviewed! {
    a_review_that_several_people_approve_cannot_be_changed: "approved";
    a_review_that_is_late_cannot_be_changed: "late";
    a_review_that_a_person_rejects_cannot_be_changed: "rejected";
    a_review_that_the_end_of_its_time_rejects_cannot_be_changed: "soft";
}

//! Suspensions as evidence: a step waited, and ran again with the data that it was given, whatever
//! an operator with every key writes instead and makes whole again.

mod changed;
mod forged;
mod modelled;
mod order;
mod resumed_to;

use ktsu_evidence::tar;
use ktsu_ledger::store::SqliteReader;
use serde_json::{Value, json};

use super::book::Book;
use super::reviews::forge::judged;
use super::{holds, verdict};
use crate::support::scenarios::suspensions::{Suspended, Word};

/// No forgery.
const NONE: [String; 0] = [];

/// A run with other steps around, as its workflow has them.
fn of(workflow: &'static str, words: &[Word]) -> Suspended {
    Suspended {
        workflow,
        ..Suspended::with(words)
    }
}

/// A run in which a step begins again once it has failed.
fn again(from: &'static str, words: &[Word]) -> Suspended {
    Suspended {
        again: Some(from),
        ..Suspended::with(words)
    }
}

/// A run whose outcome has commands beside the suspension, or events, or not.
fn beside(siblings: bool, events: bool) -> Suspended {
    Suspended {
        siblings,
        events,
        ..Suspended::resumed()
    }
}

/// A run whose step waits for so long.
fn patient(resume: &'static str, suspended: Suspended) -> Suspended {
    Suspended {
        resume,
        ..suspended
    }
}

const FOUND: Word = Word::Data("ann", "clause 7");
const TWICE: [Word; 2] = [Word::Data("ann", "more"), Word::Data("bob", "clause 8")];
const FAILED: [Word; 2] = [Word::Data("ann", "fail"), FOUND];

/// Whether both verifiers accept a run, its branches at these places from the question on, and its
/// recompute.
async fn is_accepted(told: &str, suspended: Suspended, places: &[isize]) {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let (stage, run) = suspended.play(&ledger).await;
    let frames = stage.of("eva").frames(&run).await;
    let asked = |one: &Value| one["type"] == "suspend.requested";
    let asked = frames.iter().position(asked).unwrap() + 1;
    for place in places {
        let at = asked.checked_add_signed(*place).unwrap().min(frames.len());
        let fork = json!({"at": at, "go": true}).to_string();
        let path = format!("/runs/{run}/fork");
        let answer = stage.of("eva").post(&path, fork).await;
        assert_eq!(answer.status, 201, "{told} at {at}: {}", answer.text());
        let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
        suspended.attend(&stage, &branch, None).await;
    }
    let path = format!("/runs/{run}/recompute?wait=60");
    let answer = stage.of("eva").post(&path, "{}").await;
    assert!(answer.status < 500, "{told}: {}", answer.text());
    stage.lab.close().await;
    holds(&SqliteReader::open(&ledger).unwrap(), told);
}

/// Around the question: the commands, the question itself, the data, what begins again.
const AROUND: [isize; 7] = [-3, -2, -1, 0, 1, 2, 3];

#[tokio::test]
async fn honest_suspensions_are_accepted_by_both_verifiers() {
    for (told, suspended) in [
        ("resumed", Suspended::resumed()),
        ("without siblings and events", beside(false, false)),
        ("without siblings", beside(false, true)),
        ("without events", beside(true, false)),
    ] {
        is_accepted(told, suspended, &AROUND).await;
    }
    is_accepted("by link", of("main", &[Word::Link("clause 7")]), &[0]).await;
    is_accepted("twice", of("main", &TWICE), &[0, 1, isize::MAX / 2]).await;
    is_accepted("left", of("main", &[Word::Leave]), &[]).await;
}

#[tokio::test]
async fn honest_suspensions_in_children_are_accepted_by_both_verifiers() {
    is_accepted("child", of("outer", &TWICE), &[-1, 0, 1]).await;
    is_accepted("invoked", of("invoking", &TWICE), &[-1, 0, 1]).await;
}

#[tokio::test]
async fn honest_ends_without_data_are_accepted_by_both_verifiers() {
    let late = patient("{timeout: 1s}", of("main", &[Word::Wait]));
    is_accepted("late", late, &[-1, 1]).await;
    let late = again("a", &[Word::Wait, FOUND]);
    let late = patient("{timeout: 2s, roles: [approver]}", late);
    is_accepted("late, and begun again", late, &[1]).await;
    is_accepted("cancelled", of("main", &[Word::Cancel]), &[-1, 0, 1]).await;
}

#[tokio::test]
async fn honest_steps_that_begin_again_are_accepted_by_both_verifiers() {
    let cancelled = again("a", &[Word::Cancel, FOUND]);
    is_accepted("cancelled, and begun again", cancelled, &[1]).await;
    for from in ["a", "first"] {
        let discarded = again(from, &[Word::Discarded("clause 7"), FOUND]);
        is_accepted("with data that a cancel discarded", discarded, &[]).await;
    }
    is_accepted("paused", of("main", &[Word::Paused("clause 7")]), &[0, 1]).await;
    is_accepted("with its data", again("a", &FAILED), &[1, isize::MAX / 2]).await;
    let without = again("first", &FAILED);
    is_accepted("without its data", without, &[isize::MAX / 2]).await;
    let failed = Suspended {
        workflow: "beside",
        ..again("z", &[Word::FailBeside, FOUND])
    };
    is_accepted("failed beside", failed, &[]).await;
}

#[tokio::test]
async fn honest_data_are_counted_as_decisions_by_both_verifiers() {
    let twice = [Word::Data("ann", "more"), Word::Link("clause 8")];
    let run = Suspended::with(&twice).record().await;
    let (outcome, said) = judged(&run);
    assert!(outcome.is_sound(), "{outcome:?}");
    let of = |name: &str| {
        let mut claims = outcome.claims.iter();
        claims.find(|one| one.claim == name).unwrap().reason.clone()
    };
    assert_eq!(of("approvals"), "2 valid decisions");
    if let Some(said) = said {
        assert_eq!(verdict(&said, "approvals"), "proven", "{said:#}");
    }
}

#[tokio::test]
async fn tables_list_suspensions_beside_approvals() {
    let twice = [Word::Data("ann", "more"), Word::Link("clause 8")];
    let run = Suspended::with(&twice).record().await;
    let files = tar::read(&Book::unsigned(&run).export_all()).unwrap();
    let text = String::from_utf8(files["derived/approvals.csv"].clone()).unwrap();
    let row = |line: &str| -> Vec<String> { line.split(',').map(str::to_owned).collect() };
    let rows: Vec<Vec<String>> = text.lines().map(row).collect();
    assert_eq!(rows.len(), 3, "{rows:?}");
    let names = [
        "kind", "step", "by", "auth", "decision", "status", "proposer",
    ];
    let told = |at: usize| {
        names.map(|name| {
            let column = rows[0].iter().position(|one| one == name).unwrap();
            rows[at][column].as_str()
        })
    };
    let data = |by, auth| ["suspend", "a", by, auth, "resumed", "resumed", "pia"];
    assert_eq!(told(1), data("ann", "token"));
    assert_eq!(told(2), data("capability", "capability"));
}

/// Nothing contradicts it but a checkpoint that is kept elsewhere: `docs/evidence.md` says so.
#[tokio::test]
async fn another_person_in_every_frame_that_names_one_is_not_found() {
    let run = Suspended::resumed().record().await;
    let forge = super::reviews::forge::Forge::of_run(run);
    let given = |one: &Value| one["type"] == "suspend.resumed";
    let given = forge.all.iter().position(given).unwrap();
    let run = forge.changed(|all| {
        all[given]["data"]["by"]["id"] = json!("eva");
        all[given]["actor"] = json!("principal:eva");
    });
    let (outcome, said) = judged(&run);
    assert!(outcome.is_sound(), "{outcome:?}");
    assert!(said.is_none_or(|said| said["sound"] == true));
}

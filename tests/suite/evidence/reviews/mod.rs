//! Reviews as evidence: an outcome counted, or did not, as people decided, whatever an operator with
//! every key writes instead and makes whole again.

mod again;
pub(super) mod forge;
mod forged;

use ktsu_evidence::tar;
use ktsu_ledger::store::SqliteReader;
use serde_json::{Value, json};

use super::book::Book;
use super::{holds, verdict};
use crate::support::ledgers::Recorded;
use crate::support::scenarios::reviews::Reviewed;
use forge::{Forge, any, find, judged};

fn overlay() -> Value {
    json!({"verdict": "no"})
}

/// Reviews that end in every way.
fn honest() -> Vec<(&'static str, Reviewed)> {
    let quorum = "{quorum: 2, not_by_proposer: true, roles: [approver, admin]}";
    let both = [
        ("ann", "approved", overlay()),
        ("bob", "approved", json!({})),
    ];
    let one = || Reviewed::with(&[]);
    vec![
        ("approved", Reviewed::approved()),
        ("overlay", Reviewed::with(&[("ann", "approved", overlay())])),
        (
            "alone",
            Reviewed {
                siblings: false,
                ..Reviewed::approved()
            },
        ),
        (
            "last",
            Reviewed {
                workflow: "last",
                ..Reviewed::with(&[("ann", "approved", overlay())])
            },
        ),
        (
            "rejected",
            Reviewed::with(&[("ann", "rejected", json!({}))]),
        ),
        (
            "rejected alone",
            Reviewed {
                siblings: false,
                ..Reviewed::with(&[("ann", "rejected", json!({}))])
            },
        ),
        (
            "quorum",
            Reviewed {
                policy: quorum,
                ..Reviewed::with(&both)
            },
        ),
        (
            "late",
            Reviewed {
                policy: "{timeout: 1s}",
                ..one()
            },
        ),
        (
            "late reject",
            Reviewed {
                policy: "{timeout: 1s, timeout_behavior: reject}",
                ..one()
            },
        ),
        (
            "cancelled",
            Reviewed {
                cancels: true,
                ..one()
            },
        ),
        (
            "child",
            Reviewed {
                workflow: "outer",
                ..Reviewed::with(&[("ann", "approved", overlay())])
            },
        ),
        (
            "child rejected",
            Reviewed {
                workflow: "outer",
                ..Reviewed::with(&[("ann", "rejected", json!({}))])
            },
        ),
    ]
}

#[tokio::test]
async fn honest_reviews_are_accepted_by_both_verifiers() {
    for (told, reviewed) in honest() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.db");
        let (stage, run) = reviewed.play(&ledger).await;
        // Before, during and after the review.
        let frames = stage.of("eva").frames(&run).await;
        let asked = frames
            .iter()
            .position(|one| one["type"] == "review.requested");
        let asked = asked.unwrap() + 1;
        for at in [asked - 1, asked, asked + 1, frames.len()] {
            let fork = json!({"at": at.min(frames.len()), "go": true}).to_string();
            let answer = stage
                .of("eva")
                .post(&format!("/runs/{run}/fork"), fork)
                .await;
            assert_eq!(answer.status, 201, "{told} at {at}: {}", answer.text());
            let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
            reviewed.attend(&stage, &branch).await;
        }
        let path = format!("/runs/{run}/recompute?wait=60");
        let answer = stage.of("eva").post(&path, "{}").await;
        assert!(answer.status < 500, "{told}: {}", answer.text());
        stage.lab.close().await;
        holds(&SqliteReader::open(&ledger).unwrap(), told);
    }
}

#[tokio::test]
async fn honest_reviews_are_counted_as_decisions_by_both_verifiers() {
    let run = Reviewed::approved().record().await;
    let (outcome, said) = judged(&run);
    assert!(outcome.is_sound(), "{outcome:?}");
    let of = |name: &str| {
        outcome
            .claims
            .iter()
            .find(|one| one.claim == name)
            .unwrap()
            .reason
            .clone()
    };
    assert_eq!(of("approvals"), "1 valid decision");
    if let Some(said) = said {
        assert_eq!(verdict(&said, "approvals"), "proven", "{said:#}");
    }
}

/// Nothing contradicts it but a checkpoint that somebody else keeps: `docs/evidence.md` says so.
#[tokio::test]
async fn another_person_in_every_frame_that_names_one_is_not_found() {
    let approved = Forge::of(&Reviewed::approved()).await;
    let decided = find(&approved.all, "review.decided", any);
    let run = approved.changed(|all| {
        all[decided]["data"]["by"]["id"] = json!("eva");
        all[decided]["actor"] = json!("principal:eva");
    });
    let (outcome, said) = judged(&run);
    assert!(outcome.is_sound(), "{outcome:?}");
    assert!(said.is_none_or(|said| said["sound"] == true));
}

/// A table of an archive, as rows.
fn table(run: &Recorded, name: &str) -> Vec<Vec<String>> {
    let files = tar::read(&Book::unsigned(run).export_all()).unwrap();
    let text = String::from_utf8(files[name].clone()).unwrap();
    let row = |line: &str| line.split(',').map(str::to_owned).collect();
    text.lines().map(row).collect()
}

#[tokio::test]
async fn tables_list_reviews_beside_approvals_and_what_people_replaced() {
    let both = [
        ("ann", "approved", overlay()),
        ("bob", "approved", json!({})),
    ];
    let quorum = Reviewed {
        policy: "{quorum: 2}",
        ..Reviewed::with(&both)
    };
    let run = quorum.record().await;
    let rows = table(&run, "derived/approvals.csv");
    assert_eq!(rows.len(), 3, "{rows:?}");
    let at = |row: usize, name: &str| {
        let column = rows[0].iter().position(|one| one == name).unwrap();
        rows[row][column].as_str()
    };
    for (row, by) in [(1, "ann"), (2, "bob")] {
        assert_eq!(rows[row].len(), rows[0].len(), "{rows:?}");
        let told = [
            "kind",
            "step",
            "by",
            "decision",
            "status",
            "proposer",
            "independent",
        ];
        let told = told.map(|name| at(row, name));
        assert_eq!(
            told,
            ["review", "a", by, "approved", "approved", "pia", "true"]
        );
        assert!(at(row, "approval_id").starts_with("rev_"));
        assert_eq!(
            [at(row, "tool"), at(row, "digest"), at(row, "executed")],
            [""; 3]
        );
    }
    let rows = table(&run, "derived/changes.csv");
    let told = &rows[1..];
    assert_eq!(told.len(), 1, "{rows:?}");
    assert_eq!(
        told[0][4..8],
        ["review.decided", "ann", "token", "a verdict"]
    );
    let late = Reviewed {
        policy: "{timeout: 1s}",
        ..Reviewed::with(&[])
    };
    let rows = table(&late.record().await, "derived/approvals.csv");
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[1].contains(&"timeout".to_owned()), "{rows:?}");
}

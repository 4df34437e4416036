//! Evidence of a step that begins again after people had replaced fields of its output: what they
//! replaced belongs to the earlier attempt, and both verifiers find it where it is used later.

use ktsu_ledger::store::SqliteReader;
use serde_json::{Value, json};

use super::super::holds;
use super::super::mutants::bodies;
use super::forge::{Forge, missed};
use super::overlay;
use crate::support::ledgers::Recorded;
use crate::support::scenarios::reviews::{ReviewStage, Reviewed};

/// Waits for the second question about `a`, and approves it as it is.
async fn approves_again(stage: &ReviewStage, run: &str) {
    let eva = stage.of("eva");
    let retry = json!({"from": "a"}).to_string();
    let answer = eva.post(&format!("/runs/{run}/retry"), retry).await;
    assert!(answer.status < 300, "{}", answer.text());
    let mut events = eva.events(run, None).await;
    let mut asked = 0;
    while asked < 2 {
        let event = events.next().await.expect("a second question");
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        asked += usize::from(frame["type"] == "review.requested");
    }
    let path = format!("/runs/{run}/steps/a/review/decide");
    let body = json!({"decision": "approved"}).to_string();
    let answer = stage.of("ann").post(&path, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    eva.ended(run).await;
}

#[tokio::test]
async fn what_was_replaced_of_an_earlier_outcome_holds_for_that_alone() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let reviewed = Reviewed::with(&[("ann", "approved", overlay())]);
    let (stage, run) = reviewed.play(&ledger).await;
    approves_again(&stage, &run).await;
    stage.lab.close().await;
    let reader = SqliteReader::open(&ledger).unwrap();
    holds(&reader, "begun again");

    let run = Recorded::read(&reader, &run);
    let all = bodies(&run);
    let forge = Forge { run, all };
    let place = |kind: &str, step: &str| {
        let fits = |one: &Value| one["type"] == kind && one["data"]["step"] == step;
        forge.all.iter().rposition(fits).unwrap()
    };
    let first = forge
        .all
        .iter()
        .position(|one| one["type"] == "review.decided");
    let with_input = |step: &str, input: Value| {
        forge.changed(|all| {
            let inputs = all[place("step.started", step)]["data"]["input"].as_object_mut();
            inputs
                .unwrap()
                .values_mut()
                .for_each(|one| *one = input.clone());
        })
    };
    let stale = json!({"ref": {"frame": first, "path": "/overlay/verdict"}});
    let beside = json!({"value": {"from": [place("step.completed", "a"), first], "value": {}}});
    let lost = missed(vec![
        (
            "an earlier overlay as input",
            "outputs",
            with_input("b", stale),
        ),
        (
            "an earlier overlay beside the output",
            "outputs",
            with_input("c", beside),
        ),
    ]);
    assert_eq!(lost, [""; 0]);
}

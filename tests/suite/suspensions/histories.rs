//! Runs with suspensions looked back at: cut after any frame, forked before and after the data, traced
//! and recomputed.

use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::{RESUME, give, lab, recorded, resume, suspended, suspension};
use crate::reviews::{holds, seen};
use crate::support::Client;
use crate::support::ledgers::Recorded;

async fn told(client: &Client, run: &str) -> Vec<String> {
    let frames = client.frames(run).await;
    let told = frames.iter().filter(|one| one["type"] != "run.continued");
    told.map(|one| format!("{} {}", one["scope"], one["type"]))
        .collect()
}

#[tokio::test]
async fn cut_after_any_frame_of_its_data_a_run_comes_to_the_same_end() {
    for (workflow, path) in [("reads", ""), ("calls", "/call")] {
        let store = MemoryStore::new();
        let first = lab(&store, RESUME).await;
        let run = suspended(&first.client, workflow).await;
        let given = give(&first.client, &format!("{run}{path}"), "clause 7").await;
        assert_eq!(given.status, 200, "{}", given.text());
        let envelope = first.client.ended(&run).await;
        let wanted = told(&first.client, &run).await;
        first.close().await;
        let recorded = Recorded::read(&store, &run);
        let from = wanted
            .iter()
            .position(|one| one.ends_with("\"suspend.resumed\""));
        for cut in from.unwrap() + 1..recorded.records.len() {
            let mut store = MemoryStore::new();
            recorded.cut(cut).put(&mut store);
            let again = lab(&store, RESUME).await;
            let ended = again.client.ended(&run).await;
            assert_eq!(
                ended["output"], envelope["output"],
                "{workflow} cut at {cut}"
            );
            again.close().await;
            holds(&store, &run);
        }
    }
}

pub(super) async fn fork(client: &Client, run: &str, at: usize) -> String {
    let body = json!({"at": at, "go": true}).to_string();
    let answer = client.post(&format!("/runs/{run}/fork"), body).await;
    assert!(answer.status < 300, "{}", answer.text());
    answer.json()["branch_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_branch_from_before_the_data_asks_again_and_one_from_after_has_them() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let client = &lab.client;
    let run = suspended(client, "reads").await;
    assert_eq!(give(client, &run, "clause 7").await.status, 200);
    client.ended(&run).await;
    let frames = client.frames(&run).await;
    let at = |kind: &str| frames.iter().position(|one| one["type"] == kind).unwrap();
    let before = fork(client, &run, at("suspend.requested") + 1).await;
    seen(client, &before, "suspend.requested", 2).await;
    assert_eq!(give(client, &before, "clause 8").await.status, 200);
    assert_eq!(
        client.ended(&before).await["output"]["verdict"],
        "read clause 8"
    );
    holds(&store, &before);
    for kind in ["suspend.resumed", "step.reset", "agent.finished"] {
        let last = frames.iter().rposition(|one| one["type"] == kind).unwrap();
        let after = fork(client, &run, last + 1).await;
        assert_eq!(
            client.ended(&after).await["output"]["verdict"],
            "read clause 7",
            "{kind}"
        );
        holds(&store, &after);
    }
    lab.close().await;
}

#[tokio::test]
async fn a_branch_from_any_frame_asks_as_often_as_the_data_come_after_it() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let client = &lab.client;
    let run = suspended(client, "reads").await;
    let first = suspension(client, &run).await;
    assert_eq!(give(client, &run, "clause 7").await.status, 200);
    client.ended(&run).await;
    let frames = client.frames(&run).await;
    let number = |kind: &str| frames.iter().position(|one| one["type"] == kind).unwrap();
    let (asked, resumed) = (number("suspend.requested"), number("suspend.resumed"));
    for at in 2..=frames.len() {
        let branch = fork(client, &run, at).await;
        let wanted = match at > resumed {
            true => "read clause 7",
            false => {
                seen(
                    client,
                    &branch,
                    "suspend.requested",
                    1 + usize::from(at > asked),
                )
                .await;
                let again = suspension(client, &branch).await;
                assert_ne!(again["suspend_id"], first["suspend_id"], "at {at}");
                let stale =
                    json!({"data": {"text": "clause 9"}, "suspend_id": first["suspend_id"]});
                assert_eq!(resume(client, &branch, stale).await.status, 409, "at {at}");
                assert_eq!(give(client, &branch, "clause 8").await.status, 200);
                "read clause 8"
            }
        };
        let envelope = client.ended(&branch).await;
        assert_eq!(
            envelope["output"]["verdict"], wanted,
            "at {at}: {envelope:#}"
        );
        holds(&store, &branch);
    }
    lab.close().await;
}

#[tokio::test]
async fn the_trace_of_the_answer_leads_to_the_data_and_a_recompute_asks_no_one() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let client = &lab.client;
    let run = suspended(client, "reads").await;
    assert_eq!(give(client, &run, "clause 7").await.status, 200);
    client.ended(&run).await;
    let trace = client
        .get(&format!("/runs/{run}/trace?of=output.verdict"))
        .await;
    assert_eq!(trace.status, 200, "{}", trace.text());
    assert!(trace.text().contains("suspend.resumed"), "{}", trace.text());
    let path = format!("/runs/{run}/recompute?wait=60");
    let verdict = client.post(&path, "{}").await;
    assert_eq!(verdict.json()["status"], "clean", "{}", verdict.text());
    assert_eq!(client.get("/approvals").await.json(), json!([]));
    lab.close().await;
}

#[tokio::test]
async fn what_was_recorded_says_the_same_when_it_is_folded_again() {
    for how in ["resumed", "late"] {
        let recorded = recorded(how).await;
        let frames = recorded.frames();
        let kinds: Vec<&str> = frames.iter().map(|frame| frame.event.kind()).collect();
        assert!(kinds.contains(&"suspend.requested"), "{kinds:?}");
        let last: Value = serde_json::from_str(&recorded.records.last().unwrap().body).unwrap();
        assert!(last["type"].as_str().unwrap().starts_with("run."), "{last}");
    }
}

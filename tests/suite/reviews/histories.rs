//! Runs with reviews looked back at: cut after any frame, forked before and after the decision, and
//! recomputed.

use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::{approve, asked, decide, holds, is, kinds, lab, review, seen};
use crate::support::ledgers::Recorded;
use crate::support::{Client, Lab};

fn text<'v>(frame: &'v Value, member: &str) -> &'v str {
    frame[member].as_str().unwrap_or_default()
}

/// Scopes and types of the frames, but for those that say that an engine began again.
async fn told(client: &Client, run: &str) -> Vec<String> {
    let frames = client.frames(run).await;
    let told = frames.iter().filter(|one| one["type"] != "run.continued");
    told.map(|one| format!("{} {}", text(one, "scope"), text(one, "type")))
        .collect()
}

/// A run that was decided on, whole.
async fn decided(policy: &str, workflow: &str, body: &Value) -> (Recorded, String) {
    let store = MemoryStore::new();
    let lab = lab(&store, policy).await;
    let run = asked(&lab.client, workflow).await;
    if !body.is_null() {
        let path = match workflow {
            "calls" => format!("{run}/call"),
            _ => run.clone(),
        };
        let answer = decide(&lab.client, &path, body.clone()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    lab.client.ended(&run).await;
    lab.close().await;
    (Recorded::read(&store, &run), run)
}

#[tokio::test]
async fn cut_after_any_frame_of_a_decision_a_run_comes_to_the_same_end() {
    let corrected = json!({"decision": "approved", "overlay": {"verdict": "bad"}});
    let rejected = json!({"decision": "rejected", "reason": "no"});
    let late = "{timeout: 1s, timeout_behavior: reject}";
    for (policy, workflow, body) in [
        ("true", "judged", &corrected),
        ("true", "calls", &corrected),
        ("true", "judged", &rejected),
        ("true", "calls", &rejected),
        (late, "judged", &Value::Null),
        ("{timeout: 1s}", "judged", &Value::Null),
    ] {
        let (recorded, run) = decided(policy, workflow, body).await;
        let mut store = MemoryStore::new();
        recorded.put(&mut store);
        let whole = lab(&store, policy).await;
        let wanted = told(&whole.client, &run).await;
        let envelope = whole.client.ended(&run).await;
        whole.close().await;
        let first = ["review.decided", "timer.fired"];
        let first = wanted
            .iter()
            .position(|one| first.iter().any(|kind| one.ends_with(kind)));
        for cut in first.unwrap() + 1..recorded.records.len() {
            let mut store = MemoryStore::new();
            recorded.cut(cut).put(&mut store);
            let lab = lab(&store, policy).await;
            let ended = lab.client.ended(&run).await;
            let both = [&ended, &envelope].map(|one| (&one["status"], &one["output"]));
            assert_eq!(both[0], both[1], "{workflow} cut at {cut}");
            assert_eq!(told(&lab.client, &run).await, wanted, "cut at {cut}");
            lab.close().await;
            holds(&store, &run);
        }
    }
}

async fn fork(lab: &Lab, run: &str, at: u64) -> String {
    let body = json!({"at": at, "go": true}).to_string();
    let answer = lab.client.post(&format!("/runs/{run}/fork"), body).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["branch_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_branch_from_before_the_decision_asks_again_and_one_from_after_it_has_it() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    let run = asked(client, "judged").await;
    let first = review(client, &run).await;
    let body = json!({"decision": "approved", "overlay": {"verdict": "bad"}});
    assert_eq!(decide(client, &run, body).await.status, 200);
    let whole = client.ended(&run).await;
    let frames = client.frames(&run).await;
    let number = |kind: &str| {
        let found = frames.iter().find(|one| one["type"] == kind);
        found.unwrap()["seq"].as_u64().unwrap()
    };
    for at in number("review.decided") + 1..frames.len() as u64 {
        let branch = fork(&lab, &run, at).await;
        assert_eq!(client.ended(&branch).await["output"], whole["output"]);
        let path = format!("/runs/{branch}/steps/a/review");
        let record = client.get(&path).await.json();
        assert_eq!(record["status"], "approved", "{record:#}");
        is(
            &approve(client, &branch).await,
            409,
            "review_already_decided",
        );
        holds(&store, &branch);
    }
    // From before anyone was asked, too.
    for at in number("command.requested")..=number("review.decided") {
        let branch = fork(&lab, &run, at).await;
        let times = 1 + usize::from(at > number("review.requested"));
        seen(client, &branch, "review.requested", times).await;
        let again = review(client, &branch).await;
        assert_eq!(
            (&again["status"], &again["run_id"]),
            (&json!("pending"), &json!(branch))
        );
        assert_ne!(again["review_id"], first["review_id"]);
        let stale = json!({"decision": "approved", "review_id": first["review_id"]});
        is(&decide(client, &branch, stale).await, 409, "review_refused");
        let decision = if at % 2 == 0 { "approved" } else { "rejected" };
        let answer = decide(client, &branch, json!({"decision": decision})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let envelope = client.ended(&branch).await;
        if decision == "approved" {
            assert_eq!(envelope["output"]["verdict"], "good", "{envelope:#}");
        } else {
            assert_eq!(envelope["error"]["code"], "review_rejected");
        }
        holds(&store, &branch);
    }
    assert_eq!(review(client, &run).await["status"], "approved");
    lab.close().await;
}

#[tokio::test]
async fn a_recompute_of_a_reviewed_run_asks_no_one_and_finds_the_same() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    for decision in ["approved", "rejected"] {
        let run = asked(client, "judged").await;
        let answer = decide(client, &run, json!({"decision": decision})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        client.ended(&run).await;
        let before = kinds(client, &run).await;
        let path = format!("/runs/{run}/recompute?wait=60");
        let verdict = client.post(&path, "{}").await;
        assert_eq!(verdict.status, 200, "{}", verdict.text());
        assert_eq!(verdict.json()["status"], "clean", "{}", verdict.text());
        assert_eq!(client.get("/approvals").await.json(), json!([]));
        assert_eq!(kinds(client, &run).await, before);
        holds(&store, &run);
    }
    lab.close().await;
}

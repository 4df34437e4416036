//! Reviews of runs that are paused, cancelled, begun again, restarted, late, or children of others.

use ktsu_ledger::store::MemoryStore;
use ktsu_ledger::verify::{VerifyOptions, verify};
use serde_json::{Value, json};

use super::{approve, asked, decide, holds, is, kinds, lab, review, seen, steer};

#[tokio::test]
async fn while_a_run_is_paused_a_decision_is_on_its_own_until_it_is_resumed() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    for decision in ["approved", "rejected"] {
        let run = asked(client, "judged").await;
        assert_eq!(review(client, &run).await.get("paused_at"), None);
        steer(client, &run, "pause", json!({})).await;
        let paused = review(client, &run).await;
        assert!(paused["paused_at"].is_string(), "{paused:#}");
        let decided = decide(client, &run, json!({"decision": decision})).await;
        assert_eq!(decided.json().get("paused_at"), None);
        assert_eq!(decided.status, 200, "{}", decided.text());
        assert_eq!(
            kinds(client, &run).await[1..],
            ["run.paused", "review.decided"]
        );
        let report = verify(&store, &VerifyOptions::default(), &mut |_| {});
        assert_eq!(report.problems, [], "{run}");
        is(&approve(client, &run).await, 409, "review_already_decided");
        steer(client, &run, "resume", json!({})).await;
        let envelope = client.ended(&run).await;
        let status = match decision {
            "approved" => "complete",
            _ => "failed",
        };
        assert_eq!(envelope["status"], status, "{envelope:#}");
        holds(&store, &run);
    }
    lab.close().await;
}

#[tokio::test]
async fn a_run_cancelled_after_a_decision_carries_nothing_out() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    for word in ["cancel", "terminate"] {
        let run = asked(client, "judged").await;
        steer(client, &run, "pause", json!({})).await;
        assert_eq!(approve(client, &run).await.status, 200);
        steer(client, &run, word, json!({})).await;
        let envelope = client.ended(&run).await;
        assert_eq!(envelope["status"], "cancelled", "{envelope:#}");
        let kinds = kinds(client, &run).await;
        let emits = kinds.iter().filter(|kind| *kind == "command.requested");
        assert_eq!(emits.count(), 0, "{kinds:?}");
        assert!(!kinds.contains(&"step.completed".to_owned()), "{kinds:?}");
        assert_eq!(review(client, &run).await["status"], "approved");
        is(&approve(client, &run).await, 409, "review_already_decided");
        holds(&store, &run);
    }
    lab.close().await;
}

#[tokio::test]
async fn a_run_that_ends_before_a_decision_makes_its_review_void() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    for word in ["cancel", "terminate"] {
        let run = asked(client, "judged").await;
        steer(client, &run, word, json!({})).await;
        let envelope = client.ended(&run).await;
        assert_eq!(envelope["status"], "cancelled", "{envelope:#}");
        for decision in ["approved", "rejected"] {
            let late = decide(client, &run, json!({"decision": decision})).await;
            is(&late, 409, "review_already_decided");
            assert_eq!(late.json()["review"]["status"], "void");
        }
        assert_eq!(client.get("/approvals").await.json(), json!([]));
        holds(&store, &run);
    }
    lab.close().await;
}

#[tokio::test]
async fn a_step_that_is_retried_after_a_rejection_asks_again_with_another_id() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    let run = asked(client, "judged").await;
    let first = review(client, &run).await;
    let rejected = decide(client, &run, json!({"decision": "rejected"})).await;
    assert_eq!(rejected.status, 200, "{}", rejected.text());
    client.ended(&run).await;
    steer(client, &run, "retry", json!({"from": "a"})).await;
    seen(client, &run, "review.requested", 2).await;
    let second = review(client, &run).await;
    assert_eq!(second["status"], "pending", "{second:#}");
    assert_ne!(second["review_id"], first["review_id"]);
    let of = |record: &Value| json!({"decision": "approved", "review_id": record["review_id"]});
    is(
        &decide(client, &run, of(&first)).await,
        409,
        "review_refused",
    );
    let path = format!(
        "/runs/{run}/steps/a/review?review_id={}",
        first["review_id"].as_str().unwrap()
    );
    assert_eq!(client.get(&path).await.json()["status"], "rejected");
    assert_eq!(decide(client, &run, of(&second)).await.status, 200);
    assert_eq!(client.ended(&run).await["status"], "complete");
    holds(&store, &run);
    lab.close().await;
}

#[tokio::test]
async fn a_review_and_its_deadline_outlive_the_engine() {
    let store = MemoryStore::new();
    let first = lab(&store, "{timeout: 3h}").await;
    let run = asked(&first.client, "judged").await;
    let before = review(&first.client, &run).await;
    first.close().await;
    let second = lab(&store, "{timeout: 3h}").await;
    let client = &second.client;
    assert_eq!(review(client, &run).await, before);
    assert_eq!(approve(client, &run).await.status, 200);
    assert_eq!(client.ended(&run).await["status"], "complete");
    holds(&store, &run);
    second.close().await;
}

#[tokio::test]
async fn without_a_decision_in_time_the_outcome_does_not_count() {
    for (policy, discards) in [
        ("{timeout: 1s}", false),
        ("{timeout: 1s, timeout_behavior: reject}", true),
    ] {
        let store = MemoryStore::new();
        let lab = lab(&store, policy).await;
        let client = &lab.client;
        let run = client.invoke("judged", json!({})).await;
        let envelope = client.ended(&run).await;
        let code = if discards {
            "review_rejected"
        } else {
            "review_timed_out"
        };
        assert_eq!(envelope["error"]["code"], code, "{envelope:#}");
        let kinds = kinds(client, &run).await;
        assert_eq!(kinds[1], "timer.fired");
        let discarded = kinds.iter().filter(|kind| *kind == "command.discarded");
        assert_eq!(discarded.count(), usize::from(discards), "{kinds:?}");
        let late = approve(client, &run).await;
        is(&late, 409, "review_expired");
        assert_eq!(late.json()["review"]["status"], "timeout");
        holds(&store, &run);
        lab.close().await;
    }
}

#[tokio::test]
async fn an_overlay_that_the_air_lock_refuses_records_nothing_and_another_counts() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    let run = asked(client, "judged").await;
    let before = client.frames(&run).await.len();
    for (body, status, code) in [
        (
            json!({"decision": "approved", "overlay": {"verdict": "odd"}}),
            422,
            "overlay_refused",
        ),
        (
            json!({"decision": "approved", "overlay": {"ktsu_flags": []}}),
            422,
            "overlay_refused",
        ),
        (json!({"decision": "perhaps"}), 400, "unknown_decision"),
        (
            json!({"decision": "approved", "review_id": "rev_0"}),
            409,
            "review_refused",
        ),
    ] {
        is(&decide(client, &run, body).await, status, code);
    }
    let refused = decide(
        client,
        &run,
        json!({"decision": "rejected", "overlay": {"verdict": "bad"}}),
    )
    .await;
    assert!((400..500).contains(&refused.status), "{}", refused.text());
    assert_eq!(client.frames(&run).await.len(), before);
    let body = json!({"decision": "approved", "overlay": {"verdict": "bad"}});
    let decided = decide(client, &run, body).await.json();
    assert_eq!(decided["overlay"], json!({"verdict": "bad"}), "{decided:#}");
    let envelope = client.ended(&run).await;
    assert_eq!(envelope["output"], json!({"verdict": "bad", "seen": "bad"}));
    holds(&store, &run);
    lab.close().await;
}

#[tokio::test]
async fn a_step_of_a_child_is_reviewed_by_the_path_of_the_child() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    for (workflow, child) in [("calls", "call"), ("invokes", "s/judged.0")] {
        for decision in ["approved", "rejected"] {
            let run = asked(client, workflow).await;
            let paths = [
                format!("{run}/{child}"),
                format!("{run}%2F{}", child.replace('/', "%2F")),
            ];
            for path in &paths {
                let record = review(client, path).await;
                assert_eq!(record["run_id"], format!("{run}/{child}"), "{record:#}");
                assert_eq!(record["step_id"], "a");
            }
            let elsewhere = client.get(&format!("/runs/{run}/steps/a/review")).await;
            assert_eq!(elsewhere.status, 404, "{}", elsewhere.text());
            let record = client.get("/approvals").await.json();
            assert_eq!(record[0]["run_id"], format!("{run}/{child}"), "{record:#}");
            let decided = decide(client, &paths[0], json!({"decision": decision})).await;
            assert_eq!(decided.status, 200, "{}", decided.text());
            let late = approve(client, &paths[1]).await;
            is(&late, 409, "review_already_decided");
            let envelope = client.ended(&run).await;
            if decision == "approved" {
                assert_eq!(envelope["status"], "complete", "{envelope:#}");
                let shown = envelope["output"].to_string();
                assert!(shown.contains("good"), "{shown}");
            } else {
                assert_eq!(envelope["status"], "failed", "{envelope:#}");
                assert_eq!(envelope["error"]["step"], format!("{child}/a"));
            }
            holds(&store, &run);
        }
    }
    lab.close().await;
}

#[tokio::test]
async fn time_to_decide_is_longer_by_the_pause_and_said_to_be_suspended_meanwhile() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    let run = asked(client, "judged").await;
    let until = review(client, &run).await["expires_at"].clone();
    steer(client, &run, "pause", json!({})).await;
    let listed = client.get("/approvals").await.json();
    assert!(listed[0]["paused_at"].is_string(), "{listed:#}");
    assert_eq!(listed[0]["expires_at"], until);
    steer(client, &run, "resume", json!({})).await;
    let resumed = review(client, &run).await;
    assert_eq!(resumed.get("paused_at"), None, "{resumed:#}");
    assert!(resumed["expires_at"].as_str() >= until.as_str());
    lab.close().await;
}

#[tokio::test]
async fn an_overlay_of_an_output_under_review_is_answered_with_how_to_send_it() {
    let store = MemoryStore::new();
    let lab = lab(&store, "true").await;
    let client = &lab.client;
    let run = asked(client, "judged").await;
    let id = review(client, &run).await["review_id"].clone();
    let id = id.as_str().unwrap();
    let set = json!({"step": "a", "field": "verdict", "value": "bad", "reason": "x"}).to_string();
    let path = format!("/runs/{run}/overlay");
    for refused in [
        client.post(&path, set.clone()).await,
        client.send("PATCH", &path, &[], set.clone()).await,
    ] {
        is(&refused, 409, "step_not_complete");
        let problem = refused.json();
        let words = format!("the output of step \"a\" waits for the review {id}");
        assert_eq!(problem["message"], json!(words));
        let hint = problem["hint"].as_str().unwrap();
        assert!(
            hint.contains(&format!("ktsu approve {id} --overlay")),
            "{hint}"
        );
    }
    let other = json!({"step": "b", "field": "result", "value": "x", "reason": "x"});
    let refused = client.post(&path, other.to_string()).await;
    is(&refused, 409, "step_not_complete");
    assert_eq!(refused.json().get("hint"), None, "{}", refused.text());
    lab.close().await;
}

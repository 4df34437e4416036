//! Suspensions of runs that are paused, cancelled, begun again, restarted, late, or children of others.

use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::{RESUME, give, kinds, lab, resume, suspended, suspension};
use crate::reviews::{holds, is, seen, steer};

#[tokio::test]
async fn while_a_run_is_paused_the_data_are_recorded_and_the_step_waits_for_the_run() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let client = &lab.client;
    let run = suspended(client, "reads").await;
    steer(client, &run, "pause", json!({})).await;
    assert_eq!(give(client, &run, "x").await.status, 200);
    assert_eq!(
        kinds(client, &run).await[1..],
        ["run.paused", "suspend.resumed"]
    );
    is(&give(client, &run, "y").await, 409, "suspension_over");
    steer(client, &run, "resume", json!({})).await;
    assert_eq!(client.ended(&run).await["output"]["verdict"], "read x");
    holds(&store, &run);
    let run = suspended(client, "reads").await;
    steer(client, &run, "pause", json!({})).await;
    assert_eq!(give(client, &run, "x").await.status, 200);
    steer(client, &run, "cancel", json!({})).await;
    assert_eq!(client.ended(&run).await["status"], "cancelled");
    assert!(!kinds(client, &run).await.contains(&"step.reset".to_owned()));
    holds(&store, &run);
    lab.close().await;
}

#[tokio::test]
async fn a_run_that_ends_before_the_data_makes_its_suspension_void() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let client = &lab.client;
    for word in ["cancel", "terminate"] {
        let run = suspended(client, "reads").await;
        steer(client, &run, word, json!({})).await;
        assert_eq!(client.ended(&run).await["status"], "cancelled");
        let late = give(client, &run, "x").await;
        is(&late, 409, "suspension_over");
        assert_eq!(late.json()["suspension"]["status"], "void");
        assert_eq!(client.get("/approvals").await.json(), json!([]));
        holds(&store, &run);
    }
    lab.close().await;
}

#[tokio::test]
async fn without_data_in_time_the_step_fails_and_a_retry_asks_again() {
    let store = MemoryStore::new();
    let lab = lab(&store, "{timeout: 1s}").await;
    let client = &lab.client;
    let run = suspended(client, "reads").await;
    let envelope = client.ended(&run).await;
    assert_eq!(
        envelope["error"]["code"], "suspend_timed_out",
        "{envelope:#}"
    );
    assert_eq!(
        kinds(client, &run).await[1..3],
        ["timer.fired", "step.failed"]
    );
    let late = give(client, &run, "x").await;
    is(&late, 409, "suspension_over");
    assert_eq!(late.json()["suspension"]["status"], "timeout");
    let first = suspension(client, &run).await;
    steer(client, &run, "retry", json!({"from": "a"})).await;
    seen(client, &run, "suspend.requested", 2).await;
    let second = suspension(client, &run).await;
    assert_ne!(first["suspend_id"], second["suspend_id"]);
    let of = |record: &Value| json!({"data": {"text": "x"}, "suspend_id": record["suspend_id"]});
    is(
        &resume(client, &run, of(&first)).await,
        409,
        "suspension_stale",
    );
    assert_eq!(resume(client, &run, of(&second)).await.status, 200);
    assert_eq!(client.ended(&run).await["output"]["verdict"], "read x");
    holds(&store, &run);
    lab.close().await;
}

#[tokio::test]
async fn a_suspension_and_its_deadline_outlive_the_engine_and_a_step_may_be_suspended_again() {
    let store = MemoryStore::new();
    let first = lab(&store, RESUME).await;
    let run = suspended(&first.client, "reads").await;
    let before = suspension(&first.client, &run).await;
    first.close().await;
    let second = lab(&store, RESUME).await;
    let client = &second.client;
    assert_eq!(suspension(client, &run).await, before);
    assert_eq!(give(client, &run, "more").await.status, 200);
    seen(client, &run, "suspend.requested", 2).await;
    let next = suspension(client, &run).await;
    assert_eq!(next["reason"], "the other half is missing", "{next:#}");
    assert_eq!(next["attempt"], 2);
    assert_eq!(give(client, &run, "clause 7").await.status, 200);
    assert_eq!(
        client.ended(&run).await["output"]["verdict"],
        "read clause 7"
    );
    holds(&store, &run);
    second.close().await;
}

#[tokio::test]
async fn a_step_of_a_child_gets_its_data_by_the_path_of_the_child() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let client = &lab.client;
    for (workflow, child) in [("calls", "call"), ("invokes", "s/reads.0")] {
        let run = suspended(client, workflow).await;
        let path = format!("{run}/{child}");
        let record = suspension(client, &path).await;
        assert_eq!(record["run_id"], path, "{record:#}");
        is(&give(client, &run, "x").await, 404, "suspension_not_found");
        let encoded = format!("{run}%2F{}", child.replace('/', "%2F"));
        assert_eq!(give(client, &encoded, "x").await.status, 200);
        is(&give(client, &path, "y").await, 409, "suspension_over");
        let envelope = client.ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        assert!(
            envelope["output"].to_string().contains("read x"),
            "{envelope:#}"
        );
        holds(&store, &run);
    }
    lab.close().await;
}

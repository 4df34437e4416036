//! One run per key (R15).

use std::collections::BTreeSet;

use serde_json::json;

use super::{HOOK, kit, lab};
use crate::support::{Client, Lab};

async fn invoke(client: &Client, key: &str, body: &str) -> (u16, String) {
    let headers = [("Idempotency-Key", key)];
    let answer = client
        .send("POST", "/invoke/hello", &headers, body.to_owned())
        .await;
    let run = answer.json()["run_id"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (answer.status, run)
}

#[tokio::test]
async fn a_repeated_request_gets_the_run_of_the_first() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let (status, first) = invoke(&lab.client, "k", r#"{"msg":"a"}"#).await;
    assert_eq!(status, 202);
    // The same value in other words is the same request.
    for body in [r#"{"msg":"a"}"#, r#" { "msg" : "\u0061" } "#] {
        assert_eq!(invoke(&lab.client, "k", body).await, (202, first.clone()));
    }
    assert_eq!(invoke(&lab.client, "k", r#"{"msg":"b"}"#).await.0, 409);
    assert_eq!(invoke(&lab.client, "k", "{}").await.0, 409);
    let other = invoke(&lab.client, "k2", r#"{"msg":"a"}"#).await;
    assert_ne!(other.1, first);
    // A refused request does not use its key up.
    assert_eq!(invoke(&lab.client, "k3", r#"{"msg":5}"#).await.0, 422);
    assert_eq!(invoke(&lab.client, "k3", "{}").await.0, 202);
    // The key belongs to the workflow it was used for.
    let headers = [("Idempotency-Key", "k"), ("X-Key", HOOK)];
    let locked = api.call("POST", "/invoke/locked", &headers, "{}").await;
    assert_eq!(locked.status, 202);
    assert_ne!(locked.json()["run_id"], json!(first));
    assert_eq!(
        api.get("/runs").await.json()["runs"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

#[tokio::test]
async fn a_request_with_other_effects_is_another_one() {
    let (_kit, lab, _api) = lab("http://127.0.0.1:9").await;
    let ask = async |effects: &str, key: &str| {
        let headers = [("Idempotency-Key", key)];
        let path = format!("/invoke/hello?effects={effects}");
        let answer = lab.client.send("POST", &path, &headers, "{}").await;
        (answer.status, answer.json())
    };
    let (status, first) = ask("suppress", "k").await;
    assert_eq!(status, 202);
    assert_eq!(ask("suppress", "k").await, (202, first));
    let (status, refused) = ask("execute", "k").await;
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("idempotency_conflict"))
    );
    // To execute them is what happens if nothing is said.
    let (_, plain) = invoke(&lab.client, "l", "{}").await;
    assert_eq!(ask("execute", "l").await.1["run_id"], json!(plain));
    assert_eq!(ask("suppress", "l").await.0, 409);
    let (status, refused) = ask("some", "m").await;
    assert_eq!((status, &refused["code"]), (400, &json!("invalid_query")));
}

#[tokio::test]
async fn a_repeated_request_that_waits_gets_the_end_of_the_first() {
    let (_kit, lab, _api) = lab("http://127.0.0.1:9").await;
    let (_, first) = invoke(&lab.client, "k", "{}").await;
    let headers = [("Idempotency-Key", "k")];
    let again = lab
        .client
        .send("POST", "/invoke/hello?wait=60", &headers, "{}")
        .await;
    assert_eq!(again.status, 200);
    assert_eq!(again.json()["run_id"], json!(first));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_requests_at_once_start_one_run() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let asking = (0..50).map(|_| {
        let client = lab.client.clone();
        tokio::spawn(async move { invoke(&client, "same", r#"{"msg":"once"}"#).await })
    });
    let mut runs = BTreeSet::new();
    for asked in asking.collect::<Vec<_>>() {
        let (status, run) = asked.await.unwrap();
        assert_eq!(status, 202);
        runs.insert(run);
    }
    assert_eq!(runs.len(), 1);
    assert_eq!(
        api.get("/runs").await.json()["runs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

/// Of many that come at once, one looks the key up and the others wait for what it finds: they
/// must not take it for their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_body_under_a_used_key_is_refused_however_many_ask_at_once() {
    let (_kit, lab, _api) = lab("http://127.0.0.1:9").await;
    for round in 0..20 {
        let key = format!("k{round}");
        assert_eq!(invoke(&lab.client, &key, r#"{"msg":"a"}"#).await.0, 202);
        let asking = (0..24).map(|_| {
            let (client, key) = (lab.client.clone(), key.clone());
            tokio::spawn(async move { invoke(&client, &key, r#"{"msg":"b"}"#).await.0 })
        });
        for asked in asking.collect::<Vec<_>>() {
            assert_eq!(asked.await.unwrap(), 409);
        }
    }
}

#[tokio::test]
async fn a_key_survives_a_restart() {
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let pairs = [("SINK", "http://127.0.0.1:9"), ("HOOK", HOOK)];
    let lab = Lab::on_file(&path, &kit, &pairs).await;
    let (_, first) = invoke(&lab.client, "k", r#"{"msg":"a"}"#).await;
    lab.client.ended(&first).await;
    lab.close().await;
    let lab = Lab::on_file(&path, &kit, &pairs).await;
    assert_eq!(
        invoke(&lab.client, "k", r#"{"msg":"a"}"#).await,
        (202, first)
    );
    assert_eq!(invoke(&lab.client, "k", r#"{"msg":"b"}"#).await.0, 409);
    lab.close().await;
}

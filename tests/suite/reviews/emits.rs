//! What an outcome under review emits, with a runtime of somebody else.

use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Backend;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::{asked, decide, holds, is, kinds, kit, review};
use crate::support::sink::{Heard, Reply};
use crate::support::{Client, Lab, Sink};

const SECRET: (&str, &str) = ("HOOK_SECRET", "whsec_c2VjcmV0IGtleQ==");

/// A runtime that ends every task with a review, and a command beside it.
async fn runtime(output: Value) -> Sink {
    Sink::scripted(move |heard| {
        if heard.path == "/invoke" {
            let (heard, output) = (heard.clone(), output.clone());
            tokio::spawn(async move { complete(&heard, &output).await });
        }
        Reply::Now(202, String::new())
    })
    .await
}

async fn complete(heard: &Heard, output: &Value) {
    let task = heard.json();
    let body = json!({"status": "ok", "output": output, "commands": [
        {"type": "emit", "topic": "claim.judged", "payload": task["run_id"]},
        {"type": "review", "reason": "it matters", "payload": {"line": 7}},
    ]});
    let url = task["callback_url"].as_str().unwrap();
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let client = Client::of(&format!("http://{host}"));
    let answer = client.post(path, body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn what_an_outcome_emits_is_sent_once_after_it_is_approved_and_never_if_it_is_rejected() {
    let (sink, runtime) = (Sink::new().await, runtime(json!({"verdict": "good"})).await);
    let text = format!(
        "subscriptions:\n  - {{name: claims, topics: 'claim.*', url: '{}', backoff: 5ms, \
         secret: '{{{{ env.HOOK_SECRET }}}}'}}\n",
        sink.url
    );
    let place = LedgerPlace::Memory;
    let lab = Lab::remote_in(place, &kit("true"), &text, &[SECRET], &runtime.url).await;
    let client = &lab.client;
    let runs = [
        asked(client, "judged").await,
        asked(client, "judged").await,
        asked(client, "judged").await,
    ];
    let record = review(client, &runs[0]).await;
    assert_eq!(
        (&record["status"], &record["kind"], &record["run_id"]),
        (&json!("pending"), &json!("review"), &json!(runs[0])),
        "{record:#}"
    );
    assert_eq!(record["payload"], json!({"line": 7}));
    assert_eq!(record["output"], json!({"verdict": "good"}));
    let deferred: Vec<&Value> = record["deferred"].as_array().unwrap().iter().collect();
    assert_eq!(deferred.len(), 1, "{record:#}");
    assert_eq!(deferred[0]["type"], "emit");
    assert!(deferred[0]["topic"].is_string() && deferred[0].get("payload").is_some());
    let decisions = ["rejected", "approved", "approved"];
    for (run, decision) in runs.iter().zip(decisions) {
        let envelope = client.get(&format!("/runs/{run}/envelope")).await.json();
        assert_eq!(envelope["status"], "waiting", "{envelope:#}");
        let body = json!({"decision": decision, "reason": "as agreed"});
        let decided = decide(client, run, body).await;
        assert_eq!(decided.status, 200, "{}", decided.text());
        let decided = decided.json();
        assert_eq!(decided["status"], decision, "{decided:#}");
        assert_eq!(decided["votes"][0]["reason"], "as agreed");
    }
    // What is emitted is sent in the order of the ledger, so the last says that no other comes.
    sink.until(|heard| heard.iter().any(|one| one.json()["payload"] == *runs[2]))
        .await;
    let payloads: Vec<Value> = sink
        .heard()
        .iter()
        .map(|one| one.json()["payload"].clone())
        .collect();
    assert_eq!(payloads, [json!(runs[1]), json!(runs[2])]);
    for (run, decision) in runs.iter().zip(decisions) {
        let envelope = client.ended(run).await;
        let kinds = kinds(client, run).await;
        let after = &kinds[1..4];
        if decision == "rejected" {
            assert_eq!(envelope["error"]["code"], "review_rejected", "{envelope:#}");
            assert_eq!(
                after,
                ["review.decided", "command.discarded", "step.failed"]
            );
        } else {
            assert_eq!(envelope["output"]["seen"], "good", "{envelope:#}");
            assert_eq!(
                after,
                ["review.decided", "command.requested", "step.completed"]
            );
        }
        for again in ["approved", "rejected"] {
            let late = decide(client, run, json!({"decision": again})).await;
            is(&late, 409, "review_already_decided");
            let record = &late.json()["review"];
            assert_eq!(record["status"], decision, "{record:#}");
            assert_eq!(*record, review(client, run).await);
        }
    }
    lab.close().await;
}

#[tokio::test]
async fn an_outcome_that_is_not_accepted_asks_no_one() {
    for (output, status) in [
        (json!({"ktsu_skip_reason": "nothing to judge"}), "complete"),
        (json!({"verdict": "odd"}), "failed"),
        (
            json!({"verdict": "good", "ktsu_injection_attempt": true}),
            "failed",
        ),
    ] {
        let runtime = runtime(output.clone()).await;
        let store = MemoryStore::new();
        let backend: Arc<dyn Backend> = Arc::new(store.clone());
        let place = LedgerPlace::Backend(backend);
        let lab = Lab::remote_on(place, &kit("true"), &runtime.url).await;
        let run = lab.client.invoke("judged", json!({})).await;
        let envelope = lab.client.ended(&run).await;
        assert_eq!(envelope["status"], status, "{output}: {envelope:#}");
        let frames = lab.client.frames(&run).await;
        for kind in ["command.requested", "command.deferred", "review.requested"] {
            let found = frames.iter().any(|one| one["type"] == kind);
            assert!(!found, "{output}: {kind}");
        }
        let path = format!("/runs/{run}/steps/a/review");
        is(&lab.client.get(&path).await, 404, "review_not_found");
        lab.close().await;
        holds(&store, &run);
    }
}

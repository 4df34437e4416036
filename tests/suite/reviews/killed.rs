//! Engines that are killed between a decision and what follows from it.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::{approve, asked, file_holds, kit, review, steer};
use crate::support::process::Process;
use crate::support::{KitDir, Sink, campaign};

const SECRET: (&str, &str) = ("HOOK_SECRET", "whsec_c2VjcmV0IGtleQ==");

fn subscribed(url: &str) -> KitDir {
    let text = format!(
        "subscriptions:\n  - {{name: claims, topics: 'claim.*', url: '{url}', backoff: 5ms, \
         secret: '{{{{ env.HOOK_SECRET }}}}'}}\n"
    );
    kit("true").with("environments/local.env.yaml", &text)
}

fn start(kit: &KitDir, ledger: &Path) -> Process {
    Process::start(kit.dir.path(), ledger, &[SECRET])
}

/// Paused runs record a decision and nothing after it, which is where half of them are killed; the
/// others as soon as the decision is answered.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_a_decision_the_engine_carries_it_out_once_and_sends_one_id() {
    for round in 0..campaign(5, 20) {
        let sink = Sink::new().await;
        let kit = subscribed(&sink.url);
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger.db");
        let engine = start(&kit, &ledger);
        let run = asked(&engine.client(), "judged").await;
        let paused = round % 2 == 0;
        if paused {
            steer(&engine.client(), &run, "pause", json!({})).await;
        }
        let decided = approve(&engine.client(), &run).await;
        assert_eq!(decided.status, 200, "{}", decided.text());
        engine.kill();
        let engine = start(&kit, &ledger);
        let client = engine.client();
        if paused {
            assert_eq!(review(&client, &run).await["status"], "approved");
            steer(&client, &run, "resume", json!({})).await;
        }
        let envelope = client.ended(&run).await;
        assert_eq!(envelope["output"]["verdict"], "good", "{envelope:#}");
        sink.until(|heard| !heard.is_empty()).await;
        let frames = client.frames(&run).await;
        let of = |kind: &str| frames.iter().filter(|one| one["type"] == kind).count();
        // One asks for the review, one emits.
        assert_eq!((of("review.decided"), of("command.requested")), (1, 2));
        assert_eq!(of("step.completed"), 2);
        engine.stop();
        let ids: BTreeSet<String> = sink.heard().iter().map(|one| one.id.clone()).collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        file_holds(&ledger, &run);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_and_its_deadline_outlive_an_engine_that_is_killed() {
    let sink = Sink::new().await;
    let kit = subscribed(&sink.url);
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.db");
    let engine = start(&kit, &ledger);
    let run = asked(&engine.client(), "judged").await;
    let before = review(&engine.client(), &run).await;
    engine.kill();
    let engine = start(&kit, &ledger);
    let client = engine.client();
    assert_eq!(review(&client, &run).await, before);
    let listed: Value = client.get("/approvals").await.json();
    assert_eq!(listed, json!([before]));
    assert_eq!(approve(&client, &run).await.status, 200);
    assert_eq!(client.ended(&run).await["status"], "complete");
    engine.stop();
    file_holds(&ledger, &run);
}

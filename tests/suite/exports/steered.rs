//! Runs that people paused, cancelled and terminated, and what became of them (decision P1).

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use serde_json::json;

use super::{agents, ended, fork, kit, post, ticking};
use crate::support::scenarios::TOKEN;
use crate::support::sink::Reply;
use crate::support::{Client, Sink, Within};

pub(super) const NAME: &str = "v2-steered";

/// Records the ledger.
pub(super) async fn store() -> MemoryStore {
    let sink = Sink::new().await;
    sink.follow(|heard| match heard.path.as_str() {
        // In a child, behind the items of a fan-out.
        "/part" => Reply::When("part".to_owned(), 200),
        _ if agents::asks_a_model(heard) => agents::model(heard),
        _ => Reply::Now(200, r#"{"received":true}"#.to_owned()),
    });
    let store = MemoryStore::new();
    let pairs = [("SINK", sink.url.as_str()), ("TOKEN", TOKEN)];
    let options = Options::default();
    let kit = kit("said:");
    let within = Within::new(kit.load(), store.clone(), options, &pairs, Some(ticking())).await;
    let client = &within.client;
    for word in ["cancel", "terminate"] {
        let run = sending(client, &sink).await;
        let path = format!("/runs/{run}/{word}");
        let said = post(client, &path, json!({"reason": "enough"}), 200).await;
        assert_eq!(said["status"], "cancelled");
        let still = fork(client, &run, json!({})).await;
        let envelope = client.get(&format!("/runs/{still}/envelope")).await.json();
        assert_eq!(envelope["status"], "cancelled");
        let before = fork(client, &run, json!({"at": said["seq"], "go": true})).await;
        ended(client, &before, "complete").await;
        sink.open("part");
        let again = json!({"from": "call", "reason": "after all"});
        post(client, &format!("/runs/{run}/resume"), again, 202).await;
        ended(client, &run, "complete").await;
        sink.forget();
    }
    let run = sending(client, &sink).await;
    post(
        client,
        &format!("/runs/{run}/pause"),
        json!({"reason": "lunch"}),
        200,
    )
    .await;
    sink.open("part");
    let mut events = client.events(&run, None).await;
    while let Some(event) = events.next().await
        && !event.data.contains("webhook.delivered")
    {}
    post(client, &format!("/runs/{run}/resume"), json!({}), 202).await;
    ended(client, &run, "complete").await;
    sink.forget();
    let run = sending(client, &sink).await;
    post(client, &format!("/runs/{run}/pause"), json!({}), 200).await;
    post(client, &format!("/runs/{run}/cancel"), json!({}), 200).await;
    ended(client, &run, "cancelled").await;
    store
}

/// A run whose child waits for the answer to a webhook.
async fn sending(client: &Client, sink: &Sink) -> String {
    let run = client.invoke("root", json!({"list": ["one"]})).await;
    let sent = |heard: &[crate::support::sink::Heard]| heard.iter().any(|one| one.path == "/part");
    sink.until(sent).await;
    run
}

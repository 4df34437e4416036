//! Models that suspend their step by a tool.

use ktsu_ledger::store::MemoryStore;
use serde_json::json;

use super::{RESUME, give, lab, suspended};

#[tokio::test]
async fn the_next_attempt_begins_without_the_conversation_of_the_one_before() {
    let store = MemoryStore::new();
    let lab = lab(&store, RESUME).await;
    let client = &lab.client;
    let run = suspended(client, "reads").await;
    assert_eq!(give(client, &run, "clause 7").await.status, 200);
    client.ended(&run).await;
    let frames = client.frames(&run).await;
    let asked: Vec<_> = frames
        .iter()
        .filter(|one| one["type"] == "llm.request")
        .collect();
    let second = asked
        .iter()
        .find(|one| one["data"]["attempt"] == 2)
        .unwrap();
    let messages = second["data"]["messages"].to_string();
    assert!(messages.contains("clause 7"), "{messages}");
    assert!(!messages.contains("missing"), "{messages}");
    let started = frames
        .iter()
        .rfind(|one| one["type"] == "step.started" && one["data"]["step"] == "a");
    let input = &started.unwrap()["data"]["input"];
    let resumed = frames
        .iter()
        .position(|one| one["type"] == "suspend.resumed")
        .unwrap();
    assert_eq!(
        input["/params/text"]["ref"],
        json!({"frame": resumed, "path": "/data/text"})
    );
    lab.close().await;
}

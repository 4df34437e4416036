//! Who may, what is refused, and what a person's word does to time and to branches.

use serde_json::json;

use super::{GATE, World, kinds};

#[tokio::test]
async fn a_child_is_not_steered_by_itself_and_the_refusal_names_its_run() {
    let world = World::new().await;
    let run = world.run_in("child").await;
    for word in ["cancel", "terminate", "pause"] {
        for path in [format!("{run}/work"), format!("{run}%2Fwork")] {
            let (status, said) = world.say(&path, word).await;
            assert_eq!(
                (status, &said["code"]),
                (409, &json!("invalid_run_state")),
                "{said}"
            );
            assert!(said["detail"].as_str().unwrap().contains(&run), "{said}");
        }
    }
    assert_eq!(world.say(&run, "cancel").await.0, 200);
}

#[tokio::test]
async fn a_cancelled_run_begins_again_with_a_step_and_completes() {
    let world = World::new().await;
    let run = world.run_in("webhook").await;
    assert_eq!(world.say(&run, "cancel").await.0, 200);
    world.sink.open(GATE);
    let path = format!("/runs/{run}/resume");
    let answer = world
        .client()
        .post(&path, json!({"from": "work"}).to_string())
        .await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let envelope = world.client().ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    world.replays(&run).await;
}

#[tokio::test]
async fn a_branch_of_a_cancelled_run_from_before_the_word_continues() {
    let world = World::new().await;
    let run = world.run_in("model").await;
    let (_, said) = world.say(&run, "cancel").await;
    world.open_the_gate();
    let fork = |at: u64| json!({"at": at, "go": true}).to_string();
    let path = format!("/runs/{run}/fork");
    let before = world
        .client()
        .post(&path, fork(said["seq"].as_u64().unwrap()))
        .await;
    let branch = before.json()["branch_id"].as_str().unwrap().to_owned();
    assert_eq!(world.client().ended(&branch).await["status"], "complete");
    // After the word it has ended as its run has.
    let after = world
        .client()
        .post(&path, fork(said["last"].as_u64().unwrap() + 1))
        .await;
    assert_eq!(after.json()["status"], "cancelled", "{}", after.text());
    world.replays(&branch).await;
}

#[tokio::test]
async fn a_paused_run_takes_decisions_and_acts_on_them_when_it_continues() {
    let world = World::new().await;
    let run = world.run_in("approval").await;
    assert_eq!(world.say(&run, "pause").await.0, 200);
    let path = format!("/runs/{run}/steps/work/approval/decide");
    let decided = world
        .client()
        .post(&path, json!({"decision": "approved"}).to_string())
        .await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    let frames = world.frames(&run).await;
    assert_eq!(kinds(&frames).last(), Some(&"approval.decided"));
    world.open_the_gate();
    assert_eq!(world.say(&run, "resume").await.0, 202);
    assert_eq!(world.client().ended(&run).await["status"], "complete");
    world.replays(&run).await;
}

#[tokio::test]
async fn who_is_asked_has_as_much_more_time_as_a_run_was_paused() {
    let world = World::new().await;
    let run = world.run_in("approval").await;
    let record = format!("/runs/{run}/steps/work/approval");
    let until = async || {
        let record = world.client().get(&record).await.json();
        let until: ktsu_ledger::Timestamp = record["expires_at"].as_str().unwrap().parse().unwrap();
        until
    };
    let before = until().await;
    assert_eq!(world.say(&run, "pause").await.0, 200);
    assert_eq!(world.say(&run, "resume").await.0, 202);
    let frames = world.frames(&run).await;
    let paused_ms = frames.last().unwrap()["data"]["paused_ms"]
        .as_u64()
        .unwrap();
    assert_eq!(until().await, before.plus_millis(paused_ms));
    assert_eq!(world.say(&run, "cancel").await.0, 200);
    let ended = world.client().get(&record).await;
    assert_ne!(ended.json()["status"], "pending", "{}", ended.text());
}

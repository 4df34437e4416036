//! Answers have a limited size, and tools wait for a limited time.

use serde_json::{Value, json};

use super::Project;

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 128 * 1024;

#[tokio::test]
async fn a_world_that_is_too_long_for_an_answer_comes_in_pages() {
    let project = Project::new();
    let agent = project.agent(&[]).await;
    let goal = "x".repeat(60_000);
    let started = agent
        .call("start_run", json!({"kit": "harbour", "goal": goal}))
        .await;
    assert!(started.to_string().len() <= MAX_ANSWER_BYTES);
    assert!(
        started["notice"].as_str().unwrap().starts_with("cut"),
        "{}",
        started["notice"]
    );
    let run = &started["run_id"];

    let (mut objects, mut relations) = (Vec::new(), Vec::new());
    let mut arguments = json!({"run_id": run});
    let mut pages = 0;
    loop {
        let page = agent.call("query_world", arguments.clone()).await;
        assert!(page.to_string().len() <= MAX_ANSWER_BYTES);
        objects.extend(page["objects"].as_array().unwrap().iter().cloned());
        relations.extend(page["relations"].as_array().unwrap().iter().cloned());
        pages += 1;
        if page["next"].is_null() {
            assert!(page["notice"].is_null(), "{}", page["notice"]);
            break;
        }
        arguments["at"] = page["at"].clone();
        arguments["from"] = page["next"].clone();
    }
    assert!(pages > 1);
    let world = project.json(&["world", run.as_str().unwrap()]);
    let ids = |list: &[Value]| -> Vec<Value> { list.iter().map(|one| one["id"].clone()).collect() };
    assert_eq!(ids(&objects), ids(world["objects"].as_array().unwrap()));
    assert_eq!(relations, ids(world["relations"].as_array().unwrap()));
    assert_eq!(objects[0]["data"]["text"], goal);

    let envelope = agent.call("get_envelope", json!({"run_id": run})).await;
    assert!(envelope.to_string().len() <= MAX_ANSWER_BYTES);
    agent.close().await;
}

#[tokio::test]
async fn a_run_that_does_not_end_in_time_continues() {
    let project = Project::new();
    let agent = project.agent(&[]).await;
    let started = agent
        .call(
            "start_run",
            json!({"kit": "gated", "goal": "g", "wait_seconds": 1}),
        )
        .await;
    let status = started["status"].as_str().unwrap();
    assert!(["running", "waiting"].contains(&status), "{started}");
    assert!(started["note"].is_string(), "{started}");
    // Its engine is open, so that the run goes on; another kit has to wait for its end.
    let error = agent
        .refused("start_run", json!({"kit": "harbour", "goal": "g"}))
        .await;
    assert!(
        error["hint"].as_str().unwrap().contains("ktsu cancel"),
        "{error}"
    );
    let run = started["run_id"].as_str().unwrap();
    let mut cancel = project.command(&["cancel", run]);
    assert!(cancel.output().unwrap().status.success());
    let envelope = agent.call("get_envelope", json!({"run_id": run})).await;
    assert_eq!(envelope["envelope"]["status"], "cancelled");
    agent
        .call("start_run", json!({"kit": "harbour", "goal": "g"}))
        .await;
    agent.close().await;
}

#[tokio::test]
async fn more_calls_than_the_limit_are_refused_as_values() {
    let project = Project::new();
    let agent = project.agent(&["--kit", "kits/gated"]).await;
    let wait = || {
        agent.ask(
            "invoke_workflow",
            json!({"workflow": "gated", "wait_seconds": 2}),
        )
    };
    let answers = futures_util::future::join_all((0..40).map(|_| wait())).await;
    let refused = |(is_error, answer): &&(bool, Value)| {
        *is_error
            && answer["error"]
                .as_str()
                .is_some_and(|words| words.contains("32 calls"))
    };
    assert_eq!(answers.iter().filter(refused).count(), 8);
    assert_eq!(answers.iter().filter(|(is_error, _)| !is_error).count(), 32);
    agent.call("list_approvals", json!({"limit": 1})).await;
    agent.close().await;
}

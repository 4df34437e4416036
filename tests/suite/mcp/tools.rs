//! What the tools give, beside what the command line shows of the same runs.

use serde_json::{Value, json};

use super::clients::NAMES;
use super::{Project, members, texts};

#[tokio::test]
async fn every_tool_is_listed_with_its_schema_and_its_hints() {
    let project = Project::new();
    let agent = project.agent(&[]).await;
    let tools = agent.client.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, NAMES);
    let required = |name: &str| {
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        let schema = tool.schema_as_json_value();
        assert_eq!(schema["additionalProperties"], false);
        schema["required"].clone()
    };
    assert_eq!(required("start_run"), json!(["kit", "goal"]));
    assert_eq!(required("query_world"), json!(["run_id"]));
    assert_eq!(required("fork_run"), json!(["run_id", "fork_at"]));
    assert_eq!(required("diff_branches"), json!(["run_a", "run_b"]));
    assert_eq!(required("explain_trace"), json!(["event_id", "run_id"]));
    assert!(agent.close().await.success());
}

#[tokio::test]
async fn a_run_is_started_looked_at_forked_compared_explained_and_verified() {
    let project = Project::new();
    let agent = project.agent(&[]).await;
    let started = agent
        .call("start_run", json!({"kit": "harbour", "goal": "the quay"}))
        .await;
    assert_eq!(
        members(&started),
        [
            "backend",
            "event_count",
            "event_ids",
            "ledger",
            "note",
            "objects",
            "relations",
            "run_id",
            "status"
        ]
    );
    let run = started["run_id"].as_str().unwrap();
    assert_eq!(started["ledger"], format!("run:{run}"));
    assert_eq!(
        (&started["status"], &started["note"]),
        (&json!("complete"), &Value::Null)
    );
    let world = project.json(&["world", run]);
    let shown = |one: &Value| json!({"id": one["id"], "type": one["type"], "data": one["data"]});
    let objects: Vec<Value> = world["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(shown)
        .collect();
    assert_eq!(started["objects"], json!(objects));
    assert_eq!(objects.len(), 3);
    assert_eq!(
        objects[0]["data"],
        json!({"text": "the quay", "state": "asked"})
    );
    let relations = world["relations"].as_array().unwrap().iter();
    let relations: Vec<&Value> = relations.map(|one| &one["id"]).collect();
    assert_eq!(started["relations"], json!(relations));

    // One topic, two questions, two relations, two patches.
    let ids = texts(&started["event_ids"]);
    assert_eq!((started["event_count"].as_u64(), ids.len()), (Some(7), 7));
    let frames = project.frames(run);
    for id in &ids {
        let seq = id.strip_prefix(&format!("{run}#")).unwrap();
        let frame = &frames[seq.parse::<usize>().unwrap()];
        let kind = frame["type"].as_str().unwrap();
        assert!(
            kind.starts_with("object.") || kind.starts_with("relation."),
            "{frame}"
        );
    }
    let asked = agent.call("query_world", json!({"run_id": run})).await;
    assert_eq!(
        members(&asked),
        ["event_count", "objects", "relations", "run_id"]
    );
    for name in members(&asked) {
        assert_eq!(asked[name], started[name], "{name}");
    }

    let last = ids.last().unwrap();
    let arguments = json!({"event_id": last, "run_id": run});
    let explained = agent.call("explain_trace", arguments).await;
    assert_eq!(members(&explained), ["causal_chain", "event_id", "run_id"]);
    let chain = explained["causal_chain"].as_array().unwrap();
    assert_eq!(
        (&chain[0]["id"], &chain[0]["type"]),
        (&json!(last), &json!("object.patched"))
    );
    assert_eq!(chain[0]["actor"], "responder:close");
    for link in chain {
        assert_eq!(members(link), ["actor", "cause", "id", "is_root", "type"]);
        assert_eq!(
            link["is_root"],
            link["cause"].as_array().unwrap().is_empty()
        );
    }
    // The goal is an object that nothing else caused.
    let end = chain.last().unwrap();
    assert_eq!(
        (&end["id"], &end["is_root"]),
        (&json!(ids[0]), &json!(true))
    );
    // By its number alone, and by the id that the command line shows.
    let seq = last.rsplit('#').next().unwrap();
    for id in [seq.to_owned(), format!("run:{last}")] {
        let arguments = json!({"event_id": id, "run_id": run});
        assert_eq!(agent.call("explain_trace", arguments).await, explained);
    }

    let fork_at: u64 = ids[1].rsplit('#').next().unwrap().parse().unwrap();
    let arguments = json!({"run_id": run, "fork_at": fork_at});
    let branch = agent.call("fork_run", arguments).await;
    assert_eq!(
        members(&branch),
        [
            "branch_id",
            "fork_position",
            "parent_run_id",
            "shared_prefix_events"
        ]
    );
    assert_eq!(branch["fork_position"], fork_at);
    assert_eq!(branch["shared_prefix_events"], fork_at);
    assert_eq!(branch["parent_run_id"], run);
    let branch = branch["branch_id"].as_str().unwrap();

    let arguments = json!({"run_a": branch, "run_b": run});
    let diff = agent.call("diff_branches", arguments).await;
    assert_eq!(
        members(&diff),
        [
            "added_objects",
            "added_relations",
            "has_changes",
            "patched_objects",
            "patched_relations",
            "removed_objects",
            "removed_relations",
            "run_a",
            "run_b",
            "summary"
        ]
    );
    assert_eq!(
        diff["summary"],
        "+2 objects, ~1 objects patched, +2 relations"
    );
    assert_eq!(diff["has_changes"], true);
    assert_eq!(
        texts(&diff["patched_objects"]),
        [objects[0]["id"].as_str().unwrap()]
    );
    let same = agent
        .call("diff_branches", json!({"run_a": run, "run_b": run}))
        .await;
    assert_eq!(
        (&same["summary"], &same["has_changes"]),
        (&json!("no changes"), &json!(false))
    );

    let verified = agent.call("verify_run", json!({"run_id": run})).await;
    assert_eq!(
        members(&verified),
        [
            "frames",
            "head",
            "not_covered",
            "problems",
            "replay",
            "run_id",
            "sound",
            "verified"
        ]
    );
    assert_eq!(
        (&verified["verified"], &verified["replay"]),
        (&json!(true), &json!("ok"))
    );
    assert_eq!(verified["frames"], frames.len());
    assert_eq!(verified["head"], frames.last().unwrap()["hash"]);

    let envelope = agent.call("get_envelope", json!({"run_id": run})).await;
    assert_eq!(envelope["envelope"], project.json(&["runs", "get", run]));
    assert!(agent.close().await.success());
}

#[tokio::test]
async fn workflows_without_a_world_run_and_are_compared_by_their_steps() {
    let project = Project::new();
    let agent = project.agent(&["--kit", "kits/plain"]).await;
    let first = agent
        .call(
            "invoke_workflow",
            json!({"workflow": "plain", "params": {"goal": "x"}}),
        )
        .await;
    assert_eq!(
        members(&first),
        ["failure", "note", "output", "run_id", "status"]
    );
    assert_eq!(first["output"], json!({"goal": "x"}));
    assert_eq!(first["status"], "complete");
    let keyed = json!({"workflow": "plain", "params": {}, "idempotency_key": "k1"});
    let second = agent.call("invoke_workflow", keyed.clone()).await;
    assert_eq!(
        agent.call("invoke_workflow", keyed).await["run_id"],
        second["run_id"]
    );

    let started = agent
        .call("start_run", json!({"kit": "plain", "goal": "x"}))
        .await;
    assert_eq!(started["event_count"], 0);
    assert!(
        started["note"].as_str().unwrap().contains("no world"),
        "{started}"
    );
    let run = started["run_id"].as_str().unwrap();
    let step = agent
        .call("get_envelope", json!({"run_id": run, "step_id": "one"}))
        .await;
    assert_eq!(step["step"]["status"], "complete");

    let branch = agent
        .call("fork_run", json!({"run_id": run, "fork_at": 1}))
        .await;
    let arguments = json!({"run_a": branch["branch_id"], "run_b": run});
    let diff = agent.call("diff_branches", arguments).await;
    assert_eq!(diff["added_objects"], json!(["step/one"]));
    let arguments = json!({"run_a": first["run_id"], "run_b": second["run_id"]});
    let diff = agent.call("diff_branches", arguments).await;
    assert_eq!(diff["has_changes"], false);
    assert!(agent.close().await.success());
}

/// The engine of the server ends with its runs: others may own the ledger then.
#[tokio::test]
async fn the_ledger_is_free_again_when_nothing_runs() {
    let project = Project::new();
    let agent = project.agent(&[]).await;
    for kit in ["harbour", "plain", "kits.harbour"] {
        agent
            .call("start_run", json!({"kit": kit, "goal": "x"}))
            .await;
    }
    let lock = project.path().join(".ktsu/ledger.db");
    let begun = std::time::Instant::now();
    while ktsu_ledger::lock::holder(&lock).is_some() {
        assert!(
            begun.elapsed() < crate::support::GUARD,
            "the ledger is still owned"
        );
        tokio::task::yield_now().await;
    }
    let run = project.json(&["run", "kits/harbour", "--goal", "x"]);
    let run = run["run_id"].as_str().unwrap();
    let asked = agent.call("query_world", json!({"run_id": run})).await;
    assert_eq!(asked["event_count"], 7);
    assert!(agent.close().await.success());
}

//! Whatever goes wrong is an answer, and the server goes on.

use serde_json::{Value, json};

use super::{Project, texts};

#[tokio::test]
async fn what_does_not_exist_is_an_error_value() {
    let project = Project::new();
    let agent = project.agent(&[]).await;
    // Before there is a ledger.
    let error = agent
        .refused("query_world", json!({"run_id": "run_x"}))
        .await;
    assert!(error["hint"].is_string(), "{error}");
    let started = agent
        .call("start_run", json!({"kit": "harbour", "goal": "g"}))
        .await;
    let run = started["run_id"].as_str().unwrap();

    let error = agent.refused("format_disk", json!({"force": true})).await;
    assert!(
        error["error"].as_str().unwrap().contains("format_disk"),
        "{error}"
    );
    let error = agent.refused("start_rum", json!({})).await;
    assert_eq!(error["hint"], "did you mean start_run?");
    for (tool, arguments) in [
        ("query_world", json!({"run_id": "run_nobody"})),
        ("get_envelope", json!({"run_id": "run_nobody"})),
        ("fork_run", json!({"run_id": "run_nobody", "fork_at": 1})),
        (
            "diff_branches",
            json!({"run_a": run, "run_b": "run_nobody"}),
        ),
        (
            "explain_trace",
            json!({"event_id": "0", "run_id": "run_nobody"}),
        ),
        (
            "explain_trace",
            json!({"event_id": "x", "run_id": "run_nobody"}),
        ),
        ("verify_run", json!({"run_id": "run_nobody"})),
    ] {
        let error = agent.refused(tool, arguments).await;
        assert_eq!(error["code"], "run_not_found", "{tool}: {error}");
    }
    let frames = project.frames(run).len();
    let known: Vec<String> = (0..frames).map(|seq| format!("{run}#{seq}")).collect();
    let beyond = format!("{run}#{frames}");
    for id in [
        beyond.as_str(),
        "evt_1",
        "run_other#0",
        "99999999999999999999",
    ] {
        let arguments = json!({"event_id": id, "run_id": run});
        let error = agent.refused("explain_trace", arguments).await;
        assert_eq!(texts(&error["available_events"]), known, "{id}");
    }
    let arguments = json!({"run_id": run, "fork_at": 100_000});
    let error = agent.refused("fork_run", arguments).await;
    assert!(error["error"].is_string(), "{error}");
    for (kit, words) in [
        ("harbor", "did you mean harbour?"),
        ("nothing.at.all", "kits: gated, harbour, plain"),
    ] {
        let arguments = json!({"kit": kit, "goal": "g"});
        let error = agent.refused("start_run", arguments).await;
        assert_eq!(error["hint"], words, "{error}");
    }
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::create_dir(elsewhere.path().join("workflows")).unwrap();
    for kit in ["../x", &elsewhere.path().display().to_string()] {
        let arguments = json!({"kit": kit, "goal": "g"});
        let error = agent.refused("start_run", arguments).await;
        let words = error["error"].as_str().unwrap();
        assert!(words.contains("below the working directory"), "{error}");
    }
    // Nothing else was started.
    assert_eq!(project.json(&["runs"])["runs"].as_array().unwrap().len(), 1);
    assert!(agent.close().await.success());
}

#[tokio::test]
async fn what_does_not_fit_the_schema_is_an_error_value() {
    let project = Project::new();
    let agent = project.agent(&[]).await;
    for (arguments, words) in [
        (json!({}), "kit is missing"),
        (json!({"kit": "harbour"}), "goal is missing"),
        (json!({"kit": 1, "goal": "g"}), "kit is not a text"),
        (
            json!({"kit": "harbour", "goal": ["g"]}),
            "goal is not a text",
        ),
        (json!({"kit": "harbour", "goal": ""}), "goal is empty"),
        (
            json!({"kit": "harbour", "goal": "g", "wait_seconds": 601}),
            "wait_seconds is not a whole number from 0 to 600",
        ),
        (
            json!({"kit": "harbour", "goal": "g".repeat(65_537)}),
            "goal has more than 65536 characters",
        ),
        (
            json!({"kit": "harbour", "goal": "g", "gaol": "g"}),
            "the tool takes no \"gaol\": did you mean goal?",
        ),
    ] {
        let error = agent.refused("start_run", arguments).await;
        assert_eq!(error["error"], words);
        assert_eq!(error["hint"], "it takes kit, goal, wait_seconds?");
    }
    // What the engine refuses, in its words.
    let agent_with_kit = project.agent(&["--kit", "kits/plain"]).await;
    let arguments = json!({"workflow": "plain", "params": {"n": "many"}});
    let error = agent_with_kit.refused("invoke_workflow", arguments).await;
    assert_eq!(error["code"], "invalid_params");
    let arguments = json!({"workflow": "nothing"});
    let error = agent_with_kit.refused("invoke_workflow", arguments).await;
    assert_eq!(error["code"], "workflow_not_found");
    let arguments = json!({"workflow": "plain", "params": {"goal": "g".repeat(1_100_000)}});
    let error = agent_with_kit.refused("invoke_workflow", arguments).await;
    assert_eq!(error["code"], "body_too_large");
    assert!(agent_with_kit.close().await.success());
    let error = agent
        .refused("invoke_workflow", json!({"workflow": "plain"}))
        .await;
    assert!(error["hint"].as_str().unwrap().contains("--kit"), "{error}");
    assert!(agent.close().await.success());
}

#[tokio::test]
async fn a_kit_that_is_not_valid_is_an_error_value_with_its_faults() {
    let project = Project::new();
    project.write(
        "kits/broken/worlds/broken.world.yaml",
        "kind: world\nnmae: broken\n",
    );
    let agent = project.agent(&[]).await;
    let error = agent
        .refused("start_run", json!({"kit": "broken", "goal": "g"}))
        .await;
    let words = error["error"].as_str().unwrap();
    assert!(
        words.contains("the kit is not valid") && words.contains("nmae"),
        "{words}"
    );
    // Nothing was started, and the next kit runs.
    agent
        .call("start_run", json!({"kit": "harbour", "goal": "g"}))
        .await;
    assert!(agent.close().await.success());
}

/// Without a token, where the owner of the ledger asks for one.
#[tokio::test]
async fn an_owner_with_principals_refuses_who_shows_no_token() {
    let project = Project::new();
    project.write(
        "closed.env.yaml",
        "variables: {ADA: token-of-ada, VIC: token-of-vic}\n\
         principals:\n  - {name: ada, token: {env: ADA}, roles: [operator]}\n  \
         - {name: vic, token: {env: VIC}, roles: [viewer]}\n",
    );
    let mut command = project.command(&["start", "--json", "--port", "0", "--all"]);
    command.args(["--runtime-port", "0", "--gateway-port", "0"]);
    command.args(["--kit", "kits/harbour", "--env", "closed.env.yaml"]);
    let _owner = crate::support::process::Process::spawn(command);
    let run = json!({"kit": "harbour", "goal": "g"});
    let as_token =
        async |token: &'static str| project.agent_with(&[], &[("KTSU_TOKEN", token)]).await;

    let nobody = project.agent(&[]).await;
    let error = nobody.refused("start_run", run.clone()).await;
    assert_eq!(error["code"], "unauthorized");
    assert!(
        error["hint"].as_str().unwrap().contains("KTSU_TOKEN"),
        "{error}"
    );
    let ada = as_token("token-of-ada").await;
    let started = ada.call("start_run", run.clone()).await;
    let id = &started["run_id"];
    assert_eq!(
        project.frames(id.as_str().unwrap())[0]["data"]["principal"]["id"],
        "ada"
    );
    let vic = as_token("token-of-vic").await;
    assert_eq!(vic.refused("start_run", run).await["code"], "forbidden");
    let world = vic.call("query_world", json!({"run_id": id})).await;
    assert_eq!(world["event_count"], 7);
    for tool in ["fork_run", "verify_run"] {
        let mut arguments = json!({"run_id": id});
        if tool == "fork_run" {
            arguments["fork_at"] = Value::from(1);
        }
        assert_eq!(
            vic.refused(tool, arguments).await["code"],
            "forbidden",
            "{tool}"
        );
    }
    // The owner serves one kit.
    let error = ada
        .refused("start_run", json!({"kit": "plain", "goal": "g"}))
        .await;
    assert!(
        error["hint"].as_str().unwrap().contains("ktsu start"),
        "{error}"
    );
}

//! Agents decide on approvals only where the environment lets them, and never about their own runs.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::{Agent, Project};
use crate::support::{GUARD, process::Process};

const DECIDE: &str = "mcp: {decide: true}\n";

fn project(environment: &str) -> Project {
    let project = Project::new();
    project.write("environments/local.env.yaml", environment);
    project
}

/// The first approval that waits.
async fn waiting(agent: &Agent) -> Value {
    let begun = std::time::Instant::now();
    loop {
        assert!(begun.elapsed() < GUARD, "nothing waits");
        let (_, listed) = agent.ask("list_approvals", json!({})).await;
        if listed["approvals"][0]["approval_id"].is_string() {
            return listed["approvals"][0].clone();
        }
    }
}

fn decision(record: &Value, decision: &str) -> Value {
    json!({
        "run_id": record["run_id"],
        "step_id": record["step_id"],
        "approval_id": record["approval_id"],
        "digest": record["digest"],
        "decision": decision,
        "reason": "as agreed",
    })
}

/// A person's run that waits for a decision, and owns the ledger.
fn run_of_a_person(project: &Project) -> Child {
    let mut command = project.command(&["run", "kits/gated", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[tokio::test]
async fn deciding_is_off_unless_the_environment_turns_it_on() {
    for environment in ["variables: {}\n", "mcp: {}\n", "mcp: {decide: false}\n"] {
        let project = project(environment);
        let agent = project.agent(&["--kit", "kits/gated"]).await;
        let started = agent
            .call(
                "invoke_workflow",
                json!({"workflow": "gated", "wait_seconds": 0}),
            )
            .await;
        assert!(started["note"].is_string(), "{started}");
        let record = waiting(&agent).await;
        assert_eq!(record["run_id"], started["run_id"]);
        let error = agent
            .refused("decide_approval", decision(&record, "approved"))
            .await;
        assert!(
            error["hint"]
                .as_str()
                .unwrap()
                .contains("mcp: {decide: true}"),
            "{error}"
        );
        assert_eq!(waiting(&agent).await["status"], "pending");
        agent.close().await;
    }
}

#[tokio::test]
async fn an_agent_decides_about_the_run_of_a_person() {
    let project = project(DECIDE);
    let run = run_of_a_person(&project);
    let agent = project.agent(&["--kit", "kits/gated"]).await;
    let record = waiting(&agent).await;
    let mut other = decision(&record, "approved");
    other["digest"] = json!("0".repeat(64));
    assert_eq!(
        agent.refused("decide_approval", other).await["code"],
        "approval_refused"
    );
    let decided = agent
        .call("decide_approval", decision(&record, "approved"))
        .await;
    assert_eq!(decided["approval"]["status"], "approved");
    assert_eq!(decided["approval"]["votes"][0]["reason"], "as agreed");
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Once.
    let error = agent
        .refused("decide_approval", decision(&record, "rejected"))
        .await;
    assert!(error["code"].is_string(), "{error}");
    let all = agent.call("list_approvals", json!({"status": "all"})).await;
    assert!(all["approvals"][0]["executed"].is_u64(), "{all}");
    assert_eq!(all["next"], Value::Null);
    agent.close().await;
}

/// Without principals everybody is `local`: the ledger tells runs of agents from others, also to a
/// server that did not start them.
#[tokio::test]
async fn an_agent_does_not_decide_about_a_run_that_an_agent_started() {
    let project = project(DECIDE);
    let agent = project.agent(&["--kit", "kits/gated"]).await;
    let keyed = json!({"workflow": "gated", "wait_seconds": 0, "idempotency_key": "once"});
    agent.call("invoke_workflow", keyed).await;
    let record = waiting(&agent).await;
    let error = agent
        .refused("decide_approval", decision(&record, "approved"))
        .await;
    assert!(
        error["error"].as_str().unwrap().contains("started"),
        "{error}"
    );
    agent.close().await;

    let another = project.agent(&["--kit", "kits/gated"]).await;
    let error = another
        .refused("decide_approval", decision(&record, "approved"))
        .await;
    assert!(
        error["error"].as_str().unwrap().contains("started"),
        "{error}"
    );
    let pending = another.call("list_approvals", json!({})).await;
    assert_eq!(pending["approvals"][0]["status"], "pending");
    another.close().await;
}

#[tokio::test]
async fn an_agent_does_not_decide_about_a_branch_that_an_agent_made() {
    let project = project(DECIDE);
    let mut run = run_of_a_person(&project);
    let agent = project.agent(&["--kit", "kits/gated"]).await;
    let record = waiting(&agent).await;
    let asked = record["request"].as_u64().unwrap();
    let arguments = json!({"run_id": record["run_id"], "fork_at": asked + 1});
    let branch = agent.call("fork_run", arguments).await;
    // A person lets the branch go on, which asks again.
    let id = branch["branch_id"].as_str().unwrap();
    let mut resume = project.command(&["resume", id, "--json"]);
    let mut resumed = resume.stdout(Stdio::null()).spawn().unwrap();
    let begun = std::time::Instant::now();
    let own = loop {
        assert!(begun.elapsed() < GUARD, "the branch does not ask");
        let listed = agent.call("list_approvals", json!({})).await;
        let mut listed = listed["approvals"].as_array().unwrap().iter();
        if let Some(own) = listed.find(|one| one["run_id"] == id) {
            break own.clone();
        }
    };
    let error = agent
        .refused("decide_approval", decision(&own, "approved"))
        .await;
    assert!(
        error["error"].as_str().unwrap().contains("started"),
        "{error}"
    );
    agent
        .call("decide_approval", decision(&record, "rejected"))
        .await;
    // The owner of the ledger ends with its run, and the branch waits on.
    run.wait().unwrap();
    resumed.wait().unwrap();
    agent.close().await;
}

#[tokio::test]
async fn with_principals_a_run_is_decided_on_by_another_principal() {
    let project = project(
        "mcp: {decide: true}\nvariables: {ADA: token-of-ada, BOB: token-of-bob}\n\
         principals:\n  - {name: ada, token: {env: ADA}, roles: [operator, approver]}\n  \
         - {name: bob, token: {env: BOB}, roles: [approver]}\n",
    );
    let mut command = project.command(&["start", "--json", "--port", "0", "--all"]);
    command.args([
        "--runtime-port",
        "0",
        "--gateway-port",
        "0",
        "--kit",
        "kits/gated",
    ]);
    let _owner = Process::spawn(command);
    let ada = project
        .agent_with(&[], &[("KTSU_TOKEN", "token-of-ada")])
        .await;
    ada.call(
        "invoke_workflow",
        json!({"workflow": "gated", "wait_seconds": 0}),
    )
    .await;
    let record = waiting(&ada).await;
    assert_eq!(record["proposer"], "ada");
    let error = ada
        .refused("decide_approval", decision(&record, "approved"))
        .await;
    assert!(
        error["error"].as_str().unwrap().contains("started"),
        "{error}"
    );
    let nobody = project.agent(&[]).await;
    let error = nobody
        .refused("decide_approval", decision(&record, "approved"))
        .await;
    assert_eq!(error["code"], "unauthorized");
    let bob = project
        .agent_with(&[], &[("KTSU_TOKEN", "token-of-bob")])
        .await;
    let decided = bob
        .call("decide_approval", decision(&record, "approved"))
        .await;
    let vote = &decided["approval"]["votes"][0];
    assert_eq!(
        (&vote["by"], &vote["independent"]),
        (&json!("bob"), &json!(true))
    );
}

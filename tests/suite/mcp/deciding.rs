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

/// A kit whose agent wants its output reviewed; `policy` is what its file says of that.
fn add_reviewed(project: &Project, policy: &str) {
    let agent = format!(
        "name: judge\nversion: 1.0.0\nmodel: std\n\
         prompt: {{system: You judge., user: Judge it.}}\ncommands: {{review: {policy}}}\n\
         output: {{schema: {{type: object, properties: {{verdict: {{enum: [good, bad]}}}}}}}}\n"
    );
    let files = [
        (
            "workflows/reviewed.workflow.yaml",
            "kind: workflow\nname: reviewed\nversion: 1.0.0\n\
             pipeline: [{id: a, agent: ./agents/judge.agent.yaml}]\n",
        ),
        ("agents/judge.agent.yaml", agent.as_str()),
        (
            "gateway.yaml",
            "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
             model_groups: [{name: std, models: [desk/m]}]\n",
        ),
        (
            "rules.yaml",
            "rules:\n  - when: {turn: 1}\n    \
             tool_calls: [{name: review, arguments: {reason: it matters}}]\n\
             default: {reply: {verdict: good}}\n",
        ),
    ];
    for (path, text) in files {
        project.write(&format!("kits/reviewed/{path}"), text);
    }
}

/// The first review that waits.
async fn waiting_review(agent: &Agent) -> Value {
    let begun = std::time::Instant::now();
    loop {
        assert!(begun.elapsed() < GUARD, "nothing waits");
        let (_, listed) = agent.ask("list_approvals", json!({})).await;
        if listed["approvals"][0]["review_id"].is_string() {
            return listed["approvals"][0].clone();
        }
    }
}

fn review_decision(record: &Value, decision: &str) -> Value {
    json!({
        "run_id": record["run_id"],
        "step_id": record["step_id"],
        "approval_id": record["review_id"],
        "decision": decision,
        "reason": "as agreed",
    })
}

#[tokio::test]
async fn an_agent_decides_on_the_output_of_a_person_s_run_and_may_correct_it() {
    let project = project(DECIDE);
    add_reviewed(&project, "true");
    let mut run = project.command(&["run", "kits/reviewed", "--json"]);
    run.stdout(Stdio::piped()).stderr(Stdio::null());
    let run = run.spawn().unwrap();
    let agent = project.agent(&["--kit", "kits/reviewed"]).await;
    let record = waiting_review(&agent).await;
    let mut corrected = review_decision(&record, "approved");
    corrected["overlay"] = json!({"verdict": "odd"});
    let error = agent.refused("decide_approval", corrected.clone()).await;
    assert_eq!(error["code"], "overlay_refused", "{error}");
    corrected["overlay"] = json!({"verdict": "bad"});
    let decided = agent.call("decide_approval", corrected.clone()).await;
    assert_eq!(decided["approval"]["status"], "approved", "{decided}");
    assert_eq!(decided["approval"]["review_id"], record["review_id"]);
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["output"]["verdict"], "bad", "{envelope}");
    let error = agent.refused("decide_approval", corrected).await;
    assert_eq!(error["code"], "review_already_decided", "{error}");
    agent.close().await;
}

/// A kit whose agent waits for a paper.
fn add_suspended(project: &Project) {
    let files = [
        (
            "workflows/waits.workflow.yaml",
            "kind: workflow\nname: waits\nversion: 1.0.0\npipeline:\n  \
             - {id: a, agent: ./agents/clerk.agent.yaml, params: {text: '{{ resume.data.text }}'}, \
             resume: {schema: {type: object, required: [text], properties: {text: {type: string}}}}}\n",
        ),
        (
            "agents/clerk.agent.yaml",
            "name: clerk\nversion: 1.0.0\nmodel: std\n\
             params: {schema: {type: object, properties: {text: {type: [string, 'null'], default: null}}}}\n\
             prompt: {system: You read., user: 'text {{ params.text }}'}\n\
             commands: {suspend: true}\n\
             output: {schema: {type: object, properties: {verdict: {type: string}}}}\n",
        ),
        (
            "gateway.yaml",
            "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
             model_groups: [{name: std, models: [desk/m]}]\n",
        ),
        (
            "rules.yaml",
            "rules:\n  - when: {user: paper}\n    reply: {verdict: read}\n  - when: {turn: 1}\n    \
             tool_calls: [{name: suspend, arguments: {reason: a paper is missing, checkpoint: 1}}]\n\
             default: {reply: {verdict: none}}\n",
        ),
    ];
    for (path, text) in files {
        project.write(&format!("kits/waits/{path}"), text);
    }
}

#[tokio::test]
async fn an_agent_gives_a_step_of_a_person_s_run_its_data_where_the_environment_lets_it() {
    for environment in [DECIDE, "name: local\n"] {
        let project = project(environment);
        add_suspended(&project);
        let mut run = project.command(&["run", "kits/waits", "--json"]);
        run.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut run = run.spawn().unwrap();
        let agent = project.agent(&["--kit", "kits/waits"]).await;
        let begun = std::time::Instant::now();
        let record = loop {
            assert!(begun.elapsed() < GUARD, "nothing waits");
            let (_, listed) = agent.ask("list_approvals", json!({})).await;
            if listed["approvals"][0]["suspend_id"].is_string() {
                break listed["approvals"][0].clone();
            }
        };
        let mut given = json!({"run_id": record["run_id"], "step_id": "a", "data": {"text": 7}});
        let error = agent.refused("resume_step", given.clone()).await;
        if environment != DECIDE {
            let words = error["error"].as_str().unwrap();
            assert!(words.contains("may not give"), "{error}");
            agent.close().await;
            run.kill().unwrap();
            run.wait().unwrap();
            continue;
        }
        assert_eq!(error["code"], "resume_data_invalid", "{error}");
        let decision = json!({"run_id": record["run_id"], "step_id": "a",
            "approval_id": record["suspend_id"], "decision": "approved"});
        let error = agent.refused("decide_approval", decision).await;
        assert!(
            error["hint"].as_str().unwrap().contains("resume_step"),
            "{error}"
        );
        given["data"]["text"] = json!("paper");
        let resumed = agent.call("resume_step", given.clone()).await;
        assert_eq!(resumed["suspension"]["status"], "resumed", "{resumed}");
        let output = run.wait_with_output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(envelope["output"]["verdict"], "read", "{envelope}");
        let error = agent.refused("resume_step", given).await;
        assert_eq!(error["code"], "suspension_over", "{error}");
        agent.close().await;
    }
}

#[tokio::test]
async fn who_may_decide_on_a_review_over_mcp_its_policy_says() {
    let people = "mcp: {decide: true}\n\
        variables: {ADA: token-of-ada, OLGA: token-of-olga, BOB: token-of-bob}\nprincipals:\n  \
        - {name: ada, token: {env: ADA}, roles: [operator]}\n  \
        - {name: olga, token: {env: OLGA}, roles: [operator]}\n  \
        - {name: bob, token: {env: BOB}, roles: [approver]}\n";
    let project = project(people);
    add_reviewed(&project, "{roles: [operator]}");
    let mut command = project.command(&["start", "--json", "--port", "0", "--all"]);
    command.args(["--runtime-port", "0", "--gateway-port", "0"]);
    command.args(["--kit", "kits/reviewed"]);
    let _owner = Process::spawn(command);
    let agent = async |token: &str| project.agent_with(&[], &[("KTSU_TOKEN", token)]).await;
    let ada = agent("token-of-ada").await;
    let reviewed = json!({"workflow": "reviewed", "wait_seconds": 0});
    ada.call("invoke_workflow", reviewed).await;
    let record = waiting_review(&ada).await;
    let approve = review_decision(&record, "approved");
    let error = ada.refused("decide_approval", approve.clone()).await;
    assert!(
        error["error"].as_str().unwrap().contains("started"),
        "{error}"
    );
    let bob = agent("token-of-bob").await;
    let error = bob.refused("decide_approval", approve.clone()).await;
    assert_eq!(error["code"], "forbidden", "{error}");
    let olga = agent("token-of-olga").await;
    // On calls of tools, operators do not decide.
    let mut call = approve.clone();
    call["approval_id"] = json!("apr_0");
    let error = olga.refused("decide_approval", call).await;
    assert_eq!(error["code"], "forbidden", "{error}");
    let decided = olga.call("decide_approval", approve).await;
    assert_eq!(decided["approval"]["votes"][0]["by"], "olga", "{decided}");
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

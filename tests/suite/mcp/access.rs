//! Who may use which tool: every tool, every kind of credential, over both transports. Access is
//! decided before anything else is looked up or said (decision H5).

use serde_json::{Value, json};

use super::http::{call, client, serve};
use super::{Agent, Project};
use crate::support::process::Process;

const ROLES: [&str; 6] = [
    "viewer", "operator", "approver", "auditor", "admin", "runtime",
];

/// Written by hand from docs/mcp.md: the server's own table is what is tested. Each tool with
/// arguments that find nothing, and the roles that may use it.
fn rows() -> [(&'static str, Value, &'static [&'static str]); 11] {
    const READ: &[&str] = &["viewer", "operator", "approver", "auditor", "admin"];
    const OPERATE: &[&str] = &["operator", "admin"];
    let run = json!({"run_id": "run_none"});
    [
        ("start_run", json!({"kit": "broken", "goal": "g"}), OPERATE),
        ("invoke_workflow", json!({"workflow": "none"}), OPERATE),
        ("query_world", run.clone(), READ),
        ("get_envelope", run.clone(), READ),
        (
            "fork_run",
            json!({"run_id": "run_none", "fork_at": 1}),
            OPERATE,
        ),
        (
            "diff_branches",
            json!({"run_a": "run_none", "run_b": "run_other"}),
            READ,
        ),
        (
            "explain_trace",
            json!({"event_id": "1", "run_id": "run_none"}),
            READ,
        ),
        ("list_approvals", json!({}), READ),
        (
            "decide_approval",
            json!({"run_id": "run_none", "step_id": "s", "decision": "approved"}),
            &["approver", "admin"],
        ),
        (
            "resume_step",
            json!({"run_id": "run_none", "step_id": "s", "data": {}}),
            &["operator", "approver", "admin"],
        ),
        ("verify_run", run, &["operator", "auditor", "admin"]),
    ]
}

fn environment() -> String {
    let tokens: String = ROLES
        .iter()
        .map(|role| format!("  T_{role}: token-of-{role}\n"))
        .collect();
    let principals: String = ROLES
        .iter()
        .map(|role| format!("  - {{name: {role}, token: {{env: T_{role}}}, roles: [{role}]}}\n"))
        .collect();
    format!("variables:\n{tokens}principals:\n{principals}mcp: {{decide: true}}\n")
}

/// A project with principals, and with a kit whose faults quote a line that nobody else may read.
fn project() -> Project {
    let project = Project::new();
    project.write("environments/local.env.yaml", &environment());
    project.write(
        "kits/broken/workflows/broken.workflow.yaml",
        "kind: workflow\nname: broken\nSECRETLINE_password: hunter2\npipeline: [\n",
    );
    project
}

/// How a credential is refused for a tool; `None` where it may use it.
fn expected(credential: Option<&str>, roles: &[&str]) -> Option<&'static str> {
    match credential {
        Some(role) if roles.contains(&role) => None,
        Some(role) if ROLES.contains(&role) => Some("forbidden"),
        Some(_) | None => Some("unauthorized"),
    }
}

/// That an answer is the expected refusal and nothing else, or none of access; and that it names
/// no kit, file or path to callers who may not start runs.
#[track_caller]
fn judge(project: &Project, answer: &Value, tool: &str, who: Option<&str>, roles: &[&str]) {
    let refusal = expected(who, roles);
    let case = format!("{tool} as {who:?}: {answer}");
    match refusal {
        Some(code) => {
            assert_eq!(answer["code"], code, "{case}");
            let members = super::members(answer);
            assert_eq!(members, ["code", "error", "hint"], "{case}");
        }
        None => {
            let code = answer["code"].as_str().unwrap_or_default();
            assert!(!["unauthorized", "forbidden"].contains(&code), "{case}");
        }
    }
    if !who.is_some_and(|role| ["operator", "admin"].contains(&role)) {
        let text = answer.to_string();
        let root = project.path().display().to_string();
        for word in [
            "broken", "harbour", "gated", "hunter2", ".yaml", ".db", &root,
        ] {
            assert!(!text.contains(word), "{word} in {case}");
        }
    }
}

/// Makes a ledger with one run, so that reading finds one.
fn with_a_run(project: &Project) {
    project.json(&["run", "kits/plain"]);
}

#[tokio::test]
async fn over_http_every_tool_takes_the_credentials_of_its_row_and_no_others() {
    let project = project();
    with_a_run(&project);
    let server = serve(&project, &["--kit", "kits/plain"]);
    let client = client(&server);
    let credentials = [None, Some("nobody")].into_iter().chain(ROLES.map(Some));
    for who in credentials {
        let token = who.map(|who| format!("token-of-{who}"));
        for (tool, arguments, roles) in rows() {
            let answer = call(&client, token.as_deref(), tool, arguments).await;
            judge(&project, &answer, tool, who, roles);
            // What is wrong with the arguments is nothing that others hear of.
            if expected(who, roles).is_some() {
                let answer = call(&client, token.as_deref(), tool, json!({"nonsense": 1})).await;
                judge(&project, &answer, tool, who, roles);
            }
        }
        if expected(who, &ROLES).is_some() {
            let answer = call(&client, token.as_deref(), "start_rum", json!({})).await;
            judge(&project, &answer, "start_rum", who, &[]);
        }
    }
}

#[tokio::test]
async fn over_standard_input_every_tool_takes_the_credentials_of_its_row_and_no_others() {
    let project = project();
    with_a_run(&project);
    for who in ROLES.map(Some).into_iter().chain([Some("nobody")]) {
        let token = format!("token-of-{}", who.unwrap());
        let agent = agent(&project, &token).await;
        for (tool, arguments, roles) in rows() {
            let (_, answer) = agent.ask(tool, arguments).await;
            judge(&project, &answer, tool, who, roles);
        }
        agent.close().await;
    }
    // Without a token it is the process that has started the server, and may read the files itself.
    let agent = project.agent(&["--kit", "kits/plain"]).await;
    for (tool, arguments, _) in rows() {
        let (_, answer) = agent.ask(tool, arguments).await;
        judge(&project, &answer, tool, Some("admin"), &["admin"]);
    }
    agent.close().await;
}

async fn agent(project: &Project, token: &str) -> Agent {
    let token = [("KTSU_TOKEN", token)];
    project.agent_with(&["--kit", "kits/plain"], &token).await
}

/// The owner of the ledger has principals of its own: it is asked before a kit is looked for, also
/// by a server that knows none.
#[tokio::test]
async fn where_another_process_owns_the_ledger_its_principals_decide_first() {
    let project = project();
    std::fs::remove_file(project.path().join("environments/local.env.yaml")).unwrap();
    project.write("elsewhere.yaml", &environment());
    let mut command = project.command(&[
        "start",
        "--all",
        "--json",
        "--kit",
        "kits/plain",
        "--env",
        "elsewhere.yaml",
    ]);
    command.args(["--port", "0", "--runtime-port", "0", "--gateway-port", "0"]);
    let _owner = Process::spawn(command);
    let server = serve(&project, &[]);
    let client = client(&server);
    for who in [
        None,
        Some("nobody"),
        Some("viewer"),
        Some("runtime"),
        Some("operator"),
    ] {
        let token = who.map(|who| format!("token-of-{who}"));
        for (tool, arguments, roles) in rows() {
            let answer = call(&client, token.as_deref(), tool, arguments).await;
            judge(&project, &answer, tool, who, roles);
        }
    }
    for who in ["nobody", "viewer", "approver"] {
        let agent = agent(&project, &format!("token-of-{who}")).await;
        for (tool, arguments, roles) in rows() {
            let (_, answer) = agent.ask(tool, arguments).await;
            judge(&project, &answer, tool, Some(who), roles);
        }
        agent.close().await;
    }
}

/// A kit may have an environment of its own, nearer than that of the server.
#[tokio::test]
async fn the_principals_of_a_kit_are_asked_before_the_kit_is_read() {
    let project = project();
    let path = project.path().join("environments/local.env.yaml");
    std::fs::remove_file(path).unwrap();
    project.write("kits/broken/environments/local.env.yaml", &environment());
    let server = serve(&project, &[]);
    let client = client(&server);
    let arguments = json!({"kit": "broken", "goal": "g"});
    for (who, code) in [(None, "unauthorized"), (Some("viewer"), "forbidden")] {
        let token = who.map(|who: &str| format!("token-of-{who}"));
        let answer = call(&client, token.as_deref(), "start_run", arguments.clone()).await;
        assert_eq!(answer["code"], code, "{answer}");
        assert!(!answer.to_string().contains("hunter2"), "{answer}");
    }
}

/// A failure that is none of the engine's: callers below operator hear that there was one.
#[tokio::test]
async fn what_fails_on_this_machine_is_reported_with_paths_to_operators_alone() {
    let project = project();
    let server = serve(&project, &["--kit", "kits/broken"]);
    let client = client(&server);
    let decide = json!({"run_id": "run_none", "step_id": "s", "decision": "approved"});
    // There is no ledger, and the kit is not valid.
    for (who, tool, arguments) in [
        ("viewer", "get_envelope", json!({"run_id": "run_none"})),
        ("auditor", "verify_run", json!({"run_id": "run_none"})),
        ("approver", "decide_approval", decide),
    ] {
        let answer = call(&client, Some(&format!("token-of-{who}")), tool, arguments).await;
        judge(&project, &answer, tool, Some(who), &[who]);
        assert!(answer["hint"].as_str().unwrap().contains("log"), "{answer}");
    }
    let invoke = json!({"workflow": "broken"});
    let answer = call(
        &client,
        Some("token-of-operator"),
        "invoke_workflow",
        invoke,
    )
    .await;
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("broken.workflow.yaml"),
        "{answer}"
    );
}

#[test]
fn the_address_that_is_printed_is_the_one_that_is_listened_on() {
    let project = project();
    for (listen, printed) in [
        ("0.0.0.0:0", "http://0.0.0.0:"),
        ("127.0.0.1:0", "http://127.0.0.1:"),
    ] {
        let server = Process::spawn(project.command(&["mcp", "--json", "--http", listen]));
        assert!(server.url.starts_with(printed), "{}", server.url);
        assert!(
            server.url.ends_with("/mcp") && !server.url.contains(":0/"),
            "{}",
            server.url
        );
    }
}

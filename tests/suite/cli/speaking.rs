//! As whom commands speak, and which environment they speak in, where nobody owns the ledger.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Output;

use serde_json::json;

use super::{Desk, kit};

const CLOSED: &str = "variables: {ADA: token-of-ada, VIC: token-of-vic}
ledger: kept/here.db
principals:
  - {name: ada, token: {env: ADA}, roles: [operator]}
  - {name: vic, token: {env: VIC}, roles: [viewer]}
";

/// A desk with an environment that is nowhere near the working directory, and a run of it.
fn desk() -> (Desk, String) {
    let desk = Desk::new();
    desk.write_file("apart/closed.env.yaml", CLOSED);
    let hello = kit("hello");
    let run = ["run", &hello, "--env", "apart/closed.env.yaml", "--json"];
    let envelope = desk.ktsu(&run).is(0).json();
    (desk, envelope["run_id"].as_str().unwrap().to_owned())
}

fn showing(desk: &Desk, token: &[u8], arguments: &[&str]) -> Output {
    let mut command = desk.command(arguments);
    command.env("KTSU_TOKEN", OsStr::from_bytes(token));
    command.output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_fork_that_waits_keeps_the_environment_and_drops_the_kit_alone() {
    let (desk, run) = desk();
    let set = "params.name=it is token-of-vic";
    let fork = ["fork", &run, "--at", "1", "--set", set, "--json"];
    let flag = [&fork[..], &["--env", "apart/closed.env.yaml"]].concat();
    let refused = showing(&desk, b"token-of-vic", &flag);
    assert_eq!(refused.status.code(), Some(2), "{}", words(&refused));
    assert!(
        words(&refused).contains("operator, admin"),
        "{}",
        words(&refused)
    );
    let made = showing(&desk, b"token-of-ada", &flag);
    assert_eq!(made.status.code(), Some(0), "{}", words(&made));
    let mut variable = desk.command(&fork);
    let said = variable
        .env("KTSU_ENV", "apart/closed.env.yaml")
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(0), "{}", words(&said));
    // The environment beside the kit, too, where it is found without being named.
    let hello = kit("hello");
    desk.write_file("its/environments/local.env.yaml", CLOSED);
    let copied = std::fs::read_to_string(format!("{hello}/workflows/hello.workflow.yaml"));
    desk.write_file("its/kit/workflows/hello.workflow.yaml", &copied.unwrap());
    let beside = [&fork[..], &["--kit", "its/kit", "--ledger", "kept/here.db"]].concat();
    let refused = showing(&desk, b"token-of-vic", &beside);
    assert_eq!(refused.status.code(), Some(2), "{}", words(&refused));
    desk.ktsu(&beside).is(0);
    for entry in std::fs::read_dir(desk.path().join("kept")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("token-of"));
    }
}

/// Without its token a command would speak as whoever is at the machine, and may do everything.
#[test]
fn a_token_that_cannot_be_sent_is_an_error_and_no_one_elses() {
    let (desk, run) = desk();
    let hello = kit("hello");
    let env = "apart/closed.env.yaml";
    let elsewhere = ["invoke", "hello", "--orchestrator", "http://127.0.0.1:1"];
    let commands: [&[&str]; 4] = [
        &["run", &hello, "--env", env],
        &[
            "overlay",
            &run,
            "greet.result=x",
            "--reason",
            "r",
            "--env",
            env,
        ],
        &["fork", &run, "--env", env],
        &elsewhere,
    ];
    for arguments in commands {
        for token in [&b"token-of-vic\n"[..], b"token\xff-of-vic", b"\x01token"] {
            let said = showing(&desk, token, arguments);
            let words = words(&said);
            assert_eq!(said.status.code(), Some(2), "{arguments:?}: {words}");
            assert!(
                words.contains("KTSU_TOKEN is not a token"),
                "{arguments:?}: {words}"
            );
            assert!(!words.contains("of-vic"), "{words}");
        }
    }
    let runs = desk.ktsu(&["runs", "--json", "--ledger", "kept/here.db"]);
    assert_eq!(
        runs.is(0).out.matches("\"run_id\"").count(),
        1,
        "{}",
        runs.out
    );
}

#[test]
fn a_fork_takes_a_definition_whose_agents_name_tool_servers() {
    let (desk, run) = desk();
    let flow = "kind: workflow\nname: hello\nversion: 1.0.0\npipeline:\n  - {id: think, agent: ./agents/a.agent.yaml}\n";
    desk.write_file("with/workflows/hello.workflow.yaml", flow);
    desk.write_file(
        "with/agents/a.agent.yaml",
        "name: a\nmodel: m\nprompt: {system: s, user: u}\noutput: {schema: {type: object}}\nservers: [{name: tools, path: servers/tools.server.yaml}]\n",
    );
    desk.write_file(
        "with/servers/tools.server.yaml",
        "name: tools\nversion: 1.0.0\nurl: http://127.0.0.1:9\n",
    );
    let fork = ["fork", &run, "--at", "1", "--with", "with"];
    desk.ktsu(&[&fork[..], &["--ledger", "kept/here.db"]].concat())
        .is(0);
}

#[test]
fn the_ledger_of_a_named_environment_is_found_without_a_kit() {
    let (desk, run) = desk();
    let value = json!([{"text": "Good day", "name": "all"}]).to_string();
    let set = format!("greet.result={value}");
    let overlay = ["overlay", &run, &set, "--reason", "r"];
    desk.ktsu(&overlay).is(2);
    desk.ktsu(&[&overlay[..], &["--env", "apart/closed.env.yaml"]].concat())
        .is(0);
}

#[test]
fn a_variable_that_is_set_to_nothing_is_not_set() {
    let desk = Desk::new();
    let hello = kit("hello");
    let mut run = desk.command(&["run", &hello, "--json"]);
    run.envs([("KTSU_ENV", ""), ("KTSU_LEDGER", ""), ("KTSU_TOKEN", "")]);
    let said = run.output().unwrap();
    assert_eq!(said.status.code(), Some(0), "{}", words(&said));
    assert!(desk.path().join(".ktsu/ledger.db").is_file());
    // A flag that is given nothing is a mistake.
    desk.ktsu(&["run", &hello, "--env", ""]).is(2);
}

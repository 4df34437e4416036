//! Environments with principals, from the command line: whose token a command shows, and where
//! services listen.

use super::{Desk, Said, kit};
use serde_json::{Value, json};

const CLOSED: &str = "variables: {ADA: token-of-ada, VIC: token-of-vic, RUN: token-of-runtime}
listen: {orchestrator: '127.0.0.2:0', runtime: '127.0.0.1:0', gateway: '127.0.0.1:0'}
principals:
  - {name: ada, token: {env: ADA}, roles: [operator]}
  - {name: vic, token: {env: VIC}, roles: [viewer]}
  - {name: worker, token: {env: RUN}, roles: [runtime]}
";

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write_file("closed.env.yaml", CLOSED);
    desk
}

impl Desk {
    /// As [`Desk::ktsu`], with a token.
    fn ktsu_as(&self, token: &str, arguments: &[&str]) -> Said {
        let output = self
            .command(arguments)
            .env("KTSU_TOKEN", token)
            .output()
            .unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Who started a run, as its first frame says.
    fn starter(&self, run: &str) -> Value {
        let said = self.ktsu(&["frames", run, "--json"]);
        let first = said.is(0).out.lines().next().unwrap();
        let first: Value = serde_json::from_str(first).unwrap();
        first["data"]["principal"].clone()
    }
}

#[test]
fn commands_show_the_owner_of_a_ledger_the_token_of_the_environment() {
    let desk = desk();
    let owner = desk.start(&["--kit", &kit("hello"), "--env", "closed.env.yaml"]);
    let invoke = ["invoke", "hello", "--json"];
    desk.ktsu(&invoke).is(2).warns("KTSU_TOKEN");
    desk.ktsu_as("", &invoke).is(2).warns("KTSU_TOKEN");
    desk.ktsu_as("token-of-nobody", &invoke).is(2);
    desk.ktsu_as("token-of-vic", &invoke)
        .is(2)
        .warns("operator, admin");
    let said = desk.ktsu_as("token-of-ada", &["invoke", "hello", "--wait", "--json"]);
    let envelope = said.is(0).json();
    let run = envelope["run_id"].as_str().unwrap();
    assert_eq!(desk.starter(run), json!({"auth": "token", "id": "ada"}));
    desk.ktsu(&["fork", run]).is(2).warns("KTSU_TOKEN");
    desk.ktsu_as("token-of-ada", &["fork", run, "--json"]).is(0);
    let elsewhere = ["invoke", "hello", "--orchestrator", &owner.url];
    desk.ktsu(&elsewhere).is(2);
    desk.ktsu_as("token-of-ada", &elsewhere).is(0);
    let (code, err) = owner.stop("TERM");
    assert_eq!(code, 0, "{err}");
    assert!(!err.contains("token-of"), "{err}");
}

/// Whoever runs an engine owns its ledger; a token says as whom it is asked.
#[test]
fn an_engine_of_ones_own_asks_for_no_token_and_takes_one() {
    let desk = desk();
    let hello = kit("hello");
    let run = ["run", &hello, "--env", "closed.env.yaml", "--json"];
    let local = desk.ktsu(&run).is(0).json();
    let local = local["run_id"].as_str().unwrap();
    assert_eq!(desk.starter(local), json!({"auth": "none", "id": "local"}));
    let ada = desk.ktsu_as("token-of-ada", &run).is(0).json();
    let ada = ada["run_id"].as_str().unwrap();
    assert_eq!(desk.starter(ada), json!({"auth": "token", "id": "ada"}));
    desk.ktsu_as("token-of-nobody", &run).is(2);
    desk.ktsu_as("token-of-vic", &run)
        .is(2)
        .warns("operator, admin");
    // Where nobody is asked, a token is nobody's.
    let open = ["run", &hello, "--json", "--ledger", "open.db"];
    desk.ktsu_as("token-of-nobody", &open).is(0);
}

#[test]
fn services_listen_where_the_environment_says_unless_the_command_says_otherwise() {
    let desk = desk();
    let env = ["--env", "closed.env.yaml"];
    let hello = kit("hello");
    let owner = desk.start(&["--kit", &hello, env[0], env[1]]);
    assert!(owner.url.starts_with("http://127.0.0.2:"), "{}", owner.url);
    drop(owner);
    let other = desk.start(&["--kit", &hello, env[0], env[1], "--host", "127.0.0.3"]);
    assert!(other.url.starts_with("http://127.0.0.3:"), "{}", other.url);
    drop(other);
    desk.write_file("open.env.yaml", "listen: {orchestrator: '0.0.0.0:0'}\n");
    desk.ktsu(&["start", "--kit", &hello, "--env", "open.env.yaml"])
        .is(2)
        .warns("error[open-to-all]")
        .warns("open.env.yaml:1:24");
    desk.write_file("models/gateway.yaml", "model_groups: []\nproviders: []\n");
    for service in ["runtime", "gateway"] {
        let start = ["start", service, "--host", "0.0.0.0", "--port", "0"];
        let more = ["--kit", "models", env[0], env[1]];
        let where_else = [
            "--orchestrator",
            "http://127.0.0.1:1",
            "--gateway",
            "http://127.0.0.1:1",
        ];
        desk.ktsu(&[&start[..], &more[..], &where_else[..]].concat())
            .is(2)
            .warns("other machines could reach it");
    }
}

/// The key of the environment signs; the one of the process goes before it.
#[test]
fn a_ledger_is_signed_with_the_key_that_the_environment_names() {
    let desk = Desk::new();
    let hello = kit("hello");
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
    desk.write_file(
        "environments/here.env.yaml",
        "evidence: {signing_key: keys/sign}\n",
    );
    desk.write_file("environments/keys/sign", key);
    let run = [
        "run",
        &hello,
        "--env",
        "environments/here.env.yaml",
        "--json",
    ];
    desk.ktsu(&run).is(0);
    assert!(desk.path().join(".ktsu/ledger.db").is_file());
    let beside = desk.path().join(".ktsu/ledger.db.signing-key");
    assert!(!beside.exists(), "a key was made though there is one");
    let rotated = desk
        .command(&["evidence", "key", "rotate"])
        .env("KTSU_ENV", "environments/here.env.yaml")
        .output()
        .unwrap();
    assert_eq!(rotated.status.code(), Some(2));
    let words = String::from_utf8(rotated.stderr).unwrap();
    assert!(words.contains("the environment names"), "{words}");
    desk.write_file("environments/keys/sign", "no key at all\n");
    desk.ktsu(&run)
        .is(2)
        .warns("keys/sign")
        .warns("holds no key");
    std::fs::remove_file(desk.path().join("environments/keys/sign")).unwrap();
    desk.ktsu(&run).is(2).warns("keys/sign");
}

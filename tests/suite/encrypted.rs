//! Services on several machines: certificates, and tokens of services. The machines are addresses of this one.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ktsu_peer::Peer;
use serde_json::{Value, json};

use crate::support::certificates::{Authority, connections};
use crate::support::process::Process;
use crate::support::services::free;

const TOKENS: [(&str, &str); 4] = [
    ("ADA", "token-of-ada"),
    ("VIC", "token-of-vic"),
    ("ORCHESTRATOR", "token-of-orchestrator"),
    ("RUNTIME", "token-of-runtime"),
];

/// The tokens that the file of every machine names.
const PRINCIPALS: &str = "principals:
  - {name: ada, token: {env: ADA}, roles: [operator]}
  - {name: vic, token: {env: VIC}, roles: [viewer]}
  - {name: owner, token: {env: ORCHESTRATOR}, roles: [orchestrator]}
  - {name: worker, token: {env: RUNTIME}, roles: [runtime]}
";

/// A folder with the certificates and the environment file of all machines.
struct Machines {
    folder: tempfile::TempDir,
    authority: Authority,
    urls: [String; 3],
    ports: [u16; 3],
}

impl Machines {
    fn new(tls: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        authority.write(&folder.path().join("ca.pem"));
        authority.issue(folder.path(), "own");
        let rules = repository().join("kits/triage/scripted/triage.yaml");
        let rules = rules.display();
        let text = format!(
            "receiver: {{variable: RECEIVER_URL}}
egress: {{allow: [127.0.0.1]}}
providers: [{{name: desk, type: scripted, config: {{rules: {rules}}}}}]
{PRINCIPALS}tls: {tls}
"
        );
        std::fs::write(folder.path().join("machines.env.yaml"), text).unwrap();
        let ports = free();
        let urls = ports.map(|port| format!("https://127.0.0.1:{port}"));
        Self {
            folder,
            authority,
            urls,
            ports,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, arguments: &[&str], tokens: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
        command.args(arguments).env_clear().current_dir(self.path());
        command.envs(
            TOKENS
                .iter()
                .filter(|(name, _)| tokens.contains(name))
                .copied(),
        );
        command
    }

    /// A service, with the tokens that its machine knows.
    fn start(&self, at: usize, arguments: &[&str], tokens: &[&str]) -> Process {
        let port = self.ports[at].to_string();
        let own = [
            "start",
            "--json",
            "--env",
            "machines.env.yaml",
            "--port",
            &port,
        ];
        let mut all = vec![own[0], arguments[0]];
        all.extend(&own[1..]);
        all.extend(&arguments[1..]);
        let process = Process::spawn(self.command(&all, tokens));
        assert_eq!(process.url, self.urls[at]);
        process
    }

    fn gateway(&self) -> Process {
        let config = repository().join("kits/triage/gateway.yaml");
        let arguments = ["gateway", "--config", config.to_str().unwrap()];
        self.start(2, &arguments, &["ORCHESTRATOR", "RUNTIME"])
    }

    fn runtime(&self) -> Process {
        let arguments = [
            "runtime",
            "--orchestrator",
            &self.urls[0],
            "--gateway",
            &self.urls[2],
        ];
        self.start(1, &arguments, &["ORCHESTRATOR", "RUNTIME"])
    }

    fn orchestrator(&self) -> Process {
        let kit = repository().join("kits/triage");
        let arguments = [
            "orchestrator",
            "--kit",
            kit.to_str().unwrap(),
            "--ledger",
            "ledger.db",
        ];
        let agents = [
            "--runtime-url",
            &self.urls[1],
            "--gateway-url",
            &self.urls[2],
        ];
        let names = TOKENS.map(|(name, _)| name);
        self.start(0, &[&arguments[..], &agents[..]].concat(), &names)
    }

    /// A command of a person who trusts the authority of a file; exit code and what was said.
    fn ktsu(&self, authority: &str, token: &str, arguments: &[&str]) -> (i32, String, String) {
        let mut command = self.command(arguments, &[]);
        command
            .env("KTSU_TOKEN", token)
            .env("KTSU_TLS_AUTHORITY", authority);
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        (code, text(output.stdout), text(output.stderr))
    }

    fn peer(&self, at: usize, token: Option<&str>) -> Peer {
        let pool = connections(&self.path().join("ca.pem"));
        Peer::with_pool(pool, &self.urls[at], token.map(str::to_owned))
    }

    async fn post(&self, at: usize, path: &str, token: Option<&str>) -> (u16, Value) {
        let answer = self.peer(at, token).post(path, &[], "{}".into()).await;
        let (status, body) = answer.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    fn invoke(&self, authority: &str, more: &[&str]) -> (i32, String, String) {
        let input = repository().join("kits/triage/examples/default.json");
        let input = format!("@{}", input.display());
        let invoke = ["invoke", "triage", "--wait", "--json", "--input", &input];
        self.ktsu(authority, "token-of-ada", &[&invoke[..], more].concat())
    }
}

fn repository() -> std::path::PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

const MUTUAL: &str = "{certificate: own.pem, key: own.key, authority: ca.pem, clients: true}";
const ONE_SIDED: &str = "{certificate: own.pem, key: own.key, authority: ca.pem}";

#[test]
fn three_services_that_show_each_other_certificates_and_tokens_complete_a_run() {
    let machines = Machines::new(MUTUAL);
    let (_gateway, _runtime) = (machines.gateway(), machines.runtime());
    let _orchestrator = machines.orchestrator();
    // A person's command has no certificate, where every caller needs one.
    let (code, _, err) = machines.invoke("ca.pem", &["--orchestrator", &machines.urls[0]]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("it may ask for a certificate"), "{err}");
    let input = repository().join("kits/triage/examples/default.json");
    let input = format!("@{}", input.display());
    let mut invoke = machines.command(
        &[
            "invoke",
            "triage",
            "--wait",
            "--json",
            "--ledger",
            "ledger.db",
            "--input",
            &input,
        ],
        &[],
    );
    invoke
        .env("KTSU_TOKEN", "token-of-ada")
        .env("KTSU_TLS_AUTHORITY", "ca.pem")
        .env("KTSU_TLS_CERTIFICATE", "own.pem")
        .env("KTSU_TLS_KEY", "own.key");
    let output = invoke.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(envelope["steps"][0]["status"], "complete", "{envelope:#}");
}

#[test]
fn a_command_trusts_no_service_of_another_authority_and_says_so() {
    let machines = Machines::new(ONE_SIDED);
    let _orchestrator = machines.orchestrator();
    Authority::new().write(&machines.path().join("other.pem"));
    let there = ["--orchestrator", machines.urls[0].as_str()];
    let (code, _, err) = machines.invoke("other.pem", &there);
    assert_eq!(code, 2);
    assert!(err.contains("of an authority that is not trusted"), "{err}");
    let (code, _, err) = machines.invoke("missing.pem", &there);
    assert_eq!(code, 2);
    assert!(err.contains("cannot read missing.pem"), "{err}");
    let plain = machines.urls[0].replace("https", "http");
    let (code, _, err) = machines.invoke("ca.pem", &["--orchestrator", &plain]);
    assert_eq!(code, 2);
    assert!(err.contains("begin its URL with https"), "{err}");
}

#[tokio::test]
async fn what_a_runtime_or_a_gateway_does_needs_the_token_of_a_service() {
    let machines = Machines::new(ONE_SIDED);
    let (_gateway, _runtime) = (machines.gateway(), machines.runtime());
    for (at, path) in [
        (1, "/invoke"),
        (1, "/beat"),
        (2, "/invoke"),
        (1, "/nothing"),
    ] {
        for token in [None, Some("token-of-nobody"), Some("token-of-ada")] {
            let (status, body) = machines.post(at, path, token).await;
            assert_eq!(status, 401, "{path} {token:?}");
            assert_eq!(body["error"], "unauthorized");
        }
    }
    let (status, body) = machines.post(1, "/invoke", Some("token-of-runtime")).await;
    assert_eq!((status, &body["error"]), (403, &json!("forbidden")));
    for (at, token) in [
        (1, "token-of-orchestrator"),
        (2, "token-of-orchestrator"),
        (2, "token-of-runtime"),
    ] {
        let (status, body) = machines.post(at, "/invoke", Some(token)).await;
        assert_eq!(status, 400, "{at} {token} {body}");
    }
    for at in [1, 2] {
        let answer = machines.peer(at, None).get("/health", "*/*").await;
        assert_eq!(answer.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused_and_its_replacement_needs_no_restart() {
    let machines = Machines::new(ONE_SIDED);
    machines.authority.issue_expired(machines.path(), "own");
    let _gateway = machines.gateway();
    let ask = async || {
        let peer = machines.peer(2, None);
        peer.get("/health", "*/*").await
    };
    let refused = ask().await.unwrap_err().to_string();
    assert!(refused.contains("its certificate has expired"), "{refused}");
    machines.authority.issue(machines.path(), "own");
    let renewed = async {
        while ask().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let renewed = tokio::time::timeout(Duration::from_secs(30), renewed).await;
    assert!(renewed.is_ok(), "the new certificate is not in force");
}

#[test]
fn a_service_that_other_machines_reach_needs_a_certificate_and_principals() {
    let machines = Machines::new(ONE_SIDED);
    let plain = std::fs::read_to_string(machines.path().join("machines.env.yaml")).unwrap();
    let (open, _) = plain.split_once("principals:").unwrap();
    let encrypted = format!("{open}tls: {ONE_SIDED}\n");
    let (known, _) = plain.split_once("tls:").unwrap();
    for (file, text, words) in [
        (
            "encrypted.env.yaml",
            encrypted.as_str(),
            "without authentication",
        ),
        ("known.env.yaml", known, "would not be encrypted"),
    ] {
        std::fs::write(machines.path().join(file), text).unwrap();
        let config = repository().join("kits/triage/gateway.yaml");
        let start = [
            "start", "gateway", "--host", "0.0.0.0", "--port", "0", "--env", file,
        ];
        let with = ["--config", config.to_str().unwrap()];
        let mut command = machines.command(
            &[&start[..], &with[..]].concat(),
            &["ORCHESTRATOR", "RUNTIME"],
        );
        let output = command.output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(words) && err.contains("hint: "), "{err}");
    }
}

//! SIGHUP makes the real binary read its environment file again.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::support::process::Process;
use crate::support::{Client, KitDir, guarded};

const PURE: &str = "pipeline:
  - {id: t, summary: a word-in-a-definition, transform: {inputs: [{from: params}], ops: []}}
";
const FIRST: &str = "principals:
  - {name: ada, token: {env: ADA}, roles: [operator]}
  - {name: vic, token: {env: VIC}, roles: [operator]}
variables: {VIC: token-of-vic, ADA: token-of-ada}
";

/// An engine with principals, its environment file and its log.
struct Desk {
    _kit: KitDir,
    folder: tempfile::TempDir,
    engine: Process,
}

impl Desk {
    fn new() -> Self {
        let kit = KitDir::new(&[("pure", PURE)]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("of.env.yaml"), FIRST).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
        command
            .args(["start", "--json", "--log-format", "json", "--port", "0"])
            .args(["--env", "of.env.yaml", "--ledger", "ledger.db", "--kit"])
            .arg(kit.dir.path())
            .env_clear()
            .current_dir(folder.path())
            .stderr(log);
        Self {
            engine: Process::spawn(command),
            _kit: kit,
            folder,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Writes the environment file, and has it read again; the log from then on, up to these words.
    async fn reads(&self, text: &str, until: &str) -> String {
        let before = self.log().len();
        let file: PathBuf = self.folder.path().join("of.env.yaml");
        std::fs::write(file, text).unwrap();
        self.engine.signal("HUP");
        let told = async {
            loop {
                let log = self.log();
                match log[before..].contains(until) && log.ends_with('\n') {
                    true => return log[before..].to_owned(),
                    false => tokio::task::yield_now().await,
                }
            }
        };
        guarded(until, told).await
    }

    fn showing(&self, token: &str) -> Client {
        Client::showing(&self.engine.url, token)
    }

    /// The status of an invocation with a token.
    async fn status(&self, token: &str) -> u16 {
        let answer = self.showing(token).post("/invoke/pure?wait=60", "{}").await;
        answer.status
    }
}

const READ: &str = "SIGHUP: read the log level, and roles and tokens of principals";

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_replaces_tokens_roles_and_principals() {
    let desk = Desk::new();
    for token in ["token-of-ada", "token-of-vic"] {
        assert_eq!(desk.status(token).await, 200);
    }
    let text = "principals:
  - {name: ada, token: {env: ADA}, roles: [operator]}
  - {name: eve, token: {env: EVE}, roles: [viewer]}
variables: {ADA: another-of-ada, EVE: token-of-eve}
";
    let log = desk.reads(text, READ).await;
    assert!(log.contains("need a restart"), "{log}");
    assert_eq!(desk.status("another-of-ada").await, 200);
    assert_eq!(desk.status("token-of-eve").await, 403);
    for gone in ["token-of-ada", "token-of-vic"] {
        assert_eq!(desk.status(gone).await, 401, "{gone}");
    }
    // A new token is no more recorded than the first ones.
    let body = json!({"text": "another-of-ada, token-of-ada, token-of-eve"});
    let ada = desk.showing("another-of-ada");
    let run = ada.run("pure", body).await["run_id"].clone();
    let path = format!("/runs/{}/frames", run.as_str().unwrap());
    let frames = ada.get(&path).await.text();
    assert!(frames.contains("[REDACTED]"), "{frames}");
    for text in [frames, desk.log()] {
        assert!(
            !text.contains("-of-ada") && !text.contains("-of-eve"),
            "{text}"
        );
    }
    desk.engine.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_cannot_be_read_again_changes_nothing() {
    let desk = Desk::new();
    let cases = [
        (
            "principals:\n  - {name: ada, token: {env: ADA}, roles: [operatr]}\n",
            "is not valid; what was read before stays in force",
            "\"line\":2",
        ),
        (
            "principals: [\n",
            "is not valid; what was read before stays in force",
            "\"line\":",
        ),
        (
            "principals:\n  - {name: ada, token: {env: ADA}, roles: [operator]}\n",
            "not valid; what was read before stays in force",
            "\"line\":2",
        ),
        (
            "variables: {LOG_LEVEL: error}\n",
            "no principals any more, which needs a restart",
            "stays in force",
        ),
        (
            "principals:
  - {name: ada, token: {env: ADA}, roles: [operator]}
variables: {ADA: word-in-a-definition}
",
            "written out in the definition of pure, at /",
            "stays in force",
        ),
    ];
    for (text, until, place) in cases {
        let log = desk.reads(text, until).await;
        assert!(log.contains(place), "{log}");
        assert!(log.contains("\"level\":\"ERROR\""), "{log}");
        assert_eq!(desk.status("token-of-ada").await, 200);
        for unknown in ["no-such-token", "word-in-a-definition"] {
            assert_eq!(desk.status(unknown).await, 401, "{unknown}");
        }
    }
    let log = desk.reads(FIRST, READ).await;
    assert!(!log.contains("ERROR"), "{log}");
    assert_eq!(desk.status("token-of-vic").await, 200);
    desk.engine.stop();
}

//! `kits/access-request` as it is shipped, on a file server of ours with the same tools. The one it
//! is made for, which others wrote, is met in `tests/interop/access-request`.

use std::path::Path;

use ktsu::eval_file::EvalFile;
use ktsu_eval::{Subject, judge, verdict};
use ktsu_history::checked_run::CheckedRun;
use ktsu_ledger::StreamId;
use ktsu_ledger::event::EvalStatus;
use ktsu_ledger::store::StoreError;
use serde_json::{Value, json};

use crate::support::sink::Heard;
use crate::support::tools::ToolServer;
use crate::support::{Lab, Sink};

const GRANT: &str = "Request: AR-1041\nPerson: Ines Duarte, finance\nSystem: ledger-reports\n\
                     Level: read\nUntil: 2027-03-31\nRule: 3.1, reading\n";

/// The kit at work on a copy of its files.
struct Office {
    files: tempfile::TempDir,
    server: ToolServer,
    told: Sink,
    lab: Lab,
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

impl Office {
    async fn open() -> Self {
        let kit = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits/access-request");
        let files = tempfile::tempdir().unwrap();
        copy(&kit.join("files"), files.path());
        let server = ToolServer::files(files.path().to_owned()).await;
        let told = Sink::new().await;
        let url = &server.url;
        let rules = kit.join("scripted/office.yaml");
        let rules = rules.display();
        let environment = format!(
            "name: test
servers: {{files: {{url: '{url}'}}, grants: {{url: '{url}'}}}}
providers: [{{name: office, type: scripted, config: {{rules: '{rules}'}}}}]
"
        );
        let pairs = [("RECEIVER_URL", told.url.as_str())];
        let lab = Lab::shipped("access-request", &environment, &pairs).await;
        Self {
            files,
            server,
            told,
            lab,
        }
    }

    /// What a person is asked about, once somebody asks; null if nobody did before the run ended.
    async fn waiting(&self, run: &str) -> Value {
        let mut events = self.lab.client.events(run, None).await;
        while let Some(event) = events.next().await {
            if event.data.contains("\"approval.requested\"") {
                break;
            }
        }
        let records = self.lab.client.get("/approvals").await.json();
        records[0].clone()
    }

    async fn decide(&self, run: &str, decision: &str) {
        let path = format!("/runs/{run}/steps/decide/approval/decide");
        let body = json!({"decision": decision, "reason": "looked at"});
        let answer = self.lab.client.post(&path, body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Somebody edits the request.
    fn edit(&self, from: &str, to: &str) {
        let path = self.files.path().join("requests/AR-1041.txt");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    }

    fn grant(&self) -> Option<String> {
        std::fs::read_to_string(self.files.path().join("grants/AR-1041.txt")).ok()
    }

    fn called(&self) -> Vec<String> {
        let asked = self.server.asked().into_iter();
        let path = |arguments: &Value| arguments["path"].as_str().unwrap().to_owned();
        let mut called: Vec<String> = asked
            .map(|one| format!("{} {}", one.tool, path(&one.arguments)))
            .collect();
        called.sort();
        called
    }

    /// The verdict of the kit's own eval on a finished run.
    async fn verdict(&self, run: &str) -> (EvalStatus, Vec<String>) {
        let stream = StreamId::run(run).unwrap();
        let readers = self.lab.engine.orchestrator.readers();
        let checked = readers
            .with(move |reader| Ok::<_, StoreError>(CheckedRun::read(reader, &stream, None)));
        let checked = checked.await.unwrap().unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = file.join("kits/access-request/evals/access.eval.yaml");
        let spec = EvalFile::load(&file, &file).unwrap().spec;
        let subject = Subject {
            envelope: &checked.envelope,
            frames: &checked.frames,
            services: None,
            workspace: None,
            replies: None,
        };
        let results = judge(&spec, &subject);
        let failed = results
            .iter()
            .filter(|one| one.status != EvalStatus::Passed);
        let failed = failed.map(|one| format!("{}: {}", one.name, one.reason));
        (
            verdict(&results, spec.pass_threshold).status,
            failed.collect(),
        )
    }

    /// What was recorded is evidence to both verifiers.
    async fn is_evidence(&self) {
        let readers = self.lab.engine.orchestrator.readers();
        let judged = readers.with(|reader| {
            crate::evidence::holds(reader, "access-request");
            Ok::<_, StoreError>(())
        });
        judged.await.unwrap();
    }

    async fn ends(&self, run: &str) -> Value {
        let envelope = self.lab.client.ended(run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        envelope["output"].clone()
    }
}

#[tokio::test]
async fn a_grant_is_written_once_and_only_after_a_person_approved_it() {
    let office = Office::open().await;
    let body = json!({"request": "AR-1041"});
    let run = office.lab.client.invoke("access", body).await;
    let asked = office.waiting(&run).await;
    assert_eq!(asked["tool_name"], "write_file");
    assert_eq!(
        asked["arguments"],
        json!({"path": "grants/AR-1041.txt", "content": GRANT})
    );
    assert_eq!(office.grant(), None);
    let notices = |heard: &[Heard]| heard.iter().any(|one| one.path == "/approvals");
    office.told.until(notices).await;
    office.decide(&run, "approved").await;
    let output = office.ends(&run).await;
    assert_eq!(output["confirmed"], true);
    assert_eq!(office.grant().as_deref(), Some(GRANT));
    assert_eq!(
        office.called(),
        [
            "read_text_file grants/AR-1041.txt",
            "read_text_file policy.txt",
            "read_text_file requests/AR-1041.txt",
            "read_text_file requests/AR-1041.txt",
            "write_file grants/AR-1041.txt",
        ]
    );
    let heard = office.told.heard();
    let told: Vec<&str> = heard.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(told, ["/approvals", "/access"]);
    assert_eq!(heard[0].json()["approval_id"], asked["approval_id"]);
    office.is_evidence().await;
    assert_eq!(office.verdict(&run).await, (EvalStatus::Passed, vec![]));
}

#[tokio::test]
async fn after_a_rejection_the_run_completes_and_nothing_is_written() {
    let office = Office::open().await;
    let body = json!({"request": "AR-1041"});
    let run = office.lab.client.invoke("access", body).await;
    office.waiting(&run).await;
    office.decide(&run, "rejected").await;
    let output = office.ends(&run).await;
    assert_eq!(output["granted"], false);
    assert_eq!(output["confirmed"], Value::Null);
    assert_eq!(office.grant(), None);
    let called = office.called();
    assert!(
        !called.iter().any(|one| one.starts_with("write")),
        "{called:?}"
    );
}

#[tokio::test]
async fn no_one_is_asked_about_what_the_policy_forbids_or_a_request_demands() {
    let office = Office::open().await;
    let body = json!({"request": "AR-1042"});
    let run = office.lab.client.invoke("access", body).await;
    assert_eq!(office.ends(&run).await["granted"], false);
    let attack = office
        .lab
        .client
        .run("access", json!({"request": "AR-1043"}))
        .await;
    assert_eq!(attack["error"]["code"], "injection_attempt", "{attack:#}");
    let all = office.lab.client.get("/approvals?status=all").await.json();
    assert_eq!(all, json!([]));
}

#[tokio::test]
async fn the_clerk_proposes_nothing_that_the_policy_may_forbid() {
    for (from, to) in [
        ("ledger-reports", "payroll"),
        ("ledger-reports", "Payroll archive"),
        ("Level: read", "Level: write"),
        ("2027-03-31", "2099-12-31"),
        ("Reason: ", "Because: "),
    ] {
        let office = Office::open().await;
        office.edit(from, to);
        let body = json!({"request": "AR-1041"});
        let run = office.lab.client.invoke("access", body).await;
        assert_eq!(office.waiting(&run).await, Value::Null, "{to}");
        assert_eq!(office.ends(&run).await["granted"], false, "{to}");
    }
}

#[tokio::test]
async fn the_auditor_confirms_no_grant_that_it_does_not_know() {
    let office = Office::open().await;
    office.edit("Ines Duarte", "Ines Duarte-Lund");
    let body = json!({"request": "AR-1041"});
    let run = office.lab.client.invoke("access", body).await;
    office.waiting(&run).await;
    office.decide(&run, "approved").await;
    let output = office.ends(&run).await;
    assert_eq!(output["granted"], true);
    assert_eq!(output["confirmed"], false);
    assert_eq!(output["person"], "Ines Duarte-Lund, finance");
}

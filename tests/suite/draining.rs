//! Engines that are asked to stop while calls are in flight: those are recorded, nothing new starts, and
//! the next start continues without making any of them again (decision P4).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{verify, verify_file};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::{Value, json};

use crate::support::ledgers::frames;
use crate::support::model::{self, Call, KEY, Model, Said};
use crate::support::process::Process;
use crate::support::services::{Service, Services};
use crate::support::sink::{Reply, Sink};
use crate::support::tools::{self, Given, ToolServer};
use crate::support::{Client, KitDir, campaign, guarded};

const CHAIN: &str = r#"
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: first, agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }} first"}}
  - {id: beside, agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }} beside"}}
  - {id: then, depends_on: [beside], agent: ./agents/reflects.agent.yaml, params: {msg: "{{ step.first.answer }}"}}
output: {map: {answer: "{{ step.then.answer }}"}}
"#;
/// Model calls of such a run: one each, and the reflection.
const CALLS: usize = 4;

const ACTOR: &str = r#"
name: actor
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: s, user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
servers: [{name: vault, path: ../servers/vault.server.yaml, access: {allowlist: [change]}}]
"#;

/// Every call waits for the gate of the round that its run belongs to: `ROUND-…`.
async fn slow_model() -> Model {
    Model::scripted(|call| {
        let round = round_of(call);
        Said::answer(&format!("{}!", call.user())).when(&round)
    })
    .await
}

fn round_of(call: &Call) -> String {
    call.user().split('-').next().unwrap().to_owned()
}

async fn until_draining(client: &Client) {
    let draining = async {
        loop {
            let health = client.get("/health").await;
            if health.json()["status"] == "draining" {
                return assert_eq!(health.status, 503);
            }
            tokio::task::yield_now().await;
        }
    };
    guarded("an engine that drains", draining).await;
}

/// Waits until every run of a round has this many calls at the provider.
async fn until_asked(model: &Model, round: &str, count: usize) {
    let own = |calls: &[Call]| calls.iter().filter(|call| round_of(call) == round).count();
    model.until(|calls| own(calls) >= count).await;
}

async fn ended(process: Process) -> Option<i32> {
    let ends = tokio::task::spawn_blocking(move || process.ended());
    guarded("the end of a process", ends).await.unwrap()
}

fn is_sound(ledger: &Path, runs: &[String]) {
    let report = verify_file(ledger, &verify::VerifyOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    let reader = SqliteReader::open(ledger).unwrap();
    for run in runs {
        if let Err(diverged) = replay(&frames(&reader, run), &mut Definitions::default()) {
            panic!("{run}: {diverged}");
        }
    }
}

fn all_once(counts: &BTreeMap<String, usize>, told: &str) {
    let twice: Vec<_> = counts.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{told}: made again: {twice:?}");
}

#[tokio::test]
async fn a_restart_under_load_makes_no_call_again_that_was_in_flight() {
    let model = slow_model().await;
    let kit = model::kit(&model, &[("chain", CHAIN)]);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let mut process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    let mut runs = Vec::new();
    for round in 0..campaign(5, 50) {
        let (told, client) = (format!("r{round}"), process.client());
        let mut own = Vec::new();
        for run in 0..4 {
            let body = json!({"msg": format!("{told}-{run}")});
            own.push(client.invoke("chain", body).await);
        }
        until_asked(&model, &told, 2 * own.len()).await;
        process.signal("TERM");
        until_draining(&client).await;
        let refused = client.post("/invoke/chain", r#"{"msg": "x-0"}"#).await;
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.json()["error"], "draining");
        assert!(refused.headers.contains_key("retry-after"));
        model.open(&told);
        assert_eq!(ended(process).await, Some(0), "{told}");
        let asked = model
            .calls()
            .iter()
            .filter(|call| round_of(call) == told)
            .count();
        assert_eq!(asked, 2 * own.len(), "{told}: a call began while draining");
        process = Process::start(kit.dir.path(), &ledger, &[KEY]);
        for run in &own {
            let envelope = process.client().ended(run).await;
            assert_eq!(envelope["status"], "complete", "{told}: {envelope:#}");
            assert_eq!(envelope["totals"]["llm_calls"], CALLS, "{told}");
        }
        runs.extend(own);
    }
    process.stop();
    all_once(&model.counts(), "after all restarts");
    is_sound(&ledger, &runs);
}

/// What starts something in a run.
const STARTS: [&str; 6] = [
    "step.started",
    "worker.dispatched",
    "webhook.sent",
    "llm.request",
    "tool.called",
    "reflect.started",
];

/// Two answers that come while the engine drains, each with a step that waits for it, and one of an
/// agent that reflects. With the runtime in the engine's process and in its own.
#[tokio::test]
async fn no_frame_of_a_start_follows_before_the_next_start_decides_it() {
    let model = slow_model().await;
    let sink = Sink::scripted(|_| Reply::Now(200, String::new())).await;
    let flow = format!(
        "params: {{schema: {{type: object, properties: {{msg: {{type: string}}}}}}}}\n\
         pipeline:\n  \
         - {{id: thinks, agent: ./agents/reflects.agent.yaml, params: {{msg: \"{{{{ params.msg }}}} thinks\"}}}}\n  \
         - {{id: first, agent: ./agents/echo.agent.yaml, params: {{msg: \"{{{{ params.msg }}}} first\"}}}}\n  \
         - {{id: then, depends_on: [first], agent: ./agents/echo.agent.yaml, params: {{msg: \"{{{{ params.msg }}}} then\"}}}}\n  \
         - {{id: send, depends_on: [first], webhook: {{url: \"{}/x\", body: {{a: 1}}}}}}\n\
         webhooks: execute\n",
        sink.url
    );
    let kit = model::kit(&model, &[("flow", &flow)]);
    let is_whole = |run: &str, ledger: &Path| {
        let reader = SqliteReader::open(ledger).unwrap();
        let kinds: Vec<_> = frames(&reader, run)
            .iter()
            .map(|frame| frame.event.kind().to_owned())
            .collect();
        let answered = kinds.iter().position(|kind| kind == "llm.response");
        let later = &kinds[answered.unwrap()..];
        let answers = later.iter().filter(|kind| *kind == "llm.response").count();
        assert_eq!(answers, 2, "{kinds:?}");
        let started = |kind: &String| STARTS.contains(&kind.as_str());
        assert!(!later.iter().any(started), "{later:?}");
    };
    let went_on = async |client: &Client, run: &str| {
        let envelope = client.ended(run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        assert_eq!(
            envelope["totals"]["llm_calls"], CALLS,
            "with the reflection"
        );
        let frames = client.frames(run).await;
        let of = |kind: &str| frames.iter().filter(|one| one["type"] == kind).count();
        assert_eq!(of("reflect.started"), 1);
        assert_eq!(of("webhook.sent"), 1);
        frames
    };

    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    let client = process.client();
    let run = client.invoke("flow", json!({"msg": "one-0"})).await;
    until_asked(&model, "one", 2).await;
    process.signal("TERM");
    until_draining(&client).await;
    model.open("one");
    assert_eq!(ended(process).await, Some(0));
    is_whole(&run, &ledger);
    is_sound(&ledger, std::slice::from_ref(&run));
    assert_eq!(sink.heard().len(), 0);
    let process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    went_on(&process.client(), &run).await;
    process.stop();
    is_sound(&ledger, &[run]);

    let mut services = Services::start(&kit, &[KEY]);
    let run = services
        .client()
        .invoke("flow", json!({"msg": "three-0"}))
        .await;
    until_asked(&model, "three", 2).await;
    let process = services.terminate(Service::Orchestrator);
    until_draining(&Client::of(&process.url)).await;
    model.open("three");
    assert_eq!(ended(process).await, Some(0));
    is_whole(&run, &services.ledger());
    services.restart(Service::Orchestrator);
    went_on(&services.client(), &run).await;
    assert_eq!(sink.heard().len(), 2);
    all_once(&model.counts(), "all");
    is_sound(&services.ledger(), &[run]);
}

/// The call of a stateful server would be doubtful otherwise, and a person asked.
#[tokio::test]
async fn a_tool_call_and_a_webhook_in_flight_are_recorded_before_the_engine_stops() {
    let model = Model::scripted(|call| match (call.user().as_str(), call.turn()) {
        ("act", 0) => Said::calls(&[("change", json!({}))]),
        _ => Said::answer("done"),
    })
    .await;
    let server =
        ToolServer::scripted(tools::any(&["change"]), |_| Given::text("ok").when("g")).await;
    let sink = Sink::scripted(|_| Reply::When("g".to_owned(), 200)).await;
    let flow = format!(
        "pipeline:\n  - {{id: act, agent: ./agents/actor.agent.yaml, params: {{msg: act}}}}\n  \
         - {{id: send, webhook: {{url: \"{}/x\", body: {{a: 1}}}}}}\nwebhooks: execute\n",
        sink.url
    );
    let vault = format!(
        "name: vault\nversion: 1.0.0\nstateful: true\nurl: {}\n",
        server.url
    );
    let kit = model::kit(&model, &[("flow", &flow)])
        .with("agents/actor.agent.yaml", ACTOR)
        .with("servers/vault.server.yaml", &vault);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    let client = process.client();
    let run = client.invoke("flow", json!({})).await;
    server.until(|asked| !asked.is_empty()).await;
    sink.until(|heard| !heard.is_empty()).await;
    process.signal("INT");
    until_draining(&client).await;
    server.open("g");
    sink.open("g");
    assert_eq!(ended(process).await, Some(0));
    let process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    let envelope = process.client().ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    process.stop();
    assert_eq!((server.executed().len(), sink.heard().len()), (1, 1));
    assert_eq!(model.calls().len(), 2);
    is_sound(&ledger, &[run]);
}

#[tokio::test]
async fn a_second_signal_ends_a_draining_engine_at_once_and_so_does_its_time() {
    let model = slow_model().await;
    let kit = model::kit(&model, &[("chain", CHAIN)]);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    let client = process.client();
    let run = client.invoke("chain", json!({"msg": "a-0"})).await;
    until_asked(&model, "a", 2).await;
    process.signal("TERM");
    until_draining(&client).await;
    process.signal("INT");
    assert_eq!(ended(process).await, Some(130));
    let brief = [KEY, ("KTSU_DRAIN", "50ms")];
    let process = Process::start(kit.dir.path(), &ledger, &brief);
    until_asked(&model, "a", 4).await;
    process.signal("TERM");
    assert_eq!(ended(process).await, Some(0));
    model.open("a");
    let process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    assert_eq!(process.client().ended(&run).await["status"], "complete");
    process.stop();
    is_sound(&ledger, &[run]);
}

#[tokio::test]
async fn a_hangup_ends_no_service() {
    let model = slow_model().await;
    let kit = model::kit(&model, &[("chain", CHAIN)]);
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(kit.dir.path(), &folder.path().join("ledger.db"), &[KEY]);
    process.signal("HUP");
    process.signal("HUP");
    assert_eq!(process.client().get("/health").await.status, 200);
    process.signal("TERM");
    assert_eq!(ended(process).await, Some(0));
}

/// Each of the three services is asked to stop while calls are in flight, alone.
#[tokio::test]
async fn each_service_alone_can_be_restarted_without_making_a_call_again() {
    let model = slow_model().await;
    let kit = model::kit(&model, &[("chain", CHAIN)]);
    let mut services = Services::start(&kit, &[KEY]);
    let mut runs = Vec::new();
    for victim in Service::ALL {
        let told = format!("{victim:?}");
        let run = services
            .client()
            .invoke("chain", json!({"msg": format!("{told}-0")}))
            .await;
        until_asked(&model, &told, 2).await;
        let process = services.terminate(victim);
        until_draining(&Client::of(&process.url)).await;
        model.open(&told);
        assert_eq!(ended(process).await, Some(0), "{told}");
        services.restart(victim);
        let envelope = services.client().ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{told}: {envelope:#}");
        assert_eq!(envelope["totals"]["llm_calls"], CALLS, "{told}");
        all_once(&model.counts(), &told);
        runs.push(run);
    }
    is_sound(&services.ledger(), &runs);
}

/// All three at once, as one who stops a machine does it.
#[tokio::test]
async fn all_services_can_be_stopped_at_once_without_making_a_call_again() {
    let model = slow_model().await;
    let kit = model::kit(&model, &[("chain", CHAIN)]);
    let mut services = Services::start(&kit, &[KEY]);
    let run = services
        .client()
        .invoke("chain", json!({"msg": "all-0"}))
        .await;
    until_asked(&model, "all", 2).await;
    let stopping = Service::ALL.map(|service| services.terminate(service));
    for process in &stopping {
        until_draining(&Client::of(&process.url)).await;
    }
    model.open("all");
    for process in stopping {
        assert_eq!(ended(process).await, Some(0));
    }
    Service::ALL
        .into_iter()
        .for_each(|service| services.restart(service));
    let envelope = services.client().ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(envelope["totals"]["llm_calls"], CALLS);
    all_once(&model.counts(), "all");
    is_sound(&services.ledger(), &[run]);
}

/// `ktsu run` on a kit, with its standard error piped.
fn run(kit: &KitDir, ledger: &Path) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command.arg("run").arg(kit.dir.path());
    command
        .args(["--input", r#"{"msg": "run-0"}"#, "--ledger"])
        .arg(ledger);
    command.env_clear().envs([KEY]).current_dir(kit.dir.path());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[tokio::test]
async fn an_interrupted_run_records_the_calls_in_flight() {
    let model = slow_model().await;
    let kit = model::kit(&model, &[("chain", CHAIN)]);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let mut child = run(&kit, &ledger);
    until_asked(&model, "run", 2).await;
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-s", "INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let mut stderr = child.stderr.take().unwrap();
    let (waits, told) = tokio::sync::oneshot::channel();
    let reading = tokio::task::spawn_blocking(move || {
        let (mut said, mut byte, mut waits) = (Vec::new(), [0], Some(waits));
        while stderr.read(&mut byte).unwrap() > 0 {
            said.push(byte[0]);
            if String::from_utf8_lossy(&said).contains("recording the calls in flight")
                && let Some(waits) = waits.take()
            {
                waits.send(()).unwrap();
            }
        }
        String::from_utf8(said).unwrap()
    });
    guarded("a command that says that it waits", told)
        .await
        .unwrap();
    model.open("run");
    let said = guarded("the end of a command", reading).await.unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{said}");
    assert!(said.contains("is kept"), "{said}");
    let asked = model.calls().len();
    assert_eq!(asked, 2, "a call began while draining");
    let process = Process::start(kit.dir.path(), &ledger, &[KEY]);
    let runs = process.client().get("/runs").await.json();
    let id = runs["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let envelope: Value = process.client().ended(&id).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    process.stop();
    all_once(&model.counts(), "run");
}

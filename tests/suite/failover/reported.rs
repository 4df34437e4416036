//! The owner is killed in the middle of turns of agents, whose runtimes know the standby, too.

use std::process::Command;

use serde_json::{Value, json};

use super::{beside, elsewhere, quiet};
use crate::support::load::PACE;
use crate::support::model::{self, Call, KEY, Model, Said};
use crate::support::postgres::Server;
use crate::support::process::Process;
use crate::support::services::free;
use crate::support::{Client, KitDir, guarded};

pub(super) const EACH: &str = r#"
params: {schema: {type: object, required: [list], properties: {list: {type: array}}}}
pipeline:
  - {id: each, agent: ./agents/reflects.agent.yaml, for_each: {from: params.list, concurrency: 100}, params: {msg: "{{ item }}"}}
output: {map: {each: "{{ step.each.results[*].answer }}"}}
"#;
const ITEMS: usize = 6;

pub(super) fn is_reflection(call: &Call) -> bool {
    call.messages()[0].1.starts_with("Look")
}

fn service(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command.args(["start", name, "--json", "--port", "0"]);
    quiet(&mut command);
    command
}

/// A gateway, and two runtimes that report to either of two orchestrators.
fn workers(kit: &KitDir, orchestrators: &[String]) -> [Process; 3] {
    let mut gateway = service("gateway");
    gateway.env(KEY.0, KEY.1).arg("--config");
    gateway.arg(kit.dir.path().join("gateway.yaml"));
    let gateway = Process::spawn(gateway);
    let runtime = || {
        let mut runtime = service("runtime");
        runtime.args(["--gateway", &gateway.url, "--places", "4"]);
        runtime.args(["--orchestrator", &orchestrators.join(",")]);
        Process::spawn(runtime)
    };
    let runtimes = [runtime(), runtime()];
    let [first, second] = runtimes;
    [gateway, first, second]
}

/// An owner, or the standby of one.
fn orchestrator(kit: &KitDir, url: &str, address: &str, runtimes: &[Process]) -> Process {
    let mut command = elsewhere();
    let port = url.rsplit(':').next().unwrap();
    command.args(["start", "orchestrator", "--standby", "--json"]);
    command.args(["--port", port, "--own-url", url, "--ledger", address]);
    let urls: Vec<&str> = runtimes.iter().map(|one| one.url.as_str()).collect();
    command.args(["--runtime-url", &urls.join(","), "--kit"]);
    quiet(command.arg(kit.dir.path()));
    Process::spawn(command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_runtime_reports_to_the_new_owner_what_it_did_for_a_killed_one() {
    let Some(server) = beside(Server::get) else {
        return;
    };
    let address = beside(|| server.ledger()).1;
    let address = server.address(&address);
    let model = Model::scripted(move |call| match is_reflection(call) {
        true => Said::answer(&format!("{} again", call.user())).when("go"),
        false => Said::answer(&call.user()),
    })
    .await;
    let kit = model::kit(&model, &[("each", EACH)]);
    let urls = free().map(|port| format!("http://127.0.0.1:{port}"));
    let [_gateway, runtimes @ ..] = beside(|| workers(&kit, &urls[..2]));
    let owner = beside(|| orchestrator(&kit, &urls[0], &address, &runtimes));
    let standby = beside(|| orchestrator(&kit, &urls[1], &address, &runtimes));
    let items: Vec<String> = (0..ITEMS).map(|item| format!("item {item}")).collect();
    let run = owner.client().invoke("each", json!({"list": items})).await;
    let reflections = |calls: &[Call]| calls.iter().filter(|call| is_reflection(call)).count();
    model.until(|calls| reflections(calls) == ITEMS).await;
    beside(|| owner.kill());
    // The answers come while there is no owner.
    model.open("go");
    let envelope = ended(&standby.client(), &run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let answers = envelope["output"]["each"].as_array().unwrap();
    assert_eq!(answers.len(), ITEMS, "{envelope:#}");
    let counts = model.counts();
    assert!(counts.values().all(|count| *count == 1), "{counts:#?}");
    assert_eq!(counts.len(), 2 * ITEMS);
    let frames = standby.client().frames(&run).await;
    let of = |kind: &str| frames.iter().filter(|frame| frame["type"] == kind).count();
    assert_eq!(of("worker.lost"), 0);
    assert_eq!(of("worker.dispatched"), ITEMS);
    beside(|| standby.kill());
}

/// The envelope of a run, once an engine that may be a standby shows its end.
async fn ended(client: &Client, run: &str) -> Value {
    let path = format!("/runs/{run}/envelope");
    let ended = async {
        loop {
            let answer = client.try_send("GET", &path, &[], "").await;
            let envelope = answer.filter(|it| it.status == 200).map(|it| it.json());
            match envelope {
                Some(envelope) if envelope["status"] != "running" => return envelope,
                Some(_) | None => tokio::time::sleep(PACE).await,
            }
        }
    };
    guarded("the end of the run", ended).await
}

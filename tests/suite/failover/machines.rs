//! Services on four machines that show each other certificates: an owner, a standby beside the gateway and
//! the server of the ledger, and two runtimes. A machine is lost in the middle of turns of agents.

use std::path::Path;

use ktsu_ledger::LedgerPlace;
use ktsu_peer::{ConnectionPool, Peer};
use ktsu_tls::{Certificates, Identity, TlsFiles};
use serde_json::{Value, json};

use super::network::{Machine, address, has_all, in_a_network, is_inside};
use super::reported::{EACH, is_reflection};
use super::{beside, quiet};
use crate::support::certificates::{Authority, connections};
use crate::support::load::PACE;
use crate::support::model::{self, Call, KEY, Model, Said};
use crate::support::postgres::Server;
use crate::support::process::Process;
use crate::support::{KitDir, guarded};

const ENVIRONMENT: &str = "egress: {allow: [127.0.0.1]}
principals:
  - {name: ada, token: {env: ADA}, roles: [operator]}
  - {name: owner, token: {env: ORCHESTRATOR}, roles: [orchestrator]}
  - {name: worker, token: {env: RUNTIME}, roles: [runtime]}
tls: {certificate: own.pem, key: own.key, authority: ca.pem, clients: true}
";
const TOKENS: [(&str, &str); 3] = [
    ("ADA", "token-of-ada"),
    ("ORCHESTRATOR", "token-of-orchestrator"),
    ("RUNTIME", "token-of-runtime"),
];
/// The items of a run; each runtime has places for half of them.
const ITEMS: usize = 6;

#[test]
fn runs_outlive_the_machine_of_a_runtime_and_that_of_the_owner() {
    in_a_network("machines::on_four_machines");
}

fn url(machine: &Machine, port: u16) -> String {
    format!("https://{}:{port}", machine.address())
}

/// A service on a machine; its environment file and certificates are in a folder.
fn service(machine: &Machine, folder: &Path, arguments: &[&str]) -> Process {
    let mut command = machine.command(env!("CARGO_BIN_EXE_ktsu"));
    command.args(["start", arguments[0], "--json", "--env"]);
    command.arg(folder.join("machines.env.yaml"));
    command.args(["--host", &machine.address()]);
    command.args(&arguments[1..]);
    quiet(&mut command).envs(TOKENS).env(KEY.0, KEY.1);
    Process::spawn(command)
}

/// Connections that show a certificate of the folder.
fn showing(folder: &Path, name: &str) -> ConnectionPool {
    let files = TlsFiles {
        identity: Some(Identity {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        }),
        authority: Some(folder.join("ca.pem")),
        ..TlsFiles::default()
    };
    ConnectionPool::new(Some(Certificates::load(files).unwrap()))
}

fn ada(connections: ConnectionPool, url: &str) -> Peer {
    Peer::with_pool(connections, url, Some("token-of-ada".to_owned()))
}

async fn get(peer: &Peer, path: &str) -> Option<Value> {
    let request = axum::http::Request::get(path).body(axum::body::Body::empty());
    let (status, body) = peer.call_and_read(request.unwrap()).await.ok()?;
    (status == 200).then(|| serde_json::from_slice(&body).unwrap())
}

async fn invoke(peer: &Peer, items: &[String]) -> String {
    let body = json!({ "list": items }).to_string();
    let answer = peer.post("/invoke/each", &[], body.into()).await;
    let (status, body) = answer.unwrap();
    assert_eq!(status, 202, "{}", String::from_utf8_lossy(&body));
    let body: Value = serde_json::from_slice(&body).unwrap();
    body["run_id"].as_str().unwrap().to_owned()
}

/// The envelope of a run, once an engine shows its end.
async fn ended(peer: &Peer, run: &str) -> Value {
    let path = format!("/runs/{run}/envelope");
    let ended = async {
        loop {
            match get(peer, &path).await {
                Some(envelope) if envelope["status"] != "running" => return envelope,
                Some(_) | None => tokio::time::sleep(PACE).await,
            }
        }
    };
    guarded("the end of the run", ended).await
}

fn items(name: &str) -> Vec<String> {
    (0..ITEMS).map(|item| format!("{name} {item}")).collect()
}

/// How many reflections on items of a name there were.
fn reflections(calls: &[Call], name: &str) -> usize {
    let of = |call: &&Call| is_reflection(call) && call.content().contains(name);
    calls.iter().filter(of).count()
}

/// What the test above starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "another test starts this in a namespace of its own"]
async fn on_four_machines() {
    if !is_inside() {
        return;
    }
    let here = beside(Machine::here);
    let first = beside(|| Machine::linked(2, &[&here]));
    let left = beside(|| Machine::linked(3, &[&here, &first]));
    let lost = beside(|| Machine::linked(4, &[&here, &first, &left]));
    let server = beside(|| Server::elsewhere(here.around(), &here.address())).unwrap();
    let (place, schema) = beside(|| server.ledger());
    let ledger = address(&[&here], &schema);
    let model = Model::scripted(move |call| {
        let gate = ["first", "second"].map(|name| (call.content().contains(name), name));
        let gate = gate.into_iter().find_map(|(is, name)| is.then_some(name));
        match is_reflection(call) {
            true => Said::answer(&format!("{} again", call.user())).when(gate.unwrap()),
            false => Said::answer(&call.user()),
        }
    })
    .await;
    let kit: KitDir = model::kit(&model, &[("each", EACH)]);
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let folder = folder.path();
    std::fs::write(folder.join("machines.env.yaml"), ENVIRONMENT).unwrap();
    authority.write(&folder.join("ca.pem"));
    authority.issue(folder, "own");
    let config = kit.dir.path().join("gateway.yaml").display().to_string();
    let kit = kit.dir.path().display().to_string();
    let engines = [url(&first, 5050), url(&here, 5050)];
    let runtimes = [url(&left, 5051), url(&lost, 5051)].join(",");
    let gateway = url(&here, 5052);
    let runtime = |machine: &Machine| {
        let known = engines.join(",");
        let to = ["runtime", "--port", "5051", "--orchestrator", &known];
        let more = ["--gateway", &gateway, "--places", "3"];
        service(machine, folder, &[&to[..], &more].concat())
    };
    let engine = |machine: &Machine, own: &str| {
        let own = [
            "orchestrator",
            "--standby",
            "--port",
            "5050",
            "--own-url",
            own,
        ];
        let agents = ["--runtime-url", &runtimes, "--gateway-url", &gateway];
        let more = ["--ledger", &ledger, "--kit", &kit];
        service(machine, folder, &[&own[..], &agents, &more].concat())
    };
    let words = ["gateway", "--port", "5052", "--config", &config];
    let _gateway = beside(|| service(&here, folder, &words));
    let (_left, _lost) = beside(|| (runtime(&left), runtime(&lost)));
    let owner = beside(|| engine(&first, &engines[0]));
    let _standby = beside(|| engine(&here, &engines[1]));

    // Nothing is said without a certificate that the engines trust.
    authority.issue_expired(folder, "old");
    Authority::new().issue(folder, "strange");
    let without = connections(&folder.join("ca.pem"));
    for pool in [without, showing(folder, "old"), showing(folder, "strange")] {
        assert_eq!(get(&ada(pool, &engines[0]), "/runs").await, None);
    }

    let of_owner = ada(showing(folder, "own"), &engines[0]);
    let run = invoke(&of_owner, &items("first")).await;
    model
        .until(|calls| reflections(calls, "first") == ITEMS)
        .await;
    beside(|| [&here, &first, &left].map(|other| lost.cut_from(other)));
    model.open("first");
    let envelope = ended(&of_owner, &run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let answers = envelope["output"]["each"].as_array().unwrap();
    assert_eq!(answers.len(), ITEMS, "{envelope:#}");
    let frames = get(&of_owner, &format!("/runs/{run}/frames?limit=1000")).await;
    let frames = frames.unwrap()["frames"].as_array().unwrap().clone();
    let moved = frames.iter().filter(|it| it["type"] == "worker.lost");
    assert_eq!(moved.count(), ITEMS / 2, "both runtimes had tasks");
    // Neither what was reported nor what the gateway was answered is asked again.
    let counts = model.counts();
    assert!(counts.values().all(|count| *count == 1), "{counts:#?}");
    assert_eq!(counts.len(), 2 * ITEMS);

    let run = invoke(&of_owner, &items("second")).await;
    model
        .until(|calls| reflections(calls, "second") == ITEMS / 2)
        .await;
    beside(|| [&here, &left].map(|other| first.cut_from(other)));
    model.open("second");
    let of_standby = ada(showing(folder, "own"), &engines[1]);
    let envelope = ended(&of_standby, &run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let ended = tokio::task::spawn_blocking(move || owner.ended());
    assert_eq!(guarded("its end", ended).await.unwrap(), Some(2));
    has_all(&LedgerPlace::Backend(std::sync::Arc::new(place)), &[run]).await;
}

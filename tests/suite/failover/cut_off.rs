//! The owner is cut off from the server of its ledger, but not from its clients.
//!
//! Its machine and that of the server, with the standby, are namespaces of a network, which this binary,
//! started again, makes in one of its own.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ktsu_ledger::store::Reader;
use ktsu_ledger::{Ledger, LedgerPlace, StreamId, verify};
use serde_json::{Value, json};

use super::{beside, is_in_time, quiet};
use crate::support::load::PACE;
use crate::support::postgres::Server;
use crate::support::process::Process;
use crate::support::{Client, KitDir, guarded, not_tested};

const INSIDE: &str = "KTSU_TEST_CUT_OFF";
/// The addresses of the link, the owner's and the server's, and the one at which the server listens.
const LINK: [&str; 2] = ["10.41.0.1/30", "10.41.0.2/30"];
const SERVER: &str = "10.41.1.1";
const PORT: &str = "5050";
const HELLO: &str = r#"
params: {schema: {type: object, required: [n], properties: {n: {}}}}
pipeline:
  - {id: t, transform: {inputs: [{from: params.n}], ops: []}}
output: {map: {n: "{{ step.t.result }}"}}
"#;

#[test]
fn an_owner_that_is_cut_off_from_its_server_answers_nothing_that_is_not_recorded_and_ends() {
    if Server::get().is_none() {
        return;
    }
    let tried = Command::new("unshare")
        .args(["--net", "ip", "link"])
        .output();
    if !tried.is_ok_and(|it| it.status.success()) {
        not_tested(
            "owners that are cut off: this user may not have a network of its own, or no ip",
        );
        return;
    }
    let inside = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("failover::cut_off::between_two_machines")
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (out, err) = (inside.stdout, inside.stderr);
    let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    assert!(
        inside.status.success() && out.contains("1 passed"),
        "{out}\n{err}"
    );
    eprintln!("{err}");
}

/// The machine of the server.
struct Machine(Child);

impl Machine {
    /// A network of its own, with a link to this one.
    fn new() -> Self {
        let mut held = Command::new("unshare");
        held.args(["--net", "sleep", "600"]).stdin(Stdio::null());
        let machine = Self(held.spawn().unwrap());
        let network = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net")).unwrap();
        let own = machine.0.id().to_string();
        while network(&own) == network("self") {
            std::thread::yield_now();
        }
        for (words, is_there) in [
            (
                format!("link add here type veth peer name there netns {own}"),
                false,
            ),
            ("link set lo up".to_owned(), false),
            (format!("addr add {} dev here", LINK[0]), false),
            ("link set here up".to_owned(), false),
            ("link set lo up".to_owned(), true),
            (format!("addr add {} dev there", LINK[1]), true),
            (format!("addr add {SERVER}/32 dev lo"), true),
            ("link set there up".to_owned(), true),
            (format!("route add {SERVER} via 10.41.0.2"), false),
        ] {
            machine.ip(&words, is_there);
        }
        machine
    }

    fn ip(&self, words: &str, is_there: bool) {
        let around = if is_there { self.around() } else { Vec::new() };
        let words = words.split(' ').map(str::to_owned);
        let all = around.into_iter().chain(["ip".to_owned()]).chain(words);
        let all: Vec<String> = all.collect();
        let done = Command::new(&all[0]).args(&all[1..]).status();
        assert!(done.unwrap().success(), "{all:?}");
    }

    /// The words before a command that make it one of this machine.
    fn around(&self) -> Vec<String> {
        let number = self.0.id().to_string();
        ["nsenter", "--target", &number, "--net"]
            .map(str::to_owned)
            .to_vec()
    }

    /// A command of this machine.
    fn ktsu(&self) -> Command {
        let around = self.around();
        let mut command = Command::new(&around[0]);
        command.args(&around[1..]).arg(env!("CARGO_BIN_EXE_ktsu"));
        command
    }

    /// From here on, nothing passes the link.
    fn cut(&self) {
        self.ip("link set there down", true);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn engine(mut command: Command, kit: &KitDir, address: &str) -> Process {
    command.args(["start", "--standby", "--json", "--port", PORT]);
    command.args(["--runtime-port", "0", "--gateway-port", "0"]);
    command.args(["--ledger", address, "--kit"]);
    quiet(command.arg(kit.dir.path()));
    Process::spawn(command)
}

/// Invokes runs until the engine is gone; those that it acknowledged, and how many requests were sent
/// once it was cut off.
async fn invoke(client: Client, number: usize, cut: Arc<AtomicBool>) -> (Vec<String>, usize) {
    let (mut acknowledged, mut late) = (Vec::new(), 0);
    for round in 0.. {
        let key = format!("{number}-{round}");
        let path = if round % 2 == 0 {
            "/invoke/hello"
        } else {
            "/invoke/hello?wait=60"
        };
        late += usize::from(cut.load(Ordering::SeqCst));
        let body = json!({ "n": key }).to_string();
        let headers = [("Idempotency-Key", key.as_str())];
        let answer = client.try_send("POST", path, &headers, body).await;
        match answer {
            None => break,
            Some(answer) if matches!(answer.status, 200 | 202) => {
                acknowledged.push(answer.json()["run_id"].as_str().unwrap().to_owned());
            }
            Some(answer) => {
                assert!(answer.status >= 500, "{}", answer.text());
                tokio::time::sleep(PACE).await;
            }
        }
    }
    (acknowledged, late)
}

/// What the test above starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "another test starts this in a namespace of its own"]
async fn between_two_machines() {
    if std::env::var_os(INSIDE).is_none() {
        eprintln!("{INSIDE} is not set");
        return;
    }
    let there = beside(Machine::new);
    let server = beside(|| Server::elsewhere(there.around(), SERVER)).unwrap();
    let (place, schema) = beside(|| server.ledger());
    let kit = KitDir::new(&[("hello", HELLO)]);
    let address = format!(
        "postgres://ktsu@{SERVER}/postgres?sslmode=disable&options=-csearch_path%3D{schema}"
    );
    let owner = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    let owner = beside(|| engine(owner, &kit, &address));
    let standby = beside(|| engine(there.ktsu(), &kit, &address));
    let cut = Arc::new(AtomicBool::new(false));
    let clients = (0..8).map(|number| tokio::spawn(invoke(owner.client(), number, cut.clone())));
    let clients: Vec<_> = clients.collect();
    owner.client().run_hello(10).await;
    beside(|| there.cut());
    let since = Instant::now();
    cut.store(true, Ordering::SeqCst);
    let accepted = async {
        while !beside(|| is_accepted(&there, &standby.url)) {
            tokio::time::sleep(PACE).await;
        }
    };
    guarded("a run of the standby", accepted).await;
    is_in_time(since.elapsed());
    let ended = tokio::task::spawn_blocking(move || owner.ended());
    assert_eq!(guarded("its end", ended).await.unwrap(), Some(2));
    eprintln!("the owner has ended after {:?}", since.elapsed());
    let place = LedgerPlace::Backend(Arc::new(place));
    let reader = beside(|| Ledger::open(&place).reader()).unwrap();
    let (mut runs, mut sent) = (0, 0);
    for client in clients {
        let (acknowledged, late) = guarded("a client", client).await.unwrap();
        sent += late;
        for run in acknowledged {
            runs += 1;
            guarded("its end", completes(reader.as_ref(), &run)).await;
        }
    }
    assert!(runs > 0 && sent > 0, "{runs} runs, {sent} requests");
    eprintln!("{runs} runs acknowledged, {sent} requests after the cut");
    beside(|| standby.kill());
    let options = verify::VerifyOptions::default();
    let verified = || ktsu_history::verify::ledger(&place, &options, &mut |_| {});
    assert_eq!(beside(verified).unwrap().problems, []);
}

/// Whether an engine there runs something.
fn is_accepted(there: &Machine, url: &str) -> bool {
    let mut command = there.ktsu();
    command.args(["invoke", "hello", "--orchestrator", url, "--json", "--wait"]);
    command.args([
        "--idempotency-key",
        "from-there",
        "--input",
        r#"{"n": "there"}"#,
    ]);
    let output = quiet(&mut command).output().unwrap();
    let envelope: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    output.status.success() && envelope.is_some_and(|it| it["status"] == "complete")
}

/// An acknowledged run is recorded, and comes to its end.
async fn completes(reader: &dyn Reader, run: &str) {
    let stream = StreamId::run(run).unwrap();
    loop {
        let row = beside(|| reader.row(&stream)).unwrap();
        let row = row.unwrap_or_else(|| panic!("{run} was acknowledged, and is not recorded"));
        match row.status.as_str() {
            "complete" => return,
            "running" | "pending" => tokio::time::sleep(PACE).await,
            other => panic!("{run} is {other}"),
        }
    }
}

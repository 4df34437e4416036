//! The owner is cut off from the server of its ledger, but not from its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ktsu_ledger::LedgerPlace;
use serde_json::{Value, json};

use super::network::{Machine, address, has_all, hello, in_a_network, is_inside};
use super::{beside, is_in_time, quiet};
use crate::support::load::PACE;
use crate::support::postgres::Server;
use crate::support::{Client, guarded};

#[test]
fn an_owner_that_is_cut_off_from_its_server_answers_nothing_that_is_not_recorded_and_ends() {
    in_a_network("cut_off::between_two_machines");
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
    if !is_inside() {
        return;
    }
    let here = beside(Machine::here);
    let there = beside(|| Machine::linked(2, &[&here]));
    let server = beside(|| Server::elsewhere(there.around(), &there.address())).unwrap();
    let (place, schema) = beside(|| server.ledger());
    let kit = hello();
    let address = address(&[&there], &schema);
    let owner = beside(|| here.engine(&kit, &address));
    let standby = beside(|| there.engine(&kit, &address));
    let cut = Arc::new(AtomicBool::new(false));
    let clients = (0..8).map(|number| tokio::spawn(invoke(owner.client(), number, cut.clone())));
    let clients: Vec<_> = clients.collect();
    owner.client().run_hello(10).await;
    beside(|| there.cut_from(&here));
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
    let (mut runs, mut sent) = (Vec::new(), 0);
    for client in clients {
        let (acknowledged, late) = guarded("a client", client).await.unwrap();
        sent += late;
        runs.extend(acknowledged);
    }
    has_all(&place, &runs).await;
    let runs = runs.len();
    assert!(runs > 0 && sent > 0, "{runs} runs, {sent} requests");
    eprintln!("{runs} runs acknowledged, {sent} requests after the cut");
    beside(|| standby.kill());
}

/// Whether an engine there runs something.
fn is_accepted(there: &Machine, url: &str) -> bool {
    let mut command = there.command(env!("CARGO_BIN_EXE_ktsu"));
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

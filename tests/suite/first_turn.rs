//! What a run does before its first turn is durable.

use ktsu_ledger::store::MemoryStore;

use crate::support::gate::gated;
use crate::support::{KitDir, Within};

/// More than a first turn holds.
const STEPS: usize = 200;

/// How many appends wait while the first one is not known to be durable; and the status of the reply.
async fn waiting_behind_the_first(path: &str) -> (u64, u16) {
    let step =
        |id| format!("  - {{id: s{id}, transform: {{inputs: [{{from: params}}], ops: []}}}}\n");
    let steps: String = (0..STEPS).map(step).collect();
    let kit = KitDir::new(&[("long", &format!("pipeline:\n{steps}"))]);
    let (options, gate) = gated();
    let within = Within::new(kit.load(), MemoryStore::new(), options, &[], None).await;
    // Dropped before the engine, whose appender waits for it.
    let mut gate = gate;
    let client = within.client.clone();
    let reply = async move { client.post(path, "{}").await.status };
    let mut reply = std::pin::pin!(reply);
    let mut waiting = None;
    let status = loop {
        tokio::select! {
            kinds = gate.appended.recv() => drop(kinds.unwrap()),
            status = &mut reply => break status,
        }
        if waiting.is_none() {
            // Whatever is ready gets its turn.
            for _ in 0..500 {
                tokio::task::yield_now().await;
            }
            let metrics = within.client.get("/metrics").await.text();
            let mut lines = metrics.lines();
            let queued = lines.find_map(|line| line.strip_prefix("ktsu_ledger_queued_entries "));
            waiting = queued.map(|queued| queued.parse().unwrap());
        }
        gate.open.send(()).unwrap();
    };
    (waiting.unwrap(), status)
}

#[tokio::test]
async fn a_caller_who_does_not_wait_for_the_end_is_answered_before_the_run_continues() {
    assert_eq!(waiting_behind_the_first("/invoke/long").await, (0, 202));
}

#[tokio::test]
async fn a_run_whose_caller_waits_for_its_end_continues_while_its_first_turn_is_written() {
    let (waiting, status) = waiting_behind_the_first("/invoke/long?wait=60").await;
    assert_eq!(status, 200);
    assert!(waiting > 0);
}

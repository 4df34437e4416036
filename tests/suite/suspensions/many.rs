//! Many runs at once that wait for data.

use tokio::task::JoinSet;

use super::{RESUME, give, kit, suspended};
use crate::support::campaign;
use crate::support::process::Process;

/// How many clients start runs, and give them their data.
const CLIENTS: usize = 64;
/// The most a suspended run holds in memory, as other runs that wait.
const MAX_KIB: usize = 32;

fn resident_kib(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_suspended_runs_wait_in_little_memory_and_all_of_them_are_resumed() {
    let kit = kit(RESUME);
    let dir = tempfile::tempdir().unwrap();
    let engine = Process::start(kit.dir.path(), &dir.path().join("ledger.db"), &[]);
    let client = engine.client();
    // What the first run of an engine takes is not that of one more.
    suspended(&client, "reads").await;
    let empty = resident_kib(engine.pid);
    let count = campaign(128, 10_000);
    let mut clients = JoinSet::new();
    for place in 0..CLIENTS {
        let client = client.clone();
        clients.spawn(async move {
            let mut runs = Vec::new();
            for _ in (place..count).step_by(CLIENTS) {
                runs.push(suspended(&client, "reads").await);
            }
            runs
        });
    }
    let started = clients.join_all().await;
    let each = resident_kib(engine.pid).saturating_sub(empty) / count;
    // With few runs, what they hold is less than what any moment of an engine does.
    assert!(count < 10_000 || each <= MAX_KIB, "{each} KiB a run");
    let mut clients = JoinSet::new();
    for runs in started {
        let client = client.clone();
        clients.spawn(async move {
            for run in &runs {
                assert_eq!(give(&client, run, "paper").await.status, 200);
                let envelope = client.ended(run).await;
                assert_eq!(envelope["output"]["verdict"], "read paper");
            }
            runs.len()
        });
    }
    let resumed: usize = clients.join_all().await.into_iter().sum();
    assert_eq!(resumed, count);
    engine.stop();
}

//! Engines that are killed between the data and what follows from them.

use std::path::Path;

use serde_json::json;

use super::{RESUME, give, kit, suspended, suspension};
use crate::reviews::{file_holds, steer};
use crate::support::process::Process;
use crate::support::{KitDir, campaign};

fn start(kit: &KitDir, ledger: &Path) -> Process {
    Process::start(kit.dir.path(), ledger, &[])
}

/// Paused runs record the data and nothing after them, which is where half of them are killed; the others
/// as soon as the data are answered.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_data_the_engine_runs_the_step_again_with_them_once() {
    for round in 0..campaign(4, 20) {
        let kit = kit(RESUME);
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger.db");
        let engine = start(&kit, &ledger);
        let run = suspended(&engine.client(), "reads").await;
        let paused = round % 2 == 0;
        if paused {
            steer(&engine.client(), &run, "pause", json!({})).await;
        }
        let given = give(&engine.client(), &run, "clause 7").await;
        assert_eq!(given.status, 200, "{}", given.text());
        engine.kill();
        let engine = start(&kit, &ledger);
        let client = engine.client();
        if paused {
            assert_eq!(suspension(&client, &run).await["status"], "resumed");
            steer(&client, &run, "resume", json!({})).await;
        }
        let envelope = client.ended(&run).await;
        assert_eq!(
            envelope["output"]["verdict"], "read clause 7",
            "{envelope:#}"
        );
        let frames = client.frames(&run).await;
        let of = |kind: &str| frames.iter().filter(|one| one["type"] == kind).count();
        assert_eq!((of("suspend.resumed"), of("step.reset")), (1, 1));
        assert_eq!(of("step.completed"), 2);
        engine.stop();
        file_holds(&ledger, &run);
    }
}

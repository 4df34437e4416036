//! The engine over a ledger on another machine, which answers late, out of order across streams, and
//! loses answers: what a run comes to does not depend on it.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::store::{Audit as _, MemoryStore};
use ktsu_ledger::verify::{self, verify};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::json;

use crate::support::scenarios::{self, Played};
use crate::support::sink::Reply;
use crate::support::{KitDir, Lab, Remote, Sink};

/// How often a run has each type of frame.
fn kinds(played: &Played) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for frame in played.recorded.frames() {
        *kinds.entry(frame.event.kind().to_owned()).or_default() += 1;
    }
    kinds
}

#[tokio::test]
async fn runs_of_every_kind_come_to_the_same_where_answers_are_lost() {
    let mut unknown = 0;
    for (seed, scenario) in (11..).zip(scenarios::all()) {
        let plain = scenario.play(&Sink::new().await).await;
        let remote = Remote::lossy(seed);
        let played = scenario.play_over(&Sink::new().await, &remote).await;
        assert_eq!(kinds(&played), kinds(&plain), "{}", scenario.name);
        let frames = played.recorded.frames();
        if let Err(diverged) = replay(&frames, &mut Definitions::default()) {
            panic!("{}: {diverged}", scenario.name);
        }
        let report = verify(
            &remote.kept(),
            &verify::VerifyOptions::default(),
            &mut |_| {},
        );
        assert_eq!(report.problems, [], "{}", scenario.name);
        unknown += remote.unknown();
    }
    assert!(unknown >= 10, "{unknown} outcomes were unknown");
}

/// The notary signs over the order in which frames are stored, which only the machine knows then.
#[tokio::test]
async fn every_frame_is_signed_where_answers_are_lost() {
    let kit = KitDir::new(&[(
        "root",
        "pipeline:\n  - id: one\n    transform:\n      inputs: []\n      ops: []\n",
    )]);
    let remote = Remote::lossy(5);
    let place = LedgerPlace::Backend(Arc::new(remote.clone()));
    let lab = Lab::on(place, kit.load(), &[], None).await;
    // Runs at once share appends, so how many answers there are to lose depends on the machine.
    for _ in 0..100 {
        let runs = (0..40).map(|_| lab.client.run("root", json!({})));
        for envelope in futures_util::future::join_all(runs).await {
            assert_eq!(envelope["status"], "complete", "{envelope:#}");
        }
        if remote.unknown() > 0 {
            break;
        }
    }
    lab.close().await;
    assert!(remote.unknown() > 0);
    let report = verify(
        &remote.kept(),
        &verify::VerifyOptions::default(),
        &mut |_| {},
    );
    assert_eq!(report.problems, []);
    assert!(report.checkpoints > 0);
    assert_eq!(
        report.signed_frames,
        report.frames - 1,
        "all but the last checkpoint itself"
    );
}

/// Whether some frame of a store names this.
fn announces(kept: &MemoryStore, named: &str) -> bool {
    let frames = kept.scan_frames(0, 1000).unwrap();
    let mut bodies = frames
        .iter()
        .map(|frame| String::from_utf8_lossy(&frame.body));
    bodies.any(|body| body.contains(named))
}

/// The machine takes nothing until what is given back is dropped.
fn hold(remote: Remote) -> (JoinHandle<()>, mpsc::Sender<()>) {
    let (holds, is_held) = mpsc::channel();
    let (let_go, waits) = mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let held = remote.hold();
        holds.send(()).unwrap();
        waits.recv().unwrap_err();
        drop(held);
    });
    is_held.recv().unwrap();
    (holder, let_go)
}

/// The machine takes nothing for a while, and whoever receives the webhook looks there.
#[tokio::test]
async fn a_webhook_is_sent_once_the_frame_that_announces_it_is_stored() {
    let remote = Remote::new();
    let kept = remote.kept();
    let status = move |id: &str| if announces(&kept, id) { 200 } else { 500 };
    let sink = Sink::scripted(move |heard| Reply::Now(status(&heard.id), String::new())).await;
    let kit = KitDir::new(&[(
        "root",
        "env: [{name: SINK}]\npipeline:\n  - id: tell\n    webhook: {url: \"{{ env.SINK }}/tell\"}\n",
    )]);
    let place = LedgerPlace::Backend(Arc::new(remote.clone()));
    let lab = Lab::on(place, kit.load(), &[("SINK", sink.url.as_str())], None).await;
    let (holder, let_go) = hold(remote);
    let others = async {
        for _ in 0..50 {
            assert_eq!(lab.client.get("/health").await.status, 200);
        }
        assert_eq!(sink.heard(), []);
        drop(let_go);
    };
    let (envelope, ()) = tokio::join!(lab.client.run("root", json!({})), others);
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    holder.join().unwrap();
    lab.close().await;
}

/// Whoever is told that a post was taken can rely on it: it is not lost with the engine.
#[tokio::test]
async fn a_post_is_answered_once_its_frame_is_stored() {
    const WORLD: &str = "kind: world\nname: nodes\nversion: 1.0.0\nobjects: {Node: {}}\n";
    let remote = Remote::new();
    let kept = remote.kept();
    let kit = KitDir::new(&[]).with("worlds/nodes.world.yaml", WORLD);
    let place = LedgerPlace::Backend(Arc::new(remote.clone()));
    let lab = Lab::on(place, kit.load(), &[], None).await;
    let envelope = lab.client.run("nodes", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let run = envelope["run_id"].as_str().unwrap();
    let (holder, let_go) = hold(remote);
    let node = json!({"type": "object.created", "data": {"id": "only-node", "type": "Node"}});
    let posted = async {
        let path = format!("/runs/{run}/events");
        let answer = lab.client.post(&path, node.to_string()).await;
        (answer.status, announces(&kept, "only-node"))
    };
    let others = async {
        for _ in 0..50 {
            assert_eq!(lab.client.get("/health").await.status, 200);
        }
        assert!(!announces(&kept, "only-node"));
        drop(let_go);
    };
    let (answered, ()) = tokio::join!(posted, others);
    assert_eq!(answered, (200, true));
    holder.join().unwrap();
    lab.close().await;
}

//! The engine over a ledger on another machine, which answers late, out of order across streams, and
//! loses answers: what a run comes to does not depend on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::verify::{self, verify};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::json;

use crate::support::scenarios::{self, Played};
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
    let runs = (0..40).map(|_| lab.client.run("root", json!({})));
    for envelope in futures_util::future::join_all(runs).await {
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
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

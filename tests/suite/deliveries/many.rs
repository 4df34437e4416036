//! Many subscribers, of which half never answer.

use serde_json::json;

use super::{entry, environment, kit, lab, shown};
use crate::support::Sink;
use crate::support::sink::{Heard, Reply};

const EACH: usize = 50;
const RUNS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_subscribers_that_hang_keep_nothing_from_fifty_others_and_from_runs() {
    let sink = Sink::scripted(|heard| match heard.path.starts_with("/hang") {
        true => Reply::Never,
        false => Reply::Now(200, String::new()),
    })
    .await;
    let mut entries = Vec::new();
    for at in 0..EACH {
        let url = &sink.url;
        entries.push(entry(
            &format!("hang{at}"),
            "*",
            &format!("{url}/hang/{at}"),
            "",
        ));
        entries.push(entry(
            &format!("fine{at}"),
            "run.completed",
            &format!("{url}/fine/{at}"),
            "",
        ));
    }
    let kit = kit();
    let lab = lab(&kit, &environment(&entries)).await;
    // Every run ends, with as many frames as without subscribers.
    let runs = lab.client.run_hello(RUNS).await;
    let plain = super::lab(&kit, "").await;
    let alone = plain.client.run_hello(1).await;
    let frames = plain.client.frames(&alone[0]).await.len();
    for run in &runs {
        assert_eq!(lab.client.frames(run).await.len(), frames);
    }
    let fine = |heard: &[Heard]| {
        heard
            .iter()
            .filter(|one| one.path.starts_with("/fine"))
            .count()
    };
    sink.until(|heard| fine(heard) == EACH * RUNS).await;
    for at in 0..EACH {
        let path = format!("/fine/{at}");
        let heard = sink.heard();
        let own: Vec<_> = heard.iter().filter(|one| one.path == path).collect();
        let ended = own
            .iter()
            .map(|one| one.json()["run_id"].as_str().unwrap().to_owned());
        let mut ended: Vec<String> = ended.collect();
        ended.sort();
        let mut expected = runs.clone();
        expected.sort();
        assert_eq!(ended, expected, "{path}");
    }
    // One that hangs has a few requests open, whatever there is to send.
    for at in 0..EACH {
        let path = format!("/hang/{at}");
        let open = sink.heard().iter().filter(|one| one.path == path).count();
        assert!(
            (1..=ktsu_delivery::MAX_IN_FLIGHT).contains(&open),
            "{path}: {open}"
        );
    }
    let hanging = shown(&lab.client, "hang0").await;
    assert_eq!(
        (&hanging["status"], &hanging["dead"]),
        (&json!("active"), &json!(0))
    );
    // And the engine stops without waiting for them.
    lab.close().await;
    plain.close().await;
}

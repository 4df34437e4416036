//! Owner and standbys, whose clocks are two hours apart.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ktsu_ledger::LedgerPlace;
use serde_json::{Value, json};

use super::clients::{CLIENTS, Clients};
use super::network::{has_all, hello};
use super::{Place, beside, elsewhere, is_in_time};
use crate::support::postgres::Server;
use crate::support::process::Process;
use crate::support::{Client, guarded, not_tested};

const ALERTS: &str = r#"
kind: world
name: alerts
version: 1.0.0
goal: [{object: {type: Alert, data: {text: "{{ goal }}"}}}]
objects: {Alert: {}, Page: {}}
responders:
  - name: page
    "on": object.created
    type: Alert
    after: 2s
    emit: [{object: {type: Page, data: {of: "{{ object.id }}"}}}]
"#;

/// The library that shifts the clocks of a program, where it is installed.
fn library() -> Option<String> {
    let shown = Command::new("faketime")
        .args(["-m", "-f", "+1h", "printenv", "LD_PRELOAD"])
        .output();
    let shown = shown.ok().filter(|it| it.status.success());
    if shown.is_none() {
        not_tested("clocks an hour apart: faketime is not installed");
    }
    shown.map(|it| String::from_utf8(it.stdout).unwrap().trim().to_owned())
}

/// A command around an engine, as [`elsewhere`], on a machine whose clock is wrong.
fn elsewhere_at(library: &str, offset: &str) -> Command {
    let engine = elsewhere();
    let mut command = Command::new("env");
    command.arg(format!("LD_PRELOAD={library}"));
    command.arg(format!("FAKETIME={offset}"));
    // What measures intervals is right on every machine; memory would be shared by process numbers.
    command.args(["DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1"]);
    command.arg(engine.get_program()).args(engine.get_args());
    command
}

/// Waits until a run has a frame of a type.
async fn has(client: &Client, run: &str, kind: &str) {
    let mut events = client.events(run, None).await;
    let found = async {
        while let Some(event) = events.next().await {
            let frame: Value = serde_json::from_str(&event.data).unwrap();
            if frame["type"] == kind {
                return;
            }
        }
        panic!("{run} has ended");
    };
    guarded("a frame", found).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_standby_whose_clock_is_two_hours_off_takes_over_in_time_and_timers_fire() {
    let (Some(library), Some(server)) = (library(), beside(Server::get)) else {
        return;
    };
    let (ledger, schema) = beside(|| server.ledger());
    let kit = hello().with("worlds/alerts.world.yaml", ALERTS);
    let place = Place::with(kit, server.address(&schema)).await;
    let start = |offset: &str| place.engine_within(&|| elsewhere_at(&library, offset));
    let mut owner = start("+1h");
    let mut clients = vec![Clients::begin(&owner.url, || ())];
    for offset in ["-1h", "+1h"] {
        let standby = start(offset);
        clients[clients.len() - 1].acknowledged(CLIENTS * 2).await;
        let at_standby = Clients::begin(&standby.url, || ());
        let body = json!({"goal": "g"});
        let run = owner.client().invoke("alerts", body).await;
        has(&owner.client(), &run, "responder.fired").await;
        let killed = Instant::now();
        beside(|| owner.kill());
        at_standby.acknowledged(1).await;
        is_in_time(killed.elapsed());
        at_standby.acknowledged(CLIENTS * 2).await;
        let envelope = standby.client().ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        eprintln!(
            "at {offset}: the timer has fired after {:?}",
            killed.elapsed()
        );
        // Two seconds after the takeover, or at once where the clock is later; not in two hours.
        assert!(killed.elapsed() < Duration::from_secs(30));
        let frames = standby.client().frames(&run).await;
        let of = |kind: &str| frames.iter().filter(|frame| frame["type"] == kind).count();
        assert_eq!(of("timer.fired"), 1);
        let times = frames.iter().map(|frame| frame["at"].as_str().unwrap());
        assert!(times.is_sorted(), "a run goes back in time: {frames:#?}");
        owner = standby;
        clients.push(at_standby);
    }
    let ended = beside(|| clients.into_iter().map(Clients::end).collect::<Vec<_>>());
    let counts: Vec<usize> = ended.iter().map(Vec::len).collect();
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    eprintln!("runs acknowledged by each owner: {counts:?}");
    let ledger = LedgerPlace::Backend(Arc::new(ledger));
    has_all(&ledger, &ended.concat()).await;
    beside(|| Process::kill(owner));
}

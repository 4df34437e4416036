//! A process that is killed at any moment loses nothing it has acknowledged (R01, R12, R15).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ktsu_ledger::store::read_all;
use ktsu_ledger::{Ledger, LedgerPlace, StreamId};

use crate::support::load::{KEY, Load, kit};
use crate::support::postgres::Server;
use crate::support::process::Process;
use crate::support::random::RandomNumbers;
use crate::support::{Sink, campaign};

const CLIENTS: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn kills_lose_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let kills = campaign(15, 50) as u64;
    lose_nothing(&path, &LedgerPlace::from(&path), kills, None).await;
}

/// The server of the ledger crashes in the middle of the work, and then its owner is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn crashes_of_the_server_and_kills_lose_nothing_that_was_acknowledged() {
    let Some(server) = Server::alone() else {
        return;
    };
    let (place, schema) = server.ledger();
    let address = PathBuf::from(server.address(&schema));
    let place = LedgerPlace::Backend(Arc::new(place));
    let rounds = campaign(3, 20) as u64;
    lose_nothing(&address, &place, rounds, Some(&server)).await;
}

/// Starts and kills engines on a ledger while clients work with them, and compares what they saw with
/// the ledger.
async fn lose_nothing(path: &Path, place: &LedgerPlace, kills: u64, server: Option<&Server>) {
    let mut random = RandomNumbers::seeded();
    let kit = kit();
    let sink = Sink::new().await;
    let load = Load::begin(CLIENTS);
    let start = || {
        let pairs = [("SINK", sink.url.as_str()), ("KTSU_SIGNING_KEY", KEY)];
        let started = || Process::start(kit.dir.path(), path, &pairs);
        let process = tokio::task::block_in_place(started);
        load.engines(&[&process.url]);
        process
    };
    for _ in 0..kills {
        let process = start();
        // A moment by chance, from before the first commit to the middle of the work.
        tokio::time::sleep(Duration::from_micros(random.next(150_000))).await;
        if let Some(server) = server {
            tokio::task::block_in_place(|| server.crash());
            tokio::time::sleep(Duration::from_micros(random.next(500_000))).await;
        }
        tokio::task::block_in_place(|| process.kill());
        load.is_at_work();
    }
    let process = start();
    load.finish(&process.client()).await;
    process.stop();
    let work = load.compare(place, &sink.heard());
    let reader = Ledger::open(place).reader().unwrap();
    let opened = read_all(reader.as_ref(), &StreamId::store(), 0).unwrap();
    let opened = opened
        .iter()
        .filter(|one| one.body.contains("store.opened"));
    assert_eq!(opened.count() as u64, kills + 1);
    let (webhooks, sent) = work.webhooks;
    eprintln!(
        "{kills} kills: {work}, {} waits for an engine",
        load.moves()
    );
    assert!(
        sent > webhooks,
        "no kill fell between a sending and its answer"
    );
}

//! One owner a ledger (invariant 18, R13).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use ktsu::assemble::{self, Engine, LedgerPlace, OpenEngineError, Setup};
use ktsu_ledger::lock::{self, LockError};
use ktsu_ledger::store::{Reader as _, SqliteReader, SqliteStore, Store as _};
use ktsu_ledger::{LedgerOwner, StoreError, StreamId};
use serde_json::{Value, json};

use crate::support::ledgers::Recorded;
use crate::support::process::Process;
use crate::support::sink::Reply;
use crate::support::{KitDir, Lab, Sink, process};

fn kit() -> KitDir {
    KitDir::new(&[(
        "w",
        "pipeline:\n  - {id: t, transform: {inputs: [], ops: []}}\n",
    )])
}

async fn refused(path: &Path, kit: &KitDir) -> Option<LedgerOwner> {
    match open(path, kit).await {
        Err(OpenEngineError::Owned(holder)) => holder,
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("two owners"),
    }
}

async fn open(path: &Path, kit: &KitDir) -> Result<Engine, OpenEngineError> {
    let opened = assemble::open(Setup {
        kit: kit.load(),
        environment: None,
        process: process(&[]),
        ledger: LedgerPlace::File(path.to_owned()),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        clock: None,
        agents: ktsu::assemble::Agents::here(),
        own_url: None,
        certificates: None,
        service_token: None,
        standby: None,
        kit_checks: Default::default(),
        gateway: None,
        resume_unfinished: true,
        read_again: None,
    });
    opened.await
}

#[tokio::test]
async fn a_second_owner_learns_who_the_first_is_until_it_is_killed() {
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let first = Process::start(kit.dir.path(), &path, &[]);
    let run = first.client().run("w", json!({})).await["run_id"].clone();
    for _ in 0..3 {
        let holder = refused(&path, &kit).await.unwrap();
        assert_eq!(holder.name, format!("process {}", first.pid));
        assert_eq!(holder.url.as_deref(), Some(first.url.as_str()));
    }
    // Another name of the same file is the same ledger.
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let holder = refused(&link, &kit).await.unwrap();
    assert_eq!(holder.name, format!("process {}", first.pid));
    // Whoever only looks needs nobody's leave, and sees what the owner does next.
    let reader = SqliteReader::open(&path).unwrap();
    let second = first.client().run("w", json!({})).await["run_id"].clone();
    for run in [&run, &second] {
        let stream = StreamId::run(run.as_str().unwrap()).unwrap();
        assert!(reader.tail(&stream).unwrap().is_some());
    }
    assert!(
        first.client().get("/health").await.status == 200,
        "being refused harms nobody"
    );
    first.kill();
    assert_eq!(lock::holder(&path), None);
    let lab = Lab::on_file(&path, &kit, &[]).await;
    let listed = lab.client.get("/runs").await.json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
    lab.close().await;
}

/// A lock file that somebody removed is missed by nobody: the file itself is locked, too. Where both
/// locks fail, as on a file system without any, the epoch keeps two owners apart: the older one
/// stops, and nothing of it is stored.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_ledger_was_taken_stores_nothing_more() {
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let old = Lab::on_file(&path, &kit, &[]).await;
    old.client.run("w", json!({})).await;
    std::fs::remove_file(dir.path().join("ledger.db.lock")).unwrap();
    #[cfg(target_os = "linux")]
    assert!(matches!(
        open(&path, &kit).await,
        Err(OpenEngineError::Lock(LockError::HeldElsewhere(_)))
    ));
    // It is at work while the other one comes, its notary too.
    let client = old.client.clone();
    let working = tokio::spawn(async move {
        let mut taken = 1;
        loop {
            let answer = client.post("/invoke/w", "{}").await;
            match answer.status {
                202 => taken += 1,
                _ => return (taken, answer),
            }
        }
    });
    let mut thief = SqliteStore::open(&path).unwrap();
    thief.acquire().unwrap();
    let (taken, refused) = working.await.unwrap();
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["code"], "ledger_stopped");
    // It does not come back either.
    assert_eq!(old.client.post("/invoke/w", "{}").await.status, 503);
    assert_eq!(old.client.get("/health").await.status, 503);
    assert!(
        old.engine.close().await.is_err(),
        "it knows that it was fenced"
    );
    drop(thief);
    let new = Lab::on_file(&path, &kit, &[]).await;
    let listed = new.client.get("/runs?limit=1000").await.json();
    let listed = listed["runs"].as_array().unwrap().len();
    assert_eq!(listed, taken, "what it took is there, and nothing else");
    new.client.run("w", json!({})).await;
    new.close().await;
}

/// A client would take the end of the stream for that of the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_frames_ends_with_the_reason_where_its_engine_loses_the_ledger() {
    let sink = Sink::scripted(|_| Reply::When("answer".to_owned(), 200)).await;
    let calls =
        "env: [{name: SINK}]\npipeline:\n  - {id: call, webhook: {url: \"{{ env.SINK }}/\"}}\n";
    let kit = KitDir::new(&[("calls", calls)]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[("SINK", &sink.url)]).await;
    let accepted = lab.client.post("/invoke/calls", "{}").await.json();
    let run = accepted["run_id"].as_str().unwrap();
    let mut events = lab.client.events(run, None).await;
    sink.until(|heard| !heard.is_empty()).await;
    SqliteStore::open(&path).unwrap().acquire().unwrap();
    sink.open("answer");
    let (name, said) = events.named().await.expect("an event");
    assert_eq!(name, "problem");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["code"], "ledger_stopped", "{said}");
    assert!(events.named().await.is_none() && !events.broken);
    lab.engine.close().await.unwrap_err();
}

#[tokio::test]
async fn a_stale_store_is_fenced_by_its_epoch() {
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let lab = Lab::new(&kit, &[]).await;
    let run = lab.client.run("w", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let recorded = lab
        .engine
        .orchestrator
        .readers()
        .with(move |reader| Ok::<_, StoreError>(Recorded::read(reader, &run)));
    let recorded = recorded.await.unwrap();
    let mut stale = SqliteStore::open(&path).unwrap();
    let ours = stale.acquire().unwrap();
    let mut newer = SqliteStore::open(&path).unwrap();
    let stored = newer.acquire().unwrap();
    assert!(stored > ours);
    let entry = ktsu_ledger::Entry::from_records(
        &recorded.stream,
        recorded.records.clone(),
        recorded.blobs.clone(),
    );
    let entry = entry.unwrap();
    let fenced = stale.append(ours, std::slice::from_ref(&entry));
    let expected = StoreError::Fenced {
        ours: ours.0,
        stored: stored.0,
    };
    assert_eq!(fenced, Err(expected));
    assert_eq!(newer.tail(&recorded.stream).unwrap(), None);
    assert!(newer.append(stored, &[entry]).unwrap()[0].is_ok());
}

//! Every store under one history, held against a plain model.

#![allow(clippy::unwrap_used)]

#[path = "support/conformance.rs"]
mod conformance;
#[path = "support/late.rs"]
mod late;
#[path = "support/postgres.rs"]
mod postgres;
mod support;

use std::sync::Arc;

use conformance::{
    Deed, Model, STREAMS, Tried, Wish, deeds, keeps_a_key_for_one_stream, play,
    refuses_a_frame_without_its_blob, wishes,
};
use ktsu_ledger::appender::{AppendError, Appender, Options};
use ktsu_ledger::store::{MemoryStore, SqliteStore, read_all};
use ktsu_ledger::{Backend, Store};
use late::Remote;
use proptest::prelude::*;
use support::{completed, entry, payload, run};

fn far_away(remote: &Remote) -> Tried {
    let mut tried = Tried::new(remote.store().unwrap(), None);
    tried.kept = remote.kept();
    tried
}

fn play_everywhere(history: Vec<Deed>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let sqlite = SqliteStore::open(&path).unwrap();
    // A question to a server takes a thousand times as long as one to memory: not in every history.
    let is_asked = history.len().is_multiple_of(3);
    let server = is_asked.then(postgres::Server::get).flatten();
    let on_a_server = server
        .as_ref()
        .map(|it| Tried::kept_by(Arc::new(it.ledger().0)));
    let mut stores = vec![
        Tried::new(Box::new(MemoryStore::new()), None),
        Tried::new(Box::new(sqlite), Some(&path)),
        far_away(&Remote::new()),
    ];
    stores.extend(on_a_server);
    play(stores, history);
}

proptest! {
    #![proptest_config(ktsu_campaign::config(40))]

    #[test]
    fn every_store_answers_as_the_model_does(history in prop::collection::vec(deeds(), 1..14)) {
        play_everywhere(history);
    }
}

/// The same over a store of which half the outcomes are unknown, one entry at a time.
fn play_lossy(seed: u64, wishes: Vec<Wish>) {
    let remote = Remote::lossy(seed);
    let mut model = Model::default();
    for (owner, wishes) in wishes.chunks(5).enumerate() {
        let store = remote.store().unwrap();
        let (appender, thread) = Appender::start(store, Options::default()).unwrap();
        for (salt, wish) in wishes.iter().enumerate() {
            let tail = model.tail(&run(STREAMS[wish.stream]));
            let entry = model.entry(wish, (owner * 5 + salt) as u64, tail);
            let expected = model.append(std::slice::from_ref(&entry)).remove(0);
            let answered = appender.append(entry).map(|committed| committed.last);
            assert_eq!(answered, expected.map_err(AppendError::Refused));
        }
        thread.shutdown().unwrap();
    }
    model.agrees_with(Backend::reader(&remote).unwrap().as_ref());
}

proptest! {
    #![proptest_config(ktsu_campaign::config(20))]

    #[test]
    fn a_store_that_loses_answers_comes_to_what_the_model_does(
        seed in any::<u64>(),
        history in prop::collection::vec(wishes(), 1..20),
    ) {
        play_lossy(seed, history);
    }
}

#[test]
fn a_frame_without_its_blob_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(&folder.path().join("ledger.db")).unwrap();
    let far_away = Remote::new().store().unwrap();
    let server = postgres::Server::get();
    let on_a_server = server.as_ref().map(|it| it.ledger().0.store().unwrap());
    let stores: [Box<dyn Store>; 3] = [Box::new(MemoryStore::new()), Box::new(sqlite), far_away];
    refuses_a_frame_without_its_blob(stores.into_iter().chain(on_a_server));
}

#[test]
fn long_streams_are_read_in_pages() {
    let stream = run("a");
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(&folder.path().join("ledger.db")).unwrap();
    let far_away = Remote::new().store().unwrap();
    let stores: [Box<dyn Store>; 3] = [Box::new(MemoryStore::new()), Box::new(sqlite), far_away];
    let drafts = (0..300)
        .map(|place| completed("a", payload(60_000, place)))
        .collect();
    let entry = entry(&stream, None, drafts);
    for mut store in stores {
        let epoch = store.acquire().unwrap();
        store.append(epoch, std::slice::from_ref(&entry)).unwrap();
        let page = store.read(&stream, 0, 1000).unwrap();
        assert!(page.len() < 200, "a page of {} frames", page.len());
        let all = read_all(store.as_ref(), &stream, 0).unwrap();
        assert_eq!(all, entry.records());
    }
}

#[test]
fn index_rows_keep_a_key_for_one_stream_and_may_hand_it_on() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(&folder.path().join("ledger.db")).unwrap();
    let server = postgres::Server::get();
    let on_a_server = server.as_ref().map(|it| it.ledger().0.store().unwrap());
    let stores: [Box<dyn Store>; 2] = [Box::new(MemoryStore::new()), Box::new(sqlite)];
    keeps_a_key_for_one_stream(stores.into_iter().chain(on_a_server));
}

//! Who owns a ledger on PostgreSQL, and what becomes of appends while its server fails. Skipped, with a
//! note, where PostgreSQL is not installed.

#![allow(clippy::unwrap_used)]

#[path = "support/postgres.rs"]
mod postgres;
mod support;

use std::sync::Barrier;
use std::thread;

use ktsu_ledger::appender::{AppendError, Appender, Options};
use ktsu_ledger::store::read_all;
use ktsu_ledger::verify::{VerifyOptions, verify};
use ktsu_ledger::{Backend, Ledger, LedgerPlace, OwnError, Reader, Store, StoreError};
use postgres::Server;
use support::{completed, ended, entry, payload, run};

/// How often two owners race.
const RACES: u64 = 300;

fn assert_sound(reader: &dyn Reader) {
    let report = verify(reader, &VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, []);
}

/// Appends the first frame of a run, as its owner; `true` if that was stored.
fn append(store: &mut dyn Store, epoch: ktsu_ledger::Epoch, name: &str) -> bool {
    match store.append(epoch, &[entry(&run(name), None, vec![ended()])]) {
        Ok(outcomes) => outcomes == [Ok(0)],
        Err(StoreError::Fenced { .. } | StoreError::Unknown(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn of_two_owners_that_append_at_once_the_older_stores_nothing_once_the_newer_has_come() {
    let Some(server) = Server::get() else { return };
    let (place, _) = server.ledger();
    let mut stored = 0;
    let mut old = place.store().unwrap();
    for race in 0..RACES {
        let epoch = old.acquire().unwrap();
        let mut new = place.store().unwrap();
        let begin = Barrier::new(2);
        let (was_stored, new_epoch) = thread::scope(|scope| {
            let other = scope.spawn(|| {
                begin.wait();
                let epoch = new.acquire().unwrap();
                assert!(append(new.as_mut(), epoch, &format!("new{race}")));
                epoch
            });
            begin.wait();
            let was_stored = append(old.as_mut(), epoch, &format!("old{race}"));
            (was_stored, other.join().unwrap())
        });
        assert!(new_epoch > epoch);
        // Whether it was in time or not, it stores nothing from here on.
        assert!(!append(old.as_mut(), epoch, &format!("late{race}")));
        stored += u64::from(was_stored);
        old = new;
    }
    let reader = place.reader().unwrap();
    assert_eq!(reader.last_position().unwrap(), RACES + stored);
    assert_sound(reader.as_ref());
}

#[test]
fn a_fence_that_is_only_read_lets_an_older_owner_store_behind_a_newer_one() {
    let Some(server) = Server::alone() else {
        return;
    };
    let (_, schema) = server.ledger();
    // What the statement of an append would do if it read the epoch instead of changing the row: the
    // older owner has read it, and the newer one comes before the older one stores.
    let control = format!(
        "SET search_path = {schema}; CREATE TABLE control (epoch bigint);
         CREATE EXTENSION dblink SCHEMA public;
         WITH fence AS MATERIALIZED (SELECT 1 FROM ledger WHERE id = 1 AND epoch = 0),
         newer AS MATERIALIZED (
           SELECT public.dblink_exec('dbname=postgres user=ktsu host=' || current_setting('unix_socket_directories'),
             'UPDATE {schema}.ledger SET epoch = epoch + 1') FROM fence)
         INSERT INTO control SELECT 0 FROM newer;
         SELECT 1 / (SELECT count(*) FROM control, ledger WHERE ledger.epoch = 1)"
    );
    assert_eq!(server.refusal(&control), None);
}

#[test]
fn an_owner_that_is_at_work_keeps_a_ledger_and_one_that_gave_it_up_does_not() {
    let Some(server) = Server::get() else { return };
    let (place, _) = server.ledger();
    let ledger = Ledger::open(LedgerPlace::Backend(std::sync::Arc::new(place.clone())));
    let owned = ledger.own(0).unwrap();
    let (appender, thread) = Appender::start(owned.store, Options::default()).unwrap();
    assert!(appender.is_owner());
    assert!(!ledger.look().unwrap().is_free);
    let refused = ledger.own(0).err().unwrap();
    assert!(matches!(refused, OwnError::Held(_)), "{refused}");
    thread.shutdown().unwrap();
    assert!(ledger.look().unwrap().is_free);
    assert_eq!(place.owner().unwrap(), None);
}

#[test]
fn appends_continue_after_a_crash_of_the_server() {
    let Some(server) = Server::alone() else {
        return;
    };
    let (place, _) = server.ledger();
    let (appender, thread) = Appender::start(place.store().unwrap(), Options::default()).unwrap();
    let mut tail = None;
    for salt in 0..9 {
        let next = entry(&run("a"), tail, vec![completed("s", payload(2_000, salt))]);
        tail = Some((next.tail().seq, next.tail().hash));
        if salt % 3 == 1 {
            server.crash();
        }
        assert_eq!(appender.append(next).unwrap().last, salt);
    }
    thread.shutdown().unwrap();
    let reader = place.reader().unwrap();
    assert_eq!(read_all(reader.as_ref(), &run("a"), 0).unwrap().len(), 9);
    assert_eq!(reader.last_position().unwrap(), 9);
    assert_sound(reader.as_ref());
}

#[test]
fn an_engine_that_has_given_up_leaves_nothing_that_waits_on_the_server() {
    let Some(server) = Server::alone() else {
        return;
    };
    let (place, schema) = server.ledger();
    let held = format!(
        "SET search_path = {schema}; BEGIN; UPDATE ledger SET beat = 1; SELECT pg_sleep(60)"
    );
    let of_holder = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    let is_held = || {
        server
            .refusal(&format!("SELECT 1 / count(*) {of_holder}"))
            .is_none()
    };
    thread::scope(|scope| {
        // As an append does that waits for a standby which is away.
        scope.spawn(|| server.refusal(&held));
        while !is_held() {}
        let refused = place.store().unwrap().acquire();
        assert!(refused.is_err(), "{refused:?}");
        let waits = "SELECT 1 / (count(*) = 0)::integer FROM pg_stat_activity
                     WHERE wait_event_type = 'Lock'";
        while server.refusal(waits).is_some() {}
        assert!(is_held(), "it ended by itself");
        server.sql(&format!("SELECT pg_terminate_backend(pid) {of_holder}"));
    });
}

#[test]
fn an_append_whose_wait_for_the_standby_was_cancelled_is_not_acknowledged() {
    let Some(server) = Server::alone() else {
        return;
    };
    let (place, _) = server.ledger();
    let standby = server.standby();
    let (appender, thread) = Appender::start(place.store().unwrap(), Options::default()).unwrap();
    let first = entry(&run("a"), None, vec![ended()]);
    assert!(appender.append(first).is_ok());
    assert_eq!(place.status().unwrap().warnings, Vec::<String>::new());
    drop(standby);
    let outcome = thread::scope(|scope| {
        let appended = scope.spawn(|| appender.append(entry(&run("b"), None, vec![ended()])));
        // A person cancels every wait, until the appender has given up.
        while !appended.is_finished() {
            let cancel =
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            server.sql(cancel);
        }
        appended.join().unwrap()
    });
    assert!(
        matches!(outcome, Err(AppendError::Stopped { .. })),
        "{outcome:?}"
    );
    // It is stored, and visible, and on one disk only.
    let reader = place.reader().unwrap();
    assert!(reader.tail(&run("b")).unwrap().is_some());
    assert!(thread.shutdown().is_err());
}

#[test]
fn of_two_servers_the_one_that_writes_is_read_though_the_other_comes_first_and_is_behind() {
    let Some(server) = Server::alone() else {
        return;
    };
    let (_, schema) = server.ledger();
    let standby = server.standby();
    standby.sql("SELECT pg_wal_replay_pause()");
    let address = server.address_behind(&standby, &schema);
    let place: ktsu_postgres::PostgresPlace = address.parse().unwrap();
    let ledger = Ledger::open(LedgerPlace::Backend(std::sync::Arc::new(place)));
    assert!(!ledger.make().unwrap());
    let owned = ledger.own(0).unwrap();
    let (appender, thread) = Appender::start(owned.store, Options::default()).unwrap();
    appender
        .append(entry(&run("a"), None, vec![ended()]))
        .unwrap();
    assert!(ledger.reader().unwrap().tail(&run("a")).unwrap().is_some());
    assert!(!ledger.look().unwrap().is_free);
    assert!(ledger.owner().unwrap().is_some());
    thread.shutdown().unwrap();
}

#[test]
fn an_owner_stops_once_its_server_lacks_what_was_acknowledged() {
    let Some(server) = Server::get() else { return };
    let (place, schema) = server.ledger();
    let mut store = place.store().unwrap();
    let epoch = store.acquire().unwrap();
    assert!(append(store.as_mut(), epoch, "kept"));
    assert!(append(store.as_mut(), epoch, "lost"));
    // As a server that followed has it which did not get the last frame.
    server.sql(&format!(
        "SET search_path = {schema}; SET session_replication_role = replica;
         DELETE FROM frames WHERE pos = (SELECT max(pos) FROM frames);
         UPDATE ledger SET head = head - 1"
    ));
    let beaten = store.lease().unwrap().beat(epoch);
    assert!(matches!(beaten, Err(StoreError::Damaged(_))), "{beaten:?}");
    let next = [entry(&run("next"), None, vec![ended()])];
    let first = store.append(epoch, &next);
    assert!(matches!(first, Err(StoreError::Unknown(_))), "{first:?}");
    let then = store.append(epoch, &next);
    assert!(matches!(then, Err(StoreError::Damaged(_))), "{then:?}");
}

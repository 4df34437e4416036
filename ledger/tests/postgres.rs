//! A ledger on PostgreSQL, beyond what every store does: what the server refuses, and what becomes of
//! an append whose answer is lost. Skipped, with a note, where PostgreSQL is not installed.

#![allow(clippy::unwrap_used)]

#[path = "support/postgres.rs"]
mod postgres;
mod support;

use std::sync::Arc;

use ktsu_ledger::appender::{Appender, Options};
use ktsu_ledger::store::{AppendRefusal, read_all};
use ktsu_ledger::verify::{ProblemKind, VerifyOptions, verify};
use ktsu_ledger::{Backend as _, Entry, Reader, StoreError};
use ktsu_postgres::PostgresPlace;
use postgres::Server;
use support::{completed, ended, entry, payload, run};

/// A ledger with two runs and a blob.
fn filled(server: &Server) -> (PostgresPlace, String) {
    let (place, schema) = server.ledger();
    let mut store = place.store().unwrap();
    let epoch = store.acquire().unwrap();
    let one = entry(&run("a"), None, vec![completed("s", payload(70_000, 1))]);
    let other = entry(&run("b"), None, vec![ended()]);
    let appended = store.append(epoch, &[one, other]).unwrap();
    assert_eq!(appended, [Ok(0), Ok(0)]);
    (place, schema)
}

fn problems(reader: &dyn Reader) -> Vec<ProblemKind> {
    let report = verify(reader, &VerifyOptions::default(), &mut |_| {});
    report.problems.into_iter().map(|one| one.kind).collect()
}

#[test]
fn the_server_refuses_to_change_or_to_delete_what_was_appended() {
    let Some(server) = Server::get() else { return };
    let (place, schema) = filled(&server);
    for (text, why) in [
        ("UPDATE frames SET body = '{}'", "frames never change"),
        ("DELETE FROM frames", "frames stay"),
        ("TRUNCATE frames", "frames never change"),
        ("UPDATE blobs SET body = '{}'", "blobs never change"),
        ("DELETE FROM blobs", "blobs stay"),
        ("TRUNCATE blobs", "blobs never change"),
        (
            "UPDATE streams SET name = name || 'x'",
            "streams never change",
        ),
        ("DELETE FROM streams", "streams never change"),
        ("UPDATE ledger SET epoch = 0", "only rise"),
        ("UPDATE ledger SET head = 0", "only rise"),
        ("DELETE FROM ledger", "ledger never change"),
        ("TRUNCATE ledger", "ledger never change"),
        ("TRUNCATE streams, frames", "never change"),
        ("TRUNCATE removals", "removals never change"),
    ] {
        let refused = server.refusal(&format!("SET search_path = {schema}; {text}"));
        let refused = refused.unwrap_or_default();
        assert!(refused.contains(why), "{text}: {refused}");
    }
    assert_eq!(problems(place.reader().unwrap().as_ref()), []);
}

#[test]
fn a_role_with_the_rights_of_an_engine_owns_the_ledger_and_changes_nothing_that_was_appended() {
    let Some(server) = Server::get() else { return };
    let (place, schema) = server.restricted();
    let mut store = place.store().unwrap();
    let epoch = store.acquire().unwrap();
    let one = entry(&run("a"), None, vec![completed("s", payload(70_000, 1))]);
    assert_eq!(store.append(epoch, &[one]).unwrap(), [Ok(0)]);
    for text in [
        "UPDATE frames SET body = '{}'",
        "UPDATE blobs SET body = '{}'",
        "UPDATE streams SET name = name || 'x'",
        "UPDATE removals SET frames = 0",
        "DELETE FROM streams",
        "DELETE FROM removals",
        "DELETE FROM ledger",
        "TRUNCATE frames",
        "DROP TABLE frames",
        "ALTER TABLE frames DISABLE TRIGGER frames_stay",
        "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RETURN NEW; END $$",
        "DELETE FROM frames",
        "DELETE FROM blobs",
    ] {
        let as_role =
            format!("SET search_path = {schema}; SET ROLE \"Engine of {schema}\"; {text}");
        let refused = server.refusal(&as_role).unwrap_or_default();
        let why = ["permission denied", "must be owner", "stay"];
        assert!(
            why.iter().any(|why| refused.contains(why)),
            "{text}: {refused}"
        );
    }
    assert_eq!(problems(place.reader().unwrap().as_ref()), []);
}

#[test]
fn rights_are_granted_to_a_role_that_is_there_and_does_not_have_all_of_them() {
    let Some(server) = Server::get() else { return };
    let (place, _) = server.ledger();
    for (role, why) in [
        ("missing", "has no role \"missing\""),
        ("ktsu", "owns the tables"),
        ("x\"; DROP TABLE frames; --", "has no role"),
    ] {
        let refused = place.grant(role).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_removal_that_is_recorded_for_one_stream_does_not_let_another_go() {
    let Some(server) = Server::get() else { return };
    let (_, schema) = filled(&server);
    let text = format!(
        "SET search_path = {schema}; BEGIN;
         INSERT INTO removals (stream, frames, authority) SELECT id, 1, 1 FROM streams WHERE name = 'run:a';
         DELETE FROM frames WHERE stream = (SELECT id FROM streams WHERE name = 'run:b'); COMMIT"
    );
    assert!(
        server
            .refusal(&text)
            .unwrap_or_default()
            .contains("frames stay")
    );
}

#[test]
fn verify_finds_what_was_changed_behind_the_triggers_and_that_they_are_off() {
    let Some(server) = Server::get() else { return };
    let (place, schema) = filled(&server);
    server.sql(&format!(
        "SET search_path = {schema}; ALTER TABLE frames DISABLE TRIGGER frames_never_change;
         UPDATE frames SET body = replace(body, 'run', 'ran') WHERE pos = 1"
    ));
    let report = verify(
        place.reader().unwrap().as_ref(),
        &VerifyOptions::default(),
        &mut |_| {},
    );
    let found = format!("{:?}", report.problems);
    assert!(
        found.contains("frames_never_change is missing or disabled"),
        "{found}"
    );
    assert!(report.problems.len() > 1, "{found}");
}

#[test]
fn verify_finds_frames_that_are_gone_wherever_they_were() {
    let Some(server) = Server::get() else { return };
    for (gone, why) in [
        ("pos = 2", "1 frames are gone, and 0 were removed"),
        (
            "stream = (SELECT id FROM streams WHERE name = 'run:a')",
            "the stream \"run:a\" has no frames",
        ),
    ] {
        let (place, schema) = filled(&server);
        server.sql(&format!(
            "SET search_path = {schema}; ALTER TABLE frames DISABLE TRIGGER frames_stay;
             DELETE FROM frames WHERE {gone}; ALTER TABLE frames ENABLE TRIGGER frames_stay"
        ));
        let reader = place.reader().unwrap();
        let report = verify(reader.as_ref(), &VerifyOptions::default(), &mut |_| {});
        let found = report.problems.iter().map(|one| one.message.clone());
        let found: Vec<String> = found.collect();
        assert!(
            found.iter().any(|one| one.contains(why)),
            "{gone}: {found:?}"
        );
    }
}

#[test]
fn an_owner_that_was_overtaken_stores_nothing() {
    let Some(server) = Server::get() else { return };
    let (place, _) = server.ledger();
    let mut first = place.store().unwrap();
    let stale = first.acquire().unwrap();
    let mut second = place.store().unwrap();
    let epoch = second.acquire().unwrap();
    let own = entry(&run("a"), None, vec![ended()]);
    let refused = first.append(stale, std::slice::from_ref(&own)).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    assert_eq!(second.append(epoch, &[own]).unwrap(), [Ok(0)]);
    assert_eq!(problems(place.reader().unwrap().as_ref()), []);
}

#[test]
fn a_store_that_missed_an_append_of_its_own_epoch_stores_nothing_until_it_has_read_the_head_again()
{
    let Some(server) = Server::get() else { return };
    let (place, schema) = server.ledger();
    let mut store = place.store().unwrap();
    let epoch = store.acquire().unwrap();
    // As a message of its own that the server took late would.
    server.sql(&format!("UPDATE {schema}.ledger SET head = head + 1"));
    let own = entry(&run("a"), None, vec![ended()]);
    let late = store.append(epoch, std::slice::from_ref(&own)).unwrap_err();
    assert!(matches!(late, StoreError::Unknown(_)), "{late}");
    assert_eq!(store.append(epoch, &[own]).unwrap(), [Ok(0)]);
}

/// Ends the connections of a process to the server, as a restart or a network would.
fn disconnect(server: &Server) {
    server.sql(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
         WHERE application_name = 'ktsu' AND pid <> pg_backend_pid()",
    );
}

#[test]
fn an_appender_finds_out_what_became_of_an_append_whose_connection_ended() {
    // Not shared: its connections are ended.
    let Some(server) = Server::alone() else {
        return;
    };
    let (place, _) = server.ledger();
    let (appender, thread) = Appender::start(place.store().unwrap(), Options::default()).unwrap();
    let mut tail = None;
    for salt in 0..20 {
        let next = entry(&run("a"), tail, vec![completed("s", payload(2_000, salt))]);
        tail = Some((next.tail().seq, next.tail().hash));
        if salt % 3 == 0 {
            disconnect(&server);
        }
        assert_eq!(appender.append(next).unwrap().last, salt);
    }
    thread.shutdown().unwrap();
    let reader = place.reader().unwrap();
    assert_eq!(read_all(reader.as_ref(), &run("a"), 0).unwrap().len(), 20);
    assert_eq!(problems(reader.as_ref()), []);
}

#[test]
fn a_reader_whose_connection_ended_makes_a_new_one() {
    let Some(server) = Server::alone() else {
        return;
    };
    let (place, _) = filled(&server);
    let reader = place.reader().unwrap();
    disconnect(&server);
    assert_eq!(read_all(reader.as_ref(), &run("a"), 0).unwrap().len(), 1);
}

#[test]
fn a_server_that_does_not_wait_for_its_disk_is_refused() {
    let Some(server) = Server::get() else { return };
    let refused = server
        .place_with("-csynchronous_commit%3Doff")
        .store()
        .err()
        .unwrap()
        .to_string();
    assert!(refused.contains("synchronous_commit is off"), "{refused}");
    assert!(refused.contains("?durability=unsafe"), "{refused}");
}

#[test]
fn a_server_that_may_lose_what_it_acknowledged_is_used_and_warned_of_where_the_address_permits_it()
{
    let Some(server) = Server::get() else { return };
    let (_, schema) = filled(&server);
    let weak = format!("-csearch_path%3D{schema}%20-csynchronous_commit%3Doff&durability=unsafe");
    let place = server.place_with(&weak);
    let mut store = place.store().unwrap();
    let epoch = store.acquire().unwrap();
    let own = entry(&run("c"), None, vec![ended()]);
    assert_eq!(store.append(epoch, &[own]).unwrap(), [Ok(0)]);
    let warnings = place.status().unwrap().warnings.join("");
    assert!(
        warnings.contains("may lose what it acknowledged"),
        "{warnings}"
    );
}

#[test]
fn a_provider_that_is_declared_to_replicate_is_not_warned_of() {
    let Some(server) = Server::get() else { return };
    let (place, schema) = server.ledger();
    let warnings = place.status().unwrap().warnings;
    assert!(
        warnings[0].contains("no synchronous standby"),
        "{warnings:?}"
    );
    let declared = format!("-csearch_path%3D{schema}&durability=provider");
    let declared = server.place_with(&declared);
    assert_eq!(declared.status().unwrap().warnings, Vec::<String>::new());
}

#[test]
fn a_place_without_tables_says_what_makes_them() {
    let Some(server) = Server::get() else { return };
    let refused = server
        .place_with("-csearch_path%3Dpg_temp")
        .reader()
        .err()
        .unwrap()
        .to_string();
    assert!(
        refused.contains("has no ledger: ktsu ledger init"),
        "{refused}"
    );
}

#[test]
fn a_ledger_is_made_once() {
    let Some(server) = Server::get() else { return };
    let (place, _) = filled(&server);
    place.make().unwrap();
    let kept: Arc<dyn ktsu_ledger::Backend> = Arc::new(place);
    let frames = read_all(kept.reader().unwrap().as_ref(), &run("b"), 0).unwrap();
    assert_eq!(frames.len(), 1);
}

#[test]
fn an_address_is_parsed_and_its_password_is_not_shown() {
    let place: PostgresPlace = "postgres://ann:s3cret@db.example/work".parse().unwrap();
    let shown = "PostgresPlace(\"postgres://ann@db.example/work\")";
    assert_eq!(format!("{place:?}"), shown);
    let schema = "postgres://ann@db.example:5433/work?options=-csearch_path%3Done";
    let place: PostgresPlace = schema.replace("ann@", "ann:s3cret@").parse().unwrap();
    assert_eq!(place.to_string(), schema);
    assert!("ledger.db?".parse::<PostgresPlace>().is_err());
}

#[test]
fn a_refused_entry_does_not_touch_its_neighbours() {
    let Some(server) = Server::get() else { return };
    let (place, _) = filled(&server);
    let mut store = place.store().unwrap();
    let epoch = store.acquire().unwrap();
    let again: Entry = entry(&run("a"), None, vec![ended()]);
    let new = entry(&run("c"), None, vec![ended()]);
    let conflict = AppendRefusal::Conflict {
        stream: run("a"),
        expected: None,
        actual: Some(0),
    };
    assert_eq!(
        store.append(epoch, &[again, new]).unwrap(),
        [Err(conflict), Ok(0)]
    );
    assert_eq!(store.reader().unwrap().last_position().unwrap(), 3);
}

#[test]
fn an_encrypted_server_has_to_prove_that_it_is_the_one_of_the_address() {
    let Some((server, port)) = Server::encrypted() else {
        return;
    };
    server.certify("stranger", "other");
    let at = |host: &str, authority: &str| -> PostgresPlace {
        let address = format!("postgres://ktsu@{host}:{port}/postgres?sslmode=require");
        let place: PostgresPlace = address.parse().unwrap();
        place.with_authorities(Some(server.file(authority)))
    };
    let refusal = |place: PostgresPlace| place.make().err().map(|error| error.to_string());
    assert_eq!(refusal(at("127.0.0.1", "ca.pem")), None);
    let own = [entry(&run("a"), None, vec![ended()])];
    let mut store = at("127.0.0.1", "ca.pem").store().unwrap();
    let epoch = store.acquire().unwrap();
    assert_eq!(store.append(epoch, &own).unwrap(), [Ok(0)]);
    for (host, authority, why) in [
        ("127.0.0.1", "stranger.pem", "does not prove"),
        ("localhost", "ca.pem", "does not prove"),
        ("127.0.0.1", "server.key", "no authority to trust"),
        ("127.0.0.1", "missing.pem", "no authority to trust"),
    ] {
        let refused = refusal(at(host, authority)).unwrap_or_default();
        assert!(refused.contains(why), "{host} {authority}: {refused}");
    }
    server.sql_at(port, "ALTER SYSTEM SET ssl = off");
    server.sql_at(port, "SELECT pg_reload_conf()");
    // The server reads its settings again when it comes to it.
    let refused = (0..1_000).find_map(|_| refusal(at("127.0.0.1", "ca.pem")));
    let refused = refused.unwrap_or_default();
    assert!(refused.contains("does not encrypt"), "{refused}");
}

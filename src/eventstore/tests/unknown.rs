//! What becomes of appends whose outcome is not known at first, and of those that meet others: on the
//! double, whose servers lose answers, come late, lead no longer and die.

#![allow(clippy::unwrap_used)]

mod double;
#[path = "support/place.rs"]
mod place;
#[path = "../../../ledger/tests/support/mod.rs"]
mod support;

use double::Double;
use double::streams::{DoubleAnswer, Fate};
use ktsu_eventstore::EventStorePlace;
use ktsu_ledger::appender::{Appender, Options};
use ktsu_ledger::store::{Entry, read_all};
use ktsu_ledger::verify::{VerifyOptions, verify};
use ktsu_ledger::{Backend as _, Epoch, Reader, Store, StoreError};
use place::Places;
use support::{completed, ended, entry, payload, run};

fn own(place: &EventStorePlace) -> (Box<dyn Store>, Epoch) {
    let mut store = place.store().unwrap();
    let epoch = store.acquire().unwrap();
    (store, epoch)
}

/// What a machine that sees a ledger for the first time finds: it is sound, and has so many frames.
fn assert_sound(places: &Places, place: &EventStorePlace, frames: u64) -> Box<dyn Reader> {
    let elsewhere = places.elsewhere(place);
    let reader = elsewhere.snapshot().unwrap();
    let report = verify(reader.as_ref(), &VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, []);
    assert_eq!(reader.last_position().unwrap(), frames);
    reader
}

fn events(places: &Places, stream: &str) -> usize {
    let kept = places.double.kept();
    let seen = kept.seen(&format!("x/{stream}")).unwrap();
    seen.map_or(0, <[_]>::len)
}

fn first(name: &str, salt: u64) -> Entry {
    entry(&run(name), None, vec![completed("s", payload(30, salt))])
}

fn second(entry_before: &Entry) -> Entry {
    let tail = entry_before.tail();
    let stream = entry_before.stream();
    entry(stream, Some((tail.seq, tail.hash)), vec![ended()])
}

#[test]
fn an_append_whose_answer_or_request_is_lost_is_stored_once() {
    use Fate::{DeadlineStored, Late, ReplyLost, RequestLost};
    for stream in ["run:a", "ktsu:order"] {
        for fates in [
            &[ReplyLost][..],
            &[RequestLost],
            &[DeadlineStored],
            &[Late],
            &[RequestLost, RequestLost, ReplyLost],
            &[Late, RequestLost, Late],
        ] {
            let places = Places::new();
            let place = places.ledger();
            let (mut store, epoch) = own(&place);
            for fate in fates {
                places.double.kept().expect(stream, *fate);
            }
            let one = first("a", 1);
            let answers = store.append(epoch, &[one.clone(), first("b", 2)]).unwrap();
            assert_eq!(answers, [Ok(0), Ok(0)]);
            // What is late arrives where the same already is.
            let late = places.double.kept().land();
            assert!(
                late.iter()
                    .all(|it| matches!(it, DoubleAnswer::Stored { .. })),
                "{late:?}"
            );
            let answers = store.append(epoch, &[second(&one)]).unwrap();
            assert_eq!(answers, [Ok(1)]);
            let reader = assert_sound(&places, &place, 3);
            assert_eq!(read_all(reader.as_ref(), &run("a"), 0).unwrap().len(), 2);
            assert_eq!((events(&places, "run:a"), events(&places, "run:b")), (2, 1));
        }
    }
}

#[test]
fn an_append_that_cannot_be_read_back_is_not_acknowledged_until_it_can() {
    let places = Places::new();
    let place = places.ledger();
    let (mut store, epoch) = own(&place);
    let one = first("a", 1);
    let group = std::slice::from_ref(&one);
    places
        .double
        .kept()
        .expect("ktsu:order", Fate::StoredThenSilent);
    let unknown = store.append(epoch, group).unwrap_err();
    assert!(matches!(unknown, StoreError::Unknown(_)), "{unknown}");
    let unknown = store.tail(&run("a")).unwrap_err();
    assert!(matches!(unknown, StoreError::Unknown(_)), "{unknown}");
    places.double.kept().is_silent = false;
    // It reads back that it is stored.
    assert_eq!(store.tail(&run("a")).unwrap(), Some(one.tail()));
    assert_eq!(store.append(epoch, &[second(&one)]).unwrap(), [Ok(1)]);
    assert_sound(&places, &place, 2);
}

#[test]
fn appends_continue_after_the_leader_has_moved_and_after_it_has_died() {
    for all in [false, true] {
        let places = Places::on(Double::cluster(3));
        let address = match all {
            true => places.double.address_of_all("x"),
            false => places.double.address(0, "x"),
        };
        let place = places.at(&address);
        assert!(place.make().unwrap());
        let (appender, thread) =
            Appender::start(place.store().unwrap(), Options::default()).unwrap();
        let one = first("a", 1);
        appender.append(one.clone()).unwrap();
        places.double.lead(1);
        appender.append(second(&one)).unwrap();
        places.double.kill(1);
        places.double.lead(2);
        appender.append(first("b", 2)).unwrap();
        thread.shutdown().unwrap();
        assert_eq!(place.reader().unwrap().last_position().unwrap(), 3);
        assert!(place.look().unwrap().is_free);
    }
}

#[test]
fn a_conflict_amid_appends_in_flight_stores_each_of_them_once() {
    let places = Places::new();
    let place = places.ledger();
    let (mut old, old_epoch) = own(&places.elsewhere(&place));
    let (mut store, epoch) = own(&place);
    // Frames of an owner that was overtaken are in the middle one of the streams.
    let refused = old.append(old_epoch, &[first("c", 9)]).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    assert_eq!(events(&places, "run:c"), 1);
    let group: Vec<Entry> = ["a", "b", "c", "d", "e"].map(|name| first(name, 1)).into();
    let answers = store.append(epoch, &group).unwrap();
    assert_eq!(answers, [Ok(0), Ok(0), Ok(0), Ok(0), Ok(0)]);
    let reader = assert_sound(&places, &place, 5);
    for (name, entry) in ["a", "b", "c", "d", "e"].iter().zip(&group) {
        assert_eq!(reader.read(&run(name), 0, 9).unwrap(), entry.records());
        let stored = if *name == "c" { 2 } else { 1 };
        assert_eq!(events(&places, &format!("run:{name}")), stored);
    }
}

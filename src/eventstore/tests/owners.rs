//! Who owns a ledger, and what an owner that was overtaken leaves: on the double.

#![allow(clippy::unwrap_used)]

mod double;
#[path = "support/place.rs"]
mod place;
#[path = "../../../ledger/tests/support/mod.rs"]
mod support;

use std::sync::{Arc, Barrier};
use std::thread;

use ktsu_eventstore::EventStorePlace;
use ktsu_ledger::appender::{Appender, Options};
use ktsu_ledger::store::Entry;
use ktsu_ledger::verify::{VerifyOptions, verify};
use ktsu_ledger::{Backend as _, Epoch, Ledger, LedgerPlace, OwnError, Reader, Store, StoreError};
use place::Places;
use support::{completed, ended, entry, payload, run};

/// How often two owners race.
const RACES: u64 = 40;

fn own(place: &EventStorePlace) -> (Box<dyn Store>, Epoch) {
    let mut store = place.store().unwrap();
    let epoch = store.acquire().unwrap();
    (store, epoch)
}

fn assert_sound(places: &Places, place: &EventStorePlace, frames: u64) -> Box<dyn Reader> {
    let reader = places.elsewhere(place).snapshot().unwrap();
    let report = verify(reader.as_ref(), &VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, []);
    assert_eq!(reader.last_position().unwrap(), frames);
    reader
}

fn first(name: &str, salt: u64) -> Entry {
    entry(&run(name), None, vec![completed("s", payload(30, salt))])
}

fn behind(before: &Entry, salt: u64) -> Entry {
    let tail = before.tail();
    let drafts = vec![completed("s", payload(30, salt)), ended()];
    entry(before.stream(), Some((tail.seq, tail.hash)), drafts)
}

/// Appends as an owner; `true` if that was stored.
fn append(store: &mut dyn Store, epoch: Epoch, entry: Entry) -> bool {
    match store.append(epoch, &[entry]) {
        Ok(outcomes) => outcomes.iter().all(Result::is_ok),
        Err(StoreError::Fenced { .. } | StoreError::Unknown(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn of_two_owners_that_append_at_once_the_older_stores_nothing_once_the_newer_has_come() {
    let places = Places::new();
    let place = places.ledger();
    let machines = [places.elsewhere(&place), places.elsewhere(&place)];
    let mut stored = 0;
    let (mut old, mut epoch) = own(&machines[0]);
    for race in 0..RACES {
        let mut new = machines[(race as usize + 1) % 2].store().unwrap();
        let begin = Barrier::new(2);
        let (was_stored, new_epoch) = thread::scope(|scope| {
            let other = scope.spawn(|| {
                begin.wait();
                let epoch = new.acquire().unwrap();
                assert!(append(new.as_mut(), epoch, first(&format!("new{race}"), 1)));
                epoch
            });
            begin.wait();
            let was_stored = append(old.as_mut(), epoch, first(&format!("old{race}"), 1));
            (was_stored, other.join().unwrap())
        });
        assert!(new_epoch > epoch);
        assert!(!append(
            old.as_mut(),
            epoch,
            first(&format!("late{race}"), 1)
        ));
        stored += u64::from(was_stored);
        (old, epoch) = (new, new_epoch);
    }
    assert_sound(&places, &place, RACES + stored);
}

#[test]
fn frames_of_an_owner_that_was_overtaken_are_adopted_or_passed_over_and_never_read() {
    let places = Places::new();
    let place = places.ledger();
    let (mut old, old_epoch) = own(&places.elsewhere(&place));
    let (known, other) = (first("known", 1), first("other", 1));
    let group = [known.clone(), other.clone()];
    assert_eq!(old.append(old_epoch, &group).unwrap(), [Ok(0), Ok(0)]);
    let (mut new, epoch) = own(&place);
    // Streams that the new owner has not touched, and runs that did not exist.
    let orphans = [
        behind(&known, 7),
        behind(&other, 7),
        first("new", 7),
        first("never", 7),
    ];
    let refused = old.append(old_epoch, &orphans).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    let events = |stream: &str| {
        let kept = places.double.kept();
        kept.seen(&format!("x/{stream}"))
            .unwrap()
            .map_or(0, <[_]>::len)
    };
    assert_eq!((events("run:known"), events("run:new")), (3, 1));
    assert_sound(&places, &place, 2);
    assert_eq!(new.tail(&run("never")).unwrap(), None);
    // The same frames are adopted, others come behind.
    let (same, different) = (behind(&known, 7), behind(&other, 8));
    let group = [same.clone(), different.clone(), first("new", 8)];
    assert_eq!(new.append(epoch, &group).unwrap(), [Ok(2), Ok(2), Ok(0)]);
    let stored = (events("run:known"), events("run:other"), events("run:new"));
    assert_eq!(stored, (3, 5, 2));
    // What follows is appended without a conflict, and by the next owner, too.
    let end = |before: &Entry, salt| {
        let tail = before.tail();
        let drafts = vec![completed("s", payload(30, salt))];
        entry(before.stream(), Some((tail.seq, tail.hash)), drafts)
    };
    let (third, fourth) = (end(&different, 1), end(&same, 1));
    assert_eq!(
        new.append(epoch, std::slice::from_ref(&third)).unwrap(),
        [Ok(3)]
    );
    let (mut next, epoch) = own(&places.elsewhere(&place));
    assert_eq!(
        next.append(epoch, &[end(&third, 2), fourth]).unwrap(),
        [Ok(4), Ok(3)]
    );
    let reader = assert_sound(&places, &place, 10);
    let read = reader.read(&run("other"), 1, 2).unwrap();
    assert_eq!(read, different.records());
}

#[test]
fn an_owner_that_is_at_work_keeps_a_ledger_and_one_that_gave_it_up_does_not() {
    let places = Places::new();
    let place = places.ledger();
    let ledger = Ledger::open(LedgerPlace::Backend(Arc::new(place.clone())));
    let owned = ledger.own(0).unwrap();
    let (appender, thread) = Appender::start(owned.store, Options::default()).unwrap();
    assert!(appender.is_owner());
    assert!(!ledger.look().unwrap().is_free);
    let refused = ledger.own(0).err().unwrap();
    assert!(matches!(refused, OwnError::Held(_)), "{refused}");
    thread.shutdown().unwrap();
    assert!(ledger.look().unwrap().is_free);
    assert_eq!(place.owner().unwrap(), None);
    let status = place.status().unwrap();
    assert!(
        status
            .warnings
            .iter()
            .any(|it| it.contains("real EventStoreDB"))
    );
}

#[test]
fn an_owner_cannot_renew_its_ownership_once_another_one_has_begun_to_come() {
    let places = Places::new();
    let place = places.ledger();
    let (mut old, old_epoch) = own(&places.elsewhere(&place));
    let lease = old.lease().unwrap();
    lease.beat(old_epoch).unwrap();
    let free = place.claim();
    drop(free);
    let (_new, _) = own(&place);
    let refused = old.lease().unwrap().beat(old_epoch).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    let refused = old.lease().unwrap().release(old_epoch).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    // A server keeps the last beat only.
    let kept = places.double.kept();
    assert_eq!(kept.seen("x/ktsu:beats").unwrap().unwrap().len(), 1);
}

#[test]
fn an_owner_that_did_something_since_it_was_looked_at_is_not_followed() {
    let places = Places::new();
    let place = places.ledger();
    for beats in [true, false] {
        let mut claimed = places.elsewhere(&place).claim().unwrap();
        let (mut other, epoch) = own(&place);
        if beats {
            other.lease().unwrap().beat(epoch).unwrap();
        }
        let refused = claimed.acquire().unwrap_err();
        assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
        other.lease().unwrap().release(epoch).unwrap();
    }
}

//! What a ledger is where its streams are: what verification finds there, what a removal leaves, and what
//! the local copy is not trusted with.

#![allow(clippy::unwrap_used)]

mod double;
#[path = "support/place.rs"]
mod place;
#[path = "../../../ledger/tests/support/mod.rs"]
mod support;

use ktsu_eventstore::EventStorePlace;
use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::removal::ReferenceCounts;
use ktsu_ledger::store::read_all;
use ktsu_ledger::verify::{ProblemKind, VerifyOptions, verify};
use ktsu_ledger::{Backend as _, Draft, Entry, Epoch, Event, Hash, Store, StoreError};
use place::Places;
use support::{completed, ended, entry, opened, payload, row, run, store_stream};

fn own(place: &EventStorePlace) -> (Box<dyn Store>, Epoch) {
    let mut store = place.store().unwrap();
    let epoch = store.acquire().unwrap();
    (store, epoch)
}

/// A ledger with two runs and a blob.
fn filled(places: &Places) -> EventStorePlace {
    let place = places.ledger();
    let (mut store, epoch) = own(&place);
    let one = entry(
        &run("a"),
        None,
        vec![completed("s", payload(70_000, 1)), ended()],
    );
    let one = one
        .with_index(row(&run("a"), "triage", "complete", 1))
        .unwrap();
    let other = entry(&run("b"), None, vec![ended()]);
    assert_eq!(store.append(epoch, &[one, other]).unwrap(), [Ok(1), Ok(0)]);
    place
}

fn problems(place: &EventStorePlace) -> Vec<ProblemKind> {
    let reader = place.snapshot().unwrap();
    let report = verify(reader.as_ref(), &VerifyOptions::default(), &mut |_| {});
    report.problems.into_iter().map(|one| one.kind).collect()
}

#[test]
fn verification_reads_what_the_server_has_and_not_the_local_copy() {
    type Change = fn(&mut Vec<double::streams::KeptEvent>);
    let changes: [(&str, Change); 5] = [
        ("x/run:a", |events| {
            let data = String::from_utf8(events[1].data.clone()).unwrap();
            events[1].data = data.replace("run.completed", "run.cancelled").into_bytes();
        }),
        // The last frame of a run and its hash, so that only the order stream shows it.
        ("x/run:a", |events| {
            let data = String::from_utf8(events[1].data.clone()).unwrap();
            let data = data.replace("run.completed", "run.cancelled");
            let hash = Hash::of(data.as_bytes());
            events[1].custom_metadata = format!(r#"{{"hash":"{hash}"}}"#).into_bytes();
            events[1].data = data.into_bytes();
        }),
        ("x/run:b", |events| events.clear()),
        ("x/run:a", |events| {
            let other =
                br#"{"hash":"0000000000000000000000000000000000000000000000000000000000000000"}"#;
            events[1].custom_metadata = other.to_vec();
        }),
        ("blob", |events| events[0].data[9] ^= 1),
    ];
    for (stream, change) in changes {
        let places = Places::new();
        let place = filled(&places);
        assert_eq!(problems(&place), []);
        let names = places.double.kept().names();
        let stream = names.iter().find(|name| name.contains(stream)).unwrap();
        places.double.kept().change(stream, change);
        // The local copy still has what was appended.
        let reader = place.reader().unwrap();
        assert_eq!(read_all(reader.as_ref(), &run("a"), 0).unwrap().len(), 2);
        assert_ne!(problems(&place), [], "{stream}");
    }
}

#[test]
fn frames_behind_some_that_are_gone_are_verified_too() {
    let places = Places::new();
    let place = filled(&places);
    places.double.kept().change("x/run:a", Vec::clear);
    let reader = place.snapshot().unwrap();
    let frames = reader.scan_frames(1, 1).unwrap();
    let names: Vec<_> = frames.iter().filter_map(|it| it.stream.clone()).collect();
    assert_eq!(names, ["run:b"]);
    assert_ne!(problems(&place), []);
}

#[test]
fn a_local_copy_can_be_removed_and_that_of_another_ledger_is_not_used() {
    let places = Places::new();
    let (address, cache) = (places.double.address(0, "x"), places.folder().join("one"));
    let at = || {
        address
            .parse::<EventStorePlace>()
            .unwrap()
            .with_cache(&cache)
    };
    let place = filled(&places);
    let frames = |place: &EventStorePlace| {
        let reader = place.reader().unwrap();
        read_all(reader.as_ref(), &run("a"), 0).unwrap()
    };
    let wanted = frames(&place);
    assert_eq!(frames(&at()), wanted);
    assert_eq!(
        at().reader()
            .unwrap()
            .row(&run("a"))
            .unwrap()
            .unwrap()
            .status,
        "complete"
    );
    std::fs::remove_dir_all(&cache).unwrap();
    assert_eq!(frames(&at()), wanted);
    // Two processes have a copy each.
    let (one, other) = (at(), at());
    let readers = (one.reader().unwrap(), other.reader().unwrap());
    assert_eq!(readers.0.last_position(), readers.1.last_position());
    drop((readers, one, other));
    // Another ledger at the same address begins a new copy.
    places.double.kept().forget();
    let again = at();
    assert!(again.make().unwrap());
    assert_eq!(frames(&again), []);
}

#[test]
fn a_ledger_that_has_lost_what_was_seen_of_it_is_refused() {
    let places = Places::new();
    let address = places.double.address(0, "x");
    let cache = places.folder().join("one");
    let at = || {
        address
            .parse::<EventStorePlace>()
            .unwrap()
            .with_cache(&cache)
    };
    let warm = filled(&places);
    let mut waiting = warm.claim().unwrap();
    assert!(at().reader().is_ok());
    places
        .double
        .kept()
        .change("x/ktsu:order", |events| drop(events.pop()));
    // Not even the next owner, which has seen it in this process, takes it.
    let refused = waiting.acquire().unwrap_err();
    assert!(refused.to_string().contains("has lost"), "{refused}");
    let refused = at().reader().err().unwrap();
    let StoreError::Damaged(why) = &refused else {
        panic!("{refused}");
    };
    assert!(why.contains("has lost"), "{why}");
}

/// Removes a run.
fn remove(store: &mut dyn Store, epoch: Epoch, name: &str) {
    let mut counts = ReferenceCounts::default();
    while counts.advance(store, 100).unwrap() {}
    let planned = counts
        .plan(store, &run(name), "complete", "retention")
        .unwrap();
    let draft = Draft {
        event: Event::Store(StoreEvent::RunRemoved(planned.event)),
        ..opened(1)
    };
    let tail = store.tail(&store_stream()).unwrap();
    let removing = entry(
        &store_stream(),
        tail.map(|it| (it.seq, it.hash)),
        vec![draft],
    );
    let removing = removing.with_removals(vec![planned.removal]).unwrap();
    let answers = store.append(epoch, &[removing]).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[test]
fn a_run_that_was_removed_is_gone_from_the_server_and_from_every_copy() {
    for is_late in [false, true] {
        let places = Places::new();
        let place = places.ledger();
        let (mut store, epoch) = own(&place);
        let big = || completed("s", payload(70_000, 1));
        let entries = [
            entry(&store_stream(), None, vec![opened(1)]),
            entry(&run("a"), None, vec![big(), ended()]),
            entry(&run("b"), None, vec![ended()]),
        ];
        store.append(epoch, &entries).unwrap();
        places.double.kept().keeps_all = is_late;
        remove(store.as_mut(), epoch, "a");
        assert_eq!(store.tail(&run("a")).unwrap(), None);
        let is_gone = || places.double.kept().seen("x/run:a").is_err();
        assert_eq!(is_gone(), !is_late);
        places.double.kept().keeps_all = false;
        // The blob may come again before it is deleted, and stays then.
        let again = entry(&run("c"), None, vec![big()]);
        let hash = again.blobs().first().unwrap().hash;
        if is_late {
            let answers = store.append(epoch, std::slice::from_ref(&again)).unwrap();
            assert_eq!(answers, [Ok(0)]);
        }
        // The next owner deletes what is left.
        let (mut store, epoch) = own(&places.elsewhere(&place));
        assert!(is_gone());
        let blob = format!("x/blob:{hash}");
        let chunks = places
            .double
            .kept()
            .seen(&blob)
            .unwrap()
            .map_or(0, <[_]>::len);
        assert_eq!(chunks, usize::from(is_late));
        assert_eq!(problems(&places.elsewhere(&place)), []);
        if !is_late {
            assert_eq!(store.append(epoch, &[again]).unwrap(), [Ok(0)]);
        }
        own(&places.elsewhere(&place));
        let elsewhere = places.elsewhere(&place);
        assert_eq!(problems(&elsewhere), []);
        let reader = elsewhere.reader().unwrap();
        assert!(reader.blob_get(&hash).unwrap().is_some());
        assert_eq!(reader.tail(&run("a")).unwrap(), None);
        assert!(reader.removed(&run("a")).unwrap().is_some());
        assert_eq!(reader.last_position().unwrap(), 6);
    }
}

#[test]
fn a_blob_that_was_removed_is_not_missed_where_it_came_with_other_frames() {
    let places = Places::new();
    let place = places.ledger();
    let (mut store, epoch) = own(&place);
    let naming = entry(&run("a"), None, vec![completed("s", payload(70_000, 1))]);
    let other = entry(&run("b"), None, vec![ended()]);
    let bringing = Entry::from_records(
        other.stream(),
        other.records().to_vec(),
        naming.blobs().to_vec(),
    );
    let bringing = bringing.unwrap();
    assert_eq!(
        store.append(epoch, &[bringing, naming]).unwrap(),
        [Ok(0), Ok(0)]
    );
    remove(store.as_mut(), epoch, "a");
    let elsewhere = places.elsewhere(&place);
    assert_eq!(problems(&elsewhere), []);
    assert!(
        elsewhere
            .reader()
            .unwrap()
            .tail(&run("b"))
            .unwrap()
            .is_some()
    );
}

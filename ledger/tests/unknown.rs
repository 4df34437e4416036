//! A store that is far away: what became of an append may not be known, and is found out.

#![allow(clippy::unwrap_used)]

#[path = "support/late.rs"]
mod late;
mod support;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use ktsu_ledger::appender::{AppendError, Appender, AppenderThread, Committed, Options};
use ktsu_ledger::store::{AppendRefusal, Entry, read_all};
use ktsu_ledger::verify::{self, verify};
use ktsu_ledger::{Backend as _, Ledger, LedgerPlace, Reader, StreamId};
use late::{Fate, Remote};
use support::{completed, ended, entry, payload, run};

type Outcome = Result<Committed, AppendError>;

fn start(remote: &Remote, options: Options) -> (Appender, AppenderThread) {
    Appender::start(remote.store().unwrap(), options).unwrap()
}

/// Two frames of each of five streams, one entry each.
fn ten() -> Vec<Entry> {
    let mut entries = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let first = entry(&run(name), None, vec![completed("one", payload(70_000, 1))]);
        let after = Some((first.tail().seq, first.tail().hash));
        entries.push(first);
        entries.push(entry(&run(name), after, vec![ended()]));
    }
    entries
}

/// Appends the first entry alone, and the others as one transaction: they wait meanwhile.
fn append_together(remote: &Remote, appender: &Appender, entries: Vec<Entry>) -> Vec<Outcome> {
    let held = remote.hold();
    let (tell, told) = mpsc::channel();
    for (place, entry) in entries.into_iter().enumerate() {
        let tell = tell.clone();
        appender.submit(entry, Box::new(move |outcome| tell.send(outcome).unwrap()));
        while place == 0 && appender.queued().0 > 0 {
            std::thread::yield_now();
        }
    }
    drop((held, tell));
    told.iter().collect()
}

fn before() -> Entry {
    entry(&run("before"), None, vec![ended()])
}

fn is_sound(reader: &dyn Reader) {
    let report = verify(reader, &verify::VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, vec![]);
}

#[test]
fn whatever_became_of_an_append_every_entry_is_stored_once_and_said_to_be() {
    use Fate::{Answered, Late, Partly, ReplyLost, RequestLost};
    for fates in [
        vec![ReplyLost],
        vec![RequestLost],
        vec![Partly],
        vec![Late],
        vec![Partly, Partly, Partly],
        vec![Late, Late, ReplyLost],
        vec![RequestLost, Late, Partly, RequestLost],
    ] {
        let remote = Remote::new();
        let orders = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&orders);
        let options = Options {
            on_commit: Some(Box::new(move |commit| {
                let entries = commit.entries.len();
                heard.lock().unwrap().push((entries, commit.is_ordered));
            })),
            ..Options::default()
        };
        let (appender, thread) = start(&remote, options);
        remote.script(&[&[Answered][..], &fates].concat());
        let entries: Vec<Entry> = std::iter::once(before()).chain(ten()).collect();
        let outcomes = append_together(&remote, &appender, entries.clone());
        for (entry, outcome) in entries.iter().zip(outcomes) {
            let committed = outcome.unwrap();
            assert_eq!(committed.hash, entry.tail().hash, "{fates:?}");
        }
        assert_eq!(appender.counters().settled, 1, "{fates:?}");
        assert_eq!(appender.counters().frames, 11);
        assert_eq!(appender.failed(), None);
        thread.shutdown().unwrap();
        assert_eq!(*orders.lock().unwrap(), [(1, true), (10, false)]);
        for name in ["a", "b", "c", "d", "e"] {
            let stored = read_all(&remote.kept(), &run(name), 0).unwrap();
            assert_eq!(stored.len(), 2, "{fates:?}");
        }
        is_sound(&remote.kept());
    }
}

#[test]
fn an_error_is_final_and_nothing_is_read_back_or_sent_again() {
    let remote = Remote::new();
    let (appender, thread) = start(&remote, Options::default());
    remote.script(&[Fate::Answered, Fate::Fails]);
    let entries = std::iter::once(before()).chain(ten()).collect();
    let outcomes = append_together(&remote, &appender, entries);
    let stopped = |outcome: &Outcome| matches!(outcome, Err(AppendError::Stopped { .. }));
    assert!(outcomes.iter().skip(1).all(stopped));
    assert_eq!(remote.sent(), 2);
    assert_eq!(appender.counters().settled, 0);
    assert!(appender.failed().unwrap().contains("no space left"));
    assert!(thread.shutdown().is_err());
}

#[test]
fn an_error_while_an_outcome_is_settled_is_final_too() {
    let remote = Remote::new();
    let (appender, thread) = start(&remote, Options::default());
    remote.script(&[Fate::RequestLost, Fate::Fails]);
    let outcome = appender.append(before());
    assert!(matches!(outcome, Err(AppendError::Stopped { .. })));
    assert_eq!(remote.sent(), 2);
    assert!(thread.shutdown().is_err());
}

/// What it was is found out by whoever opens the ledger next.
#[test]
fn an_outcome_that_stays_unknown_ends_the_appender_which_acknowledges_nothing() {
    let remote = Remote::new();
    let options = Options {
        unknown_timeout: Duration::ZERO,
        ..Options::default()
    };
    let (appender, thread) = start(&remote, options);
    remote.script(&[Fate::RequestLost, Fate::RequestLost]);
    let outcome = appender.append(before());
    let Err(AppendError::Stopped { reason }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(reason.contains("it is unknown whether"), "{reason}");
    let late = appender.append(ten().remove(0));
    assert_eq!(late, Err(AppendError::Stopped { reason }));
    assert_eq!(remote.sent(), 2, "nothing after the error");
    assert!(thread.shutdown().is_err());
    let (next, thread) = start(&remote, Options::default());
    next.append(before()).unwrap();
    thread.shutdown().unwrap();
}

#[test]
fn an_appender_that_is_asked_to_stop_sends_nothing_again() {
    let remote = Remote::new();
    let (appender, thread) = start(&remote, Options::default());
    remote.script(&[Fate::RequestLost]);
    let held = remote.hold();
    let (tell, told) = mpsc::channel();
    let done = move |outcome| tell.send(outcome).unwrap();
    appender.submit(before(), Box::new(done));
    while appender.queued().0 > 0 {
        std::thread::yield_now();
    }
    appender.stop("told to");
    drop(held);
    assert!(matches!(
        told.recv().unwrap(),
        Err(AppendError::Stopped { .. })
    ));
    assert_eq!(remote.sent(), 1);
    assert!(thread.shutdown().is_err());
}

/// Reads that are lost, too, do not make a large transaction begin again from its start.
#[test]
fn a_large_transaction_is_settled_although_many_reads_of_it_are_lost() {
    let remote = Remote::lossy(3);
    let (appender, thread) = start(&remote, Options::default());
    remote.script(&[Fate::Answered, Fate::RequestLost]);
    let draft = || completed("one", payload(20, 1));
    let many = (0..300).map(|name| entry(&run(&format!("r{name}")), None, vec![draft()]));
    let outcomes = append_together(&remote, &appender, many.collect());
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        300
    );
    thread.shutdown().unwrap();
    is_sound(&remote.kept());
}

/// Neither a frame of somebody else at its place nor the same entry twice is taken for it.
#[test]
fn a_refusal_is_still_one_where_the_outcome_was_not_known() {
    for fate in [Fate::ReplyLost, Fate::RequestLost, Fate::Partly, Fate::Late] {
        let remote = Remote::new();
        let (appender, thread) = start(&remote, Options::default());
        remote.script(&[Fate::Answered, fate]);
        let other = entry(&run("a"), None, vec![completed("x", payload(5, 5))]);
        let first = ten().remove(0);
        let bad = entry(&run("z"), Some((3, first.tail().hash)), vec![ended()]);
        let entries = vec![before(), first.clone(), first, other, bad];
        let outcomes = append_together(&remote, &appender, entries);
        assert!(
            outcomes[0].is_ok() && outcomes[1].is_ok(),
            "{fate:?} {outcomes:?}"
        );
        for (place, expected, actual) in
            [(2, None, Some(0)), (3, None, Some(0)), (4, Some(3), None)]
        {
            let Err(AppendError::Refused(AppendRefusal::Conflict {
                expected: e,
                actual: a,
                ..
            })) = &outcomes[place]
            else {
                panic!("{fate:?}, {place}: {:?}", outcomes[place]);
            };
            assert_eq!((*e, *a), (expected, actual), "{fate:?}, {place}");
        }
        assert_eq!(appender.counters().frames, 2);
        thread.shutdown().unwrap();
    }
}

/// Its retry is refused by the store, whatever was stored of the first attempt.
#[test]
fn an_owner_that_was_fenced_while_an_outcome_was_unknown_sends_nothing_more() {
    let remote = Remote::new();
    let (older, older_thread) = start(&remote, Options::default());
    remote.script(&[Fate::RequestLost]);
    let mut newer = remote.store().unwrap();
    let epoch = newer.acquire().unwrap();
    let outcome = older.append(before());
    assert!(
        matches!(outcome, Err(AppendError::Stopped { .. })),
        "{outcome:?}"
    );
    assert!(older.failed().unwrap().contains("newer owner"));
    assert!(older_thread.shutdown().is_err());
    newer.append(epoch, &ten()).unwrap();
    assert_eq!(remote.kept().tail(&run("before")).unwrap(), None);
}

/// Owners come and go, half of their appends are of unknown outcome: what was acknowledged is
/// stored, each stream is one chain, and nothing is stored twice.
#[test]
fn nothing_acknowledged_is_lost_over_random_histories() {
    for seed in 1..=25u64 {
        let remote = Remote::lossy(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let ledger = Ledger::open(LedgerPlace::Backend(Arc::new(remote.clone())));
        let streams: Vec<StreamId> = ["a", "b", "c", "d"].map(run).to_vec();
        for owner in 0..3u64 {
            let store = ledger.own(0).unwrap().store;
            let (appender, thread) = Appender::start(store, Options::default()).unwrap();
            let reader = ledger.reader().unwrap();
            let mut ends: Vec<_> = streams
                .iter()
                .map(|stream| {
                    reader
                        .tail(stream)
                        .unwrap()
                        .map(|tail| (tail.seq, tail.hash))
                })
                .collect();
            let (tell, told) = mpsc::channel();
            for round in 0..12u64 {
                let at = usize::try_from((seed + owner + round * 7) % 4).unwrap();
                let draft = completed("one", payload(30, seed + round));
                let made = entry(&streams[at], ends[at], vec![draft]);
                ends[at] = Some((made.tail().seq, made.tail().hash));
                let tell = tell.clone();
                let done = move |outcome: Outcome| tell.send(outcome).unwrap();
                appender.submit(made, Box::new(done));
            }
            drop(tell);
            let outcomes: Vec<Outcome> = told.iter().collect();
            assert!(outcomes.iter().all(Result::is_ok), "{seed}: {outcomes:?}");
            thread.shutdown().unwrap();
            for (stream, end) in streams.iter().zip(&ends) {
                let tail = remote.kept().tail(stream).unwrap();
                assert_eq!(tail.map(|tail| (tail.seq, tail.hash)), *end, "{seed}");
            }
        }
        is_sound(&remote.kept());
        let report = ledger
            .verify(&verify::VerifyOptions::default(), &mut Nobody)
            .unwrap();
        assert_eq!((report.frames, report.problems), (36, vec![]), "{seed}");
    }
}

struct Nobody;

impl verify::VerifyObserver for Nobody {}

//! Removing streams: what is deleted, what is left, and what the rest of the ledger shows.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "support/postgres.rs"]
mod postgres;
mod support;

use std::path::Path;

use ktsu_ledger::event::{BranchCreated, Effects, RunEvent, RunRemoved, StoreEvent};
use ktsu_ledger::merkle::Node;
use ktsu_ledger::removal::{PlanRemovalError, PlannedRemoval, ReferenceCounts, RemovedLeaves};
use ktsu_ledger::store::{AppendRefusal, MemoryStore, SqliteStore, read_all};
use ktsu_ledger::verify::{VerifyOptions, verify};
use ktsu_ledger::{
    Actor, Backend as _, Cause, Draft, Entry, Epoch, Event, Hash, Reader, Store, StoreError,
    StreamId,
};
use support::{caused, completed, created, ended, entry, opened, payload, row, run, store_stream};

fn draft(event: Event) -> Draft {
    Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: Vec::new(),
        event,
    }
}

fn view(store: &dyn Reader) -> &dyn Reader {
    store
}

fn end_of(store: &dyn Reader, stream: &StreamId) -> Option<(u64, Hash)> {
    let tail = store.tail(stream).unwrap()?;
    Some((tail.seq, tail.hash))
}

fn add(store: &mut dyn Store, epoch: Epoch, stream: &StreamId, drafts: Vec<Draft>) {
    let entry = entry(stream, end_of(store, stream), drafts);
    let entry = match stream.kind() {
        "store" => entry,
        _ => entry.with_index(row(stream, "w", "complete", 1)).unwrap(),
    };
    let appended = store.append(epoch, &[entry]).unwrap();
    assert!(appended.iter().all(Result::is_ok), "{appended:?}");
}

/// The frames of two runs, interleaved, with a blob of each, one of both, and a definition that both
/// share.
fn fill(store: &mut dyn Store) -> Epoch {
    let epoch = store.acquire().unwrap();
    let big = |salt| payload(70_000, salt);
    add(store, epoch, &store_stream(), vec![opened(epoch.0)]);
    for name in ["a", "b"] {
        add(store, epoch, &run(name), vec![created("w")]);
    }
    for (name, salt) in [("a", 1), ("b", 2), ("a", 3), ("b", 3), ("a", 1)] {
        add(store, epoch, &run(name), vec![completed("s", big(salt))]);
    }
    for name in ["a", "b"] {
        add(store, epoch, &run(name), vec![ended()]);
    }
    epoch
}

fn references(store: &dyn Reader) -> ReferenceCounts {
    let mut references = ReferenceCounts::default();
    while references.advance(store, 3).unwrap() {}
    references
}

fn plan(store: &dyn Reader, name: &str) -> Result<PlannedRemoval, PlanRemovalError> {
    references(store).plan(store, &run(name), "complete", "retention")
}

fn removing(store: &dyn Reader, planned: &[PlannedRemoval]) -> Entry {
    let events = planned.iter().map(|planned| {
        let removed: RunRemoved = planned.event.clone();
        draft(Event::Store(StoreEvent::RunRemoved(removed)))
    });
    let entry = entry(
        &store_stream(),
        end_of(store, &store_stream()),
        events.collect(),
    );
    let removals = planned.iter().map(|planned| planned.removal.clone());
    entry.with_removals(removals.collect()).unwrap()
}

fn remove(store: &mut dyn Store, epoch: Epoch, name: &str) -> Result<u64, AppendRefusal> {
    let entry = removing(store, &[plan(store, name).unwrap()]);
    store.append(epoch, &[entry]).unwrap().remove(0)
}

fn sound(store: &dyn Reader) {
    let report = verify(store, &VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, vec![]);
    assert_eq!(report.unreferenced_blobs, 0);
}

fn on_each(test: impl Fn(&mut dyn Store)) {
    test(&mut MemoryStore::new());
    let folder = tempfile::tempdir().unwrap();
    test(&mut SqliteStore::open(&folder.path().join("ledger.db")).unwrap());
    if let Some(server) = postgres::Server::get() {
        test(server.ledger().0.store().unwrap().as_mut());
        test(server.restricted().0.store().unwrap().as_mut());
        test(server.prepared().store().unwrap().as_mut());
    }
}

#[test]
fn a_removed_run_is_gone_and_everything_else_is_as_it_was() {
    on_each(|store| {
        let epoch = fill(store);
        let before = view(store).scan_frames(1, 100).unwrap();
        let others = read_all(store, &run("b"), 0).unwrap();
        remove(store, epoch, "a").unwrap();
        assert_eq!(store.tail(&run("a")).unwrap(), None);
        assert_eq!(store.read(&run("a"), 0, 10).unwrap(), vec![]);
        assert_eq!(store.row(&run("a")).unwrap(), None);
        assert!(!store.streams(None, 10).unwrap().contains(&run("a")));
        assert_eq!(read_all(store, &run("b"), 0).unwrap(), others);
        // The blob of both and the definition stay; positions stay what they were.
        assert_eq!(view(store).scan_blobs(1, 100).unwrap().len(), 3);
        for frame in view(store).scan_frames(1, 100).unwrap() {
            let same = before.iter().find(|other| other.position == frame.position);
            assert!(same.is_none_or(|same| *same == frame));
        }
        sound(store);
        let removed = view(store).removed(&run("a")).unwrap().unwrap();
        assert_eq!((removed.event.first, removed.event.frames), (0, 5));
        assert_eq!(removed.event.status, "complete");
        remove(store, epoch, "b").unwrap();
        assert_eq!(view(store).scan_blobs(1, 100).unwrap(), vec![]);
        sound(store);
    });
}

#[test]
fn a_run_so_long_that_its_leaves_are_a_blob_is_removed_like_any_other() {
    on_each(|store| {
        let epoch = fill(store);
        let step = || completed("s", payload(10, 1));
        add(
            store,
            epoch,
            &run("b"),
            (0..3_000).map(|_| step()).collect(),
        );
        let before = view(store).scan_frames(1, 10_000).unwrap();
        remove(store, epoch, "b").unwrap();
        let removed = view(store).removed(&run("b")).unwrap().unwrap();
        assert_eq!(removed.event.frames, 3_004);
        sound(store);
        let mut leaves = RemovedLeaves::of(store).unwrap();
        let gone = before
            .iter()
            .rev()
            .find(|frame| frame.stream.as_deref() == Some("run:b"));
        let gone = gone.unwrap();
        let leaf = leaves.leaf(gone.position).unwrap();
        assert_eq!(leaf, Some(Node::leaf(&gone.body)));
    });
}

#[test]
fn a_run_that_goes_on_in_the_call_that_removes_it_stays() {
    on_each(|store| {
        let epoch = fill(store);
        let planned = plan(view(store), "a").unwrap();
        let removal = removing(view(store), &[planned]);
        let more = entry(&run("a"), end_of(store, &run("a")), vec![ended()]);
        let frames = read_all(view(store), &run("a"), 0).unwrap().len();
        let answers = store.append(epoch, &[more, removal]).unwrap();
        assert!(answers[0].is_ok(), "{answers:?}");
        let refused = answers[1].as_ref().unwrap_err();
        assert!(
            matches!(refused, AppendRefusal::Conflict { .. }),
            "{refused}"
        );
        let left = read_all(view(store), &run("a"), 0).unwrap().len();
        assert_eq!(left, frames + 1);
        sound(store);
    });
}

#[test]
fn an_owner_that_was_overtaken_removes_nothing() {
    on_each(|store| {
        let stale = fill(store);
        let planned = plan(view(store), "a").unwrap();
        let removal = removing(view(store), &[planned]);
        let epoch = store.acquire().unwrap();
        let refused = store
            .append(stale, std::slice::from_ref(&removal))
            .unwrap_err();
        assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
        assert!(!read_all(view(store), &run("a"), 0).unwrap().is_empty());
        assert!(
            store
                .append(epoch, &[removal])
                .unwrap()
                .iter()
                .all(Result::is_ok)
        );
        assert_eq!(read_all(view(store), &run("a"), 0).unwrap(), []);
    });
}

#[test]
fn the_leaves_of_removed_frames_stay_at_their_positions() {
    on_each(|store| {
        let epoch = fill(store);
        let before = view(store).scan_frames(1, 100).unwrap();
        remove(store, epoch, "a").unwrap();
        remove(store, epoch, "b").unwrap();
        let mut leaves = RemovedLeaves::of(store).unwrap();
        for frame in &before {
            let gone = frame.stream.as_deref() != Some("store");
            let leaf = gone.then(|| Node::leaf(&frame.body));
            assert_eq!(leaves.leaf(frame.position).unwrap(), leaf);
        }
    });
}

#[test]
fn a_removed_name_is_not_used_again() {
    on_each(|store| {
        let epoch = fill(store);
        let after = end_of(store, &run("a"));
        remove(store, epoch, "a").unwrap();
        for after in [None, after] {
            let again = entry(&run("a"), after, vec![ended()]);
            let refused = store.append(epoch, &[again]).unwrap().remove(0);
            assert_eq!(refused, Err(AppendRefusal::Removed(run("a"))));
        }
        // Its frames are still causes.
        let later = caused(ended(), vec![Cause::There(run("a"), 4)]);
        add(store, epoch, &run("c"), vec![later]);
        let beyond = caused(ended(), vec![Cause::There(run("a"), 5)]);
        let refused = store.append(epoch, &[entry(&run("d"), None, vec![beyond])]);
        assert!(matches!(
            refused.unwrap()[0],
            Err(AppendRefusal::NoSuchCause { .. })
        ));
        sound(store);
    });
}

fn branch_of(store: &dyn Reader, parent: &str, shared: u64) -> Entry {
    let stream = StreamId::run("branch_x").unwrap();
    let found = store.read(&run(parent), shared - 1, 1).unwrap().remove(0);
    let created = BranchCreated {
        branch_id: "branch_x".to_owned(),
        parent_run_id: parent.to_owned(),
        fork_position: shared,
        ..branch()
    };
    let drafts = vec![draft(Event::Run(RunEvent::Branched(Box::new(created))))];
    let entry = entry(&stream, Some((shared - 1, found.hash)), drafts);
    entry.with_index(row(&stream, "w", "complete", 2)).unwrap()
}

fn branch() -> BranchCreated {
    let text = r#"{"branch_id":"x","by":{"auth":"none","id":"local"},"effects":"suppress",
        "engine":"ktsu","fork_position":1,"parent_run_id":"x","reason":"","rules":2}"#;
    let branch: BranchCreated = serde_json::from_str(text).unwrap();
    assert_eq!(branch.effects, Effects::Suppress);
    branch
}

#[test]
fn a_parent_of_a_branch_stays_even_if_the_branch_came_after_the_plan() {
    on_each(|store| {
        let epoch = fill(store);
        let planned = plan(store, "a").unwrap();
        let forked = branch_of(store, "a", 2);
        assert_eq!(store.append(epoch, &[forked]).unwrap(), [Ok(2)]);
        let late = removing(store, &[planned]);
        let refused = store.append(epoch, &[late]).unwrap().remove(0);
        assert!(matches!(refused, Err(AppendRefusal::HasBranch { .. })));
        assert!(matches!(
            plan(store, "a"),
            Err(PlanRemovalError::HasBranch(_))
        ));
        sound(store);
        // Once the branch is gone, nothing reads the parent any more.
        let mut references = references(store);
        let branch = StreamId::run("branch_x").unwrap();
        let first = references
            .plan(store, &branch, "complete", "retention")
            .unwrap();
        references.forget(&first);
        let parent = references.plan(store, &run("a"), "complete", "retention");
        let both = removing(store, &[first, parent.unwrap()]);
        assert!(store.append(epoch, &[both]).unwrap()[0].is_ok());
        sound(store);
    });
}

#[test]
fn a_run_that_went_on_after_the_plan_stays() {
    on_each(|store| {
        let epoch = fill(store);
        let planned = plan(store, "a").unwrap();
        add(store, epoch, &run("a"), vec![ended()]);
        let refused = store.append(epoch, &[removing(store, &[planned])]).unwrap();
        assert!(matches!(refused[0], Err(AppendRefusal::Conflict { .. })));
        assert_eq!(read_all(store, &run("a"), 0).unwrap().len(), 6);
        sound(store);
    });
}

#[test]
fn a_blob_that_was_named_after_the_plan_stays() {
    on_each(|store| {
        let epoch = fill(store);
        let planned = plan(store, "a").unwrap();
        assert_eq!(planned.removal.blobs.len(), 1);
        let again = completed("s", payload(70_000, 1));
        add(store, epoch, &run("c"), vec![again]);
        assert!(store.append(epoch, &[removing(store, &[planned])]).unwrap()[0].is_ok());
        assert!(view(store).scan_blobs(1, 100).unwrap().len() == 4);
        sound(store);
    });
}

#[test]
fn the_first_frame_of_a_ledger_stays() {
    on_each(|store| {
        let epoch = store.acquire().unwrap();
        add(store, epoch, &run("a"), vec![ended()]);
        add(store, epoch, &store_stream(), vec![opened(1)]);
        assert_eq!(
            plan(store, "a"),
            Err(PlanRemovalError::FirstFrame(run("a")))
        );
    });
}

#[test]
fn what_is_deleted_is_not_found_in_the_file_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let epoch = fill(&mut store);
    let canary = ktsu_ledger::CanonicalJson::string(&"a canary in a mine ".repeat(5_000));
    let small = ktsu_ledger::CanonicalJson::string("a canary in a mine");
    let drafts = vec![completed("s", canary), completed("t", small)];
    add(&mut store, epoch, &run("c"), drafts);
    remove(&mut store, epoch, "c").unwrap();
    drop(store);
    let holds = |path: &Path| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes
            .windows(18)
            .any(|window| window == b"a canary in a mine")
    };
    assert!(!holds(&path) && !holds(&folder.path().join("ledger.db-wal")));
    sound(&SqliteStore::open(&path).unwrap());
}

#[test]
fn a_removal_that_does_not_match_its_frame_makes_no_entry() {
    let mut store = MemoryStore::new();
    fill(&mut store);
    let planned = plan(&store, "a").unwrap();
    let entry = entry(&store_stream(), None, vec![opened(1)]);
    assert!(entry.with_removals(vec![planned.removal]).is_err());
}

/// Nothing of a transaction is acknowledged before its end: the server does not lack what was rolled back.
#[test]
fn a_removal_that_is_cut_in_the_middle_on_a_server_is_rolled_back_and_can_be_made_again() {
    let Some(server) = postgres::Server::get() else {
        return;
    };
    let (place, schema) = server.ledger();
    let mut store = place.store().unwrap();
    let store = store.as_mut();
    let epoch = fill(store);
    let planned = plan(view(store), "a").unwrap();
    let removal = removing(view(store), std::slice::from_ref(&planned));
    // The table is locked until the connection that waits for it is ended.
    let locks = format!("FROM pg_locks WHERE relation = '{schema}.removals'::regclass AND");
    let cut = format!(
        "DO $$ BEGIN LOCK TABLE {schema}.removals IN SHARE MODE; \
         WHILE (SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) {locks} NOT granted) = 0 \
         LOOP PERFORM pg_sleep(0.01); END LOOP; END $$"
    );
    let answered = std::thread::scope(|scope| {
        let cutting = scope.spawn(|| server.sql(&cut));
        let is_locked = format!("SELECT 1 / count(*) {locks} mode = 'ShareLock' AND granted");
        while server.refusal(&is_locked).is_some() {}
        let answered = store.append(epoch, std::slice::from_ref(&removal));
        cutting.join().unwrap();
        answered
    });
    assert!(
        matches!(answered, Err(StoreError::Unknown(_))),
        "{answered:?}"
    );
    assert!(store.tail(&run("a")).unwrap().is_some());
    let appended = store.append(epoch, &[removal]).unwrap();
    assert!(appended.iter().all(Result::is_ok), "{appended:?}");
    assert_eq!(store.tail(&run("a")).unwrap(), None);
    let report = verify(view(store), &VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, []);
}

#[test]
fn an_owner_renews_its_ownership_while_it_removes_a_long_run_and_others_may_look_at_it() {
    let Some(server) = postgres::Server::alone() else {
        return;
    };
    let (place, schema) = server.ledger();
    let mut store = place.store().unwrap();
    let epoch = fill(store.as_mut());
    let step = || completed("s", payload(10, 1));
    let steps = (0..7_000).map(|_| step()).collect();
    add(store.as_mut(), epoch, &run("b"), steps);
    let removing = removing(store.as_ref(), &[plan(store.as_ref(), "b").unwrap()]);
    server.sql(&format!(
        "SET search_path = {schema};
         CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN OLD; END $$;
         CREATE TRIGGER waits BEFORE DELETE ON frames FOR EACH ROW WHEN (OLD.seq = 6000) EXECUTE FUNCTION wait();
         CREATE TABLE before AS SELECT beat FROM ledger"
    ));
    let of_holder = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    let is_there = |what: &str| {
        let question = format!("SET search_path = {schema}; SELECT 1 / count(*) {what}");
        server.refusal(&question).is_none()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| server.refusal("SELECT pg_advisory_lock(1); SELECT pg_sleep(60)"));
        while !is_there(of_holder) {}
        let removed = scope.spawn(|| store.append(epoch, &[removing]).unwrap());
        while !is_there("FROM pg_stat_activity WHERE wait_event = 'advisory'") {}
        assert!(is_there(
            "FROM ledger, before WHERE ledger.beat > before.beat"
        ));
        let lock = format!("SET search_path = {schema}; SELECT beat FROM ledger FOR UPDATE NOWAIT");
        assert_eq!(server.refusal(&lock), None);
        server.sql(&format!("SELECT pg_terminate_backend(pid) {of_holder}"));
        assert!(removed.join().unwrap()[0].is_ok());
    });
    sound(place.reader().unwrap().as_ref());
}

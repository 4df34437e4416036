//! A ledger is copied whole, from any store to any other, or it is not copied.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

#[path = "support/history.rs"]
mod history;
#[path = "support/late.rs"]
mod late;
#[path = "support/postgres.rs"]
mod postgres;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

use history::{EPOCH, History};
use ktsu_ledger::copy::{Copied, CopyError, copy};
use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::merkle::{self, Node};
use ktsu_ledger::removal::{ReferenceCounts, RemovedLeaves};
use ktsu_ledger::store::{
    AppendRefusal, Entry, Filter, IndexRow, MemoryStore, RawFrame, SqliteReader, SqliteStore,
};
use ktsu_ledger::verify::{VerifyOptions, verify};
use ktsu_ledger::{
    Actor, Backend as _, Draft, Event, Frame, Hash, Reader, Record, Store, StoreError, StreamId,
};
use late::Remote;
use support::{completed, created, ended, entry, payload, row, run};

fn view(store: &dyn Reader) -> &dyn Reader {
    store
}

fn copied(from: &dyn Reader, to: &mut dyn Store) -> Result<Copied, CopyError> {
    copy(from, to, &mut |_| {})
}

/// Everything that a ledger has.
#[derive(Debug, PartialEq)]
struct Content {
    frames: Vec<RawFrame>,
    blobs: Vec<(Vec<u8>, Vec<u8>)>,
    rows: Vec<IndexRow>,
}

impl Content {
    fn of(reader: &dyn Reader) -> Self {
        let mut frames: Vec<RawFrame> = Vec::new();
        loop {
            let next = frames.last().map_or(0, |frame| frame.position + 1);
            match reader.scan_frames(next, 10_000).unwrap() {
                page if page.is_empty() => break,
                page => frames.extend(page),
            }
        }
        let blobs = reader.scan_blobs(0, 10_000).unwrap().into_iter();
        let mut blobs: Vec<_> = blobs.map(|blob| (blob.hash, blob.body)).collect();
        blobs.sort();
        let rows = reader.list(&Filter::default(), None, 10_000).unwrap().rows;
        Self {
            frames,
            blobs,
            rows,
        }
    }

    fn bytes(&self) -> usize {
        let frames = self.frames.iter().map(|frame| frame.body.len());
        frames.sum::<usize>() + self.blobs.iter().map(|(_, body)| body.len()).sum::<usize>()
    }

    fn root(&self) -> Node {
        let leaves = self.frames.iter().map(|frame| Node::leaf(&frame.body));
        merkle::root(&leaves.collect::<Vec<_>>())
    }
}

fn epoch_of(reader: &dyn Reader) -> u64 {
    reader.auditor().unwrap().inspect().epoch.unwrap()
}

/// Checks that a ledger has what its source has, and that the result of the copy says so.
fn is_copy(from: &dyn Reader, to: &dyn Reader, result: &Copied) {
    let (source, target) = (Content::of(from), Content::of(to));
    assert_eq!(source, target);
    assert_eq!(result.frames, source.frames.len() as u64);
    let streams = from.streams(None, 10_000).unwrap();
    assert_eq!(result.streams, streams.len() as u64);
    assert_eq!(result.blobs, source.blobs.len() as u64);
    assert_eq!(result.bytes, source.bytes() as u64);
    assert_eq!(result.root, source.root());
    let report = verify(to, &VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, vec![]);
}

/// Checks that nothing was written to a new store.
fn is_untouched(store: &dyn Reader) {
    let content = Content::of(store);
    assert_eq!((content.frames, content.rows), (vec![], vec![]));
    assert_eq!(epoch_of(store), 0);
}

/// A ledger in a file.
struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn of(history: &History) -> Self {
        let file = Self::new();
        copied(&history.store, &mut file.store()).unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.path()).unwrap()
    }

    fn reader(&self) -> SqliteReader {
        SqliteReader::open(&self.path()).unwrap()
    }

    /// Runs some SQL without the triggers that keep frames as they are.
    fn forge(&self, script: &str) {
        let tool = rusqlite::Connection::open(self.path()).unwrap();
        let question = "SELECT name FROM sqlite_schema WHERE type = 'trigger'";
        let mut statement = tool.prepare(question).unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        let names: Vec<String> = names.map(Result::unwrap).collect();
        for name in names {
            tool.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
        }
        tool.execute_batch(script).unwrap();
    }
}

#[test]
fn a_copy_to_a_file_and_back_to_memory_is_the_same_ledger() {
    for seed in 0..8 {
        let history = History::new(seed, 40);
        let file = File::new();
        let result = copied(&history.store, &mut file.store()).unwrap();
        is_copy(&history.store, &file.reader(), &result);
        let mut memory = MemoryStore::new();
        let again = copied(&file.reader(), &mut memory).unwrap();
        assert_eq!(again, result);
        is_copy(&history.store, &memory, &again);
    }
}

#[test]
fn a_copy_to_a_server_and_back_to_a_file_is_the_same_ledger() {
    let Some(server) = postgres::Server::get() else {
        return;
    };
    for seed in 10..13 {
        let source = File::of(&History::new(seed, 40));
        let (place, _) = server.ledger();
        let result = copied(&source.reader(), place.store().unwrap().as_mut()).unwrap();
        let on_server = place.reader().unwrap();
        is_copy(&source.reader(), on_server.as_ref(), &result);
        let file = File::new();
        let again = copied(on_server.as_ref(), &mut file.store()).unwrap();
        is_copy(&source.reader(), &file.reader(), &again);
    }
}

#[test]
fn a_stream_that_is_longer_than_a_page_is_copied_in_batches() {
    let mut history = History::new(1, 2);
    let drafts = |salt| completed("s", payload(60_000, salt));
    history.append(entry(&run("a"), None, (0..200).map(drafts).collect()));
    let small = |salt| completed("s", payload(9, salt));
    history.append(entry(&run("b"), None, (0..2_500).map(small).collect()));
    let file = File::new();
    let mut steps = Vec::new();
    let result = copy(&history.store, &mut file.store(), &mut |frames| {
        steps.push(frames)
    })
    .unwrap();
    is_copy(&history.store, &file.reader(), &result);
    assert_eq!((steps[0], steps.last()), (0, Some(&result.frames)));
    assert!(steps.len() > 10 && steps.is_sorted(), "{steps:?}");
    let mut memory = MemoryStore::new();
    let again = copied(&file.reader(), &mut memory).unwrap();
    is_copy(&history.store, &memory, &again);
}

#[test]
fn more_streams_and_index_rows_than_a_page_are_copied() {
    let mut history = History::new(2, 1);
    for number in 0..1_100 {
        let stream = run(&format!("n{number}"));
        let begun = entry(&stream, None, vec![ended()]);
        let row = row(&stream, "w", "complete", number % 3);
        history.append(begun.with_index(row).unwrap());
    }
    let file = File::new();
    let result = copied(&history.store, &mut file.store()).unwrap();
    is_copy(&history.store, &file.reader(), &result);
    assert_eq!(result.streams, 1_101);
}

#[test]
fn a_target_that_does_not_keep_what_it_was_given_is_found() {
    let history = History::new(3, 20);
    let last = view(&history.store).last_position().unwrap();
    let name = &Content::of(&history.store).rows[0].stream;
    for (script, found) in [
        (
            "UPDATE frames SET body = body || ' ' WHERE pos = 3".to_owned(),
            "position 3",
        ),
        (format!("DELETE FROM frames WHERE pos = {last}"), "position"),
        (
            format!("UPDATE frames SET pos = pos + 1 WHERE pos = {last}"),
            "position",
        ),
        ("DELETE FROM blobs WHERE pos = 2".to_owned(), "the blob"),
        (
            "UPDATE blobs SET body = '1' WHERE pos = 2".to_owned(),
            "the blob",
        ),
        (
            "INSERT INTO frames (stream, seq, hash, body) SELECT stream, 99, hash, body
             FROM frames WHERE pos = 1"
                .to_owned(),
            "after the last",
        ),
        (
            format!(
                "CREATE TRIGGER quiet BEFORE INSERT ON index_rows WHEN NEW.stream = '{name}'
                     BEGIN SELECT RAISE(IGNORE); END"
            ),
            "the list of runs",
        ),
    ] {
        let file = File::new();
        let changed = copy(&history.store, &mut file.store(), &mut |frames| {
            if frames == last {
                file.forge(&script);
            }
        });
        let words = changed.unwrap_err().to_string();
        assert!(words.contains(found), "{script}: {words}");
    }
}

#[test]
fn an_empty_ledger_is_copied() {
    let mut memory = MemoryStore::new();
    let result = copied(&MemoryStore::new(), &mut memory).unwrap();
    is_copy(&MemoryStore::new(), &memory, &result);
    assert_eq!(result.root, Node::empty());
}

#[test]
fn a_target_with_the_first_entries_of_its_source_gets_the_others() {
    let history = History::new(20, 30);
    for count in 0..=history.entries.len() {
        let mut memory = MemoryStore::new();
        let epoch = memory.acquire().unwrap();
        let (mut before, mut frames) = (Vec::new(), 0);
        for entry in &history.entries[..count] {
            let answer = memory.append(epoch, std::slice::from_ref(entry)).unwrap();
            before.extend(answer.into_iter().map(Result::unwrap));
            frames += entry.records().len() as u64;
        }
        let result = copied(&history.store, &mut memory).unwrap();
        assert_eq!(result.frames_before, frames);
        is_copy(&history.store, &memory, &result);
    }
}

/// Copies to a file until the target was reported to so many times; gives the number of frames that it
/// had then, or `None` if the copy was complete.
fn interrupted(from: &dyn Reader, file: &File, reports: usize) -> Option<u64> {
    let mut left = reports;
    let copying = || {
        copy(
            from,
            &mut file.store(),
            &mut |frames| match left.checked_sub(1) {
                Some(fewer) => left = fewer,
                None => resume_unwind(Box::new(frames)),
            },
        )
    };
    let stopped = catch_unwind(AssertUnwindSafe(copying)).err()?;
    Some(*stopped.downcast::<u64>().unwrap())
}

#[test]
fn a_copy_that_was_interrupted_is_continued_and_ends_equal() {
    let history = History::new(21, 30);
    let mut reports = 0;
    let mut file = File::new();
    while let Some(frames) = interrupted(&history.store, &file, reports) {
        let stored = view(&file.reader()).last_position().unwrap();
        assert_eq!(stored, frames);
        let result = copied(&history.store, &mut file.store()).unwrap();
        assert_eq!(result.frames_before, frames);
        is_copy(&history.store, &file.reader(), &result);
        (reports, file) = (reports + 1, File::new());
    }
    assert!(reports > 5, "only {reports} interruptions");
}

#[test]
fn a_complete_copy_is_compared_and_nothing_is_appended_to_it() {
    let history = History::new(22, 20);
    let file = File::of(&history);
    let mut steps = Vec::new();
    let again = copy(&history.store, &mut file.store(), &mut |frames| {
        steps.push(frames)
    });
    let again = again.unwrap();
    assert_eq!(steps, [again.frames]);
    assert_eq!(again.frames_before, again.frames);
    is_copy(&history.store, &file.reader(), &again);
}

#[test]
fn a_target_with_other_frames_is_refused_and_keeps_them() {
    let history = History::new(23, 12);
    let frames = Content::of(&history.store).frames.len() as u64;
    let other = || entry(&run("other"), None, vec![ended()]);
    for kept in [0, 1, 5, history.entries.len()] {
        let mut target = MemoryStore::new();
        let epoch = target.acquire().unwrap();
        let shared = &history.entries[..kept];
        for entry in shared.iter().cloned().chain([other()]) {
            target.append(epoch, &[entry]).unwrap()[0].clone().unwrap();
        }
        let before = Content::of(&target);
        let position = before.frames.len() as u64;
        let refused = copied(&history.store, &mut target).unwrap_err();
        assert_eq!(refused, CopyError::OtherFrames(position));
        assert!(position <= frames + 1);
        assert_eq!(Content::of(&target), before);
        // Its owner is still the same.
        assert_eq!(epoch_of(&target), epoch.0);
    }
}

/// A history from which some of its runs were removed: of which a frame was the first, one that has
/// more leaves than a frame holds, and one between others.
fn with_removals() -> History {
    let mut history = History::new(24, 40);
    for name in ["a", "b", "c"] {
        let mut drafts = vec![created("w")];
        drafts.push(completed("s", payload(70_000, 9)));
        history.append(entry(&run(name), None, drafts));
    }
    let many = (0..3_000).map(|salt| completed("s", payload(10, salt)));
    let drafts = [created("w")].into_iter().chain(many).chain([ended()]);
    history.append(entry(&run("many"), None, drafts.collect()));
    for name in ["a", "c"] {
        let tail = history.store.tail(&run(name)).unwrap().unwrap();
        let tail = Some((tail.seq, tail.hash));
        history.append(entry(&run(name), tail, vec![ended()]));
    }
    for name in ["a", "many", "c"] {
        remove(&mut history, name);
        history.append(entry(
            &run(&format!("after-{name}")),
            None,
            vec![created("w"), ended()],
        ));
    }
    history
}

fn remove(history: &mut History, name: &str) {
    let source = &mut history.store;
    let mut references = ReferenceCounts::default();
    while references.advance(source, 100).unwrap() {}
    let planned = references.plan(source, &run(name), "complete", "retention");
    let planned = planned.unwrap();
    let removed = Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: Vec::new(),
        event: Event::Store(StoreEvent::RunRemoved(planned.event)),
    };
    let tail = source.tail(&StreamId::store()).unwrap().unwrap();
    let removing = entry(
        &StreamId::store(),
        Some((tail.seq, tail.hash)),
        vec![removed],
    );
    history.append(removing.with_removals(vec![planned.removal]).unwrap());
}

/// The root of a ledger, with the leaves of what was removed.
fn root_of(reader: &dyn Reader) -> Node {
    let (mut leaves, mut removed) = (Vec::new(), RemovedLeaves::of(reader).unwrap());
    for frame in Content::of(reader).frames {
        while (leaves.len() as u64) + 1 < frame.position {
            let position = leaves.len() as u64 + 1;
            leaves.push(removed.leaf(position).unwrap().unwrap());
        }
        leaves.push(Node::leaf(&frame.body));
    }
    merkle::root(&leaves)
}

fn is_copy_of_removed(source: &dyn Reader, target: &mut dyn Store) {
    let result = copied(source, target).unwrap();
    let target = view(target);
    assert_eq!(Content::of(source), Content::of(target));
    assert_eq!(result.root, root_of(source));
    assert_eq!(root_of(target), root_of(source));
    for name in ["a", "many", "c"] {
        assert_eq!(target.tail(&run(name)).unwrap(), None);
    }
    let report = verify(target, &VerifyOptions::default(), &mut |_| {});
    assert_eq!((report.problems, report.unreferenced_blobs), (vec![], 0));
}

#[test]
fn what_was_removed_is_recorded_as_removed_in_a_copy_to_any_store_and_back() {
    let history = with_removals();
    is_copy_of_removed(&history.store, &mut MemoryStore::new());
    let file = File::new();
    is_copy_of_removed(&history.store, &mut file.store());
    is_copy_of_removed(&file.reader(), &mut MemoryStore::new());
    let Some(server) = postgres::Server::get() else {
        return;
    };
    let (place, _) = server.ledger();
    is_copy_of_removed(&file.reader(), place.store().unwrap().as_mut());
    let back = place.snapshot().unwrap();
    is_copy_of_removed(back.as_ref(), &mut File::new().store());
}

#[test]
fn a_copy_of_what_was_removed_that_was_interrupted_anywhere_is_continued() {
    let history = with_removals();
    for stop in [1, 50, 100, 1_500, 3_000] {
        let file = File::new();
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            copy(&history.store, &mut file.store(), &mut |frames| {
                if frames >= stop {
                    resume_unwind(Box::new("stopped"));
                }
            })
        }));
        assert!(stopped.is_err(), "it was not interrupted at {stop}");
        is_copy_of_removed(&history.store, &mut file.store());
    }
}

/// A frame of a history in the middle of a stream, and its position.
fn middle(history: &History) -> (u64, Frame) {
    let frames = Content::of(&history.store).frames;
    let found = frames
        .iter()
        .find(|frame| frame.seq == Some(1) && frame.stream.as_deref() != Some("store"));
    let found = found.unwrap();
    let record = Record {
        seq: 1,
        hash: Hash::from_bytes(&found.hash).unwrap(),
        body: String::from_utf8(found.body.clone()).unwrap(),
    };
    (found.position, record.decode_bare().unwrap())
}

/// The result of copying a file to memory, and what came there.
fn copied_to_memory(file: &File) -> (CopyError, MemoryStore) {
    let mut target = MemoryStore::new();
    let refused = copied(&file.reader(), &mut target).unwrap_err();
    (refused, target)
}

#[test]
fn a_frame_with_a_changed_body_is_named_and_nothing_is_written() {
    let history = History::new(25, 30);
    let (position, frame) = middle(&history);
    let file = File::of(&history);
    file.forge(&format!(
        "UPDATE frames SET body = replace(body, '\"scope\":\"\"', '\"scope\":\"x\"') WHERE pos = {position}"
    ));
    let (refused, target) = copied_to_memory(&file);
    let words = refused.to_string();
    assert!(words.starts_with(&format!("{}: ", frame.id())), "{words}");
    is_untouched(&target);
}

#[test]
fn a_frame_that_does_not_follow_from_the_one_before_is_named() {
    let history = History::new(26, 30);
    let (position, frame) = middle(&history);
    let file = File::of(&history);
    let raw = &Content::of(&history.store).frames[position as usize - 1];
    let body = String::from_utf8(raw.body.clone()).unwrap();
    let other = Hash::of(b"another");
    let body = body.replace(&frame.prev.to_string(), &other.to_string());
    file.forge(&format!(
        "UPDATE frames SET body = '{body}', hash = x'{}' WHERE pos = {position}",
        Hash::of(body.as_bytes())
    ));
    let (refused, _) = copied_to_memory(&file);
    let words = refused.to_string();
    assert!(words.starts_with(&frame.id()), "{words}");
}

#[test]
fn a_frame_with_a_cause_that_does_not_exist_is_named() {
    let sealed = |seq, cause| {
        let drafts = (0..=seq).map(|_| ended());
        let naming = support::caused(ended(), vec![cause]);
        entry(&run("b"), None, drafts.chain([naming]).collect())
    };
    // The cause is there when it is appended, and its stream is gone afterwards.
    let mut history = History::new(27, 1);
    history.append(entry(&run("a"), None, vec![ended()]));
    history.append(sealed(1, ktsu_ledger::Cause::There(run("a"), 0)));
    let file = File::of(&history);
    file.forge(
        "DELETE FROM frames WHERE pos = 2; UPDATE frames SET pos = pos - 1 WHERE pos > 2;
         DELETE FROM streams WHERE name = 'run:a'",
    );
    let (refused, _) = copied_to_memory(&file);
    let CopyError::Refused { stream, seq, why } = refused else {
        panic!("{refused}");
    };
    assert_eq!((stream, seq), (run("b"), 2));
    assert!(matches!(why, AppendRefusal::NoSuchCause { .. }), "{why}");
}

#[test]
fn a_frame_with_a_missing_or_changed_blob_is_named() {
    let mut history = History::new(28, 1);
    let large = completed("s", payload(70_000, 1));
    history.append(entry(&run("a"), None, vec![ended(), large]));
    for script in ["DELETE FROM blobs", "UPDATE blobs SET body = '\"x\"'"] {
        let file = File::of(&history);
        file.forge(script);
        let (refused, _) = copied_to_memory(&file);
        let words = refused.to_string();
        assert!(words.starts_with("run:a#1: the blob"), "{words}");
    }
}

#[test]
fn a_source_with_a_gap_in_its_positions_is_refused_and_nothing_is_written() {
    let history = History::new(29, 10);
    let last = view(&history.store).last_position().unwrap();
    for (script, position) in [
        ("DELETE FROM frames WHERE pos = 1".to_owned(), 1),
        ("DELETE FROM frames WHERE pos = 4".to_owned(), 4),
        (
            format!("UPDATE frames SET pos = pos + 7 WHERE pos = {last}"),
            last,
        ),
        ("UPDATE frames SET pos = -1 WHERE pos = 1".to_owned(), 1),
        (
            "INSERT INTO frames (pos, stream, seq, hash, body)
             SELECT -1, stream, 99, hash, body FROM frames WHERE pos = 1"
                .to_owned(),
            1,
        ),
    ] {
        let file = File::of(&history);
        file.forge(&script);
        let (refused, target) = copied_to_memory(&file);
        assert_eq!(refused, CopyError::Gap(position), "{script}");
        is_untouched(&target);
    }
}

#[test]
fn a_source_that_grows_while_it_is_copied_is_an_error_and_the_next_copy_continues() {
    let mut history = History::new(30, 10);
    let source = history.store.clone();
    let mut target = MemoryStore::new();
    let last = view(&source).last_position().unwrap();
    let mut more = vec![entry(&run("late"), None, vec![ended()])];
    let grew = copy(&source, &mut target, &mut |_| {
        if let Some(entry) = more.pop() {
            history.append(entry);
        }
    });
    assert_eq!(grew, Err(CopyError::Grew));
    let result = copied(&source, &mut target).unwrap();
    assert_eq!((result.frames_before, result.frames), (last, last + 1));
    is_copy(&source, &target, &result);
}

#[test]
fn index_rows_that_the_target_had_are_replaced() {
    let history = History::new(31, 20);
    let file = File::of(&history);
    let mut store = file.store();
    let epoch = store.acquire().unwrap();
    let rows = Content::of(&history.store).rows;
    let keyed = rows.iter().find(|row| row.key.is_some()).unwrap();
    let free = rows.iter().find(|row| row.key.is_none()).unwrap();
    let moved = IndexRow {
        key: keyed.key.clone(),
        ..free.clone()
    };
    let without = IndexRow {
        key: None,
        ..keyed.clone()
    };
    let unknown = row(&StreamId::store(), "w", "running", 9);
    let store_view: &mut dyn Store = &mut store;
    store_view
        .put_rows(epoch, &[without, moved, unknown])
        .unwrap();
    let result = copied(&history.store, &mut store).unwrap();
    is_copy(&history.store, &file.reader(), &result);
}

#[test]
fn a_source_with_a_damaged_index_row_is_refused_and_nothing_is_written() {
    let file = File::of(&History::new(32, 10));
    file.forge("UPDATE index_rows SET status = 'else'");
    let (refused, target) = copied_to_memory(&file);
    let is_row = matches!(&refused, CopyError::Store(StoreError::WrongRow(_)));
    assert!(is_row, "{refused}");
    is_untouched(&target);
}

#[test]
fn a_target_without_an_index_of_its_own_is_refused_and_nothing_is_written() {
    let remote = Remote::new();
    let mut target = remote.store().unwrap();
    let refused = copied(&History::new(33, 5).store, target.as_mut());
    assert_eq!(refused, Err(CopyError::NoIndex));
    is_untouched(&remote.kept());
}

#[test]
fn the_epoch_of_a_copy_is_not_before_those_of_its_frames() {
    let file = File::of(&History::new(34, 5));
    assert_eq!(epoch_of(&file.reader()), EPOCH);
    let mut history = History::new(35, 1);
    let tail = history.entries[0].tail();
    let after = Some((tail.seq, tail.hash));
    let far = support::opened(1 << 60);
    let entry: Entry = entry(&StreamId::store(), after, vec![far]);
    history.append(entry);
    let mut target = MemoryStore::new();
    let refused = copied(&history.store, &mut target).unwrap_err();
    assert_eq!(refused, CopyError::TooManyOwners(1 << 60));
    is_untouched(&target);
}

#[test]
fn a_copy_of_a_ledger_to_itself_changes_nothing() {
    let history = History::new(36, 20);
    let before = Content::of(&history.store);
    let mut same = history.store.clone();
    let result = copied(&history.store, &mut same).unwrap();
    assert_eq!(Content::of(&history.store), before);
    assert_eq!(result.frames_before, result.frames);
}

//! What was changed behind the ledger's back is found, and named.

#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ktsu_ledger::backup::backup;
use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    Audit, Cursor, Entry, Filter, IndexRow, Inspection, MemoryStore, Page, RawBlob, RawFrame,
    SqliteReader, SqliteStore, Tail, read_all,
};
use ktsu_ledger::verify::{Head, ProblemKind, VerifyOptions, VerifyReport, verify};
use ktsu_ledger::{Cause, Hash, Reader, Record, Store, StoreError, StreamId, verify_file};
use support::{caused, completed, created, ended, entry, opened, payload, row, run, store_stream};

/// What the small ledger of these tests holds.
fn entries() -> Vec<Entry> {
    let after = |entry: &Entry| Some((entry.tail().seq, entry.tail().hash));
    let store = entry(&store_stream(), None, vec![opened(1)]);
    let a = entry(&run("a"), None, vec![created("triage"), ended()]);
    let b = entry(&run("b"), None, vec![created("report")]);
    let from_a = vec![Cause::Here(0), Cause::There(run("a"), 1)];
    let more_b = caused(completed("one", payload(40, 3)), from_a);
    let more_b = entry(&run("b"), after(&b), vec![more_b, ended()]);
    let more_a = entry(
        &run("a"),
        after(&a),
        vec![completed("two", payload(9, 1)), ended()],
    );
    let mut row_a = row(&run("a"), "triage", "complete", 5);
    row_a.key = Some("key-a".to_owned());
    let row_b = row(&run("b"), "report", "waiting", 6);
    vec![
        store,
        a,
        b,
        more_b.with_index(row_b).unwrap(),
        more_a.with_index(row_a).unwrap(),
    ]
}

fn fill(store: &mut dyn Store) {
    let epoch = store.acquire().unwrap();
    for entry in entries() {
        store.append(epoch, &[entry]).unwrap()[0].clone().unwrap();
    }
}

fn check(reader: &dyn Reader) -> VerifyReport {
    verify(reader, &VerifyOptions::default(), &mut |_| {})
}

fn check_file(path: &Path) -> VerifyReport {
    verify_file(path, &VerifyOptions::default(), &mut |_| {}).unwrap()
}

/// Whether a report names a frame.
fn names(report: &VerifyReport, stream: &str, seq: i64) -> bool {
    report.problems.iter().any(|problem| {
        problem.stream.as_deref() == Some(stream) && problem.seq == u64::try_from(seq).ok()
    })
}

/// A closed ledger in one file.
fn closed(folder: &Path) -> PathBuf {
    let path = folder.join("ledger.db");
    let mut store = SqliteStore::open(&path).unwrap();
    fill(&mut store);
    drop(store);
    path
}

/// A view of a ledger in which some frames or blobs read differently.
struct Changed {
    inner: MemoryStore,
    frames: Vec<RawFrame>,
    blobs: Vec<RawBlob>,
}

impl Changed {
    fn new() -> Self {
        let mut inner = MemoryStore::new();
        fill(&mut inner);
        Self {
            frames: inner.scan_frames(0, 1000).unwrap(),
            blobs: inner.scan_blobs(0, 1000).unwrap(),
            inner,
        }
    }
}

impl Reader for Changed {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.inner.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.inner.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.inner.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.inner.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.inner.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.inner.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

impl Audit for Changed {
    fn scan_frames(&self, from: u64, _limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        let frames = self.frames.iter().filter(|frame| frame.position >= from);
        Ok(frames.cloned().collect())
    }

    fn scan_blobs(&self, from: u64, _limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        let blobs = self.blobs.iter().filter(|blob| blob.position >= from);
        Ok(blobs.cloned().collect())
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        self.inner.positions(stream, from, limit)
    }

    fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.removals(from, limit)
    }

    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        self.inner.removal(stream)
    }

    fn inspect(&self) -> Inspection {
        self.inner.inspect()
    }
}

/// Both ways a byte is changed in these tests.
fn changes(byte: u8, place: usize) -> [u8; 2] {
    [
        byte ^ (1 << (place % 8)),
        if byte == 0xff { 0 } else { 0xff },
    ]
}

#[test]
fn a_ledger_as_it_was_appended_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    for report in [check(&Changed::new()), check_file(&closed(folder.path()))] {
        assert_eq!(report.problems, vec![]);
        assert_eq!((report.streams, report.frames, report.blobs), (3, 8, 2));
        assert_eq!(report.unreferenced_blobs, 0);
        assert_eq!(report.not_covered.len(), 1);
    }
}

#[test]
fn every_byte_of_every_frame_counts() {
    let mut view = Changed::new();
    for place in 0..view.frames.len() {
        let whole = view.frames[place].clone();
        let name = whole.stream.clone().unwrap();
        let seq = whole.seq.unwrap();
        for byte in 0..whole.body.len() + whole.hash.len() {
            let in_body = byte < whole.body.len();
            let at = if in_body {
                byte
            } else {
                byte - whole.body.len()
            };
            let before = if in_body {
                whole.body[at]
            } else {
                whole.hash[at]
            };
            for changed in changes(before, byte) {
                let frame = &mut view.frames[place];
                let bytes = if in_body {
                    &mut frame.body
                } else {
                    &mut frame.hash
                };
                bytes[at] = changed;
                let report = check(&view);
                assert!(
                    names(&report, &name, seq as i64),
                    "{name}#{seq} byte {byte}"
                );
                view.frames[place] = whole.clone();
            }
        }
        for other in [Some(seq + 1), seq.checked_sub(1), None] {
            view.frames[place].seq = other;
            assert!(!check(&view).is_sound(), "{name}#{seq} as {other:?}");
        }
        view.frames[place] = whole;
    }
    assert!(check(&view).is_sound());
}

#[test]
fn every_byte_of_every_blob_counts() {
    let mut view = Changed::new();
    for place in 0..view.blobs.len() {
        let whole = view.blobs[place].clone();
        let name = ["run:a", "run:b"][place];
        for byte in 0..whole.body.len() + whole.hash.len() {
            let in_body = byte < whole.body.len();
            let at = if in_body {
                byte
            } else {
                byte - whole.body.len()
            };
            let before = if in_body {
                whole.body[at]
            } else {
                whole.hash[at]
            };
            for changed in changes(before, byte) {
                let blob = &mut view.blobs[place];
                let bytes = if in_body {
                    &mut blob.body
                } else {
                    &mut blob.hash
                };
                bytes[at] = changed;
                assert!(names(&check(&view), name, 0), "blob {place} byte {byte}");
                view.blobs[place] = whole.clone();
            }
        }
    }
}

/// What any reader would be told.
fn answers(reader: &dyn Reader) -> Result<String, StoreError> {
    use std::fmt::Write as _;
    let mut all = String::new();
    for name in [store_stream(), run("a"), run("b"), run("c")] {
        let records = read_all(reader, &name, 0)?;
        for record in &records {
            for external in record.decode_bare().map_or(Vec::new(), |frame| frame.ext) {
                write!(all, "{:?}", reader.blob_get(&external.hash)?).unwrap();
            }
        }
        write!(
            all,
            "{records:?} {:?} {:?}",
            reader.tail(&name)?,
            reader.row(&name)?
        )
        .unwrap();
    }
    write!(
        all,
        "{:?} {:?}",
        reader.streams(None, 10)?,
        reader.by_key("key-a")?
    )
    .unwrap();
    for (workflow, status, open) in [
        (None, None, None),
        (Some("triage"), None, None),
        (None, Some("waiting"), None),
        (None, None, Some(true)),
        (None, None, Some(false)),
    ] {
        let filter = Filter {
            kinds: Vec::new(),
            workflow: workflow.map(str::to_owned),
            status: status.map(str::to_owned),
            open,
        };
        write!(all, "{:?}", reader.list(&filter, None, 10)?).unwrap();
    }
    Ok(all)
}

/// Changes every `step`-th byte of a file from `first` on, and says which changes went unnoticed
/// although they change an answer.
fn unnoticed(path: &Path, first: usize, step: usize) -> Vec<usize> {
    let whole = std::fs::read(path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let before = answers(&SqliteReader::open(path).unwrap()).unwrap();
    let mut unnoticed = Vec::new();
    for place in (first..whole.len()).step_by(step) {
        // Each byte is changed once: every other one in one bit, the rest to all ones.
        let changed = changes(whole[place], place)[place / step % 2];
        file.write_all_at(&[changed], place as u64).unwrap();
        if check_file(path).is_sound() {
            let after = SqliteReader::open(path).and_then(|reader| answers(&reader));
            if after.as_ref() != Ok(&before) {
                unnoticed.push(place);
            }
        }
        file.write_all_at(&whole[place..=place], place as u64)
            .unwrap();
    }
    assert!(check_file(path).is_sound());
    unnoticed
}

#[test]
fn every_byte_of_the_file_is_found_or_means_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    backup(&closed(folder.path()), &copy, true).unwrap();
    let tool = rusqlite::Connection::open(&copy).unwrap();
    // Small pages keep the file small.
    tool.execute_batch("PRAGMA page_size = 512; VACUUM;")
        .unwrap();
    drop(tool);
    let workers = 2;
    let found: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|first| {
                let own = folder.path().join(format!("own-{first}.db"));
                std::fs::copy(&copy, &own).unwrap();
                scope.spawn(move || unnoticed(&own, first, workers))
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    });
    assert_eq!(found, Vec::<usize>::new());
}

/// Runs some SQL with the triggers out of the way, and puts them back.
fn forge(path: &Path, script: &str) {
    let tool = rusqlite::Connection::open(path).unwrap();
    let mut statement = tool
        .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        .unwrap();
    let triggers: Vec<(String, String)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    drop(statement);
    for (name, _) in &triggers {
        tool.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    tool.execute_batch(script).unwrap();
    for (_, text) in &triggers {
        tool.execute_batch(text).unwrap();
    }
}

#[test]
fn frames_moved_added_or_taken_away_are_found() {
    type Case = (&'static str, &'static str, Option<(&'static str, i64)>);
    // Positions: 1 store#0, 2 a#0, 3 a#1, 4 b#0, 5 b#1, 6 b#2, 7 a#2, 8 a#3.
    let cases: [Case; 9] = [
        (
            "one changed",
            "UPDATE frames SET body = replace(body, 'two', 'owt') WHERE pos = 7",
            Some(("run:a", 2)),
        ),
        (
            "two swapped",
            "UPDATE frames SET seq = 90 WHERE pos = 5; UPDATE frames SET seq = 1 WHERE pos = 6; UPDATE frames SET seq = 2 WHERE pos = 5",
            Some(("run:b", 2)),
        ),
        (
            "positions swapped",
            "UPDATE frames SET pos = 90 WHERE pos = 7; UPDATE frames SET pos = 7 WHERE pos = 8; UPDATE frames SET pos = 8 WHERE pos = 90",
            Some(("run:a", 3)),
        ),
        (
            "one taken from the middle",
            "DELETE FROM frames WHERE pos = 3",
            Some(("run:a", 2)),
        ),
        (
            "a first taken away",
            "DELETE FROM frames WHERE pos = 4",
            Some(("run:b", 1)),
        ),
        (
            "one added",
            "INSERT INTO frames (stream, seq, hash, body) SELECT stream, 4, hash, body FROM frames WHERE pos = 8",
            Some(("run:a", 4)),
        ),
        (
            "one given to another stream",
            "UPDATE frames SET stream = 3, seq = 3 WHERE pos = 8",
            Some(("run:b", 3)),
        ),
        (
            "a whole stream taken away",
            "DELETE FROM frames WHERE stream = 3; DELETE FROM streams WHERE id = 3",
            None,
        ),
        (
            "a blob taken away",
            "DELETE FROM blobs WHERE pos = 2",
            Some(("run:b", 0)),
        ),
    ];
    for (what, script, named) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = closed(folder.path());
        forge(&path, script);
        let report = check_file(&path);
        assert!(!report.is_sound(), "{what}");
        if let Some((stream, seq)) = named {
            assert!(names(&report, stream, seq), "{what}: {:?}", report.problems);
        }
    }
}

#[test]
fn rows_before_the_first_position_are_found() {
    let columns = "SELECT stream, seq + 1, hash, body FROM frames WHERE pos = 8";
    for position in [i64::MIN, -5, -1, 0] {
        let folder = tempfile::tempdir().unwrap();
        let path = closed(folder.path());
        let insert = "INSERT INTO frames (pos, stream, seq, hash, body)";
        let select = columns.replace("stream", &format!("{position}, stream"));
        forge(&path, &format!("{insert} {select}"));
        let report = check_file(&path);
        assert!(
            names(&report, "run:a", 4),
            "{position}: {:?}",
            report.problems
        );
        let blob = format!(
            "INSERT INTO blobs (pos, hash, body) SELECT {position}, zeroblob(32), body \
             FROM blobs WHERE pos = 1"
        );
        let path = closed(&folder.path().join("blobs"));
        forge(&path, &blob);
        let report = check_file(&path);
        let told = report.problems.iter().any(|problem| {
            let at = format!("is {position}, but");
            problem.kind == ProblemKind::Blob && problem.message.contains(&at)
        });
        assert!(told, "{position}: {:?}", report.problems);
    }
    // A stream that has no name either.
    let folder = tempfile::tempdir().unwrap();
    let path = closed(folder.path());
    forge(
        &path,
        "INSERT INTO frames SELECT -1, -1, 0, hash, body FROM frames WHERE pos = 8",
    );
    assert!(!check_file(&path).is_sound());
}

#[test]
fn nothing_is_removed_without_a_frame_that_says_so() {
    for script in [
        "DELETE FROM frames WHERE stream = 3; DELETE FROM index_rows WHERE stream = 'run:b'; \
         INSERT INTO removals VALUES (3, 3, 0, 0)",
        // More than there were, to cover for others.
        "DELETE FROM frames WHERE stream = 3; DELETE FROM index_rows WHERE stream = 'run:b'; \
         INSERT INTO removals VALUES (3, 900, 0, 0)",
        "INSERT INTO removals VALUES (3, 0, 0, 0)",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = closed(folder.path());
        forge(&path, script);
        let report = check_file(&path);
        let named = |name: &str| {
            let of = |problem: &ktsu_ledger::verify::VerifyProblem| {
                problem.stream.as_deref() == Some(name)
            };
            report.problems.iter().any(of)
        };
        assert!(named("run:b"), "{script}: {:?}", report.problems);
        let counted = report
            .problems
            .iter()
            .any(|problem| problem.message.contains("frames are gone"));
        assert_eq!(
            counted,
            script.contains("900"),
            "{script}: {:?}",
            report.problems
        );
    }
}

#[test]
fn missing_positions_are_reported_with_their_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let path = closed(folder.path());
    // The end of run b, behind which run a goes on.
    forge(&path, "DELETE FROM frames WHERE pos IN (5, 6)");
    let report = check_file(&path);
    let gap = "2 frames are gone; positions 5 to 6, between run:b#0 and run:a#2";
    assert!(
        report.problems.iter().any(|problem| problem.message == gap),
        "{:?}",
        report.problems
    );
}

#[test]
fn a_cut_tail_is_found_only_with_a_head() {
    let folder = tempfile::tempdir().unwrap();
    let path = closed(folder.path());
    let tail = SqliteReader::open(&path)
        .unwrap()
        .tail(&run("a"))
        .unwrap()
        .unwrap();
    let head = Head {
        stream: run("a"),
        seq: tail.seq,
        hash: tail.hash,
    };
    let with_head = VerifyOptions {
        heads: vec![head],
        ..VerifyOptions::default()
    };
    assert!(
        verify_file(&path, &with_head, &mut |_| {})
            .unwrap()
            .is_sound()
    );
    forge(&path, "DELETE FROM frames WHERE pos = 8");
    let without = check_file(&path);
    assert!(without.is_sound());
    assert!(without.not_covered[0].contains("cut off"));
    let report = verify_file(&path, &with_head, &mut |_| {}).unwrap();
    assert_eq!(report.problems[0].kind, ProblemKind::Head);
    assert!(names(&report, "run:a", 3));
}

#[test]
fn index_rows_triggers_and_epochs_count() {
    for script in [
        "UPDATE index_rows SET status = 'waiting' WHERE stream = 'run:a'",
        "UPDATE index_rows SET key = 'key-b' WHERE stream = 'run:a'",
        "UPDATE index_rows SET row = '{}'",
        "UPDATE meta SET epoch = 0",
        "UPDATE meta SET format = 9",
        "CREATE TRIGGER quiet BEFORE INSERT ON frames BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TABLE more (text)",
        "PRAGMA application_id = 1",
        "INSERT INTO streams (name) VALUES ('run:z')",
        "INSERT INTO removals VALUES (3, 3, 0, 1)",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = closed(folder.path());
        forge(&path, script);
        assert!(!check_file(&path).is_sound(), "{script}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = closed(folder.path());
    let tool = rusqlite::Connection::open(&path).unwrap();
    tool.execute_batch("DROP TRIGGER frames_stay").unwrap();
    drop(tool);
    assert!(!check_file(&path).is_sound());
}

#[test]
fn every_wrong_index_row_is_named_and_none_stops_a_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = closed(folder.path());
    forge(&path, "UPDATE index_rows SET status = 'else'");
    let report = check_file(&path);
    for name in ["run:a", "run:b"] {
        let named = |it: &&ktsu_ledger::verify::VerifyProblem| {
            it.kind == ProblemKind::Index && it.stream.as_deref() == Some(name)
        };
        assert_eq!(report.problems.iter().filter(named).count(), 1, "{name}");
    }
    let mut store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.wrong_rows().unwrap().len(), 2);
    let epoch = store.acquire().unwrap();
    let keyed = |name: &str| {
        let mut row = row(&run(name), "triage", "complete", 7);
        row.key = Some("key-a".to_owned());
        let entry = entry(&run(name), None, vec![created("triage"), ended()]);
        entry.with_index(row).unwrap()
    };
    // The key of a damaged row is still taken; the one of a row that is nobody's is free.
    let refused = store.append(epoch, &[keyed("c")]).unwrap();
    assert!(refused[0].is_err());
    drop(store);
    forge(
        &path,
        "UPDATE index_rows SET stream = '?' WHERE stream = 'run:a'",
    );
    let mut store = SqliteStore::open(&path).unwrap();
    let epoch = store.acquire().unwrap();
    assert_eq!(store.append(epoch, &[keyed("c")]), Ok(vec![Ok(1)]));
    assert_eq!(store.by_key("key-a").unwrap().unwrap().stream, run("c"));
}

#[test]
fn what_cannot_be_opened_any_more_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let path = closed(folder.path());
    let whole = std::fs::read(&path).unwrap();
    for length in [0, 1, 99, 100, 511, 4096, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(!check_file(&path).is_sound(), "cut at {length}");
    }
    for page in 0..whole.len() / 4096 {
        let mut zeroed = whole.clone();
        zeroed[page * 4096..(page + 1) * 4096].fill(0);
        std::fs::write(&path, &zeroed).unwrap();
        assert!(!check_file(&path).is_sound(), "page {page} zeroed");
    }
    let missing = verify_file(
        &folder.path().join("none"),
        &VerifyOptions::default(),
        &mut |_| {},
    );
    assert!(matches!(missing, Err(StoreError::Missing(_))));
    assert!(verify_file(folder.path(), &VerifyOptions::default(), &mut |_| {}).is_err());
}

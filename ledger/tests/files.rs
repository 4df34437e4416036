//! Files: who owns a ledger, what may be opened, what a crash leaves.

#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ktsu_ledger::branch::frames;
use ktsu_ledger::hard_links::{SecondName, second_name};
use ktsu_ledger::lock::{LockError, holder, missing_log, try_own};
use ktsu_ledger::reserve::{RESERVE_BYTES, Reserve};
use ktsu_ledger::store::{Audit as _, SqliteReader, SqliteStore};
use ktsu_ledger::{Hash, Reader, Store, StoreError};
use support::{ended, entry, run};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A ledger with one frame, closed.
fn small(path: &Path) {
    let mut store = SqliteStore::open(path).unwrap();
    let epoch = store.acquire().unwrap();
    store
        .append(epoch, &[entry(&run("a"), None, vec![ended()])])
        .unwrap();
}

#[test]
fn one_owner_at_a_time_and_its_name_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/ledger.db");
    assert_eq!(holder(&path), None);
    let mut lock = try_own(&path).unwrap();
    lock.set_url("http://127.0.0.1:7000").unwrap();
    let told = holder(&path).unwrap();
    assert_eq!(told.pid, std::process::id());
    assert_eq!(told.url.as_deref(), Some("http://127.0.0.1:7000"));
    let refused = try_own(&path).unwrap_err();
    assert!(matches!(&refused, LockError::Held(Some(held)) if *held == told));
    assert!(refused.to_string().contains("7000"));
    // Another name for the same ledger is the same ledger.
    small(&path);
    let alias = folder.path().join("alias.db");
    std::os::unix::fs::symlink(&path, &alias).unwrap();
    assert!(try_own(&alias).is_err());
    drop(lock);
    assert_eq!(holder(&path), None);
    assert_eq!(mode(&folder.path().join("new/ledger.db.lock")), 0o600);
    try_own(&alias).unwrap();
}

#[test]
fn the_frames_of_an_entry_are_stored_in_order_however_many_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&folder.path().join("ledger.db")).unwrap();
    let epoch = store.acquire().unwrap();
    let lengths = [1, 2, 3, 4, 5, 15, 16, 17, 20, 21, 32, 33, 50];
    let of_length = |length: usize| {
        let stream = run(&format!("r{length}"));
        entry(&stream, None, vec![ended(); length])
    };
    let entries: Vec<_> = lengths.into_iter().map(of_length).collect();
    store.append(epoch, &entries).unwrap();
    let records: Vec<_> = entries.iter().flat_map(|entry| entry.records()).collect();
    let stored = store.scan_frames(0, 1000).unwrap();
    assert_eq!(stored.len(), records.len());
    for ((position, frame), record) in (1..).zip(&stored).zip(&records) {
        assert_eq!(frame.position, position);
        assert_eq!(frame.body, record.body.as_bytes());
    }
    for entry in &entries {
        assert_eq!(store.read(entry.stream(), 0, 100).unwrap(), entry.records());
    }
}

#[test]
fn files_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/deep/ledger.db");
    let mut store = SqliteStore::open(&path).unwrap();
    store.acquire().unwrap();
    assert_eq!(mode(&folder.path().join("new")), 0o700);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&folder.path().join("new/deep/ledger.db-wal")), 0o600);
}

#[test]
fn what_is_not_a_ledger_is_named_so() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.db");
    assert!(matches!(
        SqliteReader::open(&missing),
        Err(StoreError::Missing(_))
    ));
    assert!(!missing.exists());
    let text = folder.path().join("text.db");
    std::fs::write(
        &text,
        "not a database at all, but long enough to be looked at".repeat(100),
    )
    .unwrap();
    let foreign = folder.path().join("foreign.db");
    let other = rusqlite::Connection::open(&foreign).unwrap();
    other.execute_batch("CREATE TABLE notes (text)").unwrap();
    for path in [folder.path(), &text, &foreign] {
        let read = SqliteReader::open(path).map(drop);
        assert!(
            matches!(read, Err(StoreError::NotALedger { .. })),
            "{read:?}"
        );
        let owned = SqliteStore::open(path).map(drop);
        assert!(
            matches!(owned, Err(StoreError::NotALedger { .. })),
            "{owned:?}"
        );
    }
}

#[test]
fn a_newer_format_is_refused_and_an_empty_file_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    // An owner died before it made anything.
    std::fs::write(&path, "").unwrap();
    small(&path);
    let tool = rusqlite::Connection::open(&path).unwrap();
    tool.execute_batch("UPDATE meta SET format = 2, epoch = epoch + 1")
        .unwrap();
    drop(tool);
    let newer = StoreError::NewerFormat { found: 2, known: 1 };
    assert_eq!(SqliteStore::open(&path).map(drop), Err(newer.clone()));
    assert_eq!(SqliteReader::open(&path).map(drop), Err(newer));
}

#[test]
fn a_log_left_behind_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let epoch = store.acquire().unwrap();
    store
        .append(epoch, &[entry(&run("a"), None, vec![ended()])])
        .unwrap();
    // What a killed owner leaves is what is on the disk while it lives.
    let crashed = folder.path().join("crashed.db");
    for ending in ["", "-wal"] {
        let from = folder.path().join(format!("ledger.db{ending}"));
        std::fs::copy(from, folder.path().join(format!("crashed.db{ending}"))).unwrap();
    }
    let reader = SqliteReader::open(&crashed).unwrap();
    assert_eq!(reader.read(&run("a"), 0, 10).unwrap().len(), 1);
    drop(reader);
    let mut next = SqliteStore::open(&crashed).unwrap();
    assert_eq!(next.read(&run("a"), 0, 10).unwrap().len(), 1);
    assert!(next.acquire().unwrap() > epoch);
    // A torn tail is not replayed, and nothing before it is lost.
    let wal = std::fs::read(folder.path().join("ledger.db-wal")).unwrap();
    let torn = folder.path().join("torn.db");
    std::fs::copy(folder.path().join("ledger.db"), &torn).unwrap();
    std::fs::write(folder.path().join("torn.db-wal"), &wal[..wal.len() - 100]).unwrap();
    let reader = SqliteReader::open(&torn).unwrap();
    assert_eq!(reader.streams(None, 10).unwrap(), vec![]);
}

#[test]
fn someone_holding_the_write_lock_is_waited_for_and_holds_no_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    small(&path);
    let mut store = SqliteStore::open(&path).unwrap();
    let epoch = store.acquire().unwrap();
    let tool = rusqlite::Connection::open(&path).unwrap();
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    let since = std::time::Instant::now();
    let appending = std::thread::spawn(move || {
        let appended = store.append(epoch, &[entry(&run("b"), None, vec![ended()])]);
        (appended, store)
    });
    let held = std::time::Duration::from_secs(4);
    while since.elapsed() < held {
        let reader = SqliteReader::open(&path).unwrap();
        assert_eq!(reader.streams(None, 10).unwrap(), vec![run("a")]);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(!appending.is_finished());
    tool.execute_batch("ROLLBACK").unwrap();
    let (appended, store) = appending.join().unwrap();
    assert_eq!(appended, Ok(vec![Ok(0)]));
    assert_eq!(store.streams(None, 10).unwrap(), vec![run("a"), run("b")]);
}

#[test]
fn looking_at_a_closed_ledger_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    small(&path);
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let reader = SqliteReader::open(&path).unwrap();
    assert_eq!(reader.streams(None, 10).unwrap(), vec![run("a")]);
    let after = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(before, after);
    // An owner who starts later is noticed.
    let mut store = SqliteStore::open(&path).unwrap();
    let epoch = store.acquire().unwrap();
    store
        .append(epoch, &[entry(&run("b"), None, vec![ended()])])
        .unwrap();
    assert_eq!(reader.streams(None, 10).unwrap(), vec![run("a"), run("b")]);
    drop(store);
    assert_eq!(reader.streams(None, 10).unwrap(), vec![run("a"), run("b")]);
}

#[test]
fn sql_cannot_change_what_was_appended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    small(&path);
    let tool = rusqlite::Connection::open(&path).unwrap();
    for attempt in [
        "UPDATE frames SET body = '{}'",
        "DELETE FROM frames",
        "INSERT OR REPLACE INTO frames SELECT pos, stream, seq, hash, '{}' FROM frames",
        "INSERT OR REPLACE INTO frames (stream, seq, hash, body) SELECT stream, seq, hash, '' FROM frames",
        "UPDATE streams SET name = 'run:b'",
        "DELETE FROM streams",
        "INSERT OR REPLACE INTO streams VALUES (1, 'run:b')",
        "UPDATE meta SET epoch = 0",
        "DELETE FROM meta",
    ] {
        assert!(tool.execute(attempt, []).is_err(), "{attempt}");
    }
    // Except for a stream that is being removed.
    tool.execute_batch(
        "BEGIN; INSERT INTO removals VALUES (1, 1, 0, 1); DELETE FROM frames WHERE stream = 1; \
         UPDATE removals SET open = 0; COMMIT;",
    )
    .unwrap();
    assert!(tool.execute("DELETE FROM removals", []).is_err());
    assert!(tool.execute("UPDATE removals SET open = 1", []).is_err());
    let reader = SqliteReader::open(&path).unwrap();
    assert_eq!(reader.streams(None, 10).unwrap(), vec![]);
    assert_eq!(reader.tail(&run("a")).unwrap(), None);
}

#[test]
fn a_file_with_a_second_hard_link_is_nobodys_to_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    small(&path);
    let link = folder.path().join("link.db");
    std::fs::hard_link(&path, &link).unwrap();
    for name in [&path, &link] {
        let refused = try_own(name).unwrap_err();
        let links = SecondName::HardLinks(2);
        assert!(
            matches!(&refused, LockError::SecondName { found, .. } if *found == links),
            "{refused}"
        );
        assert_eq!(second_name(name), Some(links));
    }
    std::fs::remove_file(&link).unwrap();
    assert_eq!(second_name(&path), None);
    drop(try_own(&path).unwrap());
    // A symbolic link is resolved, so it is no second name.
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(second_name(&link), None);
    drop(try_own(&link).unwrap());
}

/// The lock beside it is found by name. That of the file itself goes where the file goes, and
/// closing some other descriptor of the file, which drops record locks, does not drop it.
#[cfg(target_os = "linux")]
#[test]
fn the_file_itself_is_locked_whatever_it_is_called_and_whoever_closes_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lock = try_own(&path).unwrap();
    let mut store = SqliteStore::open(&path).unwrap();
    let epoch = store.acquire().unwrap();
    drop(std::fs::File::open(&path).unwrap());
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let moved = elsewhere.join("other.db");
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(second_name(&moved), None);
    let refused = try_own(&moved).unwrap_err();
    assert!(matches!(refused, LockError::HeldElsewhere(_)), "{refused}");
    // SQLite is not held up by it.
    std::fs::rename(&moved, &path).unwrap();
    let appended = store.append(epoch, &[entry(&run("a"), None, vec![ended()])]);
    assert_eq!(appended, Ok(vec![Ok(0)]));
    drop(store);
    drop(lock);
    std::fs::rename(&path, &moved).unwrap();
    drop(try_own(&moved).unwrap());
}

#[test]
fn a_file_of_few_bytes_beside_its_key_or_log_is_no_new_ledger() {
    for (beside, left) in ["ledger.db.key", "ledger.db.signing-key", "ledger.db-wal"]
        .into_iter()
        .flat_map(|beside| ["", "x", "SQLite format 3"].map(|left| (beside, left)))
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        std::fs::write(&path, "").unwrap();
        // An owner died before it made anything.
        drop(try_own(&path).unwrap());
        std::fs::write(folder.path().join(beside), "something").unwrap();
        std::fs::write(&path, left).unwrap();
        let refused = try_own(&path).unwrap_err();
        assert!(matches!(&refused, LockError::Emptied { .. }), "{refused}");
        assert!(refused.to_string().contains(beside), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), left);
        assert!(folder.path().join(beside).exists());
        let read = SqliteReader::open(&path).map(drop);
        assert!(
            matches!(read, Err(StoreError::NotALedger { .. })),
            "{read:?}"
        );
        // Without a file a log is left over; a key may be put there before the first start.
        std::fs::remove_file(&path).unwrap();
        match beside.ends_with("-wal") {
            true => assert!(matches!(try_own(&path), Err(LockError::Emptied { .. }))),
            false => drop(try_own(&path).unwrap()),
        }
    }
}

#[test]
fn a_file_of_one_byte_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "x").unwrap();
    for opened in [
        SqliteStore::open(&path).map(drop),
        SqliteReader::open(&path).map(drop),
    ] {
        let refused = matches!(opened, Err(StoreError::NotALedger { .. }));
        assert!(refused, "{opened:?}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
}

/// What somebody does to a ledger file, with another path at hand.
type Change = fn(&Path, &Path);

#[test]
fn an_owner_whose_files_are_moved_removed_or_replaced_appends_no_more() {
    let change: [(&str, Change); 4] = [
        ("moved", |path, aside| std::fs::rename(path, aside).unwrap()),
        ("removed", |path, _| std::fs::remove_file(path).unwrap()),
        ("replaced", |path, aside| {
            std::fs::copy(path, aside).unwrap();
            std::fs::rename(aside, path).unwrap();
        }),
        ("without its log", |path, _| {
            std::fs::remove_file(path.with_extension("db-wal")).unwrap();
        }),
    ];
    for (what, change) in change {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let aside = folder.path().join("aside.db");
        let lock = try_own(&path).unwrap();
        let mut store = SqliteStore::open(&path).unwrap();
        let epoch = store.acquire().unwrap();
        let mut append = |name: &str| {
            let entry = entry(&run(name), None, vec![ended()]);
            store.append(epoch, &[entry])
        };
        assert_eq!(append("a"), Ok(vec![Ok(0)]), "{what}");
        change(&path, &aside);
        let refused = append("b").unwrap_err();
        assert!(matches!(refused, StoreError::Damaged(_)), "{what}");
        let words = "was moved, removed or replaced while it was in use";
        assert!(refused.to_string().contains(words), "{what}: {refused}");
        drop(store);
        drop(lock);
        if what == "moved" {
            // Its log was left, so nothing is lost once it is back.
            std::fs::rename(&aside, &path).unwrap();
            let store = SqliteStore::open(&path).unwrap();
            assert!(store.tail(&run("a")).unwrap().is_some());
            assert_eq!(store.tail(&run("b")).unwrap(), None);
        }
    }
}

#[test]
fn a_ledger_that_was_not_closed_has_no_owner_without_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut lock = try_own(&path).unwrap();
    let mut store = SqliteStore::open(&path).unwrap();
    let epoch = store.acquire().unwrap();
    lock.set_log_epoch(epoch.0).unwrap();
    let first = entry(&run("a"), None, vec![ended()]);
    store.append(epoch, &[first]).unwrap();
    assert_eq!(missing_log(&path), None, "somebody owns it");
    // What an owner leaves that is killed now.
    let killed = |files: &[&str]| {
        let elsewhere = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::copy(folder.path().join(file), elsewhere.path().join(file)).unwrap();
        }
        elsewhere
    };
    let whole = killed(&["ledger.db", "ledger.db-wal", "ledger.db.lock"]);
    drop(try_own(&whole.path().join("ledger.db")).unwrap());
    let cut = killed(&["ledger.db", "ledger.db.lock"]);
    let left = cut.path().join("ledger.db");
    for _ in 0..2 {
        let refused = try_own(&left).unwrap_err();
        assert!(matches!(refused, LockError::LogMissing { .. }), "{refused}");
    }
    assert_eq!(missing_log(&left), Some(cut.path().join("ledger.db-wal")));
    // Whoever closes it instead puts what is in the log into the file.
    let closed = killed(&["ledger.db", "ledger.db-wal", "ledger.db.lock"]);
    let left_by = closed.path().join("ledger.db");
    let tool = rusqlite::Connection::open(&left_by).unwrap();
    let count = |_: &rusqlite::Row<'_>| Ok(());
    tool.query_row("SELECT count(*) FROM frames", [], count)
        .unwrap();
    drop(tool);
    assert!(!closed.path().join("ledger.db-wal").exists());
    assert_eq!(missing_log(&left_by), None);
    drop(try_own(&left_by).unwrap());
    // Somebody has decided to go on without it.
    std::fs::remove_file(cut.path().join("ledger.db.lock")).unwrap();
    assert_eq!(missing_log(&left), None);
    drop(try_own(&left).unwrap());
    // A ledger that is closed has no log.
    lock.clear_log_epoch();
    drop(store);
    assert!(!folder.path().join("ledger.db-wal").exists());
    drop(lock);
    drop(try_own(&path).unwrap());
}

#[test]
fn an_owner_that_never_made_a_ledger_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    drop(try_own(&path).unwrap());
    assert!(!path.exists());
    let lock = try_own(&path).unwrap();
    small(&path);
    drop(lock);
    assert!(path.exists());
}

#[test]
fn a_reserve_is_kept_while_there_is_room_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let file = folder.path().join("ledger.db.reserve");
    let reserve = Reserve::beside(&path);
    reserve.keep(u64::MAX);
    assert!(!file.exists(), "no disk has that much left");
    reserve.keep(0);
    assert_eq!(std::fs::metadata(&file).unwrap().len(), RESERVE_BYTES);
    assert_eq!(mode(&file), 0o600);
    assert!(!reserve.release_if_full(), "there is room");
    assert!(file.exists());
}

#[test]
fn a_reserve_is_put_back_once_and_never_made_larger() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let file = folder.path().join("ledger.db.reserve");
    let reserve = Reserve::beside(&path);
    std::fs::write(&file, "what was left").unwrap();
    reserve.put_back();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 13);
    std::fs::remove_file(&file).unwrap();
    reserve.put_back();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), RESERVE_BYTES);
    // Whoever has room for a whole one makes it.
    std::fs::write(&file, "what was left").unwrap();
    reserve.keep(0);
    assert_eq!(std::fs::metadata(&file).unwrap().len(), RESERVE_BYTES);
}

/// A byte of a frame that changes on the disk while nobody looks is never read as what was said.
#[test]
fn a_frame_that_is_not_what_its_hash_says_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    small(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(4).position(|four| four == b"\"at\"").unwrap() + 6;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    let read = reader.read(&run("a"), 0, 10);
    let words = "run:a#0 is not what its hash says".to_owned();
    assert_eq!(read, Err(StoreError::Damaged(words)));
}

/// Each frame is what its hash says, and one of them is another than the next one follows from.
#[test]
fn a_frame_that_does_not_follow_from_the_one_before_is_not_read_as_one_of_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut store = SqliteStore::open(&path).unwrap();
    let epoch = store.acquire().unwrap();
    let entry = entry(&run("a"), None, vec![ended(), ended()]);
    store.append(epoch, &[entry]).unwrap();
    drop(store);
    let reader = SqliteReader::open(&path).unwrap();
    assert_eq!(frames(&reader, &run("a")).unwrap().len(), 2);
    let first = reader.read(&run("a"), 0, 1).unwrap().remove(0);
    let body = first.body.replacen("\"at\":\"2", "\"at\":\"3", 1);
    assert_ne!(body, first.body);
    let tool = rusqlite::Connection::open(&path).unwrap();
    let names = "SELECT group_concat('DROP TRIGGER ' || name, ';') FROM sqlite_schema \
                 WHERE type = 'trigger'";
    let script: String = tool.query_row(names, [], |row| row.get(0)).unwrap();
    tool.execute_batch(&script).unwrap();
    let hash = Hash::of(body.as_bytes());
    let changed = tool.execute(
        "UPDATE frames SET body = ?1, hash = ?2 WHERE seq = 0",
        rusqlite::params![body, hash.as_bytes()],
    );
    assert_eq!(changed, Ok(1));
    let words = "run:a: frame 1 does not follow from what is before it".to_owned();
    let read = frames(&reader, &run("a"));
    assert_eq!(read.unwrap_err(), StoreError::Damaged(words));
}

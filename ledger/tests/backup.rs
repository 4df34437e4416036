//! Copies of a ledger in use, and coming back from them.

#![allow(clippy::unwrap_used)]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use ktsu_ledger::appender::{Appender, Options};
use ktsu_ledger::backup::{BackupError, backup, restore};
use ktsu_ledger::lock::try_own;
use ktsu_ledger::store::{SqliteReader, SqliteStore};
use ktsu_ledger::verify_file;
use ktsu_ledger::{Reader, Store};
use support::{completed, ended, entry, payload, row, run};

#[test]
fn a_ledger_in_use_is_copied_whole_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("ledger.db");
    let store = Box::new(SqliteStore::open(&live).unwrap());
    let (appender, thread) = Appender::start(store, Options::default()).unwrap();
    let stop = AtomicBool::new(false);
    let begun = Barrier::new(2);
    let copies: Vec<_> = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::SeqCst) {
                let name = run(&format!("r{number}"));
                let drafts = vec![completed("a", payload(2_000, number)), ended()];
                let made = entry(&name, None, drafts);
                let made = made
                    .with_index(row(&name, "w", "complete", number))
                    .unwrap();
                appender.append(made).unwrap();
                if number == 0 {
                    begun.wait();
                }
                number += 1;
            }
            number
        });
        begun.wait();
        let copies: Vec<_> = (0..4)
            .map(|number| {
                let copy = folder.path().join(format!("copy-{number}.db"));
                let report = backup(&live, &copy, true).unwrap().unwrap();
                // One state: every stream whole, every stream with its row.
                assert_eq!(report.frames, report.streams * 2);
                // The ledger in use verifies as well.
                let live = verify_file(&live, &Default::default(), &mut |_| {}).unwrap();
                assert_eq!(live.problems, vec![]);
                (copy, report)
            })
            .collect();
        stop.store(true, Ordering::SeqCst);
        assert!(writer.join().unwrap() > 0);
        copies
    });
    let epoch = appender.epoch();
    thread.shutdown().unwrap();
    let (copy, report) = copies.last().unwrap();
    assert!(!folder.path().join("copy-3.db-wal").exists());
    let mode = std::fs::metadata(copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // In a mode that any tool reads.
    assert_eq!(std::fs::read(copy).unwrap()[18..20], [1, 1]);

    let target = folder.path().join("back/ledger.db");
    assert_eq!(restore(copy, &target).unwrap().frames, report.frames);
    let mut store = SqliteStore::open(&target).unwrap();
    assert!(store.acquire().unwrap() > epoch);
    let page = store.list(&Default::default(), None, 10_000).unwrap();
    assert_eq!(page.rows.len() as u64, report.streams);
}

#[test]
fn nothing_is_overwritten_and_nothing_unsound_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("ledger.db");
    let mut store = SqliteStore::open(&live).unwrap();
    let epoch = store.acquire().unwrap();
    store
        .append(epoch, &[entry(&run("a"), None, vec![ended()])])
        .unwrap();
    let copy = folder.path().join("copy.db");
    assert!(backup(&live, &copy, false).unwrap().is_none());
    let before = std::fs::read(&copy).unwrap();
    assert!(matches!(
        backup(&live, &copy, false),
        Err(BackupError::Exists(_))
    ));
    assert!(matches!(restore(&copy, &live), Err(BackupError::Exists(_))));
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    // A target that somebody owns, though its file is gone.
    let owned = folder.path().join("owned.db");
    let lock = try_own(&owned).unwrap();
    assert!(matches!(
        restore(&copy, &owned),
        Err(BackupError::Owned { .. })
    ));
    drop(lock);
    // A log without its ledger would be replayed into the copy.
    let stray = folder.path().join("stray.db");
    std::fs::write(folder.path().join("stray.db-wal"), "x").unwrap();
    assert!(matches!(
        restore(&copy, &stray),
        Err(BackupError::Exists(_))
    ));
    let missing = backup(&folder.path().join("none.db"), &stray, false);
    assert!(matches!(missing, Err(BackupError::Store(_))));
    // A damaged backup.
    let mut bytes = before.clone();
    let place = bytes
        .windows(13)
        .position(|it| it == b"run.completed")
        .unwrap();
    bytes[place] = b'R';
    std::fs::write(&copy, &bytes).unwrap();
    let target = folder.path().join("back.db");
    let unsound = restore(&copy, &target).unwrap_err();
    assert!(unsound.to_string().contains("run:a#0"), "{unsound}");
    assert!(!target.exists());
    drop(store);
    assert!(
        verify_file(&live, &Default::default(), &mut |_| {})
            .unwrap()
            .is_sound()
    );
    assert_eq!(
        SqliteReader::open(&live).unwrap().streams(None, 9).unwrap(),
        vec![run("a")]
    );
}

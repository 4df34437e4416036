//! Runs from ledger to ledger, and what the command line does with evidence.

use std::path::Path;

use ktsu::assemble::import::import;
use ktsu_evidence::export::ExportSelection;
use ktsu_evidence::{facts, transfer};
use ktsu_ledger::store::{Audit as _, SqliteReader};
use serde_json::Value;

use super::book::{Book, rechained};
use super::{honest, runs};

fn everything() -> ExportSelection {
    ExportSelection {
        all: true,
        ..ExportSelection::default()
    }
}

fn exported(path: &Path) -> String {
    let reader = SqliteReader::open(path).unwrap();
    transfer::export(&reader, &everything()).unwrap()
}

#[test]
fn what_is_exported_comes_in_byte_for_byte_with_children_branches_and_parents() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let book = Book::write(&honest(3));
    let lines = transfer::export(&book.store, &everything()).unwrap();
    let imported = import(&first, &lines).unwrap();
    assert_eq!((imported.streams, imported.known), (6, 0));
    assert_eq!(exported(&first), lines);
    // Once more is nothing new; into a ledger that has some of them, the rest.
    assert_eq!(import(&first, &lines).unwrap().known, 6);
    let some = ExportSelection {
        streams: vec![runs(3)[2].stream.clone()],
        ..ExportSelection::default()
    };
    let some = transfer::export(&book.store, &some).unwrap();
    assert_eq!(import(&second, &some).unwrap().streams, 2);
    assert_eq!(import(&second, &lines).unwrap().known, 2);
    let origin = |path: &Path| facts::origin(&SqliteReader::open(path).unwrap()).unwrap();
    let third = folder.path().join("c.db");
    import(&third, &lines).unwrap();
    assert_ne!(origin(&first), origin(&third), "two ledgers, two names");
    assert_eq!(exported(&second), lines);
    let report = ktsu_ledger::verify_file(&second, &Default::default(), &mut |_| {});
    assert_eq!(report.unwrap().problems, []);
}

#[test]
fn what_does_not_verify_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let book = Book::write(&honest(4));
    let lines = transfer::export(&book.store, &everything()).unwrap();
    let mut without_one: Vec<&str> = lines.lines().collect();
    without_one.remove(without_one.len() / 2);
    for (told, changed) in [
        ("cut", lines[..lines.len() / 2].to_owned()),
        ("a frame less", without_one.join("\n") + "\n"),
        (
            "a changed byte",
            lines.replacen("\"at\":\"202", "\"at\":\"201", 1),
        ),
        (
            "a changed blob",
            lines.replacen("\"text\":{\"", "\"text\":{\"A", 1),
        ),
        (
            "another format",
            lines.replacen("\"ktsu_export\":1", "\"ktsu_export\":2", 1),
        ),
        ("no export", "{}\n".to_owned()),
        ("nothing", String::new()),
    ] {
        assert_ne!(changed, lines, "{told}");
        assert!(import(&path, &changed).is_err(), "{told}");
        assert!(!path.exists(), "{told}");
    }
    import(&path, &lines).unwrap();
    let before = exported(&path);
    let other = rechained(&runs(4)[0], |place, body| match place {
        0 => body.replacen("\"at\":\"202", "\"at\":\"201", 1),
        _ => body,
    });
    let other = Book::write(&[super::book::Act::Run(other)]);
    let other = transfer::export(&other.store, &everything()).unwrap();
    let refused = import(&path, &other).unwrap_err().to_string();
    assert!(
        refused.contains("here already, with other frames"),
        "{refused}"
    );
    assert_eq!(exported(&path), before);
}

#[test]
fn cloud_events_name_each_frame_once_and_the_ledger_it_is_of() {
    let book = Book::write(&honest(5));
    let lines = transfer::cloud_events(&book.store, &everything()).unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["specversion"], "1.0");
        assert!(
            event["source"]
                .as_str()
                .unwrap()
                .starts_with("ktsu/ledger/")
        );
        assert!(event["time"].is_string() && event["type"].is_string());
        if event["type"] == "run.created" {
            assert!(
                event["dataref"]
                    .as_str()
                    .unwrap()
                    .starts_with("urn:blake3:")
            );
        }
        assert!(
            ids.insert(event["id"].as_str().unwrap().to_owned()),
            "{line}"
        );
    }
    let frames = book.store.scan_frames(1, 10_000).unwrap();
    let of_runs = frames
        .iter()
        .filter(|frame| frame.stream.as_deref() != Some("store"));
    assert_eq!(ids.len(), of_runs.count());
}

#[test]
fn a_bad_line_is_named_and_its_beginning_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let book = Book::write(&honest(4));
    let good = transfer::export(&book.store, &everything()).unwrap();
    let good = good.into_bytes();
    let lines: Vec<Vec<u8>> = good
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let last = lines.len() - 2;
    let with = |at: usize, change: &dyn Fn(&[u8]) -> Vec<u8>| {
        let mut lines = lines.clone();
        lines[at] = change(&lines[at]);
        import(&path, lines.join(&b'\n')).unwrap_err().to_string()
    };
    type Change<'a> = (&'a str, &'a dyn Fn(&[u8]) -> Vec<u8>);
    let changes: [Change<'_>; 4] = [
        ("a changed byte", &|line| {
            String::from_utf8_lossy(line)
                .replacen("\"at\":\"202", "\"at\":\"201", 1)
                .into_bytes()
        }),
        ("no JSON", &|_| b"{".to_vec()),
        ("another encoding", &|_| b"{\"hash\":\"\xff\xfe\"}".to_vec()),
        ("a long line", &|_| vec![b'x'; 100_000]),
    ];
    for (told, change) in changes {
        let error = with(last, &change);
        assert!(
            error.starts_with(&format!("line {}: ", last + 1)),
            "{told}: {error}"
        );
        assert!(error.len() < 1000, "{told}: {} bytes", error.len());
        let read = error.split_once("it reads ").unwrap().1;
        assert!(read.len() > 2, "{told}: {error}");
        if told == "a long line" {
            assert_eq!(read.matches('x').count(), 200, "{error}");
        }
    }
    let error = with(0, &|_| b"not an export".to_vec());
    assert!(
        error.starts_with("line 1: not an export of ktsu"),
        "{error}"
    );
    assert!(error.contains("not an export"), "{error}");
    assert!(!path.exists());
}

//! `docs/ledger-format.md` says what the code does, to the byte.

#![allow(clippy::unwrap_used)]

mod support;

use ktsu_ledger::event::RunEvent;
use ktsu_ledger::event::lock::{self, Kind, Lock, LockEntry, LockedPrices};
use ktsu_ledger::store::{FORMAT, SqliteStore};
use ktsu_ledger::{CanonicalJson, Cause, Draft, Event, Hash, Link, Sealed, Timestamp};
use support::{caused, completed, created, run};

const DOCUMENT: &str = include_str!("../../docs/ledger-format.md");

fn example() -> Vec<Sealed> {
    let (mut prev, mut frames) = (Hash::ZERO, Vec::new());
    let output = CanonicalJson::parse(r#"{"city":"Zürich","total":12}"#.as_bytes()).unwrap();
    let drafts: [Draft; 2] = [
        created("triage"),
        caused(completed("sum", output), vec![Cause::Here(0)]),
    ];
    for (seq, draft) in drafts.into_iter().enumerate() {
        let link = Link {
            stream: run("run_example"),
            seq: seq as u64,
            prev,
        };
        let at = Timestamp::from_micros(1_795_205_231_123_456);
        let sealed = draft.seal(link, at).unwrap();
        prev = sealed.record.hash;
        frames.push(sealed);
    }
    frames
}

/// Asserts that the document holds a line, which is what to put there if it does not.
fn holds(line: &str) {
    assert!(
        DOCUMENT.contains(line),
        "docs/ledger-format.md lacks:\n{line}\n"
    );
}

#[test]
fn the_example_in_bytes_is_what_the_code_writes() {
    for sealed in example() {
        holds(&format!("\n{}\n", sealed.record.body));
        holds(&format!("\n{}\n", sealed.record.hash));
        for blob in sealed.blobs {
            holds(&format!("\n{}\n", blob.text));
            holds(&blob.hash.to_string());
        }
    }
}

#[test]
fn a_lock_is_written_as_the_document_says_and_kept_beside_the_definition() {
    let digest = |digit: char| digit.to_string().repeat(64);
    let Event::Run(RunEvent::Created(mut bare)) = created("triage").event else {
        unreachable!("created makes run.created")
    };
    let entry = |kind, path: &str, digit, definition| LockEntry {
        definition,
        digest: digest(digit),
        kind,
        path: path.to_owned(),
        tools: None,
        version: "1.0.0".to_owned(),
    };
    let workflow = "workflows/triage.workflow.yaml";
    let lock = Lock {
        entries: vec![
            entry(Kind::Agent, "agents/clerk.agent.yaml", '1', None),
            entry(Kind::Workflow, workflow, '2', Some(bare.digest.clone())),
        ],
        format: lock::FORMAT,
        prices: LockedPrices {
            digest: digest('3'),
            version: "2026-11".to_owned(),
        },
    };
    let json = CanonicalJson::from_value(&serde_json::to_value(&lock).unwrap()).unwrap();
    holds(&format!("\n{json}\n"));
    assert_eq!(serde_json::from_str::<Lock>(json.as_str()).unwrap(), lock);
    bare.lock = Some(json.clone());
    let draft = Draft {
        event: Event::Run(RunEvent::Created(bare)),
        ..created("triage")
    };
    let link = Link {
        stream: run("run_example"),
        seq: 0,
        prev: Hash::ZERO,
    };
    let sealed = draft.seal(link, Timestamp::from_micros(0)).unwrap();
    assert!(sealed.record.body.contains(r#""lock":null,"#));
    let paths: Vec<&str> = sealed
        .frame
        .ext
        .iter()
        .map(|one| one.path.as_str())
        .collect();
    assert_eq!(paths, ["/definition", "/lock"]);
    let lock = sealed.frame.event.created().unwrap().lock.clone();
    assert_eq!(lock, Some(json));
}

#[test]
fn the_schema_is_what_the_code_makes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    drop(SqliteStore::open(&path).unwrap());
    let tool = rusqlite::Connection::open(&path).unwrap();
    let mut statement = tool
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
        .unwrap();
    let texts = statement
        .query_map([], |row| row.get::<_, String>(0))
        .unwrap();
    for text in texts {
        holds(&format!("\n{};\n", text.unwrap()));
    }
    let id: i64 = tool
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .unwrap();
    holds(&format!("`{id:#x}`"));
    holds(&format!("format {FORMAT}"));
}

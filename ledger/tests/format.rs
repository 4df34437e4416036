//! `docs/ledger-format.md` says what the code does, to the byte.

#![allow(clippy::unwrap_used)]

mod support;

use ktsu_ledger::store::{FORMAT, SqliteStore};
use ktsu_ledger::{Cause, Draft, Hash, Json, Link, Sealed, Timestamp};
use support::{caused, completed, created, run};

const DOCUMENT: &str = include_str!("../../docs/ledger-format.md");

fn example() -> Vec<Sealed> {
    let (mut prev, mut frames) = (Hash::ZERO, Vec::new());
    let output = Json::parse(r#"{"city":"Zürich","total":12}"#.as_bytes()).unwrap();
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

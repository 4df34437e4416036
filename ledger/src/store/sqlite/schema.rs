//! The tables of an SQLite ledger. Persisted, keep stable; described in `docs/ledger-format.md`.
//!
//! Format 1: as declared here.

/// The version of the schema and of its content.
pub const FORMAT: u64 = 1;
/// `ktsu` in ASCII, at byte 68 of the file.
pub(super) const APPLICATION_ID: i64 = 0x6b74_7375;

/// Every object of the schema: type, name, and the text that makes it. Verification compares the
/// stored text with this one.
pub(super) const OBJECTS: &[(&str, &str, &str)] = &[
    (
        "table",
        "meta",
        "CREATE TABLE meta (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  format INTEGER NOT NULL,
  epoch INTEGER NOT NULL
) STRICT",
    ),
    (
        "table",
        "streams",
        "CREATE TABLE streams (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT",
    ),
    (
        "table",
        "frames",
        "CREATE TABLE frames (
  pos INTEGER PRIMARY KEY,
  stream INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  hash BLOB NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (stream, seq)
) STRICT",
    ),
    (
        "table",
        "blobs",
        "CREATE TABLE blobs (
  pos INTEGER PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  body TEXT NOT NULL
) STRICT",
    ),
    (
        "table",
        "removals",
        "CREATE TABLE removals (
  stream INTEGER PRIMARY KEY,
  frames INTEGER NOT NULL,
  authority INTEGER NOT NULL,
  open INTEGER NOT NULL CHECK (open IN (0, 1))
) STRICT",
    ),
    (
        "table",
        "index_rows",
        "CREATE TABLE index_rows (
  stream TEXT PRIMARY KEY,
  workflow TEXT NOT NULL,
  status TEXT NOT NULL,
  open INTEGER NOT NULL,
  created_us INTEGER NOT NULL,
  key TEXT UNIQUE,
  row TEXT NOT NULL,
  digest BLOB NOT NULL
) STRICT, WITHOUT ROWID",
    ),
    (
        "index",
        "index_rows_newest",
        "CREATE INDEX index_rows_newest ON index_rows (created_us, stream)",
    ),
    (
        "index",
        "index_rows_workflow",
        "CREATE INDEX index_rows_workflow ON index_rows (workflow, created_us, stream)",
    ),
    (
        "index",
        "index_rows_status",
        "CREATE INDEX index_rows_status ON index_rows (status, created_us, stream)",
    ),
    (
        "index",
        "index_rows_open",
        "CREATE INDEX index_rows_open ON index_rows (created_us, stream) WHERE open = 1",
    ),
    (
        "trigger",
        "meta_only_rises",
        "CREATE TRIGGER meta_only_rises BEFORE UPDATE ON meta
WHEN NEW.epoch <= OLD.epoch OR NEW.format < OLD.format
BEGIN SELECT RAISE(ABORT, 'epoch and format only rise'); END",
    ),
    (
        "trigger",
        "meta_stays",
        "CREATE TRIGGER meta_stays BEFORE DELETE ON meta
BEGIN SELECT RAISE(ABORT, 'the meta row stays'); END",
    ),
    (
        "trigger",
        "frames_never_change",
        "CREATE TRIGGER frames_never_change BEFORE UPDATE ON frames
BEGIN SELECT RAISE(ABORT, 'frames never change'); END",
    ),
    (
        "trigger",
        "frames_stay",
        "CREATE TRIGGER frames_stay BEFORE DELETE ON frames
WHEN NOT EXISTS (SELECT 1 FROM removals WHERE stream = OLD.stream AND open = 1)
BEGIN SELECT RAISE(ABORT, 'frames stay'); END",
    ),
    (
        "trigger",
        "frames_are_not_replaced",
        "CREATE TRIGGER frames_are_not_replaced BEFORE INSERT ON frames
WHEN NEW.pos <> -1
  OR EXISTS (SELECT 1 FROM frames WHERE stream = NEW.stream AND seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'frames are not replaced'); END",
    ),
    (
        "trigger",
        "streams_never_change",
        "CREATE TRIGGER streams_never_change BEFORE UPDATE ON streams
BEGIN SELECT RAISE(ABORT, 'streams never change'); END",
    ),
    (
        "trigger",
        "streams_stay",
        "CREATE TRIGGER streams_stay BEFORE DELETE ON streams
BEGIN SELECT RAISE(ABORT, 'streams stay'); END",
    ),
    (
        "trigger",
        "streams_are_not_replaced",
        "CREATE TRIGGER streams_are_not_replaced BEFORE INSERT ON streams
WHEN EXISTS (SELECT 1 FROM streams WHERE id = NEW.id OR name = NEW.name)
BEGIN SELECT RAISE(ABORT, 'streams are not replaced'); END",
    ),
    (
        "trigger",
        "blobs_never_change",
        "CREATE TRIGGER blobs_never_change BEFORE UPDATE ON blobs
BEGIN SELECT RAISE(ABORT, 'blobs never change'); END",
    ),
    (
        "trigger",
        "blobs_stay",
        "CREATE TRIGGER blobs_stay BEFORE DELETE ON blobs
WHEN NOT EXISTS (SELECT 1 FROM removals WHERE open = 1)
BEGIN SELECT RAISE(ABORT, 'blobs stay'); END",
    ),
    (
        "trigger",
        "blobs_are_not_replaced",
        "CREATE TRIGGER blobs_are_not_replaced BEFORE INSERT ON blobs
WHEN EXISTS (SELECT 1 FROM blobs WHERE pos = NEW.pos OR hash = NEW.hash)
BEGIN SELECT RAISE(ABORT, 'blobs are not replaced'); END",
    ),
    (
        "trigger",
        "removals_only_close",
        "CREATE TRIGGER removals_only_close BEFORE UPDATE ON removals
WHEN OLD.open = 0 OR NEW.open = 1 OR NEW.stream <> OLD.stream
  OR NEW.frames <> OLD.frames OR NEW.authority <> OLD.authority
BEGIN SELECT RAISE(ABORT, 'a removal is only closed'); END",
    ),
    (
        "trigger",
        "removals_stay",
        "CREATE TRIGGER removals_stay BEFORE DELETE ON removals
BEGIN SELECT RAISE(ABORT, 'removals stay'); END",
    ),
];

/// The statements that make an empty ledger, to be run as one transaction.
pub(super) fn creation() -> String {
    let mut script = format!("BEGIN IMMEDIATE;\nPRAGMA application_id = {APPLICATION_ID};\n");
    for (_, _, text) in OBJECTS {
        script.push_str(text);
        script.push_str(";\n");
    }
    script.push_str("INSERT INTO meta (id, format, epoch) VALUES (1, ");
    script.push_str(&FORMAT.to_string());
    script.push_str(", 0);\nCOMMIT;\n");
    script
}

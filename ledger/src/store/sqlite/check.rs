//! Checks of an SQLite ledger apart from its frames.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::files::failed;
use super::schema::{APPLICATION_ID, FORMAT, OBJECTS};
use crate::store::Inspection;

/// Checks everything around the frames. Every failure is a finding.
pub(super) fn inspect(connection: &Connection) -> Inspection {
    let mut inspection = Inspection::default();
    let checks: [(&str, Check); 6] = [
        ("the pages", pages),
        ("the schema", schema),
        ("meta", meta),
        ("the streams", streams),
        ("the removals", removals),
        ("the positions", positions),
    ];
    for (what, check) in checks {
        if let Err(error) = check(connection, &mut inspection) {
            let error = failed(error);
            let problem = format!("{what} cannot be read: {error}");
            inspection.problems.push(problem);
            if error.is_failed() {
                inspection.failed.get_or_insert(error);
            }
        }
    }
    inspection
}

type Check = fn(&Connection, &mut Inspection) -> rusqlite::Result<()>;

fn pages(connection: &Connection, found: &mut Inspection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let said: String = row.get(0)?;
        if said != "ok" {
            found.problems.push(said);
        }
    }
    Ok(())
}

fn schema(connection: &Connection, found: &mut Inspection) -> rusqlite::Result<()> {
    // The indexes that SQLite makes for UNIQUE have no text; the pages were checked.
    let mut statement = connection
        .prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL")?;
    let mut rows = statement.query([])?;
    let mut seen = BTreeSet::new();
    while let Some(row) = rows.next()? {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        let (table, text): (String, String) = (row.get(2)?, row.get(3)?);
        let wanted = OBJECTS
            .iter()
            .any(|(k, n, t)| (*k, *n, *t) == (kind.as_str(), name.as_str(), text.as_str()));
        // `CREATE TABLE name` or `CREATE … ON table`: the text contains the table, too.
        if !wanted || !text.contains(&table) {
            let problem = format!("the {kind} {name} is not what this format has");
            found.problems.push(problem);
        }
        seen.insert(name);
    }
    for (kind, name, _) in OBJECTS.iter().filter(|(_, name, _)| !seen.contains(*name)) {
        found.problems.push(format!("the {kind} {name} is missing"));
    }
    Ok(())
}

fn meta(connection: &Connection, found: &mut Inspection) -> rusqlite::Result<()> {
    let id: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if id != APPLICATION_ID {
        found
            .problems
            .push("the application id is another program's".to_owned());
    }
    let (rows, format, epoch): (i64, i64, i64) = connection.query_row(
        "SELECT count(*), max(format), max(epoch) FROM meta",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    if rows != 1 || u64::try_from(format) != Ok(FORMAT) {
        found
            .problems
            .push(format!("meta has {rows} rows and says format {format}"));
    }
    match u64::try_from(epoch) {
        Ok(epoch) => found.epoch = Some(epoch),
        Err(_) => found.problems.push(format!("meta says epoch {epoch}")),
    }
    Ok(())
}

/// Every stream has frames, or was removed; its names are found by name; its numbers have no gap.
fn streams(connection: &Connection, found: &mut Inspection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT id, name, \
           (SELECT other.id FROM streams AS other WHERE other.name = streams.name), \
           EXISTS (SELECT 1 FROM frames WHERE frames.stream = streams.id), \
           EXISTS (SELECT 1 FROM removals WHERE removals.stream = streams.id) \
         FROM streams ORDER BY id",
    )?;
    let mut rows = statement.query([])?;
    let mut last = 0;
    while let Some(row) = rows.next()? {
        let (id, name): (i64, String) = (row.get(0)?, row.get(1)?);
        let looked_up: Option<i64> = row.get(2)?;
        let (has_frames, removed): (bool, bool) = (row.get(3)?, row.get(4)?);
        if id != last + 1 || looked_up != Some(id) {
            found
                .problems
                .push(format!("the stream {name:?} has the number {id}"));
        }
        if has_frames == removed {
            let what = if removed {
                "was removed and has"
            } else {
                "has no"
            };
            found
                .problems
                .push(format!("the stream {name:?} {what} frames"));
        }
        last = id;
    }
    Ok(())
}

fn removals(connection: &Connection, found: &mut Inspection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT (SELECT name FROM streams WHERE id = stream), frames, open, stream FROM removals",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name: Option<String> = row.get(0)?;
        let (frames, open): (i64, i64) = (row.get(1)?, row.get(2)?);
        let id: i64 = row.get(3)?;
        let name = name.unwrap_or_else(|| format!("the stream {id}, which has no name"));
        if open != 0 {
            found
                .problems
                .push(format!("the removal of {name:?} was left open"));
        }
        match u64::try_from(frames) {
            Ok(frames) => found.removed.push((name, frames)),
            Err(_) => found
                .problems
                .push(format!("the removal of {name:?} is of {frames} frames")),
        }
    }
    Ok(())
}

/// Positions are given from 1 on and without gaps; frames that are gone leave one, unless they were
/// removed.
fn positions(connection: &Connection, found: &mut Inspection) -> rusqlite::Result<()> {
    for table in ["frames", "blobs"] {
        let text = format!("SELECT coalesce(min(pos), 1) FROM {table}");
        let first: i64 = connection.query_row(&text, [], |row| row.get(0))?;
        if first < 1 {
            let problem = format!("the positions of {table} begin at {first}, not at 1");
            found.problems.push(problem);
        }
    }
    // One statement: a removal changes both sides at once.
    let (count, last, removed): (i64, i64, i64) = connection.query_row(
        "SELECT count(*), coalesce(max(pos), 0), \
         (SELECT coalesce(sum(frames), 0) FROM removals) FROM frames WHERE pos > 0",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let gone = last.saturating_sub(count);
    if gone != removed {
        let gaps = gaps(connection)?;
        let removed = match removed {
            0 => String::new(),
            removed => format!(", while {removed} are said to have been removed"),
        };
        found
            .problems
            .push(format!("{gone} frames are gone{removed}{gaps}"));
    }
    Ok(())
}

/// The gaps between positions, with the frames on both sides.
fn gaps(connection: &Connection) -> rusqlite::Result<String> {
    let mut statement = connection.prepare(&format!(
        "WITH steps AS (SELECT lag(pos, 1, 0) OVER (ORDER BY pos) AS before, pos FROM frames \
           WHERE pos > 0) \
         SELECT before, pos, (SELECT {LABEL} FROM frames WHERE pos = before), \
           (SELECT {LABEL} FROM frames WHERE pos = steps.pos) \
         FROM steps WHERE pos > before + 1 ORDER BY pos LIMIT {MAX_GAPS}"
    ))?;
    let mut rows = statement.query([])?;
    let mut said = String::new();
    while let Some(row) = rows.next()? {
        let (before, after): (i64, i64) = (row.get(0)?, row.get(1)?);
        let name = |name: Option<String>| name.unwrap_or_else(|| "nothing".to_owned());
        let (left, right) = (name(row.get(2)?), name(row.get(3)?));
        let (first, last) = (before.saturating_add(1), after.saturating_sub(1));
        let which = if first == last {
            format!("position {first}")
        } else {
            format!("positions {first} to {last}")
        };
        said.push_str(&format!("; {which}, between {left} and {right}"));
    }
    Ok(said)
}

/// A frame, as people name it.
const LABEL: &str = "coalesce((SELECT name FROM streams WHERE id = stream), '?') || '#' || seq";
/// The most gaps that are listed.
const MAX_GAPS: usize = 20;

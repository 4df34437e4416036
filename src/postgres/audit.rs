//! Everything that is in the container of a ledger, and what it finds wrong with itself: frames that
//! are gone, and triggers that are.

use ktsu_ledger::store::columns::{position, scan_start};
use ktsu_ledger::store::{Audit, Inspection, MAX_PAGE, PAGE_BYTES, RawBlob, RawFrame, StoreError};
use ktsu_ledger::{Record, StreamId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::queries::PostgresQueries;
use crate::values::{ROW, column, index_row, limit, number, record, text, unsigned};

/// The triggers that keep frames as they are.
const TRIGGERS: [&str; 13] = [
    "blobs_are_not_truncated",
    "blobs_never_change",
    "blobs_stay",
    "frames_are_not_truncated",
    "frames_never_change",
    "frames_stay",
    "ledger_is_not_truncated",
    "ledger_only_rises",
    "ledger_stays",
    "removals_are_not_truncated",
    "removals_never_change",
    "streams_are_not_truncated",
    "streams_never_change",
];

impl Audit for PostgresQueries {
    fn scan_frames(&self, from: u64, most: usize) -> Result<Vec<RawFrame>, StoreError> {
        // Each name by itself: a join would read all streams for a page.
        let question =
            "SELECT pos, (SELECT name FROM streams WHERE id = summed.stream), seq, hash, body,
               (SELECT other.pos FROM frames AS other
                WHERE other.stream = summed.stream AND other.seq = summed.seq) AS found_at FROM (
               SELECT *, sum(octet_length(body)) OVER (ORDER BY pos) - octet_length(body) AS before
               FROM (SELECT * FROM frames WHERE pos >= $1 ORDER BY pos LIMIT $2) AS page) AS summed
             WHERE before < $3 ORDER BY pos";
        let rows = self.ask(question, &|| {
            vec![
                (Box::new(scan_start(from)), Type::INT8),
                limit(most.min(MAX_PAGE)),
                limit(PAGE_BYTES),
            ]
        })?;
        let frame = |row: &Row| {
            let at: i64 = column(row, 0)?;
            let found_at: Option<i64> = column(row, 5)?;
            let seq: i64 = column(row, 2)?;
            let (position, misplaced) = position(at);
            let body: String = column(row, 4)?;
            Ok(RawFrame {
                position,
                misplaced,
                stream: column(row, 1)?,
                seq: u64::try_from(seq).ok(),
                hash: column(row, 3)?,
                body: body.into_bytes(),
                is_found: found_at == Some(at),
            })
        };
        rows.iter().map(frame).collect()
    }

    fn scan_blobs(&self, from: u64, most: usize) -> Result<Vec<RawBlob>, StoreError> {
        let question = "SELECT pos, hash, body FROM (
               SELECT *, sum(octet_length(body)) OVER (ORDER BY pos) - octet_length(body) AS before
               FROM (SELECT * FROM blobs WHERE pos >= $1 ORDER BY pos LIMIT $2) AS page) AS summed
             WHERE before < $3 ORDER BY pos";
        let rows = self.ask(question, &|| {
            vec![
                (Box::new(scan_start(from)), Type::INT8),
                limit(most.min(MAX_PAGE)),
                limit(PAGE_BYTES),
            ]
        })?;
        let blob = |row: &Row| {
            let (position, misplaced) = position(column(row, 0)?);
            let body: String = column(row, 2)?;
            Ok(RawBlob {
                position,
                misplaced,
                hash: column(row, 1)?,
                body: body.into_bytes(),
            })
        };
        rows.iter().map(blob).collect()
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        most: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let question = "SELECT seq, pos FROM frames
             WHERE stream = (SELECT id FROM streams WHERE name = $1) AND seq >= $2
             ORDER BY seq LIMIT $3";
        let rows = self.ask(question, &|| {
            vec![
                text(stream.as_str()),
                number(from),
                limit(most.min(MAX_PAGE)),
            ]
        })?;
        rows.iter()
            .map(|row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)))
            .collect()
    }

    fn removals(&self, from: u64, most: usize) -> Result<Vec<Record>, StoreError> {
        let question = "SELECT seq, hash, body FROM frames
             WHERE pos IN (SELECT authority FROM removals) AND seq >= $1 ORDER BY seq LIMIT $2";
        let rows = self.ask(question, &|| vec![number(from), limit(most.min(MAX_PAGE))])?;
        let store = StreamId::store();
        rows.iter().map(|row| record(row, &store)).collect()
    }

    /// The frame of `store` that removed a stream.
    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        let question = "SELECT seq, hash, body FROM frames WHERE pos = (
               SELECT authority FROM removals WHERE stream = (SELECT id FROM streams WHERE name = $1))";
        let row = self.ask_one(question, &|| vec![text(stream.as_str())])?;
        row.map(|row| record(&row, &StreamId::store())).transpose()
    }

    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        let question = format!(
            "SELECT {ROW}, EXISTS (SELECT 1 FROM streams WHERE name = stream) FROM index_rows
             WHERE stream > $1 ORDER BY stream LIMIT $2"
        );
        let (mut wrong, mut after) = (Vec::new(), String::new());
        loop {
            let rows = self.ask(&question, &|| vec![text(&after), limit(MAX_PAGE)])?;
            let Some(last) = rows.last() else {
                return Ok(wrong);
            };
            after = column(last, 0)?;
            for row in &rows {
                let why = match index_row(row) {
                    Err(error) => error.to_string(),
                    Ok(_) if !column::<bool>(row, 8)? => {
                        "an index row of a stream that does not exist".to_owned()
                    }
                    Ok(_) => continue,
                };
                wrong.push((column(row, 0)?, why));
            }
        }
    }

    /// Counts instead of comparing: a start must not take longer for every run that ever was.
    fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        let question =
            "SELECT (SELECT count(*) FROM index_rows WHERE split_part(stream, ':', 1) = $1) =
             (SELECT count(*) FROM streams WHERE split_part(name, ':', 1) = $1
              AND id NOT IN (SELECT stream FROM removals))";
        let row = self.ask_one(question, &|| vec![text(kind)])?;
        row.map_or(Ok(true), |row| column(&row, 0))
    }

    fn inspect(&self) -> Inspection {
        inspection_of(self)
    }
}

/// The state of a ledger's container.
fn inspection_of(ledger: &PostgresQueries) -> Inspection {
    let mut inspection = Inspection::default();
    if let Err(error) = look(ledger, &mut inspection) {
        inspection.problems.push(error.to_string());
        inspection.failed = Some(error);
    }
    inspection
}

/// Looks for what the container has wrong.
fn look(ledger: &PostgresQueries, inspection: &mut Inspection) -> Result<(), StoreError> {
    // One statement: an append and a removal change several of these at once.
    let question = "SELECT epoch, head, (SELECT count(*) FROM frames),
           (SELECT coalesce(max(pos), 0) FROM frames),
           (SELECT coalesce(sum(frames), 0)::bigint FROM removals) FROM ledger";
    let rows = ledger.ask(question, &Vec::new)?;
    match rows.as_slice() {
        [row] => {
            inspection.epoch = Some(unsigned(row, 0)?);
            let (head, count, last) = (unsigned(row, 1)?, unsigned(row, 2)?, unsigned(row, 3)?);
            if last > head {
                let words = format!("it has a frame at {last}, behind its head {head}");
                inspection.problems.push(words);
            }
            let (gone, removed) = (head.saturating_sub(count), unsigned(row, 4)?);
            if gone != removed {
                let words = format!("{gone} frames are gone, and {removed} were removed");
                inspection.problems.push(words);
            }
        }
        others => {
            let words = format!("it has {} owner's rows", others.len());
            inspection.problems.push(words);
        }
    }
    let question = "SELECT name, removed FROM (SELECT name,
           EXISTS (SELECT 1 FROM frames WHERE stream = streams.id) AS has_frames,
           EXISTS (SELECT 1 FROM removals WHERE stream = streams.id) AS removed
         FROM streams) AS all_streams WHERE has_frames = removed ORDER BY name";
    for row in &ledger.ask(question, &Vec::new)? {
        let (name, removed): (&str, bool) = (column(row, 0)?, column(row, 1)?);
        let what = if removed {
            "was removed and has"
        } else {
            "has no"
        };
        inspection
            .problems
            .push(format!("the stream {name:?} {what} frames"));
    }
    let question = "SELECT tgname::text FROM pg_trigger
         WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')
           AND tgrelid IN (to_regclass('ledger'), to_regclass('streams'), to_regclass('frames'),
                           to_regclass('blobs'), to_regclass('removals'))";
    let rows = ledger.ask(question, &Vec::new)?;
    let found: Vec<&str> = rows
        .iter()
        .map(|row| column(row, 0))
        .collect::<Result<_, _>>()?;
    let missing = TRIGGERS.iter().filter(|name| !found.contains(name));
    let words = missing.map(|name| format!("the trigger {name} is missing or disabled"));
    inspection.problems.extend(words);
    let question = "SELECT name, frames FROM removals JOIN streams ON streams.id = removals.stream
         ORDER BY name";
    for row in &ledger.ask(question, &Vec::new)? {
        let name: String = column(row, 0)?;
        inspection.removed.push((name, unsigned(row, 1)?));
    }
    Ok(())
}

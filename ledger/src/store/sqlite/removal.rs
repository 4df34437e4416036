//! Streams that are removed: deleting them, and what is left of them.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::files::failed;
use super::queries::{Queries, damaged, record, seq, text};
use crate::event::RunRemoved;
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::StreamId;
use crate::removal::end_of_removed;
use crate::store::columns::int;
use crate::store::{MAX_PAGE, StoreError};

impl Queries<'_> {
    pub(super) fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let mut statement = self.cached(
            "SELECT seq, pos FROM frames \
             WHERE stream = (SELECT id FROM streams WHERE name = ?1) AND seq >= ?2 \
             ORDER BY seq LIMIT ?3",
        )?;
        let parameters = params![stream.as_str(), int(from), int(limit.min(MAX_PAGE) as u64)];
        let mut rows = statement.query(parameters).map_err(failed)?;
        let mut positions = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            positions.push((seq(row, 0)?, seq(row, 1)?));
        }
        Ok(positions)
    }

    pub(super) fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let mut statement = self.cached(
            "SELECT seq, hash, body FROM frames \
             WHERE pos IN (SELECT authority FROM removals) AND seq >= ?1 ORDER BY seq LIMIT ?2",
        )?;
        let parameters = params![int(from), int(limit.min(MAX_PAGE) as u64)];
        let mut rows = statement.query(parameters).map_err(failed)?;
        let mut records = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            records.push(whole(record(row)?)?);
        }
        Ok(records)
    }

    pub(super) fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        let mut statement = self.cached(
            "SELECT seq, hash, body FROM frames WHERE pos = (SELECT authority FROM removals \
             WHERE stream = (SELECT id FROM streams WHERE name = ?1))",
        )?;
        let mut rows = statement.query([stream.as_str()]).map_err(failed)?;
        let found = rows.next().map_err(failed)?.map(record).transpose()?;
        found.map(whole).transpose()
    }

    /// The number after the last frame of a removed stream.
    pub(super) fn removed_end(&self, stream: &StreamId) -> Result<Option<u64>, StoreError> {
        let Some(record) = self.removal(stream)? else {
            return Ok(None);
        };
        end_of_removed(stream, &record).map(Some)
    }

    /// The bodies of the frames after a position.
    pub(super) fn bodies_after(&self, position: u64) -> Result<Vec<String>, StoreError> {
        let mut statement = self.cached("SELECT body FROM frames WHERE pos > ?1")?;
        let mut rows = statement.query([int(position)]).map_err(failed)?;
        let mut bodies = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            bodies.push(text(row, 0)?);
        }
        Ok(bodies)
    }
}

/// A record whose bytes are what its hash says.
fn whole(record: Record) -> Result<Record, StoreError> {
    match Hash::of(record.body.as_bytes()) == record.hash {
        true => Ok(record),
        false => Err(damaged(&format!(
            "store#{} is not what its hash says",
            record.seq
        ))),
    }
}

/// Deletes a stream: its frames, its index row, and some blobs. `authority` is the number of the
/// frame of `store` that records it, which was appended in the same transaction.
pub(super) fn delete(
    connection: &Connection,
    removed: &RunRemoved,
    blobs: &[Hash],
    authority: u64,
) -> Result<i64, StoreError> {
    let stream = removed.stream.as_str();
    let id = "SELECT id FROM streams WHERE name = ?1";
    let id = connection.query_row(id, [stream], |row| row.get::<_, i64>(0));
    let id = id.optional().map_err(failed)?;
    let id = id.ok_or_else(|| damaged(&format!("{stream} does not exist")))?;
    let run = |text: &str, parameters: &[&dyn rusqlite::ToSql]| {
        let mut statement = connection.prepare_cached(text).map_err(failed)?;
        statement.execute(parameters).map_err(failed)
    };
    run(
        "INSERT INTO removals (stream, frames, authority, open) SELECT ?1, ?2, pos, 1 FROM frames \
         WHERE stream = (SELECT id FROM streams WHERE name = 'store') AND seq = ?3",
        params![id, int(removed.frames), int(authority)],
    )?;
    let deleted = run("DELETE FROM frames WHERE stream = ?1", params![id])?;
    if deleted as u64 != removed.frames {
        let words = format!("{stream} has {deleted} frames, not {}", removed.frames);
        return Err(damaged(&words));
    }
    for blob in blobs {
        run(
            "DELETE FROM blobs WHERE hash = ?1",
            params![&blob.as_bytes()[..]],
        )?;
    }
    run("DELETE FROM index_rows WHERE stream = ?1", params![stream])?;
    run(
        "UPDATE removals SET open = 0 WHERE stream = ?1",
        params![id],
    )?;
    Ok(id)
}

//! Queries on a ledger, for any connection to it.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};

use super::files::failed;
use crate::canonical::CanonicalJson;
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::StreamId;
use crate::store::columns::{int, position, scan_start};
use crate::store::{
    Cursor, Filter, IndexRow, MAX_PAGE, PAGE_BYTES, Page, RawBlob, RawFrame, StoreError, Tail,
};
use crate::strict;

/// Read queries on a connection.
pub(super) struct Queries<'a>(pub(super) &'a Connection);

/// The number and the tail of a stream, as the writer remembers them.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamRow {
    pub(super) id: i64,
    pub(super) tail: Option<Tail>,
}

impl Queries<'_> {
    pub(super) fn read(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut statement = self.cached(
            "SELECT seq, hash, body FROM frames \
             WHERE stream = (SELECT id FROM streams WHERE name = ?1) AND seq >= ?2 \
             ORDER BY seq LIMIT ?3",
        )?;
        let parameters = params![stream.as_str(), int(from), int(limit.min(MAX_PAGE) as u64)];
        let mut rows = statement.query(parameters).map_err(failed)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next().map_err(failed)? {
            let record = record(row)?;
            if Hash::of(record.body.as_bytes()) != record.hash {
                let seq = record.seq;
                return Err(damaged(&format!(
                    "{stream}#{seq} is not what its hash says"
                )));
            }
            bytes += record.body.len();
            records.push(record);
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(records)
    }

    pub(super) fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        Ok(self.stream_row(stream)?.and_then(|known| known.tail))
    }

    pub(super) fn stream_row(&self, stream: &StreamId) -> Result<Option<StreamRow>, StoreError> {
        let mut statement = self.cached("SELECT id FROM streams WHERE name = ?1")?;
        let id = statement.query_row([stream.as_str()], |row| row.get::<_, i64>(0));
        let Some(id) = id.optional().map_err(failed)? else {
            return Ok(None);
        };
        let mut statement = self
            .cached("SELECT seq, hash FROM frames WHERE stream = ?1 ORDER BY seq DESC LIMIT 1")?;
        let mut rows = statement.query([id]).map_err(failed)?;
        let tail = match rows.next().map_err(failed)? {
            Some(row) => Some(Tail {
                seq: seq(row, 0)?,
                hash: hash(row, 1)?,
            }),
            None => None,
        };
        Ok(Some(StreamRow { id, tail }))
    }

    pub(super) fn streams(
        &self,
        after: Option<&StreamId>,
        limit: usize,
    ) -> Result<Vec<StreamId>, StoreError> {
        // A stream that was removed keeps its name, and nothing else.
        let mut statement = self.cached(
            "SELECT name FROM streams WHERE name > ?1 \
             AND id NOT IN (SELECT stream FROM removals) ORDER BY name LIMIT ?2",
        )?;
        let after = after.map_or("", StreamId::as_str);
        let parameters = params![after, int(limit.min(MAX_PAGE) as u64)];
        let mut rows = statement.query(parameters).map_err(failed)?;
        let mut names = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            names.push(stream_id(row, 0)?);
        }
        Ok(names)
    }

    pub(super) fn blob_get(&self, wanted: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        let mut statement = self.cached("SELECT body FROM blobs WHERE hash = ?1")?;
        let mut rows = statement.query([&wanted.as_bytes()[..]]).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else {
            return Ok(None);
        };
        let body = text(row, 0)?;
        if Hash::of(body.as_bytes()) != *wanted {
            return Err(StoreError::Damaged(format!(
                "the blob {wanted} is not what its hash says"
            )));
        }
        json(body).map(Some)
    }

    pub(super) fn has_blob(&self, wanted: &Hash) -> Result<bool, StoreError> {
        let mut statement = self.cached("SELECT 1 FROM blobs WHERE hash = ?1")?;
        statement.exists([&wanted.as_bytes()[..]]).map_err(failed)
    }

    pub(super) fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let limit = limit.min(MAX_PAGE);
        let mut values: Vec<Value> = Vec::new();
        let mut wheres = Vec::new();
        if let Some(workflow) = &filter.workflow {
            wheres.push("workflow = ?");
            values.push(workflow.clone().into());
        }
        if let Some(status) = &filter.status {
            wheres.push("status = ?");
            values.push(status.clone().into());
        }
        let of_kinds = vec!["(stream > ? || ':' AND stream < ? || ';')"; filter.kinds.len()];
        let of_kinds = format!("({})", of_kinds.join(" OR "));
        if !filter.kinds.is_empty() {
            wheres.push(&of_kinds);
            let twice = filter.kinds.iter().flat_map(|kind| [kind, kind]);
            values.extend(twice.map(|kind| Value::from(kind.clone())));
        }
        match filter.open {
            // Spelled out so that the partial index serves it.
            Some(true) => wheres.push("open = 1"),
            Some(false) => wheres.push("open = 0"),
            None => {}
        }
        if let Some(cursor) = cursor {
            wheres.push("(created_us, stream) < (?, ?)");
            values.push(int(cursor.created_us).into());
            values.push(cursor.stream.to_string().into());
        }
        values.push(int(limit as u64).saturating_add(1).into());
        let wheres = if wheres.is_empty() {
            String::new()
        } else {
            format!("WHERE {}", wheres.join(" AND "))
        };
        let mut statement = self.cached(&format!(
            "SELECT {ROW} FROM index_rows {wheres} \
             ORDER BY created_us DESC, stream DESC LIMIT ?"
        ))?;
        let mut rows = statement.query(params_from_iter(values)).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            found.push(index_row(row)?);
        }
        Ok(Page::of(found, limit))
    }

    pub(super) fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        let row = self.one_row("stream", stream.as_str())?;
        Ok(row.filter(|row| row.stream == *stream))
    }

    pub(super) fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        let row = self.one_row("key", key)?;
        Ok(row.filter(|row| row.key.as_deref() == Some(key)))
    }

    /// The stream that owns a key, even if the rest of its row is damaged: such a row still
    /// reserves its key, and must not stop a writer.
    pub(super) fn owner_of(&self, key: &str) -> Result<Option<StreamId>, StoreError> {
        let mut statement = self.cached("SELECT stream FROM index_rows WHERE key = ?1")?;
        let mut rows = statement.query([key]).map_err(failed)?;
        let row = rows.next().map_err(failed)?;
        Ok(row.and_then(|row| stream_id(row, 0).ok()))
    }

    pub(super) fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        let mut statement = self.cached(&format!(
            "SELECT {ROW}, EXISTS (SELECT 1 FROM streams WHERE name = stream) FROM index_rows"
        ))?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut wrong = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let why = match index_row(row) {
                Err(error) => error.to_string(),
                Ok(_) if !row.get::<_, bool>(8).map_err(failed)? => {
                    "an index row of a stream that does not exist".to_owned()
                }
                Ok(_) => continue,
            };
            let name = raw(row, 0)?.unwrap_or_default();
            wrong.push((String::from_utf8_lossy(&name).into_owned(), why));
        }
        Ok(wrong)
    }

    fn one_row(&self, column: &str, wanted: &str) -> Result<Option<IndexRow>, StoreError> {
        let text = format!("SELECT {ROW} FROM index_rows WHERE {column} = ?1");
        let mut statement = self.cached(&text)?;
        let mut rows = statement.query([wanted]).map_err(failed)?;
        rows.next().map_err(failed)?.map(index_row).transpose()
    }

    /// Counts instead of comparing: a start must not take longer for every run that ever was.
    pub(super) fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        let text = "SELECT (SELECT count(*) FROM index_rows
                     WHERE stream > ?1 || ':' AND stream < ?1 || ';') =
                    (SELECT count(*) FROM streams WHERE name > ?1 || ':' AND name < ?1 || ';'
                     AND id NOT IN (SELECT stream FROM removals))";
        let mut statement = self.cached(text)?;
        statement
            .query_row([kind], |row| row.get(0))
            .map_err(failed)
    }

    pub(super) fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        let mut statement = self.cached(
            "SELECT pos, stream, seq, hash, body, \
             (SELECT other.pos FROM frames AS other \
              WHERE other.stream = frames.stream AND other.seq = frames.seq) \
             FROM frames WHERE pos >= ?1 ORDER BY pos LIMIT ?2",
        )?;
        let parameters = params![scan_start(from), int(limit.min(MAX_PAGE) as u64)];
        let mut rows = statement.query(parameters).map_err(failed)?;
        let (mut frames, mut bytes) = (Vec::new(), 0);
        // Neighbours are mostly of one stream.
        let mut last: (Option<i64>, Option<String>) = (None, None);
        while let Some(row) = rows.next().map_err(failed)? {
            let id = row.get_ref(1).map_err(failed)?.as_i64().ok();
            if id.is_none() || last.0 != id {
                last = (id, id.map_or(Ok(None), |id| self.name_of(id))?);
            }
            let at: i64 = row.get(0).map_err(failed)?;
            let found_at: Option<i64> = row.get(5).map_err(failed)?;
            let seq: i64 = row.get(2).map_err(failed)?;
            let (position, misplaced) = position(at);
            let frame = RawFrame {
                position,
                misplaced,
                stream: last.1.clone(),
                seq: u64::try_from(seq).ok(),
                hash: raw(row, 3)?.unwrap_or_default(),
                body: raw(row, 4)?.unwrap_or_default(),
                is_found: found_at == Some(at),
            };
            bytes += frame.body.len();
            frames.push(frame);
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(frames)
    }

    /// The name of a stream by its number, whatever its bytes are.
    fn name_of(&self, id: i64) -> Result<Option<String>, StoreError> {
        let mut statement = self.cached("SELECT name FROM streams WHERE id = ?1")?;
        let mut rows = statement.query([id]).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else {
            return Ok(None);
        };
        let name = raw(row, 0)?;
        Ok(name.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    pub(super) fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        let mut statement =
            self.cached("SELECT pos, hash, body FROM blobs WHERE pos >= ?1 ORDER BY pos LIMIT ?2")?;
        let parameters = params![scan_start(from), int(limit.min(MAX_PAGE) as u64)];
        let mut rows = statement.query(parameters).map_err(failed)?;
        let (mut blobs, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next().map_err(failed)? {
            let (position, misplaced) = position(row.get(0).map_err(failed)?);
            let blob = RawBlob {
                position,
                misplaced,
                hash: raw(row, 1)?.unwrap_or_default(),
                body: raw(row, 2)?.unwrap_or_default(),
            };
            bytes += blob.body.len();
            blobs.push(blob);
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(blobs)
    }

    pub(super) fn cached(&self, text: &str) -> Result<rusqlite::CachedStatement<'_>, StoreError> {
        self.0.prepare_cached(text).map_err(failed)
    }
}

const ROW: &str = "stream, workflow, status, open, created_us, key, row, digest";

pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(what.to_owned())
}

pub(super) fn seq(row: &Row<'_>, column: usize) -> Result<u64, StoreError> {
    let number: i64 = row.get(column).map_err(failed)?;
    u64::try_from(number).map_err(|_| damaged("a negative number"))
}

fn hash(row: &Row<'_>, column: usize) -> Result<Hash, StoreError> {
    raw(row, column)?
        .and_then(|bytes| Hash::from_bytes(&bytes))
        .ok_or_else(|| damaged("a hash that has not 32 bytes"))
}

/// The bytes of a text or a blob, unchecked; `None` for NULL.
fn raw(row: &Row<'_>, column: usize) -> Result<Option<Vec<u8>>, StoreError> {
    match row.get_ref(column).map_err(failed)? {
        ValueRef::Null => Ok(None),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(Some(bytes.to_vec())),
        ValueRef::Integer(_) | ValueRef::Real(_) => Err(damaged("a number where bytes belong")),
    }
}

pub(super) fn text(row: &Row<'_>, column: usize) -> Result<String, StoreError> {
    let bytes = raw(row, column)?.ok_or_else(|| damaged("NULL where a text belongs"))?;
    String::from_utf8(bytes).map_err(|_| damaged("a text that is not UTF-8"))
}

fn stream_id(row: &Row<'_>, column: usize) -> Result<StreamId, StoreError> {
    let name = text(row, column)?;
    name.parse()
        .map_err(|error| StoreError::failed("read the name of a stream", error))
}

fn json(body: String) -> Result<CanonicalJson, StoreError> {
    strict::check_value(&body).map_err(|error| StoreError::Damaged(error.to_string()))?;
    serde_json::value::RawValue::from_string(body)
        .map(CanonicalJson::from)
        .map_err(|error| StoreError::Damaged(error.to_string()))
}

pub(super) fn record(row: &Row<'_>) -> Result<Record, StoreError> {
    Ok(Record {
        seq: seq(row, 0)?,
        hash: hash(row, 1)?,
        body: text(row, 2)?,
    })
}

fn index_row(row: &Row<'_>) -> Result<IndexRow, StoreError> {
    match read_row(row) {
        Err(StoreError::Damaged(why)) => Err(StoreError::WrongRow(why)),
        other => other,
    }
}

fn read_row(row: &Row<'_>) -> Result<IndexRow, StoreError> {
    let read = IndexRow {
        stream: stream_id(row, 0)?,
        workflow: text(row, 1)?,
        status: text(row, 2)?,
        open: row.get(3).map_err(failed)?,
        created_us: seq(row, 4)?,
        key: row.get(5).map_err(failed)?,
        row: json(text(row, 6)?)?,
    };
    if read.digest() != hash(row, 7)? {
        return Err(StoreError::Damaged(format!(
            "the index row of {} is not what was put",
            read.stream
        )));
    }
    Ok(read)
}

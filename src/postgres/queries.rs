//! Questions to the ledger, for any connection.

use std::sync::{Arc, Mutex, PoisonError};

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::removal::end_of_removed;
use ktsu_ledger::store::{
    Cursor, Filter, IndexRow, MAX_PAGE, PAGE_BYTES, Page, RawBlob, RawFrame, StoreError, Tail,
};
use ktsu_ledger::{Hash, Record, StreamId};
use tokio_postgres::types::Type;
use tokio_postgres::{Config, Row};

use crate::connection::{Connection, QueryError, SqlParameter};
use crate::values::{
    ROW, bytes, column, damaged, hash, index_row, int, json, limit, number, record, stream_id,
    text, texts, unsigned,
};

/// What is done when a question fails.
const READING: &str = "read the ledger";

/// A ledger that can be asked; its connection is made anew once it is lost.
#[derive(Debug)]
pub(crate) struct PostgresQueries {
    config: Config,
    connection: Mutex<Option<Arc<Connection>>>,
}

/// The number and the tail of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredStream {
    pub(crate) id: i64,
    pub(crate) tail: Option<Tail>,
}

impl PostgresQueries {
    /// A ledger that is not connected yet.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            connection: Mutex::new(None),
        }
    }

    /// The connection, made where there is none.
    pub(crate) fn connection(&self) -> Result<Arc<Connection>, QueryError> {
        let mut held = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = held.as_ref().filter(|open| !open.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let open = Arc::new(Connection::open(&self.config)?);
        *held = Some(Arc::clone(&open));
        Ok(open)
    }

    /// Gives the connection up.
    pub(crate) fn disconnect(&self) {
        let mut held = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *held = None;
    }

    /// Asks. A lost connection is made anew, once: a question changes nothing.
    pub(crate) fn ask(
        &self,
        question: &str,
        parameters: &dyn Fn() -> Vec<SqlParameter>,
    ) -> Result<Vec<Row>, StoreError> {
        let asked = |this: &Self| this.connection()?.query(question, parameters());
        match asked(self) {
            Err(QueryError::Lost(_)) => {
                self.disconnect();
                asked(self).map_err(|error| error.reading(READING))
            }
            answered => answered.map_err(|error| error.reading(READING)),
        }
    }

    fn ask_one(
        &self,
        question: &str,
        parameters: &dyn Fn() -> Vec<SqlParameter>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.ask(question, parameters)?.into_iter().next())
    }

    pub(crate) fn read(
        &self,
        stream: &StreamId,
        from: u64,
        most: usize,
    ) -> Result<Vec<Record>, StoreError> {
        // The sum is of the frames before: a page has at least one, however large.
        let question = "SELECT seq, hash, body FROM (
               SELECT seq, hash, body, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before
               FROM (SELECT seq, hash, body FROM frames
                     WHERE stream = (SELECT id FROM streams WHERE name = $1) AND seq >= $2
                     ORDER BY seq LIMIT $3) AS page) AS summed
             WHERE before < $4 ORDER BY seq";
        let rows = self.ask(question, &|| {
            vec![
                text(stream.as_str()),
                number(from),
                limit(most.min(MAX_PAGE)),
                limit(PAGE_BYTES),
            ]
        })?;
        rows.iter().map(|row| record(row, stream)).collect()
    }

    /// The streams of these names that exist, removed ones included.
    pub(crate) fn stream_rows(
        &self,
        names: &[StreamId],
    ) -> Result<Vec<(StreamId, StoredStream)>, StoreError> {
        let question = "SELECT name, id, seq, hash FROM streams LEFT JOIN LATERAL (
               SELECT seq, hash FROM frames WHERE stream = streams.id ORDER BY seq DESC LIMIT 1
             ) AS last ON true WHERE name = ANY ($1)";
        let rows = self.ask(question, &|| {
            vec![texts(names.iter().map(StreamId::as_str))]
        })?;
        let found = rows.iter().map(|row| {
            let name: &str = column(row, 0)?;
            let last: Option<i64> = column(row, 2)?;
            let tail = match last {
                Some(_) => Some(Tail {
                    seq: unsigned(row, 2)?,
                    hash: hash(row, 3)?,
                }),
                None => None,
            };
            let id = column(row, 1)?;
            Ok((stream_id(name)?, StoredStream { id, tail }))
        });
        found.collect()
    }

    pub(crate) fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        let found = self.stream_rows(std::slice::from_ref(stream))?;
        Ok(found.first().and_then(|(_, row)| row.tail))
    }

    pub(crate) fn streams(
        &self,
        after: Option<&StreamId>,
        most: usize,
    ) -> Result<Vec<StreamId>, StoreError> {
        // A stream that was removed keeps its name, and nothing else.
        let question = "SELECT name FROM streams WHERE name > $1
             AND id NOT IN (SELECT stream FROM removals) ORDER BY name LIMIT $2";
        let rows = self.ask(question, &|| {
            let after = after.map_or("", StreamId::as_str);
            vec![text(after), limit(most.min(MAX_PAGE))]
        })?;
        rows.iter().map(|row| stream_id(column(row, 0)?)).collect()
    }

    pub(crate) fn blob_get(&self, wanted: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        let question = "SELECT body FROM blobs WHERE hash = $1";
        let Some(row) = self.ask_one(question, &|| vec![bytes(wanted)])? else {
            return Ok(None);
        };
        let body: String = column(&row, 0)?;
        match Hash::of(body.as_bytes()) == *wanted {
            true => json(body).map(Some),
            false => Err(StoreError::Damaged(format!(
                "the blob {wanted} is not what its hash says"
            ))),
        }
    }

    pub(crate) fn has_blob(&self, wanted: &Hash) -> Result<bool, StoreError> {
        let question = "SELECT 1 FROM blobs WHERE hash = $1";
        Ok(self.ask_one(question, &|| vec![bytes(wanted)])?.is_some())
    }

    pub(crate) fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        most: usize,
    ) -> Result<Page, StoreError> {
        let most = most.min(MAX_PAGE);
        let question = format!(
            "SELECT {ROW} FROM index_rows
             WHERE ($1::text IS NULL OR workflow = $1) AND ($2::text IS NULL OR status = $2)
               AND ($3::boolean IS NULL OR open = $3)
               AND (cardinality($4::text[]) = 0 OR split_part(stream, ':', 1) = ANY ($4))
               AND ($5::bigint IS NULL OR (created_us, stream) < ($5, $6))
             ORDER BY created_us DESC, stream DESC LIMIT $7"
        );
        let rows = self.ask(&question, &|| {
            let place = cursor.map(|cursor| int(cursor.created_us));
            let stream = cursor.map_or("", |cursor| cursor.stream.as_str());
            vec![
                (Box::new(filter.workflow.clone()), Type::TEXT),
                (Box::new(filter.status.clone()), Type::TEXT),
                (Box::new(filter.open), Type::BOOL),
                texts(filter.kinds.iter().map(String::as_str)),
                (Box::new(place), Type::INT8),
                text(stream),
                limit(most.saturating_add(1)),
            ]
        })?;
        let found: Vec<IndexRow> = rows.iter().map(index_row).collect::<Result<_, _>>()?;
        Ok(Page::of(found, most))
    }

    pub(crate) fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        let question = format!("SELECT {ROW} FROM index_rows WHERE stream = $1");
        let row = self.ask_one(&question, &|| vec![text(stream.as_str())])?;
        row.as_ref().map(index_row).transpose()
    }

    pub(crate) fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        let question = format!("SELECT {ROW} FROM index_rows WHERE key = $1");
        let row = self.ask_one(&question, &|| vec![text(key)])?;
        row.as_ref().map(index_row).transpose()
    }

    /// The keys of these streams, and the streams of these keys, whatever else is in their rows.
    pub(crate) fn keys(
        &self,
        streams: &[StreamId],
        keys: &[String],
    ) -> Result<Vec<(StreamId, String)>, StoreError> {
        let question = "SELECT stream, key FROM index_rows
             WHERE key IS NOT NULL AND (stream = ANY ($1) OR key = ANY ($2))";
        let rows = self.ask(question, &|| {
            vec![
                texts(streams.iter().map(StreamId::as_str)),
                texts(keys.iter().map(String::as_str)),
            ]
        })?;
        let found = rows
            .iter()
            .map(|row| Ok((stream_id(column(row, 0)?)?, column(row, 1)?)));
        found.collect()
    }

    /// The frame of `store` that removed a stream.
    pub(crate) fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        let question = "SELECT seq, hash, body FROM frames WHERE pos = (
               SELECT authority FROM removals WHERE stream = (SELECT id FROM streams WHERE name = $1))";
        let row = self.ask_one(question, &|| vec![text(stream.as_str())])?;
        row.map(|row| record(&row, &StreamId::store())).transpose()
    }

    /// The number after the last frame of a removed stream.
    pub(crate) fn removed_end(&self, stream: &StreamId) -> Result<Option<u64>, StoreError> {
        let Some(record) = self.removal(stream)? else {
            return Ok(None);
        };
        end_of_removed(stream, &record).map(Some)
    }

    pub(crate) fn removals(&self, from: u64, most: usize) -> Result<Vec<Record>, StoreError> {
        let question = "SELECT seq, hash, body FROM frames
             WHERE pos IN (SELECT authority FROM removals) AND seq >= $1 ORDER BY seq LIMIT $2";
        let rows = self.ask(question, &|| vec![number(from), limit(most.min(MAX_PAGE))])?;
        let store = StreamId::store();
        rows.iter().map(|row| record(row, &store)).collect()
    }

    /// The bodies of the frames after a position.
    pub(crate) fn bodies_after(&self, position: u64) -> Result<Vec<String>, StoreError> {
        let mut bodies = Vec::new();
        let mut from = position;
        loop {
            let page = self.scan_frames(from.saturating_add(1), MAX_PAGE)?;
            let Some(last) = page.last() else {
                return Ok(bodies);
            };
            from = last.position;
            for frame in page {
                let body = String::from_utf8(frame.body);
                bodies.push(body.map_err(|_| damaged("a text that is not UTF-8"))?);
            }
        }
    }

    pub(crate) fn positions(
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

    pub(crate) fn scan_frames(&self, from: u64, most: usize) -> Result<Vec<RawFrame>, StoreError> {
        let question = "SELECT pos, name, seq, hash, body,
               (SELECT other.pos FROM frames AS other
                WHERE other.stream = summed.stream AND other.seq = summed.seq) AS found_at FROM (
               SELECT *, sum(octet_length(body)) OVER (ORDER BY pos) - octet_length(body) AS before
               FROM (SELECT * FROM frames WHERE pos >= $1 ORDER BY pos LIMIT $2) AS page) AS summed
             LEFT JOIN streams ON streams.id = summed.stream
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

    pub(crate) fn scan_blobs(&self, from: u64, most: usize) -> Result<Vec<RawBlob>, StoreError> {
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

    pub(crate) fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        let question = format!(
            "SELECT {ROW}, EXISTS (SELECT 1 FROM streams WHERE name = stream) FROM index_rows"
        );
        let mut wrong = Vec::new();
        for row in &self.ask(&question, &Vec::new)? {
            let why = match index_row(row) {
                Err(error) => error.to_string(),
                Ok(_) if !column::<bool>(row, 8)? => {
                    "an index row of a stream that does not exist".to_owned()
                }
                Ok(_) => continue,
            };
            wrong.push((column(row, 0)?, why));
        }
        Ok(wrong)
    }

    /// Counts instead of comparing: a start must not take longer for every run that ever was.
    pub(crate) fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        let question =
            "SELECT (SELECT count(*) FROM index_rows WHERE split_part(stream, ':', 1) = $1) =
             (SELECT count(*) FROM streams WHERE split_part(name, ':', 1) = $1
              AND id NOT IN (SELECT stream FROM removals))";
        let row = self.ask_one(question, &|| vec![text(kind)])?;
        row.map_or(Ok(true), |row| column(&row, 0))
    }
}

/// Where a scan begins; one from 0 shows what only a damaged ledger has.
fn scan_start(from: u64) -> i64 {
    match from {
        0 => i64::MIN,
        from => int(from),
    }
}

/// A position; 0 and a description of the value if it is not one.
fn position(at: i64) -> (u64, Option<String>) {
    match u64::try_from(at) {
        Ok(position) if position > 0 => (position, None),
        Ok(_) | Err(_) => (0, Some(at.to_string())),
    }
}

//! Questions to the ledger, for any connection.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::removal::end_of_removed;
use ktsu_ledger::store::columns::int;
use ktsu_ledger::store::{
    Audit, Cursor, Filter, IndexRow, MAX_PAGE, PAGE_BYTES, Page, StoreError, Tail,
};
use ktsu_ledger::{Hash, Reader, Record, StreamId};
use tokio_postgres::Row;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::Type;

use crate::connection::{Connection, SqlParameter};
use crate::query_error::QueryError;
use crate::server::{PostgresServer, ServerDurability};
use crate::statements::CommitPolicy;
use crate::values::{
    ROW, bytes, column, damaged, hash, hashes, index_row, json, key, key_list, key_parameter,
    limit, number, record, stream_id, text, texts, unsigned,
};

/// What is done when a question fails.
const READING: &str = "read the ledger";
/// Begins a transaction that sees one state, for as long as it takes.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL idle_in_transaction_session_timeout = 0";
/// The longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time for which a question is asked again: a server starts again in less.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest wait of an owner: less than an appender waits for an outcome, and than a lease lasts.
const OWNER_TIMEOUT: Duration = Duration::from_secs(3);

/// A ledger that can be asked; its connection is made anew once it is lost.
#[derive(Debug)]
pub(crate) struct PostgresQueries {
    server: PostgresServer,
    /// The longest wait for an answer.
    limit: Duration,
    asker: Asker,
    connection: Mutex<Option<Arc<Connection>>>,
}

/// What asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// A reader: it asks again while a server that it knows starts again.
    Reader,
    /// The owner: what it cannot find out is unknown, and its appender asks again.
    Owner,
    /// A reader that asks everything in one transaction, which ends with its connection.
    Snapshot,
}

/// The number and the tail of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredStream {
    pub(crate) id: i64,
    pub(crate) tail: Option<Tail>,
}

impl PostgresQueries {
    /// A ledger that is not connected yet.
    pub(crate) fn new(server: &PostgresServer) -> Self {
        let mut server = server.clone();
        // A machine that is lost says nothing; another one may have its server meanwhile.
        server.config.tcp_user_timeout(OWNER_TIMEOUT);
        Self {
            server,
            limit: ANSWER_TIMEOUT,
            asker: Asker::Reader,
            connection: Mutex::new(None),
        }
    }

    /// When a transaction on its servers counts as stored.
    pub(crate) fn commit_policy(&self) -> CommitPolicy {
        self.server.durability.commit_policy()
    }

    /// What its address says of how durable its servers are.
    pub(crate) fn durability(&self) -> ServerDurability {
        self.server.durability
    }

    /// On a server that writes.
    pub(crate) fn of_primary(server: &PostgresServer) -> Self {
        let mut server = server.clone();
        server
            .config
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Self::new(&server)
    }

    /// As its owner sees it, on a server that writes.
    pub(crate) fn of_owner(server: &PostgresServer) -> Self {
        Self {
            limit: OWNER_TIMEOUT,
            asker: Asker::Owner,
            ..Self::of_primary(server)
        }
    }

    /// As it is now, whatever is appended meanwhile.
    pub(crate) fn snapshot(server: &PostgresServer) -> Result<Self, StoreError> {
        let ledger = Self {
            server: server.clone(),
            asker: Asker::Snapshot,
            ..Self::new(server)
        };
        let begun = ledger
            .connection()
            .and_then(|connection| connection.run(SNAPSHOT));
        begun.map_err(|error| error.reading(READING))?;
        Ok(ledger)
    }

    /// A second connection, which ends with what it is used for.
    pub(crate) fn another(&self) -> Result<Connection, QueryError> {
        Connection::open(&self.server, self.limit)
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
        if self.asker == Asker::Snapshot && held.is_some() {
            return Err(QueryError::Lost("the connection ended"));
        }
        let open = Arc::new(Connection::open(&self.server, self.limit)?);
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

    /// Asks. A question changes nothing, so it is asked again after a connection was lost: once at once,
    /// and by a reader for as long as a server takes to start again.
    pub(crate) fn ask(
        &self,
        question: &str,
        parameters: &dyn Fn() -> Vec<SqlParameter>,
    ) -> Result<Vec<Row>, StoreError> {
        let begun = Instant::now();
        let mut is_first = true;
        loop {
            let connection = self.connection();
            let answered = connection.and_then(|open| open.query(question, parameters()));
            let error = match answered {
                Ok(rows) => {
                    self.server.note_answer();
                    return Ok(rows);
                }
                Err(error) => error,
            };
            if !matches!(error, QueryError::Refused(_)) && self.asker != Asker::Snapshot {
                // A late answer would be in front of the next one.
                self.disconnect();
            }
            let is_worth_it = is_first || self.is_patient() && begun.elapsed() < PATIENCE;
            if !matches!(error, QueryError::Lost(_))
                || self.asker == Asker::Snapshot
                || !is_worth_it
            {
                return Err(match self.asker {
                    Asker::Owner => error.writing(READING),
                    Asker::Reader | Asker::Snapshot => error.reading(READING),
                });
            }
            if !is_first {
                sleep(RETRY_PAUSE);
            }
            is_first = false;
        }
    }

    /// Returns `true` if a server that is away is waited for.
    fn is_patient(&self) -> bool {
        self.asker == Asker::Reader && self.server.has_answered()
    }

    pub(crate) fn ask_one(
        &self,
        question: &str,
        parameters: &dyn Fn() -> Vec<SqlParameter>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.ask(question, parameters)?.into_iter().next())
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

    /// Those of some blobs that the ledger has.
    pub(crate) fn known_blobs(&self, wanted: &[Hash]) -> Result<HashSet<Hash>, StoreError> {
        let question = "SELECT hash FROM blobs WHERE hash = ANY ($1)";
        let rows = self.ask(question, &|| vec![hashes(wanted)])?;
        rows.iter().map(|row| hash(row, 0)).collect()
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
                key_list(keys.iter().map(|key| Some(key.as_str()))),
            ]
        })?;
        let found = rows
            .iter()
            .map(|row| Ok((stream_id(column(row, 0)?)?, key(row, 1)?)));
        let found: Result<Vec<(StreamId, Option<String>)>, StoreError> = found.collect();
        let found = found?.into_iter();
        Ok(found
            .filter_map(|(stream, key)| Some((stream, key?)))
            .collect())
    }

    /// The number after the last frame of a removed stream.
    pub(crate) fn removed_end(&self, stream: &StreamId) -> Result<Option<u64>, StoreError> {
        let Some(record) = self.removal(stream)? else {
            return Ok(None);
        };
        end_of_removed(stream, &record).map(Some)
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
}

impl Reader for PostgresQueries {
    fn read(&self, stream: &StreamId, from: u64, most: usize) -> Result<Vec<Record>, StoreError> {
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

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        let found = self.stream_rows(std::slice::from_ref(stream))?;
        Ok(found.first().and_then(|(_, row)| row.tail))
    }

    fn streams(&self, after: Option<&StreamId>, most: usize) -> Result<Vec<StreamId>, StoreError> {
        // A stream that was removed keeps its name, and nothing else.
        let question = "SELECT name FROM streams WHERE name > $1
             AND id NOT IN (SELECT stream FROM removals) ORDER BY name LIMIT $2";
        let rows = self.ask(question, &|| {
            let after = after.map_or("", StreamId::as_str);
            vec![text(after), limit(most.min(MAX_PAGE))]
        })?;
        rows.iter().map(|row| stream_id(column(row, 0)?)).collect()
    }

    fn blob_get(&self, wanted: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
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

    fn list(
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

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        let question = format!("SELECT {ROW} FROM index_rows WHERE stream = $1");
        let row = self.ask_one(&question, &|| vec![text(stream.as_str())])?;
        row.as_ref().map(index_row).transpose()
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        let question = format!("SELECT {ROW} FROM index_rows WHERE key = $1");
        let row = self.ask_one(&question, &|| vec![key_parameter(key)])?;
        row.as_ref().map(index_row).transpose()
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}
